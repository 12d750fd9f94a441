"""The replication that stands on `fedlib`: papers and claims, figures, pages, the lab and the command line."""

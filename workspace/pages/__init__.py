"""Shows results: plots, tables, the site."""

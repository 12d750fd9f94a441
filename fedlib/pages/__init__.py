"""What people look at: plots, tables, the site."""

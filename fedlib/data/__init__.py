"""Datasets: where they come from, how they are verified and loaded, and how clients share them."""

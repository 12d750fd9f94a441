"""Datasets: where they come from, how they are verified and loaded, and how they are split over the clients."""

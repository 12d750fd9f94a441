"""`fedlib.simulate`: models, data and samplers of one's own, and what comes back."""

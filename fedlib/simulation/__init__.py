"""The round loop: many runs in lockstep, what the server does, what is measured."""

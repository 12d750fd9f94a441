"""The round loop: many runs in lockstep, the server's algorithms, and the evaluation."""

"""The world around the clients: who is there, how fast they are, and when a round ends."""

from fedlib.world.availability import availability, latent
from fedlib.world.clock import LiveWorld

__all__ = ["LiveWorld", "availability", "latent"]

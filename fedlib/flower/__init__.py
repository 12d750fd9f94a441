"""The samplers in a Flower federation: `SamplerStrategy` on the server, `Answers` on the clients.

Each of the two is loaded on first use, so that a client needs neither torch nor a sampler.
"""

from importlib import import_module
from typing import Any

try:
    import flwr  # noqa: F401
except ModuleNotFoundError:
    raise ModuleNotFoundError(
        "fedlib.flower needs Flower: in this project's folder, pip install '.[flower]' (fedlib on PyPI is another's)."
    ) from None

_HOME = {"Answers": "answers", "Metrics": "questions", "SamplerStrategy": "strategy"}
__all__ = ["Answers", "Metrics", "SamplerStrategy"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)

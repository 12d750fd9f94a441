"""A sampler's process: it imports what the sampler may use, locks itself in, executes the file and answers messages.

Everything before `lock` is code of the house; whatever the sampler's file does comes after it.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from types import ModuleType
from typing import Any

from fedlib.isolated.sandbox import lock, separate

SEPARATED = separate()  # before NumPy, whose threads would forbid it

import numpy as np  # noqa: E402

from fedlib.errors import SamplerError  # noqa: E402
from fedlib.isolated.messages import Broken, Channel  # noqa: E402
from fedlib.kinds import checked, parameters_of  # noqa: E402
from fedlib.samplers import Federation, Question, Report, Round, Sampler, Selection, Updates, answered  # noqa: E402
from fedlib.samplers.checks import check_attributes, check_class  # noqa: E402
from fedlib.samplers.registry import REGISTRY  # noqa: E402

MODULE = "submission"


def main(given: dict[str, Any]) -> None:
    """Speak with the process that started this one until that ends.

    given: `modules` to import, `memory` in bytes, `processor_seconds`.
    """
    channel = Channel(0, os.dup(1))
    os.dup2(2, 1)  # what the sampler prints is no message
    REGISTRY.loaded = True  # nothing else is registered here
    for name in given["modules"]:
        with suppress(ImportError):  # its file says the same, with the line
            importlib.import_module(name)
    held = SEPARATED + lock(given["memory"], given["processor_seconds"])
    channel.send({"ready": held})
    host = Host(channel)
    with suppress(Broken):
        while True:
            message = channel.receive()
            try:
                answer = getattr(host, message.pop("do"))(message)
            except Broken:
                raise
            except BaseException as error:
                answer = {"error": said(error, host.file)}
            channel.send(answer)


class Host:
    """The sampler of this process: what each message asks of it. Methods take a message and return the answer."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.file = ""

    def load(self, message: dict[str, Any]) -> dict[str, Any]:
        """Execute the file `code`, which registers the sampler `name`, and check what is written of its class."""
        self.file, name = message["file"], message["name"]
        module = sys.modules[MODULE] = ModuleType(MODULE)
        exec(compile(message["code"].tobytes(), self.file, "exec"), vars(module))
        found = [key for key, cls in REGISTRY.entries.items() if cls.__module__ == MODULE]
        if found != [name]:
            raise SamplerError(f"it registers {found or 'nothing'}; register one sampler, {name!r}")
        self.kind: type[Sampler] = REGISTRY.entries[name]
        check_class(self.kind)
        return {"class": self.kind.__name__}

    def setup(self, message: dict[str, Any]) -> dict[str, Any]:
        """Make the sampler with `parameters` and set it up; the answer is what it declares."""
        parameters = checked(parameters_of(self.kind), message["parameters"], f"sampler {self.kind.__name__}")
        self.sampler = self.kind(**parameters)
        check_attributes(self.sampler, self.kind.__name__)
        self.hidden: dict[str, str] = message["hidden"]
        self.fed = federation(message, self.hidden)
        self.sampler.setup(self.fed, generator(message["random"]))
        asks = self.sampler.asks
        return {
            "aggregation": self.sampler.aggregation,
            "draws": self.sampler.draws,
            "fewer": self.sampler.fewer,
            "needs": sorted(self.sampler.needs),
            "reads": sorted(self.sampler.reads),
            "asks": None if asks is None else sorted(kind.__name__ for kind in asks),
            "observes": self.kind.observe is not Sampler.observe,
        }

    def select(self, message: dict[str, Any]) -> dict[str, Any]:
        selection = answered(self.sampler.select(self.round(message)), self.ask)
        if not isinstance(selection, Selection):
            raise SamplerError(f"select must return a Selection, not {type(selection).__name__}")
        numbers = {key: getattr(selection, key) for key in ("weights", "expected")}
        return {"clients": whole(selection.clients)} | {
            key: None if values is None else np.asarray(values, dtype=float)
            for key, values in numbers.items()
        }

    def observe(self, message: dict[str, Any]) -> dict[str, Any]:
        columns = message["report"]
        told = {key: columns.get(key) for key in ("updates", "losses", "squared", "seconds")}
        told |= {key: columns[key] for key in ("missing", "late")}
        report = Report(np.array(columns["clients"], dtype=int), **told)
        answered(self.sampler.observe(self.round(message), without(report, self.hidden)), self.ask)
        return {}

    def state(self, message: dict[str, Any]) -> dict[str, Any]:
        return {"state": tagged(self.sampler.state_dict())}

    def restore(self, message: dict[str, Any]) -> dict[str, Any]:
        self.sampler.load_state_dict(untagged(message["state"]))
        return {}

    def round(self, message: dict[str, Any]) -> Round:
        available = np.array(message["available"], dtype=int)
        available.flags.writeable = False
        rng = generator(message["random"])
        told = Round(message["t"], rng, available, message["m"], message.get("time", 0.0), message["silent"])
        return without(told, self.hidden)

    def ask(self, question: Any) -> np.ndarray:
        """The answer to a question of the sampler. What clients make of an update is made here: all of it came."""
        if not isinstance(question, Question):
            raise SamplerError(f"it yielded a {type(question).__name__}, which is not a question")
        asked: dict[str, Any] = {"ask": type(question).__name__}
        for name in ("clients", "train"):
            if hasattr(question, name):
                asked[name] = whole(getattr(question, name))
        if hasattr(question, "teams"):
            asked["teams"] = [whole(team) for team in question.teams]
        self.channel.send(asked)
        reply = self.channel.receive()
        answer = reply["answer"]
        answer.flags.writeable = False
        if not isinstance(question, Updates):
            return answer
        came = ~np.isnan(answer).all(axis=1)
        encoded = question.encode(answer[came])
        if came.all():
            return encoded
        rows = np.full((len(answer), *encoded.shape[1:]), np.nan, dtype=np.result_type(encoded, np.float32))
        rows[came] = encoded
        return rows


def federation(message: Mapping[str, Any], hidden: Mapping[str, str]) -> Federation:
    """What stays the same, as the sampler may see it."""
    sizes, K = np.array(message["sizes"], dtype=int), message["K"]
    labels = message.get("label_counts")
    counts = np.zeros((len(sizes), K), dtype=int) if labels is None else np.array(labels, dtype=int)
    places = [None if place is None else slice(*place) for place in message["output"]]
    fed = Federation(sizes, counts, message["m"], message["T"], message["d"], *places)
    return without(fed, hidden, K=K)


def without(value: Any, hidden: Mapping[str, str], **constants: Any) -> Any:
    """The same object, whose attributes among `hidden` raise when they are read: they never came here."""

    class Partly(type(value)):
        def __getattribute__(self, name: str) -> Any:
            if name in hidden:
                raise SamplerError(f"it uses {name}, but `information` does not name {hidden[name]}; add it")
            return constants[name] if name in constants else super().__getattribute__(name)

    object.__setattr__(value, "__class__", Partly)
    return value


def generator(words: list[int]) -> np.random.Generator:
    """The generator whose state the other process sent."""
    bits: Any = np.random.SFC64(0)
    state = {"state": np.array(words, dtype=np.uint64)}
    bits.state = {"bit_generator": "SFC64", "state": state, "has_uint32": 0, "uinteger": 0}
    return np.random.Generator(bits)


def whole(clients: Any) -> list[int]:
    """Ids as a list of whole numbers.

    Raises:
        SamplerError: they are something else.
    """
    ids = np.asarray(clients)
    if ids.ndim != 1 or (len(ids) and ids.dtype.kind not in "iu"):
        raise SamplerError("the clients that it names must be a list of whole numbers")
    return ids.tolist()


def tagged(value: Any) -> Any:
    """A sampler's state as lists, numbers, text and arrays, so that it comes back as it was."""
    match value:
        case dict():
            return {"pairs": [[tagged(k), tagged(v)] for k, v in value.items()]}
        case tuple():
            return {"tuple": [tagged(v) for v in value]}
        case list():
            return [tagged(v) for v in value]
        case np.generic():
            return {"number": np.asarray(value)}
        case float():
            return {"float": value.hex()}
        case np.ndarray() | bool() | int() | str() | None:
            return value
    raise SamplerError(
        f"it keeps a {type(value).__name__}; keep arrays of numbers, numbers, text, lists or dicts"
    )


def untagged(value: Any) -> Any:
    """What `tagged` was given."""
    if isinstance(value, list):
        return [untagged(v) for v in value]
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    match kind:
        case "pairs":
            return {untagged(k): untagged(v) for k, v in inner}
        case "tuple":
            return tuple(untagged(v) for v in inner)
        case "number":
            return inner[()]
    return float.fromhex(inner)


def said(error: BaseException, file: str) -> str:
    """An error as one line: what it says, and the last line of the sampler's file that was reached."""
    try:
        words = " ".join(str(error).split())
    except Exception:
        words = ""
    if not isinstance(error, SamplerError):
        words = f"{type(error).__name__}: {words}" if words else type(error).__name__
    lines = [step.lineno for step in traceback.extract_tb(error.__traceback__) if step.filename == file]
    return f"{words[:2000].rstrip('.')} ({file}, line {lines[-1]})" if lines else words[:2000]

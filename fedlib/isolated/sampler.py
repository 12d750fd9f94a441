"""A sampler that lives in another process, as the engine sees it: a `Sampler` whose methods send messages.

The other process gets what the sampler is entitled to see and nothing else; data, models and the ledger of costs stay
here. What comes back is checked as every sampler's choices are, and by the rules of whoever made the class (`made`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, fields, make_dataclass
from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np

from fedlib.errors import SamplerError
from fedlib.isolated.messages import opened, packed
from fedlib.isolated.process import Executable, Process
from fedlib.samplers.base import (
    Asking,
    Federation,
    Gradients,
    Information,
    Losses,
    Question,
    Report,
    Round,
    Sampler,
    Selection,
    ServerLosses,
    TrialLosses,
    Updates,
    sees,
)
from fedlib.samplers.checks import check_attributes
from fedlib.samplers.registry import REGISTRY

QUESTIONS = {kind.__name__: kind for kind in (Gradients, Losses, ServerLosses, TrialLosses, Updates)}
SHOWS: dict[str, Information] = {  # attribute of a federation, a round or a report -> what it shows
    "label_counts": "labels",
    "losses": "losses",
    "squared": "losses",
    "updates": "updates",
    "seconds": "speeds",
    "time": "speeds",
}
Rule = Callable[[Any, Round, Selection], None]  # (sampler, round, selection), raises SamplerError


@dataclass
class Isolated(Sampler):
    """A sampler in a process of its own. Classes of it come from `made`.

    Its attributes (`draws`, `asks`, ...) are what the process declares once it is set up. A question to the clients is
    passed on only if it shows what the sampler may see, and updates are counted whole: that is what crosses over.
    """

    program: ClassVar[Executable]
    label: ClassVar[str]
    information: ClassVar[frozenset[Information]]
    rule: ClassVar[Rule | None]

    def setup(self, fed: Federation, rng: np.random.Generator) -> None:
        super().setup(fed, rng)
        self.process = self.begun()
        hidden = {name: kind for name, kind in SHOWS.items() if kind not in self.information}
        labels = {} if "label_counts" in hidden else {"label_counts": fed.label_counts.tolist()}
        declared = self.process.ask(
            {
                "do": "setup",
                "parameters": {name: getattr(self, name) for name in (f.name for f in fields(self))},
                "sizes": fed.sizes.tolist(),
                "K": fed.K,
                "m": fed.m,
                "T": fed.T,
                "d": fed.d,
                "output": [
                    [place.start, place.stop] if place else None
                    for place in (fed.output_weight, fed.output_bias)
                ],
                "hidden": hidden,
                "random": words(rng),
                **labels,
            }
        )
        self.declare(declared)

    @classmethod
    def begun(cls) -> Process:
        """A process that has executed the file, or that of the command."""
        process = cls.program.start()
        if cls.program.code:
            code = np.frombuffer(cls.program.code, dtype=np.uint8)
            process.ready().ask({"do": "load", "file": cls.program.file, "name": cls.label, "code": code})
        return process

    def declare(self, declared: dict[str, Any]) -> None:
        """Take over what the process says of its sampler.

        Raises:
            SamplerError: it says what no sampler may, or sees other things than those that are named.
        """
        asks = declared.get("asks")
        if asks is None or not isinstance(asks, list):
            raise SamplerError("`asks` is missing; list the questions, or write asks = frozenset()")
        for name in asks:
            if name not in QUESTIONS:
                raise SamplerError(
                    f"`asks` has {str(name)[:50]}, which is no question of fedlib.samplers.base"
                )
        vars(self).update(
            asks=frozenset(QUESTIONS[name] for name in asks),
            needs=frozenset(declared.get("needs", ())),
            reads=frozenset(declared.get("reads", ())),
            draws=declared.get("draws", "distinct"),
            fewer=declared.get("fewer", False),
            aggregation=declared.get("aggregation", "mean"),
        )
        self.observes = declared.get("observes", True) is True
        check_attributes(self, self.label)
        found = sees(self)
        for kind in get_args(Information):
            if kind in found and kind not in self.information:
                raise SamplerError(f"it uses {kind}, which `information` does not name; add it")
            if kind in self.information and kind not in found:
                raise SamplerError(
                    f"`information` names {kind}, which its `asks`, `needs` and `reads` do not; take it away"
                )

    def select(self, round: Round) -> Asking:
        said = yield from self.converse("select", round, {})
        weights, expected = (
            None if said.get(key) is None else np.asarray(said[key], dtype=float)
            for key in ("weights", "expected")
        )
        selection = Selection(self.ids(said.get("clients")), weights, expected)
        if rule := type(self).rule:
            rule(self, round, selection)
        return selection

    def observe(self, round: Round, report: Report) -> Asking | None:
        return self.told(round, report) if self.observes else None

    def told(self, round: Round, report: Report) -> Asking:
        sent: dict[str, Any] = {
            "clients": report.clients.tolist(),
            "missing": [int(k) for k in report.missing],
        }
        sent["late"] = [int(k) for k in report.late]
        for name in ("updates", "losses", "squared", "seconds"):
            value = getattr(report, name)
            if name in self.reads and value is not None:
                sent[name] = value
        yield from self.converse("observe", round, {"report": sent})

    def converse(self, phase: str, round: Round, more: dict[str, Any]) -> Asking:
        """Send a round, pass the questions on until the process has done what was asked; returns its last message."""
        time = {"time": round.time} if "speeds" in self.information else {}
        now = {"t": round.t, "m": round.m, "available": round.available.tolist(), "silent": round.silent}
        said = self.process.ask({"do": phase, **now, **time, "random": words(round.rng), **more})
        while "ask" in said:
            answer = yield self.question(said)
            said = self.process.ask({"answer": np.asarray(answer)})
        return said

    def question(self, said: dict[str, Any]) -> Question:
        """The question that a message asks, as the engine knows it.

        Raises:
            SamplerError: it is no question, or one that the sampler did not declare.
        """
        kind = QUESTIONS.get(said["ask"]) if isinstance(said["ask"], str) else None
        if kind is None or kind not in (self.asks or ()):
            raise SamplerError(f"it asks {str(said['ask'])[:50]!r}, which its `asks` does not list")
        if kind is ServerLosses:
            teams = said.get("teams")
            if not isinstance(teams, list):
                raise SamplerError("its ServerLosses names no teams")
            return ServerLosses([self.ids(team).tolist() for team in teams])
        if kind is TrialLosses:
            return TrialLosses(self.ids(said.get("train")), self.ids(said.get("clients")))
        return kind(self.ids(said.get("clients")))  # the others name clients alone

    def ids(self, said: Any) -> np.ndarray:
        """Clients that a message names.

        Raises:
            SamplerError: they are no list of whole numbers.
        """
        most = 10 * max(self.fed.N, self.fed.m)
        if not isinstance(said, list) or len(said) > most or not all(type(k) is int for k in said):
            raise SamplerError("the clients that it names must be a list of whole numbers")
        if said and not 0 <= min(said) <= max(said) < 2**31:
            raise SamplerError(f"it names a client that does not exist; they are 0 to {self.fed.N - 1}")
        return np.array(said, dtype=int)

    def state_dict(self) -> dict[str, Any]:
        """The process's own words on its state, which nobody here reads."""
        return {"said": np.frombuffer(packed(self.process.ask({"do": "state"})), dtype=np.uint8).copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.process.ask({"do": "restore", **opened(state["said"].tobytes())})


def made(
    label: str,
    program: Executable,
    information: Collection[Information] = (),
    parameters: Sequence[str] = (),
    rule: Rule | None = None,
) -> type[Isolated]:
    """A class of samplers in processes of their own, to be registered under `label`.

    program: what runs there. information: all that may be sent to it beside the clients' sizes and who trained.
    parameters: the names of its parameters, whose values the process checks. rule: checks every selection.
    """
    declared = [(name, Any, field(default=None)) for name in parameters]
    members = {"program": program, "label": label, "information": frozenset(information), "rule": rule}
    members["__module__"] = "__main__"  # of this process alone: no other one finds it by its name
    kind: Any = make_dataclass(label, declared, bases=(Isolated,), namespace=members)
    return kind


def spoken(
    name: str,
    command: Sequence[str],
    information: Collection[Information] = (),
    parameters: Sequence[str] = (),
) -> type[Isolated]:
    """Register a sampler that is another program, in any language, which speaks the messages of `docs/any-language.md`.

    command: starts the program. information, parameters: as in `made`.

    Raises:
        NameTaken: another sampler has that name.
    """
    files = [Path(part).read_bytes() for part in command[1:] if Path(part).is_file()]
    digest = hashlib.sha256(repr([Path(command[0]).name, *command[1:], *files]).encode()).hexdigest()[:16]
    cls = made(name, Executable(name, command=tuple(command)), information, parameters)
    return REGISTRY.register(name, digest=digest)(cls)


def words(rng: np.random.Generator) -> list[int]:
    """The state of a generator that has not drawn yet, as four numbers below 2**64."""
    state: Any = rng.bit_generator.state
    return [int(word) for word in state["state"]["state"]]

"""A sampler in a process of its own: it chooses as in this one, and reaches nothing but its messages."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fedlib.errors import SamplerError
from fedlib.isolated import sandbox
from fedlib.isolated.messages import Broken, packed, unpacked
from fedlib.isolated.process import Executable, Limits, modules_of
from fedlib.isolated.sampler import Isolated, made
from fedlib.samplers import Federation, Losses, Report, Selection, answered, sees
from fedlib.streams import stream

N, K, M, T, D = 12, 3, 4, 20, 6

HEAD = """
from dataclasses import dataclass
import numpy as np
from fedlib.samplers.base import Federation, Gradients, Losses, Question, Report, Round, Sampler, Selection, Updates
from fedlib.samplers.base import register

@register("mine")
@dataclass
class Mine(Sampler):
    asks = frozenset()
    share: float = 0.5
"""
SELECT = """
    def select(self, round):
        return Selection(round.rng.permutation(round.available)[: round.m])
"""


def federation() -> Federation:
    labels = np.arange(N * K).reshape(N, K)
    return Federation(labels.sum(axis=1), labels, M, T, D, slice(0, 3), slice(3, 6))


def code(body: str = SELECT, top: str = "") -> bytes:
    """A sampler's file: `top` before its class, and the members of the class."""
    return (textwrap.dedent(top) + HEAD + textwrap.indent(textwrap.dedent(body), "    ")).encode()


def started(
    body: str = SELECT, information: tuple = (), top: str = "", seconds: float = 20.0, **parameters: Any
) -> Isolated:
    program = Executable("mine.py", code(body, top), limits=Limits(seconds, 60, 1024))
    sampler = made("mine", program, information, list(parameters))(**parameters)
    sampler.setup(federation(), stream(0, "setup"))
    return sampler


def choose(
    sampler: Isolated, t: int = 1, answer: Any = lambda question: np.zeros(len(question.clients))
) -> Selection:
    return answered(sampler.select(federation().round(t, stream(0, "select", t))), answer)


def tell(sampler: Isolated, t: int = 1) -> None:
    updates = np.arange(M * D, dtype=np.float32).reshape(M, D)
    report = Report(np.arange(M), updates, np.arange(M) + 0.1)
    answered(sampler.observe(federation().round(t, stream(0, "observe", t)), report), lambda question: None)


# -- the contract -------------------------------------------------------------------------------------------------


def test_it_chooses_as_in_this_process() -> None:
    """Draws from the same generators, parameters, losses of the report, and state between the rounds."""
    body = """
    reads = frozenset({"losses", "updates"})
    def setup(self, fed, rng):
        super().setup(fed, rng)
        self.value = rng.random(fed.N) * self.share + fed.p
    def select(self, round):
        return Selection(np.argsort(self.value + 0.1 * round.rng.random(self.fed.N))[: round.m])
    def observe(self, round, report):
        self.value[report.clients] += report.losses + report.updates.mean(axis=1) * round.rng.random()
    """
    there = started(body, ("losses", "updates"), share=0.25)
    space: dict[str, Any] = {"__name__": __name__}
    exec(code(body).replace(b'@register("mine")', b""), space)
    here = space["Mine"](share=0.25)
    here.setup(federation(), stream(0, "setup"))
    for t in range(1, 6):
        ours = here.select(federation().round(t, stream(0, "select", t)))
        assert choose(there, t).clients.tolist() == ours.clients.tolist()
        updates = np.arange(M * D, dtype=np.float32).reshape(M, D)
        report = Report(np.arange(M), updates, np.arange(M) + 0.1)
        here.observe(federation().round(t, stream(0, "observe", t)), report)
        tell(there, t)
    assert sees(there) == {"losses", "updates"}


def test_it_asks_and_hears_answers() -> None:
    body = """
    asks = frozenset({Losses})
    def select(self, round):
        losses = yield Losses(round.available)
        more = yield Losses(np.argsort(losses)[:2])
        return Selection(np.argsort(losses)[2 : 2 + round.m], expected=np.full(round.m, 1 / 3))
    """
    asked: list[list[int]] = []

    def answer(question: Losses) -> np.ndarray:
        asked.append(question.clients.tolist())
        return -question.clients.astype(float)

    selection = choose(started(body, ("losses",)), answer=answer)
    assert asked == [list(range(N)), [11, 10]]
    assert selection.clients.tolist() == [9, 8, 7, 6]
    assert selection.expected == pytest.approx([1 / 3] * 4, abs=0)


def test_updates_count_whole_whatever_is_made_of_them() -> None:
    body = """
    asks = frozenset({Updates})
    def select(self, round):
        norms = yield Updates(round.available, parameters=0, scalars=0, encode=lambda u: np.abs(u).sum(axis=1))
        return Selection(np.argsort(norms)[: round.m])
    """
    questions = []

    def answer(question: Any) -> np.ndarray:
        questions.append(question)
        return np.float32(question.clients[:, None] - 5.0) * np.ones((1, D), np.float32)

    assert set(choose(started(body, ("updates",)), answer=answer).clients.tolist()) == {3, 4, 5, 6}
    assert (questions[0].parameters, questions[0].scalars) == (None, 0)


def test_its_state_continues_in_another_process() -> None:
    body = """
    def setup(self, fed, rng):
        super().setup(fed, rng)
        self.kept = {"turns": np.zeros(fed.N), 3: (1, [0.1, None, True]), "n": np.float32(2)}
    def select(self, round):
        assert self.kept[3] == (1, [0.1, None, True]) and type(self.kept["n"]) is np.float32
        chosen = np.argsort(self.kept["turns"], kind="stable")[: round.m]
        self.kept["turns"][chosen] += 1
        return Selection(chosen)
    """
    first, second = started(body), started(body)
    choose(first)
    second.load_state_dict(first.state_dict())
    assert choose(second, 2).clients.tolist() == choose(first, 2).clients.tolist() == [4, 5, 6, 7]


# -- what never enters ----------------------------------------------------------------------------------------------

HIDDEN = {
    "labels": "    return Selection(np.argsort(self.fed.label_counts[:, 0])[: round.m])",
    "labels if N is large": "    return Selection(np.arange(round.m) if self.fed.N < 5 else self.fed.label_counts[0])",
    "labels if T is the paper's": "    return Selection(self.fed.label_counts[0] if self.fed.T > 9 else np.arange(4))",
    "labels by vars": "    return Selection(np.argsort(-vars(self.fed)['label_counts'][:, 0] * 1.0)[: round.m])",
    "time": "    return Selection(np.arange(round.m) + int(round.time))",
}


@pytest.mark.parametrize("kind", HIDDEN)
def test_what_is_not_named_is_not_there(kind: str) -> None:
    sampler = started("def select(self, round):\n" + HIDDEN[kind])
    if kind == "labels by vars":
        assert choose(sampler).clients.tolist() == [0, 1, 2, 3], "there are zeros"
        return
    with pytest.raises(SamplerError, match=r"but `information` does not name (labels|speeds); add it"):
        choose(sampler)


def test_no_object_of_its_process_holds_more() -> None:
    """Neither the frames of its callers nor anything else that is alive there: data, partition, model, checker."""
    body = """
    def select(self, round):
        import gc, sys
        frame, names = sys._getframe(), set()
        while frame:
            names |= set(frame.f_locals)
            frame = frame.f_back
        kinds = {str(type(one).__module__).split(".")[0] + "." + type(one).__name__ for one in gc.get_objects()}
        found = names & {"partition", "labels", "live", "lockstep", "engine"}
        found |= {kind for kind in kinds if kind.startswith(("workspace", "torch", "pandas"))}
        found |= {kind for kind in kinds if kind in ("fedlib.Partition", "fedlib.Dataset", "fedlib.Live")}
        if found:
            raise ValueError(sorted(found))
        return Selection(np.arange(round.m))
    """
    assert choose(started(body)).clients.tolist() == [0, 1, 2, 3]


def test_nothing_is_remembered_from_another_run() -> None:
    """What one run saw, another one cannot replay: each is a process of its own, and none can write."""
    body = """
    seen = []
    def select(self, round):
        self.seen.append(round.t)
        np.kept = [*getattr(np, "kept", []), round.t]
        return Selection(np.arange(round.m) + len(self.seen) + len(np.kept))
    """
    first, second = started(body), started(body)
    assert choose(first).clients.tolist() == choose(second).clients.tolist() == [2, 3, 4, 5]


def test_functions_that_load_modules_when_they_are_called_work() -> None:
    body = """
    def select(self, round):
        np.unique(np.array([3, 1, 3]), return_counts=True), np.median(np.arange(3.0)), np.linalg.norm(np.ones(2))
        np.percentile(np.arange(3.0), 50), np.isin(3, [1]), np.cov(np.eye(2)), np.fft.fft(np.ones(2))
        np.setdiff1d(np.arange(3), [1]), np.intersect1d([1], [1]), np.histogram(np.ones(2))
        round.rng.dirichlet(np.ones(3)), round.rng.multinomial(3, [0.5, 0.5]), np.array2string(np.ones(2))
        return Selection(np.arange(round.m))
    """
    assert choose(started(body)).clients.tolist() == [0, 1, 2, 3]


def test_what_it_prints_appears_nowhere(capfd: pytest.CaptureFixture[str]) -> None:
    """Its environment has nothing to tell, and a line that it prints is not taken for an answer."""
    body = """
    def select(self, round):
        import os, sys
        print(dict(os.environ), '{"clients": [9, 9, 9, 9]}', flush=True)
        print("x", file=sys.stderr, flush=True)
        return Selection(np.arange(round.m))
    """
    assert choose(started(body)).clients.tolist() == [0, 1, 2, 3]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["losses", "updates", "seconds"])
def test_a_report_has_nothing_that_is_not_named(name: str) -> None:
    body = SELECT + f"\n    def observe(self, round, report):\n        self.seen = report.{name}\n"
    with pytest.raises(SamplerError, match=f"it uses {name}, but"):
        tell(started(textwrap.dedent(body)))


def test_what_is_declared_and_what_is_named_must_agree() -> None:
    with pytest.raises(SamplerError, match="uses losses, which `information` does not name"):
        started('reads = frozenset({"losses"})' + SELECT.replace("\n    ", "\n"))
    with pytest.raises(SamplerError, match="names updates, which its"):
        started(information=("updates",))
    with pytest.raises(SamplerError, match="`asks` is missing"):
        started("asks = None" + SELECT.replace("\n    ", "\n"))


def test_only_declared_questions_of_the_house_are_answered() -> None:
    body = "def select(self, round):\n    yield Losses(round.available)\n    return Selection(round.available[:4])"
    with pytest.raises(SamplerError, match="asks 'Losses', which its `asks` does not list"):
        choose(started(body))
    own = "class Labels(Question):\n    clients = np.arange(3)\n"
    with pytest.raises(SamplerError, match="Labels, which is no question of"):
        started(
            "asks = frozenset({Labels})" + SELECT.replace("\n    ", "\n"), top=own.replace("class", HEAD_ONLY)
        )


HEAD_ONLY = "import numpy as np\nfrom fedlib.samplers.base import Question\nclass"

# -- what it cannot reach -------------------------------------------------------------------------------------------

SYSTEM = """
import ctypes, sys
def call(number, *arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    result = libc.syscall(ctypes.c_long(number), *arguments)
    if result >= 0:
        raise RuntimeError(f"reached {result}")
    raise PermissionError(ctypes.get_errno(), "refused")
"""
REACH = {  # what a file tries at its top -> what it is told
    "reads a file": (
        "np.fromfile('/etc/hostname', dtype=np.uint8)",
        "Permission|not permitted|Too many open files",
    ),
    "writes a file": ("np.save('/tmp/forged', np.zeros(3))", "Permission|not permitted|Too many open files"),
    "opens a file": ("open('/proc/self/environ').read()", "Permission|not permitted|Too many open files"),
    "lists a folder": ("import os; os.listdir('/')", "Permission|not permitted|Too many open files"),
    "opens a socket": (SYSTEM + "call(41, 2, 1, 0)", "refused"),
    "starts a process": ("import os; os.fork()", "BlockingIOError|not permitted"),
    "executes a program": ("import os; os.execv('/bin/true', ['true'])", "Permission|not permitted"),
    "signals its parent": ("import os; os.kill(os.getppid(), 9)", "Permission|not permitted"),
    "reads its parent's memory": (SYSTEM + "import os; call(101, 16, os.getppid(), 0, 0)", "refused"),
    "lifts its limits": (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (9, 9))",
        "not permitted|not allowed|exceeds",
    ),
    "looks for the checker": (
        "import sys; assert not [m for m in sys.modules if m.startswith(('workspace', 'torch', 'fedlib.data'))]\n"
        "frame = sys._getframe()\nwhile frame:\n"
        "    assert not {'partition', 'labels', 'live'} & set(frame.f_locals)\n    frame = frame.f_back\n"
        "import os; raise ValueError(sorted(os.environ))",
        r"\['(LC_CTYPE', ')?NUMBA_NUM_THREADS', 'OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS'\]",
    ),
    "ends as if all were well": ("import os; os._exit(0)", "its process has ended before it answered"),
    "leaves": ("raise SystemExit(0)", "SystemExit"),
    "never ends": ("while True: pass", "takes more than 1.5 s for an answer"),
    "takes all memory": ("np.ones(10**10)", "MemoryError|allocate"),
    "says what is no message": ("import os; [os.write(fd, b'{]\\n') for fd in (3,)]", "what is no message"),
    "registers another name": (
        "class Other(Sampler): pass\nregister('other')(Other)",
        "registers .*; register one sampler, 'mine'",
    ),
    "is no Python": ("def", "SyntaxError"),
}


@pytest.mark.skipif(not hasattr(sandbox, "lock"), reason="no sandbox")
@pytest.mark.parametrize("what", REACH)
def test_it_reaches_nothing(what: str) -> None:
    line, words = REACH[what]
    if "call(" in line and held_here().isdisjoint({"seccomp"}):
        pytest.skip("this system has no seccomp filter")
    top = "import numpy as np\nfrom fedlib.samplers.base import Sampler, register\n" + line
    with pytest.raises(SamplerError, match=words) as caught:
        started(top=top, seconds=1.5 if what == "never ends" else 20)
    assert "\n" not in str(caught.value)


def held_here() -> set[str]:
    return set(made("mine", Executable("mine.py", code())).begun().held)


def test_every_mechanism_that_this_system_has_holds() -> None:
    """The limits hold everywhere; what else there is depends on the system, and is told."""
    held = held_here()
    assert "limits" in held
    assert held <= set(sandbox.MECHANISMS)
    if lacking := set(sandbox.MECHANISMS) - held:
        pytest.skip(f"this system has no {' and no '.join(sorted(lacking))}")


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        ("[0, 1, 2, 3]", "must return a Selection"),
        ("Selection(np.array([0.5, 1, 2, 3]))", "list of whole numbers"),
        ("Selection(np.array([0, 1, 2, -3]))", "does not exist"),
        ("Selection(np.array([0, 1, 2, 2**40]))", "does not exist"),
        ("Selection(np.zeros(10**4, dtype=int))", "list of whole numbers"),
    ],
)
def test_what_is_no_selection_is_refused(returned: str, words: str) -> None:
    with pytest.raises(SamplerError, match=words):
        choose(started(f"def select(self, round):\n    return {returned}"))


def test_an_error_names_the_file_and_the_line() -> None:
    with pytest.raises(SamplerError, match=r"^KeyError: 'x' \(mine.py, line 1\d\)$"):
        choose(started("def select(self, round):\n    return {}['x']"))


def test_a_parameter_is_checked_by_its_process() -> None:
    with pytest.raises(SamplerError, match="share"):
        started(share="half")
    with pytest.raises(SamplerError, match="no parameter 'extent'"):
        started(extent=1)


def test_its_process_ends_with_it() -> None:
    sampler = started()
    process = sampler.process.started
    del sampler
    assert process.wait(5) is not None


# -- messages ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        b"[1]",
        b"{",
        b"[" * 100_000,
        b'{"a": {"array": "O", "shape": [1]}}',
        b'{"a": {"array": "<f4", "shape": [99999999999]}}',
        b'{"a": {"array": "<f4", "shape": [-1]}}',
        b'{"a": {"array": "<f4,<f4", "shape": [1]}}',
        b'{"a": {"array": "what", "shape": "x"}}',
    ],
)
def test_what_is_no_message_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any sentence
        unpacked(line)


def test_a_message_has_no_form_for_what_json_has_none_for() -> None:
    for value in (float("nan"), {1}, object(), np.array(["text"])):
        with pytest.raises((TypeError, ValueError)):
            packed({"value": value})


def test_modules_that_may_be_imported_are_those_of_mathematics() -> None:
    file = b"import os, numpy as np\nfrom scipy import stats\nimport numpy.fft\nx = np.polynomial\nfrom . import y"
    assert modules_of(file) == [
        "numpy",
        "numpy.fft",
        "numpy.ma",
        "numpy.polynomial",
        "numpy.random",
        "scipy",
        "scipy.stats",
    ]
    assert modules_of(b"def") == []


@pytest.fixture(autouse=True)
def _no_process_stays() -> Iterator[None]:
    yield
    import gc

    gc.collect()


def test_a_message_that_is_not_taken_in_time_is_an_error() -> None:
    import os

    from fedlib.isolated.messages import Channel

    inward, outward = os.pipe()
    os.set_blocking(outward, False)
    try:
        with pytest.raises(Broken, match="in time"):
            Channel(inward, outward).send({"array": np.zeros(10**6)}, 0.05)
    finally:
        os.close(inward)
        os.close(outward)

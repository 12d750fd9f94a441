"""Pairs of programs that differ in one value, put together at random: one store never takes one for the other.

Each program puts a value somewhere (a global, a closure, a slot, ...), inside a chain of things that hold things. Its
digest must be another one for another value, or it must be refused in a sentence; and the same one for the same value.
"""

from __future__ import annotations

import sys
import textwrap
from contextlib import suppress
from types import ModuleType

import numpy as np
import pytest

from fedlib.errors import ConfigError
from fedlib.settings.identity import digest_of_value

PAIRS = 900
VALUES = [  # two texts of values that differ
    *[
        ("1", "2"),
        ("1", "1.0"),
        ("1", "True"),
        ("0.0", "-0.0"),
        ("'a'", "'b'"),
        ("b'a'", "'a'"),
        ("(1,)", "[1]"),
    ],
    *[
        ("[1, [2]]", "[1, [3]]"),
        ("{'a': 1}", "{'b': 1}"),
        ("{'a': 1}", "{'a': 2}"),
        ("{1, 2}", "{1, 3}"),
        ("frozenset({1})", "frozenset({2})"),
    ],
    *[
        ("np.ones(2)", "np.zeros(2)"),
        ("np.ones(2)", "np.ones(2, np.float32)"),
        ("np.float32(1)", "np.float64(1)"),
    ],
    *[("torch.ones(2)", "torch.zeros(2)"), ("torch.ones(2)", "torch.ones(2, 1)"), ("slice(1)", "slice(2)")],
    *[("np.array([{'a': 1}])", "np.array([{'a': 2}])"), ("range(2)", "range(3)"), ("None", "...")],
    *[("collections.deque([1])", "collections.deque([2])"), ("complex(1, 2)", "complex(1, 3)")],
    *[("pathlib.Path('a')", "pathlib.Path('b')"), ("decimal.Decimal('1.0')", "decimal.Decimal('1.1')")],
    *[
        ("fractions.Fraction(1, 2)", "fractions.Fraction(1, 3)"),
        ("datetime.date(2020, 1, 1)", "datetime.date(2020, 1, 2)"),
    ],
    *[("np.random.default_rng(1)", "np.random.default_rng(2)"), ("random.Random(1)", "random.Random(2)")],
    *[("np.random.RandomState(1)", "np.random.RandomState(2)"), ("torch.float32", "torch.float64")],
    *[("nn.Linear(1, 1, bias=True)", "nn.Linear(1, 1, bias=False)"), ("nn.Dropout(0.1)", "nn.Dropout(0.2)")],
    *[
        ("operator.itemgetter(1)", "operator.itemgetter(2)"),
        ("operator.methodcaller('a', b=1)", "operator.methodcaller('a', b=2)"),
    ],
    *[
        ("types.SimpleNamespace(a=1)", "types.SimpleNamespace(a=2)"),
        ("(lambda x: x + 1)", "(lambda x: x + 2)"),
    ],
    *[
        ("array.array('d', [1])", "array.array('d', [2])"),
        ("collections.Counter('a')", "collections.Counter('b')"),
    ],
    *[
        ("collections.OrderedDict(a=1)", "collections.OrderedDict(a=2)"),
        ("collections.ChainMap({1: 1})", "collections.ChainMap({1: 2})"),
    ],
    *[
        ("torch.Generator().manual_seed(1)", "torch.Generator().manual_seed(2)"),
        ("re.compile('a')", "re.compile('b')"),
    ],
]
HOLDERS = [  # statements that make h hold what v holds
    "h = v",
    "h = [v]",
    "h = (0, v)",
    "h = dict(k=v)",
    "h = collections.defaultdict(int, k=v)",
    "h = collections.deque([v])",
    "h = types.MappingProxyType(dict(k=v))",
    "h = functools.partial(max, v)",
    "h = functools.partial(max, key=v)",
    "h = functools.cache(lambda v=v: v)",
    "h = property(lambda self, v=v: v)",
    "h = staticmethod(lambda v=v: v)",
    "def make(v):\n    return lambda: v\nh = make(v)",
    "def h(v=v):\n    return v",
    "def h(*, v=v):\n    return v",
    "def h():\n    return h.v\nh.v = v",
    "G{n} = v\ndef h():\n    return G{n}",
    "G{n}_hooks = v\ndef h():\n    return G{n}_hooks",
    "h = nn.Identity()\nh.my_hooks = v",
    "G{n} = v\ndef g{n}():\n    return G{n}\ndef h():\n    return [g{n}() for _ in range(2)]",
    "class C:\n    pass\nh = C()\nh.v = v",
    "class C:\n    pass\nh = C()\nh.func, h.v = print, v",
    "class C:\n    pass\nh = C()\nh.__wrapped__, h.v = len, v",
    "class C:\n    pass\nh = C()\nh._orig_mod, h.v = nn.Identity(), v",
    "class C:\n    __slots__ = ('v', 'w')\nh = C()\nh.v = v",
    "class h:\n    held = v",
    "class C:\n    held = v\nclass h(C):\n    pass",
    "class C:\n    held = v\nh = C()",
    "class C(list):\n    pass\nh = C([v])",
    "class C(dict):\n    pass\nh = C(k=v)",
    "class C(dict):\n    __getattr__ = dict.__getitem__\nh = C(k=v)",
    "class C(collections.defaultdict):\n    pass\nh = C(int, k=v)",
    "class C(tuple):\n    pass\nh = C([v])\nh.v = v",
    "class C(float):\n    pass\nh = C(1)\nh.v = v",
    "class C(np.ndarray):\n    pass\nh = np.zeros(2).view(C)\nh.v = v",
    "class C(collections.UserDict):\n    pass\nh = C(k=v)",
    "class C:\n    def __init__(self, v): self.v = v\n    def __reduce__(self): return C, ()\nh = C(v)",
    "class C:\n    def __init__(self, v): self.v = v\n    def __getstate__(self): return {}\nh = C(v)",
    "class C:\n    def __init__(self, v): self.v = v\n    def m(self): return self.v\nh = C(v).m",
    "class C(nn.Module):\n    pass\nh = C()\nh.v = v",
    "h = nn.Sequential(nn.Identity())\nh[0].v = v",
    "h = nn.Identity()\nh.register_forward_hook(lambda m, i, o, v=v: o)",
    "class M(type):\n    held = v\nclass h(metaclass=M):\n    pass",
    "P{n} = collections.namedtuple('P{n}', 'v')\nh = P{n}(v)",
    "@dataclasses.dataclass\nclass C:\n    v: object = None\nh = C(v)",
    "class E(enum.Enum):\n    one = [v]\nh = E.one",
    "m{n} = types.ModuleType('m{n}')\nm{n}.__file__ = 'm.py'\nm{n}.v = v\ndef h():\n    return m{n}.v",
    "m{n} = types.ModuleType('m{n}')\nm{n}.__file__ = 'm.py'\nm{n}.v = v\ndef h():\n    return getattr(m{n}, 'v')",
    "m = types.ModuleType('m')\nm.__file__ = 'm.py'\nm.v = v\nclass C:\n    pass\nh = C()\nh.m = m",
    "@functools.wraps(print)\ndef h(v=v):\n    return v",
    "@torch.no_grad()\ndef h(v=v):\n    return v",
    "@contextlib.contextmanager\ndef h(v=v):\n    yield v",
    "h = torch.func.vmap(lambda x, v=v: x)",
    "h = (each for each in [v])",
    "h = iter([v])",
    "h = map(len, [v])",
    "h = weakref.ref(v)",
    "h = memoryview(bytearray(str(v).encode()))",
    "h = threading.local()\nh.v = v",
]
IMPORTS = (
    "import array, collections, contextlib, dataclasses, datetime, decimal, enum, fractions, functools, operator\n"
    "import pathlib, random, re, threading, types, weakref\nimport numpy as np\nimport torch\nfrom torch import nn\n"
    "torch.manual_seed(0)\n"
)


def made(value: str, holders: list[str]) -> dict:
    """The names of a program that puts the value into the first holder, this one into the next, and so on, to h."""
    sys.modules["a_program"] = module = ModuleType("a_program")
    space = vars(module)
    lines = [IMPORTS, f"v = {value}\n"]
    lines += [
        f"{textwrap.dedent(holder).replace('{n}', str(n))}\nv = h\n" for n, holder in enumerate(holders)
    ]
    exec(compile("".join(lines), "a program", "exec"), space)
    return space


def seen(value: str, holders: list[str]) -> str | None:
    """The digest of such a program; None if it is refused."""
    try:
        space = made(value, holders)  # it holds what a weak reference refers to
    except TypeError:  # this value cannot be held so: no weak reference, no hash
        return None
    with suppress(ConfigError):
        return digest_of_value(space["h"], "f")
    with pytest.raises(ConfigError, match=r"^[^\n]*; pass key=[^\n]*$"):
        digest_of_value(space["h"], "f")
    return None


def pair(k: int) -> tuple[tuple[str, str], list[str]]:
    """The k-th pair: two values and the things around them. Every value and every holder has its turn."""
    rng = np.random.default_rng(k)
    depth = 1 + k % 3
    places = [k % len(HOLDERS), *rng.integers(len(HOLDERS), size=depth - 1)]
    return VALUES[int(rng.integers(len(VALUES)))], [HOLDERS[i] for i in rng.permutation(places)]


@pytest.mark.outside("two values, one store (a hundred pairs each)")
@pytest.mark.parametrize("first", range(0, PAIRS, 100))
def test_two_values_are_never_taken_for_one(first: int) -> None:
    refused = 0
    for k in range(first, first + 100):
        (one, other), holders = pair(k)
        digest = seen(one, holders)
        if digest is None:
            refused += 1
            continue
        assert digest == seen(one, holders), f"defined again: {one} in {holders}"
        assert digest != seen(other, holders), f"{one} and {other} in {holders}"
    assert refused < 35, "most can be identified"

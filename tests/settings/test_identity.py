"""A value is identified by what it computes: nothing else changes it, and it is the same in every process."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import textwrap
import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType, ModuleType

import numpy as np
import pytest
import torch
from torch import nn

from fedlib.errors import ConfigError
from fedlib.settings.identity import digest_of_value


def program(text: str, **names) -> dict:
    """What a program defines."""
    sys.modules["a_program"] = module = ModuleType("a_program")
    space = vars(module)
    space.update(nn=nn, torch=torch, **names)
    exec(compile(textwrap.dedent(text), "a program", "exec"), space)
    return space


def digest(text: str, name: str = "f", **names) -> str:
    return digest_of_value(program(text, **names)[name], name)


PLAIN = "def f(o, y):\n    return (o - y) ** 2"
SAME = {
    "comment": "# why\ndef f(o, y):  # so\n    # and so\n    return (o - y) ** 2",
    "docstring": 'def f(o, y):\n    """Squares."""\n    return (o - y) ** 2',
    "print": "print('begins')\ndef f(o, y):\n    return (o - y) ** 2",
    "seeds": "seeds = 5\ndef f(o, y):\n    return (o - y) ** 2",
    "space": "def f(o,y):\n\n\n    return (o-y)**2",
    "unused": "def g(): pass\nh = 3\ndef f(o, y):\n    return (o - y) ** 2",
}


@pytest.mark.outside("edits that change nothing")
@pytest.mark.parametrize("kind", SAME)
def test_what_computes_nothing_changes_nothing(kind: str) -> None:
    assert digest(SAME[kind]) == digest(PLAIN)


ONE_OR_TWO = {  # kind -> a program with one place to fill, which computes different things with 1 and with 2
    "default": "def f(o, y, a={}):\n    return a * o",
    "keyword default": "def f(o, y, *, a={}):\n    return a * o",
    "global": "a = {}\ndef f(o, y):\n    return a * o",
    "global of a helper": "a = {}\ndef g(o):\n    return a * o\ndef f(o, y):\n    return g(o)",
    "helper": "def g(o):\n    return o * {}\ndef f(o, y):\n    return g(o)",
    "inner function": "a = {}\ndef f(o, y):\n    return [g * a for g in o]",
    "closure": "def make(a):\n    return lambda o, y: a * o\nf = make({})",
    "closure of a list": "def make(a):\n    return lambda o, y: a[0] * o\nf = make([{}])",
    "function attribute": "def f(o, y):\n    return f.a * o\nf.a = {}",
    "callable object": (
        "class G:\n    def __init__(self, a): self.a = a\n"
        "    def __call__(self, o, y): return o * self.a\nf = G({})"
    ),
    "slots": (
        "class G:\n    __slots__ = ('a',)\n    def __call__(self, o, y): return o * self.a\nf = G()\nf.a = {}"
    ),
    "class attribute": "class G:\n    a = {}\n    def __call__(self, o, y): return o * self.a\nf = G()",
    "base class": (
        "class B:\n    def g(self, o): return o * {}\n"
        "class G(B):\n    def __call__(self, o, y): return self.g(o)\nf = G()"
    ),
    "bound method": (
        "class G:\n    def __init__(self, a): self.a = a\n"
        "    def h(self, o, y): return o * self.a\nf = G({}).h"
    ),
    "partial": "import functools\ndef g(o, y, a): return o * a\nf = functools.partial(g, a={})",
    "property": (
        "class G:\n    @property\n    def a(self): return {}\n"
        "    def __call__(self, o, y): return o * self.a\nf = G()"
    ),
    "decorated": (
        "import functools\ndef d(g):\n    @functools.wraps(g)\n    def h(o, y): return g(o, y) * {}\n    return h\n"
        "@d\ndef f(o, y): return o"
    ),
    "under no_grad": "@torch.no_grad()\ndef f(o, y): return o * {}",
    "cached": "import functools\n@functools.cache\ndef f(o, y): return o * {}",
    "hook": "f = nn.Identity()\nf.register_forward_hook(lambda m, i, o: o * {})",
    "hook of a gradient": "f = nn.PReLU()\nf.weight.register_hook(lambda g: g * {})",
    "numpy array": "import numpy\na = numpy.array([{}])\ndef f(o, y): return o * a",
    "dataclass": (
        "from dataclasses import dataclass\n"
        "@dataclass\nclass f:\n    d: int = {}\n    def select(self, round): return self.d"
    ),
    "field's factory": (
        "from dataclasses import dataclass, field\n"
        "@dataclass\nclass f:\n    d: list = field(default_factory=lambda: [{}])"
    ),
    "object with a func beside": (
        "class G:\n    def __init__(self, a): self.a, self.func = a, abs\n"
        "    def __call__(self, o, y): return o * self.a\nf = G({})"
    ),
    "object with what it wraps": (
        "def g(o, y): return o\n"
        "class G:\n    def __init__(self, a): self.a, self.__wrapped__ = a, g\n"
        "    def __call__(self, o, y): return o * self.a\nf = G({})"
    ),
    "subclass of a list": "class G(list):\n    def __call__(self, o, y): return o * self[0]\nf = G([{}])",
    "attribute of a list": (
        "class G(list):\n    def __call__(self, o, y): return o * self.a\nf = G([3])\nf.a = {}"
    ),
    "subclass of a mapping": "class G(dict):\n    def __call__(self, o, y): return o * self['a']\nf = G(a={})",
    "subclass of a mapping with a default": (
        "import collections\n"
        "class G(collections.defaultdict):\n    def __call__(self, o, y): return o * self['a']\nf = G(int, a={})"
    ),
    "default of a mapping": (
        "import collections\na = collections.defaultdict(lambda: {})\ndef f(o, y): return o * a['x']"
    ),
    "subclass of a number": "class G(float):\n    def __call__(self, o, y): return o * self\nf = G({})",
    "attribute of a number": (
        "class G(float):\n    def __call__(self, o, y): return o * self.a\nf = G(3)\nf.a = {}"
    ),
    "mapping read as attributes": (
        "class G(dict):\n    __getattr__ = dict.__getitem__\na = G(b={})\ndef f(o, y): return o * a.b"
    ),
    "attribute of a module, by its name": (
        "import types\nm = types.ModuleType('m')\nm.__file__ = 'm.py'\nm.a = {}\n"
        "def f(o, y): return o * getattr(m, 'a')"
    ),
    "module on self": (
        "import types\nm = types.ModuleType('m')\nm.__file__ = 'm.py'\nm.a = {}\n"
        "class G:\n    def __init__(self): self.m = m\n    def __call__(self, o, y): return o * self.m.a\nf = G()"
    ),
    "arguments of a method's caller": "import operator\nf = operator.methodcaller('add', other={})",
    "places of an item's getter": "import operator\nf = operator.itemgetter({})",
    "closure of an installed factory": (
        "from torch.optim.swa_utils import get_ema_avg_fn\nf = get_ema_avg_fn({} / 4)"
    ),
    "attribute of an installed function": (
        "import textwrap\ntextwrap.dedent.a = {}\ndef f(o, y): return textwrap.dedent(o)"
    ),
    "default of a class's method": ("class G:\n    def __call__(self, o, y, a={}): return o * a\nf = G()"),
    "metaclass": (
        "class M(type):\n    a = {}\nclass G(metaclass=M):\n"
        "    def __call__(self, o, y): return o * type(self).a\nf = G()"
    ),
    "named tuple": "import collections\nP = collections.namedtuple('P', 'a')\np = P({})\ndef f(o, y): return o * p.a",
    "generator": "import numpy\na = numpy.random.default_rng({})\ndef f(o, y): return a.random()",
    "table": "import pandas\na = pandas.DataFrame({{'a': [{}]}})\ndef f(o, y): return o * a.a[0]",
}
PAIRS = {  # kind -> such a program, and what to fill in
    **{kind: (text, 1, 2) for kind, text in ONE_OR_TWO.items()},
    "code": ("def f(o, y):\n    return (o - y) ** {}", 2, 3),
    "operator": ("def f(o, y):\n    return o {} y", "-", "+"),
    "loss's setting": ("f = nn.CrossEntropyLoss(label_smoothing={})", 0.0, 0.1),
    "loss's weight": ("f = nn.CrossEntropyLoss(weight=torch.tensor([1.0, {}]))", 1.0, 2.0),
    "state": ("f = nn.Linear(1, 1)\nnn.init.constant_(f.weight, {})\nnn.init.zeros_(f.bias)", 1.0, 2.0),
    "attribute of a module": ("f = nn.Identity()\nf.scale = {}", 1.0, 2.0),
    "attribute of a layer": ("f = nn.Sequential(nn.Identity())\nf[0].scale = {}", 1.0, 2.0),
    "frozen parameter": ("f = nn.PReLU()\nf.weight.requires_grad_({})", True, False),
    "sign of zero": ("a = {}\ndef f(o, y): return o / a", 0.0, -0.0),
    "type of a number": ("a = {}\ndef f(o, y): return o / a", 1, 1.0),
}


@pytest.mark.outside("values that decide the numbers")
@pytest.mark.parametrize("kind", PAIRS)
def test_what_decides_the_numbers_is_seen(kind: str) -> None:
    text, one, other = PAIRS[kind]
    assert digest(text.format(one)) == digest(text.format(one)), "defined again, it is the same"
    assert digest(text.format(one)) != digest(text.format(other))


def test_the_environment_that_code_names_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in (
        "import os\ndef f(o, y): return o * float(os.environ['SCALE'])",
        "import os\ndef f(o, y): return o * float(os.getenv('SCALE', 1))",
        "import os\nread = os.getenv\ndef f(o, y): return o * float(read('SCALE'))",
        "from os import environ\ndef f(o, y): return o * float(environ.get('SCALE'))",
        "def f(o, y):\n    import os\n    return o * float(os.environ['SCALE'])",
    ):
        seen = []
        for value in ("1", "2", "1"):
            monkeypatch.setenv("SCALE", value)
            monkeypatch.setenv("ANOTHER", f"{value}{len(seen)}")
            seen.append(digest(text))
        assert seen[0] == seen[2] != seen[1], text


def test_a_module_beside_the_program_counts_as_far_as_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    texts = {
        "attribute": "import beside\ndef f(o, y): return beside.g(o)",
        "name": "from beside import g\ndef f(o, y): return g(o)",
        "inside": "def f(o, y):\n    from beside import g\n    return g(o)",
        "inside, whole": "def f(o, y):\n    import beside\n    return beside.g(o)",
        "passed on": "import beside\ndef h(m, o): return m.g(o)\ndef f(o, y): return h(beside, o)",
    }
    for kind, text in texts.items():
        seen = []
        for content in ("def g(o): return 1", "# 1\ndef g(o): return 1", "def g(o): return 2"):
            (tmp_path / "beside.py").write_text(content)
            sys.modules.pop("beside", None)
            seen.append(digest(text))
        assert seen[0] == seen[1] != seen[2], kind
    sys.modules.pop("beside", None)


def test_it_is_the_same_in_every_process(tmp_path: Path) -> None:
    """Whatever the hash seed, and however many hooks there were before."""
    (tmp_path / "a.py").write_text(
        "import sys, torch\nfrom torch import nn\nfrom fedlib.settings.identity import digest_of_value\n"
        "for _ in range(int(sys.argv[1])):\n    nn.Identity().register_forward_hook(print)\n"
        "torch.manual_seed(0)\nnames = {'a', 'b', 'c'}\n"
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.l = nn.TransformerEncoderLayer(8, 2, 8)\n        self.l.register_forward_hook(lambda *a: None)\n"
        "    def forward(self, x):\n        return self.l(x) if 'a' in names and x in {'u', 'v', 'w'} else x\n"
        "print(digest_of_value([Net, Net(), nn.CrossEntropyLoss()], ''))\n"
    )
    seen = set()
    for k in "17":
        environment = {**os.environ, "PYTHONHASHSEED": k, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, str(tmp_path / "a.py"), k]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        seen.add(done.stdout)
    assert len(seen) == 1


@dataclass
class Holder:
    inner: object = None
    more: list = field(default_factory=list)


@pytest.mark.outside("values that cannot be identified")
@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("value", "named"),
    [
        (threading.Lock(), "loss is a lock"),
        (Holder(threading.Lock()), r"loss\.inner is a lock"),
        (Holder(more=[(k for k in range(3))]), r"loss\.more is a generator"),
        (functools.partial(print, file=sys.__stdout__), "is a TextIOWrapper"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_identified_is_named_with_the_way_out(value: object, named: str) -> None:
    with pytest.raises(ConfigError, match=f"{named}.*cannot be identified; pass key=") as raised:
        digest_of_value(value, "loss")
    assert "\n" not in str(raised.value)
    assert digest_of_value(value, "loss", skip=True)


HIDDEN = {  # kind -> a program that reads what is not written in it, and how the message calls that
    "environment as a whole": ("import os\ndef f(o, y): return o * len(os.environ)", "f uses os.environ"),
    "environment by a helper": (
        "import os\ndef env(name): return os.environ[name]\ndef f(o, y): return o * float(env('SCALE'))",
        "f.env uses os.environ",
    ),
    "environment by a helper with a default": (
        "import os\ndef env(name, default='1'):\n    'A variable.'\n    return os.getenv(name, default)\n"
        "def f(o, y): return o * float(env('SCALE'))",
        "f.env uses os.getenv",
    ),
    "environment by a text that is put together": (
        "import os\nkind = 'SCA'\ndef f(o, y): return o * float(os.environ[f'{kind}LE'])",
        "f uses os.environ",
    ),
    "environment by a sum": (
        "import os\nkind = 'SCA'\ndef f(o, y): return o * float(os.environ.get(kind + 'LE', '1'))",
        "f uses os.environ.get|f uses os.environ",
    ),
    "environment by a class's text": (
        "import os\nclass G:\n    name = 'SCALE'\n"
        "    def __call__(self, o, y): return o * float(os.environ[self.name])\nf = G()",
        "uses os.environ",
    ),
    "environment's method": (
        "import os\nread = os.environ.get\ndef f(o, y): return o * float(read('SCALE'))",
        "_Environ",
    ),
    "globals": ("a = 1\ndef f(o, y): return o * globals()['a']", "f uses globals"),
    "eval": ("a = 1\ndef f(o, y): return o * eval('a')", "f uses eval"),
    "file": ("def f(o, y): return o * float(open('scale').read())", "f uses open"),
    "all modules": ("import sys\ndef f(o, y): return o * sys.modules['__main__'].a", "f uses sys.modules"),
    "import by a name": (
        "import importlib\nname = 'math'\ndef f(o, y): return o * importlib.import_module(name).pi",
        "f uses importlib.import_module",
    ),
}


@pytest.mark.outside("values that cannot be identified")
@pytest.mark.bad_input
@pytest.mark.parametrize("kind", HIDDEN)
def test_code_that_reads_what_is_not_written_in_it_is_refused(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCALE", "2")
    text, named = HIDDEN[kind]
    with pytest.raises(ConfigError, match=f"({named}).*; pass key=") as raised:
        digest(text)
    assert "\n" not in str(raised.value)


def test_values_that_contain_themselves_end() -> None:
    a: list = [1]
    a.append(a)
    holder = Holder()
    holder.inner = holder
    assert digest_of_value(a, "") != digest_of_value(holder, "")
    space = program("def f(n): return n and g(n - 1)\ndef g(n): return n and f(n - 1)")
    assert isinstance(space["f"], FunctionType)
    assert digest_of_value(space["f"], "") != digest_of_value(np.ones(2), "")

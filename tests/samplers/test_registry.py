"""Whose code is whose: what is not shipped is known by its source, names are taken once, a broken file stops nobody."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass

import forked
import pytest
from copies import copy_project

from fedlib import algorithms, released
from fedlib.registry import NameTaken
from fedlib.samplers import SAMPLERS, Sampler, find, register, registry, version_of
from fedlib.settings import code
from fedlib.settings.schema import Method

OWN = """
from dataclasses import dataclass
from fedlib.samplers.base import Sampler, Selection, register
{imports}

@register("{name}")
@dataclass
class Mine(Sampler):
    def select(self, round):
        return Selection({select})
"""


def own(name: str = "mine", select: str = "self.fed.everyone[: self.fed.m]", imports: str = "") -> str:
    return OWN.format(name=name, select=select, imports=imports)


def test_all_that_is_shipped_is_recorded_and_only_that():
    assert set(released.record()) == set(code.everything())
    for kind, of_kind in code.REGISTRIES.items():
        assert {f"{kind} {name}" for name in of_kind.revisions} <= set(released.record())


def test_revision_0_is_no_part_of_an_address_and_another_version_is(monkeypatch):
    settings = {"model": "mlp", "method": {"sampler": "md", "algorithm": "fedavg"}, "labels": {"model": "?"}}
    assert code.code_of(settings) == {}
    known = dict(released.record())
    monkeypatch.setitem(registry.REGISTRY.revisions, "md", 2)
    known["sampler md"] = known["sampler md"] | {"revision": 2}
    known["model mlp"] = known["model mlp"] | {"address": "0123456789abcdef"}
    monkeypatch.setattr(released, "record", lambda: known)
    assert code.code_of([settings]) == {"sampler md": 2, "model mlp": "0123456789abcdef"}
    monkeypatch.delitem(algorithms.base.REGISTRY.revisions, "fedavg")
    monkeypatch.setattr(released, "record", dict)
    found = code.code_of({**settings, "partition": {"scheme": "iid"}})
    names = ("algorithm fedavg", "model mlp", "sampler md", "scheme iid")
    assert [len(found[name]) for name in names] == [16] * 4, "digests"


@pytest.fixture
def package(tmp_path, monkeypatch) -> Callable[[dict[str, str]], str]:
    """Write the files of a package, import its module `chooser`, and give the version of the sampler `mine`."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def load(files: dict[str, str]) -> str:
        for name, text in files.items():
            path = tmp_path / "somebodys" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        for name in [name for name in sys.modules if name.split(".")[0] == "somebodys"]:
            del sys.modules[name]
        SAMPLERS.pop("mine", None)
        importlib.invalidate_caches()
        importlib.import_module("somebodys.chooser")
        return str(version_of("mine"))

    yield load
    SAMPLERS.pop("mine", None)
    for name in [name for name in sys.modules if name.split(".")[0] == "somebodys"]:
        del sys.modules[name]


@pytest.mark.parametrize(
    "line",
    [
        "from somebodys.help import ids",
        "from .help import ids",
        "from . import help",
        "import somebodys.help",
    ],
)
def test_what_is_not_shipped_is_known_by_its_source_and_by_what_it_imports_of_its_own(line, package):
    files = {
        "__init__.py": "",
        "help.py": "from .deep.er import k\nids = [0]",
        "deep/er.py": "k = 1",
        "no.py": "",
    }
    versions = [package({**files, "chooser.py": own(imports=line)})]
    assert package({"no.py": "x = 1"}) == versions[0], "it does not import this"
    changes = (
        {"chooser.py": own(imports=line, select="self.fed.everyone[-self.fed.m :]")},
        {"help.py": "from .deep.er import k\nids = [1]"},
        {"deep/er.py": "k = 2"},
    )
    versions += [package(change) for change in changes]
    assert len(set(versions)) == len(versions)
    assert package({**files, "chooser.py": own(imports=line)}) == versions[0]


def test_a_loaded_sampler_is_known_by_the_source_that_was_loaded(package, tmp_path):
    version = package({"__init__.py": "", "chooser.py": own()})
    (tmp_path / "somebodys" / "chooser.py").write_text(own(select="[0]"))
    assert version_of("mine") == version


NOTEBOOK = """
import json
from IPython.core.interactiveshell import InteractiveShell
from fedlib.samplers import version_of
shell = InteractiveShell.instance()
found = []
def run(cell):
    result = shell.run_cell(cell)
    found.append(version_of("mine") if result.success else str(result.error_in_exec))
CELL = '''{cell}'''
run("import numpy as np\\nw = np.ones(3)\\ndef ids(fed):\\n    return fed.everyone[: fed.m] * k\\nk = 1\\n" + CELL)
run(CELL)
run("k = 2")
run("def ids(fed):\\n    return fed.everyone[-fed.m :] * k")
run("w = np.zeros(3)")
run("unused = 3")
run(CELL.replace("ids(", "1 * ids("))
run(CELL.replace("class Mine", "class Other"))
print(json.dumps(found))
"""


def test_a_notebooks_sampler_is_known_by_its_cell_and_by_what_that_uses(tmp_path):
    """A cell that is run again is no second sampler of that name; another class is."""
    script = NOTEBOOK.format(cell=own(select="ids(self.fed) + int(w[0])"))
    done = forked.run(["python", "-c", script], tmp_path, os.environ)
    assert done.returncode == 0, done.stderr
    one, again, k, function, array, unused, edited, other = json.loads(done.stdout.splitlines()[-1])
    assert (one != again, unused) == (True, array), "the cell alone is another text than with its helpers"
    assert len({again, k, function, array, edited}) == 5
    assert "'mine' is registered twice, by Mine in this notebook and by Other in this notebook" in other


TRAINED = """
from dataclasses import replace
from pathlib import Path
from IPython.core.interactiveshell import InteractiveShell
from fedlib.runs.place import Place, address
from fedlib.runs.store import Store
from fedlib.runs.train import train
from fedlib.samplers import version_of
from fedlib.data.schemes import IID
from fedlib.settings.schema import Local, Method, Run
from fedlib.errors import ConfigError
InteractiveShell.instance().run_cell('''{cell}''').raise_error()
shared = dict(dataset="digits", partition=IID(scheme="iid"), model="logistic", N=4, m=2, T=2)
shared |= dict(local=Local(lr=0.1, batch=8, steps=2), method=Method(sampler="mine"))
runs = [Run(**shared, seed=seed) for seed in range(2)]
place = Place(runs=Path("runs"), datasets=Path("datasets"), workers=2)
train(runs, place)
for run in runs:
    table, record = Store(place.runs).read(address(run, place))
    assert [list(clients) for clients in table["clients"]] == [[], [0, 1], [0, 1]]
    assert record["code"] == {{"sampler mine": version_of("mine")}}
try:
    train(runs, replace(place, runs=Path("other"), scheduler="tcp://127.0.0.1:1"))
except ConfigError as error:
    print(error)
"""


def test_a_notebooks_sampler_is_trained_with_two_workers_and_refused_by_a_cluster(tmp_path):
    done = forked.run(["python", "-c", TRAINED.format(cell=own())], tmp_path, os.environ)
    assert done.returncode == 0, done.stderr
    assert "the sampler mine is defined in a notebook, where a cluster's workers cannot find" in done.stdout


@pytest.mark.bad_input
def test_a_name_is_registered_once_and_both_places_are_named():
    with pytest.raises(NameTaken, match=r"'uniform' .*basic\.py and by .*Again in .*test_registry\.py"):

        @register("uniform")
        @dataclass
        class Again(Sampler):
            pass

    assert find("uniform").__module__ == "fedlib.samplers.basic"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy of the project with a broken sampler, one that takes a shipped name, two of one name, and a package's."""
    root = tmp_path_factory.mktemp("project")
    environment = copy_project(root)
    samplers = root / "fedlib" / "samplers"
    (samplers / "a_broken.py").write_text("def select(:\n")
    (samplers / "a_missing.py").write_text("import no_such_library\n")
    (samplers / "a_uniform.py").write_text(own("uniform"))
    (samplers / "a_twice.py").write_text(own("twice"))
    (samplers / "b_twice.py").write_text(own("twice"))
    installed = root / "somebodys-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: somebodys\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(
        "[fedlib.samplers]\ngood = somebodys_good\nbad = somebodys_bad\n"
    )
    (root / "somebodys_good.py").write_text(own("good"))
    (root / "somebodys_bad.py").write_text("1 / 0\n")

    def method(name: str) -> str:
        program = f"from fedlib.settings.schema import Method\nprint(Method(sampler={name!r}).sampler)"
        done = forked.run(["python", "-c", program], root, environment)
        return done.stdout + done.stderr

    return method


@pytest.mark.parametrize("name", ["md", "fedcor", "good"])
def test_files_that_cannot_be_loaded_stop_nobody_else(name, project):
    assert project(name) == f"{name}\n"


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("broken", ["a_broken.py could not be loaded: SyntaxError", "a_missing.py", "'no_such_library'"]),
        ("bad", ["somebodys_bad of the installed package somebodys could not be loaded: ZeroDivisionError"]),
        ("uniform", ["'uniform' is registered twice", "basic.py", "a_uniform.py"]),
        ("twice", ["'twice' is registered twice", "a_twice.py", "b_twice.py"]),
    ],
)
def test_who_wants_a_sampler_of_such_a_file_is_told(name, words, project):
    message = project(name)
    for word in words:
        assert word in message


@pytest.mark.bad_input
def test_an_unknown_sampler_is_named_beside_those_that_there_are():
    with pytest.raises(ValueError, match="unknown sampler 'random'; there are .*uniform"):
        Method(sampler="random")

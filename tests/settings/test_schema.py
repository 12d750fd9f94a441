"""Settings: every mistake is one sentence that names where it stands, and nothing but valid settings become runs."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlib import samplers
from fedlib.data import schemes
from fedlib.errors import ConfigError
from fedlib.kinds import parameters_of
from fedlib.runs import archive
from fedlib.settings import schema
from fedlib.settings.code import code_of
from fedlib.settings.params import Experiments, load, merge
from fedlib.settings.schema import Local, Run, address_as_written

SETTINGS = load()
GOOD = {
    "title": "A tiny experiment",
    "paper": "clustered_sampling",
    "dataset": "digits",
    "partition": {"scheme": "dirichlet_clients", "alpha": 0.1, "sizes": [[4, 20], [2, 50]]},
    "model": "mlp",
    "N": 6,
    "m": 2,
    "T": 5,
    "seeds": 2,
    "local": {"lr": 0.1, "batch": 10, "steps": 3},
    "methods": {"MD": {"sampler": "md"}, "Algorithm 2": {"sampler": "clustered_similarity", "measure": "l2"}},
}


def runs(spec: dict) -> list:
    return Experiments({"scale": "demo", "experiments": {"e": spec}}).runs("e")


def changed(path: str, value: object) -> dict:
    spec = copy.deepcopy(GOOD)
    *parents, last = path.split(".")
    place = spec
    for key in parents:
        place = place[key]
    place[last] = value
    return spec


def test_good_settings_become_runs():
    labelled = runs(GOOD)
    assert [(one.method, one.run.seed) for one in labelled] == [
        ("MD", 0),
        ("MD", 1),
        ("Algorithm 2", 0),
        ("Algorithm 2", 1),
    ]
    assert labelled[2].run.method.params == {"measure": "l2"}


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (
            "methods.MD.sampler",
            "mdd",
            r"experiments\.e\.MD\.method: unknown sampler 'mdd'; did you mean .*md",
        ),
        (
            "methods.Algorithm 2.mesure",
            "l1",
            r"'clustered_similarity' has no parameter 'mesure'; did you mean measure\?$",
        ),
        ("methods.Algorithm 2.measure", "l3", r"sampler 'clustered_similarity': measure: .*'arccos'"),
        ("methods.MD", "md", r"experiments\.e\.MD must hold a mapping"),
        (
            "seeds",
            "five",
            r"seeds must be a number of seeds or a list without repeats, 10,000 at most \(given: 'five'\)",
        ),
        ("seeds", 0, "seeds must be"),
        ("seeds", [3, 3], "without repeats"),
        ("seed", 3, r"experiments\.e\.MD\.seed: .*move it to `seeds`"),
        ("scales", {"dmeo": {"T": 1}}, r"scales: no scale 'dmeo'; there are demo, cpu, paper"),
        ("grid", [1], r"grid must hold a mapping"),
        (
            "grid",
            {"x": {"methods": ["MDD"]}},
            r"experiments\.e\.x\.methods keeps 'MDD', .*there are MD, Algorithm 2\.",
        ),
        (
            "scales",
            {"demo": {"methods": [1]}},
            r"experiments\.e\.scales\.demo\.methods keeps 1, which does not exist",
        ),
        (
            "grid",
            {"x": {"methods": []}},
            r"experiments\.e\.x\.methods keeps nothing; .*one of MD, Algorithm 2\.",
        ),
        ("grid", {"x": {"methods": None}}, r"experiments\.e\.x\.methods is empty"),
        ("local.lr", -0.1, r"experiments\.e\.MD\.local\.lr: .*greater than 0.*-0.1"),
        ("local.lr", "fast", r"local\.lr: .*valid number.*'fast'"),
        ("local.stepz", 4, r"local\.stepz: there is no such key"),
        ("local.epochs", 2, "either steps or epochs"),
        ("dataset", "mnits", "dataset: unknown dataset 'mnits'; did you mean mnist"),
        ("model", "mlpp", "model: "),
        ("m", 7, r"m = 7 clients per round are more than there are \(N = 6\)"),
        ("m", 0, r"\.m: .*greater than or equal to 1"),
        ("T", 2.5, r"\.T: "),
        ("partition.alpha", 0, r"partition: alpha: .*greater than 0"),
        ("partition.scheme", "dirichlett", r"partition: .*dirichlett"),
        ("partition.sizes", [[4, 20]], "partition.sizes names 4 clients, but N is 6"),
        ("rounds", 10, r"\.rounds: there is no such key"),
        ("evaluate", {"evry": 2}, r"evaluate\.evry: there is no such key"),
        (
            "evaluate",
            {"every": 2, "train": True, "train_every": 5},
            "train_every = 5 must be a multiple of every = 2",
        ),
        ("evaluate", {"train_every": 5}, "train_every needs the training loss; set train: true"),
        ("until", {"test_accuracy": 75}, r"until\.test_accuracy: .*less than or equal to 1 \(given: 75\)"),
        ("until", {"test_accuracy": 0.0}, r"until\.test_accuracy: .*greater than 0"),
        ("until", {"least": 2}, r"until\.test_accuracy: Field required"),
        (
            "until",
            {"train_loss": 0.3},
            r"until: a run ends at a test accuracy, not at a level of train_loss; train",
        ),
        ("until", {"test_loss": 0.3, "test_accuracy": 0.8}, r"until: .*not at a level of test_loss"),
        (
            "until",
            {"test_accuracy": 0.5, "least": 6},
            r"until\.least = 6 exceeds .* \(T = 5\); lower it, or raise T",
        ),
        (
            "methods.MD",
            {"sampler": "md", "algorithm": "scaffold", "local": {"halve_every": 2}},
            r"SCAFFOLD takes one learning rate per round; leave local\.halve_every out",
        ),
        ("methods", {}, "methods is missing"),
        ("local.lr", "0.1", r"local\.lr: .*valid number.*'0\.1'"),
        ("local.lr", float("inf"), r"local\.lr: .*finite number"),
        ("T", "yes", r"\.T: .*valid integer.*'yes'"),
        ("T", True, r"\.T: .*valid integer"),
        ("T", 10**12, r"\.T: .*less than or equal to 1000000000"),
        ("evaluate", {"train": "false"}, r"evaluate\.train: .*valid boolean.*'false'"),
        (
            "methods.MD",
            {"sampler": "oort", "exploration": 2},
            r"'oort': exploration: .*less than or equal to 1",
        ),
        ("methods.MD", {"sampler": "afl", "alpha1": 1.5}, r"'afl': alpha1: .*less than 1"),
        ("methods.MD", {"sampler": "afl", "alpha3": -1}, r"'afl': alpha3: .*greater than or equal to 0"),
        ("methods.MD", {"sampler": "fedcor", "dt": 0}, r"'fedcor': dt: .*greater than or equal to 1"),
        ("methods.MD", {"sampler": "fedcor", "beta": 2}, r"'fedcor': beta: .*less than or equal to 1"),
        ("methods.MD", {"sampler": "fedcor", "M": 0}, r"'fedcor': M: .*greater than or equal to 1"),
        ("methods.MD", {"sampler": "fedcor", "d": 10.5}, r"'fedcor': d: .*valid integer"),
        ("methods.MD", {"sampler": "hics_fl", "T_s": "25e-4"}, r"'hics_fl': T_s: .*valid number.*'25e-4'"),
        ("methods.MD", {"sampler": "hcsfed", "importance": "false"}, r"importance: .*valid boolean"),
        (
            "methods.MD",
            {"sampler": "md", "algorithm": "ifca", "algorithm_params": {"models": 0}},
            r"algorithm 'ifca': models: .*greater than or equal to 1",
        ),
        (
            "methods.MD",
            {"sampler": "md", "algorithm_params": {"mu": 1}},
            r"algorithm 'fedavg' has no parameter 'mu'; there are none",
        ),
    ],
)
def test_a_mistake_is_one_sentence_naming_the_key(path, value, message):
    with pytest.raises(ConfigError, match=message) as caught:
        runs(changed(path, value))
    text = str(caught.value)
    assert text.startswith("params.yaml: experiments.e")
    assert "\n" not in text


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("scale: demo\nexperimants: {}\n", "unknown key 'experimants'"),
        ("a: [1\n", "not valid YAML"),
        ("- 1\n", "must hold a mapping"),
        ("scale: huge\nexperiments: {e: {}}\n", "scale is 'huge'; it must be demo, cpu or paper"),
    ],
)
def test_a_broken_file_is_named(tmp_path, content, message):
    path = tmp_path / "params.yaml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=message):
        load(path).scale  # noqa: B018


def test_a_section_may_be_empty():
    empty = Experiments(dict.fromkeys(["experiments", "studies", "artifacts"]))
    assert (empty.names, empty.studies, empty.artifacts) == ([], [], {})


@pytest.mark.bad_input
def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match="params.yaml is missing"):
        load(tmp_path / "params.yaml")


@pytest.mark.bad_input
def test_an_unknown_experiment_is_named():
    with pytest.raises(ConfigError, match="no experiment 'f'; there are e"):
        Experiments({"experiments": {"e": GOOD}}).runs("f")


def test_later_settings_win_and_another_scheme_replaces_the_old_one_whole():
    spec = changed("grid", {"iid": {"partition": {"scheme": "iid"}}, "mild": {"partition": {"alpha": 10.0}}})
    spec["scales"] = {"demo": {"T": 2, "seeds": [7]}}
    one, _, other, _ = (labelled.run for labelled in runs(spec))
    assert one.partition == schemes.IID(scheme="iid")
    assert other.partition.alpha == 10.0
    assert (one.T, one.seed) == (2, 7)


def test_a_list_keeps_what_it_names():
    methods = {name: {"sampler": "md"} for name in ("one", "two", "three")}
    spec = {**GOOD, "methods": methods, "grid": {"all": {}, "some": {"methods": ["three", "one"]}}}
    spec["scales"] = {"demo": {"seeds": 1}, "cpu": {"seeds": 1, "methods": ["one"], "grid": ["all"]}}
    experiments = Experiments({"experiments": {"e": spec}})
    at = {
        scale: [(one.setting, one.method) for one in experiments.runs("e", scale)]
        for scale in ("demo", "cpu")
    }
    assert at["demo"] == [*(("all", name) for name in methods), ("some", "one"), ("some", "three")]
    assert at["cpu"] == [("all", "one")]


def test_a_method_may_override_the_run():
    spec = changed("methods", {"FedProx": {"sampler": "md", "local": {"mu": 0.1}}, "MD": {"sampler": "md"}})
    prox, _, plain, _ = (labelled.run for labelled in runs(spec))
    assert (prox.local.mu, plain.local.mu) == (0.1, 0.0)
    assert prox.address(1, "d") != plain.address(1, "d")


def test_equal_settings_have_one_address_whatever_they_are_called():
    other = {**GOOD, "title": "Another name", "methods": {"multinomial": {"sampler": "md"}}}
    assert runs(GOOD)[0].run.address(1, "d") == runs(other)[0].run.address(1, "d")
    assert runs(GOOD)[0].run.address(1, "d") != runs(GOOD)[0].run.address(2, "d")
    assert runs(GOOD)[0].run.address(1, "d") != runs(GOOD)[0].run.address(1, "other data")


def test_what_is_not_set_is_no_part_of_record_and_address():
    """The addresses are those of before `until` and `train_every` were there."""
    plain, _, other, _ = (one.run for one in runs(GOOD))
    assert (plain.address(1, "d"), other.address(2, "x")) == ("b8b51049c432dba52a96", "fac7eb4d5c992da5fc1a")
    spec = changed("until", {"test_accuracy": 0.5, "least": 3})
    spec["evaluate"] = {"train": True, "train_every": 2}
    run = runs(spec)[0].run
    assert run.model_dump(mode="json")["until"] == {"test_accuracy": 0.5, "least": 3}
    assert run.model_dump(mode="json")["evaluate"]["train_every"] == 2
    removed = {"until": None, "evaluate": {"train": None, "train_every": None}}
    again = runs({**spec, "scales": {"demo": removed}})[0].run
    assert again == plain
    assert len({run.address(1, "d"), again.address(1, "d"), plain.address(1, "d")}) == 2


def test_the_target_is_no_target_without_a_test_accuracy():
    spec = changed("until", {"test_accuracy": 0.5})
    spec["evaluate"] = {"test": False, "train": True}
    with pytest.raises(ConfigError, match=r"until needs the test accuracy; set evaluate\.test: true"):
        runs(spec)


def archived() -> list[dict]:
    read = (archive.read(path.stem, path.parent.name) for path in sorted(archive.ARCHIVE.glob("*/*.parquet")))
    return [record for packed in read for record in packed.runs if "run" in record]


def test_archived_runs_keep_their_addresses():
    """Their settings, read as they would be read today, give the address under which they stand."""
    records = archived()
    assert records
    for record in records:
        run = Run(**record["run"])
        assert run.address(record["numerics"], record["data"]["digest"]) == record["address"]


def test_no_archived_run_is_lost_by_the_one_form_of_settings():
    """What was found by settings as they are written is found, and nothing of other settings instead."""
    records = archived()
    there = {record["address"]: record for record in records}
    before = {
        address_as_written(r["run"], r["numerics"], r["data"]["digest"], r.get("code", {})) for r in records
    }
    digests = {(record["data"]["name"], record["data"]["digest"]) for record in records}
    numerics = {record["numerics"] for record in records}
    found = found_before = 0
    for scale in schema.SCALES:
        for run in (one.run for name in SETTINGS.names for one in SETTINGS.runs(name, scale)):
            of_data = [(n, digest) for n in numerics for name, digest in digests if name == run.dataset]
            now = [a for a in (run.address(*one) for one in of_data) if a in there]
            found_before += any(
                address_as_written(run.model_dump(mode="json"), *one, code_of(run.model_dump(mode="json")))
                in before
                for one in of_data
            )
            found += bool(now)
            for address in now:
                assert Run(**there[address]["run"]).method.in_one_form() == run.method.in_one_form()
    assert found >= found_before > 0


@pytest.mark.parametrize(
    ("method", "other"),
    [
        ({"sampler": "hics_fl", "gamma": 4}, {"sampler": "hics_fl"}),
        ({"sampler": "hics_fl", "gamma": 2}, {"sampler": "hics_fl", "gamma": 2.0, "T_s": 0.0025, "M": None}),
        ({"sampler": "power_of_choice", "d": 10.0}, {"sampler": "power_of_choice", "d": 10}),
        ({"sampler": "md", "aggregation": "mean"}, {"sampler": "md"}),
        ({"sampler": "hcsfed", "variant": "U", "aggregation": "ipw"}, {"sampler": "hcsfed", "variant": "U"}),
        (
            {"sampler": "md", "algorithm": "ifca", "algorithm_params": {"models": 4.0}},
            {"sampler": "md", "algorithm": "ifca"},
        ),
        ({"sampler": "md", "local": {"momentum": 0}}, {"sampler": "md", "m": 2.0}),
    ],
)
def test_equal_settings_are_one_address_however_they_are_written(method, other):
    one, two = (runs(changed("methods", {"x": written}))[0].run for written in (method, other))
    assert one.address(1, "d") == two.address(1, "d")
    as_recorded = json.loads(one.model_dump_json())
    assert schema.address_of_run(as_recorded, 1, "d", {}) == one.address(1, "d")
    third = runs(changed("methods", {"x": {**other, "local": {"momentum": 0.5}}}))[0].run
    assert third.address(1, "d") != one.address(1, "d")


def test_samplers_get_parameters_of_their_kinds():
    written = {"sampler": "fedcor", "d": 10.0, "beta": 1, "gpr_begin": 0.0}
    params = runs(changed("methods", {"x": written}))[0].run.method.params
    assert params == {"d": 10, "beta": 1.0, "gpr_begin": 0}
    assert [type(value) for value in params.values()] == [int, float, int]


@pytest.mark.parametrize("name", sorted(samplers.SAMPLERS))
def test_every_parameter_of_every_sampler_is_bounded(name):
    """Numbers that no sampler can mean are refused before anything is trained."""
    for key, field in parameters_of(samplers.SAMPLERS[name]).model_fields.items():
        number = not any(word in str(field.annotation) for word in ("bool", "Literal"))
        for value in ("text", True, float("inf"), -1, [1]) if number else ("text", 1, [1]):
            with pytest.raises(ConfigError, match=f"sampler '{name}': {key}: "):
                runs(changed("methods", {"x": {"sampler": name, key: value}}))


def test_learning_rate_by_round():
    local = Local(lr=0.8, batch=1, steps=1, lr_decay={3: 0.5, 5: 0.5})
    assert [local.lr_at(t) for t in range(1, 7)] == [0.8, 0.8, 0.4, 0.4, 0.2, 0.2]


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.floats(allow_nan=True, allow_infinity=True),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
PATHS = [
    "dataset",
    "partition",
    "partition.alpha",
    "partition.sizes",
    "model",
    "N",
    "m",
    "T",
    "seeds",
    "local",
    "local.lr",
    "local.batch",
    "local.steps",
    "evaluate",
    "until",
    "methods",
    "methods.MD",
    "methods.MD.sampler",
    "methods.Algorithm 2.measure",
    "grid",
    "scales",
]


@given(st.sampled_from(PATHS), JUNK)
def test_whatever_is_written_gives_valid_runs_or_one_sentence(path, value):
    try:
        labelled = runs(changed(path, value))
    except ConfigError as error:
        labelled, said = [], str(error)
    else:
        said = "params.yaml: fine"
    assert said.startswith("params.yaml: ")
    assert "\n" not in said
    assert all(Run.model_validate(one.run.model_dump()) == one.run for one in labelled)


@given(st.recursive(st.integers(), lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3)))
def test_merging_nothing_changes_nothing(tree):
    if isinstance(tree, dict):
        assert merge(tree, {}) == tree
        assert merge(tree, tree) == tree


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Local(lr=-1, batch=1, steps=1), r"Local\.lr: .*greater than 0 \(given: -1\)\."),
        (lambda: Local(lr=1, batch=1), "Local: give either steps or epochs"),
        (
            lambda: schema.Method(sampler="mdd"),
            r"Method: unknown sampler 'mdd'; did you mean",
        ),
        (lambda: schemes.DirichletPrior(alpha=0), r"DirichletPrior\.alpha: .*greater than 0"),
    ],
)
def test_settings_of_a_program_are_refused_in_one_sentence(make, words):
    with pytest.raises(ConfigError, match=words) as caught:
        make()
    assert "\n" not in str(caught.value)


@pytest.mark.bad_input
def test_moon_without_its_term_is_refused():
    moon = {"sampler": "md", "algorithm": "moon"}
    with pytest.raises(ConfigError, match=r"Moon with local\.mu = 0 is FedAvg"):
        runs(changed("methods", {"x": moon}))
    assert runs(changed("methods", {"x": {**moon, "local": {"mu": 0.1}}}))

"""params.yaml: every experiment resolves at every scale; pages, notebooks and the papers' artifacts are the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedlib.data.sources import KINDS
from fedlib.errors import ConfigError
from fedlib.settings import params
from workspace.analysis.claim import asks, claims_of
from workspace.analysis.paper import papers
from workspace.analysis.readings import readings
from workspace.commands.notebooks import EXAMPLES

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = params.load(ROOT / "params.yaml")
PAPERS = {  # what the papers have, schematic figures included
    "clustered_sampling": [f"figure_{n}" for n in range(1, 11)],
    "hcsfed": [*(f"figure_{n}" for n in range(1, 8)), "table_1"],
    "fedcor": [*(f"figure_{n}" for n in range(1, 8)), "table_1"],
    "hics_fl": [*(f"figure_{n}" for n in range(1, 18)), "table_1", "cost_comparison"],
}


@pytest.mark.parametrize("scale", ["demo", "cpu", "paper"])
@pytest.mark.parametrize("experiment", SETTINGS.names)
def test_every_experiment_resolves_and_shows_each_run_under_one_name(experiment, scale):
    runs = SETTINGS.runs(experiment, scale)
    names = [(one.setting, one.method, one.run.seed) for one in runs]
    assert len(set(names)) == len(names)
    assert SETTINGS.describe(experiment, scale)["title"]
    if scale == "demo":
        assert all(KINDS[one.run.dataset].embedded for one in runs), "demo needs no data but what is embedded"


@pytest.mark.parametrize("experiment", SETTINGS.names)
def test_paper_scale_has_the_papers_number_of_seeds(experiment):
    several = {one.run.seed for one in SETTINGS.runs(experiment, "paper")}
    assert len(several) >= 5 or SETTINGS.raw["experiments"][experiment].get("seeds", 5) == len(several)


def test_pages_and_notebooks_are_the_same():
    found = {
        str(path.relative_to(ROOT / "notebooks").with_suffix("")).replace("/", "-", 1)
        for path in (ROOT / "notebooks").rglob("*.ipynb")
        if ".ipynb_checkpoints" not in path.parts and path.parent != EXAMPLES
    }
    tools = {"simulate", "explore"}
    assert set(SETTINGS.artifacts) == found - tools


@pytest.mark.parametrize("paper", PAPERS)
def test_every_artifact_of_a_paper_has_a_page(paper):
    missing = {f"{paper}-{name}" for name in PAPERS[paper]} - set(SETTINGS.artifacts)
    assert not missing


def test_every_page_opens_experiments_and_studies_that_exist():
    known = {*SETTINGS.names, *SETTINGS.studies}
    for name, experiments in SETTINGS.artifacts.items():
        assert set(experiments) <= known, name


NOT_RUN = {"hics_texts", "hics_availability"}  # printed tables whose data or rule nobody has: no experiment


@pytest.mark.parametrize("paper", PAPERS)
def test_every_claim_is_shown_on_a_page_that_opens_what_it_needs(paper):
    for claim in claims_of(paper):
        page = SETTINGS.artifacts.get(claim.artifact.replace("/", "-"))
        assert page is not None, f"{claim.id} names {claim.artifact}, which has no page"
        lacking = asks(claim, readings(paper)) - set(page) - NOT_RUN
        assert not lacking, f"{claim.artifact} does not open {lacking}, for {claim.id}"


def test_every_experiment_and_study_is_opened_by_a_page():
    assert {*SETTINGS.names, *SETTINGS.studies} <= set().union(*SETTINGS.artifacts.values())


def test_sections_stand_in_the_order_of_the_papers():
    order = [*papers(), "world", "arena"]
    for section in ("experiments", "studies"):
        of = [order.index(entry["paper"]) for entry in SETTINGS.raw[section].values()]
        assert of == sorted(of), section


def test_a_setting_and_a_method_may_have_seeds_of_their_own():
    """And nothing else of a run depends on that, so finished runs keep their addresses."""
    raw = {
        "dataset": "digits",
        "partition": {"scheme": "iid"},
        "model": "logistic",
        "N": 10,
        "m": 2,
        "T": 3,
        "local": {"lr": 0.1, "batch": 10, "epochs": 1},
        "seeds": 2,
        "methods": {"Random": {"sampler": "uniform"}, "MD": {"sampler": "md"}},
        "grid": {"all": {}, "three": {"seeds": [4, 5, 6], "methods": {"MD": {"seeds": 1}}}},
    }

    def planned(**changes):
        return params.Experiments({"experiments": {"one": raw | changes}}).runs("one", "paper")

    seeds: dict[tuple[str, str], list[int]] = {}
    for one in planned():
        seeds.setdefault((one.setting, one.method), []).append(one.run.seed)
    assert seeds == {
        ("all", "Random"): [0, 1],
        ("all", "MD"): [0, 1],
        ("three", "Random"): [4, 5, 6],
        ("three", "MD"): [0],
    }
    once = {one.run.seed: one.run for one in planned(seeds=7, grid={}) if one.method == "Random"}
    assert all(once[one.run.seed] == one.run for one in planned() if one.method == "Random")
    with pytest.raises(ConfigError, match=r"experiments\.one\.few\.seeds must be"):
        planned(grid={"few": {"seeds": 0}})
    with pytest.raises(ConfigError, match=r"experiments\.one\.few\.MD\.seeds must be"):
        planned(grid={"few": {"methods": {"MD": {"seeds": [1, 1]}}}})

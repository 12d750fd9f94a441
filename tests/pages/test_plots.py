"""One method, one colour; tables and titles say what they should; what is drawn is what was measured."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.colors import rgb_to_hsv, to_rgb, to_rgba

from fedlib import measure
from fedlib.drawing import panels, plots
from fedlib.drawing.style import FAMILIES, family, looks
from fedlib.samplers.hcsfed import HCSFed
from fedlib.settings import params
from fedlib.settings.schema import ROOT
from workspace.analysis import tables
from workspace.figures import interactive, picture, studies, summary
from workspace.pages.evidence import OUTCOMES
from workspace.papers.hcsfed.theory import ask

mpl.use("agg")


@pytest.fixture
def results() -> pd.DataFrame:
    """Two methods, two seeds, eleven rounds; the second one's second seed diverges in round 4."""
    rows = [
        {
            "setting": s,
            "method": m,
            "seed": seed,
            "round": t,
            "test_accuracy": slope * t + seed,
            "diverged": False,
        }
        for s in ("x", "y")
        for m, slope in (("MD", 1.0), ("Algorithm 2", 2.0))
        for seed in (0, 1)
        for t in range(11)
    ]
    table = pd.DataFrame(rows)
    gone = (table["method"] == "Algorithm 2") & (table["seed"] == 1)
    table = table[~gone | (table["round"] <= 4)]
    table.loc[gone & (table["round"] == 4), ["diverged", "test_accuracy"]] = [True, np.nan]
    return table


def test_a_method_wears_its_familys_colour_wherever_it_stands():
    for company in (
        ["MD"],
        ["FedCor", "MD", "HCSFed-R (GC-B)"],
        ["HCSFed-P (GC-A)", "HCSFed-R (GC-B)", "MD"],
    ):
        for method, look in looks(company).items():
            assert look["color"] == FAMILIES[family(method)][0]
    assert family("HCSFed-R (GC-A)") == "HCSFed"
    assert family("+cluster+importance (GC-A)") == "+cluster+importance"
    assert family("Algorithm 2 (L1)") == "Algorithm 2"
    assert family("MDX") == "MDX"


def test_methods_of_one_colour_differ_by_dashes_and_the_bare_label_keeps_its_own():
    found = looks(["Algorithm 2 (L1)", "Algorithm 2", "Algorithm 2 (squared L2)", "Cluster", "MD"])
    green = [look["linestyle"] for look in found.values() if look["color"] == FAMILIES["Algorithm 2"][0]]
    assert len(set(green)) == len(green) == 4
    assert found["Algorithm 2"]["linestyle"] == FAMILIES["Algorithm 2"][2]


def test_every_method_of_params_has_a_colour_of_its_own_or_its_papers_ramp():
    settings = params.load()
    swept = {"MNIST", "FMNIST", "R = 100 %"}
    for experiment in settings.names:
        for method in settings.raw["experiments"][experiment]["methods"]:
            assert family(method) in FAMILIES or method in swept, f"{experiment}: {method} has no colour"


def test_curves_are_means_over_seeds_and_a_diverged_run_ends_with_a_cross(results):
    figure = plots.curves(results, "test_accuracy", panels={"x": "X", "absent": "-"})
    (ax,) = figure.axes
    lines = {line.get_label(): line for line in ax.get_lines()}
    assert ax.get_title() == "X"
    assert np.allclose(lines["MD"].get_ydata(), 100 * (np.arange(11) + 0.5))
    assert [line.get_marker() for line in ax.get_lines()].count("x") == 1
    assert ax.get_xlabel() == "round"
    assert ax.get_ylabel() == "test accuracy (%)"


def test_lines_go_through_the_rounds_that_were_measured_in_all_runs():
    def run(seed: int, rounds: range) -> pd.DataFrame:
        losses = [float(t) if t % 4 == 0 or t == rounds[-1] else np.nan for t in rounds]
        labels = {"setting": "x", "method": "MD", "seed": seed, "diverged": False}
        return pd.DataFrame({"round": rounds, "train_loss": losses, **labels})

    figure = plots.curves(pd.concat([run(0, range(11)), run(1, range(14))]), "train_loss")
    (line,) = figure.axes[0].get_lines()
    assert line.get_xdata().tolist() == [0, 4, 8]  # 10 and 13 are the ends of one run each
    assert line.get_ydata().tolist() == [0, 4, 8]


def test_bars_are_medians_and_mark_what_was_not_reached(results):
    rounds = measure.per_run(results, "test_accuracy", measure.rounds_to_target, target=10)
    rounds += 20.0 * (rounds.index.get_level_values("setting") == "y")
    figure = plots.bars(rounds, "rounds", cap={"x": 10, "y": 30}, panels={"x": "X", "y": "Y"})
    words = [{text.get_text() for text in ax.texts} for ax in figure.axes[:2]]
    assert words == [{"9.5", "not reached"}, {"29.5", "not reached"}]  # MD 10 and 9; Algorithm 2: 5 and never
    unreached = [max(bar.get_height() for bar in ax.patches) for ax in figure.axes[:2]]
    assert unreached == [10, 30]  # each setting at its own last round


def test_a_sweep_draws_what_has_been_run():
    index = pd.MultiIndex.from_product([["H = 5", "H = 6"], [0, 1, 2]], names=["method", "seed"])
    values = {"rounds": pd.Series([1.0, 2, 9, 4, 5, 6], index)}
    swept = {"H": {"GC-A": {"5": "H = 5", "6": "H = 6", "7": "H = 7"}}}
    (ax,) = plots.sweeps(values, swept).axes
    (middle, *_), *_ = (container.lines for container in ax.containers)
    assert list(middle.get_ydata()) == [2, 5]  # medians
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["5", "6"]


def test_panels_of_methods_show_what_has_been_run():
    rows = [("(2)", method, 0, t, 0.1 * t, False) for method in ("MD", "CS") for t in range(4)]
    runs = pd.DataFrame(rows, columns=["setting", "method", "seed", "round", "test_accuracy", "diverged"])
    panels = {"two": ["MD", "CS", "Oort"], "one": ["MD", "Oort"], "none": ["Oort"]}

    def titles(some):
        figure = studies.method_panels(some, "test_accuracy", panels, measure.rolling)
        return [ax.get_title() for ax in figure.axes if ax.get_title()]

    assert titles(runs) == ["(2): two"]
    assert titles(runs.query("method == 'MD'")) == ["(2): two", "(2): one"]


def test_rounds_table_stands_beside_the_printed(results):
    rounds = measure.per_run(results, "test_accuracy", measure.rounds_to_target, target=9.5)
    table = tables.rounds_table(rounds, {("x", "MD"): "96"}, tables.median_cell(10))
    assert table.loc["MD", ("x", "ours")] == "9.5"
    assert table.loc["MD", ("x", "seeds")] == "9\u201310"
    assert table.loc["MD", ("x", "paper")] == "96"
    assert table.loc["Algorithm 2", ("x", "ours")] == "10+"
    assert table.loc["Algorithm 2", ("x", "seeds")] == "5\u2013never"
    speed = tables.speed_ups(rounds, ["x"], "MD", {("x", "MD"): "1.0"}, 10)
    assert speed.loc["MD", ("x", "ours")] == "1.0"
    assert speed.loc["Algorithm 2", ("x", "ours")] == "-"


def test_speed_ups_leave_open_what_has_not_been_run(results):
    rounds = measure.per_run(results, "test_accuracy", measure.rounds_to_target, target=9.5)
    only = rounds.loc[["x"]].rename({"x": "z"}, level="setting")[
        lambda v: v.index.get_level_values("method") == "MD"
    ]
    speed = tables.speed_ups(pd.concat([rounds, only]), ["x", "z"], "MD", {}, 10)
    assert speed.loc["Algorithm 2", ("z", "ours")] == "not run"
    assert speed.loc["MD", ("z", "ours")] == "1.0"


def test_gains_over_a_base_that_may_not_have_been_run():
    index = pd.MultiIndex.from_product(
        [["b", "a"], ["MD", "CS"], [0, 1]], names=["setting", "method", "seed"]
    )
    ends = pd.Series([1.0, 3.0, 0.5, 3.0, 4.0, 4.0, 2.0, 2.0], index)
    table = tables.gains(ends, "MD")
    assert table.loc["b"].tolist() == [1.75, 2.0, 25.0]  # columns CS, MD, the mean of 50 % and 0 %
    assert table.loc["a", "gain of CS (%)"] == 50
    assert tables.gains(ends[ends.index.get_level_values("method") == "CS"], "MD").columns.tolist() == ["CS"]


def test_what_has_nothing_to_show_says_so(results):
    nothing = measure.per_run(results[:0], "test_accuracy", measure.best)
    assert nothing.index.names == measure.RUN
    for show in (
        lambda: plots.curves(results, "test_accuracy", panels=["z"]),
        lambda: plots.partition_bars({}),
        lambda: tables.rounds_table(nothing, {}),
        lambda: tables.speed_ups(nothing, ["x"], "MD", {}, 10),
        lambda: measure.friedman(pd.DataFrame({"MD": [1.0, 2.0], "CS": [2.0, 1.0]})),
        lambda: measure.dominant_labels(pd.DataFrame({"data": ["cs_mnist"], "client": [0]}), "cs_cifar"),
    ):
        with pytest.raises(measure.Missing):
            show()


def test_a_search_for_the_rate_names_the_lowest_and_what_is_not_there():
    keys = ["alpha = 10, lr = 0.01", "alpha = 10, lr = 0.1", "alpha = 0.1, lr = 0.01"]
    index = pd.MultiIndex.from_tuples(
        [(k, "MD", s) for k in keys for s in (0, 1)], names=["setting", "method", "seed"]
    )
    ends = pd.Series([2.0, 1.0, np.inf, 1.0, 0.25, 0.75], index)
    found = tables.search_table(ends, {"10": "0.1"})
    assert found.loc["10"].tolist() == ["1.500", "diverged", "0.01", "0.1"]
    assert found.loc["0.1"].tolist() == ["0.500", "not run", "0.01", ""]


def test_titles_say_where_digits_stand_in():
    run = {"N": 100, "m": 10, "T": 5, "local": {"steps": 50, "lr": 0.1}}
    info = {"runs": [{"setting": "a", "data": {"name": name}, "run": run} for name in ("mnist",)]}
    assert plots.titles(info) == {"a": "a"}
    info["runs"][0]["data"]["name"] = "digits"
    assert plots.titles(info, "{setting}: {steps} steps, m = {m}") == {"a": "a: 50 steps, m = 10 (on digits)"}


def test_critical_difference_orders_methods_by_rank():
    scores = pd.DataFrame(np.arange(12).reshape(4, 3), columns=["MD", "FedCor", "AFL"])
    words = [text.get_text().strip() for text in summary.critical_difference(scores).axes[0].texts]
    assert {"AFL (1.00)", "FedCor (2.00)", "MD (3.00)"} <= set(words)


def test_ratio_map_says_never():
    table = pd.DataFrame({"s": {"MD": 2.0, "AFL": 0.0}, "t": {"MD": np.nan, "AFL": 0.5}})
    words = [text.get_text() for text in summary.ratio_map(table, "fewer rounds").axes[0].texts]
    assert {"2", "never", "0.5"} <= set(words)


def test_a_sampler_can_be_asked_outside_a_run():
    G = np.concatenate([np.eye(2)[[0] * 6], np.eye(2)[[1] * 6]]) + 0.01 * np.arange(12)[:, None]
    selection = ask(HCSFed(R=1.0, H=2), G, 4, np.random.default_rng(0))
    assert len(set(selection.clients)) == 4
    assert sum(selection.notes["places"]) == 4


def one_method(**more: object) -> pd.DataFrame:
    rows = {
        "setting": "",
        "method": "MD",
        "seed": 0,
        "round": range(5),
        "test_accuracy": 0.5,
        "diverged": False,
    }
    return pd.DataFrame(rows | more)


def test_the_authors_runs_are_told_apart_from_ours_by_dots_and_a_darker_colour() -> None:
    ours = one_method(method="Random")
    theirs = ours[ours["round"] < 3].assign(commit="6707484", test_accuracy=0.4)
    other = theirs.assign(method="Algorithm 1")
    figure = plots.curves(ours, "test_accuracy", methods=["Random"], authors=pd.concat([theirs, other]))
    solid, dotted, entry = figure.axes[0].get_lines()
    assert (solid.get_linestyle(), dotted.get_linestyle()) == ("-", ":")
    assert max(to_rgba(dotted.get_color())[:3]) < min(to_rgba(solid.get_color())[:3]), "not the same grey"
    assert list(dotted.get_ydata()) == [40, 40, 40], "in percent; the other method is not shown"
    assert entry.get_label() == "authors' program, run by us, commit 6707484"
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [entry.get_label()]


def test_names_stand_beside_their_lines_in_the_order_of_their_ends() -> None:
    ends = {"MD": 0.50, "Random": 0.501, "FedCor": 0.2}
    results = pd.concat([one_method(method=name, test_accuracy=end) for name, end in ends.items()])
    figure = plots.curves(results, "test_accuracy")
    ax = figure.axes[0]
    figure.canvas.draw()
    names = {text.get_text(): text for text in ax.texts}
    boxes = {name: text.get_window_extent() for name, text in names.items()}
    assert set(names) == set(ends)
    assert not figure.legends
    order = sorted(boxes, key=lambda name: boxes[name].y0)
    assert order == ["FedCor", "MD", "Random"]
    for below, above in pairwise(order):
        assert boxes[below].y1 <= boxes[above].y0 + 3, "they do not lie on each other"
    for line in ax.lines:
        assert names[line.get_label()].get_color() == line.get_color()
        assert boxes[line.get_label()].x0 >= ax.bbox.x1


def test_many_lines_have_a_legend_instead_of_names() -> None:
    results = pd.concat([one_method(method=f"m{k}", test_accuracy=0.05 * k) for k in range(11)])
    figure = plots.curves(results, "test_accuracy")
    assert not figure.axes[0].texts
    assert len(figure.legends[0].get_texts()) == 11


def test_a_printed_round_is_a_diamond_at_the_target() -> None:
    printed = {"": {"MD": 3.0, "AFL": 2.0}}
    figure = plots.curves(one_method(), "test_accuracy", methods=["MD"], target=0.8, printed=printed)
    (diamond,) = [line for line in figure.axes[0].lines if line.get_label() == "_MD, printed"]
    assert (list(diamond.get_xdata()), list(diamond.get_ydata())) == ([3.0], [80.0])
    assert "_AFL, printed" not in [line.get_label() for line in figure.axes[0].lines], "it is not shown"


def test_the_bars_of_outcomes_fit_a_phone():
    tallies = {"Clustered Sampling": {"holds": 31, "contradicted": 2}, "FedCor": {"not shown": 1}}
    with mpl.rc_context():
        plots.style()
        figure = summary.outcome_bars(tallies, OUTCOMES)
        drawn = picture.svg(figure, "bars").decode()
    widths = {(bar.get_facecolor(), bar.get_width()) for bar in figure.axes[0].patches if bar.get_width()}
    assert widths == {(to_rgba(summary.SHADES[name]), n) for name, n in
                      (("holds", 31), ("contradicted", 2), ("not shown", 1))}  # fmt: skip
    width = float(re.search(r'width="([\d.]+)pt"', drawn)[1])
    assert width * 96 / 72 * 0.75 <= 358  # points shown at the size of a phone, in pixels


HUES = ("holds", "holds where run", "contradicted", "not after correction", "shown in part", "infeasible")


def test_an_outcome_has_one_colour_and_words_that_can_be_read_on_it():
    css = (ROOT / "site" / "static" / "house.css").read_text()
    assert {*OUTCOMES} <= {*summary.SHADES}
    for outcome, shade in summary.SHADES.items():
        name = outcome.replace(" ", "-")
        assert f"*).{name} {{ background: var(--{name}); }}" in css, outcome
        light = summary.luminance(shade)
        on_it = 1.0 if light < summary.DARK else 0.0
        contrast = (max(light, on_it) + 0.05) / (min(light, on_it) + 0.05)
        assert contrast >= 4.5, (outcome, contrast)
        if outcome not in ("one seed", "not run"):  # which follow the page
            assert f"--{name}: {shade};" in css, outcome
            assert on_it == 1.0, f"{outcome}: marks bear white words"
    hues = sorted(rgb_to_hsv(to_rgb(summary.SHADES[name]))[0] for name in HUES)
    assert min(b - a for a, b in pairwise(hues)) > 0.03, "a dark page turns lightness around"


def test_a_panel_without_some_lines_of_the_others_says_so():
    rows = [
        {"setting": s, "method": m, "seed": 0, "round": t, "test_accuracy": t / 20, "diverged": False}
        for s, methods in (("all", ["MD", "Random", "Pow-d"]), ("one", ["MD"]), ("two", ["MD", "Random"]))
        for m in methods
        for t in range(10)
    ]
    figure = plots.curves(pd.DataFrame(rows), "test_accuracy")
    said = [[n["text"] for n in panel["notes"]] for panel in interactive.panels(figure)["panels"]]
    assert said == [[], ["only MD was run here"], ["not run here: Pow-d"]]
    plt.close(figure)


def test_what_is_drawn_beside_the_runs_is_no_method_that_was_not_run():
    table = pd.concat([one_method(setting="a"), one_method(setting="b")])
    printed = {"a": {"MD": 3.0}}
    figure = plots.curves(
        table, "test_accuracy", target=0.5, printed=printed, authors=table.assign(commit="1")[:5]
    )
    assert [text.get_text() for ax in figure.axes for text in ax.texts if text.get_gid() == panels.NOTE] == []
    plt.close(figure)


def test_a_note_stays_in_its_panel_and_can_be_read():
    names = [f"a method of a long name, {k}" for k in range(6)]
    with mpl.rc_context():
        plots.style()
        figure, axes = plots.grid(2, columns=2)
        panels.say_what_is_missing(axes, [names, names[:4]])
        figure.canvas.draw()
        (note,) = (text for text in axes[1].texts if text.get_gid() == panels.NOTE)
        assert note.get_text() == "2 of 6 were not run here"
        assert note.get_window_extent().width < axes[1].bbox.width
        assert note.get_fontsize() >= 9
        plt.close(figure)


def test_a_legend_of_long_labels_is_no_wider_than_its_figure():
    with mpl.rc_context():
        plots.style()
        figure, axes = plots.grid(2, columns=2)
    for k in range(16):
        axes[0].plot([0, 1], label=f"{k}: a label of thirty characters")
    figure.canvas.draw()
    before = axes[0].bbox.height
    plots.legend_below(figure, axes, columns=6)
    figure.canvas.draw()
    assert figure.legends[0].get_window_extent().width <= figure.bbox.width
    assert axes[0].bbox.height > 0.7 * before
    plt.close(figure)


def test_a_small_picture_is_the_same_picture():
    """Every vertex that is left out lies within half a point of the line that is left."""
    rng = np.random.default_rng(0)
    t = np.linspace(0, 300, 900)
    y = 100 + 40 * np.sin(t / 20) + 0.2 * rng.standard_normal(len(t))
    line = " \n".join(
        f"{'L' if k else 'M'} {a:.6f} {b:.6f}" for k, (a, b) in enumerate(zip(t, y, strict=True))
    )
    words = '<?xml version="1.0"?><text x="10.123456" style="opacity: 0.125">0.00125</text>'
    full = (
        f'{words}<path d="{line} \n" style="x"/>\n   <path d="M 1.123456 2 \nC 1 2 3.987654 4 5 6 \nz \n"/>'
    )
    small = picture.compact(full)
    first, second = re.findall(r' d="([^"]*)"', small)
    start, moves = (
        [*map(float, re.findall(r"-?\d*\.?\d+", part))] for part in first.removeprefix("M").split("l")
    )
    kept = np.cumsum(np.reshape([*start, *moves], (-1, 2)), axis=0)
    assert small.startswith(words.replace("10.123456", "10.12")), "words and opacities are no places"
    assert len(small) < len(full) / 3
    sides = kept[1:] - kept[:-1]
    lengths = np.maximum((sides**2).sum(axis=1), 1e-12)
    from_start = np.column_stack([t, y])[:, None] - kept[:-1]
    along = np.clip((from_start * sides).sum(axis=2) / lengths, 0, 1)
    distances = np.linalg.norm(from_start - along[..., None] * sides, axis=2).min(axis=1)
    assert distances.max() < 0.5
    assert second.split() == ["M", "1.12", "2", "C", "1", "2", "3.99", "4", "5", "6", "z"]


def test_a_style_that_many_share_stands_once_and_groups_without_meaning_go():
    head = "<svg><defs><style>*{a}</style></defs>"
    body = '<g id="a"><g id="b"><use xlink:href="#m" style="fill: red"/></g><g/></g>'
    body += (
        '<g clip-path="url(#c)"><path id="m" style="fill: red"/></g><text style="fill: blue">id</text></svg>'
    )
    small = picture.compact(head + body)
    (name,) = re.findall(r"\.(\w+)\{fill: red\}</style>", small)
    assert small.split("</defs>")[1] == (
        f'<use xlink:href="#m" class="{name}"/><g clip-path="url(#c)"><path id="m" class="{name}"/></g>'
        '<text style="fill: blue">id</text></svg>'
    )
    with mpl.rc_context():
        plots.style()
        figure, axes = plots.grid(2)
        axes[0].plot(range(100), np.random.default_rng(0).standard_normal(100))
        ElementTree.fromstring(picture.svg(figure, "well formed"))


@pytest.mark.parametrize(
    ("tenths", "text"),
    [([0, 5], "0 .5"), ([12, 5, -5], "1.2.5-.5"), ([10, 5, 100], "1 .5 10"), ([-1200], "-120")],
)
def test_numbers_of_a_path_are_apart(tenths: list[int], text: str):
    assert picture.joined(tenths) == text
    assert [*map(float, re.findall(r"-?(?:\d+\.?\d*|\.\d+)", text))] == [n / 10 for n in tenths]

"""Comparisons of experiments whose rounds are known, and their exports."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from dflash_lab.errors import LabError
from dflash_lab.paired import compare as paired
from dflash_lab.store import Series
from dflash_lab.store.again import task_of
from dflash_lab.store.compare import Side, compare, metrics, rate_differences, rates
from dflash_lab.store.experiment import Experiment
from dflash_lab.store.figures import comparison_figures, figures
from dflash_lab.store.jupyter import notebook
from dflash_lab.store.report import html
from dflash_lab.store.tables import as_csv, as_json, markdown
from dflash_lab.trace import summarise
from tests.store.made import experiment, trace


def two():
    good = experiment("a", accepted=(3, 2, 3, 1) * 8, title="Right mask")
    bad = experiment("b", accepted=(0, 0, 1, 0) * 16, title="Wrong mask", config={"mask_token_id": 0, "block_size": 16})
    return good, bad


def test_the_paired_test_is_of_the_common_prompts_only():
    good, bad = two()
    one = replace(bad, series=(replace(bad.series[0], prompts=("hills",), traces=bad.series[0].traces[1:]),))
    found = compare(Side.of(good), Side.of(one))
    assert [c.prompt for c in found.common] == ["hills"]
    assert found.paired == paired([good.figures.traces[1]], [bad.figures.traces[1]])
    assert found.paired.difference < 0 and "a clear difference; paired on 1 common prompt," in found.sentence()


def test_prompts_in_another_order_are_matched_by_what_they_are():
    good, bad = two()
    s = bad.series[0]
    turned = replace(bad, series=(replace(s, prompts=s.prompts[::-1], traces=s.traces[::-1]), *bad.series[1:]))
    assert compare(Side.of(good), Side.of(turned)).paired == compare(Side.of(good), Side.of(bad)).paired


def test_without_a_common_prompt_nothing_is_paired_and_it_says_so():
    good, _ = two()
    other = experiment("c")
    moved = replace(other, series=(Series("with the drafter", 3, ("x",), (trace((1, 2), prompt=9),)),))
    found = compare(Side.of(good), Side.of(moved))
    assert found.paired is None and found.common == () and "no prompt in common" in found.sentence()
    assert found.texts_sentence() == "" and "B minus A, on the common prompts" not in comparison_figures(found)


def test_the_config_difference_names_the_field():
    found = compare(*(Side.of(e) for e in two()))
    assert [(d.field, d.here, d.there) for d in found.config] == [("mask_token_id", 6, 0)]


def test_the_first_difference_of_the_texts_is_found_and_worded():
    good, bad = two()
    s = bad.series[0]
    other = replace(s, traces=(trace((0, 1), text=7), trace((0, 1), prompt=2, text=0)))
    found = compare(Side.of(good), Side.of(replace(bad, series=(other,))))
    assert (found.texts.prompt, found.texts.index, found.texts.here, found.texts.there) == ("hills", 0, 7, 0)
    assert "'Rhine' (7)" in found.texts_sentence()
    assert compare(Side.of(good), Side.of(bad)).texts is None, "one was cut at its limit: as far as it goes it agrees"


def test_metrics_are_the_summaries_own():
    good, bad = two()
    frame = metrics([Side.of(good), Side.of(bad), Side.of(good, "target alone")])
    own = summarise(good.figures.traces)
    assert frame["acceptance length"][0] == own.acceptance_length
    assert (frame["AL from"][0], frame["AL to"][0]) == own.acceptance_length_interval
    assert frame["tok/s"].round(6).tolist() == [10, 10, 5]


def test_the_difference_of_the_heatmaps_is_there_minus_here():
    good, bad = two()
    found = compare(Side.of(good), Side.of(bad))
    a, b = rates(good.figures), rates(bad.figures)
    assert rate_differences(found).to_numpy() == pytest.approx((b - a).to_numpy())
    narrow = experiment("n", accepted=(2, 1) * 9, k=2)
    assert list(rate_differences(compare(Side.of(good), Side.of(narrow))).columns) == [0, 1]


def test_an_unknown_series_is_told_with_the_ones_there_are():
    with pytest.raises(LabError, match="no series 'x'. It has: with the drafter, target alone"):
        Side.of(experiment(), "x")


def test_the_same_again_with_another_k_is_the_same_task():
    made = replace(experiment(), settings={"pair": "smollm2-demo", "prompt": "Hi", "k": 3, "max_new_tokens": 8})
    assert (task_of(made).k, task_of(made, 8).k, task_of(made, 8).prompt) == (3, 8, "Hi")
    with pytest.raises(LabError, match="another version"):
        task_of(replace(made, settings={"pair": "smollm2-demo", "temper": 1}))
    with pytest.raises(LabError, match="cannot be repeated here"):
        task_of(replace(made, kind="server"))


def test_the_notebooks_cells_run_and_redraw_the_figures():
    good, _ = two()
    body = json.loads(notebook(replace(good, note="A *note*")))
    assert (body["nbformat"], body["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in body["cells"]}) == len(body["cells"])
    seen: dict = {}
    drawn = {}
    for cell in body["cells"]:
        assert cell["cell_type"] in ("markdown", "code")
        if cell["cell_type"] == "code":
            exec(cell["source"], seen)
            if cell["source"].startswith("drawn["):
                title = cell["source"].removeprefix("drawn[").removesuffix("]").strip("'")
                drawn[title] = eval(cell["source"], seen)
    assert seen["experiment"] == replace(good, note="A *note*")
    assert {t: f.to_json() for t, f in drawn.items()} == {t: f.to_json() for t, f in figures(good).items()} != {}


def test_the_report_escapes_every_text_and_points_nowhere():
    nasty = "<script>alert(1)</script><img src=http://evil.example/x>"
    good, bad = two()
    good = replace(good, title=nasty, hypothesis=nasty, note=nasty, tags=(nasty,), verdict=nasty)
    text = html([good, bad], compare(Side.of(good), Side.of(bad)))
    body = text[text.index("</head>") :]
    assert "<script>alert" not in body and "<img" not in body and "&lt;script&gt;" in body
    assert "default-src 'none'" in text[:400] and "cdn.plot.ly" not in body and "<b>Rhine" not in body


def test_tables_round_trip_and_cannot_be_broken_out_of():
    good, bad = two()
    assert Experiment.from_json(json.loads(as_json(good))) == good
    rows = as_csv(good).splitlines()
    assert len(rows) == 1 + sum(len(t.rounds) for s in good.series for t in s.traces)
    text = markdown([replace(good, title="a | b\n## c"), bad], compare(Side.of(good), Side.of(bad)))
    assert "## a \\| b ## c" in text and "| mask_token_id | 6 | 0 |" in text

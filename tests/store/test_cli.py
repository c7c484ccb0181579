"""``notebook`` on the command line: every action on a real file."""

from __future__ import annotations

import json

import pytest

from dflash_lab.cli import main
from dflash_lab.store import Store
from tests.store.made import experiment


@pytest.fixture(autouse=True)
def store() -> Store:
    store = Store()
    store.put(experiment("a", kept=True))
    store.put(experiment("b", accepted=(0, 1) * 9, title="Worse", config={"mask_token_id": 0}))
    return store


def test_list_and_search(capsys):
    assert main(["notebook", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["b", "a"] and "AL  2.50" in lines[1] and "recent" in lines[0]
    assert main(["notebook", "list", "worse", "--json"]) == 0
    assert [e["id"] for e in json.loads(capsys.readouterr().out)] == ["b"]


def test_compare_ends_with_the_paired_difference_and_writes_a_report(capsys, tmp_path):
    out = tmp_path / "c.html"
    assert main(["notebook", "compare", "a", "b:with the drafter", "--json", "--out", str(out)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["difference"] < 0 and found["clear"] and found["common_prompts"] == 2
    assert found["config"]["mask_token_id"] == [6, 0] and "B minus A" in out.read_text()


@pytest.mark.parametrize("ending", ["dflash", "html", "ipynb", "csv", "json", "md"])
def test_export_writes_what_the_ending_says(tmp_path, ending):
    out = tmp_path / f"x.{ending}"
    assert main(["notebook", "export", "a", str(out)]) == 0 and out.stat().st_size > 200


def test_export_import_delete(capsys, tmp_path, store):
    out = tmp_path / "a.dflash"
    main(["notebook", "export", "a", str(out)])
    assert main(["notebook", "delete", "a"]) == 0 and len(store.entries()) == 1
    capsys.readouterr()
    assert main(["notebook", "import", str(out)]) == 0
    assert capsys.readouterr().out.strip() == "a" and store.get("a") == experiment("a", kept=True)
    other = tmp_path / "other.db"
    assert main(["notebook", "import", str(out), "--store", str(other)]) == 0
    assert [e.id for e in Store(other).entries()] == ["a"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["show", "zzz"], "There is no experiment 'zzz'"),
        (["export", "a", "x.exe"], "cannot be written as .exe. Use .dflash"),
        (["import", "nowhere.dflash"], "nowhere.dflash cannot be read"),
        (["compare", "a", "b:K = 9"], "no series 'K = 9'"),
        (["delete", "a", "zzz"], "There is no experiment 'zzz'"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(capsys, store, arguments, words):
    assert main(["notebook", *arguments]) == 2
    error = capsys.readouterr().err.strip()
    assert words in error and len(error.splitlines()) == 1 and len(store.entries()) == 2

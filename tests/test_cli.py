"""The command line on the real demo pair: figures as one line of JSON, and one sentence for whatever is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dflash_lab.cli import main

DRAFTER = Path("sample_configs/smollm2-135m-dflash")


@pytest.fixture(autouse=True)
def _demo_is_there(demo_target_dir):
    """The first run would otherwise fetch it in the middle of a test."""


def last_line(capsys) -> dict:
    return json.loads(capsys.readouterr().out.strip().splitlines()[-1])


def test_run_ends_with_one_line_of_json(capsys):
    code = main(["run", "--prompt", "Name three rivers.", "--k", "3", "--max-new-tokens", "16", "--dtype", "float32",
                 "--json"])  # fmt: skip
    result = last_line(capsys)
    assert code == 0 and result["lossless"] is True and result["k"] == 3
    assert len(result["per_position"]) == 3 and result["rounds"] == result["rounds_counted"] + result["rounds_left_out"]
    assert result["acceptance_length"] == pytest.approx(1 + sum(result["per_position"]))
    assert result["tok_per_s"] > 0 and result["speed_up"] > 0 and result["text"].strip()


def test_trees_are_drafted_by_depth_and_budget(capsys):
    code = main(["run", "--prompt", "Name three rivers.", "--k", "12", "--tree-depth", "4", "--max-new-tokens", "16",
                 "--dtype", "float32", "--json"])  # fmt: skip
    result = last_line(capsys)
    assert code == 0 and result["lossless"] is True and result["method"] == "ddtree" and result["tree_depth"] == "4"
    assert result["k"] == 12 and len(result["per_position"]) <= 4


def test_methods_end_with_a_table_and_one_line_of_json(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("DFLASH_LAB_DATA", str(tmp_path / "data"))
    prompts, table = tmp_path / "prompts.jsonl", tmp_path / "table.md"
    prompts.write_text(Path("tests/data/prompts.jsonl").read_text().splitlines()[0] + "\n")
    code = main(["methods", "--method", "dflash", "--k", "1", "--prompts", str(prompts), "--max-new-tokens", "8",
                 "--dtype", "float32", "--markdown", str(table), "--json"])  # fmt: skip
    result = last_line(capsys)
    assert code == 0 and [row["label"] for row in result["rows"]] == ["Target alone", "DFlash, K = 1"]
    assert all(row["lossless"] and row["tok_s"] > 0 and row["predicted_tok_s"] > 0 for row in result["rows"])
    assert table.read_text().startswith("| | Right, K = 1 | Best K (1) |")


def test_run_pools_a_set_of_prompts(capsys):
    code = main(["run", "--prompts", "tests/data/prompts.jsonl", "--k", "2", "--max-new-tokens", "8", "--no-baseline",
                 "--json"])  # fmt: skip
    result = last_line(capsys)
    assert code == 0 and len(result["text"]) == 6 and result["speed_up"] is None and result["lossless"] is None


def test_the_guessed_config_accepts_next_to_nothing(capsys):
    main(["run", "--prompt", "Explain how a bicycle stays upright.", "--config", str(DRAFTER / "config.guessed.json"),
          "--max-new-tokens", "32", "--no-baseline", "--json"])  # fmt: skip
    assert last_line(capsys)["acceptance_length"] < 1.2


def test_what_if_reports_a_paired_difference(capsys, tmp_path):
    prompts = tmp_path / "prompts.jsonl"
    lines = Path("tests/data/prompts.jsonl").read_text().splitlines()[:2]
    prompts.write_text("\n".join(lines) + "\n")
    code = main(["config", "whatif", "--set", "mask_token_id=0", "--prompts", str(prompts), "--max-new-tokens", "24",
                 "--json"])  # fmt: skip
    result = last_line(capsys)
    low, high = result["difference_interval"]
    assert code == 0 and low <= result["difference"] <= high
    assert result["after"]["acceptance_length"] < result["before"]["acceptance_length"]


def test_pairs_lists_the_demo_first(capsys):
    assert main(["pairs"]) == 0
    assert capsys.readouterr().out.startswith("smollm2-demo")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--prompt", "  "], "The prompt is empty"),
        (["run", "--prompt", "hi", "--k", "-2"], "k is -2"),
        (["run", "--prompt", "hi", "--max-new-tokens", "0"], "max_new_tokens is 0"),
        (["run", "--prompt", "hi", "--temperature", "-1"], "temperature is -1"),
        (["run", "--prompt", "hi", "--pair", "smollm2-dmeo"], "There is no pair 'smollm2-dmeo'. Closest: smollm2-demo"),
        (["run", "--prompt", "hi", "--config", "nowhere.json"], "nowhere.json cannot be read"),
        (["config", "whatif", "--set", "mask_token_id"], "--set mask_token_id is not FIELD=JSON"),
        (["sweep", "--kind", "opera"], "No prompt is of kind opera"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_two(capsys, arguments, message):
    assert main(arguments) == 2
    error = capsys.readouterr().err.strip()
    assert message in error and error.startswith("error: ") and len(error.splitlines()) == 1


def test_broken_json_is_named_with_line_and_column(capsys, tmp_path):
    broken = tmp_path / "config.json"
    broken.write_text('{"hidden_size": 576,\n "block_size": }')
    assert main(["run", "--prompt", "hi", "--config", str(broken)]) == 2
    assert "line 2 column 16" in capsys.readouterr().err


def test_a_prompt_longer_than_the_context_is_refused_with_the_numbers(capsys):
    assert main(["run", "--prompt", "word " * 9000, "--k", "5"]) == 2
    assert "does not fit the target's context of 8192" in capsys.readouterr().err


def test_more_drafted_tokens_than_trained_is_said_and_runs(capsys):
    assert main(["run", "--prompt", "hi", "--k", "20", "--max-new-tokens", "4", "--no-baseline"]) == 0
    assert "beyond the trained block: block_size 16 drafts at most 15" in capsys.readouterr().err


def test_k_zero_is_the_target_alone(capsys):
    assert main(["run", "--prompt", "hi", "--k", "0", "--max-new-tokens", "4", "--json"]) == 0
    result = last_line(capsys)
    assert result["acceptance_length"] is None and result["method"] == "plain" and result["tokens"] >= 1

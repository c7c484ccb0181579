"""``config`` on the command line: the exit code for a user's CI, saves that are proven, one sentence on failure."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dflash_lab.cli import main
from dflash_lab.config.schema import DrafterConfig
from dflash_lab.paths import SAMPLES
from tests.config import published

ROOT = Path(__file__).resolve().parents[2]
DEMO = SAMPLES / "smollm2-135m-dflash"


@pytest.fixture
def folder(tmp_path):
    shutil.copy(SAMPLES / "drafters" / "Qwen3.6-27B-DFlash" / "config.json", tmp_path)
    return tmp_path


def run(capsys, *words) -> tuple[int, str, str]:
    code = main(["config", *map(str, words)])
    out, err = capsys.readouterr()
    return code, out, err


def run_json(capsys, *words):
    code, out, _ = run(capsys, *words, "--json")
    return code, json.loads(out)


def test_show_gives_fields_and_hash(folder, capsys):
    _, shown = run_json(capsys, "show", folder)
    assert shown["fields"]["target_layer_ids"] == [1, 16, 31, 46, 61] and len(shown["sha256"]) == 64
    assert "layer 4: both ways, all positions" in run(capsys, "show", folder)[1]


def test_check_exits_1_on_an_error_and_0_without(folder, capsys):
    assert run(capsys, "check", folder)[0] == 0
    run(capsys, "save", folder, "--set", "use_sliding_window=false")
    code, findings = run_json(capsys, "check", folder)
    assert code == 1 and "window_not_used" in {finding["check"] for finding in findings}


def test_check_of_the_demo_reads_its_weights_header(capsys):
    code, out, _ = run(capsys, "check", DEMO, "--k", "16")
    assert code == 0 and "16 drafted tokens need a block of 17" in out


def test_check_takes_the_targets_config_and_tokenizer(folder, tmp_path, capsys):
    from tokenizers import AddedToken, Tokenizer, models

    target = tmp_path / "target"
    target.mkdir()
    tokenizer = Tokenizer(models.WordLevel({"the": 0, "cat": 1}, unk_token="the"))
    tokenizer.add_special_tokens([AddedToken("<end>", special=True)])
    tokenizer.save(str(target / "tokenizer.json"))
    (target / "tokenizer_config.json").write_text('{"eos_token": {"content": "<end>"}}')
    (target / "config.json").write_text(json.dumps(published.target("Qwen3.6-27B-DFlash")))
    for mask, name in ((1, "mask_is_ordinary_text"), (2, "mask_has_another_job")):
        run(capsys, "save", folder, "--set", f"mask_token_id={mask}")
        _, findings = run_json(capsys, "check", folder, "--target", target)
        assert name in {finding["check"] for finding in findings}


def test_check_is_quick_and_loads_no_torch():
    code = (
        "import sys; from dflash_lab.cli import main;"
        f"code = main(['config', 'check', {str(DEMO)!r}]);"
        "sys.exit(9 if 'torch' in sys.modules or 'transformers' in sys.modules else code)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60).returncode == 0


def test_readers_mark_what_stands_out(folder, capsys):
    _, out, _ = run(capsys, "readers", folder, "--target-layers", "64")
    assert "! vLLM, old" in out and "one layer early" in out
    _, table = run_json(capsys, "readers", folder)
    assert table["taps"]["z-lab"]["text"] == "[2, 17, 32, 47, 62]"


def test_a_diff_as_patch_carries_an_edit_to_another_drafter(folder, tmp_path, capsys):
    other = tmp_path / "other"
    shutil.copytree(SAMPLES / "drafters" / "Qwen3-8B-DFlash-b16", other)
    edited = tmp_path / "edited.json"
    assert run(capsys, "save", folder, "--set", "mask_token_id=7")[0] == 0
    _, patch = run_json(capsys, "diff", SAMPLES / "drafters" / "Qwen3.6-27B-DFlash", folder)
    edited.write_text(json.dumps(patch))
    assert run(capsys, "patch", other, edited, "--write")[0] == 0
    assert json.loads((other / "config.json").read_text())["dflash_config"]["mask_token_id"] == 7
    assert "mask_token_id: 248070 -> 7" in run(capsys, "diff", SAMPLES / "drafters" / "Qwen3.6-27B-DFlash", folder)[1]


def test_convert_prints_or_writes_a_new_file(folder, tmp_path, capsys):
    _, raw = run_json(capsys, "convert", folder, "--to", "speculators")
    assert raw["aux_hidden_state_layer_ids"] == [2, 17, 32, 47, 62]
    new = tmp_path / "new.json"
    assert run(capsys, "convert", folder, "--to", "nested", "--output", new)[0] == 0
    assert DrafterConfig.from_json(json.loads(new.read_text())).dialect == "nested"
    assert run(capsys, "convert", folder, "--to", "nested", "--output", new)[0] == 2


def test_save_and_restore_name_the_hash_on_disk(folder, capsys):
    before = (folder / "config.json").read_bytes()
    _, saved = run_json(capsys, "save", folder, "--set", "block_size=8", "--set", "target_layer_ids=[1,2,3,4,5]")
    assert saved["sha256"] in run(capsys, "show", folder)[1] and Path(saved["previous"]).read_bytes() == before
    assert "  1  replaced" in run(capsys, "restore", folder)[1]
    assert run(capsys, "restore", folder, "1")[0] == 0 and (folder / "config.json").read_bytes() == before
    assert run(capsys, "restore", folder, "9")[0] == 2


def test_save_says_on_stderr_when_the_saved_config_has_errors(folder, capsys):
    assert "1 error" in run(capsys, "save", folder, "--set", "sliding_window=null")[2]


def test_an_overlay_leaves_the_original_alone(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("DFLASH_LAB_DATA", str(tmp_path / "data"))
    before = (folder / "config.json").read_bytes()
    _, saved = run_json(capsys, "save", folder, "--set", "block_size=8", "--overlay")
    assert (folder / "config.json").read_bytes() == before
    assert saved["path"].startswith(str(tmp_path / "data"))


@pytest.mark.parametrize(
    "words",
    [
        ("show", "nowhere"),
        ("save", "{folder}"),
        ("save", "{folder}", "--set", "block_size"),
        ("save", "{folder}", "--set", 'block_size="x"'),
        ("save", "{folder}", "--set", "nonsense=1"),
        ("patch", "{folder}", "nowhere.json"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_exit_code_2(folder, capsys, words):
    code, out, err = run(capsys, *(word.replace("{folder}", str(folder)) for word in words))
    assert code == 2 and not out and err.startswith("error: ") and err.count("\n") == 1

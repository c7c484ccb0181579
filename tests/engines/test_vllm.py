"""What vLLM accepts against what replay expects, round by round, on a real server; and that the test has teeth."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests

from dflash_lab.config.readers import TargetFacts, reading
from dflash_lab.errors import LabError
from dflash_lab.paired import compare
from dflash_lab.paths import SAMPLES
from dflash_lab.replay import Replay
from dflash_lab.servers.answer import Ask
from dflash_lab.servers.bend import Reading, VariantStack
from dflash_lab.servers.compare import Evidence
from dflash_lab.servers.explain import explain
from dflash_lab.servers.known import known_problems
from dflash_lab.servers.load import run_load
from dflash_lab.servers.variants import engine_reading
from dflash_lab.servers.vllm import VllmServer
from dflash_lab.trace import summarise
from dflash_lab.whatif import record_prompts
from tests.config import published
from tests.engines.conftest import TOKENS, ask_all, served

SPECULATORS = "Qwen3.6-35B-A3B-speculator.dflash"
"""vLLM flattens this dialect elsewhere, while it makes its model config."""


@pytest.fixture(scope="module")
def recordings(demo_pair, prompts):
    return record_prompts(demo_pair, prompts, TOKENS)


def evidence(load, k, recordings) -> Evidence:
    traces = load.traces(k, "vLLM")
    assert len(traces) == len(load.answers) and all(t.about["rounds"] == "per-request metrics" for t in traces)
    return Evidence(traces, recordings)


def expected_of(pair, cpu: bool, config=None) -> VariantStack:
    return VariantStack(pair.weights, engine_reading(config or pair.config, "vLLM", pair.target, cpu), pair.target)


def two_sweeps_at_once(server, pair, prompts, alone) -> None:
    """Two loads on one server finish, and write what they write alone."""
    with ThreadPoolExecutor(2) as pool:
        for load in pool.map(lambda _: ask_all(server, pair, prompts), range(2)):
            assert [a.token_ids for a in load.answers] == [a.token_ids for a in alone.answers]


@pytest.mark.parametrize("k", [5, 3, 7])
def test_its_rounds_are_replays_under_its_own_reading_and_flagged_under_the_references(
    demo_pair, environment, prompts, recordings, tmp_path, k, record_property
):
    with served(demo_pair, environment, tmp_path, k) as server:
        client = VllmServer(server.url)
        facts = client.facts()
        load = ask_all(server, demo_pair, prompts)
        if k == 5:
            two_sweeps_at_once(server, demo_pair, prompts, load)
    assert facts.version.startswith(environment.version.split("+")[0][:4]) and facts.speculates
    found = evidence(load, k, recordings)
    own, reference = found.compare(expected_of(demo_pair, cpu=True)), found.compare(expected_of(demo_pair, cpu=False))
    record_property(f"K = {k}: rounds, equal under its reading, under the reference's",
                    (own.rounds, own.equal_share, reference.equal_share))  # fmt: skip
    record_property(f"K = {k}: acceptance length seen, expected by the reference",
                    (own.observed_acceptance_length, reference.expected_acceptance_length))  # fmt: skip
    record_property(f"K = {k}: differences", own.differences)
    assert own.rounds > 100 and own.equal_share >= 0.99, own.differences
    assert reference.equal_share < 0.99, "layer 0's k_norm on all layers must show"
    assert own.observed_acceptance_length < reference.expected_acceptance_length
    if k != 5:
        return
    # The server's own two accounts agree: steps of each request, and the counters around all of them.
    summary, counted = summarise(load.traces(k, "vLLM")), load.counters.summary()
    steps = [answer.steps for answer in load.answers]
    assert counted.drafts == sum(len(s.accepted) for s in steps)
    assert counted.accepted == sum(sum(s.accepted) for s in steps)
    assert abs(counted.acceptance_length - summary.acceptance_length) < 0.1
    # And the search finds the deviation by itself.
    base = Reading(reading(demo_pair.config.raw, "vLLM", TargetFacts(demo_pair.target.num_layers)))
    ranking = explain(found, demo_pair.weights, base, demo_pair.target)
    assert ranking.best.names == ("layer 0's k_norm",), ranking.sentence()
    assert ranking.best.share >= 0.99
    assert any(f.field == "k_norm" for f in known_problems(facts.version, demo_pair.raw_config, environment.cpu))


def test_a_cached_prefix_changes_no_token(demo_pair, environment, prompts, recordings, tmp_path, record_property):
    """A probe of its own: the second time, every prompt's start comes from the cache, for the drafter as well."""
    with served(demo_pair, environment, tmp_path, 5, exact=False) as server:
        first, second = ask_all(server, demo_pair, prompts), ask_all(server, demo_pair, prompts)
    assert [a.token_ids for a in first.answers] == [a.token_ids for a in second.answers]
    for name, load in (("cold", first), ("cached", second)):
        found = evidence(load, 5, recordings).compare(expected_of(demo_pair, cpu=True))
        record_property(f"prefix caching, {name}: rounds, equal under its reading", (found.rounds, found.equal_share))
        assert found.rounds > 100


def test_in_bfloat16_the_acceptance_length_is_replays_within_its_interval(
    demo_pair_bf16, environment, prompts, tmp_path, record_property
):
    with served(demo_pair_bf16, environment, tmp_path, 5) as server:
        observed = ask_all(server, demo_pair_bf16, prompts).traces(5, "vLLM")
    replayed = Replay(record_prompts(demo_pair_bf16, prompts, TOKENS)).run(expected_of(demo_pair_bf16, cpu=True), 5)
    paired = compare(replayed, observed)
    record_property(
        "bfloat16: AL replayed, observed, interval of the difference", (paired.a, paired.b, paired.low, paired.high)
    )
    assert paired.low <= 0 <= paired.high


def test_the_vllm_column_is_what_its_own_code_resolves(demo_pair, environment):
    folders = [demo_pair.drafter_dir, *(SAMPLES / "drafters" / name for name in published.NAMES if name != SPECULATORS)]
    script = Path(__file__).with_name("resolved.py")
    output = subprocess.run(
        [environment.python, script, *folders], capture_output=True, text=True, check=True, timeout=600
    ).stdout
    for folder, theirs in zip(folders, json.loads(output.splitlines()[-1]), strict=True):
        ours = reading(json.loads((folder / "config.json").read_text()), "vLLM", TargetFacts(64))
        layers = [ours.attention(i) for i in range(ours.num_hidden_layers)]
        assert list(ours.taps) == theirs["taps"], folder
        assert ours.mask_token_id == theirs["mask_token_id"], folder
        assert [[layer.causal, layer.window] for layer in layers] == theirs["layers"], folder
        assert ours.rope_parameters["rope_theta"] == theirs["theta"], folder


def shifted(raw):
    draft = raw["dflash_config"]
    return raw | {"dflash_config": draft | {"target_layer_ids": [i + 1 for i in draft["target_layer_ids"]]}}


def test_shifted_taps_and_the_guessed_config_are_flagged(demo_pair, environment, prompts, recordings, tmp_path):
    guessed = json.loads((demo_pair.drafter_dir / "config.guessed.json").read_text())
    for name, config in (("shifted", shifted(demo_pair.raw_config)), ("guessed", guessed)):
        with served(demo_pair, environment, tmp_path / name, 5, config) as server:
            load = ask_all(server, demo_pair, prompts)
        comparison = evidence(load, 5, recordings).compare(expected_of(demo_pair, cpu=True))
        assert comparison.equal_share < 0.95, name
        assert "is expected" in comparison.sentence() or "other rounds" in comparison.sentence()


def test_a_mixed_drafter_is_refused_in_one_sentence(demo_pair, environment, tmp_path):
    mixed = demo_pair.raw_config | {"layer_types": ["sliding_attention", "sliding_attention", "full_attention"]}
    with (
        pytest.raises(LabError, match="runs a drafter with sliding and full layers only on its model runner V2"),
        served(demo_pair, environment, tmp_path, 5, mixed),
    ):
        pass


def test_plain_serving_has_no_rounds_and_a_killed_server_loses_no_finished_request(
    demo_pair, environment, prompts, tmp_path
):
    with served(demo_pair, environment, tmp_path, 0) as server:
        client = VllmServer(server.url)
        assert client.facts().speculates is False
        done: list[int] = []

        def watch(answers, total):
            done.append(len(answers))
            if done == [1]:
                pid = server.supervisor_pid
                (vllm,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
                os.killpg(int(vllm), signal.SIGKILL)
            return True

        asks = [Ask(tuple(demo_pair.encode(prompt)), 16, timeout_s=60) for prompt in prompts]
        load = run_load(client, asks, watch=watch)
        assert len(load.answers) >= 1 and load.failure is not None
        assert load.sentence().startswith(f"{len(load.answers)} of {len(asks)} requests finished.")
        assert load.answers[0].trace(5, "vLLM") is None or not load.answers[0].steps


HOLD = """
import sys, time
from pathlib import Path
from dflash_lab.servers.environment import find
from dflash_lab.servers.launch import Launch, ManagedServer
server = ManagedServer(Launch(sys.argv[1], dtype="float32", max_model_len=256, eager=True), find(), Path(sys.argv[2]))
server.wait_ready()
print(server.url, flush=True)
time.sleep(600)
"""


def test_a_server_ends_when_the_lab_is_killed(demo_pair, environment, tmp_path):
    lab = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(demo_pair.target_dir), str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    url = lab.stdout.readline().strip()
    assert requests.get(f"{url}/health", timeout=10).status_code == 200
    lab.kill()
    lab.wait()
    deadline = time.monotonic() + 60
    with pytest.raises(requests.ConnectionError):
        while time.monotonic() < deadline:
            requests.get(f"{url}/health", timeout=5)
            time.sleep(0.5)

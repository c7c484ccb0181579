"""The vLLM client: rounds from each grade of evidence, and one sentence for each way a server can fail."""

from __future__ import annotations

import pytest

from dflash_lab.errors import LabError
from dflash_lab.servers.answer import Ask
from dflash_lab.servers.load import run_load
from dflash_lab.servers.vllm import VllmServer
from dflash_lab.trace import summarise
from tests.servers.replies import Script, chunk, counters, replying, usage

# Prompt 7 8; the first token 10, then rounds that accept 2, 0 and 1 of two drafted tokens.
STREAM = [
    chunk([10]) | {"prompt_token_ids": [7, 8]},
    chunk([11, 12, 13]),
    chunk([14]),
    chunk([15, 16], finish="length"),
]
ASK = Ask((7, 8), 7)


def ask(script: Script, request: Ask = ASK):
    with replying(script) as url:
        return VllmServer(url).ask(request)


def test_per_step_metrics_give_every_round_exactly():
    answer = ask(Script([*STREAM, usage(7, per_step_accepted=[2, 0, 1], per_step_drafted=[2, 2, 2])]))
    trace = answer.trace(2, "vLLM")
    assert trace.about["rounds"] == "per-request metrics"
    assert [(r.anchor, r.anchor_position, r.accepted, r.emitted) for r in trace.rounds] == [
        (10, 2, 2, (11, 12, 13)),
        (13, 5, 0, (14,)),
        (14, 6, 1, (15, 16)),
    ]
    assert trace.output_ids == (10, 11, 12, 13, 14, 15, 16) and trace.end == "limit"
    assert summarise([trace]).acceptance_length == 1 + (2 + 0) / 2


def test_chunks_give_rounds_where_there_are_no_metrics():
    trace = ask(Script([*STREAM, usage(7)])).trace(2, "vLLM")
    assert trace.about["rounds"] == "streamed chunks" and [r.accepted for r in trace.rounds] == [2, 0, 1]


def test_chunks_that_hold_several_steps_give_no_rounds():
    answer = ask(Script([STREAM[0], chunk([11, 12, 13, 14]), chunk([15], finish="stop"), usage(6)]))
    assert answer.trace(2, "vLLM") is None and answer.finish == "stop"


def test_metrics_that_do_not_cover_the_text_give_no_rounds():
    answer = ask(Script([*STREAM, usage(7, per_step_accepted=[2], per_step_drafted=[2])]))
    assert answer.trace(2, "vLLM") is None


def test_what_is_sent_is_what_was_asked():
    script = Script([*STREAM, usage(7)])
    ask(script, Ask((7, 8), 7, temperature=0.5, top_k=3, top_p=0.9, seed=4))
    (sent,) = script.asked
    assert (sent["prompt"], sent["max_tokens"], sent["temperature"]) == ([7, 8], 7, 0.5)
    assert (sent["top_k"], sent["top_p"], sent["seed"], sent["return_token_ids"]) == (3, 0.9, 4, True)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (Script([*STREAM[:2], None]), "broke off"),
        (Script(status=500, body="boom"), "The server answered 500 to /v1/completions: boom.*Read the server's log"),
        (Script(status=401, body="no"), "answered 401.*Give the server's API key"),
        (Script(status=404, body='{"message": "no model demo"}'), "answered 404.*Check the address"),
        (Script(body="<html>not a model server</html>"), "broke off|cannot be read"),
        (Script([*STREAM, usage(7)], models={"nothing": 1}), "does not list a model"),
    ],
)
def test_each_failure_is_one_sentence(script, words):
    with pytest.raises(LabError, match=words):
        ask(script)


def test_a_slow_server_is_told_with_the_limit():
    with pytest.raises(LabError, match="did not answer within 0.3 s"):
        ask(Script([*STREAM, usage(7)], delay_s=2.0), Ask((7, 8), 7, timeout_s=0.3))


def test_nothing_there_and_no_address_are_told():
    with pytest.raises(LabError, match="Nothing answers at http://127.0.0.1:9"):
        VllmServer("127.0.0.1:9/v1/").facts()
    with pytest.raises(LabError, match="is not a server's address"):
        VllmServer("ftp://x")


def test_facts_name_engine_version_and_model():
    with replying(Script(metrics=[counters(1, 2, 1, 0)])) as url:
        facts = VllmServer(url).facts()
    assert (facts.source, facts.model, facts.max_model_len, facts.speculates) == ("vLLM 0.32.0", "demo", 512, True)


def test_a_load_keeps_what_finished_and_stops_after_three_failures():
    script = Script([*STREAM, usage(7)], metrics=[counters(10, 20, 5, 2), counters(13, 26, 7, 3)])
    with replying(script) as url:
        server = VllmServer(url, model="demo")

        def watch(answers, total):
            if len(answers) == 2:
                script.status, script.body = 503, "overloaded"
            return True

        load = run_load(server, [ASK] * 10, watch=watch)
    assert len(load.answers) == 2 and len(script.asked) == 5
    assert load.sentence().startswith("2 of 10 requests finished. The server answered 503")
    assert len(load.traces(2, "vLLM")) == 2


def test_counters_of_a_run_are_the_difference_and_a_restart_voids_it():
    with replying(Script([*STREAM, usage(7)], metrics=[counters(10, 20, 5, 2), counters(13, 26, 7, 3)])) as url:
        load = run_load(VllmServer(url, model="demo"), [ASK])
    counted = load.counters.summary()
    assert (counted.drafts, counted.drafted, counted.accepted, counted.accepted_at) == (3, 6, 3, (2, 1))
    assert counted.acceptance_length == 1 + 3 / 3
    with replying(Script([*STREAM, usage(7)], metrics=[counters(10, 20, 5, 2), counters(1, 2, 1, 0)])) as url:
        assert run_load(VllmServer(url, model="demo"), [ASK]).counters is None


def test_stopping_a_load_keeps_its_answers():
    with replying(Script([*STREAM, usage(7)])) as url:
        load = run_load(VllmServer(url, model="demo"), [ASK] * 5, watch=lambda answers, total: len(answers) < 2)
    assert len(load.answers) == 2 and load.stopped and load.sentence() == ""


def test_no_request_at_once_is_refused():
    with replying(Script()) as url, pytest.raises(LabError, match="0 requests at once"):
        run_load(VllmServer(url, model="demo"), [ASK], concurrency=0)

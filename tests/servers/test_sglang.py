"""The SGLang client against answers of the documented shape, from a real local HTTP server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from dflash_lab.errors import LabError
from dflash_lab.servers.answer import Ask
from dflash_lab.servers.load import run_load
from dflash_lab.servers.sglang import SglangServer
from tests.servers.replies import Script, chat, chunk, replying, usage

INFO = {
    "version": "0.5.9",
    "model_path": "demo",
    "speculative_algorithm": "DFLASH",
    "internal_states": [{"avg_spec_accept_length": 2.5}],
}
METRICS = "# TYPE sglang:spec_accept_length gauge\nsglang:spec_accept_length 2.5\nsglang:spec_accept_rate 0.3\n"
ASK = Ask((7, 8), 7, temperature=0.0)


def event(ids: list[int], reason: str | None = None, **more: Any) -> dict[str, Any]:
    meta = {"prompt_tokens": 2, "completion_tokens": len(ids), "finish_reason": {"type": reason} if reason else None}
    return {"text": "x" * len(ids), "output_ids": ids, "meta_info": meta | more}


NEW = {"spec_verify_ct": 3, "spec_accept_length": 7 / 3, "spec_accept_rate": 0.5,
       "spec_correct_drafts_histogram": [1, 1, 1]}  # fmt: skip
OLD = {"spec_verify_ct": 3, "spec_accept_histogram": [1, 1, 1]}
CUMULATIVE = [[10], [10, 11, 12, 13], [10, 11, 12, 13, 14], [10, 11, 12, 13, 14, 15, 16]]
INCREMENTAL = [[10], [11, 12, 13], [14], [15, 16]]


@contextmanager
def sglang(events: list[dict[str, Any]], info: str = "/server_info", status: int = 200, done: bool = True) -> Iterator:
    asked: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            pages = {info: json.dumps(INFO), "/metrics": METRICS}
            self._send(200 if self.path in pages else 404, pages.get(self.path, "none"))

        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            if status != 200:
                self._send(status, "out of memory")
                return
            lines = "".join(f"data: {json.dumps(e)}\n\n" for e in events) + ("data: [DONE]\n\n" if done else "")
            self._send(200, lines)

        def _send(self, code: int, body: str) -> None:
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *args: object) -> None:
            """Keep the tests' output quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield SglangServer(f"http://127.0.0.1:{server.server_port}"), asked
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("ids", [CUMULATIVE, INCREMENTAL])
@pytest.mark.parametrize("meta", [NEW, OLD])
def test_rounds_and_figures_from_the_stream(ids, meta):
    events = [event(part) for part in ids[:-1]] + [event(ids[-1], "length", **meta, completion_tokens=7)]
    with sglang(events) as (server, asked):
        answer = server.ask(ASK)
    assert answer.token_ids == (10, 11, 12, 13, 14, 15, 16) and answer.verify_steps == 3
    assert answer.acceptance_length == pytest.approx(7 / 3)
    assert json.loads(answer.about["accepted_histogram"]) == [1, 1, 1]
    assert [r.accepted for r in answer.trace(2, "SGLang").rounds] == [2, 0, 1]
    assert asked[0]["input_ids"] == [7, 8] and asked[0]["sampling_params"]["max_new_tokens"] == 7


@pytest.mark.parametrize("info", ["/server_info", "/get_server_info"])
def test_facts_come_from_the_page_of_either_name(info):
    with sglang([], info) as (server, _):
        facts = server.facts()
        assert server.average_acceptance_length() == 2.5
        assert server.gauges() == {"acceptance length": 2.5, "acceptance rate": 0.3}
    assert (facts.source, facts.model, facts.speculates) == ("SGLang 0.5.9", "demo", True)


@pytest.mark.parametrize(
    ("events", "options", "words"),
    [
        ([event([10])], {"done": False}, "broke off"),
        ([], {"status": 500}, "answered 500 to /generate: out of memory"),
        ([{"error": "aborted"}], {}, "broke off: aborted"),
        ([{"text": "no meta"}], {}, "cannot be read"),
    ],
)
def test_each_failure_is_one_sentence(events, options, words):
    with sglang(events, **options) as (server, _), pytest.raises(LabError, match=words):
        server.ask(ASK)


@pytest.mark.parametrize("request_", [ASK, Ask("Hello")])
def test_nothing_there_is_told(request_):
    with pytest.raises(LabError, match="Nothing answers at http://127.0.0.1:9"):
        SglangServer("http://127.0.0.1:9").ask(request_)


def test_a_chat_goes_to_the_openai_route():
    with replying(Script([chat(chunk([10])), chat(chunk([11], finish="stop")), usage(2)])) as url:
        answer = SglangServer(url).ask(Ask("Hello"))
    assert (answer.text, answer.completion_tokens, answer.finish) == ("xx", 2, "stop")


def test_a_load_runs_on_it_too():
    with sglang([event(CUMULATIVE[-1], "stop", **NEW)]) as (server, _):
        load = run_load(server, [ASK] * 3, concurrency=2)
    assert len(load.answers) == 3 and load.failure is None and load.counters is None

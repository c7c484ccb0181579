"""A real HTTP server that answers as it is told: the shapes are vLLM's, the failures everybody's."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODELS = {"data": [{"id": "demo", "max_model_len": 512}]}
COUNTERS = """\
# TYPE vllm:spec_decode_num_drafts counter
vllm:spec_decode_num_drafts_total{{engine="0",model_name="demo"}} {drafts}
# TYPE vllm:spec_decode_num_draft_tokens counter
vllm:spec_decode_num_draft_tokens_total{{engine="0",model_name="demo"}} {drafted}
# TYPE vllm:spec_decode_num_accepted_tokens counter
vllm:spec_decode_num_accepted_tokens_total{{engine="0",model_name="demo"}} {accepted}
# TYPE vllm:spec_decode_num_accepted_tokens_per_pos counter
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",model_name="demo",position="0"}} {first}
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",model_name="demo",position="1"}} {second}
"""


def counters(drafts: int, drafted: int, first: int, second: int) -> str:
    """A `/metrics` page of a server that drafts two tokens a round."""
    return COUNTERS.format(drafts=drafts, drafted=drafted, accepted=first + second, first=first, second=second)


def chunk(ids: list[int] | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    """One event of a completion's stream."""
    choice = {"index": 0, "text": "x" * len(ids or []), "token_ids": ids, "finish_reason": finish}
    return {"id": "1", "object": "text_completion", "created": 1, "model": "demo", "choices": [choice], **more}


def chat(event: dict[str, Any]) -> dict[str, Any]:
    """A completion's event with what a chat's has beside it."""
    choices = [choice | {"delta": {"content": choice["text"]}} for choice in event["choices"]]
    return event | {"choices": choices}


def usage(completion: int, **metrics: Any) -> dict[str, Any]:
    """The last event: usage, and the request's own metrics where the server keeps them."""
    last = chunk() | {"choices": []}
    last["usage"] = {"prompt_tokens": 2, "completion_tokens": completion, "total_tokens": 2 + completion}
    return last | ({"metrics": {"speculative_decoding": metrics}} if metrics else {})


@dataclass
class Script:
    """What to answer: events of a stream (None = cut the connection there), or a status, or after a delay."""

    events: list[dict[str, Any] | None] = field(default_factory=list)
    status: int = 200
    body: str = ""
    delay_s: float = 0.0
    metrics: list[str] = field(default_factory=list)
    models: Any = field(default_factory=lambda: MODELS)
    asked: list[dict[str, Any]] = field(default_factory=list)


@contextmanager
def replying(script: Script) -> Iterator[str]:
    """Serve ``script``; yields the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/v1/models":
                self._send(200, json.dumps(script.models))
            elif self.path == "/version":
                self._send(200, '{"version": "0.32.0"}')
            elif self.path == "/metrics" and script.metrics:
                self._send(200, script.metrics.pop(0) if len(script.metrics) > 1 else script.metrics[0])
            else:
                self._send(404, "no such page")

        def do_POST(self) -> None:
            script.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            time.sleep(script.delay_s)
            if script.status != 200 or not script.events:
                self._send(script.status, script.body)
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            for event in script.events:
                if event is None:
                    return
                self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
            self.wfile.write(b"data: [DONE]\n\n")

        def _send(self, status: int, body: str) -> None:
            data = body.encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: object) -> None:
            """Keep the tests' output quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()

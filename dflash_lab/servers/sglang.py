"""The SGLang client, built to its public interface: `/generate`, `/server_info`, `meta_info`'s speculative fields.

SGLang does not run on a CPU, so nothing here has met a real server; the tests use answers of the documented shape.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import requests

from dflash_lab.errors import LabError
from dflash_lab.servers.answer import Answer, Ask
from dflash_lab.servers.http import Http
from dflash_lab.servers.metrics import Counters, read_gauges
from dflash_lab.servers.vllm import ServerFacts, VllmServer

GAUGES = {"acceptance length": "sglang:spec_accept_length", "acceptance rate": "sglang:spec_accept_rate"}


class SglangServer:
    """An SGLang at `url`. Nothing is asked before the first call; every failure is a LabError.

    A chat goes to the OpenAI route, which reports no speculative fields; token ids and raw text go to `/generate`,
    which does.
    """

    engine = "SGLang"

    def __init__(self, url: str, api_key: str | None = None) -> None:
        self.http = Http(url, api_key)
        self.url = self.http.url
        self._chats = VllmServer(url, api_key)  # the same OpenAI route

    def facts(self) -> ServerFacts:
        """Engine, version and model. Raises LabError when there is no such server."""
        info = self._info()
        algorithm = info.get("speculative_algorithm")
        return ServerFacts(
            self.engine,
            str(info.get("version", "unknown")),
            str(info.get("served_model_name") or info.get("model_path") or "unknown"),
            info.get("context_length"),
            bool(algorithm) if "speculative_algorithm" in info else None,
        )

    def average_acceptance_length(self) -> float | None:
        """The server's own running mean over everybody's requests (bonus included); None where it has none."""
        states = self._info().get("internal_states")
        value = states[0].get("avg_spec_accept_length") if isinstance(states, list) and states else None
        return float(value) if value is not None else None

    def gauges(self) -> dict[str, float]:
        """Its Prometheus gauges by plain name; empty when it shows no metrics."""
        try:
            found = read_gauges(self.http.text("/metrics"), GAUGES.values())
        except LabError:
            return {}
        return {name: found[gauge] for name, gauge in GAUGES.items() if gauge in found}

    def counters(self) -> Counters | None:
        """None: SGLang's metrics are gauges, and a difference of means is no count."""
        return None

    def ask(self, ask: Ask) -> Answer:
        """Send one request and stream its answer.

        Raises LabError when the server refuses, breaks off, is too slow, or answers with something else.
        """
        if ask.is_chat:
            return self._chats.ask(ask)
        started = time.monotonic()
        body: dict[str, Any] = {"sampling_params": _sampling(ask), "stream": True}
        body |= {"text": ask.prompt} if isinstance(ask.prompt, str) else {"input_ids": list(ask.prompt)}
        try:
            with self.http.stream("/generate", body, ask.timeout_s) as response:
                return self._read(ask, _events(response), started)
        except requests.Timeout as error:
            raise LabError(
                f"The server did not answer within {ask.timeout_s:g} s", "Ask for fewer tokens, or wait longer"
            ) from error
        except (requests.RequestException, ValueError, LookupError, TypeError, AttributeError) as error:
            raise LabError(
                f"The server's answer broke off or cannot be read ({type(error).__name__}: {error})",
                "See whether the server still runs and is SGLang; read its log",
            ) from error

    def _info(self) -> dict[str, Any]:
        try:
            info = self.http.json("/server_info")
        except LabError:
            info = self.http.json("/get_server_info")  # its name in older versions
        if not isinstance(info, dict):
            raise LabError(f"{self.url}/server_info is not SGLang's", "Check the address")
        return info

    def _read(self, ask: Ask, events: Iterator[dict[str, Any]], started: float) -> Answer:
        first, text, ids, meta = 0.0, "", tuple[int, ...](), dict[str, Any]()
        chunks: list[tuple[int, ...]] = []
        for event in events:
            now = time.monotonic() - started
            if now > ask.timeout_s:
                raise LabError(
                    f"The answer was not complete after {ask.timeout_s:g} s", "Ask for fewer tokens, or wait longer"
                )
            if "error" in event:
                raise LabError(f"The server broke off: {event['error']}", "Read the server's log")
            first = first or now
            text, meta = event.get("text", text), event["meta_info"]  # both repeat what came before
            new = tuple(event.get("output_ids") or ())
            # Cumulative, or only the new ones, by version and flag.
            new = new[len(ids) :] if new[: len(ids)] == ids else new
            if new:
                chunks.append(new)
                ids += new
        reason = (meta.get("finish_reason") or {}).get("type")
        if not reason:
            raise LabError("The server's answer broke off", "See whether the server still runs; read its log")
        completion = int(meta.get("completion_tokens", len(ids)))
        verified = meta.get("spec_verify_ct")
        length = meta.get("spec_accept_length")
        if length is None and verified:
            length = completion / verified
        return Answer(
            ask=ask,
            text=text,
            prompt_ids=ask.prompt if isinstance(ask.prompt, tuple) else (),
            token_ids=ids,
            chunks=tuple(chunks),
            finish=reason,
            acceptance_length=length,
            draft_acceptance_rate=meta.get("spec_accept_rate"),
            verify_steps=verified,
            completion_tokens=completion,
            started_s=started,
            time_to_first_token_s=first,
            total_s=time.monotonic() - started,
            about={"temperature": f"{ask.temperature:g}", **_histogram(meta)},
        )


def _sampling(ask: Ask) -> dict[str, Any]:
    found: dict[str, Any] = {
        "max_new_tokens": ask.max_tokens,
        "temperature": ask.temperature,
        "top_p": ask.top_p,
        "ignore_eos": ask.ignore_eos,
    }
    if ask.top_k:
        found["top_k"] = ask.top_k
    if ask.seed is not None:
        found["sampling_seed"] = ask.seed
    return found


def _histogram(meta: dict[str, Any]) -> dict[str, str]:
    """Rounds by accepted drafts, as text; the field's new name first."""
    counts = meta.get("spec_correct_drafts_histogram") or meta.get("spec_accept_histogram")
    return {"accepted_histogram": json.dumps(counts)} if counts else {}


def _events(response: requests.Response) -> Iterator[dict[str, Any]]:
    for raw in response.iter_lines():
        line = raw.decode("utf-8", errors="replace")
        if line.startswith("data:"):
            data = line.removeprefix("data:").strip()
            if data == "[DONE]":
                return
            event = json.loads(data)
            if not isinstance(event, dict):
                raise ValueError("an event is not a JSON object")
            yield event

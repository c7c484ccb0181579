"""The vLLM client: what runs there, one prompt at a time, and the counters around a run."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import openai

from dflash_lab.errors import LabError
from dflash_lab.servers.answer import Answer, Ask, Steps
from dflash_lab.servers.http import Http, refusal
from dflash_lab.servers.metrics import Counters, read_counters


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a server says about itself; `speculates` None when it does not tell."""

    engine: str
    version: str
    model: str
    max_model_len: int | None = None
    speculates: bool | None = None

    @property
    def source(self) -> str:
        """The name its traces and summaries carry."""
        return f"{self.engine} {self.version}".strip()


class VllmServer:
    """A vLLM at `url`. Nothing is asked before the first call; every failure is a LabError."""

    engine = "vLLM"

    def __init__(self, url: str, api_key: str | None = None, model: str | None = None) -> None:
        self.http = Http(url, api_key)
        self.url = self.http.url
        self._model = model
        # Retries would hide a server that fails, and measure it twice.
        self._client = openai.OpenAI(
            base_url=f"{self.url}/v1",
            api_key=api_key or "none",
            max_retries=0,
            http_client=openai.DefaultHttpxClient(follow_redirects=False),
        )

    @property
    def model(self) -> str:
        """The served model's name, asked once."""
        if self._model is None:
            self._model = self.facts().model
        return self._model

    def facts(self) -> ServerFacts:
        """Engine, version and model. Raises LabError when there is no such server."""
        listed = self.http.json("/v1/models")
        try:
            models = listed["data"]
            entry = next((m for m in models if m["id"] == self._model), models[0])
            model = str(entry["id"])
        except (LookupError, TypeError) as error:
            raise LabError(
                f"{self.url}/v1/models does not list a model", "Check that the address is a model server's"
            ) from error
        if self._model is not None and model != self._model:
            raise LabError(f"The server does not serve {self._model!r}", f"It serves {model!r}")
        counters = self.counters()
        return ServerFacts(
            self.engine,
            self._version(),
            model,
            entry.get("max_model_len"),
            bool(counters.engines) if counters else None,
        )

    def counters(self) -> Counters | None:
        """The speculative counters now; None when the server shows no metrics."""
        try:
            return read_counters(self.http.text("/metrics"))
        except LabError:
            return None

    def ask(self, ask: Ask) -> Answer:
        """Send one request and stream its answer.

        Raises LabError when the server refuses, breaks off, is too slow, or answers with something else.
        """
        started = time.monotonic()
        try:
            return self._read(ask, self._send(ask), started)
        except openai.APITimeoutError as error:
            raise LabError(
                f"The server did not answer within {ask.timeout_s:g} s", "Ask for fewer tokens, or wait longer"
            ) from error
        except openai.APIStatusError as error:
            raise refusal(error.status_code, error.request.url.path, _message(error)) from error
        except openai.APIConnectionError as error:
            raise LabError(
                f"Nothing answers at {self.url}", "See whether the server still runs; read its log"
            ) from error
        except openai.APIError as error:
            raise LabError(f"The server broke off: {error.message}", "Read the server's log") from error
        except LabError:
            raise
        except Exception as error:  # httpx and json raise their own when a stream is cut or is not one
            raise LabError(
                f"The server's answer broke off or cannot be read ({type(error).__name__}: {error})",
                "See whether the server still runs; read its log",
            ) from error

    def _version(self) -> str:
        try:
            return str(self.http.json("/version")["version"])
        except (LabError, LookupError, TypeError):
            return "unknown"

    def _send(self, ask: Ask) -> Any:
        common: dict[str, Any] = {
            "model": self.model,
            "max_tokens": ask.max_tokens,
            "temperature": ask.temperature,
            "top_p": ask.top_p,
            "seed": ask.seed,
            "stream": True,
            "stream_options": {"include_usage": True},
            "timeout": ask.timeout_s,
        }
        extra: dict[str, Any] = {"return_token_ids": True, "ignore_eos": ask.ignore_eos}
        if ask.top_k:
            extra["top_k"] = ask.top_k
        if ask.is_chat:
            if ask.thinking is not None:
                extra["chat_template_kwargs"] = {"enable_thinking": ask.thinking}
            messages = [{"role": "user", "content": ask.prompt}]
            return self._client.chat.completions.create(messages=messages, extra_body=extra, **common)  # type: ignore[arg-type]
        prompt = ask.prompt if isinstance(ask.prompt, str) else list(ask.prompt)
        return self._client.completions.create(prompt=prompt, extra_body=extra, **common)

    def _read(self, ask: Ask, stream: Any, started: float) -> Answer:
        text: list[str] = []
        chunks: list[tuple[int, ...]] = []
        prompt_ids: tuple[int, ...] = ()
        finish, first, completion = "", 0.0, 0
        metrics: dict[str, Any] = {}
        with stream:
            for event in stream:
                now = time.monotonic() - started
                if now > ask.timeout_s:
                    raise LabError(
                        f"The answer was not complete after {ask.timeout_s:g} s", "Ask for fewer tokens, or wait longer"
                    )
                extra = event.model_extra or {}
                prompt_ids = tuple(extra.get("prompt_token_ids") or prompt_ids)
                metrics = (extra.get("metrics") or {}).get("speculative_decoding") or metrics
                if event.usage:
                    completion = event.usage.completion_tokens
                for choice in event.choices:
                    more = choice.model_extra or {}
                    prompt_ids = tuple(more.get("prompt_token_ids") or prompt_ids)
                    piece = choice.delta.content if ask.is_chat else choice.text
                    ids = tuple(more.get("token_ids") or ())
                    if (piece or ids) and not first:
                        first = now
                    text.append(piece or "")
                    if ids:
                        chunks.append(ids)
                    finish = choice.finish_reason or finish
        if not finish:
            raise LabError("The server's answer broke off", "See whether the server still runs; read its log")
        return Answer(
            ask=ask,
            text="".join(text),
            prompt_ids=prompt_ids,
            token_ids=tuple(token for chunk in chunks for token in chunk),
            chunks=tuple(chunks),
            finish=finish,
            steps=_steps(metrics),
            acceptance_length=metrics.get("mean_acceptance_length"),
            draft_acceptance_rate=metrics.get("draft_acceptance_rate"),
            verify_steps=metrics.get("num_spec_steps"),
            completion_tokens=completion,
            started_s=started,
            time_to_first_token_s=first,
            total_s=time.monotonic() - started,
            about={"temperature": f"{ask.temperature:g}", "model": self.model},
        )


def _steps(metrics: dict[str, Any]) -> Steps | None:
    """The per-step arrays, None below the detailed level."""
    accepted, drafted = metrics.get("per_step_accepted"), metrics.get("per_step_drafted")
    if not accepted or not drafted or len(accepted) != len(drafted):
        return None
    return Steps(tuple(accepted), tuple(drafted))


def _message(error: openai.APIStatusError) -> str:
    body = error.body
    return str(body.get("message", body)) if isinstance(body, dict) else str(body or error.message)

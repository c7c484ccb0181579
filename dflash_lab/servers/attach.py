"""Attach to a server by its address: which engine answers there, which version and model, and what is known of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dflash_lab.config.checks.finding import Finding
from dflash_lab.errors import LabError
from dflash_lab.servers.http import Http
from dflash_lab.servers.known import known_problems
from dflash_lab.servers.sglang import SglangServer
from dflash_lab.servers.vllm import ServerFacts, VllmServer

Client = VllmServer | SglangServer


@dataclass(frozen=True, slots=True)
class Attached:
    """A server that answered: its address, what it says about itself, and what is known about such a server."""

    url: str
    facts: ServerFacts
    findings: tuple[Finding, ...]

    def sentence(self) -> str:
        """Engine, version, model and whether it drafts, in one line."""
        drafts = {True: "drafts", False: "does not draft", None: "does not say whether it drafts"}
        length = f", context {self.facts.max_model_len}" if self.facts.max_model_len else ""
        return f"{self.facts.source} serves {self.facts.model}{length}; it {drafts[self.facts.speculates]}."


def connect(url: str, api_key: str | None = None) -> Client:
    """A client for whichever engine answers at `url`: vLLM and other OpenAI servers, or SGLang.

    Raises LabError when nothing answers there, or something that is no model server.
    """
    vllm, sglang = VllmServer(url, api_key), SglangServer(url, api_key)
    try:
        listed = Http(url, api_key).json("/v1/models")
    except LabError as error:
        try:
            sglang.facts()  # may run without the OpenAI routes
        except LabError:
            raise error from None
        return sglang
    if isinstance(listed, Mapping) and any(_owner(m) == "sglang" for m in listed.get("data") or ()):
        return sglang
    return vllm


def _owner(entry: Any) -> str:
    return str(entry.get("owned_by", "")) if isinstance(entry, Mapping) else ""


def look(client: Client, config: Mapping[str, Any] | None = None, cpu: bool = False) -> Attached:
    """Ask the server who it is; `config` is the drafter's raw one, `cpu` whether the server runs on a CPU.

    Raises LabError when it does not answer as a model server does.
    """
    facts = client.facts()
    known = known_problems(facts.version, config, cpu or "cpu" in facts.version) if facts.engine == "vLLM" else []
    return Attached(client.url, facts, tuple(known))

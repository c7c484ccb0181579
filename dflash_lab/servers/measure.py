"""Observed against expected: a prompt set sent to a server, and replay of the same prompts under several readings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dflash_lab.config.schema import ConfigError, DrafterConfig
from dflash_lab.errors import LabError
from dflash_lab.prompts import Prompt
from dflash_lab.servers.answer import Answer, Ask
from dflash_lab.servers.attach import Client
from dflash_lab.servers.known import WINDOWS, version_of
from dflash_lab.servers.load import Load, run_load
from dflash_lab.servers.vllm import ServerFacts
from dflash_lab.trace import Summary, Trace

if TYPE_CHECKING:
    from dflash_lab.pairs import Pair
    from dflash_lab.recording import Recording
    from dflash_lab.servers.bend import Reading
    from dflash_lab.servers.compare import Comparison, Evidence
    from dflash_lab.servers.explain import Ranking

REFERENCE = "the reference"

Watch = Callable[[float, str, "Measured | None"], bool]
"""(share done, what is done, what is known so far) -> go on?"""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a server did with a prompt set, and what was expected of it.

    `k` is the server's number of drafted tokens (0: it drafts nothing, or does not tell). `comparisons` holds the
    server's rounds against replay by the name of a reading, the reference first; where a server gives no rounds,
    `expected` holds replay's own rates instead. `refused` are readings that cannot run, `note` says why nothing was
    compared. `same_texts` counts texts that the lab's own target writes too, None where that is not known.
    """

    url: str
    facts: ServerFacts
    prompts: tuple[Prompt, ...]
    load: Load
    k: int = 0
    observed: Summary | None = None
    comparisons: Mapping[str, Comparison] = field(default_factory=dict)
    expected: Mapping[str, Summary] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    same_texts: int | None = None
    note: str = ""

    @property
    def traces(self) -> list[Trace]:
        """The rounds of every answer whose rounds can be told."""
        return self.load.traces(self.k, self.facts.source) if self.k else []

    def answered(self) -> list[tuple[Prompt, Answer]]:
        """Every finished request with its prompt; failed ones are missing."""
        by_id = {prompt.id: prompt for prompt in self.prompts}
        return [(by_id[answer.ask.label], answer) for answer in self.load.answers]

    def by_request(self) -> dict[str, list[float | None]]:
        """Unconditional acceptance rate by position, a row a request, for a heatmap."""
        rows = {}
        for n, (prompt, answer) in enumerate(self.answered(), 1):
            trace = answer.trace(self.k, self.facts.source) if self.k else None
            if trace:
                rates = [rate.value for rate in trace.summary().per_position]
                rows[f"{n} {prompt.id}"] = rates + [None] * (self.k - len(rates))
        return rows


def asks_for(prompts: Sequence[Prompt], tokens: int, pair: Pair | None, timeout_s: float = 300.0) -> list[Ask]:
    """Greedy requests: the token ids the lab's own runs see where there is a pair, else a chat turn."""
    return [
        Ask(tuple(pair.encode(p.prompt)) if pair else p.prompt, tokens, timeout_s=timeout_s, label=p.id)
        for p in prompts
    ]


def measure(
    client: Client,
    prompts: Sequence[Prompt],
    tokens: int = 64,
    concurrency: int = 1,
    pair: Pair | None = None,
    config: DrafterConfig | None = None,
    k: int = 0,
    timeout_s: float = 300.0,
    watch: Watch | None = None,
) -> Measured:
    """Send `prompts`, then replay the finished ones on `pair` under `config` (its own when None).

    `k` is believed only where the server does not tell its own. Whatever stops the server, what finished is kept.

    Raises LabError when the server cannot be reached at all, or not one request finished.
    """
    facts = client.facts()
    share = 0.6 if pair else 1.0

    def sending(answers: Sequence[Answer], asked: int) -> bool:
        so_far = Measured(client.url, facts, tuple(prompts), _so_far(answers, asked, concurrency))
        return watch is None or watch(share * len(answers) / asked, f"{len(answers)} of {asked} requests", so_far)

    load = run_load(client, asks_for(prompts, tokens, pair, timeout_s), concurrency, sending)
    if not load.answers:
        raise load.failure or LabError("No request was sent", "Pick at least one prompt")
    drafted = drafted_per_round(load) or (k if facts.speculates is not False else 0)
    found = Measured(client.url, facts, tuple(prompts), load, drafted)
    found = replace(found, observed=load.summary(drafted, facts.source) if drafted else None)
    if not drafted:
        return replace(found, note="The server drafts nothing, or does not say how much: there is nothing to expect.")
    if pair is None or load.stopped:
        return replace(found, note="Replay was left out." if pair is None else "Stopped before replay.")
    return _judge(found, pair, config or pair.config, tokens, share, watch)


def _so_far(answers: Sequence[Answer], asked: int, concurrency: int) -> Load:
    return Load(tuple(answers), asked, concurrency, 0.0)


def drafted_per_round(load: Load) -> int:
    """K as the server's own figures show it: the longest draft of a step, else the counters' positions; else 0."""
    steps = [max(a.steps.drafted) for a in load.answers if a.steps]
    counted = len(load.counters.summary().accepted_at) if load.counters else 0
    return max(steps, default=counted)


def readings(config: DrafterConfig, facts: ServerFacts, pair: Pair) -> dict[str, Reading | ConfigError]:
    """What may run behind that server: the reference's reading of `config`, then the engine's ways with it."""
    from dflash_lab.servers.bend import Reading
    from dflash_lab.servers.variants import engine_reading

    found: dict[str, Reading | ConfigError] = {REFERENCE: Reading(config)}
    ways: list[tuple[str, str, bool]]
    if facts.engine == "vLLM":
        old = () < version_of(facts.version) < WINDOWS
        ways = [("vLLM", "vLLM", False), ("vLLM on a CPU", "vLLM", True)]
        ways += [("old vLLM", "vLLM, old", False)] if old else []
    else:
        ways = [("SGLang", "SGLang", False)]
    for name, reader, cpu in ways:
        try:
            found[name] = engine_reading(config, reader, pair.target, cpu)
        except ConfigError as error:
            found[name] = error
    return found


def recordings_of(found: Measured, pair: Pair, tokens: int, progress: Callable[[float, str], bool]) -> list[Recording]:
    """Recordings of the prompts that finished, in the answers' order; empty when stopped."""
    from dflash_lab.whatif import record_prompts

    return record_prompts(pair, [prompt.prompt for prompt, _ in found.answered()], tokens, progress) or []


def evidence_of(found: Measured, recordings: Sequence[Recording]) -> Evidence:
    """The server's rounds over the recordings under them.

    Raises LabError when it gave none, or none that compare.
    """
    from dflash_lab.servers.compare import Evidence

    traces = [answer.trace(found.k, found.facts.source) for _, answer in found.answered()]
    both = [(trace, r) for trace, r in zip(traces, recordings, strict=True) if trace]
    return Evidence([trace for trace, _ in both], [r for _, r in both])


def _judge(
    found: Measured, pair: Pair, config: DrafterConfig, tokens: int, share: float, watch: Watch | None
) -> Measured:
    from dflash_lab.replay import Replay
    from dflash_lab.servers.bend import VariantStack
    from dflash_lab.trace import summarise

    def on(part: float, text: str) -> bool:
        return watch is None or watch(share + part * (1 - share), text, found)

    recordings = recordings_of(found, pair, tokens, lambda part, text: on(0.8 * part, text))
    if not recordings:
        return replace(found, note="Stopped before replay.")
    evidence, note = None, ""
    try:
        evidence = evidence_of(found, recordings)
    except LabError as error:
        note = f"Not compared round by round: {error}"
    comparisons: dict[str, Comparison] = {}
    expected: dict[str, Summary] = {}
    refused: dict[str, str] = {}
    for name, reading in readings(config, found.facts, pair).items():
        if not on(0.9, f"Replaying as {name} runs it"):
            break
        try:
            if isinstance(reading, ConfigError):
                raise reading
            stack = VariantStack(pair.weights, reading, pair.target)
            if evidence:
                comparisons[name] = evidence.compare(stack)
            else:
                expected[name] = summarise(Replay(recordings).run(stack, found.k))
        except ConfigError as error:
            refused[name] = str(error)
    pairs = list(zip(found.load.answers, recordings, strict=True))
    known = [(a, r) for a, r in pairs if a.token_ids]
    same = sum(a.token_ids == r.tokens[: len(a.token_ids)] for a, r in known) if known else None
    return replace(
        found, comparisons=comparisons, expected=expected, refused=refused, same_texts=same, note=note
    )  # fmt: skip


def explain_measured(
    evidence: Evidence, found: Measured, pair: Pair, config: DrafterConfig, watch: Callable[[float, str], bool]
) -> Ranking:
    """Which implementation variant of the engine's own reading (the reference's where it refuses) does this."""
    from dflash_lab.servers.bend import Reading
    from dflash_lab.servers.explain import explain

    own = readings(config, found.facts, pair).get(found.facts.engine)
    base = own if isinstance(own, Reading) else Reading(config)
    return explain(evidence, pair.weights, base, pair.target, watch)

"""Probes: everything that is not the config, each with a measurement or a fact and a verdict.

They look at the repaired config, so that a wrong field does not hide what else is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch

from dflash_lab.config import files
from dflash_lab.config.schema import DrafterConfig
from dflash_lab.decode.sampling import Sampling
from dflash_lab.diagnose.score import Scorer
from dflash_lab.diagnose.signature import late_share, repeated
from dflash_lab.errors import LabError
from dflash_lab.expectation import expected
from dflash_lab.pairs import Pair
from dflash_lab.recording import Recording, record
from dflash_lab.replay import Replay
from dflash_lab.servers.known import known_problems
from dflash_lab.trace import Trace, summarise

Verdict = Literal["ruled out", "suspect", "guilty", "not tested"]

TOKENS = 48
PROMPTS = ("How do I keep tomatoes fresh?", "Write a Python function that adds two numbers.")
ANCHORS = 96


@dataclass(frozen=True, slots=True)
class Probe:
    """One thing other than the config: what was measured, the verdict, and what to do about it."""

    name: str
    verdict: Verdict
    evidence: str
    fix: str = ""


@dataclass(frozen=True)
class Case:
    """What the probes look at: the repaired config's rounds on `recordings`, and how the user runs the pair.

    ``file``: the config.json that the run was meant to use; ``raw`` what is being diagnosed. ``engine``: a vLLM
    version, None for the lab's own loop.
    """

    pair: Pair
    config: DrafterConfig
    recordings: Sequence[Recording]
    traces: Sequence[Trace]
    k: int
    raw: Mapping[str, Any]
    sampling: Sampling = field(default_factory=Sampling)
    engine: str | None = None
    file: files.ConfigFile | None = None

    @property
    def length(self) -> float:
        """Acceptance length of the repaired config."""
        return summarise(self.traces).acceptance_length or 1.0


def template(case: Case) -> Probe:
    """The pair's own template against none, and against the other thinking switch where there is one."""
    pair = case.pair
    chat = pair.tokenizer.chat_template
    variants: dict[str, Callable[[str], list[int]]] = {"no template": lambda p: pair.tokenizer(p)["input_ids"]}
    if chat and "enable_thinking" in str(chat):
        variants |= {"thinking on": lambda p: pair.encode(p, True), "thinking off": lambda p: pair.encode(p, False)}
    lengths = {"as it is": _length(case, pair.encode)}
    lengths |= {name: _length(case, encode) for name, encode in variants.items()}
    shown = ", ".join(f"{name} {length:.2f}" for name, length in lengths.items())
    best = max(lengths, key=lambda name: lengths[name])
    better = lengths[best] / lengths["as it is"]
    evidence = f"Acceptance length on {len(PROMPTS)} short prompts: {shown}"
    if better > 1.4:
        return Probe("template", "guilty", evidence, f"The drafter expects another prompt form: {best}")
    if better > 1.2:
        return Probe("template", "suspect", evidence, f"Compare more prompts with {best}")
    return Probe("template", "ruled out", evidence)


def temperature(case: Case) -> Probe:
    """Expected acceptance under the user's sampling against greedy, under both q rules."""
    if case.sampling.temperature == 0:
        return Probe("temperature and q rule", "ruled out", "The run is greedy: there is no q")
    pair = case.pair
    texts = [record(pair.target, pair.encode(p), TOKENS, pair.stop_ids, sampling=case.sampling) for p in PROMPTS]
    bench, stack = Replay([t for t in texts if t]), pair.stack(case.config)
    rules = {rule: replace(case.sampling, q_rule=rule) for rule in ("drafter", "one-hot")}
    found = {rule: expected(bench, stack, pair.target, s, case.k).acceptance_length for rule, s in rules.items()}
    ours = found[case.sampling.q_rule]
    greedy = _length(case, pair.encode)
    evidence = f"Expected acceptance length at temperature {case.sampling.temperature:g}: " + ", ".join(
        f"{length:.2f} with q {rule}" for rule, length in found.items()
    )
    evidence += f"; greedy {greedy:.2f}"
    if ours < 0.8 * greedy or ours < 0.8 * max(found.values()):
        return Probe("temperature and q rule", "guilty", evidence, "Lower the temperature, or take the better q rule")
    return Probe("temperature and q rule", "ruled out" if ours > 0.9 * greedy else "suspect", evidence)


@torch.inference_mode()
def precision(case: Case) -> Probe:
    """Quantised files by what they say of themselves; rounding by scoring the drafter with rounded weights."""
    pair = case.pair
    name = "dtype and quantisation"
    said = [who for who, config in (("drafter", case.raw), ("target", pair.model.config.to_dict()))
            if config.get("quantization_config")]  # fmt: skip
    scorer = Scorer(pair, case.recordings, ANCHORS, case.k)
    ours = scorer.score(case.config)
    rounded = replace(pair, tensors={key: _four_bits(t) for key, t in pair.tensors.items()})
    rounded.target = pair.target
    four = Scorer(rounded, case.recordings, ANCHORS, case.k).score(case.config)
    evidence = (
        f"Target {_dtype(pair.dtype)}, drafter {_dtype(pair.weights.fc.dtype)}; with the drafter's weights rounded to "
        f"4 bits {four.length:.2f} instead of {ours.length:.2f} tokens an anchor"
    )
    if "drafter" in said:
        return Probe(name, "guilty", f"The drafter's file is quantised. {evidence}", "Serve the drafter unquantised")
    if "target" in said:
        return Probe(name, "suspect", f"The target is quantised. {evidence}", "Compare with the unquantised target")
    return Probe(name, "ruled out", f"Neither file is quantised. {evidence}")


def other_target(case: Case) -> Probe:
    """Does the drafter know more of this target's text than how often each token occurs?"""
    name = "drafter of another target"
    sizes = []
    if case.config.vocab_size != case.pair.target.vocab_size:
        sizes.append(f"vocabulary {case.config.vocab_size}, the target's {case.pair.target.vocab_size}")
    layers = case.config.num_target_layers
    if layers and layers != case.pair.target.num_layers:
        sizes.append(f"made for {layers} layers, the target has {case.pair.target.num_layers}")
    scorer = Scorer(case.pair, case.recordings, ANCHORS, case.k)
    ours, unigram = float(scorer.score(case.config).fit.mean()), scorer.unigram()
    gap = (ours - unigram) / float(scorer.weights.sum())
    evidence = f"The drafter predicts this target's text {gap:+.2f} nats a token better than token frequencies do"
    if sizes:
        evidence += f"; {', '.join(sizes)}"
    if gap < 0.2:
        return Probe(name, "guilty", evidence, "Find the drafter that was trained for exactly this target")
    return Probe(name, "suspect" if gap < 0.5 or sizes else "ruled out", evidence)


def too_large_k(case: Case) -> Probe:
    """K against the trained block, and what the last position still brings."""
    most, rates = case.config.max_drafted, summarise(case.traces).per_position
    last = rates[-1].value or 0.0 if rates else 0.0
    evidence = f"K = {case.k}, trained for {most} at most; the last position is accepted in {last:.1%} of rounds"
    if case.k > most:
        return Probe("K too large", "guilty", evidence, f"Draft at most {most}")
    if last < 0.02 and case.k > 1:
        useful = max(1, sum((rate.value or 0.0) >= 0.05 for rate in rates))
        return Probe("K too large", "suspect", evidence, f"Sweep K: about {useful} positions bring something")
    return Probe("K too large", "ruled out", evidence)


def long_context(case: Case) -> Probe:
    """Acceptance in the longer half of the contexts against the shorter."""
    share, name = late_share(case.traces), "context longer than trained"
    longest = max(r.anchor_position for t in case.traces for r in t.rounds)
    if share is None:
        return Probe(name, "not tested", "Too few rounds to compare short and long contexts")
    evidence = f"The longer half of the contexts (up to {longest} tokens) reaches {share:.0%} of the shorter half"
    if share < 0.6:
        return Probe(name, "guilty", evidence, "Keep contexts within the trained length, or train on longer ones")
    return Probe(name, "suspect" if share < 0.8 else "ruled out", evidence)


def repetition(case: Case) -> Probe:
    """Text that repeats itself makes any drafter look good."""
    share = repeated(case.traces) or 0.0
    evidence = f"{share:.0%} of the tokens repeat an earlier run of 8"
    if share > 0.5:
        return Probe("repetition", "guilty", evidence, "Read the text; choose other prompts")
    return Probe("repetition", "suspect" if share > 0.3 else "ruled out", evidence)


def stale_file(case: Case) -> Probe:
    """What is on disk now against what was loaded."""
    name = "file never reached the process"
    if case.file is None:
        return Probe(name, "not tested", "No file belongs to this config")
    try:
        now = files.read(case.file.path)
    except LabError as error:
        return Probe(name, "guilty", str(error), "Put the file back")
    if now.raw != dict(case.raw):
        evidence = f"{now.path} holds sha256 {now.sha256[:12]} now, and not what is diagnosed here"
        return Probe(name, "guilty", evidence, "Save it verified, then restart the process that uses it")
    return Probe(name, "ruled out", f"Read back from disk now: sha256 {now.sha256[:12]}, equal field by field")


def engine(case: Case) -> Probe:
    """Known faults of the engine's version for this config."""
    if case.engine is None:
        return Probe("engine", "not tested", "The lab's own loop was run; give the server's version to check it",
                     "On the Servers page, compare the server's rounds with replay")  # fmt: skip
    found = known_problems(case.engine, dict(case.raw), cpu=case.pair.device.type == "cpu")
    if not found:
        return Probe("engine", "ruled out", f"Nothing is known against vLLM {case.engine} with this config")
    worst = found[0]
    verdict: Verdict = "guilty" if worst.severity == "error" else "suspect"
    return Probe("engine", verdict, "; ".join(f"{f.message} ({f.source})" for f in found), worst.why)


def prefix_cache(case: Case) -> Probe:
    """A replay computes every context row anew: the lab cannot see a server's cache."""
    if case.engine is None:
        return Probe("prefix cache", "ruled out", "The lab's loop has none: every context row comes from this prompt")
    return Probe("prefix cache", "not tested", "A restored prefix may lack the drafter's context (vllm#47926)",
                 "Run the server once with prefix caching off and compare")  # fmt: skip


PROBES: tuple[Callable[[Case], Probe], ...] = (
    stale_file,
    template,
    temperature,
    precision,
    other_target,
    too_large_k,
    long_context,
    repetition,
    engine,
    prefix_cache,
)
"""In the order they are run and shown."""


def _length(case: Case, encode: Callable[[str], list[int]]) -> float:
    pair = case.pair
    texts = [record(pair.target, encode(p), TOKENS, pair.stop_ids) for p in PROMPTS]
    traces = Replay([t for t in texts if t]).lockstep(pair.stack(case.config), case.k)
    return summarise(traces).acceptance_length or 1.0


def _four_bits(tensor: torch.Tensor) -> torch.Tensor:
    """Symmetric 4-bit rounding, one scale per output row; vectors stay as they are."""
    if tensor.dim() < 2:
        return tensor
    scale = tensor.abs().amax(dim=1, keepdim=True).clamp_min(1e-12) / 7
    return (tensor / scale).round().clamp(-8, 7) * scale


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")

"""Diagnosis on injected faults: is the guilty field named, is the config repaired, with no good config given?

    python -m bench.faults [--quick] [--seed 0] [--pair NAME] [--log FILE]

Every fault is an edit of a healthy config, drawn from a seed: each editable field alone, the public failures a config
can carry, and pairs and triples of those that count. The search sees the broken config, the weights and the target;
the healthy config only makes the fault and judges the outcome, on held-out conversations. The order is drawn from the
seed too, so that a run that was cut is a fair sample: with ``--log`` it goes on where it stopped, and runs of several
pairs share one file.

| figure | definition |
| --- | --- |
| counts | the fault lowers AL by more than 5% with the paired 95% interval clear of 0, or the config cannot run |
| named | the accused players are exactly the broken ones |
| repaired | AL of the repaired config is less than 2% below the healthy one's (paired, held-out) |
| single, double, triple | share of counting faults that are named and repaired |
| false_alarms | searches that accuse a field of a fault that does not count, or of a healthy config (also apart) |
| false_alarms_innocent | of these, searches that accuse a field nobody touched |
| median_seconds | median wall time of a search on a counting fault; recording, done once per target, is apart |
| median_cpu_seconds | the same in processor time, all cores together: what other load does not change |
| rounds | held-out rounds of the healthy configs; rounds_beyond_300: those whose anchor has 300 tokens before it |
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from dflash_lab.config.errors import ConfigError
from dflash_lab.config.faults import FAULTS
from dflash_lab.config.schema import DrafterConfig
from dflash_lab.diagnose.evidence import conversations, record_conversations
from dflash_lab.diagnose.players import PLAYERS, differing
from dflash_lab.diagnose.search import repair
from dflash_lab.paired import Paired, compare
from dflash_lab.pairs import Pair, get_pair, list_pairs, load
from dflash_lab.prompts import Prompt, load_prompts
from dflash_lab.recording import Recording
from dflash_lab.whatif import WhatIf

K = 5
BUDGET_S = 300.0
PAIRS = ("smollm2-demo", "smollm2-demo-b")
COUNTS, CLOSE = 0.05, 0.02

TALKS = (
    ("chat", "How do I keep a sourdough starter alive?", "What if I go on holiday for two weeks?",
     "Which flour is best for it?", "Write that down as a short checklist."),
    ("chat", "Name three ways to learn a language at home.", "Which one is best for a child?",
     "How long does it take each day?", "What should I do when I lose interest?"),
    ("chat", "What is a good first bicycle for the city?", "How do I look after it in winter?",
     "What tools do I need?", "How do I mend a flat tyre?"),
    ("code", "Write a Python function that reverses a list.", "Now make it work on strings too.",
     "Write three tests for it.", "Explain what the function does line by line."),
    ("code", "Write a Python class for a bank account.", "Add a method that pays interest.",
     "Refuse a withdrawal that is too large.", "Show how to use it."),
    ("maths", "What is 15% of 240? Show the steps.", "And 35% of the same number?",
     "Which is larger, and by how much?", "Explain percentages to a child."),
    ("maths", "A box holds 12 eggs. How many boxes do 150 eggs need?", "How many eggs are left over?",
     "What if a box held 20?", "Write the general rule."),
    ("story", "Write a story about a fox who is afraid of the dark.", "What happens the next morning?",
     "Let the fox meet an owl.", "Write the end of the story."),
    ("story", "Tell me about a village where it never rains.", "Who finds the water?",
     "Describe the day it rains at last.", "What do the people do then?"),
    ("story", "Write a letter from a sailor to his sister.", "Now write her answer.",
     "Write what happens when he comes home.", "Finish with a short poem."),
)  # fmt: skip
"""Held-out conversations: (kind, turn, turn, ...). None of them is among the lab's own prompts."""

Edit = Callable[[DrafterConfig, random.Random, Pair], DrafterConfig | None]


def held_out(talks: int, turns: int) -> list[list[Prompt]]:
    """The first so many held-out conversations, kinds mixed, each cut to so many turns."""
    order = sorted(range(len(TALKS)), key=lambda i: (i * 3) % len(TALKS))[:talks]
    return [[Prompt(id=f"{i}-{n}", kind=TALKS[i][0], prompt=text) for n, text in enumerate(TALKS[i][1 : 1 + turns])]
            for i in order]  # type: ignore[arg-type]  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """A broken config and what was done to it."""

    pair: str
    size: int
    name: str
    players: tuple[str, ...]
    config: DrafterConfig


@dataclass
class Outcome:
    """One search's line in the result; size 0 is a healthy config on another prompt set.

    ``loss`` and ``left``: share of the healthy AL that is missing before and after; None where the config cannot run.
    """

    pair: str
    size: int
    fault: str
    broken: tuple[str, ...]
    loss: float | None
    counts: bool
    accused: tuple[str, ...] = ()
    named: bool = False
    left: float | None = None
    repaired: bool = False
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    tried: int = 0
    end: str = ""
    values: str = ""


def _set(**changes: object) -> Edit:
    return lambda c, rng, pair: c.edited(**changes)


def _public(name: str) -> Edit:
    return lambda c, rng, pair: FAULTS[name](c)


def _random_taps(c: DrafterConfig, rng: random.Random, pair: Pair) -> DrafterConfig:
    return c.edited(target_layer_ids=tuple(sorted(rng.sample(range(pair.target.num_layers), len(c.taps)))))


def _one_tap(c: DrafterConfig, rng: random.Random, pair: Pair) -> DrafterConfig:
    place = rng.randrange(len(c.taps))
    layer = rng.choice([i for i in range(pair.target.num_layers) if i not in c.taps])
    return c.edited(target_layer_ids=(*c.taps[:place], layer, *c.taps[place + 1 :]))


def _swapped_taps(c: DrafterConfig, rng: random.Random, pair: Pair) -> DrafterConfig:
    a, b = rng.sample(range(len(c.taps)), 2)
    taps = list(c.taps)
    taps[a], taps[b] = taps[b], taps[a]
    return c.edited(target_layer_ids=tuple(taps))


def _shifted(step: int) -> Edit:
    return lambda c, rng, pair: c.edited(target_layer_ids=tuple(t + step for t in c.taps))


def _last_taps(c: DrafterConfig, rng: random.Random, pair: Pair) -> DrafterConfig:
    return c.edited(target_layer_ids=tuple(range(pair.target.num_layers - len(c.taps), pair.target.num_layers)))


def _first_taps(c: DrafterConfig, rng: random.Random, pair: Pair) -> DrafterConfig:
    return c.edited(target_layer_ids=tuple(range(len(c.taps))))


def _no_taps(c: DrafterConfig, rng: random.Random, pair: Pair) -> DrafterConfig:
    return c.edited(target_layer_ids=None)


def _mask(choose: Callable[[Pair, random.Random], int]) -> Edit:
    return lambda c, rng, pair: c.edited(mask_token_id=choose(pair, rng))


def _flipped_layer(c: DrafterConfig, rng: random.Random, pair: Pair) -> DrafterConfig:
    i = rng.randrange(c.num_hidden_layers)
    other = "full_attention" if c.layer_types[i] == "sliding_attention" else "sliding_attention"
    window = c.sliding_window or 256
    types = (*c.layer_types[:i], other, *c.layer_types[i + 1 :])
    return c.edited(layer_types=types, sliding_window=window, use_sliding_window=True)


def _window(factor: float) -> Edit:
    return lambda c, rng, pair: c.edited(
        sliding_window=int((c.sliding_window or 256) * factor), use_sliding_window=True
    )


def _theta(factor: float) -> Edit:
    return lambda c, rng, pair: c.edited(rope_theta=c.rope_theta * factor)


def _no_attention(c: DrafterConfig, rng: random.Random, pair: Pair) -> DrafterConfig:
    return c.edited(
        layer_types=("full_attention",) * c.num_hidden_layers, sliding_window=None, use_sliding_window=False
    )


def _yarn(c: DrafterConfig, rng: random.Random, pair: Pair) -> DrafterConfig:
    rope = {"rope_type": "yarn", "rope_theta": c.rope_theta, "factor": 8.0, "original_max_position_embeddings": 1024}
    return c.edited(rope_parameters=rope)


SINGLES: tuple[tuple[str, Edit], ...] = (
    *((name, _public(name)) for name in FAULTS),
    ("mask: end of text (NeMo Automodel#2461)", _mask(lambda pair, rng: min(pair.stop_ids))),
    ("mask: an ordinary token", _mask(lambda pair, rng: rng.randrange(1000, pair.target.vocab_size - 1000))),
    ("mask: the last id", _mask(lambda pair, rng: pair.target.vocab_size - 1)),
    ("mask: outside the vocabulary (llama.cpp#28158)", _mask(lambda pair, rng: pair.target.vocab_size)),
    ("mask: missing (llama.cpp#26761)", _set(mask_token_id=None)),
    ("taps: two higher", _shifted(2)),
    ("taps: the last layers", _last_taps),
    ("taps: the first layers", _first_taps),
    ("taps: random", _random_taps),
    ("taps: random again", _random_taps),
    ("taps: one elsewhere", _one_tap),
    ("taps: two swapped", _swapped_taps),
    ("taps: missing (vllm#50170)", _no_taps),
    ("layers: all full, no window (vllm#40898)", _no_attention),
    ("layers: one the other way", _flipped_layer),
    ("layers: use_sliding_window false", _set(use_sliding_window=False)),
    ("window: double", _window(2)),
    ("window: half", _window(0.5)),
    ("window: 16", _set(sliding_window=16)),
    ("is_causal: false", _set(is_causal=False)),
    ("is_causal: true", _set(is_causal=True)),
    ("rope: theta x 10", _theta(10)),
    ("rope: theta x 100 (vllm#53063)", _theta(100)),
    ("rope: theta / 100", _theta(0.01)),
    ("rope: yarn (vllm#58080)", _yarn),
    ("rope: the other style", _set(is_neox_style=False)),
    ("embedding scale", _set(input_embedding_scale=24.0)),
    ("embedding scale 0.1", _set(input_embedding_scale=0.1)),
    ("value scale 0.5", _set(attention_value_scale=0.5)),
    ("value scale 0.25", _set(attention_value_scale=0.25)),
    ("activation: gelu", _set(hidden_act="gelu")),
    ("activation: relu", _set(hidden_act="relu")),
    ("epsilon 0.1", _set(rms_norm_eps=0.1)),
    ("output multiplier", _set(output_multiplier=0.2)),
    ("soft cap", _set(final_logit_softcapping=15.0)),
    ("use_swa", _set(use_swa=True, swa_window_size=64)),
    ("block size", _set(block_size=8)),
    ("num_target_layers", _set(num_target_layers=32)),
    ("max_position_embeddings", _set(max_position_embeddings=2048)),
)
QUICK = ("Wrong mask token", "Reverse taps", "soft cap")


def singles(name: str, pair: Pair, healthy: DrafterConfig, seed: int) -> Iterator[Fault]:
    """Every single fault that changes the config."""
    for n, (fault, edit) in enumerate(SINGLES):
        try:
            config = edit(healthy, random.Random(1000 * seed + n), pair)
        except ConfigError:
            continue  # cannot even be written down
        if config is not None and config.raw != healthy.raw and (players := differing(config, healthy)):
            yield Fault(name, 1, fault, players, config)


def combined(faults: list[Fault], healthy: DrafterConfig, size: int, count: int, rng: random.Random) -> Iterator[Fault]:
    """Distinct combinations of counting single faults, each of another player."""
    seen: set[tuple[str, ...]] = set()
    for _ in range(1000):
        if len(seen) == count:
            return
        players = rng.sample(sorted({f.players[0] for f in faults}), size)
        parts = [rng.choice([f for f in faults if f.players[0] == player]) for player in players]
        parts.sort(key=lambda f: f.name)
        names = tuple(f.name for f in parts)
        if names in seen:
            continue
        config = healthy
        try:
            for part in parts:
                fields = [field for player in part.players for field in PLAYERS[player]]
                config = config.edited(**{field: getattr(part.config, field) for field in fields})
        except ConfigError:
            continue
        if set(differing(config, healthy)) == set(players):
            seen.add(names)
            yield Fault(parts[0].pair, size, " + ".join(names), differing(config, healthy), config)


class Bench:
    """One pair: its diagnosis set, its held-out set, and the verdict on a fault."""

    def __init__(self, name: str, quick: bool) -> None:
        self.name = name
        self.pair = load(get_pair(name))
        self.healthy = self.pair.config
        started = time.perf_counter()
        talks = conversations(load_prompts())
        tokens = 48 if quick else 96
        self.seen = self._record(talks[:2] if quick else talks, tokens)
        self.unseen = self._record(held_out(2 if quick else 6, 4), tokens)
        self.recording_s = time.perf_counter() - started
        self.judge = WhatIf(self.pair, self.unseen)
        self.base = self.judge.effect(self.healthy, K)

    def _record(self, talks: list[list[Prompt]], tokens: int) -> list[Recording]:
        recordings = record_conversations(self.pair, talks, tokens)
        assert recordings is not None
        return recordings

    def rounds(self) -> tuple[int, int]:
        """Held-out rounds under the healthy config, and those with at least 300 tokens before their anchor."""
        places = [r.anchor_position for trace in self.base.traces for r in trace.rounds]
        return len(places), sum(p >= 300 for p in places)

    def against(self, config: DrafterConfig) -> Paired | None:
        """Healthy against `config`, held-out; None where it cannot run."""
        try:
            return compare(self.base.traces, self.judge.effect(config, K).traces)
        except ConfigError:
            return None

    def counting(self, fault: Fault) -> Outcome:
        """What the fault costs, and whether it counts."""
        paired = self.against(fault.config)
        loss = -paired.relative if paired else None
        counts = paired is None or (-paired.relative > COUNTS and paired.clear)
        return Outcome(fault.pair, fault.size, fault.name, fault.players, loss, counts)

    def prompt_set(self, fault: Fault, seed: int) -> list[Recording]:
        """What a search rests on: the diagnosis set; for a healthy config as many other recordings."""
        if fault.size:
            return self.seen
        return random.Random(f"{seed} {fault.name}").sample(self.seen + self.unseen, len(self.seen))

    def diagnose(self, fault: Fault, outcome: Outcome, seed: int) -> Outcome:
        """Search with nothing of the healthy config at hand, then judge the repaired one on held-out conversations."""
        busy = time.process_time()
        try:
            found = repair(self.pair, self.prompt_set(fault, seed), fault.config, K, BUDGET_S)
        except ConfigError as error:
            outcome.end = f"refused: {error}"
            return outcome
        outcome.accused, outcome.seconds, outcome.end = found.guilty, found.seconds, found.end
        outcome.cpu_seconds = time.process_time() - busy
        outcome.tried = sum(found.tried.values())
        outcome.values = "; ".join(f"{f}={v}" for change in found.changes for f, v in change.now.items())
        outcome.named = set(found.guilty) == set(fault.players)
        paired = self.against(found.repaired)
        outcome.left = -paired.relative if paired else None
        outcome.repaired = outcome.left is not None and outcome.left < CLOSE
        return outcome


class Log:
    """Outcomes so far; with a file, one JSON line each, and those that an earlier run left there."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path and path.exists() else []
        self.outcomes = {(o.pair, o.fault): o for o in (Outcome(**json.loads(line)) for line in lines)}

    def add(self, outcome: Outcome) -> None:
        """Keep and print one."""
        self.outcomes[outcome.pair, outcome.fault] = outcome
        if self.path:
            with self.path.open("a") as file:
                file.write(json.dumps(asdict(outcome)) + "\n")
        show(outcome)


def run(bench: Bench, quick: bool, seed: int, log: Log) -> None:
    """All faults of one pair, and the healthy config over other prompt sets."""
    alone = [f for f in singles(bench.name, bench.pair, bench.healthy, seed) if not quick or f.name in QUICK]
    rng = random.Random(seed)
    counts = {f.name: log.outcomes.get((f.pair, f.name)) or bench.counting(f) for f in alone}
    counting = [f for f in alone if counts[f.name].counts]
    faults = list(alone)
    for size, number in ((2, 1),) if quick else ((2, 10), (3, 8)):
        faults += combined(counting, bench.healthy, size, number, rng)
    healthy = [Fault(bench.name, 0, f"healthy, prompt set {n}", (), bench.healthy) for n in range(1 if quick else 10)]
    order = faults + healthy
    rng.shuffle(order)
    for fault in order:
        if (fault.pair, fault.name) not in log.outcomes:
            log.add(bench.diagnose(fault, counts.get(fault.name) or bench.counting(fault), seed))


def show(o: Outcome) -> None:
    """One line a fault."""
    loss = "cannot run" if o.loss is None else f"{o.loss:+.1%}"
    left = "" if o.left is None else f"{o.left:+.1%}"
    mark = ("ok  " if o.named and o.repaired else "MISS") if o.counts else ("ALARM" if o.accused else "    ")
    print(f"  {mark:5} {o.pair} {o.size} {o.fault}: loss {loss}, accused {', '.join(o.accused) or 'nothing'}, "
          f"left {left} ({o.seconds:.0f} s, {o.tried} tried, {o.end})", flush=True)  # fmt: skip


def _median(values: list[float]) -> float | None:
    return round(statistics.median(values), 1) if values else None


def summary(outcomes: Sequence[Outcome], benches: Sequence[Bench]) -> dict[str, object]:
    """The figures of the docstring's table."""
    faults, healthy = [o for o in outcomes if o.size], [o for o in outcomes if not o.size]
    counted = [o for o in faults if o.counts]

    def share(size: int, *keys: str) -> float | None:
        some = [o for o in counted if o.size == size]
        return round(sum(all(getattr(o, key) for key in keys) for o in some) / len(some), 3) if some else None

    names = ("single", "double", "triple")
    rounds = [bench.rounds() for bench in benches]
    return {
        "faults": len(faults),
        "counting": len(counted),
        "second_drafter": sum(o.pair != PAIRS[0] for o in faults),
        **{name: share(n, "named", "repaired") for n, name in enumerate(names, 1)},
        "named": {name: share(n, "named") for n, name in enumerate(names, 1)},
        "repaired": {name: share(n, "repaired") for n, name in enumerate(names, 1)},
        "of": {name: sum(o.size == n for o in counted) for n, name in enumerate(names, 1)},
        "median_seconds": _median([o.seconds for o in counted]),
        "median_cpu_seconds": _median([o.cpu_seconds for o in counted]),
        "false_alarms": sum(bool(o.accused) for o in outcomes if not o.counts),
        "false_alarms_innocent": sum(not set(o.accused) <= set(o.broken) for o in outcomes if not o.counts),
        "false_alarms_healthy": sum(bool(o.accused) for o in healthy),
        "healthy_prompt_sets": len(healthy),
        "no_measurable_effect": [f"{o.pair}: {o.fault}" for o in faults if not o.counts],
        "misses": [asdict(o) for o in counted if not (o.named and o.repaired)],
        "rounds": sum(n for n, _ in rounds),
        "rounds_beyond_300": sum(n for _, n in rounds),
        "recording_seconds": round(sum(bench.recording_s for bench in benches), 1),
    }


def main() -> None:
    """Run and print."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--quick", action="store_true", help="a few faults on the demo pair, for CI")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--pair", choices=PAIRS, help="this pair only (default: every one that is there)")
    arguments.add_argument("--log", type=Path, help="keep outcomes there; what it holds is not run again")
    args = arguments.parse_args()
    known = {spec.name for spec in list_pairs()}
    log, benches = Log(args.log), []
    for name in [n for n in PAIRS if n in known and args.pair in (None, n)][: 1 if args.quick else None]:
        bench = Bench(name, args.quick)
        benches.append(bench)
        n, far = bench.rounds()
        print(
            f"{name}: {n} held-out rounds, {far} beyond 300 tokens; recorded in {bench.recording_s:.0f} s", flush=True
        )
        run(bench, args.quick, args.seed, log)
    print(json.dumps(summary(list(log.outcomes.values()), benches)))


if __name__ == "__main__":
    main()

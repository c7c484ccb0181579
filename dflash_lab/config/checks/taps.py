"""The taps: layers that exist, each once, in order, the ones the rule gives, and as many as `fc` takes."""

from __future__ import annotations

from collections.abc import Iterator

from dflash_lab.config.checks.finding import Finding
from dflash_lab.config.checks.subject import Subject, whole
from dflash_lab.config.schema import default_taps

# Published lists that do not follow the rule, by (target layers, number of taps).
EXCEPTIONS = {(64, 5): (5, 19, 33, 47, 61), (70, 5): (0, 15, 31, 47, 69)}


def taps_missing(s: Subject) -> Iterator[Finding]:
    if s.taps is None:
        layers, n = s.target_layers, s.config.num_hidden_layers if s.config else None
        yield Finding(
            "warning" if s.dialect != "speculators" else "error",
            s.taps_field,
            s.raw.get(s.taps_field, s.draft.get(s.taps_field)),
            "The config names no taps, and engines choose different defaults",
            s.as_written(default_taps(layers, n)) if layers and n else None,
            "z-lab spreads one tap a drafter layer, vLLM takes EAGLE-3's three layers",
            "vllm#50170",
        )


def taps_out_of_range(s: Subject) -> Iterator[Finding]:
    taps, layers = s.taps, s.target_layers
    if taps and (min(taps) < 0 or (layers is not None and max(taps) >= layers)):
        low = 1 if s.dialect == "speculators" else 0
        last = "the last layer" if layers is None else layers - 1 + low
        yield Finding(
            "error",
            s.taps_field,
            s.as_written(taps),
            f"{s.taps_field} {s.as_written(taps)} reaches outside {low}..{last}",
            _rule(s),
            "There is no such layer in the target",
        )


def taps_duplicated(s: Subject) -> Iterator[Finding]:
    taps = s.taps
    if taps and len(set(taps)) < len(taps):
        yield Finding(
            "error",
            s.taps_field,
            s.as_written(taps),
            f"{s.taps_field} names a layer twice",
            s.as_written(list(dict.fromkeys(taps))),
            "vLLM drops duplicates, and then fc is too wide; no published drafter has any",
        )


def taps_unsorted(s: Subject) -> Iterator[Finding]:
    taps = s.taps
    if taps and taps != sorted(taps):
        yield Finding(
            "error",
            s.taps_field,
            s.as_written(taps),
            f"{s.taps_field} {s.as_written(taps)} is not in rising order",
            s.as_written(sorted(taps)),
            "fc takes the taps in the trained order; vLLM sorts them, z-lab does not, so the two disagree",
        )


def taps_one_too_high(s: Subject) -> Iterator[Finding]:
    """A list in speculators' counting, where id l + 1 is the output of layer l, standing where ids count from 0."""
    if healthy := _shifted_from(s, 1):
        yield Finding(
            "error",
            s.taps_field,
            s.as_written(s.taps or []),
            f"Every tap is one above {s.as_written(healthy)}: the ids look shifted by one",
            s.as_written(healthy),
            "speculators' aux_hidden_state_layer_ids are one higher than target_layer_ids; a shift by one costs 2-16%",
            "atlas#394",
        )


def taps_one_too_low(s: Subject) -> Iterator[Finding]:
    if healthy := _shifted_from(s, -1):
        yield Finding(
            "error",
            s.taps_field,
            s.as_written(s.taps or []),
            f"Every tap is one below {s.as_written(healthy)}: the ids look shifted by one",
            s.as_written(healthy),
            "An id is a layer's output counted from 0, not the layer before it; a shift by one costs 2-5%",
            "vllm#40727",
        )


def taps_differ_from_rule(s: Subject) -> Iterator[Finding]:
    known = _known_taps(s)
    if not s.taps or not known or tuple(s.taps) in known or _shifted_from(s, 1) or _shifted_from(s, -1):
        return
    yield Finding(
        "note",
        s.taps_field,
        s.as_written(s.taps),
        f"The default rule would give {s.as_written(known[0])}",
        None,
        "Most published drafters follow the rule, but healthy exceptions exist: ask the drafter's card",
    )


def taps_bunched(s: Subject) -> Iterator[Finding]:
    taps, layers = s.taps, s.target_layers
    if taps and layers and len(taps) > 2 and max(taps) - min(taps) < layers / 2:
        yield Finding(
            "warning",
            s.taps_field,
            s.as_written(taps),
            f"{s.taps_field} {s.as_written(taps)} covers less than half of the target's {layers} layers",
            _rule(s),
            "Published drafters tap the whole depth, from near the first layer to near the last",
        )


def taps_last_layer(s: Subject) -> Iterator[Finding]:
    taps, layers = s.taps, s.target_layers
    if taps and layers is not None and layers - 1 in taps:
        yield Finding(
            "note",
            s.taps_field,
            s.as_written(taps),
            "The last layer is tapped, and engines disagree about its output",
            None,
            "transformers' hidden_states gives it after the final norm, engines before",
        )


def tap_count_against_fc(s: Subject) -> Iterator[Finding]:
    shape = (s.facts.weight_shapes or {}).get("fc.weight")
    hidden = whole(s.target("hidden_size")) or s.whole("hidden_size")
    if not s.taps or not shape or not hidden or hidden < 1 or shape[-1] == len(s.taps) * hidden:
        return
    count, rest = divmod(shape[-1], hidden)
    layers = s.target_layers
    yield Finding(
        "error",
        s.taps_field,
        s.as_written(s.taps),
        f"fc.weight is {list(shape)}: made for {count} taps of width {hidden}, not {len(s.taps)}"
        if not rest
        else f"fc.weight is {list(shape)}, not a multiple of the target's width {hidden}",
        s.as_written(default_taps(layers, count)) if layers and not rest and 0 < count < 1000 else None,
        "The number of taps follows from the weights",
    )


def num_target_layers_missing(s: Subject) -> Iterator[Finding]:
    if s.dialect != "speculators" and whole(s.raw.get("num_target_layers")) is None:
        yield Finding(
            "error",
            "num_target_layers",
            s.raw.get("num_target_layers"),
            "num_target_layers is missing",
            whole(s.target("num_hidden_layers")),
            "z-lab's package reads it even when taps are given, and stops with AttributeError",
        )


def num_target_layers_wrong(s: Subject) -> Iterator[Finding]:
    named, real = whole(s.raw.get("num_target_layers")), whole(s.target("num_hidden_layers"))
    if named is not None and real is not None and named != real:
        yield Finding(
            "error",
            "num_target_layers",
            named,
            f"num_target_layers is {named}, the target has {real}",
            real,
            "Either the number is wrong or the drafter belongs to another target; SGLang refuses it",
        )


def _known_taps(s: Subject) -> list[tuple[int, ...]]:
    """Healthy lists for this target and number of taps: the rule's, then published exceptions."""
    taps, layers = s.taps, s.target_layers
    if not taps or not layers or len(taps) > 1000:
        return []
    exception = EXCEPTIONS.get((layers, len(taps)))
    return [default_taps(layers, len(taps)), *([exception] if exception else [])]


def _shifted_from(s: Subject, by: int) -> tuple[int, ...] | None:
    """The healthy list that these taps are, shifted by `by`."""
    moved = tuple(tap - by for tap in s.taps or [])
    return next((known for known in _known_taps(s) if known == moved), None)


def _rule(s: Subject) -> list[int] | None:
    known = _known_taps(s)
    return s.as_written(known[0]) if known else None


CHECKS = (
    taps_missing,
    taps_out_of_range,
    taps_duplicated,
    taps_unsorted,
    taps_one_too_high,
    taps_one_too_low,
    taps_differ_from_rule,
    taps_bunched,
    taps_last_layer,
    tap_count_against_fc,
    num_target_layers_missing,
    num_target_layers_wrong,
)

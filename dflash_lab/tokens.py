"""From token ids to text a person can read and a browser can trust.

Tokens of a byte-level vocabulary need not be whole characters, so runs of tokens are decoded together: a Segment is
the shortest run whose text is complete. Everything that becomes HTML is escaped here; model text never reaches a
Markdown renderer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from typing import Any, Protocol

from dflash_lab.palette import TEXT_BACKGROUNDS
from dflash_lab.trace import Origin, Trace

BROKEN = "�"
LONGEST_WAIT = 8
"""A character has at most four bytes; a run that is still broken after twice that is shown as bytes."""


class Tokenizer(Protocol):
    """The little of a transformers tokenizer that is needed here."""

    @property
    def all_special_ids(self) -> Sequence[int]: ...

    def decode(self, ids: Sequence[int], **options: Any) -> str: ...

    def convert_ids_to_tokens(self, ids: int) -> str: ...


@dataclass(frozen=True, slots=True)
class Segment:
    """Output tokens ``start`` (inclusive) to ``stop`` (exclusive) and the text they make together."""

    start: int
    stop: int
    text: str
    special: bool = False


@dataclass(frozen=True, slots=True)
class Wording:
    """The text of a run: its output in segments, and a readable name for every token id its trace mentions."""

    segments: tuple[Segment, ...] = ()
    names: dict[int, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The output as one string, special tokens left out."""
        return "".join(s.text for s in self.segments if not s.special)

    def name(self, token: int) -> str:
        """The token's own text, or its number where no name was kept."""
        return self.names.get(token, f"#{token}")


class Detokenizer:
    """Turns a growing list of ids into segments; every id is looked at a bounded number of times."""

    def __init__(self, tokenizer: Tokenizer, context: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._special = frozenset(tokenizer.all_special_ids)
        # Some tokenizers drop a leading space; a little of what came before keeps it.
        self._window = list(context[-4:])
        self._pending: list[int] = []
        self._count = 0
        self._done: list[Segment] = []

    def extend(self, ids: Iterable[int]) -> tuple[Segment, ...]:
        """Add ids; returns all finished segments so far."""
        for token in ids:
            self._count += 1
            if token in self._special:
                self._flush()
                self._close(piece(self._tokenizer, token), [token], special=True)
                continue
            self._pending.append(token)
            before = decode(self._tokenizer, self._window)
            text = decode(self._tokenizer, self._window + self._pending)[len(before) :]
            if text and not text.endswith(BROKEN):
                self._close(text, self._pending)
            elif len(self._pending) >= LONGEST_WAIT:
                self._flush()
        return tuple(self._done)

    def finish(self) -> tuple[Segment, ...]:
        """All segments; bytes that never became a character are shown as bytes."""
        self._flush()
        return tuple(self._done)

    def _flush(self) -> None:
        if self._pending:
            self._close("".join(piece(self._tokenizer, t) for t in self._pending), self._pending)

    def _close(self, text: str, ids: list[int], special: bool = False) -> None:
        start = self._done[-1].stop if self._done else 0
        self._done.append(Segment(start, start + len(ids), text, special))
        self._window, self._pending = list(ids), []


def decode(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """The exact text of ``ids``, special tokens included, nothing tidied up."""
    if not ids:
        return ""
    return tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)


def piece(tokenizer: Tokenizer, token: int) -> str:
    """One token alone: its text, or its bytes in hexadecimal (``⟨F0 9F⟩``) where it is part of a character."""
    text = decode(tokenizer, [token])
    if text and BROKEN not in text:
        raw = tokenizer.convert_ids_to_tokens(token)
        return f" {text}" if raw.startswith("▁") and not text.startswith(" ") else text
    raw = tokenizer.convert_ids_to_tokens(token) or f"#{token}"
    table = _byte_alphabet()
    if all(character in table for character in raw):
        return "⟨" + " ".join(f"{table[character]:02X}" for character in raw) + "⟩"
    return raw


@cache
def _byte_alphabet() -> dict[str, int]:
    """GPT-2's byte-level alphabet: printable bytes stand for themselves, the others start at U+0100."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(256 + n): b for n, b in enumerate(hidden)}


def word(tokenizer: Tokenizer, trace: Trace) -> Wording:
    """Put a whole trace into words."""
    detokenizer = Detokenizer(tokenizer, trace.prompt_ids)
    detokenizer.extend(trace.output_ids)
    mentioned = set(trace.output_ids)
    for r in trace.rounds:
        mentioned.update((r.anchor, *r.drafted, *r.choices))
        for row in (*r.draft_alternatives, *r.target_alternatives):
            mentioned.update(row.ids)
    return Wording(detokenizer.finish(), {t: piece(tokenizer, t) for t in sorted(mentioned) if t >= 0})


def visible(text: str) -> str:
    """Text with spaces, tabs and line breaks as symbols, for a table cell or a tooltip."""
    return text.replace(" ", "·").replace("\t", "⇥").replace("\r", "␍").replace("\n", "⏎") or "∅"


def hovers(trace: Trace, wording: Wording) -> tuple[str, ...]:
    """One line per output token: where it came from, both probabilities and the rank of the target's choice."""
    lines = ["the target's first token, from the prompt alone"] if trace.first_token is not None else []
    for n, r in enumerate(trace.rounds):
        for i, origin in enumerate(r.origins()):
            lines.append(f"round {n + 1}: {_hover(trace, n, i, origin, wording)}")
    return tuple(lines)


def _hover(trace: Trace, n: int, i: int, origin: Origin, wording: Wording) -> str:
    r = trace.rounds[n].chain()
    if origin == "plain":
        return "the target alone, nothing was drafted"
    facts = []
    if i < len(r.draft_probs):
        facts.append(f"drafter {r.draft_probs[i]:.1%}, target {r.target_probs[i]:.1%}")
    if i < len(r.ranks):
        facts.append(f"the target's choice was the drafter's number {r.ranks[i] + 1}")
    if origin == "accepted":
        return "; ".join([f"accepted at position {i}", *facts])
    if i >= len(r.drafted):
        return f"bonus after all {len(r.drafted)} drafted tokens were accepted"
    drafted = visible(wording.name(r.drafted[i]))
    return "; ".join([f"the target's own token instead of “{drafted}” at position {i}", *facts])


STYLE = (
    "<style>"
    ".lab-text{line-height:1.9;overflow-wrap:anywhere;white-space:pre-wrap;font-size:.95rem}"
    ".lab-text span,.lab-legend span{border-radius:3px;padding:1px 0}"
    ".lab-legend{font-size:.85rem;line-height:2}.lab-legend span{padding:1px 6px;margin-right:.5rem}"
    ".lab-text i{font-style:normal;opacity:.4}"
    + "".join(
        f".lab-{origin}{{background:{colour};{line}}}"
        for (origin, colour), line in zip(
            TEXT_BACKGROUNDS.items(),
            (
                "",
                "text-decoration:underline 2px;text-underline-offset:3px",
                "text-decoration:underline double;text-underline-offset:3px",
                "text-decoration:underline dotted;text-underline-offset:3px",
                "text-decoration:line-through",
            ),
            strict=True,
        )
    )
    + ".lab-special{font-family:monospace;font-size:.85em;outline:1px dashed;outline-offset:-1px;opacity:.8}"
    ".lab-chosen{outline:2px solid;outline-offset:1px}"
    "</style>"
)

LEGEND = {
    "accepted": "accepted: drafted, and the target agreed",
    "bonus": "bonus: the target's own token that ends a round",
    "first": "first: from the prompt alone",
    "plain": "plain: no draft",
}


def legend_html(origins: Iterable[str]) -> str:
    """The legend for those ``origins`` that occur."""
    there = set(origins)
    spans = [f'<span class="lab-{o}">{escape(text)}</span>' for o, text in LEGEND.items() if o in there]
    return f'{STYLE}<div class="lab-legend">{" ".join(spans)}</div>'


def text_html(
    segments: Sequence[Segment],
    origins: Sequence[str],
    titles: Sequence[str] = (),
    chosen: range = range(0),
) -> str:
    """Segments as escaped HTML: coloured and underlined by origin, one title each; ``chosen`` tokens outlined.

    A segment of several tokens takes the look of its last one and the titles of all.
    """
    spans = []
    for s in segments:
        classes = [f"lab-{origins[s.stop - 1]}"]
        if s.special:
            classes.append("lab-special")
        if s.start < chosen.stop and s.stop > chosen.start:
            classes.append("lab-chosen")
        title = "\n".join(dict.fromkeys(titles[s.start : s.stop]))
        hover = f' title="{escape(title)}"' if title else ""
        spans.append(f'<span class="{" ".join(classes)}"{hover}>{_spelled(s.text)}</span>')
    return f'{STYLE}<div class="lab-text" dir="auto">{"".join(spans)}</div>'


def _spelled(text: str) -> str:
    """Escaped text whose spaces, tabs and line breaks can be seen; a line may break after each of them."""
    marks = {" ": "<i>·</i><wbr>", "\t": "<i>⇥</i>\t", "\n": "<i>⏎</i>\n", "\r": "<i>␍</i>"}
    return "".join(marks.get(character) or escape(character) for character in text)


def pages(segments: Sequence[Segment], size: int = 2000) -> tuple[tuple[Segment, ...], ...]:
    """Segments in pages of about ``size`` tokens, so that a long text stays quick to draw; at least one page."""
    found: list[list[Segment]] = [[]]
    for s in segments:
        if found[-1] and s.stop - found[-1][0].start > size:
            found.append([])
        found[-1].append(s)
    return tuple(map(tuple, found))

"""One round as a table: what the drafter proposed, what the target said, position by position, as escaped HTML."""

from __future__ import annotations

from html import escape

from dflash_lab.tokens import Wording, visible
from dflash_lab.trace import Alternatives, Round

STYLE = (
    "<style>"
    ".lab-ladder{overflow-x:auto;font-size:.85rem}"
    ".lab-ladder table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    ".lab-ladder th,.lab-ladder td{padding:4px 10px;text-align:left;vertical-align:top;white-space:nowrap;"
    "border-bottom:1px solid light-dark(#d5dae0,#3a4048)}"
    ".lab-ladder th{font-weight:500;opacity:.75}"
    ".lab-ladder code{font-family:monospace;font-size:.95em;background:none;color:inherit;padding:0 2px}"
    ".lab-ladder .lab-yes{background:light-dark(#c9ecdf,#0d4a38)}"
    ".lab-ladder .lab-no{background:light-dark(#fbdcc8,#6a2f08);text-decoration:line-through}"
    ".lab-ladder .lab-unread{opacity:.55}"
    ".lab-ladder .lab-bonus-cell{background:light-dark(#cfe3f5,#123f63);text-decoration:underline 2px}"
    ".lab-ladder .lab-picked{outline:2px solid;outline-offset:-2px}"
    "</style>"
)

OUTCOME = {"accepted": "✓ accepted", "rejected": "✗ rejected", "not reached": "· not reached"}
MARK = {"accepted": "lab-yes", "rejected": "lab-no", "not reached": "lab-unread"}


def round_html(r: Round, wording: Wording, picked: int | None = None) -> str:
    """The round as a table with one column a drafted position and a last one for the bonus.

    A tree is shown as the chain that was walked. ``picked`` outlines one position. Rows without data (no drafter
    probabilities, no alternatives) are left out.
    """
    r = r.chain()
    width = len(r.drafted)
    columns = range(width + 1 if r.bonus is not None else width)

    def cells(values: list[str], classes: list[str] | None = None) -> str:
        marks = classes or [""] * len(values)
        marks = [f"{mark} lab-picked" if i == picked else mark for i, mark in enumerate(marks)]
        return "".join(f'<td class="{m.strip()}">{v}</td>' for v, m in zip(values, marks, strict=True))

    extra = [""] * (len(columns) - width)
    rows = [("position", cells([str(i) for i in range(width)] + ["bonus"] * len(extra)))]
    drafted = [_code(wording, token) for token in r.drafted]
    marks = [MARK[r.cell(i)] for i in range(width)]
    rows.append(("drafted", cells(drafted + extra, marks + extra)))
    choices = [_code(wording, r.choices[i]) if i < len(r.choices) else "?" for i in columns]
    taken = ["lab-bonus-cell" if i == r.accepted else "lab-unread" if i > r.accepted else "" for i in columns]
    rows.append(("target's choice", cells(choices, taken)))
    rows.append(("outcome", cells([OUTCOME[r.cell(i)] for i in range(width)] + extra)))
    if r.draft_probs:
        rows.append(("p(drafted), drafter", cells([f"{p:.1%}" for p in r.draft_probs] + extra)))
    if r.target_probs:
        rows.append(("p(drafted), target", cells([f"{p:.1%}" for p in r.target_probs] + extra)))
    if r.ranks:
        ranks = [f"number {rank + 1}" for rank in r.ranks]
        rows.append(("target's choice in the draft", cells(ranks + extra)))
    if r.draft_alternatives:
        tops = [_tops(row, wording) for row in r.draft_alternatives]
        rows.append(("drafter's most probable", cells(tops + extra)))
    if r.target_alternatives:
        tops = [_tops(r.target_alternatives[i], wording) for i in columns if i < len(r.target_alternatives)]
        rows.append(("target's most probable", cells(tops + [""] * (len(columns) - len(tops)))))
    body = "".join(f"<tr><th>{escape(name)}</th>{row}</tr>" for name, row in rows)
    return f'{STYLE}<div class="lab-ladder"><table>{body}</table></div>'


def _code(wording: Wording, token: int) -> str:
    return f'<code title="token {token}">{escape(visible(wording.name(token)))}</code>'


def _tops(row: Alternatives, wording: Wording) -> str:
    return "<br>".join(f"{_code(wording, t)} {p:.1%}" for t, p in zip(row.ids, row.probs, strict=True))

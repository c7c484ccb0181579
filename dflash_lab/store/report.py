"""A report in one HTML file that works from a disk without a network.

Plotly's script is inside; a content security policy in the file forbids every request, so that nothing in an
experiment's texts could make one either. All text is escaped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from dflash_lab.config.patch import Difference
from dflash_lab.edits import shown
from dflash_lab.store.compare import Comparison, Side, metrics
from dflash_lab.store.experiment import Experiment
from dflash_lab.store.figures import comparison_figures, figures
from dflash_lab.store.tables import figure_text
from dflash_lab.tokens import hovers, legend_html, text_html

POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
PLOT: dict[str, Any] = {
    "displaylogo": False,
    "responsive": True,
    "modeBarButtonsToRemove": ["sendChartToCloud"],
    "plotlyServerURL": "",
}
STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 2rem auto; padding: 0 1rem;
       background: light-dark(#fff, #14181d); color: light-dark(#1c2126, #e6e9ec); }
table { border-collapse: collapse; font-size: .9rem; } th, td { padding: .2rem .6rem; text-align: left;
       border-bottom: 1px solid light-dark(#d5dade, #39424b); }
.wide { overflow-x: auto; } figure { margin: 1rem 0; background: #fff; color: #1c2126; border-radius: 6px; }
figcaption { padding: .4rem .6rem 0; font-weight: 600; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; } dt { font-weight: 600; } dd { margin: 0 0 .4rem; }
"""


def html(experiments: Sequence[Experiment], found: Comparison | None = None) -> str:
    """The whole file's text: every experiment with its figures, and the comparison when there is one."""
    title = experiments[0].title if len(experiments) == 1 else f"{len(experiments)} experiments"
    body = "".join(_experiment(e) for e in experiments) + (_comparison(found) if found else "")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style>"
        f"<script>{get_plotlyjs()}</script></head><body><h1>{escape(title)}</h1>{body}</body></html>"
    )


def _experiment(e: Experiment) -> str:
    words = {
        "Hypothesis": e.hypothesis,
        "Change": "; ".join(f"{p.get('op')} {p.get('path')} {shown(p.get('value'))}" for p in e.patch),
        "Result": e.headline,
        "Verdict": e.verdict,
        "Tags": ", ".join(e.tags),
        "Pair": f"{e.pair.get('name', '')}, drafter {e.pair.get('drafter_revision', '?')}, {e.created}",
    }
    parts = [f"<section><h2>{escape(e.title)}</h2>{_definitions(words)}"]
    if e.series:
        parts.append(_table(metrics([Side(e, s) for s in e.series])))
    parts.append(_figures(figures(e)))
    if e.kind == "run" and e.figures and e.wording.segments:
        trace = e.figures.traces[0]
        parts.append(f"<h3>Text</h3>{legend_html(trace.origins)}")
        parts.append(text_html(e.wording.segments, trace.origins, hovers(trace, e.wording)))
    if e.note:
        parts.append(f"<h3>Note</h3><pre>{escape(e.note)}</pre>")
    if "markdown" in e.extra:
        parts.append(f"<h3>Report</h3><pre>{escape(str(e.extra['markdown']))}</pre>")
    facts = {"config": e.config, "settings": e.settings, "pair": e.pair, "provenance": e.provenance}
    text = json.dumps(facts, indent=1, ensure_ascii=False)
    return "".join(parts) + f"<details><summary>How it was made</summary><pre>{escape(text)}</pre></details></section>"


def _comparison(found: Comparison) -> str:
    sides = _definitions({"A": found.here.name, "B": found.there.name, "B minus A": found.sentence(),
                          "Texts": found.texts_sentence()})  # fmt: skip
    table = _table(metrics([found.here, found.there]))
    differences = _differences([*found.config, *found.settings])
    return f"<section><h2>Comparison</h2>{sides}{table}{differences}{_figures(comparison_figures(found))}</section>"


def _differences(found: Sequence[Difference]) -> str:
    if not found:
        return "<p>Config and settings are the same.</p>"
    rows = [{"": d.field, "A": shown(d.here), "B": shown(d.there)} for d in found]
    return f"<h3>What differs</h3>{_table(pd.DataFrame(rows))}"


def _definitions(words: Mapping[str, str]) -> str:
    items = (f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in words.items() if text)
    return f"<dl>{''.join(items)}</dl>"


def _table(frame: pd.DataFrame) -> str:
    head = "".join(f"<th>{escape(str(c))}</th>" for c in frame.columns)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(figure_text(value))}</td>" for value in row) + "</tr>"
        for row in frame.itertuples(index=False)
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _figures(named: Mapping[str, go.Figure]) -> str:
    return "".join(
        f'<figure role="img" aria-label="{escape(title)}"><figcaption>{escape(title)}</figcaption>'
        f"{figure.to_html(full_html=False, include_plotlyjs=False, config=PLOT)}</figure>"
        for title, figure in named.items()
    )

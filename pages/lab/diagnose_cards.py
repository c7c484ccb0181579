"""The cards of a diagnosis: verdict, the fields to change, what to do with them, and the evidence."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pandas as pd
import streamlit as st

from dflash_lab import plots
from dflash_lab.access import access
from dflash_lab.config import files
from dflash_lab.diagnose.figures import waterfall
from dflash_lab.diagnose.task import SoFar
from dflash_lab.edits import shown
from dflash_lab.errors import LabError
from dflash_lab.pairs import PairSpec
from pages.lab import config_state, frame

if TYPE_CHECKING:
    from dflash_lab.diagnose.report import Diagnosis
    from dflash_lab.diagnose.search import Change

LOOKS = {
    "config": (st.error, ":material/build:"),
    "not the config": (st.warning, ":material/rule:"),
    "weak drafter": (st.warning, ":material/fitness_center:"),
    "unfinished": (st.warning, ":material/hourglass_bottom:"),
    "healthy": (st.success, ":material/check_circle:"),
}
MARKS = {"ruled out": "✓ ruled out", "suspect": "? suspect", "guilty": "✗ guilty", "not tested": "– not tested"}


def show_nothing() -> None:
    """Before the first diagnosis."""
    st.info(
        "Press **Diagnose**. The lab records some of the target's own text, then tries other values for every field of "
        "the config on it and measures what they accept. It needs no good config to compare with. You get the fields "
        "that are wrong, what each costs, and the repaired file; or what else it is.",
        icon=":material/lightbulb:",
    )


def show_so_far(so_far: SoFar) -> None:
    """A diagnosis under way."""
    if so_far.accused:
        st.markdown(f"Better so far with other values of: **{', '.join(so_far.accused)}**")


def title(found: Diagnosis) -> str:
    """A diagnosis in a list."""
    return f"{found.verdict.headline} ({found.pair})"


def show(found: Diagnosis, spec: PairSpec) -> None:
    """A finished diagnosis."""
    verdict(found)
    figures(found)
    if found.repair.changes:
        fields(found)
        act(found, spec)
        applied(found)
    curves(found)
    suspects(found)
    probes(found)
    rest(found)


def verdict(found: Diagnosis) -> None:
    """What it is, how sure, what to change, what that brings."""
    v = found.verdict
    look, icon = LOOKS[v.kind]
    look(
        f"**{v.headline}**\n\n- **Change**: {frame.plain(v.change)}\n- **Brings**: {frame.plain(v.brings)}\n"
        f"- **How sure**: {frame.plain(v.sure)}",
        icon=icon,
    )


def figures(found: Diagnosis) -> None:
    """Before and after, with the rounds they rest on."""
    before, after = found.before, found.after
    with st.grid(4, min_column_width=170):
        _tile(
            "Acceptance length now",
            before.acceptance_length if before else None,
            f"{before.counted} rounds" if before else "cannot run",
        )
        _tile("after the repair", after.acceptance_length, f"{after.counted} rounds")
        with st.container(border=True):
            st.metric("Configs tried", sum(found.repair.tried.values()), help=_tried(found))
            st.caption(f"in {found.repair.seconds:.0f} s ({found.repair.end})")
        with st.container(border=True):
            st.metric("K", found.k)
            st.caption(f"contexts {found.contexts[0]} to {found.contexts[1]} tokens")


def _tile(label: str, value: float | None, below: str) -> None:
    with st.container(border=True):
        st.metric(
            label,
            "n/a" if value is None else f"{value:.2f}",
            help="Mean of accepted + 1 a round, bonus included, replayed exactly on the recorded text.",
        )
        st.caption(below)


def _tried(found: Diagnosis) -> str:
    return "Scored on recorded text, by field: " + ", ".join(f"{name} {n}" for name, n in found.repair.tried.items())


def fields(found: Diagnosis) -> None:
    """The fields to change, one row each."""
    from dflash_lab.diagnose.verdict import short

    def worth(change: Change) -> str:
        if change.refused:
            return "cannot run without"
        return f"{change.gain:+.2f} ({change.low:+.2f} to {change.high:+.2f})"

    rows = [
        {
            "field": field,
            "is": short(change.was[field]),
            "should be": short(value),
            "worth": "cannot run without"
            if change.refused
            else f"{change.gain:+.2f} ({change.low:+.2f} to {change.high:+.2f})",
            "where it comes from": change.rule,
        }
        for change in found.repair.changes
        for field, value in change.now.items()
    ]
    st.subheader("Fields to change")
    st.dataframe(
        pd.DataFrame(rows),
        hide_index=True,
        column_config={
            "worth": st.column_config.TextColumn(
                "worth (tokens a round)",
                help=f"What taking it back costs, the other repairs in place, with its 95% interval: mean over "
                f"{found.repair.anchors} anchors drawn from every text. Fields that mean nothing alone are one change.",
            )
        },
    )
    for change in found.repair.changes:
        if change.equivalent:
            others = "; ".join(", ".join(f"{f} {shown(v)}" for f, v in one.items()) for one in change.equivalent)
            st.caption(f"{change.player}: these texts do not tell the new value from {frame.plain(others)}.")


def act(found: Diagnosis, spec: PairSpec) -> None:
    """Apply to the Config page, save verified, download."""
    with st.container(horizontal=True):
        st.button(
            "Apply to Config",
            icon=":material/tune:",
            type="primary",
            help="Puts the repaired config on the Config page as an edit: nothing is written yet.",
            on_click=apply,
            args=(found, spec),
            disabled=found.path is None,
        )
        if st.button(
            "Save, verified",
            icon=":material/save:",
            help="Writes the file, reads it back, compares field by field; the old version is kept.",
            disabled=access().read_only,
        ):
            save(found, found.path)
        st.download_button(
            "Repaired config.json",
            lambda: json.dumps(found.repaired, indent=2) + "\n",
            files.NAME,
            "application/json",
            on_click="ignore",
            icon=":material/download:",
        )
        st.download_button(
            "Report as Markdown",
            found.markdown,
            f"diagnosis-{found.id}.md",
            "text/markdown",
            on_click="ignore",
            icon=":material/download:",
        )
        st.download_button(
            "Report as JSON",
            lambda: json.dumps(found.to_json()),
            f"diagnosis-{found.id}.json",
            "application/json",
            on_click="ignore",
            icon=":material/download:",
        )


def applied(found: Diagnosis) -> None:
    """The way to the edit, once it was applied: a link, because a page whose widgets are in the address cannot turn."""
    if st.session_state.get("diagnose_applied") == found.id:
        st.success(
            "The Config page holds the repaired config as an edit; nothing is written yet.", icon=":material/tune:"
        )
        st.page_link("pages/lab/config.py", label="Open the Config page", icon=":material/arrow_forward:")


def apply(found: Diagnosis, spec: PairSpec) -> None:
    """Make the repaired config the Config page's edit of the diagnosed file."""
    bench = config_state.Bench(spec)
    bench.open(str(found.path))
    bench.put(found.repaired)
    st.session_state[config_state.KEY] = bench
    st.session_state["diagnose_applied"] = found.id


def save(found: Diagnosis, path: str | None) -> None:
    """Write the repaired config over the diagnosed file and say what is on disk now."""
    if path is None:
        st.warning("This config did not come from a file: download it instead.", icon=":material/download:")
        return
    try:
        file = files.read(path)
        if file.raw != found.raw:
            raise LabError(f"{path} is not what was diagnosed any more", "Diagnose it again: nothing was written")
        saved = files.save(files.overlay(file) if files.leads_out(file.path) else file, found.repaired)
    except LabError as error:
        st.error(str(error), icon=":material/error:")
        return
    kept = f" The old version is kept: {saved.previous.path.name}." if saved.previous else ""
    st.success(
        f"{saved.file.path} holds sha256 {saved.file.sha256[:12]}, read back and compared.{kept} "
        "Restart whatever runs with it.",
        icon=":material/verified:",
    )


def curves(found: Diagnosis) -> None:
    """Blame as a waterfall, and acceptance by position before and after."""
    left, right = st.columns(2)
    with left:
        if found.blame:
            st.subheader(
                "Blame",
                help="Shapley values: the mean, over all orders of putting the fields right, of what "
                "each adds. They sum to the whole loss. Whiskers: 95% bootstrap intervals over text segments.",
            )
            st.plotly_chart(
                waterfall(found.blame),
                alt="Acceptance length from the config as it is to the repaired one",
                config={"displayModeBar": False},
            )
            strong = [i for i in found.blame.interactions if i.index.clear and abs(i.index.value) > 0.1]
            for i in strong:
                word = "more" if i.index.value > 0 else "less"
                st.caption(
                    f"{i.players[0]} and {i.players[1]} bring {abs(i.index.value):.2f} {word} together than apart."
                )
    with right:
        st.subheader("By position", help="Unconditional: of all rounds. Never rises with position.")
        summaries = (
            {"as it is": found.before, "repaired": found.after} if found.repair.changes else {"as it is": found.after}
        )
        st.plotly_chart(
            plots.positions_compared({name: s for name, s in summaries.items() if s}),
            alt="Acceptance rate by position before and after",
            config={"displayModeBar": False},
        )


def suspects(found: Diagnosis) -> None:
    """What the shape of the curve points at, before anything was tried."""
    if found.matches:
        st.subheader("What the curve alone points at")
        for m in found.matches:
            st.markdown(f"- {m.observed} ({m.shown}): first suspects {', '.join(m.suspects)}.")


def probes(found: Diagnosis) -> None:
    """Everything that is not the config."""
    if found.probes:
        st.subheader("Not the config", help="Measured with the repaired config, so that a wrong field hides nothing.")
        rows = [
            {"what": p.name, "verdict": MARKS[p.verdict], "evidence": p.evidence, "to do": p.fix} for p in found.probes
        ]
        st.dataframe(pd.DataFrame(rows), hide_index=True, row_height=60)


def rest(found: Diagnosis) -> None:
    """What the file alone says, and the card."""
    from dflash_lab.diagnose.card import text

    if found.findings:
        with st.expander(f"What the file alone says ({len(found.findings)})"):
            for f in found.findings:
                st.markdown(f"- **{f.severity}** {frame.plain(f.field)}: {frame.plain(f.message)}")
    with st.expander("Reproducibility card", icon=":material/badge:"):
        st.code(text(found.card), language=None)

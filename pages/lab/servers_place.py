"""Which server the page works on: attached to by its address, or a vLLM launched here and kept."""

from __future__ import annotations

import streamlit as st

from dflash_lab import edits
from dflash_lab.access import access
from dflash_lab.config import files
from dflash_lab.config_tasks import PromptSet
from dflash_lab.errors import LabError
from dflash_lab.prompts import Prompt
from dflash_lab.published import known_config, most_drafted
from dflash_lab.server_tasks import LaunchTask, Serving, config_text
from dflash_lab.servers.attach import Attached, Client, connect, look
from dflash_lab.servers.environment import VllmEnvironment, find
from dflash_lab.servers.keeper import Keeper
from dflash_lab.servers.keeper import served_dtype as dtype_of
from pages.lab import frame

LAUNCH = "launch"
MARKS = {"error": ":material/error:", "warning": ":material/warning:", "note": ":material/info:"}


@st.cache_resource
def keeper() -> Keeper:
    """The one managed server of this process."""
    return Keeper()


@st.cache_data(ttl=60, show_spinner="Looking for vLLM")
def environment() -> VllmEnvironment | str:
    """The environment with vLLM, or what to do when there is none."""
    try:
        return find()
    except LabError as error:
        return str(error)


def pick() -> str | None:
    """The server's address once one answers there; None, and the reason on the page, until then."""
    if access().read_only:
        st.info(
            "A demonstration calls and starts no servers. Launch commands and pasted lines work.",
            icon=":material/visibility:",
        )
        return None
    take_launched()
    way = st.segmented_control(
        "Server", ["Attach", "Launch"], default="Attach", key="servers_way", bind="query-params", required=True
    )
    if way == "Launch":
        launch_controls()
    managed()
    if way == "Attach":
        left, right = st.columns([3, 1], vertical_alignment="bottom")
        left.text_input("Address", key="servers_url", placeholder="http://127.0.0.1:8000", persist_state="session")
        right.text_input("API key, if it has one", type="password", key="servers_api_key", persist_state="session")
    st.session_state.setdefault("servers_api_key", "")
    url = st.session_state.get("servers_url", "").strip()
    found = attached(url) if url else None
    return found.url if found else None


def take_launched() -> None:
    """A launch that has got ready becomes the address, once."""
    job = st.session_state.get(f"{LAUNCH}_job")
    snapshot = frame.worker().find(job) if job else None
    if snapshot and snapshot.result and st.session_state.get("servers_taken") != job:
        st.session_state["servers_taken"] = job
        st.session_state["servers_url"] = snapshot.result.url


def client(url: str) -> Client:
    """A client for the server."""
    return connect(url, st.session_state.get("servers_api_key") or None)


def attached(url: str) -> Attached | None:
    """Ask the server at once who it is, and show it."""
    own = keeper().at(url)
    config = known_config(frame.chosen_pair())
    try:
        found = look(client(url), config.to_json() if config else None, own is not None and own.environment.cpu)
    except LabError as error:
        st.error(str(error), icon=":material/link_off:")
        return None
    st.success(frame.plain(found.sentence()), icon=":material/link:")
    for f in found.findings:
        source = f" ({f.source})" if f.source else ""
        st.warning(frame.plain(f"{f.message}{source}"), icon=MARKS[f.severity])
    return found


def served_dtype(url: str) -> str:
    """The dtype a managed server runs in, "" when it is not known."""
    return dtype_of(keeper().at(url))


def prompts() -> tuple[Prompt, ...]:
    """The first so many prompts of every kind."""
    return PromptSet.of_each_kind(st.session_state.get("servers_per_kind") or 1).prompts


def expected_config() -> str:
    """The config to launch with and to expect, as JSON text; "" for the drafter's own."""
    folder = edits.drafter_folder(frame.chosen_pair())
    name = st.session_state.get("servers_config")
    if not folder or not name or name == files.NAME:
        return ""
    return config_text(files.read(folder / name).raw)


def launch_controls() -> None:
    """What to launch; or what is missing for it."""
    there = environment()
    if isinstance(there, str):
        st.info(f"{there} Attach to a server that runs elsewhere until then.", icon=":material/download:")
        return
    folder = edits.drafter_folder(frame.chosen_pair())
    names = sorted((path.name for path in folder.glob("config*.json")), key=lambda n: n != files.NAME) if folder else []
    most = most_drafted(frame.chosen_pair())
    method, k, config, dtype, button = st.columns([2, 2, 3, 2, 2], vertical_alignment="bottom")
    method.selectbox("Method", ["dflash", "mtp", "ngram", "none"], key="servers_method")
    k.number_input("Drafted tokens (K)", 1, 2 * most, min(5, most), key="servers_launch_k")
    config.selectbox(
        "Config", names, key="servers_config", help="Another file than config.json is served as an overlay."
    )
    dtype.selectbox(
        "dtype", ["float32", "bfloat16", "auto"], key="servers_launch_dtype", help="float32 compares exactly."
    )
    button.button(
        "Launch", type="primary", icon=":material/rocket_launch:", on_click=launch, args=(there,), width="stretch"
    )
    kind = "CPU build" if there.cpu else "GPU build"
    st.caption(f"vLLM {there.version}, {kind}, prefix caching off, not compiled. A start takes a minute on a CPU.")
    frame.show_refusal(LAUNCH)


def serving() -> Serving:
    """What the launch controls describe; the pair's own drafter with five tokens where they are not on the page."""
    state = st.session_state
    return Serving(
        frame.chosen_pair().name,
        state.get("servers_method", "dflash"),
        state.get("servers_launch_k", 5),
        expected_config(),
        state.get("servers_launch_dtype", "float32"),
    )


def launch(there: VllmEnvironment) -> None:
    """Queue the launch."""
    what = serving()
    frame.submit(LAUNCH, LaunchTask(what, keeper(), there), f"launching vLLM for {what.pair}")


def managed() -> None:
    """The launch under way, then the managed server: its command, its log, Stop."""
    job = st.session_state.get(f"{LAUNCH}_job")
    snapshot = frame.worker().find(job) if job else None
    if snapshot and snapshot.active:
        frame.follow(snapshot, lambda partial: None)
    elif snapshot:
        frame.show_end(snapshot)
    server = keeper().server
    if server is None:
        return
    with st.container(border=True):
        words, stop = st.columns([5, 1], vertical_alignment="center")
        drafts = server.launch.speculation
        name = f"{drafts.method}, K = {drafts.k}" if drafts.method != "none" else "no drafter"
        words.markdown(f"**Managed vLLM** at {server.url} ({name}, {server.launch.dtype}): {_state(server.alive)}")
        stop.button("Stop", icon=":material/stop_circle:", on_click=keeper().stop, width="stretch")
        with st.expander("Log and command", icon=":material/terminal:"):
            log_tail()
            st.code(server.shell(), language="bash", wrap_lines=True)


def _state(alive: bool) -> str:
    return "its process runs" if alive else "it has ended; the log says why"


@st.fragment(run_every=2.0)
def log_tail() -> None:
    """The last lines of the managed server's log."""
    if server := keeper().server:
        st.code("\n".join(server.log.tail(25)) or "no line yet", language=None, height=300)

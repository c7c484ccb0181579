"""DFlash Lab: the frame around the pages, and the pair they all work on."""

import sys

import streamlit as st

from dflash_lab.access import take_arguments
from dflash_lab.errors import LabError
from pages.lab import frame, keep

st.set_page_config(page_title="DFlash Lab", page_icon="pages/lab/icon.svg", layout="wide")

page = st.navigation(
    [
        st.Page("pages/lab/run.py", title="Run", icon=":material/play_arrow:", default=True),
        st.Page("pages/lab/config.py", title="Config", icon=":material/tune:"),
        st.Page("pages/lab/diagnose.py", title="Diagnose", icon=":material/troubleshoot:"),
        st.Page("pages/lab/sweep.py", title="Sweep", icon=":material/stacked_line_chart:"),
        st.Page("pages/lab/notebook.py", title="Notebook", icon=":material/book_2:"),
        st.Page("pages/lab/servers.py", title="Servers", icon=":material/dns:"),
        st.Page("pages/lab/story.py", title="Guided story", icon=":material/auto_stories:"),
        st.Page("pages/lab/glossary.py", title="Glossary", icon=":material/dictionary:", visibility="hidden"),
    ]
)
try:
    take_arguments(sys.orig_argv)
    with st.sidebar:
        frame.pick_pair()
        keep.baseline()
        keep.warn_unwritable()
        frame.queue()
except LabError as error:
    st.error(str(error), icon=":material/error:")
else:
    page.run()

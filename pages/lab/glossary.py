"""Glossary: every word and figure of the lab, and what other tools mean by it."""

from __future__ import annotations

import streamlit as st

from dflash_lab.guide import glossary

st.title("Glossary")
st.markdown(glossary())

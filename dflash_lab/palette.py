"""The colours of the lab: one meaning, one colour, on every page, in both themes.

Taken from Okabe and Ito's palette (https://jfly.uni-koeln.de/color/), which people with any of the common colour
vision deficiencies can tell apart. Nothing relies on colour alone: text is also underlined or struck out, cells
also carry a symbol.
"""

from __future__ import annotations

GREEN, BLUE, VERMILION, PURPLE = "#009E73", "#0072B2", "#D55E00", "#CC79A7"
ORANGE, SKY, GREY = "#E69F00", "#56B4E9", "#8C96A0"

SERIES = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION)
"""Colours for lines that have no meaning of their own, in this order (also in .streamlit/config.toml)."""

CELLS = {
    "accepted": GREEN,
    "rejected": VERMILION,
    "not reached": GREY,
    "not drafted": "rgba(140, 150, 160, 0.14)",
}
"""What happened to a drafted token (``trace.Cell``)."""

CELL_SYMBOLS = {"accepted": "✓", "rejected": "✗", "not reached": "·", "not drafted": ""}

RATE_SCALE = "Cividis"
"""Plotly colour scale for rates from 0 to 1."""

DIFFERENCE_SCALE = "PuOr"
"""Plotly colour scale for differences of rates, from -1 (orange) to 1 (purple)."""

TEXT_BACKGROUNDS = {
    "accepted": "light-dark(#c9ecdf, #0d4a38)",
    "bonus": "light-dark(#cfe3f5, #123f63)",
    "first": "light-dark(#f3dbe8, #58304a)",
    "plain": "transparent",
    "rejected": "light-dark(#fbdcc8, #6a2f08)",
}
"""Backgrounds behind token text, by origin; the text keeps the theme's own colour."""

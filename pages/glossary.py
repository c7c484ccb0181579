"""A deep link to this page as a fresh server's first request: Streamlit looks here before it has ever run app.py."""

import runpy
from pathlib import Path

runpy.run_path(str(Path(__file__).parents[1] / "app.py"))

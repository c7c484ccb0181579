"""An experiment as a Jupyter notebook (nbformat 4.5): its data inside, and cells that redraw its figures.

The cells import ``dflash_lab``, so they run where the lab's checkout is on the path.
"""

from __future__ import annotations

import base64
import json
import textwrap
from typing import Any

from dflash_lab.store.experiment import Experiment, pack
from dflash_lab.store.figures import figures

LOAD = """\
import base64

from dflash_lab.store.experiment import unpack

experiment = unpack(base64.b64decode(DATA))
experiment.headline"""

TABLE = """\
from dflash_lab.store.compare import Side, metrics

metrics([Side(experiment, series) for series in experiment.series])"""

FIGURES = """\
from dflash_lab.store.figures import figures

drawn = figures(experiment)"""


def notebook(experiment: Experiment) -> str:
    """The .ipynb file's text."""
    data = "\n".join(textwrap.wrap(base64.b64encode(pack(experiment)).decode(), 110))
    words = {"Hypothesis": experiment.hypothesis, "Result": experiment.headline, "Verdict": experiment.verdict}
    head = "\n\n".join([f"# {experiment.title}", *(f"**{name}**: {text}" for name, text in words.items() if text)])
    cells = [
        _markdown(head),
        *([_markdown(experiment.note)] if experiment.note else []),
        _code(f'DATA = """\n{data}\n"""', hidden=True),
        _code(LOAD),
        _code(TABLE),
        _code(FIGURES),
        *(_code(f"drawn[{title!r}]") for title in figures(experiment)),
    ]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    body = {
        "cells": cells,
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(body, indent=1, ensure_ascii=False)


def _markdown(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": text}


def _code(text: str, hidden: bool = False) -> dict[str, Any]:
    metadata = {"jupyter": {"source_hidden": True}} if hidden else {}
    return {"cell_type": "code", "execution_count": None, "metadata": metadata, "outputs": [], "source": text}

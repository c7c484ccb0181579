"""Experiments that outlive the browser tab: what was asked, under which config, what came of it, and what it means.

One SQLite file in the user's data folder. An Experiment is plain data (``experiment.py``); ``Store`` keeps it
(``database.py``, ``migrations.py``); ``collect.py`` makes one from what the worker's tasks return.
"""

from dflash_lab.store.database import Store
from dflash_lab.store.experiment import Experiment, Series

__all__ = ["Experiment", "Series", "Store"]

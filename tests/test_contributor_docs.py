"""What the guides for contributors point at exists."""

from __future__ import annotations

import re
from pathlib import Path
from pkgutil import resolve_name

import pytest

from dflash_lab.guide import DOCS
from tests.test_house import ROOT

GUIDES = [DOCS / "add-a-drafter.md", DOCS / "add-an-engine.md", ROOT / "CONTRIBUTING.md"]


def code(path: Path) -> list[str]:
    return re.findall(r"`([\w./-]+)`", path.read_text())


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.name)
def test_every_dotted_name_can_be_imported(path):
    for name in code(path):
        if name.startswith("dflash_lab."):
            resolve_name(name)


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.name)
def test_every_path_exists(path):
    places = [name for name in code(path) if "/" in name or name.endswith(".py")]
    missing = [p for p in places if not any((root / p).exists() for root in (ROOT, ROOT / "dflash_lab"))]
    assert places and missing == []


def test_the_members_the_tables_explain_are_those_of_the_protocols():
    from dflash_lab.drafters.protocol import Drafter
    from dflash_lab.servers.load import Server

    for path, protocol in ((GUIDES[0], Drafter), (GUIDES[1], Server)):
        explained = set(re.findall(r"^\| `(\w+)` \|", path.read_text(), re.M))
        members = {name for name in dir(protocol) if not name.startswith("_")} | set(protocol.__annotations__)
        assert explained == members

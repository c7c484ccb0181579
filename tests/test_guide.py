"""The guides and the glossary: every page has one, every figure is defined, every link leads somewhere."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from dflash_lab.guide import DOCS, glossary, guide
from dflash_lab.trace import Round, Summary, Trace, summarise
from tests.test_house import ROOT

PAGES = re.findall(r'st\.Page\("pages/lab/(\w+)\.py"', (ROOT / "app.py").read_text())
GUIDED = [page for page in PAGES if page != "glossary"]
TEXTS = sorted(path for path in DOCS.rglob("*.md"))


def names() -> set[str]:
    """What the glossary sets as code."""
    return set(re.findall(r"`(\w+)`", (DOCS / "glossary.md").read_text()))


@pytest.mark.parametrize("page", GUIDED)
def test_every_page_has_a_short_guide_and_shows_it(page):
    text = (DOCS / "guide" / f"{page}.md").read_text()
    assert len(text.splitlines()) <= 25 and text.startswith("# ") and "?" in text.splitlines()[0]
    assert "| figure | meaning |" in text and "\nLimits: " in text
    assert re.search(rf'frame\.heading\(.*, "{page}"\)', (ROOT / f"pages/lab/{page}.py").read_text())


def test_there_is_no_guide_without_a_page():
    assert sorted(path.stem for path in (DOCS / "guide").glob("*.md")) == sorted(GUIDED)


def test_every_figure_of_a_summary_is_in_the_glossary():
    about = {"source", "definition"}
    figures = {f.name for f in fields(Summary)} | {n for n, v in vars(Summary).items() if isinstance(v, property)}
    assert figures - about - names() == set()
    times = {f.name for cls in (Trace, Round) for f in fields(cls) if f.name.endswith("_s")}
    assert times | {"tokens_per_second", "tokens_per_pass"} <= names()


def test_every_figure_of_the_command_lines_json_is_in_the_glossary():
    from types import SimpleNamespace

    from dflash_lab.cli.run import report
    from dflash_lab.measurements import Sweep
    from dflash_lab.methods import Method, MethodResult, _row

    trace = Trace((1,), 2, (), 1)
    run = SimpleNamespace(speculative=trace, plain=trace, lossless=None)
    pair = SimpleNamespace(spec=SimpleNamespace(name=""), tokenizer=SimpleNamespace(decode=lambda *a, **k: ""))
    sweep = Sweep("", "", "", "", "", (1,), (), 1, 1, 1)
    keys = {*report(pair, [run]), *sweep.frame(), *_row(MethodResult(Method("dflash", 1), summarise([])))}
    figures = {re.sub("_(low|high)$", "", key) for key in keys} - {"pair", "definition", "text", "label", "kind"}
    assert figures - names() == set()


def test_every_tool_is_in_the_glossary():
    tools = ("z-lab", "vLLM", "SGLang", "llama.cpp", "speculators", "MTP", "DDTree", "EAGLE", "Spec-Bench")
    assert [tool for tool in tools if tool not in glossary()] == []


def anchors(path: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub and Streamlit make them."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", [*TEXTS, ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda path: path.name)
def test_every_link_of_the_documents_resolves(path):
    for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if not link.startswith("http"):
            file, _, anchor = link.partition("#")
            to = (path.parent / file).resolve() if file else path
            assert to.exists(), link
            assert not anchor or anchor in anchors(to), link


@pytest.mark.parametrize("page", GUIDED)
def test_in_the_app_links_lead_to_pages(page):
    links = re.findall(r"\]\(([^)#]+)(?:#[\w-]+)?\)", guide(page))
    assert links and set(links) <= {*PAGES, "."} and not guide(page).startswith("#")

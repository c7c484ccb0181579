"""Rules of the house that a reader of the tree should be able to rely on."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dflash_lab.cli import parser

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
PACKAGE = sorted((ROOT / "dflash_lab").rglob("*.py"))


def tracked() -> list[Path]:
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for name in names.split("\0") if name and (path := ROOT / name).is_file()]


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return {name.split(".")[0] for name in found}


def test_no_file_points_outside_the_project():
    places = re.compile(r"\.\./" + r"shared|/" + r"work/|/" + r"root/")
    texts = {path for path in tracked() if path.suffix in {".py", ".md", ".toml", ".txt", ".json", ".jsonl", ""}}
    assert [path for path in texts if places.search(path.read_text(errors="replace"))] == []


def test_the_package_imports_neither_streamlit_nor_vllm():
    assert [path for path in PACKAGE if imports(path) & {"streamlit", "vllm", "sglang", "pages"}] == []


def test_every_public_function_and_class_says_what_it_does():
    bare: list[str] = []
    for path in PACKAGE:
        if path.parent.name == "checks":  # there the message of the finding says it
            continue
        for node in ast.parse(path.read_text()).body:
            public = isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
            if public and not ast.get_docstring(node):
                bare.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}")
    assert bare == []


def test_every_page_can_be_a_fresh_servers_first_request():
    pages = set(re.findall(r'st\.Page\("pages/lab/(\w+)\.py"(?!.*default=True)', (ROOT / "app.py").read_text()))
    stubs = {path.stem for path in (ROOT / "pages").glob("*.py")}
    assert pages == stubs, "each page but the first needs its file in pages/, or its link says: page not found"


@pytest.mark.parametrize("page", ["run", "sweep", "config", "notebook", "servers"])
def test_a_page_shows_before_torch_is_imported(page):
    code = (
        "import contextlib, importlib, sys\n"
        "with contextlib.suppress(KeyError):  # drawn outside a session, it has no widgets to read\n"
        "    importlib.import_module(f'pages.lab.{sys.argv[1]}')\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code, page], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-500:]


def test_the_library_example_of_the_readme_runs(demo_target_dir, capsys):
    (example,) = re.findall(r"```python\n(.*?)```", README, re.S)
    exec(compile(example, "README.md", "exec"), {})
    length, verdict = capsys.readouterr().out.strip().split(maxsplit=1)
    assert float(length) > 1.2 and verdict.startswith(("Lossless: all 64 tokens", "Near-tie"))


@pytest.mark.parametrize("line", re.findall(r"^python -m dflash_lab (.*)$", README, re.M))
def test_every_command_of_the_readme_parses(line):
    import shlex

    if line == "--help":
        with pytest.raises(SystemExit) as ended:
            parser().parse_args(["--help"])
        assert ended.value.code == 0
    else:
        assert callable(parser().parse_args(shlex.split(line)).handler)


def test_the_readmes_pictures_and_pages_exist():
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert links and [link for link in links if not link.startswith("http") and not (ROOT / link).exists()] == []

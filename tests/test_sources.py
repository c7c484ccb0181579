"""Finding a model's files: folders, the hub's answers (from a real local HTTP server), a cache with no network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from dflash_lab.errors import LabError
from dflash_lab.paths import SAMPLES
from dflash_lab.sources import Source, fingerprint, read_config

DEMO = SAMPLES / "smollm2-135m-dflash"
ROOT = Path(__file__).resolve().parent.parent

# huggingface_hub reads its endpoint and its cache from the environment when it is imported: a process of its own.
ASK = """
import sys
from dflash_lab.errors import LabError
from dflash_lab.sources import Source
try:
    source = Source(sys.argv[1], sys.argv[2] or None)
    print("folder", source.folder(lambda share, text: None)[0], source.value_counts(), source.config())
except LabError as error:
    print("refused", error)
"""

ANSWERS = {
    "gated": (403, "GatedRepo"),
    "missing": (404, "RepoNotFound"),
    "norevision": (404, "RevisionNotFound"),
    "broken": (500, ""),
}


class Hub(BaseHTTPRequestHandler):
    """Answers as the hub does for the repository names above."""

    def do_GET(self) -> None:
        name = next((name for name in ANSWERS if f"/{name}" in self.path), "missing")
        status, code = ANSWERS[name]
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_GET

    def log_message(self, *args: object) -> None:
        """Keep the tests' output quiet."""


@pytest.fixture(scope="module")
def hub() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def ask(tmp_path: Path, endpoint: str, repo: str, revision: str = "") -> str:
    environment = os.environ | {"HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path), "HF_HUB_DOWNLOAD_TIMEOUT": "2"}
    done = subprocess.run(
        [sys.executable, "-c", ASK, repo, revision],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("repo", "words"),
    [
        ("someone/gated", "gated: the hub gives it only to accounts that accepted its licence"),
        ("someone/missing", "no repository someone/missing on the hub, or it is private"),
        ("someone/norevision", "no revision 'v9'"),
        ("someone/broken", "The hub answered 500 for someone/broken"),
    ],
)
def test_each_refusal_of_the_hub_is_one_sentence(tmp_path, hub, repo, words):
    answer = ask(tmp_path, hub, repo, "v9" if "norevision" in repo else "")
    assert answer.startswith("refused") and words in answer and "\n" not in answer


def test_an_unreachable_hub_is_one_sentence(tmp_path):
    answer = ask(tmp_path, "http://127.0.0.1:9", "someone/model")
    assert answer.startswith("refused The hub cannot be reached, and someone/model is not in this machine's cache.")


def test_a_cached_repository_needs_no_network(tmp_path):
    commit = "0123456789abcdef0123456789abcdef01234567"
    repo = tmp_path / "hub/models--someone--model"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs/main").write_text(commit)
    snapshot = repo / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    save_file({"w": torch.zeros(3, dtype=torch.bfloat16)}, snapshot / "model.safetensors")
    assert ask(tmp_path, "http://127.0.0.1:9", "someone/model") == f"folder {snapshot} {{'BF16': 3}} {{}}"


def test_a_folder_is_its_own_source():
    folder, revision = Source(str(DEMO)).folder(lambda share, text: None)
    assert folder == DEMO and revision == fingerprint(DEMO) and len(revision) == 12
    with safe_open(DEMO / "model.safetensors", "pt") as file:
        values = sum(file.get_tensor(name).numel() for name in file.keys())  # noqa: SIM118
    assert Source(str(DEMO)).value_counts() == {"BF16": values}


@pytest.mark.parametrize("where", ["/no/such/folder", "./nowhere", "~/nowhere-at-all", "a/b/c"])
def test_a_path_that_is_no_folder_is_named(where):
    with pytest.raises(LabError, match="There is no folder"):
        Source(where).folder(lambda share, text: None)


def test_a_name_that_is_neither_folder_nor_hub_id_is_named():
    with pytest.raises(LabError, match="neither a folder nor a hub id"):
        Source("not a model!").config()


def test_a_changed_file_changes_the_fingerprint(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    before = fingerprint(tmp_path)
    (tmp_path / "config.json").write_text('{"a": 1}')
    assert fingerprint(tmp_path) != before


@pytest.mark.parametrize(
    ("content", "words"),
    [('{"a": 1,\n "b": }', "line 2 column 7"), ("[1]", "JSON object"), (None, "has no config.json")],
)
def test_a_config_that_cannot_be_read_is_named(tmp_path, content, words):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(LabError, match=words):
        read_config(tmp_path)


def test_a_config_is_read_as_it_stands():
    assert read_config(DEMO) == json.loads((DEMO / "config.json").read_text())

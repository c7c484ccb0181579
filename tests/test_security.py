"""What a hostile visitor, file, model or server could try, each tried."""

from __future__ import annotations

import json
import tomllib
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from dflash_lab.config import files
from dflash_lab.errors import LabError
from dflash_lab.loading import load_target
from dflash_lab.paths import SAMPLES, data_dir
from dflash_lab.runs import load_run
from dflash_lab.servers.address import check_host, normal_url
from dflash_lab.servers.http import Http
from dflash_lab.store import experiment as stored
from dflash_lab.store.files import file_name, read_file
from dflash_lab.store.report import html
from dflash_lab.sweep import load_sweep
from dflash_lab.tokens import Segment, text_html
from tests.browser.app import Server, serve
from tests.servers.replies import Script, replying
from tests.store.made import experiment

SCRIPT = "<script>alert(1)</script><img src=http://evil.example/a.png onerror=alert(1)>"
IMAGE = "![x](http://evil.example/a.png) :red[x] $x$"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The app as `make run` starts it."""
    with serve(tmp_path_factory.mktemp("app")) as running:
        yield running


@pytest.mark.parametrize("load", [load_run, load_sweep])
@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "..", "%2e%2e/secret", "a/../../secret"])
def test_a_path_in_the_place_of_a_name_leads_nowhere(load, name):
    (data_dir() / "secret.json").write_text('{"secret": 1}')
    with pytest.raises(LabError) as refused:
        load(name)
    assert '"secret": 1' not in str(refused.value)


@pytest.mark.parametrize("path", ["/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/static/..%2f..%2fapp.py"])
def test_the_server_hands_out_no_files(server, path):
    try:
        with urllib.request.urlopen(server.url + path) as answer:
            text = answer.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        text = error.read().decode(errors="replace")
    assert "root:" not in text and "take_arguments" not in text


def test_a_title_cannot_choose_where_a_download_goes():
    assert file_name(experiment("a", title="../../etc/passwd\x00.html")) == "etc-passwd-html.dflash"


def test_a_save_through_a_link_that_leads_out_is_refused(tmp_path):
    outside, folder = tmp_path / "outside.json", tmp_path / "model"
    folder.mkdir()
    outside.write_text("{}")
    (folder / files.NAME).symlink_to(outside)
    with pytest.raises(LabError, match="outside its folder"):
        files.save(files.read(folder), {"a": 1})
    with pytest.raises(LabError, match="already there"):
        files.create(folder / files.NAME, {"a": 1})
    assert outside.read_text() == "{}"


def test_a_bomb_is_not_unpacked(tmp_path):
    bomb = tmp_path / "bomb.dflash"
    bomb.write_bytes(zlib.compress(b" " * (stored.LARGEST + 1)))
    assert bomb.stat().st_size < 200_000
    with pytest.raises(LabError, match="unpacks to more than"):
        read_file(bomb)


@pytest.mark.parametrize("levels", [200, 900, 100_000])
def test_deep_json_is_refused_before_anything_follows_it(levels):
    text = '{"a":' * levels + "1" + "}" * levels
    with pytest.raises(LabError):
        files.parse(text)
    with pytest.raises(LabError):
        stored.unpack(zlib.compress(text.encode()))


def test_uploads_are_small_and_need_the_pages_own_token(server):
    settings = tomllib.loads((SAMPLES.parent / ".streamlit" / "config.toml").read_text())["server"]
    assert settings["maxUploadSize"] <= 5 and settings["address"] == "127.0.0.1"
    request = urllib.request.Request(
        f"{server.url}/_stcore/upload_file/session/file", b"x" * 1000, {"Content-Type": "text/plain"}, method="PUT"
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request)
    assert refused.value.code in (400, 403)


@pytest.mark.parametrize("text", [SCRIPT, IMAGE])
def test_a_models_text_is_drawn_as_text(text):
    drawn = text_html((Segment(0, 1, text),), ("bonus",))
    report = html([experiment("a", title=text, note=text, hypothesis=text)])
    for page in (drawn, report):
        assert "<img src=http" not in page and "<script>alert" not in page


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://host", "http://", "http://host:0", "http://user:secret@host", "gopher://x/"]
)
def test_an_address_that_is_no_servers_is_refused(url):
    with pytest.raises(LabError) as refused:
        normal_url(url)
    assert "user:secret" not in str(refused.value)


@pytest.mark.parametrize("host", ["169.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]"])
def test_a_clouds_own_address_is_never_called(host):
    with pytest.raises(LabError, match="link-local"):
        Http(f"http://{host}/latest/meta-data")
    check_host("http://127.0.0.1:8000")


def test_a_redirect_is_not_followed():
    with replying(Script()) as inner:

        class Redirect(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(302)
                self.send_header("Location", f"{inner}/v1/models")
                self.end_headers()

        with HTTPServer(("127.0.0.1", 0), Redirect) as outer:
            Thread(target=outer.handle_request, daemon=True).start()
            with pytest.raises(LabError, match="redirects to another address"):
                Http(f"http://127.0.0.1:{outer.server_port}").json("/v1/models")


def test_a_config_that_brings_code_runs_none_of_it(tmp_path):
    mark = tmp_path / "ran"
    (tmp_path / "code.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    config = {"model_type": "custom", "auto_map": {"AutoConfig": "code.C", "AutoModelForCausalLM": "code.M"}}
    (tmp_path / files.NAME).write_text(json.dumps(config))
    with pytest.raises(LabError, match="cannot load the target"):
        load_target(tmp_path, "float32", "cpu")
    assert not mark.exists()


def test_a_foreign_page_cannot_talk_to_the_app(server):
    address = f"ws{server.url[4:]}/_stcore/stream"
    with pytest.raises(InvalidStatus) as refused:
        connect(address, origin="https://evil.example", subprotocols=["streamlit"])
    assert refused.value.response.status_code == 403
    with connect(address, origin=server.url, subprotocols=["streamlit"]):
        pass


def test_every_answer_has_the_headers(server):
    with urllib.request.urlopen(server.url) as answer:
        policy = answer.headers["Content-Security-Policy"]
        assert "img-src 'self' data: blob:" in policy and "frame-ancestors 'self'" in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_it_works_behind_a_base_path(tmp_path):
    with serve(tmp_path, base="/lab") as running:
        for page in ("/", "/sweep"):
            with urllib.request.urlopen(running.url + page) as answer:
                assert answer.status == 200 and "<title>" in answer.read().decode()
        home = running.url.removesuffix("/lab")
        with connect(f"ws{running.url[4:]}/_stcore/stream", origin=home, subprotocols=["streamlit"]):
            pass

"""A first start where something is missing: the page says what to do, and what can work does."""

from __future__ import annotations

import pytest

from tests.app.test_pages import app, button, until_done

__all__ = ["app"]


@pytest.mark.slow
def test_without_write_access_a_run_ends_all_the_same_and_the_app_says_what_to_do(app, monkeypatch):
    monkeypatch.setenv("DFLASH_LAB_DATA", "/dev/null/lab")
    app.number_input(key="tokens").set_value(4).run()
    assert "data folder cannot be written" in app.sidebar.warning[0].value
    assert any("DFLASH_LAB_DATA" in t.value for t in app.sidebar.text)
    button(app, "Run").click().run()
    until_done(app)
    assert not app.exception and not app.error and app.metric[0].label == "Acceptance length"
    page = app.switch_page("pages/lab/notebook.py").run()
    assert not page.exception and "The notebook cannot be shown" in page.error[0].value


def test_without_network_and_cache_the_demo_pair_says_what_to_do(app, monkeypatch, tmp_path):
    monkeypatch.setenv("DFLASH_LAB_CACHE", str(tmp_path / "cache"))
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    app.number_input(key="tokens").set_value(4).run()
    button(app, "Run").click().run()
    until_done(app)
    assert not app.exception and len(app.error) == 1
    assert "Traceback" not in app.error[0].value and ". " in app.error[0].value

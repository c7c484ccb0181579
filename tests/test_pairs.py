"""The presets, and what a preset that is wrong is told."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from dflash_lab import pairs
from dflash_lab.errors import LabError
from dflash_lab.paths import SAMPLES
from dflash_lab.published import known_config, most_drafted


def test_the_demo_comes_first_and_every_preset_names_a_known_drafter():
    specs = pairs.list_pairs()
    assert specs[0].name == pairs.DEMO_PAIR and specs[0].target == pairs.DEMO_TARGET
    assert len({spec.name for spec in specs}) == len(specs) > 8
    for spec in specs:
        assert spec.title and spec.notes
        assert known_config(spec) is not None, f"{spec.name}: {spec.drafter} is not in sample_configs"
        assert 7 <= most_drafted(spec) <= 15


def test_an_unknown_name_gets_the_closest():
    with pytest.raises(LabError, match=r"no pair 'qwen3-8'. Closest: .*qwen3-8b"):
        pairs.get_pair("qwen3-8")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('target = "demo"\ndrafter = "x"\ndevice = "tpu"', r"bad\.toml: device is 'tpu'.*Correct device"),
        ('target = "demo"', r"bad\.toml: drafter"),
        ('target = "demo"\ndrafter = "x"\ncolour = "red"', r"bad\.toml: colour is 'red'"),
        ('target = \ndrafter = "x"', r"bad\.toml is not valid TOML.*line 1"),
    ],
)
def test_a_preset_that_is_wrong_names_file_field_and_value_and_hides_no_other(tmp_path, monkeypatch, text, words):
    monkeypatch.setenv("DFLASH_LAB_DATA", str(tmp_path))
    (tmp_path / "pairs").mkdir()
    (tmp_path / "pairs/bad.toml").write_text(text)
    with pytest.raises(LabError, match=words):
        pairs.get_pair("bad")
    (problem,) = pairs.broken_presets()
    assert re.search(words, str(problem))
    assert pairs.list_pairs()[0].target == pairs.DEMO_TARGET


def test_presets_of_your_own_are_read_from_the_data_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DFLASH_LAB_DATA", str(tmp_path))
    (tmp_path / "pairs").mkdir()
    (tmp_path / "pairs/mine.toml").write_text(f'target = "demo"\ndrafter = "{SAMPLES / "smollm2-135m-dflash"}"')
    assert pairs.get_pair("mine").drafter.endswith("smollm2-135m-dflash")
    assert pairs.list_pairs()[0].name == pairs.DEMO_PAIR, "what the app opens with stays the built-in pair"


def test_listing_pairs_imports_no_torch():
    code = "import sys; from dflash_lab.pairs import list_pairs; list_pairs(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=SAMPLES.parent, timeout=60).returncode == 0

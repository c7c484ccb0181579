"""Edits of a config: fields, links, layers; what does not fit is refused and nothing is lost."""

from __future__ import annotations

import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dflash_lab import edits
from dflash_lab.config.fields import FIELDS
from dflash_lab.config.schema import DrafterConfig
from dflash_lab.errors import LabError
from dflash_lab.pairs import get_pair
from dflash_lab.paths import SAMPLES

RAW = json.loads((SAMPLES / "smollm2-135m-dflash/config.json").read_text())
GUESSED = json.loads((SAMPLES / "smollm2-135m-dflash/config.guessed.json").read_text())


def test_every_field_of_the_schema_has_its_place_once():
    groups = edits.groups(DrafterConfig.from_json(RAW))
    placed = [name for names in groups.values() for name in names]
    assert len(placed) == len(set(placed))
    assert set(placed) <= edits.known_fields() <= set(FIELDS) | set(placed)


def test_a_field_is_written_where_the_file_keeps_it():
    edited = edits.set_field(RAW, "mask_token_id", 2)
    assert edited["dflash_config"]["mask_token_id"] == 2 and "mask_token_id" not in edited
    assert RAW["dflash_config"]["mask_token_id"] != 2, "the original is not touched"


@given(st.sampled_from(["sliding_window", "mask_token_id", "rope_theta"]), st.integers(1, 1000))
def test_an_edit_survives_its_link(field, value):
    edited = edits.set_field(RAW, field, value)
    assume(edited != RAW)
    assert edits.from_link(edits.to_link(RAW, edited), RAW) == edited


def test_no_edit_has_no_link_and_a_broken_one_is_refused():
    assert edits.to_link(RAW, RAW) == ""
    for link in ("{", '[{"op": "replace", "path": "/no/such", "value": 1}]', '"text"'):
        with pytest.raises(LabError):
            edits.from_link(link, RAW)


def test_the_three_fields_of_the_story_are_the_differences():
    fields = {finding.field for finding in edits.differences(GUESSED, RAW)}
    assert {"mask_token_id", "target_layer_ids", "layer_types"} <= fields
    assert edits.differences(RAW, RAW) == []


def test_taking_a_field_from_the_reference_leaves_the_others():
    taken = edits.take(GUESSED, RAW, "mask_token_id")
    assert DrafterConfig.from_json(taken).mask_token_id == DrafterConfig.from_json(RAW).mask_token_id
    assert DrafterConfig.from_json(taken).taps == DrafterConfig.from_json(GUESSED).taps


def test_the_demos_folders_are_found_without_loading():
    spec = get_pair("smollm2-demo")
    assert edits.drafter_folder(spec) == SAMPLES / "smollm2-135m-dflash"
    assert edits.drafter_folder(get_pair("qwen3-8b")) is None or edits.drafter_folder(get_pair("qwen3-8b")).is_dir()

"""Differences: a patch brings one file to the other and can be carried to another drafter."""

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_lab.config.patch import apply, compare, diff
from dflash_lab.config.schema import DrafterConfig
from dflash_lab.errors import LabError
from tests.config import published

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=3), VALUES, max_size=5)


@settings(max_examples=300, deadline=None)
@given(OBJECTS, OBJECTS)
def test_a_patch_turns_before_into_after_and_survives_storage(before, after):
    kept = copy.deepcopy(before)
    patch = json.loads(json.dumps(diff(before, after)))
    assert json.dumps(apply(patch, before), sort_keys=True) == json.dumps(after, sort_keys=True)
    assert before == kept


def test_an_edit_of_one_drafter_can_be_carried_to_another():
    raw = published.raw("Qwen3.6-27B-DFlash")
    patch = diff(raw, DrafterConfig.from_json(raw).edited(mask_token_id=7).to_json())
    assert patch == [{"op": "replace", "path": "/dflash_config/mask_token_id", "value": 7}]
    other = apply(patch, published.raw("Qwen3-8B-DFlash-b16"))
    assert DrafterConfig.from_json(other).mask_token_id == 7


@pytest.mark.parametrize("patch", [[{"op": "remove", "path": "/nope"}], [{"op": "?"}], [{"path": "/a"}], ["x"], "x"])
def test_a_patch_that_does_not_fit_is_refused(patch):
    with pytest.raises(LabError):
        apply(patch, {"a": 1})


def test_comparison_is_by_field_whatever_the_dialect():
    raw = published.raw("Qwen3.6-27B-DFlash")
    nested = DrafterConfig.from_json(raw).edited(mask_token_id=7).to_json("nested")
    assert [(d.field, d.here, d.there) for d in compare(raw, nested)] == [
        ("dialect", "legacy", "nested"),
        ("mask_token_id", 248070, 7),
    ]


def test_files_that_cannot_be_read_are_compared_by_key():
    assert [d.field for d in compare({"a": 1}, {"a": 2, "b": 3})] == ["a", "b"]

"""Prompt sets: what ships, and what a broken line says."""

from collections import Counter
from pathlib import Path

import pytest

from dflash_lab.errors import LabError
from dflash_lab.prompts import load_prompts

TEST_PROMPTS = Path(__file__).parent / "data" / "prompts.jsonl"
GOOD = '{"id": "a", "kind": "chat", "prompt": "Hello"}'


def test_the_bundled_set_has_three_prompts_of_each_kind():
    kinds = Counter(prompt.kind for prompt in load_prompts())
    assert kinds == {"chat": 3, "code": 3, "maths": 3, "story": 3}


def test_the_test_prompts_are_others():
    bundled = {prompt.prompt for prompt in load_prompts()}
    tests = load_prompts(TEST_PROMPTS)
    assert len(tests) == 6
    assert bundled.isdisjoint(prompt.prompt for prompt in tests)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (GOOD + "\n\n{broken", "line 3: Invalid JSON"),
        (GOOD + "\n" + '{"id": "b", "kind": "poem", "prompt": "x"}', "line 2: field kind: Input should be"),
        ('{"id": "b", "kind": "chat"}', "line 1: field prompt: Field required"),
        ('{"id": "b", "kind": "chat", "prompt": "x", "k": 5}', "line 1: field k: Extra inputs"),
        ('{"id": "b", "kind": "chat", "prompt": ""}', "line 1: field prompt: String should have at least 1"),
        (GOOD + "\n" + GOOD, "line 2: the id 'a' is used twice"),
        ("\n", "has no prompts"),
    ],
)
def test_a_broken_prompt_file_is_refused_with_its_line(tmp_path, text, expected):
    path = tmp_path / "prompts.jsonl"
    path.write_text(text)
    with pytest.raises(LabError) as refusal:
        load_prompts(path)
    assert str(path) in str(refusal.value)
    assert expected in str(refusal.value)


def test_a_missing_prompt_file_is_named(tmp_path):
    with pytest.raises(LabError, match="none.jsonl cannot be read"):
        load_prompts(tmp_path / "none.jsonl")

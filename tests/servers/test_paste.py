"""Pasted lines, in the wording their engines printed them in."""

from __future__ import annotations

import pytest

from dflash_lab.errors import LabError
from dflash_lab.servers.paste import read_pasted
from tests.servers.replies import counters

VLLM = (
    "(APIServer pid=7) INFO 09-09 11:51:35 [metrics.py:96] SpecDecoding metrics: Draft acceptance rate: 88.8%, Mean "
    "acceptance length: 5.44, Accepted throughput: 4.37 tokens/s, Drafted throughput: 4.92 tokens/s, Accepted: 262 "
    "tokens, Drafted: 295 tokens, Per-position acceptance rate: 0.983, 0.949, 0.915, 0.881, 0.712"
)
OLD_VLLM = "INFO SpecDecoding metrics: Draft acceptance rate: 100.0%, Accepted: 66 tokens, Drafted: 66 tokens"
LLAMA = (
    "0.06.896.015 I slot print_timing: id  1 | task 0 | draft acceptance = 0.64479 (  167 accepted /   259 generated), "
    "mean acceptance length =  2.92, acceptance rate per position = (0.805, 0.632, 0.483)"
)
OLD_LLAMA = "draft acceptance rate = 0.69953 (  149 accepted /   213 generated)"
SGLANG = (
    "[2025-03-24 02:56:41 TP0] Decode batch. #running-req: 32, #token: 7352, token usage: 0.01, accept len: 2.54, "
    "gen throughput (token/s): 39.33, largest-len: 0, #queue-req: 68, "
)


def test_vllms_line_gives_rounds_rates_and_length():
    pasted = read_pasted(VLLM)
    s = pasted.summary
    assert (pasted.engine, pasted.lines, s.drafts, s.accepted, s.drafted) == ("vLLM", 1, 59, 262, 295)
    assert s.acceptance_length == pytest.approx(5.44, abs=0.005)
    assert [round(r.value, 3) for r in s.per_position] == [0.983, 0.949, 0.915, 0.881, 0.712]
    assert sum(s.accepted_at) == s.accepted


def test_lines_are_pooled_by_their_rounds():
    none = VLLM.replace("5.44", "1.00").replace("Accepted: 262", "Accepted: 0")
    none = none[: none.index("Per-position")] + "Per-position acceptance rate: 0.000, 0.000, 0.000, 0.000, 0.000"
    both = read_pasted(f"{VLLM}\n{none}").summary
    assert both.drafts == 59 + 295 // 5 and both.acceptance_length == pytest.approx(1 + 262 / 118)


def test_an_old_line_has_a_rate_and_no_length():
    pasted = read_pasted(OLD_VLLM)
    assert pasted.acceptance_length is None and pasted.summary.draft_acceptance_rate == 1.0


def test_a_metrics_page_gives_exact_counts():
    pasted = read_pasted(counters(10, 20, 6, 3))
    assert (pasted.summary.drafts, pasted.summary.accepted_at, pasted.acceptance_length) == (10, (6, 3), 1.9)


def test_llamas_line_old_and_new():
    new = read_pasted(LLAMA)
    assert new.engine == "llama.cpp" and new.summary.drafts == 87
    assert new.acceptance_length == pytest.approx(2.92, abs=0.005)
    assert sum(new.summary.accepted_at) == 167
    old = read_pasted(OLD_LLAMA)
    assert old.acceptance_length is None and old.summary.draft_acceptance_rate == pytest.approx(0.6995, abs=1e-4)


def test_sglangs_lines_have_no_counts():
    pasted = read_pasted(f"{SGLANG}\n{SGLANG.replace('2.54', '3.54')}")
    assert pasted.summary is None and pasted.acceptance_length == pytest.approx(3.04) and pasted.lines == 2
    assert "not weighed" in pasted.definition


@pytest.mark.parametrize(
    ("text", "words"), [("", "No acceptance figures"), ("hello", "No acceptance figures"),
                        (f"{VLLM}\n{SGLANG}", "lines of vLLM and SGLang")]
)  # fmt: skip
def test_text_that_says_nothing_or_too_much_is_refused(text, words):
    with pytest.raises(LabError, match=words):
        read_pasted(text)

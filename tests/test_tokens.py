"""Token text: whole characters, visible whitespace, nothing the browser could run."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dflash_lab.tokens import BROKEN, Detokenizer, Segment, Wording, hovers, pages, piece, text_html, visible, word
from dflash_lab.trace import Round, Trace


class ByteTokenizer:
    """One token a byte, two more for the stop token and a sentencepiece-like word."""

    all_special_ids = (256,)

    def decode(self, ids, **options):
        out, run = "", []
        for token in [*ids, None]:
            if token is not None and token < 256:
                run.append(token)
                continue
            out += bytes(run).decode("utf-8", errors="replace")
            run = []
            out += {256: "<|end|>", 257: "word", None: ""}[token]
        return out

    def convert_ids_to_tokens(self, token):
        from dflash_lab.tokens import _byte_alphabet

        return {256: "<|end|>", 257: "▁word"}.get(token) or {b: c for c, b in _byte_alphabet().items()}[token]


TOKENIZER = ByteTokenizer()


def segments(ids):
    detokenizer = Detokenizer(TOKENIZER)
    detokenizer.extend(ids)
    return detokenizer.finish()


@given(st.text(st.characters(exclude_characters=BROKEN, exclude_categories=["Cs"])))
def test_segments_cover_every_token_once_and_spell_the_text(text):
    ids = list(text.encode())
    found = segments(ids)
    assert "".join(s.text for s in found) == text
    assert [s.start for s in found] == [0, *(s.stop for s in found[:-1])][: len(found)]
    assert (found[-1].stop if found else 0) == len(ids)


def test_a_character_of_four_tokens_is_one_segment():
    assert segments("a🦊b".encode()) == (Segment(0, 1, "a"), Segment(1, 5, "🦊"), Segment(5, 6, "b"))


def test_bytes_that_never_become_a_character_are_shown_as_bytes():
    assert segments([0xF0, 0x9F]) == (Segment(0, 2, "⟨F0⟩⟨9F⟩"),)
    assert [s.text for s in segments([0xF0, 0x9F, 256])] == ["⟨F0⟩⟨9F⟩", "<|end|>"]
    assert BROKEN not in "".join(s.text for s in segments([0xF0] * 40))


def test_special_tokens_are_marked_and_left_out_of_the_text():
    found = segments([65, 256])
    assert found[1] == Segment(1, 2, "<|end|>", special=True)
    assert Wording(found).text == "A"


def test_pieces_keep_the_space_that_sentencepiece_drops():
    assert piece(TOKENIZER, 257) == " word" and piece(TOKENIZER, 0x20) == " "


def trace():
    rounds = (
        Round(65, 3, 3, (66, 67), (66, 68, 69), 1, (66, 68), 68, "none", (0.9, 0.25), (0.8, 0.125), (0, 3)),
        Round(68, 5, 3, (69, 70), (69, 70, 71), 2, (69, 70, 71), 71, "limit", (1, 1), (1, 1), (0, 0)),
    )
    return Trace((1, 2, 3), 65, rounds, k=2, end="limit")


def test_every_output_token_has_a_line_with_round_probabilities_and_rank():
    t = trace()
    lines = hovers(t, word(TOKENIZER, t))
    assert len(lines) == len(t.output_ids) == 6
    assert lines[1] == (
        "round 1: accepted at position 0; drafter 90.0%, target 80.0%; the target's choice was the drafter's number 1"
    )
    assert "instead of “C” at position 1; drafter 25.0%, target 12.5%" in lines[2]
    assert lines[2].endswith("number 4") and "bonus after all 2" in lines[5]


def test_html_escapes_text_and_titles_and_marks_by_more_than_colour():
    html = text_html((Segment(0, 1, "<img src=x>"), Segment(1, 2, " a\n")), ("accepted", "bonus"), ('"><script>', "ok"))
    assert "<img" not in html and "<script" not in html and "&lt;img<i>·</i><wbr>src=x&gt;" in html
    assert 'class="lab-bonus"' in html and "⏎" in html
    assert ".lab-bonus{background" in html and "underline" in html


def test_a_segment_of_two_tokens_takes_the_look_of_the_last_and_both_titles():
    html = text_html((Segment(0, 2, "é"),), ("accepted", "bonus"), ("one", "two"), chosen=range(1, 2))
    assert 'class="lab-bonus lab-chosen" title="one\ntwo"' in html


def test_whitespace_is_visible():
    assert visible(" a\tb\n") == "·a⇥b⏎" and visible("") == "∅"


def test_long_texts_are_paged_without_losing_a_segment():
    many = tuple(Segment(n, n + 1, "x") for n in range(4500))
    parts = pages(many)
    assert [len(p) for p in parts] == [2000, 2000, 500] and sum(parts, ()) == many
    assert pages(()) == ((),)


def test_a_wording_names_every_id_a_trace_mentions():
    words = word(TOKENIZER, trace())
    assert words.text == "ABDEFG" and words.name(67) == "C" and words.name(200) == "#200"

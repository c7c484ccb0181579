"""The round's table: every number at its position, everything escaped, nothing shown that was not measured."""

from __future__ import annotations

from dflash_lab.ladder import round_html
from dflash_lab.tokens import Wording
from dflash_lab.trace import Alternatives, Round

WORDS = Wording((), {1: "<script>", 2: " two", 3: "three", 4: "four"})
TOP = Alternatives((2, 4), (0.75, 0.125))
ROUND = Round(
    9, 5, 4, (1, 2, 3), (1, 4, 3, 2), 1, (1, 4), 4, "none", (0.5, 0.4, 0.3), (0.6, 0.1, 0.2), (0, 2, 0),
    draft_alternatives=(TOP,) * 3, target_alternatives=(TOP,) * 4,
)  # fmt: skip


def test_the_three_outcomes_and_the_bonus_are_in_their_columns():
    html = round_html(ROUND, WORDS)
    assert html.count('class="lab-yes"') == html.count('class="lab-no"') == 1
    assert html.index("✓ accepted") < html.index("✗ rejected") < html.index("· not reached")
    assert html.count('class="lab-bonus-cell"') == 1 and "number 3" in html and "40.0%" in html


def test_model_text_is_escaped():
    assert "<script>" not in round_html(ROUND, WORDS) and "&lt;script&gt;" in round_html(ROUND, WORDS)


def test_a_picked_position_is_outlined_in_every_row():
    assert round_html(ROUND, WORDS).count("lab-picked") == 1, "the style alone"
    assert round_html(ROUND, WORDS, picked=1).count("lab-picked") == 10


def test_rows_without_data_are_left_out():
    bare = Round(9, 5, 4, (1, 2, 3), (1, 4, 3, 2), 3, (1, 2, 3), None, "eos")
    html = round_html(bare, WORDS)
    assert "most probable" not in html and "p(drafted)" not in html and "<td" in html and ">bonus<" not in html

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodecheck.facts import Absent, Why
from nodecheck.facts.measurements import Conditions
from nodecheck.report.text import LONGEST, conditions, plain, plural, shown, size

any_text = st.text(st.characters(exclude_categories=()), max_size=200)


@given(any_text)
def test_plain_text_is_one_printable_line_and_loses_nothing(text: str) -> None:
    made = plain(text)
    assert made.isprintable()
    printable = [c for c in text if c.isprintable()]
    rest = iter(made)
    assert all(c in rest for c in printable)  # in order
    assert text.isprintable() is (made == text)


def test_direction_marks_and_escapes_are_written_out() -> None:
    assert plain("a\x1b[31m\u202eb\nc\x00\ud800") == "a\\x1b[31m\\u202eb\\nc\\x00\\ud800"


def test_long_text_is_cut_and_says_so() -> None:
    made = plain("x" * (LONGEST + 5))
    assert made.startswith("x" * LONGEST)
    assert made.endswith("(5 more characters in report.json)")


def test_values_read_as_people_write_them() -> None:
    assert shown(143771, "MiB") == "143771 MiB"
    assert shown(700.0, "W") == "700 W"
    assert shown(True) == "yes"
    assert shown(()) == "none"
    assert shown(("sm_90", "sm_100")) == "sm_90, sm_100"
    assert shown(None) == "–"
    assert shown(64 * 1024**2, "bytes") == "64 MiB"
    assert shown(Absent(why=Why.no_permission, detail="EPERM")) == "not seen (no permission: EPERM)"
    assert plural(1, "card") == "1 card"
    assert plural(0, "card") == "0 cards"


@given(st.one_of(st.integers(), st.floats()))
def test_any_size_can_be_written(count: float) -> None:
    assert size(count)


def test_sizes() -> None:
    assert size(150754820096) == "140.4 GiB"
    assert size(512) == "512 bytes"
    assert size(10**400) == f"{10**400} bytes"
    assert size(math.inf) == "inf bytes"


@pytest.mark.parametrize(
    ("at", "words"),
    [
        (Conditions(), ""),
        (Conditions(shape="8192x8192x8192", sustained=True), "8192³, sustained"),
        (Conditions(shape="2048x2048x13312"), "2048 × 2048 × 13312"),
        (
            Conditions(size_bytes=512 * 2**20, pinned=False, together=True),
            "512 MiB, pageable, all cards at once",
        ),
        (
            Conditions(size_bytes=8, dtype="bfloat16", ranks=2, in_place=False),
            "8 B, bfloat16, 2 ranks, out of place",
        ),
    ],
)
def test_conditions_in_words(at: Conditions, words: str) -> None:
    assert conditions(at) == words

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodecheck.facts import Absent, Why
from nodecheck.probes.text import MAX_CPUS, number, number_list, parse, unescape_octal, word
from tests.fakes.tree import ranges


def test_nonsense_is_an_answer_that_failed() -> None:
    assert parse("5\n", number) == 5
    answer = parse("5 apples" + "x" * 500, number)
    assert isinstance(answer, Absent)
    assert answer.why is Why.failed
    assert len(answer.detail) < 150
    missing = Absent(why=Why.not_present)
    assert parse(missing, number) is missing


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0\n", 0),
        ("-1\n", -1),
        (" 18446744073709551615 ", 2**64 - 1),
        ("18446744073709551616", None),
        ("9" * 5000, None),
        ("", None),
        ("1 2", None),
        ("0x10", None),
        ("١", None),
        ("1.5", None),
    ],
)
def test_numbers(text: str, value: int | None) -> None:
    assert number(text) == value


@pytest.mark.parametrize(
    ("text", "count"),
    [("0-31,64-95\n", 64), ("0\n", 1), ("0-3,2-5", 6), ("\n", 0), (f"0-{MAX_CPUS - 1}", MAX_CPUS)],
)
def test_lists(text: str, count: int) -> None:
    numbers = number_list(text)
    assert numbers is not None
    assert len(numbers) == count


@pytest.mark.parametrize(
    "text", ["0-", "3-1", "a", "0-99999999", f"0-{MAX_CPUS}", "1,,2", "-5", "0-1-2", "1 2"]
)
def test_lists_that_are_none(text: str) -> None:
    assert number_list(text) is None


@given(st.sets(st.integers(0, MAX_CPUS - 1), min_size=1, max_size=200))
def test_a_list_as_the_kernel_writes_it_is_read_back(numbers: set[int]) -> None:
    assert number_list(ranges(sorted(numbers)) + "\n") == tuple(sorted(numbers))


@given(st.text(max_size=60))
def test_no_text_raises(text: str) -> None:
    for read in (number, number_list, word, unescape_octal):
        read(text)


@given(st.text(alphabet=st.characters(codec="ascii"), max_size=30))
def test_escaped_places_are_read_back(place: str) -> None:
    escaped = "".join(f"\\{ord(c):03o}" if c in " \t\n\\" else c for c in place)
    assert unescape_octal(escaped) == place


def test_a_word_is_one_line_of_bounded_length() -> None:
    assert word("  AMD   EPYC \n") == "AMD EPYC"
    assert word(" \n") is None
    assert len(word("x" * 10_000) or "") == 256

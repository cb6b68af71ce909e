"""The patterns of slow pairs, groups and ranks, and what each must be put down to."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodecheck.facts import NOT_ASKED
from nodecheck.facts.measurements import Figure
from nodecheck.judge import attribution
from nodecheck.judge.attribution import Attribution

Subject = Literal["card", "pair", "group", "disk"]

GOOD, SLOW = 390.0, 180.0

CARDS = tuple(f"GPU-{letter}" for letter in "abcdefgh")


def figure(measure: str, subject: Subject, cards: tuple[str, ...], rate: float, name: str = "") -> Figure:
    return Figure(
        measure=measure,
        stage="pairs" if subject == "pair" else "collectives",
        subject=subject,
        cards=cards,
        name=name,
        unit="GB/s",
        median=rate,
        p5=rate,
        p95=rate,
        repetitions=8,
        load=NOT_ASKED,
    )


def matrix(cards: tuple[str, ...], slow: Callable[[str, str], bool]) -> list[Figure]:
    """Every ordered pair; the good ones differ a little, as real ones do."""
    return [
        figure("pairs.one_way", "pair", (a, b), SLOW if slow(a, b) else GOOD + place % 7 / 10)
        for place, (a, b) in enumerate(permutations(cards, 2))
    ]


def kinds(found: tuple[Attribution, ...]) -> list[tuple[str, tuple[str, ...]]]:
    return [(one.kind, one.cards) for one in found]


@pytest.mark.parametrize("count", [2, 3, 4, 8])
def test_pairs_that_are_all_alike_say_nothing(count: int) -> None:
    assert attribution.pairs(matrix(CARDS[:count], lambda a, b: False)) == ()
    assert attribution.pairs(matrix(CARDS[:count], lambda a, b: True)) == ()
    assert attribution.pairs([]) == ()


@pytest.mark.parametrize("count", [3, 4, 8])
@pytest.mark.parametrize("bad", [0, 1, 2])
def test_a_slow_row_and_column_are_a_card(count: int, bad: int) -> None:
    card = CARDS[bad]
    (found,) = attribution.pairs(matrix(CARDS[:count], lambda a, b: card in (a, b)))
    assert (found.kind, found.cards) == ("card", (card,))
    assert card in found.sentence and "180 GB/s" in found.sentence and "390" in found.sentence


def test_two_slow_cards_are_both_named() -> None:
    bad = {CARDS[1], CARDS[2]}
    found = attribution.pairs(matrix(CARDS[:5], lambda a, b: bool(bad & {a, b})))
    assert sorted(kinds(found)) == [("card", (CARDS[1],)), ("card", (CARDS[2],))]


@pytest.mark.parametrize(("way", "words"), [(0, "from it"), (1, "to it")])
def test_a_card_that_only_sends_or_only_receives_slowly(way: int, words: str) -> None:
    (found,) = attribution.pairs(matrix(CARDS[:4], lambda a, b: (a, b)[way] == CARDS[3]))
    assert (found.kind, found.cards) == ("card", (CARDS[3],))
    assert f"slow {words}" in found.sentence


def test_one_slow_pair_is_a_link() -> None:
    bad = {CARDS[0], CARDS[5]}
    (found,) = attribution.pairs(matrix(CARDS, lambda a, b: {a, b} == bad))
    assert (found.kind, found.cards) == ("link", (CARDS[0], CARDS[5]))
    assert "both directions" in found.sentence


def test_one_slow_direction_is_said_as_such() -> None:
    (found,) = attribution.pairs(matrix(CARDS[:4], lambda a, b: (a, b) == (CARDS[2], CARDS[1])))
    assert (found.kind, found.cards) == ("link", (CARDS[1], CARDS[2]))
    assert f"from {CARDS[2]} to {CARDS[1]}, not back" in found.sentence


def test_of_two_cards_nobody_knows_which() -> None:
    (found,) = attribution.pairs(matrix(CARDS[:2], lambda a, b: a == CARDS[0]))
    assert found.kind == "link" and "nobody can tell" in found.sentence


@pytest.mark.parametrize("sizes", [(2, 2), (4, 4), (2, 3), (2, 6)])
def test_a_slow_block_is_a_split(sizes: tuple[int, int]) -> None:
    cards = CARDS[: sum(sizes)]
    first = set(cards[: sizes[0]])
    figures = matrix(cards, lambda a, b: (a in first) != (b in first))
    (found,) = attribution.pairs(figures)
    assert (found.kind, found.cards) == ("split", cards[: sizes[0]])
    (found,) = attribution.pairs(figures, {card: int(card in first) for card in cards})
    assert "NUMA" in found.sentence


def test_a_split_and_a_slow_pair_within_are_not_called_a_split() -> None:
    first = set(CARDS[:2])
    found = attribution.pairs(
        matrix(CARDS[:6], lambda a, b: (a in first) != (b in first) or {a, b} == {CARDS[2], CARDS[3]})
    )
    assert found and all(one.kind != "split" for one in found)


def test_an_order_of_the_cards_does_not_matter_for_a_split() -> None:
    first = {CARDS[0], CARDS[3]}
    (found,) = attribution.pairs(matrix(CARDS[:4], lambda a, b: (a in first) != (b in first)))
    assert found.kind == "split" and set(found.cards) in (first, {CARDS[1], CARDS[2]})


@given(st.lists(st.tuples(st.sampled_from(CARDS), st.sampled_from(CARDS), st.floats(0, 1e4)), max_size=40))
def test_any_matrix_is_explained_to_the_last_slow_pair(entries: list[tuple[str, str, float]]) -> None:
    figures = [figure("pairs.one_way", "pair", (a, b), rate) for a, b, rate in entries if a != b]
    found = attribution.pairs(figures)
    assert all(one.sentence and set(one.cards) <= set(CARDS) for one in found)


# Groups.


def group(name: str, cards: tuple[str, ...], rate: float) -> Figure:
    return figure("all_reduce.busbw", "group", cards, rate, name)


ALL = group("all", CARDS[:4], 200.0)
FIRST, SECOND = group("first half", CARDS[:2], 360.0), group("second half", CARDS[2:4], 200.0)


def test_no_slow_group_nothing_to_say() -> None:
    assert attribution.groups([], [ALL]) == ()


def test_the_half_that_is_slow_holds_the_fault() -> None:
    (found,) = attribution.groups([ALL, SECOND], [FIRST])
    assert found.kind == "group" and found.cards == CARDS[2:4]


def test_the_pairs_tell_which_card_of_the_slow_half() -> None:
    pairs = attribution.pairs(matrix(CARDS[:4], lambda a, b: CARDS[3] in (a, b)))
    (found,) = attribution.groups([ALL, SECOND], [FIRST], pairs)
    assert (found.kind, found.cards) == ("card", (CARDS[3],))
    assert "second half" in found.sentence


def test_a_slow_pair_of_a_healthy_group_is_not_the_reason() -> None:
    pairs = attribution.pairs(matrix(CARDS[:4], lambda a, b: {a, b} == set(CARDS[:2])))
    (found,) = attribution.groups([ALL, SECOND], [FIRST], pairs)
    assert found.cards == CARDS[2:4]


def test_one_card_left_by_elimination() -> None:
    odd = group("NUMA node 1", (CARDS[1], CARDS[3]), 190.0)
    (found,) = attribution.groups([ALL, SECOND, odd], [FIRST])
    assert (found.kind, found.cards) == ("card", (CARDS[3],))


def test_healthy_parts_leave_what_joins_them() -> None:
    (found,) = attribution.groups([ALL], [FIRST, group("second half", CARDS[2:4], 360.0)])
    assert found.kind == "group" and "joins the parts" in found.sentence


@pytest.mark.parametrize("path", ["SHM", "SHM/direct", "NET/Socket"])
def test_a_way_around_the_links_is_named(path: str) -> None:
    (found,) = attribution.groups([ALL, FIRST, SECOND], [], (), ("P2P/CUMEM", path))
    assert path in found.sentence and found.cards == CARDS[:4]


# Rings.


def ring(rates: list[float]) -> Attribution | None:
    cards = CARDS[: len(rates)]
    return attribution.ring(
        cards,
        [figure("send_recv.rank", "card", (card,), rate) for card, rate in zip(cards, rates, strict=True)],
    )


@pytest.mark.parametrize("count", [4, 8])
def test_a_late_card_of_a_ring_stands_between_its_neighbours(count: int) -> None:
    for bad in range(count):
        late = {(bad - 1) % count, bad, (bad + 1) % count}
        found = ring([SLOW if place in late else GOOD for place in range(count)])
        assert found is not None and (found.kind, found.cards) == ("card", (CARDS[bad],))


def test_a_late_link_of_a_ring() -> None:
    found = ring([SLOW, GOOD, GOOD, SLOW])
    assert found is not None and (found.kind, found.cards) == ("link", (CARDS[3], CARDS[0]))


@pytest.mark.parametrize(
    "rates", [[GOOD] * 8, [SLOW] * 8, [SLOW, GOOD] * 4, [SLOW] * 4 + [GOOD] * 4, [SLOW, GOOD]]
)
def test_rings_that_say_nothing(rates: list[float]) -> None:
    assert ring(rates) is None


def test_a_ring_with_a_rank_missing_says_nothing() -> None:
    assert attribution.ring(CARDS[:4], []) is None

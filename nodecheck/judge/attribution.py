"""Which card or link is behind slow figures: what the pattern of pairs, groups and ranks says.

Pure functions over `facts.Figure`s. Each answer is a sentence that names cards by their keys, and the cards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from nodecheck.facts.measurements import Figure

TOLERANCE = 0.1
"""A pair is slow that lies this far below what the node's good pairs give. Pairs of one healthy node agree within
1 % over NVLink and within 5 % over PCIe."""

Kind = Literal["card", "link", "split", "group"]


@dataclass(frozen=True)
class Attribution:
    """What explains slow figures."""

    kind: Kind
    """`card`: all its links; `link`: two cards, nothing else of either; `split`: everything between two parts of the
    cards; `group`: some of these cards, or what they share, and no more is known."""
    cards: tuple[str, ...]
    """The card; the two ends; the smaller part; the group's cards."""
    sentence: str


# Pairs.


def pairs(figures: Iterable[Figure], numa: Mapping[str, int] | None = None) -> tuple[Attribution, ...]:
    """What explains the slow pairs among figures of one measure (`pairs.one_way` or another bandwidth).

    Both directions are expected; a pair that was measured in one direction stands for both. Nothing is said where
    all pairs are alike: whether they are all slow is for the profile to say. `numa` gives cards' NUMA nodes.
    """
    rates = _rates(figures)
    slow = _slow(rates)
    if not slow:
        return ()
    cards = tuple(sorted({card for pair in rates for card in pair}))
    split = _split(cards, rates, slow, numa or {})
    if split is not None:
        return (split,)
    found: list[Attribution] = []
    left = dict(rates)
    while slow and (odd := _odd_card(cards, left, slow)) is not None:
        card, way = odd
        own = {pair for pair in slow if card in pair}
        found.append(Attribution("card", (card,), _of_card(card, way, own, rates)))
        slow -= own
        left = {pair: rate for pair, rate in left.items() if card not in pair}
    links = dict.fromkeys(tuple(sorted(pair)) for pair in sorted(slow))
    return (*found, *(_link(two, slow, rates) for two in links))


_Rates = dict[tuple[str, str], float]


def _rates(figures: Iterable[Figure]) -> _Rates:
    told = {
        (figure.cards[0], figure.cards[1]): figure.median
        for figure in figures
        if figure.subject == "pair" and len(figure.cards) == 2
    }
    return {**told, **{(b, a): rate for (a, b), rate in told.items() if (b, a) not in told}}


def _slow(rates: _Rates) -> set[tuple[str, str]]:
    """Pairs far below the best rate that a second one confirms.

    Not below the median: where the cards fall into two parts, most pairs lie between them and may be slow.
    """
    if not rates:
        return set()
    ordered = sorted(rates.items(), key=lambda item: -item[1])
    good = next(
        (
            rate
            for place, (_, rate) in enumerate(ordered[:-1])
            if ordered[place + 1][1] >= rate * (1 - TOLERANCE)
        ),
        ordered[0][1],
    )
    return {pair for pair, rate in rates.items() if rate < good * (1 - TOLERANCE)}


def _split(
    cards: Sequence[str], rates: _Rates, slow: set[tuple[str, str]], numa: Mapping[str, int]
) -> Attribution | None:
    """Parts of at least two cards each, fast within and slow between."""
    parts: list[list[str]] = []
    for card in cards:
        near = [
            part
            for part in parts
            if any((card, other) not in slow and (other, card) not in slow for other in part)
        ]
        parts = [part for part in parts if part not in near] + [
            sorted((*(c for part in near for c in part), card))
        ]
    if len(parts) < 2 or min(len(part) for part in parts) < 2:
        return None
    within = {pair for part in parts for a, b in combinations(part, 2) for pair in ((a, b), (b, a))}
    if slow & within or any(pair not in slow for pair in rates if pair not in within):
        return None
    parts.sort(key=len)
    nodes = [{numa.get(card) for card in part} for part in parts]
    by_numa = all(len(node) == 1 and None not in node for node in nodes) and len(
        {next(iter(node)) for node in nodes}
    ) == len(parts)
    listed = " | ".join(", ".join(part) for part in parts)
    why = (
        "They are those of each NUMA node: the way goes from one CPU to the other."
        if by_numa
        else "Each is whole in itself: it is what joins them."
    )
    return Attribution(
        "split",
        tuple(parts[0]),
        f"The cards fall into parts ({listed}): pairs between them give {_span(slow, rates)}, within them "
        f"{_span(within & rates.keys(), rates)}. {why}",
    )


_Way = Literal["both", "from", "to"]


def _odd_card(cards: Sequence[str], rates: _Rates, slow: set[tuple[str, str]]) -> tuple[str, _Way] | None:
    """The card all of whose pairs are slow, in both directions or in one; none where that fits two equally well."""
    best: list[tuple[int, str, _Way]] = []
    for card in cards:
        out = {pair for pair in rates if pair[0] == card}
        back = {pair for pair in rates if pair[1] == card}
        if len(out) < 2:
            continue  # of two cards nobody can tell which it is
        if out | back <= slow:
            best.append((len(out | back), card, "both"))
        elif out <= slow:
            best.append((len(out), card, "from"))
        elif back <= slow:
            best.append((len(back), card, "to"))
    if not best:
        return None
    best.sort(key=lambda entry: -entry[0])
    _, card, way = best[0]
    return card, way


def _of_card(card: str, way: _Way, own: set[tuple[str, str]], rates: _Rates) -> str:
    direction = {"both": "to and from it", "from": "from it", "to": "to it"}[way]
    good = {pair for pair in rates if card not in pair}
    rest = f"; pairs without it {_span(good, rates)}" if good else ""
    return f"Every pair with {card} is slow {direction} ({_span(own, rates)}{rest}): it is this card or its links."


def _link(two: tuple[str, ...], slow: set[tuple[str, str]], rates: _Rates) -> Attribution:
    a, b = two
    ways = [pair for pair in ((a, b), (b, a)) if pair in slow]
    if len(ways) == 2 or (a, b) not in rates or (b, a) not in rates:
        words = f"between {a} and {b} in both directions"
    else:
        words = f"from {ways[0][0]} to {ways[0][1]}, not back"
    alone = len({card for pair in rates for card in pair}) == 2
    rest = (
        "of two cards nobody can tell which it is"
        if alone
        else "each is fast with others: it is what joins them"
    )
    return Attribution("link", two, f"The way is slow {words} ({_span(set(ways), rates)}); {rest}.")


def _span(some: Iterable[tuple[str, str]], rates: _Rates) -> str:
    values = [rates[pair] for pair in some]
    low, high = f"{min(values):.4g}", f"{max(values):.4g}"
    return f"{low} GB/s" if low == high else f"{low} to {high} GB/s"


# Groups.


def groups(
    slow: Sequence[Figure],
    healthy: Sequence[Figure],
    pairs_found: Sequence[Attribution] = (),
    paths: Sequence[str] = (),
) -> tuple[Attribution, ...]:
    """What explains slow groups, beside healthy ones of the same measure.

    `pairs_found` is what `pairs` says of the same node, `paths` how NCCL carried the data (`Transport.paths`). A card
    that is in every slow group and in no healthy one is suspect; where there is none, it is what lies between.
    """
    if not slow:
        return ()
    shared = set(slow[0].cards).intersection(*(figure.cards for figure in slow))
    cleared = {card for figure in healthy for card in figure.cards}
    suspects = tuple(card for card in slow[0].cards if card in shared - cleared)
    names = ", ".join(_name(figure) for figure in slow)
    matching = tuple(
        one
        for one in pairs_found
        if any(set(one.cards) <= set(figure.cards) for figure in slow)
        and not any(set(one.cards) <= set(figure.cards) for figure in healthy if one.kind != "split")
    )
    if matching:
        return tuple(
            Attribution(one.kind, one.cards, f"Slow: {names}. The pairs say the same. {one.sentence}")
            for one in matching
        )
    if len(suspects) == 1:
        card = suspects[0]
        return (
            Attribution("card", suspects, f"{card} is in every slow group ({names}) and in no healthy one."),
        )
    around = [path for path in paths if path == "SHM" or path.startswith(("SHM/", "NET"))]
    if around:
        ways = " and ".join(around)
        cards = slow[0].cards
        return (
            Attribution(
                "group", cards, f"Slow: {names}. Its data went over {ways}, not directly from card to card."
            ),
        )
    if suspects:
        listed = ", ".join(suspects)
        rest = "; every pair of them is healthy, so it is not a link alone" if not pairs_found else ""
        return (
            Attribution(
                "group",
                suspects,
                f"Slow: {names}. Only {listed} are in no healthy group: one of them, or what they share{rest}.",
            ),
        )
    parts = ", ".join(_name(figure) for figure in healthy)
    return (
        Attribution(
            "group",
            slow[0].cards,
            f"Slow: {names}, though its parts are healthy ({parts}): it is what joins the parts, or how the library "
            "carries a group of this size.",
        ),
    )


def _name(figure: Figure) -> str:
    return f"{figure.name or 'the group'} at {figure.median:.4g} {figure.unit}"


# Ranks of a ring.


def ring(order: Sequence[str], figures: Iterable[Figure]) -> Attribution | None:
    """Which card or link of a ring is slow, by each rank's own rate of sending to the next (`send_recv.rank`).

    `order` are the cards by rank. Who is late is waited for by the neighbours before and behind, so that a slow card
    shows as three slow ranks around it, and a slow link as the two at its ends; None where nothing stands out.
    """
    rates = {figure.cards[0]: figure.median for figure in figures if len(figure.cards) == 1}
    if len(order) < 3 or any(card not in rates for card in order):
        return None
    # At most three are slow, and of four ranks one is healthy: the best tells what is usual.
    usual = max(rates[card] for card in order)
    late = [rates[card] < usual * (1 - TOLERANCE) for card in order]
    starts = [place for place in range(len(order)) if late[place] and not late[place - 1]]
    if len(starts) != 1:
        return None
    length = sum(late)
    block = [order[(starts[0] + step) % len(order)] for step in range(length)]
    span = f"{min(rates[card] for card in block):.4g} of {usual:.4g} GB/s"
    if length == 2:
        return Attribution(
            "link",
            (block[0], block[1]),
            f"In the ring {block[0]} and {block[1]} are late ({span}): it is the way from the one to the other.",
        )
    if length in (1, 3):
        card = block[length // 2]
        return Attribution(
            "card", (card,), f"In the ring {card} is late and its neighbours wait for it ({span})."
        )
    return None

"""Is every card, pair and group as fast as the bundle promises, and as its siblings are?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from statistics import median
from typing import Any

from nodecheck.facts import Absent, Card, known, or_none
from nodecheck.facts.measurements import MOST_TRIES, Figure, Load
from nodecheck.judge import attribution, figures
from nodecheck.judge.attribution import Attribution
from nodecheck.judge.figures import Place
from nodecheck.judge.finding import NODE, Cause, Owner, Status, Subject
from nodecheck.judge.rule import OnAmd, Outcome, fail, of_card, passed, skipped, smi, unknown, warn
from nodecheck.judge.rules.measurements import Look, first_line, load_rule
from nodecheck.profile import Figure as Promised

LINK_SHARE = 0.6
"""Of the links' raw rate, one way. Healthy pairs give 0.83 (396 of 478 GB/s on an H200)."""
PCIE_SHARE = 0.6
"""Of the host link's rate, one way. Healthy cards give 0.8 to 0.9 (55.4 of 63 GB/s on an H200)."""
PCIE_GB_PER_S = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
"""A lane, one way, after line coding (PCI Express Base Specification; from 6 on with FLITs)."""
CONTENDED = 0.25
"""Less than this share of what each card gets alone, when all copy at once, is more than a shared switch costs."""
SLOW_DISK_GB_PER_S = 0.05
"""At this pace a checkpoint of 16 GB takes five minutes."""

_HEAT = "heat (the driver slows the card)"
_REASONS: dict[str, tuple[Status, str]] = {
    "gpu_idle": (Status.passed, "idleness between two pieces of work"),
    "sw_power_cap": (Status.passed, "the power limit, as under full load"),
    "applications_clocks_setting": (Status.passed, "application clocks"),
    "display_clock_setting": (Status.passed, "the setting for displays"),
    "sync_boost": (Status.passed, "a setting that keeps cards in step"),
    "sw_thermal_slowdown": (Status.warn, _HEAT),
    "hw_slowdown": (Status.warn, "a hardware slowdown"),
    "hw_thermal_slowdown": (Status.warn, "heat (the hardware slows the card)"),
    "hw_power_brake_slowdown": (Status.warn, "the server's power brake"),
}
"""Of a short load. What holds an idle card down is `cards.clocks.event_reasons`."""


def _number(value: float) -> str:
    return f"{value:.4g}" if value < 10_000 else f"{value:,.0f}"


def _at(figure: Figure) -> str:
    at = figure.at
    size = next(
        (
            f"{at.size_bytes // unit} {name}"
            for name, unit in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("B", 1))
            if at.size_bytes and at.size_bytes % unit == 0
        ),
        None,
    )
    parts = (at.shape, size, at.dtype, at.ranks and f"{at.ranks} ranks", at.sustained and "sustained")
    told = ", ".join(str(part) for part in parts if part)
    return f"{figure.measure} ({told})" if told else figure.measure


def _loaded(load: object) -> str:
    """What the card did meanwhile, as a sentence; empty where that was not sampled."""
    if not isinstance(load, Load):
        return ""
    parts = [
        f"SM {load.sm_mhz} MHz" if known(load.sm_mhz) else "",
        f"{load.power_watts:.0f} W" if known(load.power_watts) else "",
        f"{load.celsius} °C" if known(load.celsius) else "",
    ]
    reasons = [
        _REASONS[reason][1] if reason in _REASONS else reason for reason in or_none(load.event_reasons) or ()
    ]
    told = ", ".join(part for part in parts if part)
    held = f"the clock was held by {', '.join(reasons)}" if reasons else ""
    both = "; ".join(part for part in (told, held) if part)
    return f" Meanwhile: {both}." if both else ""


def _tries(figure: Figure) -> str:
    if len(figure.tries) < 2:
        return ""
    return f" Measured {len(figure.tries)} times: {', '.join(_number(value) for value in figure.tries)}."


def _held(look: Look, promised: Promised, figure: Figure) -> Outcome:
    """A measured figure against the profile's."""
    bounds = figures.limits_of(promised, figure, look.node, look.profile)
    status = bounds.status(figure.median)
    limit = bounds.fail if status is Status.fail else bounds.first
    side = "at least" if bounds.more_is_better else "at most"
    detail = (
        f"{_at(figure)}: {_number(figure.median)} {figure.unit} "
        f"({_number(figure.p5)} to {_number(figure.p95)}); typical {_number(promised.typical)}"
        f"{f', {side} {_number(limit)}' if limit is not None else ''}.{_tries(figure)}"
    )
    if figures.stands_in(promised, figure):
        detail += (
            f" The profile's is in {promised.at.dtype}. At this size the type hardly matters: this one may pass and "
            "warn, and fails only on a gross fault."
        )
    if status is not Status.passed:
        detail += _loaded(figure.load)
        if promised.kind == "derived":
            detail += " The profile's figure is derived from a neighbour's."
    return Outcome(
        status,
        look.subject(figure.cards, figure.name),
        detail=detail,
        observed=round(figure.median, 4),
        expected=limit if limit is None else round(limit, 4),
        unit=figure.unit,
        observed_from=f"{_where(look, figure)}, {figure.repetitions} repetitions",
        expected_from=promised.witness if limit is not None else "",
    )


def _where(look: Look, figure: Figure) -> str:
    run = figures.run_of(figure.stage, figure.cards, look.measured)
    return f"{figure.stage} stage: median in torch" if run else "pasted output of another program"


def _unmeasured(look: Look, promised: Promised, cards: tuple[str, ...]) -> Outcome:
    """A figure that the profile asks for and that is not there; another size of it may stand in its place."""
    seen = look.measured
    subject = look.subject(cards, "all" if figures.subject_of(promised.measure) == "group" else "")
    at = f"{promised.measure}{f' ({promised.at})' if str(promised.at) else ''}"
    other = figures.at_another_size(promised, look.profile, seen.figures)
    if other is not None:
        return skipped(f"{at}: judged at {other.at.size}.", subject)
    run = figures.run_of(figures.stage_of(promised.measure), cards, seen)
    if figures.left_out(promised.measure, seen):
        reason = "left out for the time budget"
    elif run is not None and run.status != "done":
        reason = first_line(run.detail) or run.status
    elif others := dict.fromkeys(_at(f) for f in seen.figures if f.measure == promised.measure):
        reason = f"measured only at other conditions than the profile's: {next(iter(others))}"
    else:
        reason = "no such figure came"
    return Outcome(Status.unknown, subject, detail=f"{at}: not measured ({reason}).")


def _promised(look: Look, *beginnings: str) -> Iterator[Promised]:
    for promised in figures.promises(look.node, look.profile):
        if promised.measure.startswith(beginnings):
            yield promised


def _of_another_torch(look: Look, *beginnings: str) -> Iterator[Outcome]:
    """The figures that say nothing of the torch that is here."""
    for promised in look.profile.figures:
        if not promised.measure.startswith(beginnings):
            continue
        here = figures.of_this_torch(promised, look.node)
        if isinstance(here, Absent):
            yield unknown(NODE, here)
        elif not here:
            version = figures.torch_version(look.node)
            yield skipped(
                f"{promised.measure} ({promised.at}): says nothing of torch {version}, which is here."
            )


def _each(look: Look, *beginnings: str) -> Iterator[Outcome]:
    """Every promised figure on every subject that it is to be measured on."""
    yield from _of_another_torch(look, *beginnings)
    nothing = True
    for promised in _promised(look, *beginnings):
        found = figures.measured(promised, look.measured.figures)
        for cards in figures.expected_subjects(promised, look.node, look.profile):
            nothing = False
            figure = figures.of_subject(found, cards)
            yield _held(look, promised, figure) if figure else _unmeasured(look, promised, cards)
    if nothing:
        yield _nothing(look, *beginnings)


def _nothing(look: Look, *beginnings: str) -> Outcome:
    if not any(_promised(look, *beginnings)):
        return skipped(f"The profile {look.profile.name} has no such figure.")
    if isinstance(look.node.cards, Absent):
        return unknown(NODE, look.node.cards)
    return skipped("There is nothing here to measure it on; see cards.count.")


_FIGURE: dict[str, Any] = {
    "passes": "every figure of the profile is reached, for exactly its size and type; each figure is measured up to "
    f"{MOST_TRIES} times where a limit lies within its own spread",
    "warns": "one is below the profile's limit that warns, or below that of a derived figure",
    "fails": "one is below the profile's limit that fails, or, where it has none, below half of typical",
    "cause": Cause.slow,
    "owner": Owner.provider,
}


@load_rule(
    "measurements.hbm",
    "The card's memory is as fast as the product's",
    reads="copy and triad within the card's memory, read and written bytes over time",
    required=True,
    meaning="Everything that is bound by memory (inference, optimizers, normalisation) runs slower by as much.",
    next_step="Look at the memory clock and at the card's ECC counts; send this report to the provider.",
    repeat="nvbandwidth -b 4096 -t device_local_copy; nodecheck measure hbm",
    **_FIGURE,
)
def hbm(look: Look) -> Iterator[Outcome]:
    yield from _each(look, "hbm.")


@load_rule(
    "measurements.gemm",
    "The card computes as fast as the product",
    reads="products of matrices of random data in bursts, with clocks, power and temperature sampled meanwhile",
    required=True,
    meaning="Training and prefill run slower by as much; in a group all cards wait for the slowest.",
    next_step="Read the clock, power and reasons beside the figure: a low power limit, heat or the server's power "
    "brake is the provider's to mend.",
    repeat="nodecheck measure gemm",
    **_FIGURE,
)
def gemm(look: Look) -> Iterator[Outcome]:
    yield from _each(look, "gemm.")


@load_rule(
    "measurements.host",
    "The card's link to the host is as fast as the product's",
    reads="copies of 512 MiB between pinned host memory and the card, each card alone",
    required=True,
    meaning="Loading models and data, and offloading, take longer by as much.",
    next_step="Compare the PCIe generation and width read meanwhile (measurements.pcie_under_load); if they are right, "
    "the process may run on the other socket than the card's.",
    repeat="nvbandwidth -t host_to_device_memcpy_ce device_to_host_memcpy_ce; nodecheck measure host",
    **_FIGURE,
)
def host(look: Look) -> Iterator[Outcome]:
    yield from _each(look, "host.")


@load_rule(
    "measurements.launch",
    "Kernels start as quickly as on the product",
    reads="time for the host to queue an empty kernel",
    meaning="Work made of many small kernels (inference of small batches) is held up by the host.",
    next_step="Look at the CPU governor, other load on the CPUs, and the virtual machine.",
    repeat="nodecheck measure host",
    **{**_FIGURE, "fails": ""},
)
def launch(look: Look) -> Iterator[Outcome]:
    yield from _each(look, "launch.")


@load_rule(
    "measurements.pairs",
    "Cards reach each other as fast as their links promise",
    reads="copies between every two cards, one pair at a time",
    required=True,
    meaning="Exchange between these cards is slower, and every collective over them goes at the slowest link's pace.",
    next_step="Send the pair matrix of this report to the provider: one slow row and column is a card, a block is the "
    "machine's NUMA split, a single pair is a link.",
    repeat="nvbandwidth -t device_to_device_memcpy_read_ce; nodecheck measure pairs",
    **_FIGURE,
)
def pairs(look: Look) -> Iterator[Outcome]:
    """All pairs in one finding where they are well, else what is slow: a card, a block, or single links."""
    yield from _of_another_torch(look, "pairs.")
    nothing = True
    for promised in _promised(look, "pairs."):
        wanted = figures.expected_subjects(promised, look.node, look.profile)
        if not wanted:
            continue
        nothing = False
        found = figures.measured(promised, look.measured.figures)
        found |= {
            (b, a): figure.model_copy(update={"cards": (b, a)})
            for (a, b), figure in found.items()
            if "two_way" in promised.measure
        }
        missing = [pair for pair in wanted if pair not in found]
        if missing:
            first = _unmeasured(look, promised, missing[0])
            yield Outcome(first.status, detail=f"{len(missing)} of {len(wanted)} pairs: {first.detail}")
        judged = {pair: _held(look, promised, found[pair]) for pair in wanted if pair in found}
        yield from _matrix(look, judged, found)
    if nothing:
        yield _nothing(look, "pairs.")


def _matrix(
    look: Look, judged: dict[tuple[str, ...], Outcome], found: dict[tuple[str, ...], Figure]
) -> Iterator[Outcome]:
    if not judged:
        return
    slow = {pair for pair, outcome in judged.items() if outcome.status is not Status.passed}
    if not slow:
        pair = min(judged, key=lambda pair: found[pair].median)
        yield replace(
            judged[pair],
            subject=NODE,
            detail=f"{len(judged)} pairs; the slowest, {judged[pair].subject.label}: {judged[pair].detail}",
        )
        return

    def worst(pairs: set[tuple[str, ...]]) -> Outcome:
        return min(
            (judged[pair] for pair in pairs),
            key=lambda outcome: (outcome.status is not Status.fail, outcome.observed),
        )

    for subject, sentence, behind in _explained(look, slow, {pair: found[pair] for pair in judged}):
        outcome = worst(behind)
        yield replace(outcome, subject=subject, detail=_joined(sentence, outcome, len(behind)))


def _explained(
    look: Look, slow: set[tuple[str, ...]], found: dict[tuple[str, ...], Figure]
) -> Iterator[tuple[Subject, str, set[tuple[str, ...]]]]:
    """The slow pairs among those found, in as few parts as explain them: subject, sentence, its pairs.

    All of them, those of a card, those between parts of the node, the two directions of a link; what nothing explains
    stands alone, without a sentence.
    """
    left = set(slow)
    keys = {key for pair in found for key in pair}
    if left == set(found) and len(keys) > 2:
        yield look.subject(sorted(keys), "all"), "Every pair is slow.", left
        return
    for about in attribution.pairs(found.values(), _numa(look)):
        behind = {pair for pair in left if _explains(about, pair)}
        if behind:
            left -= behind
            yield look.subject(about.cards, about.kind), look.named(about.sentence), behind
    for pair in sorted(left):
        yield look.subject(pair), "", {pair}


def _joined(sentence: str, worst: Outcome, count: int) -> str:
    """The sentence on all the pairs, and what the worst of them gave."""
    one = f"The slowest, {worst.subject.label}: {worst.detail}" if count > 1 else worst.detail
    return f"{sentence} {one}" if sentence else one


def _explains(about: Attribution, pair: tuple[str, ...]) -> bool:
    if about.kind == "link":
        return set(pair) == set(about.cards)
    inside = [key in about.cards for key in pair]
    return any(inside) if about.kind == "card" else inside[0] != inside[1]


def _numa(look: Look) -> dict[str, int]:
    nodes = {card.key: or_none(card.numa_node) for card in look.node.known_cards}
    return {key: node for key, node in nodes.items() if node is not None and node >= 0}


@load_rule(
    "measurements.pairs_alike",
    "Pairs joined alike are equally fast",
    reads="copies between every two cards, beside those of the node's other pairs",
    passes=f"pairs that NVLink or xGMI joins lie within {attribution.TOLERANCE:.0%} of the good ones; for others the "
    "pattern is stated, since slots differ, and so do the links between the dies of MI250",
    warns="a pair that NVLink or xGMI joins is slower",
    cause=Cause.slow,
    owner=Owner.provider,
    meaning="Every collective over all cards goes at the slowest link's pace.",
    next_step="Send the pair matrix of this report to the provider: one slow row and column is a card, a block is the "
    "machine's NUMA split, a single pair is a link.",
    repeat="nodecheck measure pairs",
)
def pairs_alike(look: Look) -> Iterator[Outcome]:
    if len(look.node.known_cards) < 2:
        yield skipped("There is no second card.")
        return
    links = look.profile.links
    name = "xGMI" if links and links.interconnect == "xgmi" else "NVLink"
    equal = links is None or links.direct
    kinds: dict[bool, list[Figure]] = defaultdict(list)
    for figure in look.measured.figures:
        big = figure.at.size_bytes is None or figure.at.size_bytes >= figures.LEAST_COPY_BYTES
        if figure.measure == "pairs.one_way" and big:
            kinds[equal and figures.joined(look.node, look.profile, figure.cards)].append(figure)
    for joined, alike in kinds.items():
        values = [figure.median for figure in alike]
        way = f" over {name}" if joined else f" without {name}" if equal else ""
        told = f"{len(alike)} pairs{way}, "
        told += f"{_number(min(values))} to {_number(max(values))} GB/s."
        words: dict[str, Any] = {"observed": round(min(values), 4), "unit": "GB/s"}
        abouts = attribution.pairs(alike, _numa(look))
        if not joined or not abouts:
            yield passed(" ".join((told, *(look.named(about.sentence) for about in abouts))), **words)
        for about in abouts if joined else ():
            yield warn(look.named(about.sentence), subject=look.subject(about.cards, about.kind), **words)
    if not kinds:
        run = figures.run_of("pairs", [card.key for card in look.node.known_cards], look.measured)
        reason = first_line(run.detail) if run and run.status != "done" else "no such figure came"
        if figures.stage_left_out("pairs", look.measured):
            yield skipped("pairs was left out for the time budget.")
        else:
            yield Outcome(Status.unknown, detail=f"No pair was measured: {reason}.")


@load_rule(
    "measurements.link_rate",
    "NVLinks carry what they are rated for",
    reads="copies between every two cards that NVLink joins, beside the number of their links and the raw rate of each",
    passes=f"every direction gives {LINK_SHARE:.0%} of the links' raw rate or more",
    fails="one gives less: data takes another way, or the links repeat much",
    cause=Cause.slow,
    owner=Owner.provider,
    meaning="The links are there and do not carry the data: copies go over PCIe and the host instead, or are repeated.",
    next_step="Look at topology.pairs.p2p and topology.nvlink.errors; send this report to the provider.",
    repeat="nvidia-smi topo -m; nvidia-smi topo -p2p rw; nodecheck measure pairs",
)
def link_rate(look: Look) -> Iterator[Outcome]:
    rates = _raw_rates(look)
    if not rates:
        yield skipped("No two cards are joined by NVLinks whose number and rate are known.")
        return
    shares: dict[tuple[str, ...], tuple[float, Figure]] = {}
    for figure in look.measured.figures:
        raw = rates.get(frozenset(figure.cards))
        big = figure.at.size_bytes is None or figure.at.size_bytes >= figures.LEAST_COPY_BYTES
        if figure.measure == "pairs.one_way" and raw and big:
            shares[figure.cards] = (figure.median / raw, figure)
    words: dict[str, Any] = {"expected": LINK_SHARE, "unit": "of the raw rate"}
    if not shares:
        yield Outcome(Status.unknown, detail="No pair that NVLink joins was measured.", **words)
        return
    low = {
        pair: fail(
            f"{_number(figure.median)} GB/s over links of {_number(rates[frozenset(pair)])} GB/s raw.",
            subject=look.subject(pair),
            observed=round(share, 3),
            **words,
        )
        for pair, (share, figure) in shares.items()
        if share < LINK_SHARE
    }
    measured = {pair: figure for pair, (_, figure) in shares.items()}
    for subject, sentence, behind in _explained(look, set(low), measured):
        outcome = low[min(behind, key=lambda pair: shares[pair][0])]
        yield replace(outcome, subject=subject, detail=_joined(sentence, outcome, len(behind)))
    if not low:
        least = min(share for share, _ in shares.values())
        yield passed(
            f"{len(shares)} directions, the least at {least:.0%}.", observed=round(least, 3), **words
        )


def _raw_rates(look: Look) -> dict[frozenset[str], float]:
    """Raw rate one way of the links between two cards, GB/s: their number × the rate of a link."""
    topology, spec = look.node.topology, look.profile.links
    pairs = None if isinstance(topology, Absent) else or_none(topology.pairs)
    cards = figures.by_key(look.node)
    rates: dict[frozenset[str], float] = {}
    for pair in pairs or ():
        links = or_none(pair.nvlinks)
        speeds = (
            [or_none(link.speed_mb_per_s) for link in or_none(cards[pair.a].links) or ()]
            if pair.a in cards
            else []
        )
        told = [speed for speed in speeds if speed]
        speed = median(told) if told else (spec.link_speed_mb_per_s if spec else None)
        if links and speed:
            rates[frozenset((pair.a, pair.b))] = links * speed / 1000
    return rates


@load_rule(
    "measurements.collectives",
    "Collectives over all cards are as fast as the bundle's",
    reads="bus bandwidth as nccl-tests defines it, over all cards, averaged over the ranks",
    required=True,
    meaning="Every step of training over all cards waits for its gradients by as much longer.",
    next_step="Read measurements.transport and measurements.nvls first; then the pair matrix and the figures of the "
    "parts of the group, which say which card or link it is.",
    repeat="all_reduce_perf -b 8G -e 8G -g N; nodecheck measure collectives",
    **_FIGURE,
)
def collectives(look: Look) -> Iterator[Outcome]:
    told = False
    for outcome in _each(look, "all_", "reduce_scatter.", "broadcast."):
        if not told and outcome.status in (Status.warn, Status.fail):
            told = True
            outcome = replace(outcome, detail=f"{outcome.detail}{_slowest_part(look)}")
        yield outcome


def _slowest_part(look: Look) -> str:
    """Which ring neighbour, part of the cards, and card is slower than the others; empty where nothing stands out.

    Of a node whose group of all cards is slow.
    """
    told: list[str] = []
    ranks = [figure for figure in look.measured.figures if figure.measure == "send_recv.rank"]
    if about := attribution.ring([card.key for card in look.node.known_cards], ranks):
        told.append(about.sentence)
    told += [about.sentence for about in _parts(look)]
    behind = [
        (place.behind, card, place)
        for card, places in figures.places(look.node).items()
        for place in places
        if place.status is not Status.passed
    ]
    if behind:
        _, card, place = max(behind, key=lambda one: one[0])
        told.append(f"The slowest card is {card}: {_behind(place)}.")
    return look.named("".join(f" {sentence}" for sentence in told))


def _parts(look: Look) -> tuple[Attribution, ...]:
    """What the figures of the parts of the group say, at the largest size that all parts have.

    Where no part is slower than another, the whole is held against them: parts that give more than the whole are
    healthy, and what joins them is not.
    """
    sizes: dict[tuple[object, ...], list[Figure]] = defaultdict(list)
    for figure in look.measured.figures:
        if figure.measure == "all_reduce.busbw":
            sizes[figure.at.dtype, figure.at.in_place, figure.at.size_bytes].append(figure)
    several = [some for some in sizes.values() if sum(map(_is_part, some)) > 1]
    if not several:
        return ()
    largest = max(several, key=lambda some: (some[0].at.size_bytes or 0, len(some)))
    parts = [figure for figure in largest if _is_part(figure)]
    best = max(figure.median for figure in parts)
    slow = [figure for figure in parts if figure.median < (1 - attribution.TOLERANCE) * best]
    if not slow:
        least = min(figure.median for figure in parts)
        slow = [f for f in largest if not _is_part(f) and f.median < (1 - attribution.TOLERANCE) * least]
    if not slow:
        return ()
    copies = [figure for figure in look.measured.figures if figure.measure == "pairs.one_way"]
    ways = [path for one in look.measured.transports if one.name == slow[0].name for path in one.paths]
    sound = [figure for figure in parts if figure not in slow]
    return attribution.groups(slow, sound, attribution.pairs(copies, _numa(look)), ways)


def _is_part(figure: Figure) -> bool:
    """Whether it is of some of the cards, not of all."""
    return figure.name not in ("", "all")


# Beside the siblings


def _behind(place: Place) -> str:
    return (
        f"{_at(place.figure)} {_number(place.figure.median)} {place.figure.unit}, {place.behind:.1%} behind "
        f"{_number(place.usual)}"
    )


@load_rule(
    "measurements.siblings",
    "The card keeps up with its siblings",
    reads="what each card gave in memory, products and host copies, alone, beside the median of the cards of its model "
    "(of products the best shape)",
    passes=f"it is less than {figures.WARN_BEHIND:.0%} behind in each ({figures.WARN_BEHIND_HOST:.0%} in host copies), "
    "or no further than the cards lie apart anyhow "
    f"({figures.WARN_WIDTHS:g} standard deviations, told from the median absolute deviation)",
    warns="it is further behind in one; of two cards the slower one",
    fails=f"it is {figures.FAIL_BEHIND:.0%} behind or more ({figures.FAIL_BEHIND_HOST:.0%} in host copies), and "
    f"{figures.FAIL_WIDTHS:g} standard deviations, of at least {figures.FEWEST_SIBLINGS} cards",
    cause=Cause.slow,
    owner=Owner.provider,
    meaning="All cards of a group wait for the slowest in every step: one card that is 5 % slow costs all of them 5 %.",
    next_step="Compare clocks, power and temperature under load with the siblings'; ask the provider for another card.",
    repeat="nodecheck measure hbm gemm host",
)
def siblings(look: Look) -> Iterator[Outcome]:
    if len(look.node.known_cards) < 2:
        yield skipped("There is no second card to compare with.")
        return
    places = figures.places(look.node)
    for card in look.node.known_cards:
        own = places.get(card.key)
        yield (
            _among(card, own)
            if own
            else Outcome(
                Status.unknown,
                of_card(card),
                detail="No figure of this card has one of a sibling's beside it.",
            )
        )


def _among(card: Card, places: list[Place]) -> Outcome:
    worst = max(places, key=lambda place: (_GRAVITY.index(place.status), place.behind))
    limit = worst.limits.fail if worst.status is Status.fail else worst.limits.first
    words: dict[str, Any] = {
        "subject": of_card(card),
        "observed": round(100 * worst.behind, 2),
        "expected": round(100 * (limit or 0.0), 2),
        "unit": "% behind the siblings' median",
        "observed_from": "medians of every card, measured alone",
        "expected_from": "docs/statistics.md",
    }
    slow = [place for place in places if place.status is not Status.passed]
    if not slow:
        return passed(f"{len(places)} figures; the furthest: {_behind(worst)}.", **words)
    told = "; ".join(_behind(place) for place in sorted(slow, key=lambda place: -place.behind)[:4])
    return Outcome(worst.status, detail=f"{told}.{_tries(worst.figure)}{_loaded(worst.figure.load)}", **words)


_GRAVITY = (Status.passed, Status.warn, Status.fail)


# Under load


@load_rule(
    "measurements.throttling",
    "Nothing but its power limit slows the card under load",
    reads="SM clock, draw, temperature and clocks-event reasons, sampled by NVML beside the load",
    door="nvml",
    passes="nothing does, or the power limit, which is normal at full load; the figures are stated",
    warns="heat, a hardware slowdown or the server's power brake slowed the card within seconds",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="Cooling or power supply of the server does not bear a load of seconds; it will bear less of one of hours.",
    next_step="Send this report to the provider: fans, heat sinks, power supplies and their cables want a look.",
    repeat=smi("clocks.sm", "power.draw", "temperature.gpu", "clocks_event_reasons.active") + " -lms 200",
    on_amd=OnAmd(
        title="Heat does not slow the card under load",
        reads="clock, draw and temperature, sampled from sysfs beside the load, and the temperature at which the card "
        "slows down",
        door="pci",
        repeat="grep -H . /sys/bus/pci/drivers/amdgpu/*/hwmon/hwmon*/temp2_{input,crit}",
    ),
)
def throttling(look: Look) -> Iterator[Outcome]:
    if not look.node.known_cards:
        yield skipped("There is no card whose clocks could be sampled.")
    for card in look.node.known_cards:
        yield _throttled(card, [f for f in look.measured.figures if f.cards == (card.key,)])


def _throttled(card: Card, own: list[Figure]) -> Outcome:
    subject = of_card(card)
    loads = [(figure, figure.load) for figure in own if isinstance(figure.load, Load)]
    told = [(figure, load) for figure, load in loads if known(load.event_reasons)]
    if not told:
        return _by_heat(card, loads)
    reasons = {reason: figure for figure, load in told for reason in or_none(load.event_reasons) or ()}
    named = [reason for reason in sorted(reasons) if reason in _REASONS]
    bad = [reason for reason in named if _REASONS[reason][0] is Status.warn]
    strange = sorted(reasons.keys() - named)
    # The sustained figure says most; else the product that drew most.
    figure, load = max(told, key=lambda one: (one[0].at.sustained, or_none(one[1].power_watts) or 0.0))
    detail = f"{_at(figure)}: {_number(figure.median)} {figure.unit}.{_loaded(load)}"
    words: dict[str, Any] = {"subject": subject, "observed": ", ".join(sorted(reasons)) or "none"}
    if bad:
        names = "; ".join(f"{_REASONS[reason][1]} during {_at(reasons[reason])}" for reason in bad)
        return warn(f"Slowed by {names}. {detail}", **words)
    if strange:
        held = f"The clock was held for a reason that this version does not know: {', '.join(strange)}."
        return Outcome(Status.unknown, detail=f"{held} {detail}", **words)
    return passed(detail, **words)


def _by_heat(card: Card, loads: list[tuple[Figure, Load]]) -> Outcome:
    """Where nothing tells why a clock is held: whether the card grew as hot as it slows down at."""
    subject, slowdown = of_card(card), card.temperature.slowdown_celsius
    if not loads:
        return Outcome(Status.unknown, subject, detail="Not seen: no sample was taken under load.")
    hottest = {load.celsius: (figure, load) for figure, load in loads if known(load.celsius)}
    if not hottest:
        return Outcome(
            Status.unknown,
            subject,
            detail="Not seen: the card tells neither why its clock is held nor how hot it is.",
        )
    celsius = max(hottest)
    figure, load = hottest[celsius]
    detail = f"{_at(figure)}: {_number(figure.median)} {figure.unit}.{_loaded(load)}"
    words: dict[str, Any] = {"subject": subject, "observed": celsius, "unit": "°C"}
    if isinstance(slowdown, Absent):
        told = f"Not seen: at which temperature the card slows down ({slowdown}). {detail}"
        return Outcome(Status.unknown, detail=told, **words)
    words |= {"expected": f"below {slowdown}", "expected_from": "the card's own limit"}
    if celsius >= slowdown:
        return warn(f"It grew as hot as it slows down at, {slowdown} °C. {detail}", **words)
    return passed(detail, **words)


@load_rule(
    "measurements.pcie_under_load",
    "The host link is up to speed while it works",
    reads="PCIe generation and width, sampled during the copies (idle cards lower them), and the bandwidth beside what "
    "such a link carries",
    door="nvml",
    passes=f"both are the product's, and copies reach {PCIE_SHARE:.0%} of the link's rate",
    warns="one is lower although the copies are fast enough for the profile, or copies reach less of the link's rate",
    fails="one is lower, and the copies are below the profile's limit",
    cause=Cause.slow,
    owner=Owner.provider,
    meaning="The slot, a riser or a setting of the BIOS holds the card's link down.",
    next_step="Send this report to the provider. If the link is right and copies are slow, look at the CPU binding.",
    repeat=smi("pcie.link.gen.current", "pcie.link.width.current") + " -lms 200",
    on_amd=OnAmd(door="pci", repeat="grep -H . /sys/bus/pci/drivers/amdgpu/*/current_link_{speed,width}"),
)
def pcie_under_load(look: Look) -> Iterator[Outcome]:
    spec = look.profile.card
    if spec is None or spec.pcie_generation is None or not look.node.known_cards:
        yield skipped("The profile gives no PCIe generation, or there is no card.")
        return
    for card in look.node.known_cards:
        yield _pcie(
            look, card, spec.pcie_generation, min(spec.pcie_widths), spec.stated_by("pcie_generation").witness
        )


def _pcie(look: Look, card: Card, generation: int, width: int, witness: str) -> Outcome:
    subject = of_card(card)
    copies = [
        figure
        for figure in look.measured.figures
        if figure.cards == (card.key,)
        and figure.measure in ("host.h2d", "host.d2h")
        and figure.at.pinned is not False
        and not figure.at.together
        and (figure.at.size_bytes or 0) >= figures.LEAST_COPY_BYTES
    ]
    loads = [figure.load for figure in copies if isinstance(figure.load, Load)]
    generations = [load.pcie_generation for load in loads if known(load.pcie_generation)]
    widths = [load.pcie_width for load in loads if known(load.pcie_width)]
    if not generations or not widths:
        return Outcome(Status.unknown, subject, detail="Not seen: the link was not sampled during a copy.")
    seen_generation, seen_width = max(generations), max(widths)
    slowest = min(copies, key=lambda figure: figure.median)
    words: dict[str, Any] = {
        "subject": subject,
        "observed": f"Gen{seen_generation} x{seen_width}",
        "expected": f"Gen{generation} x{width}",
        "expected_from": witness,
    }
    beside = f"{_at(slowest)}: {_number(slowest.median)} GB/s"
    if seen_generation < generation or seen_width < width:
        told = f"Gen{seen_generation} x{seen_width} under load; {beside}."
        return (fail if _host_copies_fail(look, card) else warn)(told, **words)
    # Not above what the product is sold with: a later slot does not make its copies faster.
    lane = PCIE_GB_PER_S.get(min(seen_generation, generation))
    if lane is None:
        told = f"Gen{seen_generation} x{seen_width} under load; {beside}. What such a link carries is not known here."
        return Outcome(Status.unknown, detail=told, **words)
    rate = lane * seen_width
    if slowest.median < PCIE_SHARE * rate:
        share = slowest.median / rate
        return warn(
            f"{beside}, {share:.0%} of what Gen{seen_generation} x{seen_width} carries ({_number(rate)} GB/s).",
            **{**words, "observed": round(share, 3), "expected": PCIE_SHARE, "unit": "of the link's rate"},
        )
    return passed(f"Gen{seen_generation} x{seen_width} under load; {beside}.", **words)


def _host_copies_fail(look: Look, card: Card) -> bool:
    for promised in _promised(look, "host.h2d", "host.d2h"):
        figure = figures.measured(promised, look.measured.figures).get((card.key,))
        if figure and figures.limits(promised).status(figure.median) is not Status.passed:
            return True
    return False


@load_rule(
    "measurements.contention",
    "Cards share the host without starving each other",
    reads="host copies of all cards at once beside each card's alone",
    passes="what is left to each is stated; half is normal where two cards share a switch",
    warns=f"a card is left less than {CONTENDED:.0%} of what it gets alone",
    cause=Cause.slow,
    owner=Owner.provider,
    meaning="Loading data on all cards at once goes at a fraction of what each shows alone.",
    next_step="Ask the provider how the cards are attached: many of them behind one switch, or on one socket.",
    repeat="nvbandwidth -t host_to_all_memcpy_ce; nodecheck measure host",
)
def contention(look: Look) -> Iterator[Outcome]:
    if len(look.node.known_cards) < 2:
        yield skipped("There is no second card to share the host with.")
        return
    alone: dict[tuple[str, tuple[str, ...], object], Figure] = {}
    for figure in look.measured.figures:
        if figure.measure.startswith("host.") and figure.unit == "GB/s" and not figure.at.together:
            alone[figure.measure, figure.cards, figure.at] = figure
    shares: dict[str, dict[tuple[str, ...], float]] = defaultdict(dict)
    for figure in look.measured.figures:
        if figure.measure.startswith("host.") and figure.at.together:
            apart = figure.at.model_copy(update={"together": False})
            one = alone.get((figure.measure, figure.cards, apart))
            if one and one.median > 0:
                shares[figure.measure][figure.cards] = figure.median / one.median
    if not shares:
        if "host together" in look.measured.dropped:
            yield skipped("Copies of all cards at once were left out for the time budget.")
        else:
            yield Outcome(Status.unknown, detail="No copies of all cards at once were measured.")
        return
    told = "; ".join(
        f"{measure} {min(by_card.values()):.0%} to {max(by_card.values()):.0%}"
        for measure, by_card in shares.items()
    )
    least, cards = min((share, cards) for by_card in shares.values() for cards, share in by_card.items())
    words: dict[str, Any] = {"observed": round(least, 3), "unit": "of what the card gets alone"}
    if least < CONTENDED:
        where = look.subject(cards).label
        yield warn(
            f"Left to each when all copy at once: {told}; least to {where}.", expected=CONTENDED, **words
        )
    else:
        yield passed(f"Left to each when all copy at once: {told}.", **words)


@load_rule(
    "measurements.storage",
    "The disks keep up",
    reads="reading and writing on the scratch disk and the report's, past the caches",
    door="host",
    passes="the figures are stated",
    warns=f"a disk reads or writes less than {SLOW_DISK_GB_PER_S * 1000:g} MB/s in a row",
    cause=Cause.slow,
    owner=Owner.provider,
    meaning="Checkpoints and data sets take many minutes to write or read.",
    next_step="Ask the provider for a local NVMe disk, or which folder is on one.",
    repeat="nodecheck measure storage",
)
def storage(look: Look) -> Iterator[Outcome]:
    disks: dict[str, list[Figure]] = defaultdict(list)
    for figure in look.measured.figures:
        if figure.subject == "disk":
            disks[figure.name].append(figure)
    for name, own in disks.items():
        told = "; ".join(
            f"{figure.measure.partition('.')[2].replace('_', ' ')} {_number(figure.median)} {figure.unit}"
            f"{f' ({figure.at.ranks} at once)' if (figure.at.ranks or 1) > 1 else ''}"
            for figure in own
        )
        in_a_row = [f for f in own if f.unit == "GB/s" and "random" not in f.measure]
        slowest = min(in_a_row, key=lambda figure: figure.median, default=None)
        words: dict[str, Any] = {"subject": look.subject((), name)}
        if slowest:
            words |= {"observed": round(slowest.median, 4), "unit": slowest.unit}
        if slowest and slowest.median < SLOW_DISK_GB_PER_S:
            yield warn(f"{told}.", expected=SLOW_DISK_GB_PER_S, **words)
        else:
            yield passed(f"{told}.", **words)
    if disks:
        return
    if figures.stage_left_out("storage", look.measured):
        yield skipped("storage was left out for the time budget.")
        return
    runs = [run for run in look.measured.stages if run.stage == "storage"]
    reason = next((first_line(run.detail) for run in runs if run.status != "done"), "nothing says why")
    yield Outcome(Status.unknown, detail=f"No disk was measured: {reason}.")

"""The profile's figures beside the measured ones: which belong together, what is too slow, what to measure again.

`docs/statistics.md` shows by simulation what the constants here lead to: how often a healthy node is warned of or
rejected, and how often a slow card is named.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from statistics import median
from typing import Literal

from packaging.version import InvalidVersion, Version

from nodecheck.facts import Absent, Card, Maybe, Measurements, Node, Why, known, or_none
from nodecheck.facts.measurements import MOST_TRIES, Figure, StageName, StageRun
from nodecheck.judge.finding import Status
from nodecheck.profile import MEASURES, Profile
from nodecheck.profile import Figure as Promised
from nodecheck.profile.levels import size_bytes as size_bytes

LEAST_SPREAD = 0.01
"""Of the median. The repetitions of one process lie closer together than processes do: on an H200 within 0.1 % and
0.4 % (2026-11-30)."""
REJECTS_BELOW = 0.5
"""Of typical: where a profile gives no figure that fails, or only a derived one, less than this is no spread."""

SIBLINGS = ("hbm.", "gemm.", "host.h2d", "host.d2h")
"""What is compared between cards: these repeat within 0.4 % on an H200. Latencies, and copies in both directions at
once, do not."""
FEWEST_SIBLINGS = 3
"""Of two cards nobody can say which one is the rule: the slower is warned of and never fails."""
WARN_BEHIND, WARN_BEHIND_HOST = 0.04, 0.08
FAIL_BEHIND, FAIL_BEHIND_HOST = 0.10, 0.20
"""Shares below the cards' median from which on one is slow, however close together the others lie. A card 5 % slow has
to be named although both readings vary. Host copies differ for reasons that are no fault: the slot, and the pages that
the buffer happens to lie in (one H200 gave 53.15 GB/s throughout one process and 55.51 in the next, 2026-11-30)."""
WARN_WIDTHS, FAIL_WIDTHS = 3.0, 5.0
"""Standard deviations (see `_deviation`) that a card may be behind, where the cards lie further apart than the floors
above."""
LEAST_COPY_BYTES = 64 * 1024**2
"""Smaller copies measure latency."""
LEAST_STAND_IN_BYTES = 16 * 1024**2
"""From here on links bound a collective, and its type hardly matters: two H200 gave 350 GB/s in bfloat16 and 345 in
float32 at 8 GiB (2026-11-30). Profiles are in bfloat16, nccl-tests in float32 unless told otherwise."""

NVLS_FROM = 5
"""Cards from which on NCCL takes NVLink SHARP: up to four it does not."""

# Which belong together


def subject_of(measure: str) -> Literal["card", "pair", "group"]:
    """What a measure of a profile is measured on."""
    if measure.startswith(("hbm.", "gemm.", "host.", "launch.")):
        return "card"
    return "pair" if measure.startswith("pairs.") else "group"


def stage_of(measure: str) -> StageName:
    """The stage that measures it."""
    stages: tuple[StageName, ...] = ("hbm", "gemm", "host", "pairs")
    for stage in stages:
        if measure.startswith(f"{stage}."):
            return stage
    return "host" if measure.startswith("launch.") else "collectives"


def promises(node: Node, profile: Profile) -> Iterator[Promised]:
    """The profile's figures that this node is held against.

    Not those of another torch, nor what a board gives without NVLink SHARP: that stands beside another figure.
    """
    for promised in profile.figures:
        if not promised.measure.endswith("_without_nvls") and of_this_torch(promised, node) is True:
            yield promised


def of_this_torch(promised: Promised, node: Node) -> Maybe[bool]:
    """Whether the figure is of the torch that is here, or of any; absent where that torch's version is."""
    if promised.at.torch is None:
        return True
    version = torch_version(node)
    if isinstance(version, Absent):
        return version
    release, _, build = promised.at.torch.partition("+")
    try:
        here = Version(version)
    except InvalidVersion:
        return False
    return f"{here.major}.{here.minor}" == release and build in ("", here.local)


def torch_version(node: Node) -> Maybe[str]:
    """What the renter's torch says that it is, `2.11.0+cu130`."""
    if isinstance(node.stack, Absent):
        return node.stack
    return node.stack.torch if isinstance(node.stack.torch, Absent) else node.stack.torch.version


def measured(promised: Promised, figures: Iterable[Figure]) -> dict[tuple[str, ...], Figure]:
    """The figure of each subject (by its cards) for exactly the size, type, shape and count of `promised`.

    Of figures that differ only in what a profile does not tell apart (in place or not) the better one stands; a card
    measured beside others stands only where none was measured alone. A large collective of another type stands in where
    none of the type was measured.
    """
    sign = 1 if MEASURES[promised.measure].more_is_better else -1

    def standing(figure: Figure) -> tuple[bool, float]:
        return not figure.at.together, sign * figure.median

    exact: dict[tuple[str, ...], Figure] = {}
    others: dict[tuple[str, ...], Figure] = {}
    for figure in figures:
        if figure.measure == promised.measure and figure.unit == promised.unit and _fits(promised, figure):
            found = others if stands_in(promised, figure) else exact
            found[figure.cards] = max(found.get(figure.cards, figure), figure, key=standing)
    return others | exact


def stands_in(promised: Promised, figure: Figure) -> bool:
    """Whether the figure is of another type than the promised one."""
    return promised.at.dtype not in (None, figure.at.dtype)


def of_subject(found: dict[tuple[str, ...], Figure], cards: tuple[str, ...]) -> Figure | None:
    """The subject's figure. The order of a group's ranks is the program's, and makes it no other group."""
    if (exact := found.get(cards)) is not None:
        return exact
    return next((f for f in found.values() if f.subject == "group" and set(f.cards) == set(cards)), None)


def _fits(promised: Promised, figure: Figure) -> bool:
    at, here = promised.at, figure.at
    if here.sustained or here.pinned is False:
        return False
    if here.together and subject_of(figure.measure) == "card" and figure.stage == "host":
        return False  # what all cards at once get through shared switches is another figure
    return (
        (at.size is None or size_bytes(at.size) == here.size_bytes)
        and (at.dtype in (None, here.dtype) or _hardly_of_a_type(figure))
        and (at.shape is None or at.shape == here.shape)
        and (at.ranks is None or at.ranks == here.ranks == len(figure.cards))
    )


def _hardly_of_a_type(figure: Figure) -> bool:
    return figure.measure.endswith(".busbw") and (figure.at.size_bytes or 0) >= LEAST_STAND_IN_BYTES


def at_another_size(promised: Promised, profile: Profile, figures: Iterable[Figure]) -> Promised | None:
    """The profile's next figure that differs in its size alone and was measured."""
    figures = tuple(figures)
    for other in profile.figures:
        if (
            other.measure == promised.measure
            and other.at.size != promised.at.size
            and other.at.model_copy(update={"size": None}) == promised.at.model_copy(update={"size": None})
            and measured(other, figures)
        ):
            return other
    return None


# How it is held against the profile


@dataclass(frozen=True)
class Limits:
    """From where on a figure warns and fails; None: never. Lower limits, or upper ones where less is better."""

    warn: float | None
    fail: float | None
    more_is_better: bool = True

    def beyond(self, value: float, limit: float | None) -> bool:
        if limit is None:
            return False
        return value < limit if self.more_is_better else value > limit

    def status(self, value: float) -> Status:
        if self.beyond(value, self.fail):
            return Status.fail
        return Status.warn if self.beyond(value, self.warn) else Status.passed

    @property
    def first(self) -> float | None:
        """The limit that is met first."""
        return self.fail if self.warn is None else self.warn


def limits(promised: Promised) -> Limits:
    """A derived figure warns, and fails only under half of typical; so does one without a limit that fails."""
    if not MEASURES[promised.measure].more_is_better:
        derived = promised.kind == "derived"
        return Limits(promised.warn_above, None if derived else promised.fail_above, more_is_better=False)
    warn, fail = promised.warn_below, promised.fail_below
    if promised.kind == "derived" or fail is None:
        fail = REJECTS_BELOW * promised.typical
        if warn is not None and warn < fail:
            fail = REJECTS_BELOW * warn  # the profile itself expects less than half of typical
    return Limits(warn, fail)


def limits_of(promised: Promised, figure: Figure, node: Node, profile: Profile) -> Limits:
    """The limits of this figure: one of another type fails only on a gross fault."""
    here = limits_here(promised, node, profile)
    if here.fail is None or not stands_in(promised, figure):
        return here
    return Limits(here.warn, min(here.fail, REJECTS_BELOW * promised.typical))


def limits_here(promised: Promised, node: Node, profile: Profile) -> Limits:
    """The limits on this node.

    Without NVLink SHARP a board gives `all_reduce.busbw_without_nvls`. That it is off is a finding of its own
    (`measurements.nvls`), and here no failure: it only warns, as long as the figure is what it is without.
    """
    own = limits(promised)
    if promised.measure != "all_reduce.busbw" or nvls(node, profile) is not False:
        return own
    without = next(
        (
            other
            for other in profile.figures
            if other.measure == "all_reduce.busbw_without_nvls" and other.at == promised.at
        ),
        None,
    )
    if without is None:
        return Limits(own.warn, REJECTS_BELOW * promised.typical)
    return Limits(own.warn, limits(without).first)


def nvls(node: Node, profile: Profile) -> bool | Absent | None:
    """Whether NCCL used NVLink SHARP for the group of all cards; None where the board or so few cards have none."""
    links = profile.links
    if links is None or not links.fabric or profile.count < NVLS_FROM or float(links.version or 0) < 4:
        return None
    if isinstance(node.measurements, Absent):
        return node.measurements
    for transport in node.measurements.transports:
        if len(transport.cards) == profile.count and transport.paths:
            told = (*transport.paths, *(algorithm for _, algorithm in transport.algorithms))
            return any("NVLS" in word for word in told)
    return Absent(why=Why.not_asked, detail="NCCL's log was not read for all cards")


def joined(node: Node, profile: Profile, cards: Iterable[str]) -> bool:
    """Whether every two of these cards are joined by NVLink or xGMI: as the driver sees it, or as the profile
    promises."""
    keys = tuple(dict.fromkeys(cards))
    if len(keys) < 2:
        return False
    links = profile.links
    every_pair = links and (
        links.interconnect == "nvlink" or (links.interconnect == "xgmi" and links.hive_cards is None)
    )
    if every_pair and profile.count > 1:
        return True
    pairs = or_none(node.topology.pairs) if known(node.topology) else None
    found = {
        frozenset((pair.a, pair.b)): or_none(pair.nvlinks) or pair.link_type == "xgmi" for pair in pairs or ()
    }
    return all(found.get(frozenset(two)) for two in combinations(keys, 2))


def expected_subjects(promised: Promised, node: Node, profile: Profile) -> tuple[tuple[str, ...], ...]:
    """The cards of every subject that the figure is to be measured on."""
    keys = tuple(card.key for card in node.known_cards)
    kind = subject_of(promised.measure)
    if kind == "card":
        return tuple((key,) for key in keys)
    if kind == "group":
        return (keys,) if keys else ()
    # Both directions at once have no direction: such a pair is measured once.
    both_ways = promised.measure != "pairs.two_way"
    pairs = permutations(keys, 2) if both_ways else combinations(keys, 2)
    return tuple(pair for pair in pairs if joined(node, profile, pair))


# How cards compare


@dataclass(frozen=True)
class Place:
    """Where a card's figure stands among its siblings'."""

    figure: Figure
    """The card's: of a product, that of its best shape."""
    usual: float
    """Median of the siblings; of two cards, the other one's figure."""
    behind: float
    """Share below `usual`; negative where it is faster."""
    limits: Limits
    """In shares behind; more is worse."""

    @property
    def status(self) -> Status:
        return self.limits.status(self.behind)


def places(node: Node) -> dict[str, list[Place]]:
    """Of every card, where each of its comparable figures stands among those of the same model's cards."""
    found: dict[str, list[Place]] = defaultdict(list)
    if isinstance(node.measurements, Absent):
        return found
    model = {card.key: or_none(card.identity.name) for card in node.known_cards}
    alike: dict[tuple[object, ...], dict[str, Figure]] = defaultdict(dict)
    for figure in node.measurements.figures:
        if not _comparable(figure) or figure.cards[0] not in model:
            continue
        at = figure.at.model_copy(update={"shape": None})
        ours = alike[model[figure.cards[0]], figure.measure, at]
        best = ours.get(figure.cards[0])
        if best is None or figure.median > best.median:
            ours[figure.cards[0]] = figure
    for ours in alike.values():
        for card, place in _compare(ours):
            found[card].append(place)
    return found


def _comparable(figure: Figure) -> bool:
    at = figure.at
    return (
        figure.subject == "card"
        and figure.measure.startswith(SIBLINGS)
        and not figure.measure.endswith("_payload")  # the same copy, counted once
        and not at.sustained  # held by the power limit, at which cards differ by nature
        and (figure.stage != "host" or (at.pinned is not False and not at.together))
        and (at.size_bytes is None or at.size_bytes >= LEAST_COPY_BYTES)
    )


def _compare(figures: dict[str, Figure]) -> Iterator[tuple[str, Place]]:
    values = {card: figure.median for card, figure in figures.items()}
    if len(values) < 2 or min(values.values()) <= 0:
        return
    middle = median(values.values())
    several = len(values) >= FEWEST_SIBLINGS
    deviation = _deviation(tuple(values.values())) / middle if several else 0.0
    for card, figure in figures.items():
        usual = middle if several else max(values.values())
        host = figure.stage == "host"
        bounds = Limits(
            max(WARN_BEHIND_HOST if host else WARN_BEHIND, WARN_WIDTHS * deviation),
            max(FAIL_BEHIND_HOST if host else FAIL_BEHIND, FAIL_WIDTHS * deviation) if several else None,
            more_is_better=False,
        )
        yield card, Place(figure, usual, 1 - figure.median / usual, bounds)


_SMALL_SAMPLES = {3: 1.495, 4: 1.363, 5: 1.206, 6: 1.200, 7: 1.140, 8: 1.129, 9: 1.107}


def _deviation(values: Sequence[float]) -> float:
    """Standard deviation of three values or more, of which some may be far off.

    The median absolute deviation × 1.4826, as for normal values, × what it is too small by of so few (Croux and
    Rousseeuw, Time-efficient algorithms for two highly robust estimators of scale, 1992).
    """
    middle, count = median(values), len(values)
    few = _SMALL_SAMPLES.get(count, count / (count - 0.8))
    return few * 1.4826 * median(abs(value - middle) for value in values)


# What to measure again


def spread(figure: Figure) -> float:
    """How far another reading may lie from the median, in the figure's unit."""
    return max(figure.p95 - figure.median, figure.median - figure.p5, LEAST_SPREAD * figure.median)


def borderline(node: Node, profile: Profile) -> tuple[Figure, ...]:
    """The figures that would warn or fail although the limit lies within their own spread: measure them again.

    A figure measured `MOST_TRIES` times counts as it is.
    """
    if isinstance(node.measurements, Absent):
        return ()
    doubtful: dict[int, Figure] = {}

    def look(figure: Figure, value: float, bounds: Limits, width: float) -> None:
        status = bounds.status(value)
        limit = {Status.fail: bounds.fail, Status.warn: bounds.warn}.get(status)
        if limit is not None and abs(value - limit) <= width and len(figure.tries) < MOST_TRIES:
            doubtful[id(figure)] = figure

    for promised in promises(node, profile):
        for figure in measured(promised, node.measurements.figures).values():
            look(figure, figure.median, limits_of(promised, figure, node, profile), spread(figure))
    for card in places(node).values():
        for place in card:
            look(place.figure, place.behind, place.limits, spread(place.figure) / place.usual)
    return tuple(doubtful.values())


# Why a figure is missing


def run_of(stage: StageName, cards: Iterable[str], measurements: Measurements) -> StageRun | None:
    """How the stage went on these cards: the narrowest run that had all of them."""
    wanted = set(cards)
    runs = [run for run in measurements.stages if run.stage == stage and wanted <= set(run.cards)]
    return min(runs, key=lambda run: len(run.cards), default=None)


def stage_left_out(stage: StageName, measurements: Measurements) -> bool:
    """Whether the time budget left out the stage."""
    return stage in measurements.dropped


def left_out(measure: str, measurements: Measurements) -> bool:
    """Whether the time budget left out what measures it."""
    return stage_left_out(stage_of(measure), measurements) or (
        measure == "pairs.two_way" and "pairs two-way" in measurements.dropped
    )


def by_key(node: Node) -> dict[str, Card]:
    return {card.key: card for card in node.known_cards}

"""How often the judge is wrong: simulated runs of H200 nodes, judged by the functions that judge real ones.

`make statistics` writes docs/statistics.md with it, in some minutes. Its seeds are fixed: the same page comes out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from random import Random

from nodecheck.facts import Measurements, Node
from nodecheck.facts.measurements import MOST_TRIES, Figure
from nodecheck.judge import REGISTRY, Status, figures
from nodecheck.judge.rule import Outcome
from nodecheck.profile import Profile, load
from tests.healthy import node as healthy
from tests.measured import SPREAD, measurements, spread

COUNTS = (1, 2, 4, 8)
HEALTHY_RUNS = 4000
"""None of 4000 is less than 0.075 % with a confidence of 95 % (the rule of three)."""
DIFFERENT_RUNS = 1000
FAULTY_RUNS = 300
"""All of 300 is more than 99 % with the same confidence."""

BY_NATURE = {"hbm": 0.001, "gemm": 0.01, "gemm.float32": 0.002, "host": 0.001}
"""Standard deviation between healthy cards of one model, as a share, and at least what was seen between the cards of
three guests with H200 (2026-11-30, four readings): copies in memory 0.04 %, host copies 0.1 %, products 0.8 to 1.1 %,
since they are held by the power limit, and float32 products, which are not, 0.2 %. One card's products share their
deviation: those of a card that is 1 % behind in bfloat16 were as much behind in all types but float32. (Host links of
one board lie within 0.1 of 55 GB/s: stas00/ml-engineering@744d01e network/README.md.)"""
PAGES, SLOW_PAGES = 1 / 10, 53.15 / 55.51
"""One process of some ten whose buffer lay in pages that slowed its copies to the card throughout; another try takes
other pages."""
DIPS, DEEPEST = 1 / 6, 686 / 796
"""One of six readings of the 8192³ product fell into the moment when the power limit pulls the clock down."""

KINDS = {
    "hbm": ("hbm.",),
    "gemm": ("gemm.",),
    "gemm, but for float32": (
        "gemm.bfloat16",
        "gemm.float16",
        "gemm.float8",
        "gemm.tfloat32",
        "gemm.float64",
    ),
    "host": ("host.",),
}
"""What of a card may be slow, and how the measures begin that show it. A low clock shows in all products, what holds
back the tensor cores not in float32."""


@dataclass(frozen=True)
class Fault:
    """What is wrong with the node: its last card, or the link between its first two."""

    kind: str
    """One of `KINDS`, of a card; `pairs`; `all_reduce`; empty: nothing."""
    share: float = 0.0
    """By how much it is slower."""


@dataclass(frozen=True)
class Result:
    """What came of one run."""

    rejected: bool
    warned: bool
    named: bool
    """A warning or failure is about the card, pair or group that is at fault."""
    again: int
    """Figures that were measured again."""


RULES = tuple(rule for rule in REGISTRY.values() if rule.id.startswith("measurements."))


def _as_it_is(_measure: str, _cards: tuple[str, ...]) -> float:
    return 1.0


@cache
def base(count: int) -> tuple[Profile, Node, Measurements]:
    """A healthy node with every figure at its typical value."""
    profile = load(f"h200x{count}")
    node = healthy(profile, level="standard")
    typical = measurements(profile, tuple(card.key for card in node.known_cards), vary=_as_it_is)
    judged = tuple(figure for figure in typical.figures if _is_judged(figure, profile))
    return profile, node, typical.model_copy(update={"figures": judged})


def _is_judged(figure: Figure, profile: Profile) -> bool:
    """Whether a rule holds the figure against anything; the rest of a curve would only cost time."""
    promised = any(figures.measured(promised, [figure]) for promised in profile.figures)
    return promised or figure.measure.startswith(figures.SIBLINGS) or figure.at.together


def run(count: int, random: Random, fault: Fault, apart: float) -> Result:
    """Measure a node, measure again what is borderline, and judge it. `apart`: × `BY_NATURE`."""
    profile, node, typical = base(count)
    keys = [card.key for card in node.known_cards]
    nature = {
        (key, kind): random.gauss(1.0, apart * share) for key in keys for kind, share in BY_NATURE.items()
    }

    def reading(figure: Figure) -> float:
        value = figure.median * max(0.1, random.gauss(1.0, spread(figure.measure)))
        if (
            figure.at.shape == "8192x8192x8192"
            and figure.measure == "gemm.bfloat16"
            and random.random() < DIPS
        ):
            value *= random.uniform(DEEPEST, 1.0)
        if figure.measure == "host.h2d" and random.random() < PAGES:
            value *= SLOW_PAGES
        if len(figure.cards) == 1:
            value *= nature.get((figure.cards[0], _by_nature(figure.measure)), 1.0)
        return value * _slowness(figure, fault, keys)

    def again(figure: Figure, tries: tuple[float, ...]) -> Figure:
        value = reading(figure)
        told = (*tries, value) if tries else ()
        return figure.model_copy(
            update={"median": value, "p5": 0.999 * value, "p95": 1.001 * value, "tries": told}
        )

    at = dict(enumerate(typical.figures))
    seen = {place: again(figure, ()) for place, figure in at.items()}
    repeated = 0
    for _ in range(MOST_TRIES - 1):
        measured = _with(node, typical, seen)
        doubtful = {id(figure) for figure in figures.borderline(measured, profile)}
        if not doubtful:
            break
        for place, figure in seen.items():
            if id(figure) in doubtful:
                repeated += 1
                seen[place] = again(at[place], figure.tries or (figure.median,))
    outcomes = list(_judged(_with(node, typical, seen), profile))
    troubled = [outcome for outcome in outcomes if outcome.status in (Status.warn, Status.fail)]
    return Result(
        rejected=any(outcome.status is Status.fail for outcome in troubled),
        warned=any(outcome.status is Status.warn for outcome in troubled),
        named=any(outcome.subject.key == _culprit(fault, keys) for outcome in troubled),
        again=repeated,
    )


def _by_nature(measure: str) -> str:
    """The longest of `BY_NATURE` that the measure begins with."""
    return max((kind for kind in BY_NATURE if measure.startswith(kind)), key=len, default="")


def _with(node: Node, typical: Measurements, seen: dict[int, Figure]) -> Node:
    return node.model_copy(
        update={"measurements": typical.model_copy(update={"figures": tuple(seen.values())})}
    )


def _judged(node: Node, profile: Profile) -> Iterator[Outcome]:
    for rule in RULES:
        yield from rule.judge(node, profile)


def _slowness(figure: Figure, fault: Fault, keys: list[str]) -> float:
    if not fault.kind or not figure.measure.startswith(KINDS.get(fault.kind, (fault.kind,))):
        return 1.0
    hit = {
        "pairs": set(figure.cards) == set(keys[:2]),
        "all_reduce": figure.name == "all",
    }.get(fault.kind, figure.cards == (keys[-1],))
    slower = figure.measure.endswith("latency")
    return 1.0 if not hit else (1 / (1 - fault.share) if slower else 1 - fault.share)


def _culprit(fault: Fault, keys: list[str]) -> str:
    if fault.kind == "pairs":
        return "+".join(sorted(keys[:2])) if len(keys) > 1 else ""
    return "+".join(keys) if fault.kind == "all_reduce" else keys[-1]


def rate(count: int, fault: Fault, runs: int, says: Callable[[Result], bool], apart: float = 1.0) -> float:
    """The share of `runs` of which `says` is true."""
    results = results_of(count, fault, runs, apart)
    return sum(says(result) for result in results) / len(results)


@cache
def results_of(count: int, fault: Fault, runs: int, apart: float = 1.0) -> tuple[Result, ...]:
    random = Random(f"{count} {fault} {apart}")
    return tuple(run(count, random, fault, apart) for _ in range(runs))


# The page


def percent(share: float) -> str:
    return f"{100 * share:.2f} %".replace(".00 %", " %")


def page() -> Iterator[str]:
    healthy_fault = Fault("")
    yield _INTRODUCTION
    yield "## Healthy nodes\n"
    yield f"{HEALTHY_RUNS} runs each, and {DIFFERENT_RUNS} of nodes whose cards lie twice as far apart.\n"
    yield "| cards | rejected | warned | measured again | rejected, twice apart | warned, twice apart |"
    yield "|---|---|---|---|---|---|"
    for count in COUNTS:
        usual, wide = (count, healthy_fault, HEALTHY_RUNS), (count, healthy_fault, DIFFERENT_RUNS)
        again = sum(result.again for result in results_of(*usual)) / HEALTHY_RUNS
        yield (
            f"| {count} | {percent(rate(*usual, _rejects))} | {percent(rate(*usual, _warns))} | {again:.3f} figures "
            f"| {percent(rate(*wide, _rejects, 2.0))} | {percent(rate(*wide, _warns, 2.0))} |"
        )
    yield f"\nNone of {HEALTHY_RUNS} means less than {300 / HEALTHY_RUNS:.3f} % with a confidence of 95 %.\n"
    yield _WHAT_IT_DOES_NOT_SAY
    yield "## One slow card\n"
    yield f"How often the card is named, by a warning or a failure about it; {FAULTY_RUNS} runs each.\n"
    yield "| slower | in | 1 card | 2 cards | 4 cards | 8 cards | 8 cards, twice apart | rejected, of 8 |"
    yield "|---|---|---|---|---|---|---|---|"
    for share in (0.03, 0.05, 0.12):
        for kind in KINDS:
            fault = Fault(kind, share)
            cells = [percent(rate(count, fault, FAULTY_RUNS, _names)) for count in COUNTS]
            cells.append(percent(rate(8, fault, FAULTY_RUNS, _names, 2.0)))
            cells.append(percent(rate(8, fault, FAULTY_RUNS, _rejects)))
            yield f"| {percent(share)} | {kind} | {' | '.join(cells)} |"
    yield _ONE_CARD
    yield "## A slow link, a slow group\n"
    yield "| slower | what | 2 cards | 4 cards | 8 cards | rejected, of 8 |"
    yield "|---|---|---|---|---|---|"
    for kind, what in (("pairs", "the link between two cards"), ("all_reduce", "all_reduce over all cards")):
        for share in (0.08, 0.15, 0.25):
            fault = Fault(kind, share)
            cells = [percent(rate(count, fault, FAULTY_RUNS, _names)) for count in COUNTS[1:]]
            cells.append(percent(rate(8, fault, FAULTY_RUNS, _rejects)))
            yield f"| {percent(share)} | {what} | {' | '.join(cells)} |"
    yield _LAST


def _rejects(result: Result) -> bool:
    return result.rejected


def _warns(result: Result) -> bool:
    return result.warned


def _names(result: Result) -> bool:
    return result.named


_SPREADS = "\n".join(f"| `{name}` | {percent(share)} |" for name, share in SPREAD.items())

_NATURES = ", ".join(f"`{kind}` {percent(share)}" for kind, share in BY_NATURE.items())

_INTRODUCTION = f"""\
# How often the judge is wrong

This page is written by `docs/simulation.py` (`make statistics`; fixed seeds). It draws readings of nodes of H200s
around the typical figures of the profiles `h200x1` to `h200x8`, has borderline figures measured again as a real run
does, and judges them with the functions that judge real nodes (`nodecheck/judge/figures.py` and the rules
`measurements.*`). Nothing but the readings is made up.

## What is decided how

- **Against the profile**: a figure below `warn_below` warns, one below `fail_below` fails; a derived one fails only
  below half of typical ({percent(figures.REJECTS_BELOW)}).
- **Against the siblings**: a card warns that is {percent(figures.WARN_BEHIND)} or more below its siblings' median, and
  fails at {percent(figures.FAIL_BEHIND)} (host copies: {percent(figures.WARN_BEHIND_HOST)} and
  {percent(figures.FAIL_BEHIND_HOST)}, since slots differ, and the pages that a buffer lies in);
  where the cards lie further apart, the limits widen to {figures.WARN_WIDTHS:g} and {figures.FAIL_WIDTHS:g} standard
  deviations, told from the median absolute deviation and how few the cards are. The limit is below the 5 % that is to
  be found, since both the reading and the median vary. Of two cards the slower one warns and never fails: nobody can
  say which of the two is as it should be.
- **Again**: a figure beyond a limit that lies within its own spread ({percent(figures.LEAST_SPREAD)} at least) is
  measured again, up to {MOST_TRIES} times; the last reading counts.

## The readings

Standard deviations from one process to the next, as shares of the figure: the range of six fresh processes on one
H200 (2026-11-30) divided by 2.53. Those of pairs, collectives, storage and latencies other than
`launch.latency` could not be measured there and are assumed. One of six readings of the 8192³ product
falls by up to {percent(1 - DEEPEST)}, as it did when it was measured without pauses, and one of ten
of copies to the card by {percent(1 - SLOW_PAGES)}, as it did in one process, for the pages that its buffer lay in.

| figure | standard deviation |
|---|---|
{_SPREADS}

Healthy cards differ as well, and the readings of one card lie around its own level, with standard deviations of
{_NATURES}: at least what the cards of three
guests showed (four readings). Products are held by the power limit, and a card that needs more power for its clock is
behind in all types of them alike; float32 products are not.
"""

_WHAT_IT_DOES_NOT_SAY = """\
The readings lie around the profiles' typical figures, and those were measured with one driver and one torch. A node
whose own level is lower for other reasons (another driver, slot or virtual machine) is nearer to the limits than this
table says.
"""

_ONE_CARD = """
What can be had, and what cannot:

- **Several cards.** One that is 5 % slow in memory or in all products (a low clock) is named, though
  its other products differ by 1 % from its siblings' anyhow: float32 products are not held by the power limit, lie
  within 0.2 %, and tell. Where the tensor cores alone are slow, a card that is 5 % slow cannot be told from one that is
  behind by nature, and is named as often as that row says. Taking several types of product together does not help: a
  card is behind in all of them, healthy or not.
- **Of two cards** the slower is warned of and not rejected for being slower than the other; where healthy cards lie
  twice as far apart as those that were seen, one of such a pair is often warned of.
- **One card** has no siblings: only the profile's limits tell. Copies in memory warn 3.7 % below typical, being the
  driver's and alike on all cards that were seen; so do float32 products, with the torch that they were measured with
  (2.11 for CUDA 13.0; cuBLAS comes with it). With another torch a single card that is 5 % slow in products is not
  named, nor with any where its tensor cores alone are slow: the limits are 10 % below typical there.
- **Host copies** that are 5 % slow are not named. Of several cards one is behind its siblings by 4 % now and then, for
  the pages alone. One card's: a healthy H200 gives 55.4 GB/s in one virtual machine and 52 in another
  (Azure/AI-benchmarking-guide@8fd0c6e), so the limit lies below that. What is wrong with a link takes half of it.
"""

_LAST = """
Links and groups have no siblings with two cards; there, too, only the profile's limits tell.
"""


def shares(count: int, fault: Fault, runs: int) -> tuple[float, float]:
    """Shares named and rejected, of a few runs."""
    results = results_of(count, fault, runs)
    return sum(r.named for r in results) / runs, sum(r.rejected for r in results) / runs


if __name__ == "__main__":
    for line in page():
        print(line)

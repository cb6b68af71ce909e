"""Raw answers of the workers → facts. Answers may come from somebody else's recording: nothing in them is believed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, harmonic_mean, median
from typing import Any, Literal

from nodecheck.facts import Absent, Maybe, Why
from nodecheck.facts.measurements import Check, Conditions, Figure, Load, StageRun
from nodecheck.measure.plan import STAGES, Step
from nodecheck.measure.statistics import percentile
from nodecheck.probes.nvidia import event_reasons
from nodecheck.sources.channel import Json

MOST_ROWS = 5000
"""Of one card in one answer; a whole curve of collectives has some hundred."""
MOST_CHARACTERS = 4000
"""Of a log or an error that is kept as evidence."""
MOST_EXAMPLES = 8
MOST_NUMBER = 1e30
"""Nothing that is measured is as large; sums of what is larger may have no end."""

_MEASURE = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)+")
_UNITS = ("GB/s", "TFLOP/s", "us", "s", "bytes", "IOPS")


class Strange(str):
    """An answer of another shape, in words that fit after "the answer"."""


# Small pieces of JSON.


def mapping(value: Json) -> Mapping[str, Json]:
    """An object, or an empty one."""
    return value if isinstance(value, dict) else {}


def items(value: Json) -> list[Json]:
    """A list, or an empty one."""
    return value if isinstance(value, list) else []


def text(value: Json, limit: int = MOST_CHARACTERS) -> str:
    """The end of a text, since that is where logs say what happened; empty for anything else."""
    return value[-limit:] if isinstance(value, str) else ""


def number(value: Json) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) <= MOST_NUMBER else None


def whole(value: Json) -> int | None:
    """A number that counts something: none of Python's or JSON's oddities, and not below zero."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else None


# Rows and checks.


@dataclass(frozen=True)
class Row:
    """One figure as a worker tells it: a value for each repetition."""

    measure: str
    unit: str
    name: str
    at: Conditions
    values: tuple[float, ...]
    own: bool = False
    """Of a group: this rank's alone, no part of the group's figure."""
    pair: tuple[str, str] | None = None
    """From and to."""


def rows(step: Step, card: str, answer: Mapping[str, Json]) -> Iterator[Row | Strange]:
    """The rows of one worker's answer; what is none is a `Strange`."""
    found = answer.get("rows", [])
    if not isinstance(found, list) or len(found) > MOST_ROWS:
        yield Strange("has no list of rows")
        return
    for row in found:
        yield _row(step, card, row)


def _row(step: Step, card: str, row: Json) -> Row | Strange:
    if not isinstance(row, dict):
        return Strange("holds a row that is no object")
    measure, unit = row.get("measure"), row.get("unit")
    if not isinstance(measure, str) or len(measure) > 64 or not _MEASURE.fullmatch(measure):
        return Strange("holds a row without the name of what was measured")
    if unit not in _UNITS:
        return Strange(f"gives {measure} in no unit that is known")
    values = [number(value) for value in items(row.get("values"))]
    finite = tuple(value for value in values if value is not None and value >= 0)
    if not finite or len(finite) < len(values):
        return Strange(f"gives values of {measure} that are none")
    pair = _pair(card, row)
    if step.pairs and pair not in step.pairs:
        return Strange(f"gives {measure} of a pair that was not asked for")
    own = row.get("subject") == "card"
    return Row(measure, unit, text(row.get("name"), 100), conditions(row), finite, own, pair)


def _pair(card: str, row: Mapping[str, Json]) -> tuple[str, str] | None:
    peer = text(row.get("peer"), 200)
    return (text(row.get("from"), 200) or card, peer) if peer else None


def figure(step: Step, card: str, row: Row, load: Maybe[Load]) -> Figure:
    subject, cards = _subject(step, card, row.pair, row.own)
    return Figure(
        measure=row.measure,
        stage=step.stage,
        subject=subject,
        cards=cards,
        name=step.group or row.name,
        at=row.at,
        unit=row.unit,
        median=median(row.values),
        p5=percentile(row.values, 5),
        p95=percentile(row.values, 95),
        repetitions=len(row.values),
        load=load,
    )


def checks(step: Step, card: str, answer: Mapping[str, Json]) -> Iterator[Check | Strange]:
    """The checks of one card's answer; one that is of another shape is a `Strange`."""
    found = answer.get("checks", [])
    if not isinstance(found, list) or len(found) > MOST_ROWS:
        yield Strange("has no list of checks")
        return
    for row in found:
        name = row.get("check") if isinstance(row, dict) else None
        if not isinstance(name, str) or len(name) > 64 or not _MEASURE.fullmatch(name):
            yield Strange("holds a check without a name")
            continue
        compared, wrong = whole(row.get("compared")), whole(row.get("wrong"))
        if compared is None or wrong is None:
            yield Strange(f"does not say how much {name} compared")
            continue
        pair = _pair(card, row)
        if step.pairs and pair not in step.pairs:
            yield Strange(f"holds {name} of a pair that was not asked for")
            continue
        subject, cards = _subject(step, card, pair)
        covered = number(row.get("covered"))
        yield Check(
            check=name,
            stage=step.stage,
            subject="card" if subject == "disk" else subject,
            cards=cards,
            name=step.group or text(row.get("name"), 100),
            at=conditions(row),
            compared=compared,
            wrong=wrong,
            covered=None if covered is None else min(max(covered, 0.0), 1.0),
            examples=tuple(text(example, 300) for example in items(row.get("examples"))[:MOST_EXAMPLES]),
        )


def _subject(
    step: Step, card: str, pair: tuple[str, str] | None, own: bool = False
) -> tuple[Literal["card", "pair", "group", "disk"], tuple[str, ...]]:
    if step.stage == "storage":
        return "disk", ()
    if step.pairs and pair is not None:
        return "pair", pair
    if step.group and not own:
        return "group", step.cards
    return "card", (card,)


def conditions(row: Mapping[str, Json]) -> Conditions:
    def words(name: str) -> str | None:
        return text(row.get(name), 64) or None

    def flag(name: str) -> bool | None:
        value = row.get(name)
        return value if isinstance(value, bool) else None

    return Conditions(
        size_bytes=whole(row.get("size_bytes")),
        dtype=words("dtype"),
        shape=words("shape"),
        ranks=whole(row.get("ranks")),
        in_place=flag("in_place"),
        together=flag("together") or False,
        sustained=flag("sustained") or False,
        pinned=flag("pinned"),
    )


# The card meanwhile.


def load(samples: Iterable[Json]) -> Maybe[Load]:
    """What the samples of a card (or of a group's cards) come to.

    A sample: [seconds, SM MHz, watts, celsius, event reasons as NVML's bits, PCIe generation, PCIe width]; None is
    not told.
    """
    rows = [row for row in samples if isinstance(row, list) and len(row) >= 7]
    if not rows:
        return Absent(why=Why.not_present, detail="no sample was taken meanwhile")

    def column(place: int) -> list[float]:
        return [value for row in rows if (value := number(row[place])) is not None and value >= 0]

    def over(place: int, summary: Any) -> Maybe[Any]:
        values = column(place)
        return summary(values) if values else Absent(why=Why.not_supported, detail="no sample tells")

    reasons: set[str] = set()
    told = False
    for row in rows:
        mask = whole(row[4])
        names = Absent(why=Why.failed) if mask is None else event_reasons(mask)
        if not isinstance(names, Absent):
            told = True
            reasons.update(names)
    return Load(
        samples=len(rows),
        sm_mhz=over(1, lambda values: round(median(values))),
        power_watts=over(2, median),
        celsius=over(3, lambda values: round(max(values))),
        event_reasons=tuple(sorted(reasons))
        if told
        else Absent(why=Why.not_supported, detail="no sample tells"),
        pcie_generation=over(5, lambda values: round(max(values))),
        pcie_width=over(6, lambda values: round(max(values))),
    )


# How it went.


def failure(error: Json) -> tuple[Literal["failed", "timed_out"], str, tuple[str, ...]]:
    """Status, detail and stacks of an error as the crew tells it."""
    told = mapping(error)
    kind, message = text(told.get("type"), 100), text(told.get("message"), 1000).strip()
    parts = [": ".join(part for part in (kind, message) if part) or "it failed without a word"]
    if told.get("signal"):
        parts.append(f"ended by {text(told.get('signal'), 40) or 'a signal'}")
    if step := text(told.get("step"), 100):
        parts.append(f"while it was at: {step}")
    detail = "; ".join(parts)
    if log := text(told.get("log")).strip():
        detail += f"\n{log}"
    stacks = told.get("stacks")
    stacks = tuple(text(stack) for stack in (stacks if isinstance(stacks, list) else [stacks]))
    return (
        "timed_out" if told.get("timed_out") is True else "failed",
        detail,
        tuple(stack for stack in stacks if stack.strip()),
    )


# Groups.


def averaged(ranks: Sequence[Sequence[Row]]) -> Iterator[Row]:
    """What the ranks of a group timed, each by its own clock: of every repetition the mean time, as nccl-tests has it.

    The mean of times is the harmonic mean of rates. Repetitions that a rank did not count fall away.
    """
    same: dict[tuple[object, ...], list[Row]] = {}
    for rank in ranks:
        for row in rank:
            same.setdefault((row.measure, row.unit, row.name, row.at), []).append(row)
    for found in same.values():
        if len(found) < len(ranks):
            continue  # not every rank tells it: it is no figure of the group
        times = found[0].unit in ("us", "s")
        values = tuple(
            fmean(values) if times else harmonic_mean(values)
            for values in zip(*(row.values for row in found), strict=False)
        )
        yield replace(found[0], values=values)


def together(found: Iterable[Check]) -> Iterator[Check]:
    """The checks that the ranks of a group made, each on its own data: one for the whole group."""
    ranks: dict[tuple[object, ...], list[Check]] = {}
    for check in found:
        ranks.setdefault((check.check, check.subject, check.cards, check.name, check.at), []).append(check)
    for same in ranks.values():
        examples = tuple(example for check in same for example in check.examples)
        yield same[0].model_copy(
            update={
                "compared": sum(check.compared for check in same),
                "wrong": sum(check.wrong for check in same),
                "examples": examples[:MOST_EXAMPLES],
            }
        )


def accesses(step: Step, card: str, answer: Mapping[str, Json]) -> Iterator[tuple[str, str, bool]]:
    """Of each pair, whether torch says that the one can reach into the other's memory."""
    for told in items(answer.get("access"))[:MOST_ROWS]:
        pair = _pair(card, mapping(told))
        can = mapping(told).get("p2p")
        if pair in step.pairs and pair is not None and isinstance(can, bool):
            yield (*pair, can)


def left_out(told: Json) -> str:
    """One thing that a stage did not measure, and why: `all_reduce 8589934592 bfloat16: …`."""
    told = mapping(told)
    names = (text(told.get(key), 64) for key in ("measure", "collective", "dtype", "name"))
    size = whole(told.get("size_bytes"))
    what = " ".join(name for name in (*names, f"at {size} bytes" if size else "") if name)
    why = text(told.get("why"), 500)
    return f"{what}: {why}" if what and why else ""


# Siblings.


def siblings(digests: Mapping[str, Mapping[str, Json]], models: Mapping[str, str]) -> Iterator[Check]:
    """Whether every card came to the same bits as its siblings: cards of one model, given the same seeded products.

    `digests` are, by card, each product's digest by name. The odd card is the one that differs from most; of two
    that differ nobody can tell, so both are named.
    """
    for model in sorted({models.get(card, "") for card in digests}):
        cards = [card for card in digests if models.get(card, "") == model]
        if len(cards) < 2:
            continue
        names = sorted({name for card in cards for name in mapping(digests[card])})
        compared: Counter[str] = Counter()
        wrong: Counter[str] = Counter()
        examples: dict[str, list[str]] = {card: [] for card in cards}
        for name in names:
            told = {card: value for card in cards if (value := text(mapping(digests[card]).get(name), 128))}
            if len(told) < 2:
                continue
            (usual, count), *_ = Counter(told.values()).most_common(1)
            for card, value in told.items():
                compared[card] += 1
                if value != usual or 2 * count <= len(told):
                    wrong[card] += 1
                    examples[card].append(
                        f"{name[:60]}: {value[:16]}, and {usual[:16]} on {count} of {len(told)} cards"
                    )
        for card in cards:
            yield Check(
                check="agreement.siblings",
                stage="agreement",
                subject="card",
                cards=(card,),
                compared=compared[card],
                wrong=wrong[card],
                examples=tuple(examples[card][:MOST_EXAMPLES]),
            )


def worst(runs: Iterable[StageRun]) -> StageRun:
    order = ("done", "skipped", "failed", "timed_out")
    return max(runs, key=lambda run: order.index(run.status))


def joined(runs: Iterable[StageRun]) -> tuple[StageRun, ...]:
    """One run for each stage and its cards, where it came to them in several steps: the worst of them counts.

    Pairs that went the same way are one run of all their cards; one that went wrong stays by itself.
    """
    found: dict[tuple[str, ...], StageRun] = {}
    for run in runs:
        alike = run.stage == "pairs" and run.status in ("done", "skipped")
        key = (run.stage, run.status, run.detail) if alike else (run.stage, *run.cards)
        before = found.get(key)
        if before is None:
            found[key] = run
            continue
        details = dict.fromkeys(detail for detail in (before.detail, run.detail) if detail)
        found[key] = worst((before, run)).model_copy(
            update={
                "cards": tuple(dict.fromkeys(before.cards + run.cards)),
                "detail": "\n".join(details),
                "stacks": before.stacks + run.stacks,
                "seconds": round(before.seconds + run.seconds, 3),
            }
        )
    return tuple(sorted(found.values(), key=lambda run: STAGES.index(run.stage)))

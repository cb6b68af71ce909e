"""What was measured, and what the rules say of it: each passes, warns or fails, and cannot see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nodecheck.facts import Measurements, Node
from nodecheck.facts.measurements import Check, Conditions, Figure, Load, StageRun, Transport
from nodecheck.judge import Cause, Judgement, Owner, Status, Verdict, judge
from nodecheck.profile import Profile, names
from tests import healthy_amd
from tests.healthy import node as node_of
from tests.healthy import uuid
from tests.judge.cases import HUNG, UNASKED, Case, check, faulty, found, healthy, profile

PASS, WARN, FAIL, UNKNOWN, SKIPPED = Status.passed, Status.warn, Status.fail, Status.unknown, Status.skipped
GIB = 1024**3


def measured(name: str) -> Measurements:
    measurements = healthy(name, level="standard").measurements
    assert isinstance(measurements, Measurements)
    return measurements


def figures(
    name: str,
    measure: str,
    factor: float = 1.0,
    *,
    cards: tuple[int, ...] | None = None,
    where: Callable[[Figure], bool] = lambda figure: True,
    **changes: Any,
) -> tuple[Figure, ...]:
    """The figures of a healthy node; those whose measure begins so, of these cards, × `factor` and changed."""
    keys = None if cards is None else {uuid(card) for card in cards}

    def changed(figure: Figure) -> Figure:
        if not figure.measure.startswith(measure) or not where(figure):
            return figure
        if keys is not None and not keys & set(figure.cards):
            return figure
        scaled = {name: getattr(figure, name) * factor for name in ("median", "p5", "p95")}
        return figure.model_copy(update={**scaled, **changes})

    return tuple(changed(figure) for figure in measured(name).figures)


def without(name: str, measure: str, cards: tuple[int, ...] | None = None) -> tuple[Figure, ...]:
    keys = None if cards is None else {uuid(card) for card in cards}
    return tuple(
        figure
        for figure in measured(name).figures
        if not figure.measure.startswith(measure) or (keys is not None and not keys & set(figure.cards))
    )


def checks(name: str, kind: str, card: int | None = None, **changes: Any) -> tuple[Check, ...]:
    return tuple(
        check.model_copy(update=changes)
        if check.check == kind and (card is None or check.cards[0] == uuid(card))
        else check
        for check in measured(name).checks
    )


def no_checks(name: str, kind: str) -> tuple[Check, ...]:
    return tuple(check for check in measured(name).checks if not check.check.startswith(kind))


def runs(name: str, stage: str, status: str, detail: str, card: int | None = None) -> tuple[StageRun, ...]:
    return tuple(
        run.model_copy(update={"status": status, "detail": detail})
        if run.stage == stage and (card is None or uuid(card) in run.cards)
        else run
        for run in measured(name).stages
    )


def ways(name: str, *paths: str, group: str = "all", **changes: Any) -> tuple[Transport, ...]:
    return tuple(
        way.model_copy(update={"paths": paths, "algorithms": (), **changes}) if way.name == group else way
        for way in measured(name).transports
    )


def environment(name: str, **variables: str) -> tuple[tuple[str, str], ...]:
    stack = healthy(name).stack
    return (*stack.environment, *variables.items())  # type: ignore[union-attr, misc]


def case(id: str, status: Status, done: str = "healthy", **words: Any) -> Case:
    """A case at level standard; `figures`, `checks`, `stages`, `transports` replace those measured."""
    parts = ("figures", "checks", "stages", "transports", "dropped")
    faults = {f"measurements.{part}": words.pop(part) for part in parts if part in words}
    faults |= words.pop("faults", {})
    return Case(id, faults, status, level="standard", done=done, **words)


def load(**changes: Any) -> Load:
    return Load(
        **{
            "samples": 9,
            "sm_mhz": 1980,
            "power_watts": 610.0,
            "celsius": 55,
            "event_reasons": (),
            "pcie_generation": 5,
            "pcie_width": 16,
            **changes,
        }
    )


def of_amd(card: int) -> Callable[[Figure], bool]:
    return lambda figure: healthy_amd.uuid(card) in figure.cards


NOTHING = {"measurements": UNASKED}
STRANGER = "python (process 4711) is on it"

CASES = [
    # Whether it was measured
    Case(
        "measurements.performed",
        {},
        SKIPPED,
        says=f"{len(profile('h200x4').figures)} figures of the profile were not held against this node",
    ),
    Case("measurements.performed", {}, SKIPPED, profile="h200x8", says="all_reduce.busbw"),
    Case("measurements.performed", {}, SKIPPED, profile="cpu", says="has no figures"),
    case("measurements.performed", PASS, says="figures and"),
    case(
        "measurements.performed", PASS, "dropped", dropped=("storage",), says="time budget left out: storage"
    ),
    case("measurements.performed", UNKNOWN, "not asked", faults=NOTHING),
    case("measurements.performed", UNKNOWN, "no figure", figures=(), says="Nothing was measured"),
    case("measurements.stages", PASS, says="context, memory, hbm, gemm, agreement, host, pairs, collectives"),
    case("measurements.stages", PASS, profile="cpu"),
    case(
        "measurements.stages",
        UNKNOWN,
        "busy card",
        stages=runs("h200x4", "hbm", "skipped", STRANGER, card=1),
        count=1,
        says=f"hbm was not run: {STRANGER}",
    ),
    case(
        "measurements.stages",
        UNKNOWN,
        "hung",
        stages=runs("h200x4", "collectives", "timed_out", "no answer within 120 s\nlog", card=1),
        count=1,
        says="collectives did not end in time: no answer within 120 s.",
    ),
    case(
        "measurements.stages",
        PASS,
        "dropped",
        stages=runs("h200x4", "agreement", "skipped", "left out for the time budget of 30 s"),
        dropped=("agreement",),
    ),
    case("measurements.stages", UNKNOWN, "no record", stages=(), says="nothing says that it ran"),
    case("measurements.stages", UNKNOWN, "not asked", faults=NOTHING),
    case(
        "measurements.stages",
        FAIL,
        "ECC",
        stages=runs(
            "h200x4",
            "memory",
            "failed",
            "AcceleratorError: CUDA error: uncorrectable ECC error encountered",
            card=2,
        ),
        count=1,
        cause=Cause.faulty,
        owner=Owner.provider,
    ),
    # Data
    case("measurements.memory", PASS, count=4, says="none wrong; 98."),
    case("measurements.memory", PASS, "a small card", profile="rtx4090x1", count=1),
    case("measurements.memory", PASS, profile="cpu", count=2),
    case(
        "measurements.memory",
        FAIL,
        "a wrong byte",
        checks=checks(
            "h200x4",
            "memory.pattern",
            2,
            wrong=1,
            examples=("address 0x1f00: expected 1, read 5",),
        ),
        count=1,
        cause=Cause.faulty,
        owner=Owner.provider,
        says="changed on GPU 2 (0000:3a:00.0). address 0x1f00: expected 1, read 5.",
    ),
    case(
        "measurements.memory",
        WARN,
        "half covered",
        checks=checks("h200x4", "memory.pattern", 0, covered=0.5),
        count=1,
        owner=Owner.renter,
        says="only 50.0%",
    ),
    case(
        "measurements.memory",
        UNKNOWN,
        "coverage not told",
        checks=checks("h200x4", "memory.pattern", 0, covered=None),
        count=1,
    ),
    case(
        "measurements.memory",
        UNKNOWN,
        "not checked",
        checks=no_checks("h200x4", "memory"),
        stages=runs("h200x4", "memory", "skipped", STRANGER),
        count=4,
        says=STRANGER,
    ),
    case(
        "measurements.memory",
        UNKNOWN,
        "nothing compared",
        checks=checks("h200x4", "memory.pattern", 0, compared=0),
        count=1,
    ),
    case("measurements.agreement", PASS, count=4, says="with itself and with its siblings"),
    case("measurements.agreement", PASS, profile="h200x1", count=1, says="Equal with itself."),
    case(
        "measurements.agreement",
        FAIL,
        "differs from siblings",
        checks=checks("h200x4", "agreement.siblings", 3, wrong=2),
        count=1,
        cause=Cause.faulty,
        says="GPU 3 (0000:5d:00.0) differs from its siblings",
    ),
    case(
        "measurements.agreement",
        FAIL,
        "differs from itself",
        checks=checks("h200x4", "agreement.self", 3, wrong=1),
        count=1,
        says="from itself",
    ),
    case(
        "measurements.agreement",
        SKIPPED,
        "dropped",
        checks=no_checks("h200x4", "agreement"),
        stages=runs("h200x4", "agreement", "skipped", "left out for the time budget of 30 s"),
        dropped=("agreement",),
        count=4,
    ),
    case("measurements.agreement", UNKNOWN, "gone", checks=no_checks("h200x4", "agreement"), count=4),
    case("measurements.data", PASS, count=1, says="all right"),
    case("measurements.data", PASS, profile="cpu", count=1),
    case(
        "measurements.data",
        FAIL,
        "a corrupted element",
        checks=checks(
            "h200x4",
            "all_reduce.data",
            wrong=1,
            examples=("rank 3, index 17: expected 6, read 7",),
        ),
        count=3,
        cause=Cause.faulty,
        says="rank 3, index 17: expected 6, read 7",
    ),
    case(
        "measurements.data",
        FAIL,
        "a corrupted copy",
        checks=checks("h200x4", "pairs.data", 1, wrong=64),
        count=3,
        says="64 of",
    ),
    case(
        "measurements.data",
        UNKNOWN,
        "gone",
        checks=tuple(c for c in measured("h200x4").checks if c.stage == "memory"),
    ),
    # Figures of a card
    case("measurements.hbm", PASS, count=4, says="typical 4253, at least 4096"),
    case("measurements.hbm", SKIPPED, profile="cpu", says="no such figure"),
    case(
        "measurements.hbm",
        FAIL,
        "a slow card",
        figures=figures("h200x4", "hbm.copy", 0.8, cards=(1,)),
        count=1,
        cause=Cause.slow,
        owner=Owner.provider,
        says="hbm.copy (4 GiB): 34",
    ),
    case(
        "measurements.hbm",
        WARN,
        "a single card, 5 % slow",
        profile="h200x1",
        figures=figures("h200x1", "hbm.", 0.95),
        count=1,
    ),
    case("measurements.hbm", WARN, "slower", figures=figures("h200x4", "hbm.copy", 0.9), count=4),
    case(
        "measurements.hbm",
        WARN,
        "derived",
        profile="b200x1",
        figures=figures("b200x1", "hbm.copy", 0.6),
        count=1,
    ),
    case(
        "measurements.hbm", FAIL, "derived, far off", profile="b200x1", figures=figures("b200x1", "hbm", 0.4)
    ),
    case(
        "measurements.hbm",
        UNKNOWN,
        "gone",
        figures=without("h200x4", "hbm.copy", (0,)),
        stages=runs("h200x4", "hbm", "failed", "RuntimeError: out of memory\nlog", card=0),
        count=1,
        says="not measured (RuntimeError: out of memory)",
    ),
    case(
        "measurements.hbm",
        UNKNOWN,
        "dropped",
        figures=without("h200x4", "hbm"),
        dropped=("hbm",),
        count=4,
        says="left out for the time budget",
    ),
    case(
        "measurements.hbm",
        UNKNOWN,
        "another size",
        figures=figures("h200x4", "hbm.copy", at=Conditions(size_bytes=GIB)),
        count=4,
        says="only at other conditions",
    ),
    case(
        "measurements.hbm",
        FAIL,
        "tries",
        figures=figures("h200x4", "hbm.copy", 0.8, cards=(1,), tries=(3430.0, 3433.0, 3437.6)),
        says="Measured 3 times: 3430, 3433, 3438.",
    ),
    case("measurements.gemm", PASS, count=16),
    case(
        "measurements.gemm",
        WARN,
        "a single card, its clock 5 % low",
        profile="h200x1",
        figures=figures("h200x1", "gemm.", 0.95),
        count=1,
        says="gemm.float32 (4096x4096x4096",
    ),
    case(
        "measurements.gemm",
        UNKNOWN,
        "no version",
        profile="h200x1",
        faults={"stack.torch.version": UNASKED},
        count=1,
    ),
    case(
        "measurements.gemm",
        FAIL,
        "power cap",
        figures=figures(
            "h200x4",
            "gemm.bfloat16",
            0.5,
            cards=(0,),
            load=load(sm_mhz=975, power_watts=350.0, event_reasons=("sw_power_cap",)),
        ),
        count=2,
        says="Meanwhile: SM 975 MHz, 350 W, 55 °C; the clock was held by the power limit",
    ),
    case(
        "measurements.gemm",
        WARN,
        "slower",
        figures=figures("h200x4", "gemm.bfloat16", 0.85, cards=(0,)),
        count=1,
    ),
    case("measurements.gemm", UNKNOWN, "gone", figures=without("h200x4", "gemm.float8")),
    case("measurements.host", PASS, count=12),
    case("measurements.host", FAIL, "slow", figures=figures("h200x4", "host.", 0.6, cards=(3,)), count=2),
    case(
        "measurements.host", WARN, "slower", figures=figures("h200x4", "host.h2d", 0.85, cards=(3,)), count=1
    ),
    case("measurements.host", UNKNOWN, "gone", figures=without("h200x4", "host.h2d")),
    case("measurements.launch", PASS, count=4),
    case(
        "measurements.launch",
        WARN,
        "slow",
        figures=figures("h200x4", "launch", 5.0),
        count=4,
        says="at most 20",
    ),
    case("measurements.launch", UNKNOWN, "gone", figures=without("h200x4", "launch")),
    case("measurements.launch", SKIPPED, profile="a100x4"),
    # Pairs
    case("measurements.pairs", PASS, count=2, says="12 pairs; the slowest"),
    case("measurements.pairs", SKIPPED, profile="h200x1"),
    case(
        "measurements.pairs",
        FAIL,
        "a slow card",
        figures=figures("h200x4", "pairs.", 0.5, cards=(2,)),
        count=2,
        says="Every pair with GPU 2 is slow to and from it",
    ),
    case(
        "measurements.pairs",
        FAIL,
        "a slow link",
        figures=figures("h200x4", "pairs.one_way", 0.5, where=lambda f: set(f.cards) == {uuid(0), uuid(3)}),
        count=1,
        says="between GPU 0 and GPU 3 in both directions",
    ),
    case(
        "measurements.pairs",
        FAIL,
        "every pair slow",
        figures=figures("h200x4", "pairs.one_way", 0.5),
        count=1,
        says="Every pair is slow",
    ),
    case(
        "measurements.pairs",
        FAIL,
        "NUMA split",
        profile="h200x8",
        figures=figures(
            "h200x8",
            "pairs.one_way",
            0.5,
            where=lambda f: (f.cards[0] < uuid(4)) != (f.cards[1] < uuid(4)),
        ),
        count=1,
        says="They are those of each NUMA node",
    ),
    case("measurements.pairs", WARN, "slower", figures=figures("h200x4", "pairs.one_way", 0.92), count=1),
    case(
        "measurements.pairs",
        UNKNOWN,
        "gone",
        figures=without("h200x4", "pairs.one_way", (0,)),
        says="6 of 12 pairs",
    ),
    case(
        "measurements.pairs",
        UNKNOWN,
        "two-way dropped",
        figures=without("h200x4", "pairs.two_way"),
        dropped=("pairs two-way",),
        says="left out for the time budget",
    ),
    case("measurements.pairs_alike", PASS, count=1, says="12 pairs over NVLink"),
    case("measurements.pairs_alike", PASS, profile="h100-nvlx4", count=2),
    case("measurements.pairs_alike", SKIPPED, profile="h200x1"),
    case(
        "measurements.pairs_alike",
        PASS,
        "slots differ",
        profile="h100-pciex4",
        figures=figures("h100-pciex4", "pairs.one_way", 0.7, cards=(0,)),
        says="Every pair with GPU 0 is slow",
    ),
    case(
        "measurements.pairs_alike",
        WARN,
        "a slow card",
        profile="b200x4",
        figures=figures("b200x4", "pairs.one_way", 0.85, cards=(3,)),
        count=1,
        says="Every pair with GPU 3 is slow",
    ),
    case(
        "measurements.pairs_alike",
        UNKNOWN,
        "gone",
        figures=without("h200x4", "pairs"),
        stages=runs("h200x4", "pairs", "failed", "CUDA error: peer access is not supported"),
        says="peer access is not supported",
    ),
    case(
        "measurements.pairs_alike", SKIPPED, "dropped", figures=without("h200x4", "pairs"), dropped=("pairs",)
    ),
    case("measurements.link_rate", PASS, count=1, says="12 directions, the least at"),
    case("measurements.link_rate", PASS, profile="h100-nvlx4"),
    case("measurements.link_rate", SKIPPED, profile="h100-pciex4"),
    case(
        "measurements.link_rate",
        FAIL,
        "over PCIe",
        figures=figures("h200x4", "pairs.one_way", 0.1, cards=(0,)),
        count=1,
        says="Every pair with GPU 0 is slow to and from it",
    ),
    case(
        "measurements.link_rate",
        FAIL,
        "one direction over PCIe",
        figures=figures("h200x4", "pairs.one_way", 0.1, where=lambda f: f.cards == (uuid(1), uuid(3))),
        count=1,
        says="from GPU 1 to GPU 3, not back",
    ),
    case(
        "measurements.link_rate",
        FAIL,
        "all over PCIe",
        profile="h200x8",
        figures=figures("h200x8", "pairs.one_way", 0.1),
        count=1,
        says="Every pair is slow. The slowest, ",
    ),
    case("measurements.link_rate", UNKNOWN, "gone", figures=without("h200x4", "pairs")),
    # Groups
    case("measurements.collectives", PASS, count=4),
    case("measurements.collectives", PASS, profile="h200x8", count=4),
    case("measurements.collectives", SKIPPED, profile="h200x1"),
    case(
        "measurements.collectives",
        FAIL,
        "what joins the halves",
        profile="h200x8",
        figures=figures("h200x8", "all_reduce.busbw", 0.5, where=lambda f: f.name == "all"),
        says="though its parts are healthy (first half at ",
    ),
    case(
        "measurements.collectives",
        FAIL,
        "a link between the halves",
        figures=tuple(
            f.model_copy(update={"median": 0.5 * f.median})
            if f.name == "all" or set(f.cards) == {uuid(0), uuid(3)}
            else f
            for f in measured("h200x4").figures
        ),
        says="The pairs say the same. The way is slow between GPU 0 and GPU 3 in both directions",
    ),
    case(
        "measurements.collectives",
        FAIL,
        "everything slow",
        figures=figures("h200x4", "all_reduce.busbw", 0.5),
        says="at least 327.",
    ),
    case(
        "measurements.collectives",
        FAIL,
        "slow",
        figures=figures("h200x4", "all_reduce.busbw", 0.8, where=lambda f: f.name in ("all", "second half")),
        says="Only GPU 2, GPU 3 are in no healthy group",
    ),
    case(
        "measurements.collectives",
        WARN,
        "slower",
        figures=figures("h200x4", "all_reduce.busbw", 0.93),
        says="at least 345",
    ),
    case("measurements.collectives", UNKNOWN, "gone", figures=without("h200x4", "all_reduce")),
    case(
        "measurements.collectives",
        UNKNOWN,
        "timed out",
        figures=without("h200x4", "all_"),
        stages=runs("h200x4", "collectives", "timed_out", "no answer within 120 s"),
        says="no answer within 120 s",
    ),
    # Siblings
    case("measurements.siblings", PASS, count=4),
    case("measurements.siblings", SKIPPED, profile="h200x1"),
    case("measurements.siblings", SKIPPED, profile="cpu"),
    case(
        "measurements.siblings",
        WARN,
        "5 % slow",
        figures=figures("h200x4", "gemm.", 0.95, cards=(2,)),
        count=1,
        cause=Cause.slow,
        says="% behind",
    ),
    case(
        "measurements.siblings",
        FAIL,
        "15 % slow",
        figures=figures("h200x4", "hbm.", 0.85, cards=(2,)),
        count=1,
    ),
    case(
        "measurements.siblings",
        WARN,
        "15 % slow of two",
        profile="h200x2",
        figures=figures("h200x2", "gemm.", 0.85, cards=(1,)),
        count=1,
    ),
    case(
        "measurements.siblings",
        PASS,
        "halves",
        profile="h200x8",
        figures=figures("h200x8", "host.", 0.95, cards=(4, 5, 6, 7)),
        count=8,
    ),
    case(
        "measurements.siblings",
        UNKNOWN,
        "gone",
        figures=tuple(f for f in measured("h200x4").figures if uuid(0) not in f.cards),
        count=1,
    ),
    # Under load
    case("measurements.throttling", PASS, count=4, says="the power limit, as under full load"),
    case("measurements.throttling", SKIPPED, profile="cpu"),
    case(
        "measurements.throttling",
        WARN,
        "heat",
        figures=figures("h200x4", "gemm.", cards=(1,), load=load(event_reasons=("hw_thermal_slowdown",))),
        count=1,
        cause=Cause.faulty,
        says="Slowed by heat (the hardware slows the card) during gemm.",
    ),
    case(
        "measurements.throttling",
        UNKNOWN,
        "a reason without a name",
        figures=figures("h200x4", "gemm.", cards=(1,), load=load(event_reasons=("unknown_0x800",))),
        count=1,
        says="a reason that this version does not know: unknown_0x800.",
    ),
    case(
        "measurements.throttling",
        PASS,
        "idle between",
        figures=figures("h200x4", "", load=load(event_reasons=("gpu_idle",))),
        count=4,
    ),
    case(
        "measurements.throttling", UNKNOWN, "no samples", figures=figures("h200x4", "", load=UNASKED), count=4
    ),
    case("measurements.throttling", PASS, "of AMD's", profile="mi300xx4", count=4, says="Meanwhile: SM"),
    case(
        "measurements.throttling",
        WARN,
        "of AMD's, hot",
        profile="mi300xx4",
        figures=figures("mi300xx4", "gemm.", where=of_amd(2), load=load(event_reasons=UNASKED, celsius=101)),
        count=1,
        says="It grew as hot as it slows down at, 100 °C.",
    ),
    case(
        "measurements.throttling",
        UNKNOWN,
        "of a virtual function",
        profile="mi300xx4",
        figures=figures("mi300xx4", "", load=load(event_reasons=UNASKED, celsius=UNASKED)),
        count=4,
        says="neither why its clock is held nor how hot it is.",
    ),
    case("measurements.pcie_under_load", PASS, profile="mi300xx4", count=4, says="Gen5 x16 under load"),
    case("measurements.pcie_under_load", PASS, count=4, says="Gen5 x16 under load"),
    case("measurements.pcie_under_load", PASS, profile="gb200x4"),
    case("measurements.pcie_under_load", SKIPPED, profile="cpu"),
    case(
        "measurements.pcie_under_load",
        FAIL,
        "Gen 3",
        figures=figures("h200x4", "host.", 0.23, cards=(0,), load=load(pcie_generation=3)),
        count=1,
        says="Gen3 x16 under load",
    ),
    case(
        "measurements.pcie_under_load",
        WARN,
        "Gen 4 read, and fast",
        figures=figures("h200x4", "host.", cards=(0,), load=load(pcie_generation=4)),
        count=1,
    ),
    case(
        "measurements.pcie_under_load",
        WARN,
        "slow on a good link",
        figures=figures("h200x4", "host.", 0.5, cards=(0,)),
        count=1,
        says="of what Gen5 x16 carries",
    ),
    case(
        "measurements.pcie_under_load",
        UNKNOWN,
        "a generation of the future",
        figures=figures("h200x4", "host.", cards=(0,), load=load(pcie_generation=8)),
        but=lambda spec: spec.model_copy(
            update={"card": spec.card.model_copy(update={"pcie_generation": 8})}
        ),
        says="What such a link carries is not known here.",
        count=1,
    ),
    case(
        "measurements.pcie_under_load",
        UNKNOWN,
        "no samples",
        figures=figures("h200x4", "", load=UNASKED),
        count=4,
    ),
    case("measurements.contention", PASS, says="host.h2d 93%"),
    case("measurements.contention", SKIPPED, profile="h200x1"),
    case(
        "measurements.contention",
        WARN,
        "starved",
        figures=figures("h200x4", "host.", 0.15, where=lambda f: f.at.together),
        says="14%",
    ),
    case(
        "measurements.contention",
        UNKNOWN,
        "gone",
        figures=tuple(f for f in measured("h200x4").figures if not f.at.together),
    ),
    case("measurements.storage", PASS, count=1, says="sequential write"),
    case(
        "measurements.storage",
        WARN,
        "a slow disk",
        figures=figures("h200x4", "storage.sequential", 0.005),
        count=1,
    ),
    case(
        "measurements.storage",
        UNKNOWN,
        "full disk",
        figures=without("h200x4", "storage"),
        stages=runs("h200x4", "storage", "failed", "no space left on /tmp"),
        says="no space left on /tmp",
    ),
    case(
        "measurements.storage", SKIPPED, "dropped", figures=without("h200x4", "storage"), dropped=("storage",)
    ),
    # Transports
    case("measurements.transport", PASS, count=3, says="P2P/CUMEM"),
    case("measurements.transport", PASS, profile="rtx4090x4", count=3, says="SHM"),
    case("measurements.transport", PASS, profile="cpu", says="gloo"),
    case("measurements.transport", SKIPPED, profile="h200x1"),
    case(
        "measurements.transport",
        FAIL,
        "SHM",
        transports=ways("h200x4", "SHM/direct"),
        count=1,
        cause=Cause.slow,
        owner=Owner.provider,
        says="although NVLink joins these cards",
    ),
    case(
        "measurements.transport",
        FAIL,
        "SHM, by a variable",
        transports=ways("h200x4", "SHM/direct"),
        faults={"stack.environment": environment("h200x4", NCCL_P2P_DISABLE="1")},
        cause=Cause.misconfigured,
        owner=Owner.renter,
        says="NCCL_P2P_DISABLE=1 is set, which explains it",
    ),
    case(
        "measurements.transport",
        FAIL,
        "NET, by NCCL's word",
        transports=ways("h200x4", "NET/Socket", notes=("NCCL_HOSTID set to rank3",)),
        owner=Owner.renter,
        says="NCCL_HOSTID=rank3",
    ),
    case(
        "measurements.transport",
        WARN,
        "sockets on one card",
        profile="h200x1",
        transports=(
            Transport(cards=(uuid(0), uuid(0)), name="all", paths=("NET/Socket",), library="NCCL 2.28.9"),
        ),
        says="Several ranks share one card here",
    ),
    case(
        "measurements.transport",
        WARN,
        "sockets without NVLink",
        profile="rtx4090x2",
        transports=ways("rtx4090x2", "NET/Socket"),
        says="sockets, within one machine",
    ),
    case("measurements.transport", PASS, profile="mi300xx4", count=3, says="RCCL 2.27.7 uses P2P/IPC."),
    case(
        "measurements.transport",
        FAIL,
        "SHM on AMD's",
        profile="mi300xx4",
        transports=ways("mi300xx4", "P2P/IPC", "SHM"),
        count=1,
        owner=Owner.provider,
        says="although xGMI joins these cards",
    ),
    case(
        "measurements.transport",
        FAIL,
        "sockets on AMD's, by a variable",
        profile="mi300xx4",
        transports=ways("mi300xx4", "NET/Socket", notes=("NCCL_P2P_DISABLE set to 1",)),
        count=1,
        owner=Owner.renter,
        says="NCCL_P2P_DISABLE=1",
    ),
    case("measurements.transport", UNKNOWN, "no log", transports=()),
    case("measurements.transport", UNKNOWN, "log names none", transports=ways("h200x4")),
    case("measurements.nvls", PASS, profile="h200x8"),
    case("measurements.nvls", SKIPPED, says="so small a group"),
    case("measurements.nvls", SKIPPED, profile="a100x8"),
    case(
        "measurements.nvls",
        WARN,
        "off",
        profile="h200x8",
        transports=ways("h200x8", "P2P/CUMEM"),
        figures=figures("h200x8", "all_reduce.busbw", 0.772),
        cause=Cause.misconfigured,
        owner=Owner.provider,
        says="the links are sound",
    ),
    case(
        "measurements.nvls",
        WARN,
        "off, by a variable",
        profile="h200x8",
        transports=ways("h200x8", "P2P/CUMEM"),
        faults={"stack.environment": environment("h200x8", NCCL_NVLS_ENABLE="0")},
        owner=Owner.renter,
    ),
    case(
        "measurements.nvls",
        WARN,
        "off, and slow",
        profile="h200x8",
        transports=ways("h200x8", "P2P/CUMEM", notes=("NVLS multicast support is not available",)),
        figures=figures("h200x8", "all_reduce.busbw", 0.5),
        says='NCCL says: "NVLS multicast support is not available"',
    ),
    case("measurements.nvls", UNKNOWN, "no log", profile="h200x8", transports=()),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Case) -> None:
    check(case)


def judged(name: str, **parts: Any) -> Judgement:
    faults = {f"measurements.{part}": value for part, value in parts.items()}
    return judge(faulty(name, faults, level="standard"), profile(name))


@pytest.mark.parametrize("level", ["standard", "full"])
@pytest.mark.parametrize("name", [name for name in names() if not profile(name).abstract])
def test_a_healthy_node_is_accepted_without_a_warning(name: str, level: Any) -> None:
    judgement = judge(healthy(name, level=level), profile(name))
    troubled = [
        f"{f.id} {f.status.value}: {f.detail}"
        for f in judgement.findings
        if f.status in (WARN, FAIL, UNKNOWN)
    ]
    assert troubled == []
    assert judgement.verdict is Verdict.accepted, judgement.reasons


def test_level_quick_asks_one_thing_about_measurements() -> None:
    findings = judge(healthy("h200x4"), profile("h200x4")).findings
    assert [f.id for f in findings if f.id.startswith("measurements.")] == ["measurements.performed"]


@pytest.mark.parametrize("why", [UNASKED, HUNG])
def test_what_was_not_measured_is_incomplete_and_has_one_reason(why: Any) -> None:
    judgement = judge(faulty("h200x4", {"measurements": why}, level="standard"), profile("h200x4"))
    assert judgement.verdict is Verdict.incomplete
    (reason,) = judgement.reasons
    assert reason.startswith("measurements.performed (node): Not seen")


def test_a_card_in_use_is_incomplete_for_that_reason() -> None:
    keys = {uuid(1)}
    judgement = judged(
        "h200x4",
        figures=tuple(f for f in measured("h200x4").figures if not keys & set(f.cards)),
        checks=tuple(c for c in measured("h200x4").checks if not keys & set(c.cards)),
        stages=tuple(
            run.model_copy(update={"status": "skipped", "detail": STRANGER}) if keys & set(run.cards) else run
            for run in measured("h200x4").stages
        ),
    )
    assert judgement.verdict is Verdict.incomplete
    assert all(STRANGER in f.detail for f in judgement.findings if f.status is UNKNOWN and f.root is None)
    assert not any(f.status in (WARN, FAIL) for f in judgement.findings)


def test_a_time_budget_costs_acceptance_only_where_a_figure_is_missing() -> None:
    words = "left out for the time budget of 30 s"
    judgement = judged(
        "h200x4",
        checks=no_checks("h200x4", "agreement"),
        stages=runs("h200x4", "agreement", "skipped", words),
        dropped=("storage", "agreement"),
    )
    assert judgement.verdict is Verdict.accepted
    judgement = judged(
        "h200x4",
        figures=without("h200x4", "hbm"),
        stages=runs("h200x4", "hbm", "skipped", words),
        dropped=("hbm",),
    )
    assert judgement.verdict is Verdict.incomplete


def test_nvls_off_is_a_warning_of_its_own_and_no_broken_link() -> None:
    judgement = judged(
        "h200x8",
        transports=ways("h200x8", "P2P/CUMEM"),
        figures=figures("h200x8", "all_reduce.busbw", 0.772, where=lambda f: f.name == "all"),
    )
    assert judgement.verdict is Verdict.accepted_with_warnings
    (reason,) = judgement.reasons
    assert reason.startswith("measurements.nvls") and "Degraded: NVLS is off" in reason
    slow = [f for f in found(judgement, "measurements.collectives") if f.status is WARN]
    assert slow and all(f.root == "measurements.nvls" for f in slow)


def test_a_broken_ring_fails_although_nvls_is_off_as_well() -> None:
    judgement = judged(
        "h200x8",
        transports=ways("h200x8", "P2P/CUMEM"),
        figures=figures("h200x8", "all_reduce.busbw", 0.6, where=lambda f: f.name == "all"),
    )
    assert judgement.verdict is Verdict.rejected


def test_sockets_explain_slow_collectives() -> None:
    judgement = judged(
        "h200x4",
        transports=ways("h200x4", "NET/Socket"),
        figures=figures("h200x4", "all_", 0.005, where=lambda f: f.name == "all"),
    )
    assert judgement.verdict is Verdict.rejected
    assert judgement.reasons[0].startswith("measurements.transport")
    assert all(
        f.root == "measurements.transport"
        for f in found(judgement, "measurements.collectives")
        if f.status is FAIL
    )


def test_a_figure_is_judged_at_the_size_that_was_measured() -> None:
    judgement = judge(healthy("h200x8", level="standard"), profile("h200x8"))
    skipped = [f.detail for f in found(judgement, "measurements.collectives") if f.status is SKIPPED]
    assert any("16GiB" in detail and "judged at 8GiB" in detail for detail in skipped)


def test_a_profile_may_ask_for_what_is_only_wanted() -> None:
    def strict(spec: Profile) -> Profile:
        return spec.model_copy(update={"required": ("measurements.nvls",)})

    node: Node = faulty("h200x8", {"measurements.transports": ()}, level="standard")
    assert judge(node, profile("h200x8")).verdict is Verdict.accepted
    assert judge(node, strict(profile("h200x8"))).verdict is Verdict.incomplete


@pytest.mark.parametrize("name", ["h200x4", "h200x1"])
def test_data_that_nobody_compared_is_no_pass(name: str) -> None:
    """Every kind of check emptied in turn, and taken away in turn."""
    bundle = profile(name)
    whole = node_of(bundle, level="standard")
    measured = whole.measurements
    assert isinstance(measured, Measurements)
    assert judge(whole, bundle).verdict is Verdict.accepted
    # Operators are wanted alone.
    for kind in sorted({one.check for one in measured.checks if one.stage != "operators"}):
        emptied = tuple(
            one.model_copy(update={"compared": 0}) if one.check == kind else one for one in measured.checks
        )
        gone = tuple(one for one in measured.checks if one.check != kind)
        # Which collectives a level measures is its plan's affair: one of them less is no hole.
        collective = next(one.stage for one in measured.checks if one.check == kind) == "collectives"
        for left in (emptied,) if collective else (emptied, gone):
            node = whole.model_copy(update={"measurements": measured.model_copy(update={"checks": left})})
            assert judge(node, bundle).verdict is Verdict.incomplete, kind

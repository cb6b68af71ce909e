"""Which measured figure belongs to which of the profile, the limits, the siblings, and what to measure again."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from random import Random
from statistics import fmean
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodecheck.facts import Measurements, Node
from nodecheck.facts.measurements import Conditions, Figure, Transport
from nodecheck.judge import Status, figures, judge
from nodecheck.judge.figures import Limits
from nodecheck.profile import At
from nodecheck.profile import Figure as Promised
from tests.healthy import change, uuid
from tests.judge.cases import found, healthy, profile
from tests.judge.rules.test_measurements import figures as scaled

GIB = 1024**3
A, B, C, D = (uuid(place) for place in range(4))


def promise(measure: str = "hbm.copy", *, at: At | None = None, **words: Any) -> Promised:
    below = (
        {"warn_below": 90.0, "fail_below": 80.0} if not words.keys() & {"warn_above", "warn_below"} else {}
    )
    return Promised(
        measure=measure,
        unit="us" if measure == "launch.latency" else "GB/s",
        at=at or At(),
        typical=100.0,
        source="a test",
        date=date(2026, 12, 1),
        **{"kind": "measured", **below, **words},
    )


def figure(
    measure: str = "hbm.copy", median: float = 100.0, cards: tuple[str, ...] = (A,), **words: Any
) -> Figure:
    at = {name: words.pop(name) for name in tuple(words) if name in Conditions.model_fields}
    return Figure(
        **{
            "measure": measure,
            "stage": figures.stage_of(measure),
            "subject": figures.subject_of(measure),
            "cards": cards,
            "at": Conditions(**at),
            "unit": "us" if measure == "launch.latency" else "GB/s",
            "median": median,
            "p5": 0.999 * median,
            "p95": 1.001 * median,
            "repetitions": 20,
            **words,
        }
    )


def node(*seen: Figure, name: str = "h200x4") -> Node:
    return change(healthy(name), "measurements", Measurements(figures=seen))


# Which belong together


@pytest.mark.parametrize(("size", "count"), [("8B", 8), ("4KiB", 4096), ("512MiB", 2**29), ("16GiB", 2**34)])
def test_sizes_are_binary(size: str, count: int) -> None:
    assert figures.size_bytes(size) == count


@pytest.mark.parametrize(
    ("changes", "fits"),
    [
        ({}, True),
        ({"size_bytes": GIB}, False),
        ({"dtype": "float32"}, True),
        ({"ranks": 2}, False),
        ({"cards": (A, B, C)}, False),
        ({"in_place": False}, True),
        ({"measure": "all_gather.busbw"}, False),
        ({"unit": "us"}, False),
        ({"sustained": True}, False),
    ],
)
def test_only_the_exact_size_and_count_fits(changes: dict[str, Any], fits: bool) -> None:
    at = At(size="8GiB", dtype="bfloat16", ranks=4)
    words = {
        "measure": "all_reduce.busbw",
        "cards": (A, B, C, D),
        "size_bytes": 8 * GIB,
        "dtype": "bfloat16",
        "ranks": 4,
        "in_place": True,
    }
    seen = figure(**{**words, **changes})
    assert bool(figures.measured(promise("all_reduce.busbw", at=at), [seen])) is fits


def group(busbw: float, dtype: str, *, size: int = 8 * GIB, cards: tuple[str, ...] = (A, B, C, D)) -> Figure:
    return figure("all_reduce.busbw", busbw, cards, size_bytes=size, dtype=dtype, ranks=len(cards))


def test_a_large_collective_of_another_type_stands_in_where_none_of_the_type_is() -> None:
    promised = promise("all_reduce.busbw", at=At(size="8GiB", dtype="bfloat16", ranks=4))
    own, other = group(90.0, "bfloat16"), group(95.0, "float32")
    assert figures.measured(promised, [other])[A, B, C, D] is other
    assert figures.measured(promised, [other, own])[A, B, C, D] is own
    assert figures.stands_in(promised, other) and not figures.stands_in(promised, own)
    small = promise("all_reduce.busbw", at=At(size="8MiB", dtype="bfloat16", ranks=4))
    assert not figures.measured(small, [group(95.0, "float32", size=8 * 1024**2)])
    product = promise("gemm.bfloat16", at=At(dtype="bfloat16"))
    assert not figures.measured(product, [figure("gemm.bfloat16", dtype="float32", size_bytes=GIB)])


def test_a_stand_in_fails_on_a_gross_fault_alone() -> None:
    spec, healthy_node = profile("h200x4"), healthy("h200x4")
    promised = promise("all_reduce.busbw", at=At(size="8GiB", dtype="bfloat16", ranks=4))
    for busbw, expected in ((95.0, "pass"), (85.0, "warn"), (55.0, "warn"), (45.0, "fail")):
        bounds = figures.limits_of(promised, group(busbw, "float32"), healthy_node, spec)
        assert bounds.status(busbw).value == expected
    assert (
        figures.limits_of(promised, group(70.0, "bfloat16"), healthy_node, spec).status(70.0) is Status.fail
    )


def test_the_order_of_ranks_makes_no_other_group() -> None:
    turned = group(95.0, "bfloat16", cards=(C, A, D, B))
    assert figures.of_subject({turned.cards: turned}, (A, B, C, D)) is turned
    assert figures.of_subject({turned.cards: turned}, (A, B, C)) is None
    pair = figure("pairs.one_way", cards=(B, A))
    assert figures.of_subject({pair.cards: pair}, (A, B)) is None


def test_shape_and_pinning_count() -> None:
    product = promise("gemm.bfloat16", at=At(shape="8192x8192x8192"))
    assert not figures.measured(product, [figure("gemm.bfloat16", shape="4096x4096x4096")])
    assert figures.measured(product, [figure("gemm.bfloat16", shape="8192x8192x8192")])
    copy = promise("host.h2d")
    assert not figures.measured(copy, [figure("host.h2d", pinned=False)])
    assert not figures.measured(copy, [figure("host.h2d", pinned=True, together=True)])
    assert figures.measured(copy, [figure("host.h2d", pinned=True)])


def test_the_better_placement_stands_and_alone_goes_before_together() -> None:
    inside, outside = figure(in_place=True, median=90.0), figure(in_place=False, median=95.0)
    assert figures.measured(promise(), [inside, outside])[(A,)] is outside
    beside, alone = figure(together=True, median=120.0), figure(median=95.0)
    assert figures.measured(promise(), [beside, alone])[(A,)] is alone
    assert figures.measured(promise(), [beside])[(A,)] is beside
    slow, quick = figure("launch.latency", 9.0), figure("launch.latency", 7.0, in_place=True)
    assert figures.measured(promise("launch.latency", warn_above=20.0), [slow, quick])[(A,)] is quick


def test_every_measure_of_a_profile_has_a_stage_and_subject() -> None:
    assert [
        figures.stage_of(m) for m in ("hbm.triad", "launch.latency", "pairs.one_way", "all_to_all.busbw")
    ] == [
        "hbm",
        "host",
        "pairs",
        "collectives",
    ]
    assert [
        figures.subject_of(m) for m in ("gemm.float8", "host.d2h", "pairs.two_way", "broadcast.busbw")
    ] == [
        "card",
        "card",
        "pair",
        "group",
    ]


def test_both_directions_are_expected_where_there_is_a_direction() -> None:
    spec = profile("h200x4")
    one, two = (next(f for f in spec.figures if f.measure == m) for m in ("pairs.one_way", "pairs.two_way"))
    assert len(figures.expected_subjects(one, healthy("h200x4"), spec)) == 12
    assert len(figures.expected_subjects(two, healthy("h200x4"), spec)) == 6
    bridged = profile("h100-nvlx4")
    assert len(figures.expected_subjects(one, healthy("h100-nvlx4"), bridged)) == 4


# Limits


@pytest.mark.parametrize(
    ("promised", "warn", "fail"),
    [
        (promise(), 90.0, 80.0),
        (promise(kind="derived"), 90.0, 50.0),
        (promise(warn_below=90.0), 90.0, 50.0),
        (promise(warn_below=40.0, kind="derived"), 40.0, 20.0),
        (promise("launch.latency", warn_above=200.0), 200.0, None),
        (promise("launch.latency", warn_above=200.0, fail_above=300.0), 200.0, 300.0),
        (promise("launch.latency", warn_above=200.0, fail_above=300.0, kind="derived"), 200.0, None),
    ],
)
def test_limits(promised: Promised, warn: float, fail: float | None) -> None:
    found = figures.limits(promised)
    assert (found.warn, found.fail) == (warn, fail)


@given(st.floats(0.01, 1000), st.floats(0.01, 1000), st.floats(0.01, 1000))
def test_better_is_never_judged_worse(one: float, other: float, limit: float) -> None:
    order = (Status.fail, Status.warn, Status.passed)
    low, high = sorted((one, other))
    more = Limits(limit, limit / 2)
    assert order.index(more.status(low)) <= order.index(more.status(high))
    less = Limits(limit, limit * 2, more_is_better=False)
    assert order.index(less.status(high)) <= order.index(less.status(low))


def test_without_nvls_the_ring_is_the_yardstick() -> None:
    spec, healthy_node = profile("h200x8"), healthy("h200x8", level="standard")
    at = At(size="8GiB", dtype="bfloat16", ranks=8)
    promised = next(f for f in spec.figures if f.measure == "all_reduce.busbw" and f.at == at)
    with_it = figures.limits_here(promised, healthy_node, spec)
    keys = tuple(card.key for card in healthy_node.known_cards)
    off = change(
        healthy_node, "measurements.transports", (Transport(cards=keys, name="all", paths=("P2P/IPC",)),)
    )
    without = figures.limits_here(promised, off, spec)
    assert (with_it.warn, with_it.fail) == (450.0, 426.0)
    assert (without.warn, without.fail) == (450.0, 347.0)
    other = next(f for f in spec.figures if f.measure == "all_reduce.busbw" and f.at.size == "1GiB")
    assert figures.limits_here(other, off, spec).fail == pytest.approx(467.6 / 2)


# Siblings


def of_four(*medians: float, measure: str = "hbm.copy", **words: Any) -> Node:
    cards = [card.key for card in healthy("h200x8").known_cards]
    return node(
        *(figure(measure, median, (card,), **words) for card, median in zip(cards, medians, strict=False)),
        name="h200x8",
    )


def statuses(seen: Node) -> list[str]:
    places = figures.places(seen)
    return [
        max((p.status for p in places[c.key]), key=_grave).value for c in seen.known_cards if c.key in places
    ]


_ORDER = (Status.passed, Status.warn, Status.fail)
_grave: Callable[[Status], int] = _ORDER.index


@pytest.mark.parametrize(
    ("medians", "said"),
    [
        ((100, 100, 100, 100), ["pass"] * 4),
        ((100.01, 100, 100, 99.99), ["pass"] * 4),  # tiny spreads give no false alarm
        ((100, 100, 100, 95), ["pass", "pass", "pass", "warn"]),
        ((100, 100, 100, 89), ["pass", "pass", "pass", "fail"]),
        ((100, 100, 100, 130), ["pass"] * 4),  # faster is no fault
        ((100, 95), ["pass", "warn"]),
        ((100, 50), ["pass", "warn"]),  # of two nobody knows which is right
        ((100, 100, 94), ["pass", "pass", "warn"]),
        ((100, 100, 100, 100, 93, 93, 93, 93), ["pass"] * 8),  # two halves are no odd card
        ((96, 98, 100, 102, 104, 99, 101, 93.9), ["pass"] * 8),  # cards that lie apart anyhow
        ((100,), []),
        ((0.0, 0.0, 0.0), []),
    ],
)
def test_siblings(medians: tuple[float, ...], said: list[str]) -> None:
    assert statuses(of_four(*medians)) == said


def test_host_links_may_lie_further_apart() -> None:
    words: dict[str, Any] = {"measure": "host.h2d", "size_bytes": GIB, "pinned": True}
    assert statuses(of_four(100, 100, 100, 94, **words)) == ["pass", "pass", "pass", "pass"]
    assert statuses(of_four(100, 100, 100, 85, **words)) == ["pass", "pass", "pass", "warn"]
    assert statuses(of_four(100, 100, 100, 79, **words)) == ["pass", "pass", "pass", "fail"]


@pytest.mark.parametrize(
    "words",
    [
        {"measure": "host.h2d", "size_bytes": 4096},
        {"measure": "host.h2d", "size_bytes": GIB, "together": True},
        {"measure": "host.h2d", "size_bytes": GIB, "pinned": False},
        {"measure": "host.bidirectional", "size_bytes": GIB},
        {"measure": "launch.latency"},
        {"measure": "hbm.copy_payload"},
        {"measure": "gemm.bfloat16", "sustained": True},
    ],
)
def test_what_does_not_repeat_is_not_compared(words: dict[str, Any]) -> None:
    assert statuses(of_four(100, 100, 100, 50, **words)) == []


def test_of_products_the_best_shape_counts() -> None:
    seen = [
        figure("gemm.bfloat16", 100.0, (card,), shape=shape)
        for card in (A, B, C, D)
        for shape in ("1x1x1", "2x2x2")
    ]
    seen[0] = figure("gemm.bfloat16", 80.0, (A,), shape="1x1x1")
    assert statuses(node(*seen)) == ["pass"] * 4
    seen[1] = figure("gemm.bfloat16", 80.0, (A,), shape="2x2x2")
    assert statuses(node(*seen))[0] == "fail"


def test_only_cards_of_one_model_are_siblings() -> None:
    mixed = change(of_four(100, 100, 100, 50), "cards.3.identity.name", "NVIDIA H100 80GB HBM3")
    assert statuses(mixed) == ["pass"] * 3


@given(st.lists(st.floats(1.0, 1000.0), min_size=3, max_size=8))
def test_at_least_half_of_the_siblings_pass(medians: list[float]) -> None:
    said = statuses(of_four(*medians))
    assert said.count("pass") >= len(said) / 2


@pytest.mark.parametrize("count", [3, 4, 5, 8, 9, 12])
def test_the_deviation_of_few_is_that_of_the_many_they_are_drawn_from(count: int) -> None:
    draw = Random(count)
    told = [figures._deviation([draw.gauss(100.0, 2.0) for _ in range(count)]) for _ in range(4000)]
    assert fmean(told) == pytest.approx(2.0, rel=0.04)


@pytest.mark.parametrize(
    ("version", "wanted", "fits"),
    [
        ("2.11.0+cu130", "2.11+cu130", True),
        ("2.11.1+cu130", "2.11+cu130", True),
        ("2.11.0+cu128", "2.11+cu130", False),
        ("2.1.0+cu130", "2.11+cu130", False),
        ("2.11.0", "2.11+cu130", False),
        ("2.11.0a0+04a7dd8.nv26.01", "2.11+cu130", False),
        ("2.11.0+rocm7.0", "2.11", True),
        ("2.11.0", None, True),
        ("no version", "2.11", False),
    ],
)
def test_a_figure_of_one_torch_is_held_against_no_other(version: str, wanted: str | None, fits: bool) -> None:
    here = change(node(figure()), "stack.torch.version", version)
    promised = promise(at=At(size="4GiB", torch=wanted))
    assert figures.of_this_torch(promised, here) is fits
    spec = profile("h200x4").model_copy(update={"figures": (promised,)})
    assert list(figures.promises(here, spec)) == ([promised] if fits else [])


def test_another_torch_is_stated() -> None:
    there = change(healthy("h200x1", level="standard"), "stack.torch.version", "2.9.1+cu128")
    there = change(there, "measurements.figures", scaled("h200x1", "gemm.float32", 0.95))
    told = found(judge(there, profile("h200x1")), "measurements.gemm")
    assert {finding.status for finding in told} == {Status.passed, Status.skipped}
    assert any("says nothing of torch 2.9.1+cu128, which is here" in finding.detail for finding in told)


# Again


def again(name: str, seen: tuple[Figure, ...]) -> list[Figure]:
    measured = change(healthy(name, level="standard"), "measurements.figures", seen)
    return list(figures.borderline(measured, profile(name)))


def test_a_healthy_node_is_not_measured_again() -> None:
    for name in ("h200x1", "h200x8", "rtx4090x4", "cpu"):
        assert figures.borderline(healthy(name, level="standard"), profile(name)) == ()
    assert figures.borderline(healthy("h200x1"), profile("h200x1")) == ()


def test_a_figure_just_below_a_limit_is_measured_again() -> None:
    seen = scaled("h200x1", "hbm.copy", 4085 / 4253)
    found = again("h200x1", seen)
    assert [(f.measure, f.cards) for f in found] == [("hbm.copy", (A,))]
    assert found[0] in seen


def test_a_figure_far_below_is_not() -> None:
    assert again("h200x1", scaled("h200x1", "hbm.copy", 3000 / 4253)) == []


def test_its_own_spread_says_how_near_is_near() -> None:
    assert again("h200x1", scaled("h200x1", "hbm.copy", 3300 / 4253)) == []
    assert len(again("h200x1", scaled("h200x1", "hbm.copy", 3300 / 4253, p95=3600.0))) == 1


def test_after_three_tries_it_counts_as_it_is() -> None:
    factor = 4085 / 4253
    assert again("h200x1", scaled("h200x1", "hbm.copy", factor, tries=(4080.0, 4085.0)))
    assert again("h200x1", scaled("h200x1", "hbm.copy", factor, tries=(4080.0, 4085.0, 4085.0))) == []


def test_a_card_just_behind_its_siblings_is_measured_again() -> None:
    found = again("h200x4", scaled("h200x4", "hbm.triad", 0.955, cards=(2,)))
    assert [(f.measure, f.cards) for f in found] == [("hbm.triad", (C,))]


# The simulation that docs/statistics.md is written by


@pytest.fixture(scope="module")
def simulation() -> ModuleType:
    path = Path(__file__).parents[2] / "docs" / "simulation.py"
    spec = importlib.util.spec_from_file_location("simulation", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["simulation"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_a_healthy_node_is_not_rejected_and_a_slow_card_is_named(simulation: ModuleType, count: int) -> None:
    named, rejected = simulation.shares(count, simulation.Fault(""), 15)
    assert rejected == 0
    for kind in ("hbm", "gemm"):
        named, _ = simulation.shares(count, simulation.Fault(kind, 0.05), 5)
        assert named == 1.0, kind


def test_the_page_says_what_the_constants_are(simulation: ModuleType) -> None:
    written = (Path(__file__).parents[2] / "docs" / "statistics.md").read_text(encoding="utf-8")
    assert simulation._INTRODUCTION in written, "run `make statistics`"

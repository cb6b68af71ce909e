"""`check --active`: only on cards that nobody uses, and held against the node's own figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from nodecheck.facts import NOT_ASKED, Measurements, Node
from nodecheck.facts.card import Process
from nodecheck.facts.measurements import Check, Figure, StageRun
from nodecheck.judge import Finding, Status, judge
from nodecheck.rental import active
from nodecheck.rental.check import check
from nodecheck.rental.state import Acceptance, Terms
from nodecheck.report import document
from nodecheck.report.document import Report
from tests.healthy import change
from tests.judge.cases import DENIED, healthy, profile

NODE = healthy("h200x4", level="standard")
JOB = (Process(pid=4711, kind="compute", used_bytes=2**30, name="python"),)


def accepted(node: Node = NODE) -> Report:
    spec = profile("h200x4")
    return document.build(node, spec, judge(node, spec))


def measured(scale: Callable[[Figure], float]) -> Node:
    """The node with every figure scaled, its spread with it."""
    seen = NODE.measurements
    assert isinstance(seen, Measurements)
    figures = tuple(
        figure.model_copy(
            update={name: getattr(figure, name) * scale(figure) for name in ("median", "p5", "p95")}
        )
        for figure in seen.figures
    )
    return NODE.model_copy(update={"measurements": seen.model_copy(update={"figures": figures})})


def slow(measure: str, by: float) -> Callable[[Figure], float]:
    return lambda figure: 1 - by if figure.measure == measure else 1.0


def of(findings: tuple[Finding, ...], stage: str) -> list[Finding]:
    return [finding for finding in findings if finding.id == f"drift.measured.{stage}"]


# Whether to measure


def test_idle_cards_may_be_measured() -> None:
    assert active.occupied([NODE, NODE, NODE]) == ""


@pytest.mark.parametrize(
    ("sign", "says"),
    [
        ({"cards.2.processes": JOB}, "process 4711 is on it"),
        ({"cards.2.memory.used_bytes": 2**31}, "2,048 MiB of its memory"),
        ({"cards.2.gpu_utilization_percent": 55}, "it is 55 % busy"),
        ({"cards.2.processes": DENIED}, "was not seen"),
        ({"cards.2.memory.used_bytes": DENIED}, "was not seen"),
        ({"cards.2.gpu_utilization_percent": DENIED}, "was not seen"),
        ({"cards.2.usable": False}, "does not hand it out"),
        ({"cards": DENIED}, "could not be seen"),
        ({"cards": ()}, "no card"),
    ],
    ids=str,
)
def test_any_sign_of_work_in_any_look_keeps_it_from_measuring(sign: Mapping[str, Any], says: str) -> None:
    (path, value), *_ = sign.items()
    assert says in active.occupied([NODE, NODE, change(NODE, path, value)])


# What the figures say


def test_the_same_figures_pass() -> None:
    said = active.findings(measured(lambda _: 1.0), accepted())
    assert {finding.status for finding in said} == {Status.passed}
    assert {finding.id for finding in said} == {
        f"drift.measured.{stage}" for stage in (*active.RULES, "data")
    }
    assert active.doubtful(NODE, accepted()) == ()


@pytest.mark.parametrize(
    ("measure", "stage", "by", "status"),
    [
        ("hbm.copy", "hbm", 0.03, Status.passed),
        ("hbm.copy", "hbm", 0.07, Status.warn),
        ("hbm.copy", "hbm", 0.2, Status.fail),
        ("gemm.bfloat16", "gemm", 0.07, Status.warn),
        ("host.h2d", "host", 0.15, Status.fail),
        ("pairs.one_way", "pairs", 0.15, Status.fail),
        ("all_reduce.busbw", "collectives", 0.07, Status.warn),
        ("hbm.copy", "hbm", -0.2, Status.passed),
    ],
)
def test_a_figure_is_held_against_its_own(measure: str, stage: str, by: float, status: Status) -> None:
    told = of(active.findings(measured(slow(measure, by)), accepted()), stage)
    assert {finding.status for finding in told} == {status}
    if status is not Status.passed:
        assert f"{by:.1%} behind the accepted" in told[0].detail
        assert "spread" in told[0].detail
        assert "the accepted report" in told[0].expected_from


def test_of_times_less_is_better() -> None:
    latency = {
        figure.measure for figure in measured(lambda _: 1.0).measurements.figures if figure.unit == "us"
    }  # type: ignore[union-attr]
    assert "launch.latency" in latency
    for factor, status in ((1.2, Status.passed), (1.6, Status.warn), (5.0, Status.warn)):
        scaled = measured(lambda f, by=factor: by if f.measure == "launch.latency" else 1.0)  # type: ignore[misc]
        assert {finding.status for finding in of(active.findings(scaled, accepted()), "host")} == {status}
    better = active.findings(measured(lambda f: 0.8 if f.measure == "launch.latency" else 1.0), accepted())
    assert {finding.status for finding in of(better, "host")} == {Status.passed}


def test_a_figure_within_its_spread_of_a_limit_is_measured_again() -> None:
    near = measured(slow("hbm.copy", 0.055))
    doubtful = active.doubtful(near, accepted())
    assert {figure.measure for figure in doubtful} == {"hbm.copy"}
    assert active.doubtful(measured(slow("hbm.copy", 0.3)), accepted()) == ()
    seen = near.measurements
    assert isinstance(seen, Measurements)
    tried = tuple(figure.model_copy(update={"tries": (1.0, 1.0, 1.0)}) for figure in seen.figures)
    again = near.model_copy(update={"measurements": seen.model_copy(update={"figures": tried})})
    assert active.doubtful(again, accepted()) == ()
    assert "after 3 readings" in of(active.findings(again, accepted()), "hbm")[0].detail


def test_without_a_counterpart_nothing_is_compared_and_the_reason_is_told() -> None:
    without = accepted(NODE.model_copy(update={"measurements": NOT_ASKED, "level": "quick"}))
    said = active.findings(NODE, without)
    assert {finding.status for finding in of(said, "hbm")} == {Status.skipped}
    assert "holds no measurements (level quick)" in of(said, "hbm")[0].detail
    seen = NODE.measurements
    assert isinstance(seen, Measurements)
    other = accepted(NODE.model_copy(update={"measurements": seen.model_copy(update={"figures": ()})}))
    assert "no figure of the same measure" in of(active.findings(NODE, other), "gemm")[0].detail


def test_a_stage_that_did_not_run_is_told() -> None:
    seen = NODE.measurements
    assert isinstance(seen, Measurements)
    card = NODE.known_cards[1].key
    hung = StageRun(stage="hbm", cards=(card,), status="timed_out", detail="no answer")
    figures = tuple(figure for figure in seen.figures if figure.stage != "hbm")
    node = NODE.model_copy(
        update={"measurements": seen.model_copy(update={"figures": figures, "stages": (hung,)})}
    )
    (told,) = of(active.findings(node, accepted()), "hbm")
    assert (told.status, told.subject.key, told.required) == (Status.unknown, card, True)
    assert "no answer" in told.detail
    unseen = NODE.model_copy(update={"measurements": DENIED})
    assert {finding.status for finding in active.findings(unseen, accepted())} == {Status.unknown}


def test_wrong_data_fails_whatever_the_figures_say() -> None:
    seen = NODE.measurements
    assert isinstance(seen, Measurements)
    cards = tuple(card.key for card in NODE.known_cards[:2])
    wrong = Check(check="pairs.data", stage="pairs", subject="pair", cards=cards, compared=1000, wrong=3)
    node = NODE.model_copy(update={"measurements": seen.model_copy(update={"checks": (wrong,)})})
    (told,) = of(active.findings(node, accepted()), "data")
    assert told.status is Status.fail
    assert told.subject.kind == "pair"
    assert "3 of 1,000" in told.detail


def test_an_active_check_holds_figures_and_findings() -> None:
    acceptance = Acceptance(report=accepted(), sha256="0" * 64, terms=Terms())
    said = check(NODE, acceptance, None, measured=measured(slow("hbm.copy", 0.2)), seconds=30.0)
    assert said.kind == "active"
    assert said.status is Status.fail
    assert "drift.measured.hbm" in {change.finding.id for change in said.changes}
    assert said.figures

"""What differs between two reports is told, and only that: no figure within its spread, nothing unseen as better."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodecheck.facts import Absent, Node, Why
from nodecheck.facts.measurements import Conditions, Figure, Measurements
from nodecheck.judge import judge
from nodecheck.profile import Profile
from nodecheck.report import differences, document
from nodecheck.report.diff import Diff, diff
from nodecheck.report.document import Report
from tests import healthy
from tests.healthy import change
from tests.report import hostile, samples

PROFILE = samples.profile(4)
NODE = healthy.node(PROFILE, level="standard")


def report(node: Node = NODE, profile: Profile = PROFILE) -> Report:
    return document.build(node, profile, judge(node, profile), argv=["accept"])


HEALTHY = report()


def hows(found: Diff) -> dict[tuple[str, str], str]:
    return {(finding.id, finding.subject): finding.how for finding in found.findings}


def test_a_report_does_not_differ_from_itself() -> None:
    found = diff(HEALTHY, HEALTHY)
    assert (found.findings, found.facts.changes, found.facts.counters) == ((), (), ())
    assert [figure for figure in found.figures if figure.significant] == []
    assert found.figures
    assert ", as before" in differences.render(found, "md")


def test_before_and_after_a_repair() -> None:
    broken = report(change(NODE, "cards.3.power.limit_watts", 500.0))
    assert hows(diff(HEALTHY, broken))["cards.power_limit", "GPU 3"] == "new"
    mended = diff(broken, HEALTHY)
    assert hows(mended)["cards.power_limit", "GPU 3"] == "gone"
    assert mended.before.verdict.value == "REJECTED"
    text = differences.render(mended, "terminal")
    assert text.startswith("REJECTED → ACCEPTED")
    assert "cards.power_limit: GPU 3: FAIL → PASS" in text
    assert "power.limit_watts" in text


def test_a_fault_that_can_no_longer_be_seen_is_not_mended() -> None:
    broken = report(change(NODE, "cards.3.power.limit_watts", 500.0))
    denied = Absent(why=Why.no_permission, detail="Permission denied")
    blind = report(change(NODE, "cards.3.power.limit_watts", denied))
    assert hows(diff(broken, blind))["cards.power_limit", "GPU 3"] == "unseen"
    assert hows(diff(HEALTHY, blind))["cards.power_limit", "GPU 3"] == "unseen"
    assert hows(diff(blind, HEALTHY))["cards.power_limit", "GPU 3"] == "seen"


def test_a_fault_that_was_not_asked_for_again_is_not_mended() -> None:
    slow = _with_figures(PROFILE, measure="hbm.copy", median=1000.0)
    quick = report(healthy.node(PROFILE))
    for key, how in hows(diff(slow, quick)).items():
        assert how not in ("gone", "better"), key


def figure(
    median: float, spread: float, *, repetitions: int = 9, measure: str = "hbm.copy", unit: str = "GB/s"
) -> Figure:
    return Figure(
        measure=measure, stage="hbm", subject="card", cards=(NODE.known_cards[0].key,),
        at=Conditions(size_bytes=2**32), unit=unit, median=median, p5=median - spread, p95=median + spread,
        repetitions=repetitions,
    )  # fmt: skip


def _with_figures(profile: Profile, **figures: Any) -> Report:
    return report(
        change(NODE, "measurements", Measurements(figures=(figure(spread=1.0, **figures),))), profile
    )


def compared(before: Figure, after: Figure) -> Any:
    nodes = [change(NODE, "measurements", Measurements(figures=(f,))) for f in (before, after)]
    sides = [HEALTHY.model_copy(update={"facts": node}) for node in nodes]
    (found,) = diff(*sides).figures
    return found


LATENCY = {"measure": "launch.latency", "unit": "us"}
ODD = {"measure": "odd", "unit": "bytes"}


@pytest.mark.parametrize(
    ("before", "after", "beyond", "significant", "better"),
    [
        (figure(4300, 20), figure(4000, 20), True, True, False),
        (figure(4000, 20), figure(4300, 20), True, True, True),
        (figure(4300, 200), figure(4000, 200), False, False, False),  # the ranges meet
        (figure(4300, 1), figure(4290, 1), True, False, False),  # apart, and only by 0.2 %
        (figure(4300, 0, repetitions=1), figure(4000, 0, repetitions=1), None, False, False),
        (figure(7, 0.1, **LATENCY), figure(9, 0.1, **LATENCY), True, True, False),
        (figure(7, 0.1, **ODD), figure(9, 0.1, **ODD), True, True, None),
        (figure(0, 0), figure(0, 0), False, False, None),
    ],
)  # fmt: skip
def test_figures(
    before: Figure, after: Figure, beyond: bool | None, significant: bool, better: bool | None
) -> None:
    found = compared(before, after)
    assert (found.beyond_spread, found.significant, found.better) == (beyond, significant, better)


@settings(deadline=None, max_examples=60)
@given(st.floats(1, 1e6), st.floats(0, 1e5), st.floats(1, 1e6), st.floats(0, 1e5))
def test_significance_has_no_direction(one: float, its: float, other: float, others: float) -> None:
    there, back = (
        compared(figure(one, its), figure(other, others)),
        compared(figure(other, others), figure(one, its)),
    )
    assert there.beyond_spread == back.beyond_spread
    if there.significant:
        assert abs(one - other) > 0.005 * min(one, other)


def test_two_nodes_are_named_by_their_slots() -> None:
    text = NODE.model_dump_json()
    for i, card in enumerate(NODE.known_cards):
        text = text.replace(str(card.uuid), f"GPU-ffffff{i:02x}-0000-4000-8000-000000000000")
    other = change(change(Node.model_validate_json(text), "host.name", "other"), "host.boot_id", "another")
    found = diff(HEALTHY, report(other))
    assert not found.facts.same_node
    assert len(found.figures) == len(diff(HEALTHY, HEALTHY).figures)
    assert found.findings == ()
    assert "Two nodes" in differences.render(found, "md")


def test_the_json_holds_the_whole_and_can_be_read_back() -> None:
    found = diff(HEALTHY, report(change(NODE, "cards.3.power.limit_watts", 500.0)))
    written = json.loads(differences.render(found, "json"))
    assert written["format"] == "nodecheck-diff/1"
    assert Diff.model_validate_json(json.dumps(written)) == found


@pytest.mark.parametrize("attack", hostile.ATTACKS)
def test_hostile_text_acts_nowhere(attack: str) -> None:
    planted = hostile.plant(samples.rejected(4), lambda text: f"{text}{attack}")
    found = diff(samples.accepted(4), planted)
    for form in ("terminal", "md"):
        page = differences.render(found, form)
        assert not any(not c.isprintable() and c != "\n" for c in page)
        if form == "md":
            for line in page.splitlines():
                assert "<script" not in line.replace("\\<", "") or "`" in line

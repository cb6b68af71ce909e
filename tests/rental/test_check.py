"""One check: its status, what is set aside, what is new, and what becomes of it where nothing can be remembered."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nodecheck.facts import Absent, Node
from nodecheck.facts.card import Process
from nodecheck.judge import Status, judge
from nodecheck.rental.check import Memory, check
from nodecheck.rental.drift import ONLY_SUGGESTED, SO_AT_ACCEPTANCE
from nodecheck.rental.result import CheckResult
from nodecheck.rental.state import Acceptance, Look, State, Terms
from nodecheck.report import document
from tests.judge.cases import DENIED, healthy, profile
from tests.rental.drift.cases import MINUTES_OF_ACCEPTANCE, at, changed

GIB = 1024**3


def accepted(was: Mapping[str, Any] | None = None, waivers: Mapping[str, str] | None = None) -> Acceptance:
    node = changed(at(healthy("h200x4"), MINUTES_OF_ACCEPTANCE), was or {})
    judgement = judge(node, profile("h200x4"), waivers)
    report = document.build(node, profile("h200x4"), judgement, waivers=waivers, created_at=node.taken_at)
    return Acceptance(report=report, sha256="0" * 64, terms=Terms())


def look(now: Mapping[str, Any], acceptance: Acceptance | None, **more: Any) -> CheckResult:
    node = changed(at(healthy("h200x4"), 0), now)
    return check(node, acceptance, None, suggested=profile("h200x4"), seconds=0.2, **more)


def test_an_unchanged_node_passes() -> None:
    said = look({}, accepted())
    assert said.status is Status.passed
    assert said.changes == ()
    assert "held against h200x4 as accepted on 2026-" in said.summary
    assert not isinstance(said.baseline, Absent)
    assert said.baseline.profile == "h200x4"


def test_a_job_on_the_cards_is_no_news() -> None:
    busy = {
        "cards.*.processes": (Process(pid=99, kind="compute", used_bytes=120 * GIB, name="python"),),
        "cards.*.memory.used_bytes": 120 * GIB,
        "cards.*.memory.unexplained_bytes": 0,
        "cards.*.gpu_utilization_percent": 100,
        "cards.*.temperature.gpu_celsius": 84,
        "cards.*.temperature.margin_celsius": 2,
        "cards.*.temperature.memory_celsius": 96,
        "cards.*.power.draw_watts": 700.0,
        "cards.*.clocks.sm_mhz": 1410,
        "cards.*.clocks.event_reasons": ("sw_power_cap",),
        "cards.*.clocks.performance_state": 0,
        "cards.*.pcie.generation": 5,
        "host.memory.available_bytes": 3 * GIB,
        "host.memory.shm_free_bytes": 900 * GIB,
    }
    said = look(busy, accepted())
    assert said.status is Status.passed, [f for f in said.findings if f.status in (Status.warn, Status.fail)]
    assert said.changes == ()


@pytest.mark.parametrize(
    ("now", "status"),
    [
        ({"cards.1.power.limit_watts": 690.0}, Status.fail),  # below the product: the ordinary rule
        ({"host.kernel": "other"}, Status.warn),
        ({"cards": DENIED}, Status.fail),
        ({"host": DENIED}, Status.passed),  # wanted, and told as unknown
        ({"cards.*.memory.total_bytes": DENIED}, Status.unknown),  # required
    ],
    ids=str,
)
def test_the_status_is_the_gravest(now: Mapping[str, Any], status: Status) -> None:
    assert look(now, accepted()).status is status


def test_what_was_so_at_acceptance_is_stated_and_does_not_count() -> None:
    worn = {"cards.0.health.ecc_aggregate.uncorrected": 2}
    said = look(worn, accepted(worn))
    (old,) = [
        f for f in said.findings if f.id == "health.ecc_uncorrected_aggregate" and f.status is Status.warn
    ]
    assert old.waived == SO_AT_ACCEPTANCE
    assert said.status is Status.passed
    worse = look({"cards.0.health.ecc_aggregate.sram_uncorrected": 9, **worn}, accepted(worn))
    (new,) = [
        f for f in worse.findings if f.id == "health.ecc_uncorrected_aggregate" and f.status is Status.fail
    ]
    assert new.waived is None
    assert worse.status is Status.fail
    other = look({"cards.1.health.ecc_aggregate.uncorrected": 1, **worn}, accepted(worn))
    assert other.status is Status.fail  # another card, and new since acceptance


def test_one_trouble_is_told_once() -> None:
    said = look({"cards.1.pcie.width": 8, "cards.2.power.limit_watts": 500.0}, accepted())
    roots = {f.id: f.root for f in said.findings if f.status in (Status.warn, Status.fail)}
    assert roots == {
        "drift.cards.pcie_width": None,
        "cards.pcie.width": "drift.cards.pcie_width",  # both fail
        "cards.power_limit": None,
        "drift.cards.power_limit": "cards.power_limit",  # which fails, where drift warns
    }


def test_waivers_of_the_accepted_report_hold() -> None:
    lower = {"cards.*.power.limit_watts": 650.0}
    said = look(lower, accepted(lower, {"cards.power_limit": "agreed"}))
    assert {f.waived for f in said.findings if f.id == "cards.power_limit"} == {"agreed"}
    assert said.status is Status.passed


def test_without_a_baseline_nothing_is_accepted_and_drift_is_still_told() -> None:
    first = look({}, None)
    assert first.status is Status.unknown
    assert "nodecheck accept --profile NAME" in first.summary
    assert [change.finding.id for change in first.changes] == ["drift.baseline"]
    guessed = look({"cards.0.power.limit_watts": 400.0}, None)
    assert guessed.status is Status.unknown
    assert {
        f.waived for f in guessed.findings if f.id == "cards.power_limit" and f.status is Status.fail
    } == {ONLY_SUGGESTED}
    before = Look(node=at(healthy("h200x4"), -15), findings=())
    node = changed(at(healthy("h200x4"), 0), {"cards.1.pcie.width": 8})
    said = check(node, None, before, suggested=profile("h200x4"), seconds=0.2)
    assert said.status is Status.fail
    assert "drift.cards.pcie_width" in {f.id for f in said.findings if f.status is Status.fail}


def test_readings_are_of_cards_and_disks() -> None:
    said = look({}, accepted())
    names = {reading.name for reading in said.readings}
    assert names >= {
        "temperature_celsius", "power_draw_watts", "utilization_percent", "memory_used_bytes", "ecc_corrected",
        "pcie_replays", "link_recoveries", "throttled_by_heat_seconds", "disk_free_bytes",
    }  # fmt: skip
    assert sum(reading.name == "temperature_celsius" for reading in said.readings) == 4
    assert {reading.name for reading in said.readings if reading.counter} >= {"energy_joules", "pcie_replays"}


# What is remembered


def one(memory: Memory, node: Node) -> CheckResult:
    said = check(
        node,
        memory.acceptance(),
        memory.last_look(),
        suggested=profile("h200x4"),
        seconds=0.2,
        compare=memory.changes,
    )
    memory.record(said, node)
    return said


def test_what_happened_between_two_looks_is_told_once_and_its_going_is_no_news(tmp_path: Path) -> None:
    state = State(tmp_path)
    state.accept(accepted().report, Terms())
    state.close()
    memory = Memory(tmp_path)
    assert one(memory, at(healthy("h200x4"), 0)).changes == ()
    rebooted = {"host.boot_id": "99999999-2222-4333-8444-555555555555", "host.uptime_seconds": 100.0}
    node = changed(at(healthy("h200x4"), 15), rebooted)
    told = one(memory, node).changes
    assert [(change.what, change.finding.id) for change in told] == [("new", "drift.host.boot")]
    assert told[0].first_seen == node.taken_at
    later = changed(at(healthy("h200x4"), 30), rebooted | {"host.uptime_seconds": 1000.0})
    assert one(memory, later).changes == ()
    assert memory.notes == ()


def test_a_state_that_cannot_be_had_loses_no_check(tmp_path: Path) -> None:
    place = tmp_path / "occupied"
    place.write_text("a file where the folder should be")
    memory = Memory(place)
    said = one(memory, at(healthy("h200x4"), 0))
    assert said.status is Status.unknown
    assert [change.finding.id for change in said.changes] == ["drift.baseline"]
    assert len(memory.notes) == 1
    assert "not remembered" in memory.notes[0]


def test_a_damaged_state_is_begun_anew_and_says_so(tmp_path: Path) -> None:
    state = State(tmp_path)
    state.accept(accepted().report, Terms())
    state.close()
    (path,) = tmp_path.glob("*.sqlite3")
    path.write_bytes(b"no database" * 500)
    memory = Memory(tmp_path)
    said = one(memory, at(healthy("h200x4"), 0))
    assert said.status is Status.unknown
    assert "damaged" in memory.notes[0]


def test_a_clock_that_was_set_back_invents_nothing(tmp_path: Path) -> None:
    memory = Memory(tmp_path)
    one(memory, at(healthy("h200x4"), 0))
    node = at(healthy("h200x4"), 15)
    set_back = node.model_copy(update={"taken_at": node.taken_at - timedelta(days=400)})
    assert one(memory, set_back).changes == ()

"""Rules on the kernel log: what each event means for the renter, and that a closed log is never a pass."""

from __future__ import annotations

from typing import Any

import pytest

from nodecheck import profile as profiles
from nodecheck.facts import Absent, KernelLog, LogEvent, Node, Why
from nodecheck.judge import REGISTRY, Cause, Finding, Owner, Status, Verdict, judge
from nodecheck.judge.amdgpu import messages
from nodecheck.judge.rules import kernel_log as _rules  # noqa: F401  (registers them)
from nodecheck.judge.xids import Entry, sxids, xids
from nodecheck.probes import amdgpu_log
from tests import healthy, healthy_amd

PROFILE = profiles.load("h200x8")
CARD = healthy.ADDRESSES[2]
NO_DEVICE = Absent(why=Why.not_present, detail="the line names no device")
RULES = tuple(id for id in REGISTRY if id.startswith("kernel_log.") and id != "kernel_log.amdgpu")
"""Those that are asked of a node with NVIDIA's cards."""


def line(kind: Any, code: int | None = None, device: str | Absent = CARD, **more: Any) -> LogEvent:
    fields = {"count": 1, "first_seconds": 4000.0, "last_seconds": 4000.0, "text": "a line", **more}
    return LogEvent(kind=kind, code=code, device=device, **fields)


def with_events(*events: LogEvent, node: Node | None = None) -> Node:
    return healthy.change(node or healthy.node(PROFILE), "kernel_log.events", events)


def findings(node: Node, profile: profiles.Profile = PROFILE) -> dict[str, Finding]:
    """The worst finding of each rule on the log."""
    order = (Status.fail, Status.warn, Status.unknown, Status.passed, Status.skipped)
    found: dict[str, Finding] = {}
    for finding in sorted(judge(node, profile).findings, key=lambda finding: order.index(finding.status)):
        if finding.id in RULES:
            found.setdefault(finding.id, finding)
    return found


def finding(id: str, *events: LogEvent, node: Node | None = None) -> Finding:
    return findings(with_events(*events, node=node))[f"kernel_log.{id}"]


def test_a_clean_log_passes_everywhere() -> None:
    assert {finding.status for finding in findings(healthy.node(PROFILE)).values()} == {Status.passed}


@pytest.mark.parametrize(
    "log",
    [
        Absent(why=Why.timed_out, detail="5 s"),
        KernelLog(
            source=Absent(why=Why.no_permission, detail="/dev/kmsg: Operation not permitted"),
            complete=Absent(why=Why.no_permission),
            events=Absent(why=Why.no_permission, detail="/dev/kmsg: Operation not permitted"),
        ),
    ],
)
def test_a_closed_log_makes_every_rule_unknown_and_stands_in_the_ledger(log: Any) -> None:
    node = healthy.change(healthy.node(PROFILE), "kernel_log", log)
    assert {finding.status for finding in findings(node).values()} == {Status.unknown}
    (entry,) = (entry for entry in judge(node, PROFILE).ledger if entry.door == "kernel_log")
    assert set(entry.unknown_findings) == set(RULES)


def test_a_closed_log_does_not_hold_up_the_verdict() -> None:
    node = healthy.node(PROFILE, view="container")
    assert not any(finding.required for finding in findings(node).values())


def test_a_log_without_its_beginning_is_not_wholly_seen() -> None:
    node = healthy.change(healthy.node(PROFILE), "kernel_log.complete", False)
    node = healthy.change(node, "kernel_log.first_line_seconds", 206.7)
    found = findings(node)
    assert found["kernel_log.readable"].status is Status.unknown
    assert "207 s after boot" in found["kernel_log.readable"].detail
    assert found["kernel_log.xid"].status is Status.passed
    assert "207 s after boot" in found["kernel_log.xid"].detail


def test_what_an_excerpt_does_not_say_is_no_pass() -> None:
    log = healthy.node(PROFILE).kernel_log.model_copy(update={"excerpt": True, "complete": False, "lines": 3})
    node = healthy.change(healthy.node(PROFILE), "kernel_log", log)
    assert {finding.status for finding in findings(node).values()} == {Status.unknown}
    told = findings(with_events(line("xid", 79), node=node))
    assert told["kernel_log.xid"].status is Status.fail
    why = "the log was not pasted whole; no PCI Express error of weight in the 3 lines pasted"
    assert told["kernel_log.pcie"].detail.startswith(f"Not seen: not asked: {why}")


def test_a_log_that_cannot_say_whether_it_is_whole() -> None:
    no_stamps = Absent(why=Why.not_supported, detail="the lines carry no time since boot")
    node = healthy.change(healthy.node(PROFILE), "kernel_log.complete", no_stamps)
    assert findings(node)["kernel_log.readable"].status is Status.unknown


@pytest.mark.parametrize("code", [13, 31, 43, 45])
def test_xids_of_programs_are_the_renters(code: int) -> None:
    found = finding("xid", line("xid", code))
    assert (found.status, found.cause, found.owner) == (Status.warn, Cause.misconfigured, Owner.renter)
    assert found.next_step


@pytest.mark.parametrize("code", [46, 48, 62, 64, 74, 79, 94, 95, 109, 119, 120, 140, 143, 158, 171, 172])
def test_xids_of_hardware_are_the_providers(code: int) -> None:
    found = finding("xid", line("xid", code))
    assert (found.status, found.cause, found.owner) == (Status.fail, Cause.faulty, Owner.provider)
    assert (found.subject.kind, found.observed) == ("card", "a line")
    assert CARD in found.subject.label
    assert str(code) in found.detail
    assert "kernel log" in found.observed_from
    assert "NVIDIA" in found.expected_from


@pytest.mark.parametrize("code", [32, 63, 92, 121, 156])
def test_xids_that_may_point_at_the_card(code: int) -> None:
    found = finding("xid", line("xid", code))
    assert (found.status, found.owner) == (Status.warn, Owner.provider)


@pytest.mark.parametrize("code", [14, 106, 162])
def test_xids_that_say_nothing(code: int) -> None:
    found = finding("xid", line("xid", code))
    assert found.status is Status.passed
    assert "a line" in found.detail


def test_an_xid_that_the_table_does_not_have() -> None:
    found = finding("xid", line("xid", 99999))
    assert found.status is Status.warn
    assert "not in the table" in found.detail


def test_nvlink_5_says_itself_whether_it_is_fatal() -> None:
    assert finding("xid", line("xid", 149, severity="fatal")).status is Status.fail
    assert finding("xid", line("xid", 149, severity="non_fatal")).status is Status.warn
    assert finding("xid", line("xid", 149)).status is Status.fail


@pytest.mark.parametrize(
    ("action", "status", "step"),
    [
        ("None", Status.passed, ""),
        ("GPU Reset Required", Status.fail, "reset the card"),
        ("Drain and Reset", Status.fail, "reset the card"),
        ("Node Reboot Required", Status.fail, "restart the machine"),
        (None, Status.warn, "provider"),
    ],
)
def test_xid_154_says_itself_what_the_card_needs(action: str | None, status: Status, step: str) -> None:
    found = finding("xid", line("xid", 154, action=action))
    assert found.status is status
    assert step in found.next_step


def test_each_troubled_card_has_a_finding_of_its_own() -> None:
    node = with_events(*(line("xid", 48, address) for address in healthy.ADDRESSES[:3]))
    cards = [f.subject.key for f in judge(node, PROFILE).findings if f.id == "kernel_log.xid"]
    assert cards == [healthy.uuid(i) for i in range(3)]


def test_a_card_of_somebody_else_is_mentioned_only() -> None:
    elsewhere = line("xid", 79, "0000:f0:00.0", text="NVRM: Xid (PCI:0000:f0:00): 79")
    assert finding("xid", elsewhere).status is Status.passed
    assert "0000:f0:00" in finding("xid", elsewhere).detail
    assert finding("fallen_off_bus", elsewhere).status is Status.passed


def test_a_card_that_is_missing_from_the_bundle_may_be_the_one_that_fell() -> None:
    node = healthy.node(PROFILE)
    assert not isinstance(node.cards, Absent)
    node = healthy.change(node, "cards", node.cards[:7])
    assert finding("fallen_off_bus", line("xid", 79, healthy.ADDRESSES[7]), node=node).status is Status.fail


def test_a_card_that_fell_off_the_bus_without_any_xid() -> None:
    for device in (CARD, NO_DEVICE):
        found = finding("fallen_off_bus", line("fallen_off_bus", device=device))
        assert (found.status, found.cause) == (Status.fail, Cause.faulty)
    assert finding("fallen_off_bus", line("xid", 31)).status is Status.passed


def test_sxids_by_their_own_word_then_by_the_table() -> None:
    switch = "0000:05:00.0"
    assert finding("sxid", line("sxid", 20034, switch, severity="fatal")).status is Status.fail
    assert finding("sxid", line("sxid", 12028, switch, severity="non_fatal")).status is Status.warn
    assert finding("sxid", line("sxid", 20034, switch)).status is Status.fail
    assert finding("sxid", line("sxid", 22013, switch, severity="non_fatal")).status is Status.passed
    assert finding("sxid", line("sxid", 11111, switch)).status is Status.warn


def test_a_card_that_did_not_start() -> None:
    assert finding("driver", line("card_init")).status is Status.warn
    lost = healthy.change(healthy.node(PROFILE), "cards.2.usable", False)
    assert finding("driver", line("card_init"), node=lost).status is Status.fail
    assert finding("driver", line("card_init", device=NO_DEVICE)).status is Status.warn
    assert finding("driver", line("card_init", device=NO_DEVICE), node=lost).status is Status.fail


def test_other_complaints_of_the_driver_are_mentioned() -> None:
    found = finding("driver", *(line("nvrm", device=NO_DEVICE, text=f"NVRM: {i}") for i in range(5)))
    assert found.status is Status.passed
    assert "NVRM: 0" in found.detail
    assert "2 more" in found.detail


def test_nvlink() -> None:
    assert finding("nvlink", line("nvlink", device=NO_DEVICE)).status is Status.warn


def test_pci_express() -> None:
    assert finding("pcie", line("aer", severity="fatal")).status is Status.fail
    assert finding("pcie", line("aer", device="0000:00:01.0", severity="fatal")).status is Status.warn
    assert finding("pcie", line("aer", severity="non_fatal")).status is Status.warn
    assert finding("pcie", line("aer", severity="corrected", count=12)).status is Status.passed
    assert finding("pcie", line("aer", severity="corrected", count=5000)).status is Status.warn


def test_host_memory() -> None:
    for kind, severity, count, status in (
        ("edac", "fatal", 1, Status.fail),
        ("edac", "corrected", 1, Status.passed),
        ("edac", "corrected", 1000, Status.warn),
        ("mce", None, 1, Status.warn),
        ("mce", "corrected", 2, Status.passed),
        ("mce", "fatal", 1, Status.fail),
    ):
        event = line(kind, device=NO_DEVICE, severity=severity, count=count)
        assert finding("memory", event).status is status, (kind, severity, count)


def test_the_system() -> None:
    lockup = finding("system", line("lockup", device="soft lockup"))
    assert (lockup.status, lockup.owner) == (Status.warn, Owner.provider)
    assert finding("system", line("panic", device=NO_DEVICE)).status is Status.warn
    oom = finding("system", line("oom", device="whole machine"))
    assert (oom.status, oom.cause, oom.owner) == (Status.warn, Cause.misconfigured, Owner.renter)
    assert finding("system", line("oom", device="memory cgroup")).status is Status.passed
    crash = finding("system", line("segfault", device="libnccl.so.2"))
    assert (crash.status, crash.owner) == (Status.warn, Owner.renter)


def test_adapters() -> None:
    assert finding("adapters", line("link_down", device="ib0")).status is Status.warn
    early = line("link_down", device="eth0", first_seconds=9.0, last_seconds=11.0)
    assert finding("adapters", early).status is Status.passed
    assert finding("adapters", line("adapter_heat")).status is Status.warn
    assert finding("adapters", line("adapter_power")).status is Status.passed


def test_bundles_without_cards_or_links_are_not_asked_about_them() -> None:
    cpu = profiles.load("cpu")
    found = findings(healthy.node(cpu), cpu)
    assert found["kernel_log.xid"].status is Status.skipped
    assert found["kernel_log.memory"].status is Status.passed
    single = profiles.load("h200x1")
    node = with_events(line("nvlink", device=NO_DEVICE), node=healthy.node(single))
    found = findings(node, single)
    assert found["kernel_log.nvlink"].status is Status.skipped
    assert found["kernel_log.xid"].status is Status.passed


def test_a_faulty_log_rejects_the_node() -> None:
    judgement = judge(with_events(line("xid", 95)), PROFILE)
    assert judgement.verdict is Verdict.rejected


# The table.


@pytest.mark.parametrize("table", [xids(), sxids()])
def test_the_table_is_sound(table: dict[int, Entry]) -> None:
    for number, entry in table.items():
        assert number > 0
        assert entry.gravity in ("ignore", "app", "warn", "fail")
        assert entry.name
        assert entry.meaning.endswith(".")
        assert entry.next_step.endswith(".")
        assert "provider" in entry.next_step or entry.owner is Owner.renter or entry.gravity != "fail"


def test_the_table_holds_what_the_public_catalogue_names() -> None:
    wanted = {
        13,
        31,
        32,
        37,
        38,
        43,
        44,
        45,
        46,
        48,
        54,
        68,
        69,
        73,
        74,
        78,
        79,
        80,
        81,
        92,
        94,
        95,
        109,
        110,
    }
    for span in ((56, 58), (61, 66), (119, 126), (136, 145), (149, 158), (160, 172)):
        wanted |= set(range(span[0], span[1] + 1))
    assert wanted <= set(xids())
    assert {20034, 12028, 22013, 11004, 19084, 23001, 24007} <= set(sxids())


def test_the_line_is_observed_whole_and_not_told_again() -> None:
    text = "NVRM: Xid (PCI:0000:18:00): 48, " + "a long story " * 30
    found = finding("xid", line("xid", 48, text=text))
    assert found.observed == text
    assert "long story" not in found.detail


def test_a_line_that_is_only_mentioned_is_cut_visibly() -> None:
    found = finding("xid", line("xid", 14, text="x" * 500))
    assert "x…”" in found.detail
    assert len(found.detail) < 400


def test_the_time_of_day_is_computed_and_said_to_be() -> None:
    node = healthy.change(healthy.node(PROFILE), "host.uptime_seconds", 4000.0)
    found = finding("xid", line("xid", 48), node=node)
    assert f"4000 s after boot (computed: {node.taken_at:%Y-%m-%d %H:%M:%S} UTC)" in found.detail
    blind = healthy.change(node, "host.uptime_seconds", Absent(why=Why.no_permission))
    assert "computed" not in finding("xid", line("xid", 48), node=blind).detail


# AMD's cards

AMD = profiles.load("mi300xx8")
AMD_CARD = healthy_amd.ADDRESSES[2]


def on_amd(*events: LogEvent, view: healthy.View = "bare") -> dict[str, Finding]:
    order = (Status.fail, Status.warn, Status.unknown, Status.passed, Status.skipped)
    node = healthy.node(AMD, view=view)
    judged = judge(with_events(*events, node=node) if events else node, AMD).findings
    found: dict[str, Finding] = {}
    for one in sorted(judged, key=lambda one: order.index(one.status)):
        found.setdefault(one.id, one)
    return found


def message(name: str, count: int = 1) -> LogEvent:
    return line("amdgpu", device=AMD_CARD, name=name, count=count)


def test_every_message_of_the_probe_is_in_the_table_and_no_other() -> None:
    assert set(messages()) == amdgpu_log.NAMES


@pytest.mark.parametrize("name", sorted(messages()))
def test_a_message_weighs_what_its_row_says(name: str) -> None:
    finding = on_amd(message(name))["kernel_log.amdgpu"]
    entry = messages()[name]
    wanted = {"ignore": Status.passed, "app": Status.warn, "warn": Status.warn, "fail": Status.fail}
    assert finding.status is wanted[entry.gravity]
    if finding.status is Status.passed:
        assert "Mentioned only" in finding.detail
    else:
        assert entry.meaning in finding.detail
        assert finding.owner is (Owner.renter if entry.gravity == "app" else Owner.provider)
        assert finding.subject.kind == "card"


def test_many_corrected_errors_of_an_amd_card_warn() -> None:
    assert on_amd(message("ras_correctable", 5000))["kernel_log.amdgpu"].status is Status.warn
    assert on_amd(message("ras_correctable", 50))["kernel_log.amdgpu"].status is Status.passed


def test_a_log_that_is_closed_tells_nothing_of_amds_cards() -> None:
    assert on_amd(view="container")["kernel_log.amdgpu"].status is Status.unknown


def test_nvidias_numbers_are_not_asked_of_amds_cards() -> None:
    found = on_amd()
    assert {found[id].status for id in ("kernel_log.xid", "kernel_log.sxid", "kernel_log.nvlink")} == {
        Status.skipped
    }
    assert found["kernel_log.amdgpu"].status is Status.passed
    assert judge(healthy.node(PROFILE), PROFILE).findings
    (theirs,) = (f for f in judge(healthy.node(PROFILE), PROFILE).findings if f.id == "kernel_log.amdgpu")
    assert theirs.status is Status.skipped


def test_a_lost_and_a_dead_card_of_amds() -> None:
    assert on_amd(line("fallen_off_bus", device=AMD_CARD))["kernel_log.fallen_off_bus"].status is Status.fail
    assert on_amd(line("card_init", device=AMD_CARD))["kernel_log.driver"].status is Status.warn


def test_a_fault_of_the_iommu_counts_where_it_is_a_cards() -> None:
    assert on_amd(line("iommu", device=AMD_CARD))["kernel_log.iommu"].status is Status.warn
    assert on_amd(line("iommu", device="0000:01:00.0"))["kernel_log.iommu"].status is Status.passed
    assert finding("iommu", line("iommu")).status is Status.warn

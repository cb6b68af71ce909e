"""Reports to render: healthy nodes and broken ones, judged by hand so that no rule has to exist for them."""

from __future__ import annotations

import json
from typing import Any

from nodecheck.facts import Absent, Node, Why
from nodecheck.judge import Cause, Finding, Judgement, LedgerEntry, Owner, Status, Subject, Verdict
from nodecheck.judge.finding import NODE
from nodecheck.profile import Profile
from nodecheck.report import document
from nodecheck.report.document import Report
from tests import healthy

_SIGNED = {"source": "vendor's datasheet", "date": "2026-08-09"}


def profile(count: int = 8, *, name: str | None = None) -> Profile:
    """An H200 bundle, as a file would give it."""
    return Profile.model_validate_json(
        json.dumps(
            {
                "schema": 1,
                "name": name or f"h200x{count}",
                "title": f"{count} × NVIDIA H200 SXM 141 GB",
                "cards": {"count": count},
                "card": {
                    **_SIGNED,
                    "vendor": "nvidia",
                    "names": ["NVIDIA H200"],
                    "pci_ids": ["10de:2335"],
                    "architecture": "hopper",
                    "compute_capability": "9.0",
                    "arch": "sm_90",
                    "cores": 16896,
                    "memory_mib": 143771,
                    "memory_bus_bits": 6144,
                    "power_limit_watts": 700,
                    "max_sm_clock_mhz": 1980,
                    "ecc": True,
                    "pcie_generation": 5,
                },
                "links": {
                    **_SIGNED,
                    "interconnect": "nvlink" if count > 1 else "none",
                    "version": "4.0",
                    "links_per_card": 18,
                    "links_per_pair": 18,
                    "link_speed_mb_per_s": 26562,
                    "fabric": True,
                },
                "figures": [
                    {
                        **_SIGNED,
                        "measure": "all_reduce.busbw",
                        "unit": "GB/s",
                        "at": {"size": "8GiB", "dtype": "bfloat16", "ranks": max(count, 2)},
                        "typical": 480,
                        "warn_below": 456,
                        "fail_below": 432,
                    }
                ],
            }
        )
    )


def finding(id: str, status: Status, subject: Subject = NODE, **more: Any) -> Finding:
    trouble = status in (Status.warn, Status.fail)
    texts: dict[str, Any] = {
        "title": id.replace(".", " ").replace("_", " ").capitalize(),
        "detail": "This is what was seen here.",
        "observed": None,
        "expected": None,
        "unit": "",
        "observed_from": "nvml: nvmlDeviceGetName",
        "expected_from": "profile: vendor's datasheet (published, 2026-08-09)",
        "required": True,
        "door": "nvml",
        "cause": Cause.faulty if trouble else (Cause.not_visible if status is Status.unknown else None),
        "owner": Owner.provider if trouble else None,
        "meaning": "The card cannot reach its peers at full speed." if trouble else "",
        "next_step": "Ask the provider for another node; attach this report." if trouble else "",
        "repeat": "nvidia-smi nvlink --status",
    }
    return Finding(id=id, status=status, subject=subject, **{**texts, **more})


def judgement(node: Node, wanted: Profile, findings: tuple[Finding, ...]) -> Judgement:
    statuses = {
        f.status for f in findings if f.waived is None and (f.status is not Status.unknown or f.required)
    }
    verdict = (
        Verdict.rejected
        if Status.fail in statuses
        else Verdict.incomplete
        if Status.unknown in statuses
        else Verdict.accepted_with_warnings
        if Status.warn in statuses
        else Verdict.accepted
    )
    return Judgement(
        profile=wanted.name,
        level=node.level,
        verdict=verdict,
        summary=f"{verdict.value} {wanted.name} at level quick: {len(findings)} findings.",
        reasons=tuple(f"{f.id} ({f.subject.label}): {f.detail}" for f in findings if f.status is Status.fail),
        findings=findings,
        ledger=tuple(
            LedgerEntry(
                door=door.name,
                open=door.open,
                detail=door.detail,
                unknown_findings=("kernel_log.xid",) if door.name == "kernel_log" and not door.open else (),
            )
            for door in node.doors
        ),
    )


def of_card(node: Node, position: int) -> Subject:
    card = node.known_cards[position]
    return Subject(kind="card", key=card.key, label=card.label)


def accepted(count: int = 8, view: healthy.View = "bare") -> Report:
    wanted = profile(count)
    node = healthy.node(wanted, view=view)
    return report(node, wanted, passes(node))


def passes(node: Node) -> tuple[Finding, ...]:
    per_card = ("cards.model", "cards.memory.total", "health.ecc_mode", "topology.nvlink.active_links")
    return (
        finding("cards.count", Status.passed, observed=len(node.known_cards), expected=len(node.known_cards)),
        *(
            finding(id, Status.passed, of_card(node, i), observed=143771, expected=143771, unit="MiB")
            for id in per_card
            for i in range(len(node.known_cards))
        ),
        finding("cards.recorded", Status.skipped, detail="No earlier report to compare with."),
        finding("kernel_log.xid", Status.unknown, required=False, door="kernel_log", detail="Not seen."),
    )


def rejected(count: int = 8) -> Report:
    """One card without NVLinks, one with ECC errors, a warning, a required hole and a waiver."""
    wanted = profile(count)
    node = healthy.node(wanted)
    lame = 2 if count > 2 else 0
    links = node.known_cards[lame].links
    assert not isinstance(links, Absent)
    for i in range(len(links)):
        node = healthy.change(node, f"cards.{lame}.links.{i}.active", False)
    assert not isinstance(node.topology, Absent)
    pairs = node.topology.pairs
    assert not isinstance(pairs, Absent)
    for i, pair in enumerate(pairs):
        if node.known_cards[lame].key in (pair.a, pair.b):
            node = healthy.change(node, f"topology.pairs.{i}.nvlinks", 0)
    findings = (
        *passes(node),
        finding(
            "topology.nvlink.active_links",
            Status.fail,
            of_card(node, lame),
            detail="None of the card's 18 NVLinks is up.",
            observed=0,
            expected=18,
            unit="links",
            cause=Cause.not_as_rented,
        ),
        *(
            finding(
                "topology.pairs.nvlink",
                Status.fail,
                Subject(
                    kind="pair",
                    key=f"{node.known_cards[lame].key}+{node.known_cards[i].key}",
                    label=f"GPU {lame} – GPU {i}",
                ),
                detail="No NVLink joins the two.",
                observed="SYS",
                expected="NV18",
                cause=Cause.not_as_rented,
                root="topology.nvlink.active_links",
            )
            for i in range(count)
            if i != lame
        ),
        finding(
            "health.ecc_uncorrected_volatile",
            Status.fail,
            of_card(node, count - 1),
            detail="2 uncorrected errors since the driver was loaded.",
            observed=2,
            expected=0,
            unit="errors",
        ),
        finding(
            "host.shm",
            Status.warn,
            detail="/dev/shm is small; workers of a DataLoader will fail.",
            observed=67108864,
            expected=8589934592,
            unit="bytes",
            cause=Cause.misconfigured,
            owner=Owner.renter,
            repeat="df -h /dev/shm",
        ),
        finding("cards.persistence", Status.warn, waived="agreed with the provider on 2 December"),
        finding(
            "stack.context",
            Status.unknown,
            of_card(node, 0),
            detail="Not seen: timed out: no answer within 60 s.",
            door="torch",
        ),
    )
    return report(node, wanted, findings, waivers={"cards.persistence": "agreed with the provider"})


def without_cards() -> Report:
    """A machine whose driver does not answer at all."""
    wanted = profile(4)
    gone = Absent(why=Why.timed_out, detail="NVML gave no answer within 20 s")
    node = healthy.change(healthy.node(wanted, view="container"), "cards", gone)
    node = healthy.change(node, "topology", gone)
    return report(node, wanted, (finding("cards.listed", Status.unknown, detail="Not seen."),))


def report(
    node: Node, wanted: Profile, findings: tuple[Finding, ...], waivers: dict[str, str] | None = None
) -> Report:
    return document.build(
        node,
        wanted,
        judgement(node, wanted, findings),
        waivers=waivers,
        durations={"host": 0.21, "cards": 0.4, "stack": 5.9},
        argv=["accept", "--profile", wanted.name],
    )

"""What has changed of a node, and what is wrong with it now as far as a look in passing can tell."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from nodecheck.judge import REGISTRY as ORDINARY
from nodecheck.judge import Described, Finding, Status, find
from nodecheck.judge.finding import NODE
from nodecheck.judge.rule import Outcome

# Each of them registers its rules.
from nodecheck.rental.drift import baseline, cards, counters, host, links, log, stack  # noqa: F401
from nodecheck.rental.drift.rule import GRAVITY, REGISTRY, Drift, DriftRule
from nodecheck.report.document import Report

__all__ = ["PASSIVE", "REGISTRY", "Drift", "DriftRule", "findings"]

PASSIVE: tuple[str, ...] = (
    "cards.listed", "cards.vendor", "cards.count", "cards.count.agreement", "cards.usable", "cards.duplicate",
    "cards.excluded", "cards.model", "cards.pci_id", "cards.architecture", "cards.compute_capability",
    "cards.cores", "cards.memory.total", "cards.memory.bus_width", "cards.memory.reserved", "cards.identity",
    "cards.uniform", "cards.power_limit", "cards.clocks.max", "cards.clocks.application", "cards.mig",
    "cards.compute_mode", "cards.virtualization", "cards.pcie.width",
    "cards.kfd", "cards.device_files", "cards.gfx", "cards.compute_units", "cards.partition.compute",
    "cards.partition.memory", "health.ecc_deferred", "health.xgmi_errors", "health.bad_pages",
    "topology.pairs.xgmi", "topology.xgmi.hive", "stack.driver.amdgpu",
    "health.responsive", "health.ecc_mode", "health.ecc_pending", "health.ecc_uncorrected_volatile",
    "health.ecc_uncorrected_aggregate", "health.ecc_corrected", "health.sram_threshold", "health.retired_pages",
    "health.row_remap_pending", "health.row_remap_failed", "health.row_remap_capacity", "health.repair_pending",
    "health.unrepairable_memory", "health.recovery_action",
    "topology.nvlink.active_links", "topology.nvlink.speed", "topology.nvlink.version",
    "topology.nvlink.disabled_by_driver", "topology.fabric.state", "topology.fabric.health",
    "topology.fabric.clique", "topology.adapters",
    "host.cpus", "host.memory", "host.shm", "host.mounts", "host.stuck_processes",
    "stack.driver.library_match", "stack.driver.minimum",
)  # fmt: skip
"""The ordinary rules that a look in passing can answer. Not among them is what a running job changes (processes, memory
in use, heat, clocks), what depends on the shell that starts the look (limits, variables), what takes a context, an
interpreter or load, and what drift says better: counters, the kernel's log, disks that fill."""

TWINS: dict[str, tuple[str, ...]] = {
    "drift.cards.access": ("cards.listed", "cards.usable"),
    "drift.cards.gone": ("cards.count", "cards.count.agreement"),
    "drift.cards.new": ("cards.count",),
    "drift.cards.memory": ("cards.memory.total", "cards.identity"),
    "drift.cards.power_limit": ("cards.power_limit",),
    "drift.cards.clocks": ("cards.clocks.max",),
    "drift.cards.mig": ("cards.mig",),
    "drift.cards.ecc": ("health.ecc_mode",),
    "drift.cards.compute_mode": ("cards.compute_mode",),
    "drift.cards.pcie_width": ("cards.pcie.width",),
    "drift.links.active": ("topology.nvlink.active_links",),
    "drift.links.speed": ("topology.nvlink.speed",),
    "drift.links.fabric": ("topology.fabric.state",),
    "drift.links.fabric_health": ("topology.fabric.health",),
    "drift.counters.ecc_uncorrected": ("health.ecc_uncorrected_volatile", "health.ecc_uncorrected_aggregate"),
    "drift.host.adapters": ("topology.adapters",),
}
"""Rules of drift, and the ordinary ones that see the same trouble."""

SO_AT_ACCEPTANCE = "it was so when the node was accepted"
ONLY_SUGGESTED = "the profile is only suggested"


def findings(drift: Drift, accepted: Report | None) -> tuple[Finding, ...]:
    """Every rule of drift, and the ordinary ones as far as they can be asked.

    What the accepted report says already, as grave as it is now, is set aside, and so is what was waived there. Where
    there is no such report, the ordinary rules are asked with a suggested profile and set aside altogether.
    """
    asked: list[tuple[Described, Callable[[], Iterable[Outcome]]]] = [
        *((rule, partial(rule.compare, drift)) for rule in REGISTRY.values()),
        *((ORDINARY[id], partial(ORDINARY[id].judge, drift.now, drift.profile)) for id in PASSIVE),
    ]
    found = find(asked, drift.profile, accepted.waivers if accepted else {})
    return _told_once([_set_aside(finding, accepted) for finding in found])


def _told_once(found: list[Finding]) -> tuple[Finding, ...]:
    """The findings, of which the lesser of two twins follows from the graver one; from that of drift where they are
    alike, since it says what was."""
    wrong = {(f.id, f.subject.key): f for f in found if _wrong(f) and f.waived is None}
    roots: dict[tuple[str, str], str] = {}
    for key, own in wrong.items():
        for other in TWINS.get(own.id, ()):
            twins = [
                f
                for (id, at), f in wrong.items()
                if id == other and (at == key[1] or NODE.key in (at, key[1]))
            ]
            for twin in twins:
                if _gravity(twin) > _gravity(own):
                    roots[key] = twin.id
                else:
                    roots[twin.id, twin.subject.key] = own.id
    return tuple(
        finding
        if finding.root is not None or (root := roots.get((finding.id, finding.subject.key))) is None
        else finding.model_copy(update={"root": root})
        for finding in found
    )


def _set_aside(finding: Finding, accepted: Report | None) -> Finding:
    if finding.id in REGISTRY or finding.waived is not None:
        return finding
    if accepted is None:
        # Nothing is held against a profile that nobody named.
        update = {"waived": ONLY_SUGGESTED} if _wrong(finding) else {"required": False}
        return finding.model_copy(update=update)
    if _wrong(finding) and _gravity(finding) <= max(
        (_gravity(old) for old in accepted.judgement.findings if _alike(old, finding)), default=-1
    ):
        return finding.model_copy(update={"waived": SO_AT_ACCEPTANCE})
    return finding


def _wrong(finding: Finding) -> bool:
    return finding.status in (Status.warn, Status.fail)


def _gravity(finding: Finding) -> int:
    return GRAVITY.index(finding.status)


def _alike(old: Finding, new: Finding) -> bool:
    return old.id == new.id and old.subject.key == new.subject.key

"""Which trouble explains which: one broken thing shows in many findings, and a report begins with it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from nodecheck.judge.finding import NODE, Finding, Status, Subject


@dataclass(frozen=True)
class Root:
    """A finding, and what follows from it on the same card; a finding on the node has to do with all."""

    id: str
    causes: tuple[str, ...] = ()
    """Ids of warnings and failures that it brings with it."""
    hides: tuple[str, ...] = ()
    """Beginnings of the ids of findings that it makes unknown."""

    def explains(self, finding: Finding) -> bool:
        if finding.status is Status.unknown:
            return finding.id.startswith(self.hides) or finding.id in self.causes
        return finding.id in self.causes


_CARD_FACTS = (
    "cards.",
    "health.",
    "topology.nvlink.",
    "topology.pairs.",
    "topology.xgmi.",
    "topology.fabric.",
    "topology.nvswitch",
)
_CUDA = ("stack.cuda_init", "stack.context", "stack.torch.devices", "cards.count.agreement")
_IDENTITY = (
    "cards.pci_id",
    "cards.architecture",
    "cards.compute_capability",
    "cards.gfx",
    "cards.cores",
    "cards.compute_units",
    "cards.memory.total",
    "cards.memory.bus_width",
    "cards.uniform",
    "stack.torch.cards",
)
_LINKS = (
    "topology.nvlink.active_links",
    "topology.nvlink.speed",
    "topology.nvlink.version",
    "topology.pairs.nvlink",
    "topology.pairs.p2p",
)

_XGMI = ("topology.xgmi.hive", "topology.pairs.xgmi", "topology.pairs.p2p")

_LOAD = ("measurements.",)
_SPEED = (
    "measurements.hbm",
    "measurements.gemm",
    "measurements.host",
    "measurements.siblings",
    "measurements.pcie_under_load",
)
_GROUP = ("measurements.collectives", "measurements.nvls", "measurements.transport")
_BETWEEN = ("measurements.pairs", "measurements.pairs_alike", "measurements.link_rate", *_GROUP)

ROOTS: tuple[Root, ...] = (
    Root(
        "stack.driver.amdgpu",
        causes=("cards.listed", "cards.usable", "cards.kfd", "cards.device_files", *_CUDA),
        hides=(*_CARD_FACTS, *_LOAD, "stack.context"),
    ),
    Root(
        "cards.kfd",
        causes=(
            "cards.listed",
            "cards.device_files",
            "cards.count",
            "cards.count.agreement",
            "stack.torch.devices",
        ),
    ),
    Root("stack.driver.library_match", causes=("cards.listed", *_CUDA), hides=(*_CARD_FACTS, *_LOAD)),
    Root("cards.listed", causes=("cards.count", "stack.torch.arch", *_CUDA), hides=(*_CARD_FACTS, *_LOAD)),
    Root(
        "cards.vendor",
        causes=("cards.count", "cards.device_files", "stack.torch.gpu_build", "stack.extensions", *_CUDA),
        hides=_CARD_FACTS,
    ),
    Root("cards.device_files", causes=("cards.usable", *_CUDA), hides=(*_LOAD, "stack.context")),
    Root(
        "cards.partition.compute",
        causes=("cards.count", *_IDENTITY, "cards.identity", *_CUDA, *_XGMI, *_SPEED, *_BETWEEN),
    ),
    Root("cards.partition.memory", causes=("cards.memory.total", "cards.identity", *_SPEED, *_BETWEEN)),
    Root(
        "cards.count",
        causes=("cards.count.agreement", "cards.excluded", "stack.torch.devices"),
        hides=("measurements.collectives",),
    ),
    Root(
        "cards.usable",
        causes=("health.responsive", *_CUDA),
        hides=(*_CARD_FACTS, *_LOAD, "stack.context"),
    ),
    Root("health.responsive", causes=_CUDA, hides=(*_CARD_FACTS, *_LOAD)),
    Root(
        "cards.model",
        causes=(
            *_IDENTITY,
            *_LINKS,
            "cards.identity",
            "cards.power_limit",
            "cards.clocks.max",
            "cards.pcie.width",
            "cards.pcie.generation",
            "topology.fabric.state",
            *_SPEED,
            *_BETWEEN,
        ),
    ),
    Root("cards.identity", causes=_IDENTITY),
    Root("cards.mig", causes=("topology.pairs.p2p", *_CUDA), hides=("health.",)),
    Root("cards.compute_mode", causes=("stack.context",)),
    Root("cards.hidden_by_environment", causes=_CUDA),
    Root("cards.processes", causes=("cards.memory.in_use", "cards.idle", "measurements.memory"), hides=_LOAD),
    Root(
        "cards.memory.in_use",
        causes=("cards.memory.unexplained", "cards.idle", "measurements.memory"),
        hides=_LOAD,
    ),
    Root("cards.idle", hides=_LOAD),
    Root("cards.power_limit", causes=("measurements.gemm", "measurements.siblings")),
    Root("cards.clocks.event_reasons", causes=("measurements.throttling", *_SPEED)),
    Root("cards.pcie.width", causes=("measurements.pcie_under_load", "measurements.host")),
    Root("cards.pcie.generation", causes=("measurements.pcie_under_load", "measurements.host")),
    Root("health.ecc_mode", causes=("health.ecc_pending",)),
    Root("topology.nvlink.disabled_by_driver", causes=(*_LINKS, *_BETWEEN, "topology.fabric.state")),
    Root("stack.driver.fabric_manager", causes=("topology.fabric.state", *_CUDA)),
    Root("topology.fabric.state", causes=("topology.fabric.health", "topology.pairs.p2p", *_BETWEEN, *_CUDA)),
    Root("topology.nvlink.active_links", causes=(*_LINKS, *_BETWEEN)),
    Root("health.xgmi_errors", causes=("health.ecc_uncorrected_volatile", *_BETWEEN)),
    Root("topology.xgmi.links", causes=(*_XGMI, *_BETWEEN)),
    Root("topology.xgmi.hive", causes=("topology.pairs.xgmi", "topology.pairs.p2p", *_BETWEEN)),
    Root("topology.pairs.xgmi", causes=("topology.pairs.p2p", *_BETWEEN)),
    Root("topology.pairs.nvlink", causes=("topology.pairs.p2p", *_BETWEEN)),
    Root("topology.pairs.p2p", causes=_BETWEEN),
    Root(
        "stack.torch.present",
        causes=("stack.context",),
        hides=("stack.torch.", "stack.rocm.", "stack.nccl.", "stack.driver.runtime", "stack.context", *_LOAD),
    ),
    Root(
        "stack.torch.gpu_build",
        causes=(
            "stack.torch.arch",
            "stack.rocm.arch",
            "stack.extensions",
            "stack.torch.devices",
            "stack.context",
        ),
    ),
    Root("stack.cuda_init", causes=_CUDA),
    Root("stack.driver.runtime", causes=("stack.torch.devices", "stack.context")),
    Root("stack.torch.cuda_minimum", causes=("stack.torch.arch",)),
    Root("stack.torch.arch", causes=("stack.context",)),
    Root("stack.rocm.minimum", causes=("stack.rocm.arch",)),
    Root("stack.rocm.arch", causes=("stack.context",)),
    Root("stack.torch.devices", causes=("cards.count.agreement",)),
    Root("stack.context", hides=_LOAD),
    Root("measurements.performed", hides=_LOAD),
    Root("measurements.stages", hides=_LOAD),
    Root("measurements.memory", causes=("measurements.operators",)),
    Root("measurements.agreement", causes=("measurements.operators",)),
    Root("measurements.throttling", causes=_SPEED),
    Root("measurements.pcie_under_load", causes=("measurements.host", "measurements.siblings")),
    Root("measurements.hbm", causes=("measurements.siblings",)),
    Root("measurements.gemm", causes=("measurements.siblings",)),
    Root("measurements.host", causes=("measurements.siblings",)),
    Root("measurements.transport", causes=("measurements.collectives", "measurements.nvls")),
    Root(
        "measurements.link_rate",
        causes=("measurements.pairs", "measurements.pairs_alike", "measurements.collectives"),
    ),
    Root("measurements.pairs", causes=("measurements.pairs_alike", "measurements.collectives")),
    Root("measurements.pairs_alike", causes=("measurements.collectives",)),
    Root("measurements.nvls", causes=("measurements.collectives",)),
)
"""The deepest first: a finding follows from the first of these that explains it."""

_GRAVITY = {Status.fail: 3, Status.unknown: 2, Status.warn: 1, Status.passed: 0, Status.skipped: 0}


def with_roots(findings: Iterable[Finding]) -> list[Finding]:
    """The findings, each trouble and each unknown naming the finding it follows from, if there is one."""
    all_findings = list(findings)
    grave: dict[str, list[Finding]] = {}
    for finding in all_findings:
        # What is only wanted and was not seen explains nothing: it would take the place of a required hole.
        counts = finding.required if finding.status is Status.unknown else _GRAVITY[finding.status] > 0
        if counts and finding.waived is None:
            grave.setdefault(finding.id, []).append(finding)
    return [
        finding.model_copy(update={"root": _root(finding, grave)}) if _GRAVITY[finding.status] else finding
        for finding in all_findings
    ]


def _root(finding: Finding, grave: dict[str, list[Finding]]) -> str | None:
    for root in ROOTS:
        if root.id == finding.id:
            return None  # only what stands deeper may explain it, so that roots never go in a circle
        # A warning explains no failure, and what was not seen no trouble that was; but what hides something makes it
        # unknown, however lightly it weighs.
        hidden = finding.status is Status.unknown and finding.id.startswith(root.hides)
        if root.explains(finding) and any(
            (hidden or _explains(other.status, finding.status)) and _related(other.subject, finding.subject)
            for other in grave.get(root.id, ())
        ):
            return root.id
    return None


def _explains(one: Status, other: Status) -> bool:
    if one is Status.unknown:
        return other is Status.unknown
    return _GRAVITY[one] >= _GRAVITY[other]


def _related(one: Subject, other: Subject) -> bool:
    """Whether two subjects share a card (a pair is named `card+card`); the node has to do with all."""
    return NODE in (one, other) or bool(set(one.key.split("+")) & set(other.key.split("+")))

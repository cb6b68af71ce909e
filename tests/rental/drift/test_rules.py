"""Every rule of drift: what it lets pass, what it tells, and what it cannot see."""

from __future__ import annotations

from typing import Any

import pytest

from nodecheck.facts import NOT_ASKED, LogEvent
from nodecheck.facts.card import EccCounts, Link, Process, Violations
from nodecheck.facts.host import Disk
from nodecheck.facts.stack import Library, Toolkit
from nodecheck.facts.topology import Adapter
from nodecheck.judge import Status
from nodecheck.rental.check import verdict
from nodecheck.rental.drift import PASSIVE, REGISTRY, TWINS, findings
from tests.judge.cases import DENIED, HUNG, UNSUPPORTED, healthy
from tests.rental.drift.cases import Case, check, drift_of

PASS, WARN, FAIL, UNKNOWN, SKIPPED = (
    Status.passed,
    Status.warn,
    Status.fail,
    Status.unknown,
    Status.skipped,
)
GIB = 1024**3


def cards(*order: int, **replaced: Any) -> tuple[Any, ...]:
    """The healthy node's cards in another order or number; `uuid` and the like of card 1 replaced."""
    some = [healthy("h200x4").known_cards[i].model_copy(update={"index": n}) for n, i in enumerate(order)]
    return tuple(card.model_copy(update=replaced) if order[n] == 1 else card for n, card in enumerate(some))


def links(**of_third: Any) -> tuple[Link, ...]:
    """The links of a card, the fourth of them changed."""
    seen = healthy("h200x4").known_cards[0].links
    assert isinstance(seen, tuple)
    return tuple(link.model_copy(update=of_third) if link.index == 3 else link for link in seen)


def event(
    kind: str, code: int | None, seconds: float, *, count: int = 1, device: str = "0000:18:00.0", **more: Any
) -> LogEvent:
    text = f"NVRM: Xid (PCI:{device}): {code}, …" if kind == "xid" else f"a line about {kind}"
    words = {"first_seconds": seconds, "last_seconds": seconds, "text": text, **more}
    return LogEvent(kind=kind, code=code, device=device, count=count, **words)  # type: ignore[arg-type]


def heat(seconds: float, power: float = 0.0) -> Violations:
    return Violations(
        power_seconds=power, thermal_seconds=seconds, board_limit_seconds=0.0, reliability_seconds=0.0
    )


def ecc(corrected: int = 0, uncorrected: int = 0) -> EccCounts:
    return EccCounts(corrected=corrected, uncorrected=uncorrected)


DATA = Disk(
    mount="/data",
    device="/dev/nvme1n1",
    filesystem="xfs",
    kind="local",
    size_bytes=1000 * GIB,
    free_bytes=800 * GIB,
    read_only=False,
)


def disk(**of: Any) -> tuple[Disk, ...]:
    return (DATA.model_copy(update=of),)


ADAPTER = Adapter(name="mlx5_0", port=1, state="ACTIVE")
NCCL = Library(path="/opt/nccl/libnccl.so.2.28.9", version="2.28.9", origin="ld.so.cache")
CUDA = Toolkit(path="/usr/local/cuda-13.0", version="13.0.88")
JOB = (Process(pid=4711, kind="compute", used_bytes=60 * GIB, name="python"),)
STRANGER = {"cards.1.memory.unexplained_bytes": 40 * GIB, "cards.1.memory.used_bytes": 40 * GIB}
REBOOTED = {"host.boot_id": "99999999-2222-4333-8444-555555555555", "host.uptime_seconds": 300.0}
UP = 200_000.0
"""Seconds after boot, long after acceptance and before now: the healthy node had been up 85,500 s when accepted."""

CASES = [
    Case("drift.baseline", {}, PASS),
    Case("drift.baseline", {}, UNKNOWN, "no accepted report", accepted=False),
    # The cards
    Case("drift.cards.gone", {}, PASS, "All 4"),
    Case("drift.cards.gone", {"cards": cards(0, 2, 3)}, FAIL, "no longer listed", name="one less"),
    Case("drift.cards.gone", {"cards": cards(0, 1, 2, 3, uuid="GPU-other")}, PASS, name="replaced"),
    Case("drift.cards.gone", {"cards": DENIED}, UNKNOWN),
    Case("drift.cards.gone", {}, SKIPPED, was={"cards": DENIED}),
    Case("drift.cards.gone", {}, SKIPPED, accepted=False),
    Case(
        "drift.cards.gone",
        {"cards": cards(0, 2, 3)},
        FAIL,
        accepted=False,
        before={},
        name="since the last look",
    ),
    Case("drift.cards.new", {}, PASS),
    Case("drift.cards.new", {}, WARN, was={"cards": cards(0, 2, 3)}, name="one more"),
    Case("drift.cards.new", {"cards": HUNG}, UNKNOWN),
    Case("drift.cards.replaced", {}, PASS),
    Case("drift.cards.replaced", {"cards.1.uuid": "GPU-other"}, WARN, "another one: GPU-other"),
    Case("drift.cards.replaced", {"cards.1.identity.serial": "999"}, WARN, "serial 999"),
    Case("drift.cards.replaced", {"cards": DENIED}, UNKNOWN),
    Case(
        "drift.cards.replaced",
        {"cards.1.uuid": HUNG, "cards.1.identity.serial": HUNG},
        UNKNOWN,
        name="one that tells neither UUID nor serial",
    ),
    Case("drift.cards.moved", {}, PASS),
    Case("drift.cards.moved", {"cards.1.pci_address": "0000:99:00.0"}, WARN, "is at 0000:99:00.0"),
    Case("drift.cards.moved", {"cards.1.pci_address": DENIED}, UNKNOWN),
    Case("drift.cards.order", {}, PASS),
    Case("drift.cards.order", {"cards": cards(1, 0, 2, 3)}, WARN, "GPU 0 was GPU 1", name="swapped"),
    Case("drift.cards.order", {"cards": cards(0, 2, 3)}, PASS, "3 in the order", name="one less"),
    Case("drift.cards.order", {"cards": DENIED}, UNKNOWN),
    Case("drift.cards.memory", {}, PASS),
    Case("drift.cards.memory", {"cards.1.memory.total_bytes": 100 * GIB}, FAIL, "102,400 MiB, not"),
    Case("drift.cards.memory", {"cards.1.memory.total_bytes": 190 * GIB}, WARN),
    Case("drift.cards.memory", {"cards.1.memory.total_bytes": DENIED}, UNKNOWN),
    Case("drift.cards.vbios", {}, PASS),
    Case("drift.cards.vbios", {"cards.*.identity.vbios": "97.00.00.00.01"}, WARN, "is 97.00"),
    Case("drift.cards.vbios", {"cards.*.identity.vbios": DENIED}, UNKNOWN),
    Case("drift.cards.inforom", {}, PASS),
    Case("drift.cards.inforom", {"cards.*.identity.inforom_image": "G520.9"}, WARN),
    Case("drift.cards.inforom", {"cards.*.identity.inforom_image": HUNG}, UNKNOWN),
    Case("drift.cards.power_limit", {}, PASS, "700 W"),
    Case("drift.cards.power_limit", {"cards.2.power.limit_watts": 500.0}, WARN, "500 W, not 700 W"),
    Case("drift.cards.power_limit", {"cards.2.power.limit_watts": 699.6}, PASS),
    Case("drift.cards.power_limit", {}, PASS, was={"cards.2.power.limit_watts": 600.0}, name="raised"),
    Case("drift.cards.power_limit", {"cards.2.power.limit_watts": DENIED}, UNKNOWN),
    Case("drift.cards.clocks", {}, PASS),
    Case("drift.cards.clocks", {"cards.2.clocks.max_sm_mhz": 1500}, WARN, "1500 MHz"),
    Case("drift.cards.clocks", {"cards.2.clocks.max_sm_mhz": DENIED}, UNKNOWN),
    Case("drift.cards.mig", {}, PASS),
    Case("drift.cards.mig", {"cards.0.modes.mig_enabled": True}, WARN, "was off and is on"),
    Case("drift.cards.mig", {"cards.0.modes.mig_enabled": DENIED}, UNKNOWN),
    Case("drift.cards.mig_instances", {}, PASS),
    Case("drift.cards.mig_instances", {"cards.0.modes.mig_instances": 3}, WARN),
    Case("drift.cards.mig_instances", {"cards.0.modes.mig_instances": DENIED}, UNKNOWN),
    Case("drift.cards.ecc", {}, PASS),
    Case("drift.cards.ecc", {"cards.3.health.ecc_enabled": False}, WARN, "was on and is off"),
    Case("drift.cards.ecc", {"cards.3.health.ecc_enabled": DENIED}, UNKNOWN),
    Case("drift.cards.compute_mode", {}, PASS),
    Case(
        "drift.cards.compute_mode", {"cards.3.modes.compute": "exclusive_process"}, WARN, "exclusive_process"
    ),
    Case("drift.cards.compute_mode", {"cards.3.modes.compute": DENIED}, UNKNOWN),
    Case("drift.cards.persistence", {}, PASS),
    Case("drift.cards.persistence", {"cards.*.modes.persistence": False}, WARN),
    Case("drift.cards.persistence", {"cards.*.modes.persistence": DENIED}, UNKNOWN),
    Case("drift.cards.compute_partition", {}, SKIPPED),
    Case(
        "drift.cards.compute_partition",
        {"cards.0.modes.compute_partition": "CPX"},
        WARN,
        "was SPX and is CPX",
        was={"cards.0.modes.compute_partition": "SPX"},
    ),
    Case("drift.cards.compute_partition", {}, UNKNOWN, was={"cards.0.modes.compute_partition": "SPX"}),
    Case("drift.cards.memory_partition", {}, SKIPPED),
    Case(
        "drift.cards.memory_partition",
        {"cards.0.modes.memory_partition": "NPS4"},
        WARN,
        was={"cards.0.modes.memory_partition": "NPS1"},
    ),
    Case("drift.cards.memory_partition", {}, UNKNOWN, was={"cards.0.modes.memory_partition": "NPS1"}),
    Case("drift.cards.pcie_width", {}, PASS),
    Case("drift.cards.pcie_width", {"cards.1.pcie.width": 8}, FAIL, "8 lanes, not 16"),
    Case("drift.cards.pcie_width", {"cards.1.pcie.generation": 1}, PASS),
    Case("drift.cards.pcie_width", {"cards.1.pcie.width": DENIED}, UNKNOWN),
    # Lost permissions
    Case("drift.cards.access", {}, PASS),
    Case(
        "drift.cards.access",
        {
            "cards": HUNG.model_copy(
                update={"why": DENIED.why, "detail": "NVML_ERROR_UNKNOWN (999): Unknown Error"}
            )
        },
        FAIL,
        "while 4 device files are there",
        name="unknown error",
    ),
    Case("drift.cards.access", {"cards.*.usable": False}, FAIL, "every card is refused"),
    Case("drift.cards.access", {"cards": HUNG}, SKIPPED, "another way"),
    Case("drift.cards.access", {"cards": DENIED, "topology.device_files": ()}, SKIPPED, "device files"),
    Case("drift.cards.access", {"cards": DENIED, "topology": HUNG}, UNKNOWN),
    # Who is on them
    Case("drift.cards.processes", {"cards.0.processes": JOB}, PASS, "1 in sight"),
    Case("drift.cards.processes", {"cards.*.processes": DENIED}, UNKNOWN),
    Case("drift.cards.memory_held", {}, PASS),
    Case(
        "drift.cards.memory_held",
        {"cards.0.processes": JOB, "cards.0.memory.used_bytes": 60 * GIB},
        PASS,
        name="a job",
    ),
    Case("drift.cards.memory_held", STRANGER, WARN, "no process that can be seen"),
    Case("drift.cards.memory_held", STRANGER, PASS, was=STRANGER, name="as accepted"),
    Case(
        "drift.cards.memory_held",
        STRANGER,
        SKIPPED,
        "In a container",
        view="container",
        name="in a container",
    ),
    Case(
        "drift.cards.memory_held",
        STRANGER,
        WARN,
        view="container",
        spec={"required": ("cards.memory.unexplained",)},
        name="the profile asks",
    ),
    Case("drift.cards.memory_held", {"cards.*.memory.unexplained_bytes": DENIED}, UNKNOWN),
    # The links
    Case("drift.links.active", {}, PASS),
    Case("drift.links.active", {"cards.2.links": links(active=False)}, FAIL, "then: 3", name="one down"),
    Case("drift.links.active", {"cards.2.links": links()[:9]}, FAIL, "then: 9, 10", name="half gone"),
    Case("drift.links.active", {"cards.2.links": links(active=DENIED)}, UNKNOWN, name="state denied"),
    Case("drift.links.active", {"cards.2.links": DENIED}, UNKNOWN),
    Case("drift.links.active", {}, SKIPPED, profile="l40sx4"),
    Case("drift.links.active", {}, SKIPPED, was={"cards.*.links": DENIED}),
    Case("drift.links.speed", {}, PASS),
    Case(
        "drift.links.speed",
        {"cards.2.links": links(speed_mb_per_s=12500)},
        FAIL,
        "12.5 instead of 26.562",
        name="slower",
    ),
    Case("drift.links.speed", {"cards.2.links": links(active=False, speed_mb_per_s=0)}, PASS, name="down"),
    Case("drift.links.speed", {"cards.2.links": links(speed_mb_per_s=DENIED)}, UNKNOWN, name="denied"),
    Case("drift.links.fabric", {}, PASS),
    Case("drift.links.fabric", {"cards.*.fabric.state": "in_progress"}, FAIL, "in progress"),
    Case("drift.links.fabric", {}, PASS, was={"cards.*.fabric.state": "not_started"}),
    Case("drift.links.fabric", {"cards.*.fabric.state": DENIED}, UNKNOWN),
    Case("drift.links.fabric_health", {}, PASS),
    Case("drift.links.fabric_health", {"cards.*.fabric.health": "limited_capacity"}, WARN),
    Case("drift.links.fabric_health", {"cards.*.fabric.health": DENIED}, UNKNOWN),
    Case("drift.links.clique", {}, PASS),
    Case("drift.links.clique", {"cards.1.fabric.clique_id": 7}, WARN),
    Case("drift.links.clique", {"cards.1.fabric.clique_id": DENIED}, UNKNOWN),
    # Counters
    Case("drift.counters.ecc_uncorrected", {}, PASS),
    Case("drift.counters.ecc_uncorrected", {"cards.1.health.ecc_aggregate.uncorrected": 2}, FAIL, "2 have"),
    Case(
        "drift.counters.ecc_uncorrected",
        {"cards.1.health.ecc_aggregate.uncorrected": 2},
        PASS,
        was={"cards.1.health.ecc_aggregate.uncorrected": 2},
        name="as accepted",
    ),
    Case(
        "drift.counters.ecc_uncorrected",
        {"cards.1.health.ecc_aggregate.uncorrected": 2},
        FAIL,
        before={"cards.1.health.ecc_aggregate.uncorrected": 2},
        name="stands",
    ),
    Case(
        "drift.counters.ecc_uncorrected",
        {"cards.1.health.ecc_aggregate": UNSUPPORTED, "cards.1.health.ecc_volatile.uncorrected": 1},
        FAIL,
        "1 have",
        name="volatile alone",
    ),
    Case(
        "drift.counters.ecc_uncorrected",
        {"cards.*.health.ecc_aggregate": HUNG, "cards.*.health.ecc_volatile": HUNG},
        UNKNOWN,
    ),
    Case(
        "drift.counters.ecc_uncorrected",
        {"cards.*.health.ecc_aggregate": UNSUPPORTED, "cards.*.health.ecc_volatile": UNSUPPORTED},
        SKIPPED,
    ),
    Case("drift.counters.ecc_corrected", {"cards.1.health.ecc_volatile": ecc(900)}, PASS, "900 added"),
    Case(
        "drift.counters.ecc_corrected",
        {"cards.1.health.ecc_volatile": ecc(20_000)},
        WARN,
        "20,000 have been added",
        before={},
        name="within a look",
    ),
    Case(
        "drift.counters.ecc_corrected",
        {"cards.1.health.ecc_volatile": ecc(20_000)},
        PASS,
        name="over two days",
    ),
    Case(
        "drift.counters.ecc_corrected",
        {"cards.1.health.ecc_volatile": ecc(1_000_000)},
        WARN,
        "20,833 an hour",
        before={"cards.1.health.ecc_volatile": ecc(995_000)},
        name="creeping",
    ),
    Case("drift.counters.ecc_corrected", {"cards.*.health.ecc_volatile": DENIED}, UNKNOWN),
    Case("drift.counters.row_remaps", {}, PASS),
    Case(
        "drift.counters.row_remaps",
        {"cards.1.health.remapped_rows_uncorrected": HUNG},
        UNKNOWN,
        name="one of several was not seen",
    ),
    Case(
        "drift.counters.row_remaps",
        {"cards.1.health.remapped_rows_uncorrected": 1},
        WARN,
        "Added rows for uncorrected errors: 1.",
        before={},
    ),
    Case(
        "drift.counters.row_remaps",
        {
            f"cards.*.health.{name}": DENIED
            for name in (
                "remapped_rows_corrected",
                "remapped_rows_uncorrected",
                "retired_pages_single_bit",
                "retired_pages_double_bit",
                "bad_pages_retired",
            )
        },
        UNKNOWN,
        name="all denied",
    ),
    Case("drift.counters.pcie_replays", {"cards.0.pcie.replays": 300}, PASS, "300 added", before={}),
    Case("drift.counters.pcie_replays", {"cards.0.pcie.replays": 5_000}, WARN, "5,000 an hour", before={}),
    Case(
        "drift.counters.pcie_replays",
        {"cards.0.pcie.replays": 5},
        PASS,
        "5 added",
        before={"cards.0.pcie.replays": 900_000},
        name="set back",
    ),
    Case(
        "drift.counters.pcie_replays",
        {"cards.0.pcie.replays": 900_000, **REBOOTED},
        WARN,
        "900,000 have",
        before={"cards.0.pcie.replays": 899_990},
        name="after a reboot",
    ),
    Case(
        "drift.counters.pcie_replays",
        {"cards.0.pcie.replays": 900_000, "cards.0.power.energy_joules": 5.0},
        WARN,
        "900,000 have",
        before={"cards.0.pcie.replays": 899_990},
        name="after a reset",
    ),
    Case("drift.counters.pcie_replays", {"cards.*.pcie.replays": DENIED}, UNKNOWN),
    Case("drift.counters.links", {}, PASS, "no trouble"),
    Case(
        "drift.counters.links",
        {"cards.0.links": links(crc_data_errors=90_000)},
        PASS,
        "CRC errors in data, sent again",
        name="CRC in data",
    ),
    Case(
        "drift.counters.links",
        {"cards.0.links": links(recovery_errors=1)},
        WARN,
        "Link 3: 1 recoveries",
        name="recovery",
    ),
    Case(
        "drift.counters.links",
        {"cards.0.links": links(replay_errors=5000)},
        WARN,
        "replays",
        before={},
        name="replays",
    ),
    Case(
        "drift.counters.links",
        {"cards.0.links": links(replay_errors=500)},
        PASS,
        before={},
        name="few replays",
    ),
    Case("drift.counters.links", {"cards.*.links": DENIED}, UNKNOWN),
    Case(
        "drift.counters.links",
        {"cards.1.links": links(recovery_errors=HUNG)},
        UNKNOWN,
        name="one link's counter was not seen",
    ),
    Case("drift.counters.throttling", {}, PASS),
    Case(
        "drift.counters.throttling",
        {"cards.0.clocks.violations": heat(0, power=800)},
        PASS,
        "the power limit for 89%",
        before={},
        name="a job at the power limit",
    ),
    Case(
        "drift.counters.throttling",
        {"cards.0.clocks.event_reasons": ("sw_power_cap",)},
        PASS,
        before={},
        name="power cap now",
    ),
    Case(
        "drift.counters.throttling",
        {"cards.0.clocks.violations": heat(9)},
        PASS,
        before={},
        name="a moment of heat",
    ),
    Case(
        "drift.counters.throttling",
        {"cards.0.clocks.violations": heat(300)},
        WARN,
        "300 s, 33% of the time",
        before={},
        name="heat",
    ),
    Case(
        "drift.counters.throttling",
        {"cards.0.clocks.event_reasons": ("hw_power_brake_slowdown",)},
        WARN,
        "power brake",
        before={},
    ),
    Case(
        "drift.counters.throttling",
        {"cards.0.clocks.event_reasons": ("sw_thermal_slowdown",), "cards.0.clocks.violations": UNSUPPORTED},
        WARN,
        "heat",
        before={},
        name="uncounted heat",
    ),
    Case("drift.counters.throttling", {"cards.*.clocks.violations": DENIED}, UNKNOWN),
    Case("drift.counters.aer", {}, PASS),
    Case(
        "drift.counters.aer", {"topology.pci_devices.0.aer_uncorrected": 1}, WARN, "1 uncorrected", before={}
    ),
    Case("drift.counters.aer", {"topology.pci_devices.0.aer_corrected": 100}, PASS, before={}),
    Case("drift.counters.aer", {"topology.pci_devices": DENIED}, UNKNOWN),
    Case("drift.counters.aer", {}, SKIPPED, was={"topology.pci_devices": DENIED}),
    # The log
    Case("drift.kernel_log.xid", {}, PASS, "Nothing since"),
    Case("drift.kernel_log.xid", {"kernel_log.events": (event("xid", 79, UP),)}, FAIL, "Xid 79", name="79"),
    Case(
        "drift.kernel_log.xid",
        {"kernel_log.events": (event("xid", 79, UP),)},
        FAIL,
        "Xid 79",
        before={"kernel_log.events": (event("xid", 79, UP),)},
        name="79 stands",
    ),
    Case(
        "drift.kernel_log.xid",
        {"kernel_log.events": (event("xid", 79, 100.0),)},
        PASS,
        was={"kernel_log.events": (event("xid", 79, 100.0),)},
        name="79 before acceptance",
    ),
    Case(
        "drift.kernel_log.xid",
        {"kernel_log.events": (event("xid", 13, UP),)},
        WARN,
        "Xid 13",
        before={},
        name="13",
    ),
    Case(
        "drift.kernel_log.xid",
        {"kernel_log.events": (event("xid", 13, UP),)},
        PASS,
        before={"kernel_log.events": (event("xid", 13, UP),)},
        name="13 told before",
    ),
    Case(
        "drift.kernel_log.xid",
        {"kernel_log.events": (event("xid", 13, UP + 50, count=3),)},
        WARN,
        "seen 2 times",
        before={"kernel_log.events": (event("xid", 13, UP),)},
        name="13 again",
    ),
    Case(
        "drift.kernel_log.xid",
        {"kernel_log.events": (event("xid", 13, 40.0),), **REBOOTED},
        WARN,
        "Xid 13",
        before={"kernel_log.events": (event("xid", 13, UP),)},
        name="13 after a reboot",
    ),
    Case(
        "drift.kernel_log.xid",
        {"kernel_log.events": (event("xid", 13, 100.0),)},
        PASS,
        was={"kernel_log": DENIED},
        name="old, log closed then",
    ),
    Case(
        "drift.kernel_log.xid",
        {"kernel_log.events": (event("xid", 13, UP),)},
        WARN,
        was={"kernel_log": DENIED},
        name="new, log closed then",
    ),
    Case("drift.kernel_log.xid", {"kernel_log": DENIED}, UNKNOWN),
    Case(
        "drift.kernel_log.xid",
        {"kernel_log.complete": False, "kernel_log.first_line_seconds": UP},
        PASS,
        before={},
        name="what was overwritten was seen before",
    ),
    Case(
        "drift.kernel_log.xid",
        {"kernel_log.complete": False, "kernel_log.first_line_seconds": UP},
        UNKNOWN,
        "overwritten or cleared",
        name="what was overwritten came since",
    ),
    Case(
        "drift.kernel_log.xid",
        {"kernel_log.complete": UNSUPPORTED, "kernel_log.lines": 0},
        UNKNOWN,
        "it was cleared",
        name="cleared",
    ),
    Case(
        "drift.kernel_log.xid",
        {"kernel_log.complete": False, "kernel_log.first_line_seconds": 90.0, **REBOOTED},
        UNKNOWN,
        "overwritten or cleared",
        before={},
        name="the boot's first lines are gone",
    ),
    Case("drift.kernel_log.xid", {}, SKIPPED, profile="cpu"),
    Case(
        "drift.kernel_log.sxid",
        {"kernel_log.events": (event("sxid", 20034, UP, severity="fatal"),)},
        FAIL,
        "SXid 20034",
        name="fatal",
    ),
    Case("drift.kernel_log.amdgpu", {}, PASS, "Nothing since", profile="mi300xx8"),
    Case(
        "drift.kernel_log.amdgpu",
        {"kernel_log.events": (event("amdgpu", None, UP, device="0000:0c:00.0", name="ras_uncorrectable"),)},
        FAIL,
        "Uncorrectable hardware error",
        profile="mi300xx8",
        name="an error",
    ),
    Case(
        "drift.kernel_log.amdgpu",
        {"kernel_log.events": (event("amdgpu", None, UP, device="0000:0c:00.0", name="page_fault"),)},
        WARN,
        "Page fault",
        before={},
        profile="mi300xx8",
        name="a page fault",
    ),
    Case("drift.kernel_log.amdgpu", {"kernel_log": HUNG}, UNKNOWN, profile="mi300xx8"),
    Case("drift.kernel_log.amdgpu", {"kernel_log": HUNG}, SKIPPED),
    Case("drift.kernel_log.iommu", {}, PASS),
    Case(
        "drift.kernel_log.iommu",
        {"kernel_log.events": (event("iommu", None, UP),)},
        WARN,
        before={},
        name="a fault",
    ),
    Case("drift.kernel_log.iommu", {"kernel_log": HUNG}, UNKNOWN),
    Case("drift.kernel_log.sxid", {}, PASS),
    Case("drift.kernel_log.sxid", {"kernel_log.events": HUNG}, UNKNOWN),
    Case(
        "drift.kernel_log.fallen_off_bus",
        {"kernel_log.events": (event("fallen_off_bus", None, UP),)},
        FAIL,
        "fell off",
        name="fell",
    ),
    Case("drift.kernel_log.fallen_off_bus", {}, PASS),
    Case("drift.kernel_log.fallen_off_bus", {"kernel_log": HUNG}, UNKNOWN),
    Case(
        "drift.kernel_log.driver",
        {"kernel_log.events": (event("card_init", None, UP),)},
        WARN,
        name="start failed",
    ),
    Case("drift.kernel_log.driver", {}, PASS),
    Case("drift.kernel_log.driver", {"kernel_log": HUNG}, UNKNOWN),
    Case(
        "drift.kernel_log.nvlink", {"kernel_log.events": (event("nvlink", None, UP),)}, WARN, name="complaint"
    ),
    Case("drift.kernel_log.nvlink", {}, PASS),
    Case("drift.kernel_log.nvlink", {"kernel_log": HUNG}, UNKNOWN),
    Case(
        "drift.kernel_log.pcie",
        {"kernel_log.events": (event("aer", None, UP, severity="fatal"),)},
        FAIL,
        name="fatal",
    ),
    Case(
        "drift.kernel_log.pcie",
        {"kernel_log.events": (event("aer", None, UP, severity="corrected", count=1500),)},
        PASS,
        before={"kernel_log.events": (event("aer", None, UP - 9, severity="corrected", count=1400),)},
        name="a few more corrected",
    ),
    Case("drift.kernel_log.pcie", {"kernel_log": HUNG}, UNKNOWN),
    Case(
        "drift.kernel_log.memory",
        {"kernel_log.events": (event("edac", None, UP, severity="fatal"),)},
        FAIL,
        name="uncorrected",
    ),
    Case("drift.kernel_log.memory", {}, PASS),
    Case("drift.kernel_log.memory", {"kernel_log": HUNG}, UNKNOWN),
    Case(
        "drift.kernel_log.system",
        {"kernel_log.events": (event("oom", None, UP),)},
        WARN,
        "ran out of memory",
        name="oom",
    ),
    Case("drift.kernel_log.system", {}, PASS),
    Case("drift.kernel_log.system", {"kernel_log": HUNG}, UNKNOWN),
    Case(
        "drift.kernel_log.adapters",
        {"kernel_log.events": (event("link_down", None, UP, device="mlx5_0"),)},
        WARN,
        "went down",
        name="port down",
    ),
    Case("drift.kernel_log.adapters", {}, PASS),
    Case("drift.kernel_log.adapters", {"kernel_log": HUNG}, UNKNOWN),
    # The host
    Case("drift.host.boot", {}, PASS, "runs since then"),
    Case("drift.host.boot", REBOOTED, WARN, "was started at", before={}, name="rebooted"),
    Case(
        "drift.host.boot",
        REBOOTED,
        PASS,
        "since acceptance",
        before=REBOOTED | {"host.uptime_seconds": 30.0},
        name="told before",
    ),
    Case(
        "drift.host.boot",
        {"host.boot_id": DENIED, "host.uptime_seconds": 60.0},
        WARN,
        before={},
        name="without a boot id",
    ),
    Case("drift.host.boot", {"host.boot_id": DENIED, "host.uptime_seconds": DENIED}, UNKNOWN),
    Case("drift.host.kernel", {}, PASS),
    Case("drift.host.kernel", {"host.kernel": "6.8.0-99-generic"}, WARN, "is 6.8.0-99"),
    Case("drift.host.kernel", {"host.kernel": DENIED}, UNKNOWN),
    Case("drift.host.clock", {}, PASS),
    Case("drift.host.clock", {"host.clock_synchronized": False}, WARN),
    Case(
        "drift.host.clock", {"host.clock_synchronized": False}, PASS, was={"host.clock_synchronized": False}
    ),
    Case("drift.host.clock", {"host.clock_synchronized": DENIED}, UNKNOWN),
    Case("drift.host.memory", {}, PASS),
    Case("drift.host.memory", {"host.memory.total_bytes": 512 * GIB}, WARN, "was 2,048 GiB and is 512 GiB"),
    Case("drift.host.memory", {"host.memory.total_bytes": 2047 * GIB}, PASS),
    Case("drift.host.memory", {"host.memory.total_bytes": DENIED}, UNKNOWN),
    Case("drift.host.cpus", {}, PASS),
    Case("drift.host.cpus", {"host.cpu.present": 96}, WARN, "96 are online, not 192"),
    Case("drift.host.cpus", {"host.cpu.present": DENIED}, UNKNOWN),
    Case("drift.host.memory_limit", {}, PASS, view="container"),
    Case(
        "drift.host.memory_limit", {"host.memory.limit_bytes": GIB}, WARN, "and is 1.0 GiB", view="container"
    ),
    Case("drift.host.memory_limit", {"host.memory.limit_bytes": DENIED}, UNKNOWN, view="container"),
    Case("drift.host.memory_limit", {"host.memory.limit_bytes": GIB}, SKIPPED, "session"),
    Case("drift.host.cpu_limit", {}, PASS, view="container"),
    Case("drift.host.cpu_limit", {"host.cpu.quota_cpus": 2.0}, WARN, "and is 2.0", view="container"),
    Case("drift.host.cpu_limit", {"host.cpu.quota_cpus": DENIED}, UNKNOWN, view="container"),
    Case("drift.host.shm", {}, PASS),
    Case("drift.host.shm", {"host.memory.shm_total_bytes": GIB // 16}, WARN, "and is 0.1 GiB"),
    Case("drift.host.shm", {"host.memory.shm_total_bytes": DENIED}, UNKNOWN),
    Case("drift.host.disk_filling", {"host.disks": disk()}, PASS, name="room"),
    Case(
        "drift.host.disk_filling",
        {"host.disks": disk(free_bytes=30 * GIB)},
        WARN,
        "30.0 of 1,000.0 GiB",
        name="nearly full",
    ),
    Case(
        "drift.host.disk_filling",
        {"host.disks": disk(free_bytes=30 * GIB)},
        PASS,
        was={"host.disks": disk(free_bytes=40 * GIB)},
        before={"host.disks": disk(free_bytes=30 * GIB)},
        name="as full when accepted",
    ),
    Case(
        "drift.host.disk_filling",
        {"host.disks": disk(free_bytes=700 * GIB)},
        WARN,
        "full in 1.8 h",
        before={"host.disks": disk(free_bytes=800 * GIB)},
        name="filling",
    ),
    Case(
        "drift.host.disk_filling",
        {"host.disks": disk(free_bytes=700 * GIB)},
        PASS,
        was={"host.disks": disk()},
        name="slowly",
    ),
    Case(
        "drift.host.disk_filling",
        {"host.disks": disk(free_bytes=30 * GIB, read_only=True)},
        PASS,
        name="read-only",
    ),
    Case("drift.host.disk_filling", {"host.disks": DENIED}, UNKNOWN),
    Case("drift.host.disk_filling", {"host.disks": disk(free_bytes=HUNG)}, UNKNOWN, name="one that hangs"),
    Case(
        "drift.host.disk_filling",
        {"host.disks": disk(read_only=True)},
        PASS,
        "None can be written to",
        name="none",
    ),
    Case("drift.host.disks", {"host.disks": disk()}, PASS, was={"host.disks": disk()}, name="there"),
    Case("drift.host.disks", {"host.disks": ()}, WARN, "/data", was={"host.disks": disk()}, name="gone"),
    Case(
        "drift.host.disks",
        {"host.disks": disk(read_only=True)},
        FAIL,
        "read-only",
        was={"host.disks": disk()},
        name="read-only",
    ),
    Case(
        "drift.host.disks",
        {"host.disks": disk(mount="/pods/volume")},
        PASS,
        was={"host.disks": disk()},
        name="mounted elsewhere",
    ),
    Case(
        "drift.host.disks",
        {"host.disks": ()},
        PASS,
        was={"host.disks": disk(kind="network", device="nas:/home")},
        name="automounted",
    ),
    Case("drift.host.disks", {"host.disks": DENIED}, UNKNOWN),
    Case("drift.host.disks", {}, SKIPPED, was={"host.disks": DENIED}),
    Case(
        "drift.host.adapters",
        {"topology.adapters": (ADAPTER,)},
        PASS,
        was={"topology.adapters": (ADAPTER,)},
        name="up",
    ),
    Case(
        "drift.host.adapters",
        {"topology.adapters": (ADAPTER.model_copy(update={"state": "DOWN"}),)},
        WARN,
        "is DOWN",
        was={"topology.adapters": (ADAPTER,)},
        name="down",
    ),
    Case(
        "drift.host.adapters",
        {"topology.adapters": ()},
        WARN,
        "is gone",
        was={"topology.adapters": (ADAPTER,)},
        name="gone",
    ),
    Case("drift.host.adapters", {"topology.adapters": DENIED}, UNKNOWN),
    Case(
        "drift.host.adapters",
        {"topology.adapters": (ADAPTER.model_copy(update={"state": DENIED}),)},
        UNKNOWN,
        was={"topology.adapters": (ADAPTER,)},
        name="a port whose state was not seen",
    ),
    Case("drift.host.adapters", {}, SKIPPED, was={"topology.adapters": DENIED}),
    # The software
    Case("drift.stack.driver", {}, PASS),
    Case("drift.stack.driver", {"stack.driver.version": "590.1"}, WARN, "is 590.1"),
    Case("drift.stack.driver", {"stack.driver.version": DENIED}, UNKNOWN),
    Case("drift.stack.driver_library", {}, PASS),
    Case("drift.stack.driver_library", {"stack.driver.library_version": "590.1"}, WARN),
    Case("drift.stack.driver_library", {"stack.driver.library_version": DENIED}, UNKNOWN),
    Case("drift.stack.torch", {}, PASS),
    Case("drift.stack.torch", {"stack.torch.version": "2.12.0+cu130"}, WARN, "is 2.12.0"),
    Case("drift.stack.torch", {"stack.torch": DENIED}, UNKNOWN),
    Case("drift.stack.torch", {}, SKIPPED, was={"stack.torch": DENIED}),
    Case(
        "drift.stack.libraries",
        {"stack.nccl_libraries": (NCCL,)},
        PASS,
        was={"stack.nccl_libraries": (NCCL,)},
        name="there",
    ),
    Case(
        "drift.stack.libraries",
        {"stack.nccl_libraries": ()},
        WARN,
        "is gone",
        was={"stack.nccl_libraries": (NCCL,)},
        name="gone",
    ),
    Case(
        "drift.stack.libraries",
        {"stack.nccl_libraries": (NCCL.model_copy(update={"version": "2.29"}),)},
        WARN,
        "is 2.29",
        was={"stack.nccl_libraries": (NCCL,)},
        name="another",
    ),
    Case("drift.stack.libraries", {"stack.nccl_libraries": DENIED}, UNKNOWN),
    Case("drift.stack.libraries", {"stack": DENIED}, UNKNOWN),
    Case("drift.stack.libraries", {}, SKIPPED, was={"stack": DENIED}),
    Case(
        "drift.stack.toolkit",
        {"stack.toolkits": (CUDA,)},
        PASS,
        was={"stack.toolkits": (CUDA,)},
        name="there",
    ),
    Case(
        "drift.stack.toolkit",
        {"stack.toolkits": ()},
        WARN,
        "is gone",
        was={"stack.toolkits": (CUDA,)},
        name="gone",
    ),
    Case(
        "drift.stack.toolkit",
        {"stack.toolkits": (CUDA.model_copy(update={"version": "13.1"}),)},
        WARN,
        was={"stack.toolkits": (CUDA,)},
        name="another",
    ),
    Case("drift.stack.toolkit", {"stack.toolkits": DENIED}, UNKNOWN, was={"stack.toolkits": (CUDA,)}),
    Case("drift.stack.toolkit", {}, SKIPPED, was={"stack.toolkits": ()}),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rule(case: Case) -> None:
    check(case)


def test_every_rule_has_cases_that_pass_tell_and_cannot_see() -> None:
    for rule in REGISTRY.values():
        statuses = {case.status for case in CASES if case.id == rule.id}
        if rule.id.startswith("drift.kernel_log."):
            assert statuses & {WARN, FAIL, UNKNOWN}, rule.id
            continue
        assert statuses >= ({UNKNOWN} if rule.id == "drift.baseline" else set()), rule.id
        assert PASS in statuses or SKIPPED in statuses, rule.id
        assert UNKNOWN in statuses, rule.id
        if rule.warns:
            assert WARN in statuses, rule.id
        if rule.fails:
            assert FAIL in statuses, rule.id


@pytest.mark.parametrize("profile", ["h200x4", "h200x8", "b200x8", "l40sx4", "a100-40x8", "mi300xx8", "cpu"])
@pytest.mark.parametrize("view", ["bare", "vm", "container"])
def test_a_node_that_has_not_changed_is_as_it_was_accepted(profile: str, view: Any) -> None:
    drift, report = drift_of(Case("", {}, PASS, profile=profile, view=view, before={}))
    told = findings(drift, report)
    assert verdict(told) is PASS
    assert not [finding.id for finding in told if finding.status in (WARN, FAIL) and finding.waived is None]
    unseen = {finding.id for finding in told if finding.status is UNKNOWN}
    assert view == "container" or not {id for id in unseen if id in REGISTRY}, unseen


def test_a_card_that_is_lost_is_no_drift_of_every_fact_it_no_longer_tells() -> None:
    lost = {
        "cards.1.usable": False,
        "cards.1.memory.total_bytes": NOT_ASKED,
        "cards.1.power.limit_watts": NOT_ASKED,
    }
    for id in ("drift.cards.memory", "drift.cards.power_limit"):
        check(Case(id, lost, PASS, "3 cards"))


def test_the_ordinary_rules_of_a_look_in_passing_exist() -> None:
    from nodecheck.judge import REGISTRY as ORDINARY

    assert set(PASSIVE) <= set(ORDINARY)
    assert not any(ORDINARY[id].under_load or ORDINARY[id].door in ("torch", "libcuda") for id in PASSIVE)
    assert not set(REGISTRY) & set(ORDINARY)
    assert set(TWINS) <= set(REGISTRY)
    assert {id for twins in TWINS.values() for id in twins} <= set(PASSIVE)
    assert all(id.startswith("drift.") for id in REGISTRY)

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodecheck.facts import Absent, Why
from nodecheck.facts.card import Process, Violations
from nodecheck.judge import Cause, Owner, Status, Verdict, judge
from nodecheck.judge.rules.cards import left_visible
from tests.judge.cases import (
    DENIED,
    HUNG,
    UNASKED,
    UNSUPPORTED,
    Case,
    check,
    faulty,
    found,
    healthy,
    profile,
)

MIB, GIB = 1024**2, 1024**3
PASS, WARN, FAIL, UNKNOWN, SKIPPED = Status.passed, Status.warn, Status.fail, Status.unknown, Status.skipped


def start_error(name: str, number: int) -> Absent:
    return Absent(why=Why.failed, detail=f"NVML_ERROR_{name} ({number}): as NVML says it")


def missing(*positions: int, of: str = "h200x4") -> tuple[Any, ...]:
    """The cards of a healthy node without those at these positions."""
    cards = healthy(of).known_cards
    return tuple(card for i, card in enumerate(cards) if i not in positions)


CUT_SHORT = Absent(why=Why.failed, detail="the table is cut short or damaged before its end")


def environment(**variables: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(variables.items()))


def process(kind: Any = "compute", used_bytes: Any = 3000 * MIB, name: Any = "python3") -> Process:
    return Process(pid=4711, kind=kind, used_bytes=used_bytes, name=name)


CASES = [
    # Are they there?
    Case("cards.listed", {}, PASS),
    Case("cards.listed", {}, PASS, profile="cpu"),
    Case(
        "cards.listed", {"cards": missing(1, 2, 3)}, PASS, profile="cpu", says="the node has 1: NVIDIA H200"
    ),
    Case("cards.listed", {"cards": HUNG}, SKIPPED, profile="cpu"),
    Case("cards.listed", {"cards": UNASKED}, UNKNOWN),
    Case(
        "cards.listed",
        {"cards": Absent(why=Why.not_present, detail="the Python package nvidia-ml-py is not installed")},
        UNKNOWN,
    ),
    Case("cards.listed", {"cards": HUNG}, FAIL, cause=Cause.faulty, says="does not answer"),
    Case(
        "cards.listed",
        {"cards": start_error("LIB_RM_VERSION_MISMATCH", 18)},
        FAIL,
        cause=Cause.misconfigured,
        says="different versions",
    ),
    Case("cards.listed", {"cards": start_error("DRIVER_NOT_LOADED", 9)}, FAIL, cause=Cause.misconfigured),
    Case("cards.listed", {"cards": start_error("UNKNOWN", 999)}, FAIL, cause=Cause.misconfigured),
    Case("cards.listed", {"cards": DENIED}, FAIL, cause=Cause.misconfigured, says="may not talk"),
    Case("cards.listed", {"cards": start_error("GPU_IS_LOST", 15)}, FAIL, cause=Cause.faulty),
    Case(
        "cards.listed",
        {"cards": Absent(why=Why.not_present, detail="NVML_ERROR_LIBRARY_NOT_FOUND (12)")},
        FAIL,
        cause=Cause.misconfigured,
        says="the PCI bus shows 4",
    ),
    Case("cards.listed", {"cards": (), "topology": UNASKED}, FAIL, says="could not be seen"),
    Case("cards.vendor", {}, PASS),
    Case("cards.vendor", {"cards.*.vendor": "amd"}, FAIL, cause=Cause.not_as_rented, count=1),
    Case("cards.vendor", {"cards": UNASKED}, UNKNOWN),
    Case("cards.vendor", {}, SKIPPED, profile="cpu"),
    Case("cards.count", {}, PASS),
    Case("cards.count", {}, PASS, board=8),
    Case(
        "cards.count",
        {"cards": missing(2), "topology.nvml_count": 3},
        FAIL,
        cause=Cause.faulty,
        says="lost to the driver, or hidden",
    ),
    Case(
        "cards.count",
        {"cards": missing(2), "topology.nvml_count": 3, "topology.pci_devices": UNASKED},
        FAIL,
        cause=Cause.not_as_rented,
        says="lists 3, the profile has 4",
    ),
    Case(
        "cards.count",
        {"cards": healthy("h200x8").known_cards, "topology.nvml_count": 8},
        FAIL,
        says="lists 8",
    ),
    # Out of an output that shows a part of the cards, or was cut short.
    Case("cards.count", {"cards": missing(2)}, UNKNOWN, says="lists 4 cards, and 3 can be read"),
    Case("cards.count", {"cards": missing(2), "topology.nvml_count": CUT_SHORT}, UNKNOWN, says="cut short"),
    Case("cards.count", {"topology.nvml_count": CUT_SHORT}, UNKNOWN),
    Case("cards.count", {"topology.nvml_count": 5}, FAIL, says="lists 5"),
    Case(
        "cards.count",
        {"cards": healthy("h200x8").known_cards, "topology.nvml_count": CUT_SHORT},
        FAIL,
        says="lists 8",
    ),
    Case("cards.count", {"cards": UNASKED}, UNKNOWN),
    Case("cards.count", {}, SKIPPED, profile="cpu"),
    Case("cards.count", {"cards": UNASKED}, SKIPPED, profile="cpu"),
    Case(
        "cards.count",
        {"cards": healthy("h200x4").known_cards},
        FAIL,
        profile="cpu",
        cause=Cause.not_as_rented,
        says="lists 4, the profile has 0",
    ),
    Case("cards.count.agreement", {}, PASS),
    Case("cards.count.agreement", {}, PASS, view="container", board=8, says="part of a larger board"),
    Case("cards.count.agreement", {"host": UNASKED}, PASS, board=8, says="part of a larger board"),
    Case(
        "cards.count.agreement", {}, WARN, board=8, cause=Cause.faulty, says="a card more is on this machine"
    ),
    Case("cards.count.agreement", {}, WARN, view="vm", board=5, owner=Owner.provider, says="PCI bus 5"),
    Case("cards.count.agreement", {}, PASS, view="container"),
    Case("cards.count.agreement", {"topology.pci_devices": ()}, PASS),
    Case(
        "cards.count.agreement",
        {"cards": missing(0), "topology.nvml_count": 3},
        FAIL,
        cause=Cause.faulty,
        says="lost",
    ),
    Case("cards.count.agreement", {"cards": missing(0), "topology.nvml_count": CUT_SHORT}, UNKNOWN),
    Case("cards.count.agreement", {"stack.torch.device_count": 3}, FAIL, owner=Owner.renter),
    Case(
        "cards.count.agreement",
        {"stack.torch.device_count": 3, "stack.environment": environment(CUDA_VISIBLE_DEVICES="0,1,2")},
        PASS,
    ),
    Case("cards.count.agreement", {"topology": UNASKED, "stack": UNASKED}, UNKNOWN),
    Case("cards.usable", {}, PASS),
    Case("cards.usable", {"cards.1.usable": False}, FAIL, count=1),
    Case(
        "cards.usable",
        {"cards.1.usable": False, "cards.1.uuid": DENIED},
        FAIL,
        cause=Cause.misconfigured,
        says="may not open it",
    ),
    Case("cards.usable", {"cards.1.lost": True}, FAIL, says="fell off the bus"),
    Case("cards.usable", {"cards.1.usable": HUNG}, FAIL, cause=Cause.faulty),
    Case("cards.usable", {"cards.1.usable": DENIED}, FAIL, cause=Cause.misconfigured),
    Case("cards.usable", {"cards.1.usable": start_error("GPU_IS_LOST", 15)}, FAIL, cause=Cause.faulty),
    Case("cards.usable", {"cards.1.usable": UNASKED}, UNKNOWN),
    Case("cards.duplicate", {}, PASS),
    Case("cards.duplicate", {}, SKIPPED, profile="h200x1"),
    Case("cards.duplicate", {"cards.*.uuid": "GPU-1"}, FAIL, says="GPU-1"),
    Case("cards.duplicate", {"cards.*.pci_address": "0000:18:00.0"}, FAIL),
    Case("cards.duplicate", {"cards.2.uuid": DENIED}, UNKNOWN),
    Case("cards.hidden_by_environment", {}, PASS),
    Case(
        "cards.hidden_by_environment",
        {"stack.environment": environment(CUDA_VISIBLE_DEVICES="0,1,2,3")},
        PASS,
    ),
    Case(
        "cards.hidden_by_environment",
        {"stack.environment": environment(CUDA_VISIBLE_DEVICES="0,1,-1,3")},
        WARN,
        owner=Owner.renter,
        says="2 of 4",
    ),
    Case(
        "cards.hidden_by_environment",
        {"stack.environment": environment(CUDA_VISIBLE_DEVICES="")},
        WARN,
        says="0 of 4",
    ),
    Case(
        "cards.hidden_by_environment",
        {"stack.environment": environment(CUDA_VISIBLE_DEVICES="GPU-1,GPU-2,GPU-3,GPU-4")},
        PASS,
    ),
    Case(
        "cards.hidden_by_environment",
        {"stack.environment": environment(NVIDIA_VISIBLE_DEVICES="void"), "cards": ()},
        WARN,
        says="without its GPUs",
    ),
    Case("cards.hidden_by_environment", {"stack.environment": UNASKED}, UNKNOWN),
    Case("cards.excluded", {}, PASS),
    Case("cards.excluded", {"topology.excluded": ("0000:9a:00.0",)}, WARN),
    Case("cards.excluded", {"topology.excluded": ("0000:2a:00.0",), "cards": missing(1)}, FAIL),
    Case("cards.excluded", {"topology.excluded": DENIED}, UNKNOWN),
    # Are they what was rented?
    Case("cards.model", {}, PASS),
    Case("cards.model", {"cards.*.identity.name": "nvidia h200 "}, PASS),
    Case("cards.model", {"cards.0.identity.name": "NVIDIA H20"}, FAIL, cause=Cause.not_as_rented, count=1),
    Case("cards.model", {"cards.0.identity.name": DENIED}, UNKNOWN),
    Case("cards.model", {"cards.*.vendor": "amd"}, SKIPPED),
    Case("cards.pci_id", {}, PASS),
    Case("cards.pci_id", {"cards.3.identity.pci_id": "10de:2329"}, FAIL, says="10de:2329"),
    Case("cards.pci_id", {"cards.3.identity.pci_id": DENIED}, UNKNOWN),
    Case("cards.architecture", {}, PASS),
    Case("cards.architecture", {"cards.*.identity.architecture": "ada"}, FAIL, count=4),
    Case("cards.architecture", {"cards.0.identity.architecture": UNSUPPORTED}, UNKNOWN),
    Case("cards.compute_capability", {}, PASS),
    Case("cards.compute_capability", {"cards.0.identity.compute_capability": "8.9"}, FAIL),
    Case("cards.compute_capability", {"cards.0.identity.compute_capability": UNASKED}, UNKNOWN),
    Case("cards.cores", {}, PASS),
    Case("cards.cores", {"cards.0.identity.cores": 14592}, FAIL, says="14592, not 16896"),
    Case("cards.cores", {"cards.0.identity.cores": UNSUPPORTED}, UNKNOWN),
    Case("cards.memory.total", {}, PASS),
    Case("cards.memory.total", {"cards.0.memory.total_bytes": (143771 - 1000) * MIB}, PASS),
    Case("cards.memory.total", {"cards.0.memory.total_bytes": 97871 * MIB}, FAIL, says="97,871 MiB"),
    Case("cards.memory.total", {"cards.0.memory.total_bytes": 0}, FAIL),
    Case("cards.memory.total", {"cards.0.memory.total_bytes": DENIED}, UNKNOWN),
    Case(
        "cards.memory.total",
        {"cards.*.memory.total_bytes": 49140 * MIB, "cards.*.health.ecc_enabled": False},
        PASS,
        profile="l40sx2",
    ),
    Case("cards.memory.total", {"cards.*.memory.total_bytes": 49140 * MIB}, FAIL, profile="l40sx2"),
    Case("cards.memory.bus_width", {}, PASS),
    Case("cards.memory.bus_width", {"cards.0.memory.bus_width_bits": 5120}, FAIL, says="5120 bits"),
    Case("cards.memory.bus_width", {"cards.0.memory.bus_width_bits": UNSUPPORTED}, UNKNOWN),
    Case("cards.identity", {}, PASS),
    Case("cards.identity", {}, PASS, profile="h200x1", view="vm"),
    Case("cards.identity", {"cards.0.memory.total_bytes": 97871 * MIB}, FAIL, says="memory 97,871 MiB"),
    Case("cards.identity", {"cards.0.power.default_limit_watts": 400.0}, FAIL, says="power limit 400 W"),
    Case("cards.identity", {"cards.0.power.default_limit_watts": 1000.0}, PASS),
    Case("cards.identity", {"cards.0.identity.pci_id": "10de:2329"}, FAIL, cause=Cause.not_as_rented),
    Case(
        "cards.identity", {"cards.0.links": healthy("a100x2").known_cards[0].links}, FAIL, says="NVLinks 12"
    ),
    Case("cards.identity", {"cards": healthy("rtx4090x4").known_cards}, FAIL, says="Another product"),
    Case(
        "cards.identity",
        {
            "cards.0.identity": healthy("h200x4")
            .known_cards[0]
            .identity.model_copy(
                update=dict.fromkeys(("pci_id", "architecture", "compute_capability", "cores"), DENIED)
            ),
            "cards.0.memory.total_bytes": DENIED,
            "cards.0.memory.bus_width_bits": DENIED,
            "cards.0.power.default_limit_watts": DENIED,
            "cards.0.links": UNSUPPORTED,
        },
        UNKNOWN,
        says="Only 1 marks",
    ),
    Case("cards.uniform", {}, PASS),
    Case("cards.uniform", {}, SKIPPED, profile="h200x1"),
    Case("cards.uniform", {"cards.0.identity.vbios": "96.00.A5.00.0F"}, PASS, says="different issues"),
    Case("cards.uniform", {"cards.0.identity.name": "NVIDIA H200 NVL"}, WARN, says="3 × NVIDIA H200"),
    Case(
        "cards.uniform",
        {
            "cards.*.identity.name": DENIED,
            "cards.*.identity.pci_id": DENIED,
            "cards.*.identity.cores": DENIED,
            "cards.*.memory.total_bytes": DENIED,
            "cards.*.power.default_limit_watts": DENIED,
        },
        UNKNOWN,
    ),
    Case("cards.recorded", {}, PASS, says="UUID GPU-"),
    Case("cards.recorded", {"cards.0.identity.serial": UNSUPPORTED}, PASS),
    Case("cards.recorded", {"cards.0.uuid": DENIED, "cards.0.identity.serial": DENIED}, UNKNOWN),
    # Are they free?
    Case("cards.processes", {}, PASS),
    Case("cards.processes", {"cards.0.processes": (process(),)}, WARN, says="python3 (pid 4711, 3,000 MiB)"),
    Case("cards.processes", {"cards.0.processes": (process("graphics"),)}, PASS, says="1 for graphics"),
    Case("cards.processes", {"cards.0.processes": (process(name=DENIED, used_bytes=DENIED),)}, WARN),
    Case("cards.processes", {"cards.0.memory.unexplained_bytes": 9000 * MIB}, UNKNOWN, says="9,000 MiB"),
    Case("cards.processes", {"cards.0.processes": DENIED}, UNKNOWN),
    Case("cards.memory.in_use", {}, PASS),
    Case("cards.memory.in_use", {"cards.0.memory.used_bytes": 300 * MIB}, PASS),
    Case("cards.memory.in_use", {"cards.0.memory.used_bytes": 90_000 * MIB}, WARN, says="90,000 MiB"),
    Case(
        "cards.memory.in_use",
        {"cards.0.memory.used_bytes": 900 * MIB, "cards.0.memory.unexplained_bytes": 900 * MIB},
        WARN,
        says="held by no process",
    ),
    Case(
        "cards.memory.in_use",
        {"cards.0.memory.used_bytes": 900 * MIB, "cards.0.memory.unexplained_bytes": DENIED},
        WARN,
        says="could not be seen",
    ),
    Case("cards.memory.in_use", {"cards.0.memory.used_bytes": DENIED}, UNKNOWN),
    Case("cards.memory.unexplained", {}, PASS),
    Case(
        "cards.memory.unexplained",
        {"cards.0.memory.unexplained_bytes": 900 * MIB},
        WARN,
        cause=Cause.not_as_rented,
        owner=Owner.provider,
    ),
    Case("cards.memory.unexplained", {"cards.0.memory.unexplained_bytes": DENIED}, UNKNOWN),
    Case("cards.memory.reserved", {}, PASS, count=4, says="616 MiB, 0.4% of the memory."),
    Case("cards.memory.reserved", {}, PASS, profile="rtx4090x2", count=2),
    Case(
        "cards.memory.reserved",
        {"cards.1.memory.reserved_bytes": 20 * GIB, "cards.1.memory.free_bytes": 120 * GIB},
        WARN,
        count=1,
        cause=Cause.not_as_rented,
        owner=Owner.provider,
        says="The driver keeps 20,480 MiB",
    ),
    Case(
        "cards.memory.reserved",
        {"cards.1.memory.free_bytes": 100 * GIB},
        WARN,
        count=1,
        says="MiB are neither used, free nor kept by the driver",
    ),
    Case("cards.memory.reserved", {"cards.0.memory.reserved_bytes": DENIED}, UNKNOWN, count=1),
    Case("cards.memory.reserved", {"cards.0.memory.free_bytes": DENIED}, UNKNOWN, count=1),
    Case("cards.memory.reserved", {"cards.*.memory.reserved_bytes": UNSUPPORTED}, SKIPPED),
    Case("cards.idle", {}, PASS),
    Case("cards.idle", {"cards.0.gpu_utilization_percent": 9}, PASS),
    Case("cards.idle", {"cards.0.gpu_utilization_percent": 100}, WARN, says="no process in sight"),
    Case("cards.idle", {"cards.0.gpu_utilization_percent": 100}, PASS, view="vm", says="starts up"),
    Case("cards.idle", {"cards.*.gpu_utilization_percent": UNSUPPORTED}, SKIPPED),
    Case("cards.idle", {"cards.0.gpu_utilization_percent": DENIED}, UNKNOWN),
    # Are they unrestrained?
    Case("cards.power_limit", {}, PASS),
    Case("cards.power_limit", {"cards.0.power.limit_watts": 500.0}, FAIL, cause=Cause.not_as_rented),
    Case("cards.power_limit", {"cards.0.power.limit_watts": 750.0}, PASS, says="above"),
    Case("cards.power_limit", {"cards.*.power.limit_watts": 310.0}, PASS, profile="h100-nvlx2", says="310 W"),
    Case("cards.power_limit", {"cards.*.power.limit_watts": 300.0}, FAIL, profile="h100-nvlx2"),
    Case("cards.power_limit", {"cards.0.power.limit_watts": UNSUPPORTED}, UNKNOWN),
    Case("cards.clocks.max", {}, PASS),
    Case("cards.clocks.max", {"cards.0.clocks.max_sm_mhz": 1965}, PASS),
    Case("cards.clocks.max", {"cards.0.clocks.max_sm_mhz": 1830}, WARN),
    Case("cards.clocks.max", {"cards.0.clocks.max_sm_mhz": 1410}, FAIL, says="SM clock up to 1410 MHz"),
    Case("cards.clocks.max", {"cards.0.clocks.max_memory_mhz": 2619}, FAIL, says="emory clock"),
    Case("cards.clocks.max", {"cards.0.clocks.max_sm_mhz": UNSUPPORTED}, UNKNOWN),
    Case("cards.clocks.application", {}, PASS),
    Case("cards.clocks.application", {"cards.0.clocks.application_sm_mhz": 1200}, WARN, says="1200 of 1980"),
    Case("cards.clocks.application", {"cards.0.clocks.application_memory_mhz": 2201}, WARN, says="memory"),
    Case("cards.clocks.application", {"cards.*.clocks.application_sm_mhz": UNSUPPORTED}, SKIPPED),
    Case("cards.clocks.application", {"cards.0.clocks.application_sm_mhz": DENIED}, UNKNOWN),
    Case("cards.clocks.application", {"cards.0.clocks.default_application_sm_mhz": DENIED}, UNKNOWN),
    Case(  # an A100 comes so, and can do 1410 MHz
        "cards.clocks.application",
        {
            "cards.*.clocks.application_sm_mhz": 1095,
            "cards.*.clocks.default_application_sm_mhz": 1095,
        },
        PASS,
    ),
    Case("cards.clocks.event_reasons", {}, PASS),
    Case("cards.clocks.event_reasons", {"cards.0.clocks.event_reasons": ()}, PASS),
    Case("cards.clocks.event_reasons", {"cards.0.clocks.event_reasons": ("sw_power_cap",)}, PASS),
    Case("cards.clocks.event_reasons", {"cards.0.clocks.event_reasons": ("sw_thermal_slowdown",)}, WARN),
    Case(
        "cards.clocks.event_reasons",
        {"cards.0.clocks.event_reasons": ("gpu_idle", "hw_slowdown", "hw_power_brake_slowdown")},
        FAIL,
        says="power brake",
    ),
    Case("cards.clocks.event_reasons", {"cards.0.clocks.event_reasons": ("unknown_0x200",)}, UNKNOWN),
    Case("cards.clocks.event_reasons", {"cards.0.clocks.event_reasons": DENIED}, UNKNOWN),
    Case("cards.clocks.violations", {}, PASS),
    Case("cards.clocks.violations", {"cards.0.clocks.violations": Violations(thermal_seconds=3600.0)}, WARN),
    Case("cards.clocks.violations", {"cards.0.clocks.violations.power_seconds": 90_000.0}, PASS),
    Case("cards.clocks.violations", {"cards.*.clocks.violations.thermal_seconds": UNSUPPORTED}, SKIPPED),
    Case("cards.clocks.violations", {"cards.0.clocks.violations": DENIED}, UNKNOWN),
    Case("cards.temperature", {}, PASS),
    Case("cards.temperature", {"cards.0.temperature.margin_celsius": 3}, WARN),
    Case("cards.temperature", {"cards.0.temperature.margin_celsius": -2}, FAIL),
    Case("cards.temperature", {"cards.0.temperature.memory_celsius": 97}, WARN, says="memory 97"),
    Case(
        "cards.temperature",
        {"cards.0.temperature.margin_celsius": UNSUPPORTED, "cards.0.temperature.gpu_celsius": 88},
        FAIL,
    ),
    Case("cards.temperature", {"cards.0.temperature.gpu_celsius": 4095}, UNKNOWN, says="no temperature"),
    Case(
        "cards.temperature",
        {"cards.0.temperature.margin_celsius": DENIED, "cards.0.temperature.slowdown_celsius": DENIED},
        UNKNOWN,
    ),
    Case("cards.temperature", {"cards.0.temperature.gpu_celsius": DENIED}, UNKNOWN),
    Case("cards.mig", {}, PASS),
    Case("cards.mig", {"cards.1.modes.mig_enabled": True}, FAIL, cause=Cause.not_as_rented, count=1),
    Case("cards.mig", {"cards.1.modes.mig_enabled_after_reset": True}, WARN),
    Case("cards.mig", {"cards.*.modes.mig_enabled": UNSUPPORTED}, SKIPPED, profile="rtx4090x2"),
    Case("cards.mig", {"cards.1.modes.mig_enabled": DENIED}, UNKNOWN),
    Case("cards.compute_mode", {}, PASS),
    Case("cards.compute_mode", {"cards.0.modes.compute": "exclusive_process"}, WARN),
    Case("cards.compute_mode", {"cards.0.modes.compute": "prohibited"}, FAIL, cause=Cause.misconfigured),
    Case("cards.compute_mode", {"cards.0.modes.compute": "7"}, WARN),
    Case("cards.compute_mode", {"cards.0.modes.compute": DENIED}, UNKNOWN),
    Case("cards.persistence", {}, PASS),
    Case("cards.persistence", {"cards.*.modes.persistence": False}, PASS, says="Off"),
    Case("cards.persistence", {"cards.0.modes.persistence": DENIED}, UNKNOWN),
    Case("cards.virtualization", {}, PASS),
    Case("cards.virtualization", {}, PASS, view="vm", says="Passed through"),
    Case("cards.virtualization", {"cards.0.modes.virtualization": "vgpu"}, FAIL, says="share of a card"),
    Case("cards.virtualization", {"cards.0.modes.virtualization": "host_vgpu"}, FAIL),
    Case("cards.virtualization", {"cards.0.modes.virtualization": "6"}, FAIL),
    Case("cards.virtualization", {"cards.0.modes.virtualization": DENIED}, UNKNOWN),
    Case("cards.confidential_computing", {}, PASS),
    Case("cards.confidential_computing", {"stack.driver.confidential_computing": True}, PASS, says="On"),
    Case("cards.confidential_computing", {"stack.driver.confidential_computing": UNSUPPORTED}, SKIPPED),
    Case("cards.confidential_computing", {"stack.driver.confidential_computing": DENIED}, UNKNOWN),
    # The host link
    Case("cards.pcie.width", {}, PASS),
    Case("cards.pcie.width", {"cards.0.pcie.width": 8}, FAIL, says="8 lanes, not 16"),
    Case("cards.pcie.width", {"cards.*.pcie.width": 8}, PASS, profile="l40sx2"),
    Case("cards.pcie.width", {"cards.0.pcie.width": 0}, UNKNOWN),
    Case("cards.pcie.width", {"cards.0.pcie.width": DENIED}, UNKNOWN),
    Case("cards.pcie.generation", {}, PASS, says="now 1"),
    Case("cards.pcie.generation", {"cards.0.pcie.max_generation": 4}, FAIL, says="slot"),
    Case(
        "cards.pcie.generation",
        {"cards.0.pcie.max_generation": 4, "cards.0.pcie.card_max_generation": 4},
        FAIL,
        says="card itself",
    ),
    Case("cards.pcie.generation", {"cards.0.pcie.max_generation": 4}, UNKNOWN, view="vm"),
    Case(
        "cards.pcie.generation",
        {"cards.0.pcie.max_generation": 4, "cards.0.pcie.generation": 5},
        PASS,
        view="vm",
    ),
    Case("cards.pcie.generation", {"cards.0.pcie.max_generation": DENIED}, UNKNOWN),
    Case("cards.pcie.replays", {}, PASS),
    Case("cards.pcie.replays", {"cards.0.pcie.replays": 900}, PASS, says="900"),
    Case("cards.pcie.replays", {"cards.0.pcie.replays": 90_000}, WARN),
    Case("cards.pcie.replays", {"cards.0.pcie.replays": 900, "host.uptime_seconds": DENIED}, UNKNOWN),
    Case("cards.pcie.replays", {"cards.*.pcie.replays": UNSUPPORTED}, SKIPPED),
    Case("cards.pcie.replays", {"cards.0.pcie.replays": DENIED}, UNKNOWN),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Case) -> None:
    check(case)


def test_expectations_carry_the_profiles_witness() -> None:
    spec = profile("h200x4")
    assert spec.card is not None
    (first, *_) = found(judge(healthy("h200x4"), spec), "cards.memory.total")
    assert first.expected == spec.card.memory_mib * MIB
    assert first.expected_from == spec.card.witness
    assert first.observed_from == "nvml: nvmlDeviceGetMemoryInfo v2, total"
    assert first.unit == "bytes"


def test_a_key_that_the_profile_leaves_out_is_skipped_with_the_reason() -> None:
    spec = profile("h200x4")
    assert spec.card is not None
    silent = spec.model_copy(update={"card": spec.card.model_copy(update={"cores": None})})
    assert {f.status for f in found(judge(healthy("h200x4"), silent), "cards.cores")} == {Status.skipped}
    assert "does not say" in found(judge(healthy("h200x4"), silent), "cards.cores")[0].detail


def test_cards_are_named_by_uuid_whatever_their_order() -> None:
    spec, node = profile("h200x4"), healthy("h200x4")
    faults = {"cards.2.memory.total_bytes": 5}
    turned = faulty("h200x4", faults).model_copy(
        update={"cards": tuple(reversed(faulty("h200x4", faults).known_cards))}
    )
    (failed,) = [f for f in found(judge(turned, spec), "cards.memory.total") if f.status is Status.fail]
    assert failed.subject.key == node.known_cards[2].uuid


def test_amd_facts_against_an_nvidia_profile_fail_once() -> None:
    judgement = judge(faulty("h200x4", {"cards.*.vendor": "amd"}), profile("h200x4"))
    failed = [
        f for f in judgement.findings if f.status is Status.fail and f.id.startswith(("cards.", "health."))
    ]
    assert [f.id for f in failed] == ["cards.vendor"]
    assert judgement.verdict is Verdict.rejected


def test_without_nvml_there_is_one_root_and_everything_else_follows() -> None:
    judgement = judge(
        faulty("h200x4", {"cards": start_error("LIB_RM_VERSION_MISMATCH", 18)}), profile("h200x4")
    )
    own = ("cards.", "health.", "topology.nvlink", "topology.pairs", "topology.fabric")
    troubled = [
        f
        for f in judgement.findings
        if f.id.startswith(own) and f.status in (Status.fail, Status.unknown, Status.warn)
    ]
    rootless = [f.id for f in troubled if f.root is None]
    assert rootless == ["cards.listed"]
    assert len(troubled) > 40
    assert judgement.reasons[0].startswith("cards.listed (node): The driver's library")
    assert "follow from it" in judgement.reasons[0]


@given(st.one_of(st.text(), st.from_regex(r"[0-9, -]*")), st.integers(0, 16))
def test_no_variable_shows_more_cards_than_there_are(value: str, present: int) -> None:
    assert 0 <= left_visible(value, present) <= min(present, value.count(",") + 1)


def test_variables_are_read_as_cuda_reads_them() -> None:
    assert left_visible("0,1,2,3", 4) == 4
    assert left_visible("0, 1", 4) == 2
    assert left_visible("0,9,1", 4) == 1
    assert left_visible("GPU-1,MIG-2", 4) == 2
    assert left_visible("-1", 4) == left_visible("", 4) == left_visible("NoDevFiles", 4) == 0

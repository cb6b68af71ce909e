"""Cards as facts: from a survey of the stand-in, and from answers that no living card would give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodecheck.facts import Absent, Card, Maybe, Why
from nodecheck.facts.base import AMD_ALONE, Fact
from nodecheck.facts.card import BankHistogram, EccCounts, Process, Violations
from nodecheck.probes import nvidia, topology
from nodecheck.sources import Files
from nodecheck.sources import files as live_files
from nodecheck.sources.channel import Recorded
from nodecheck.sources.nvml import Survey
from tests.fakes import nvml
from tests.fakes.nvml.products import PRODUCTS
from tests.fakes.tree import Ground, Kind, plant, ranges
from tests.surveys import answers, needs_compiler, survey

pytestmark = needs_compiler

NO_FILES = Files(Recorded({}))


def cards(said: Maybe[Survey], files: Files = NO_FILES) -> tuple[Card, ...]:
    found = nvidia.probe(said, files)
    assert isinstance(found, tuple), found
    return found


def card(change: dict[str, str] | None = None, product: str = "h200") -> Card:
    """The one card of a node, described with a change."""
    return cards(survey({**nvml.describe(product, 1), **(change or {})}))[0]


def card_saying(question: str, value: object) -> Card:
    """The first card of a healthy node whose answer to `question` is another one."""
    calls = answers("h200", 2)
    assert question in calls
    return next(c for c in cards(Survey(calls | {question: {"value": value}})) if c.index == 0)


def why(value: object) -> Why | None:
    return value.why if isinstance(value, Absent) else None


def absents(fact: Fact, path: str = "") -> dict[str, Absent]:
    """Every absent value below `fact` that a card of NVIDIA's could have, by dotted path."""
    found: dict[str, Absent] = {}
    for name in type(fact).model_fields:
        value: Any = getattr(fact, name)
        here = f"{path}.{name}" if path else name
        if value == AMD_ALONE:
            continue
        if isinstance(value, Absent):
            found[here] = value
        elif isinstance(value, Fact):
            found |= absents(value, here)
        elif isinstance(value, tuple):
            for i, item in enumerate(value):
                if isinstance(item, Fact):
                    found |= absents(item, f"{here}.{i}")
    return found


# Healthy cards


@pytest.mark.parametrize("product", PRODUCTS)
def test_a_healthy_card_of_every_product(product: str) -> None:
    made = PRODUCTS[product]
    (first, second) = cards(Survey(answers(product, 2)))
    assert (first.usable, first.lost, first.vendor, first.source) == (True, False, "nvidia", "nvml")
    assert [first.uuid, second.uuid] == [nvml.uuid(0), nvml.uuid(1)]
    assert first.identity.name == made.name
    assert first.identity.pci_id == f"10de:{made.device_id:04x}"
    assert first.identity.pci_subsystem == f"10de:{made.subsystem_id:04x}"
    assert first.identity.cores == made.cores
    assert first.identity.compute_capability == f"{made.capability[0]}.{made.capability[1]}"
    assert first.memory.total_bytes == made.memory_mib * 1024**2
    assert first.memory.reserved_bytes == made.reserved_mib * 1024**2
    assert (first.memory.used_bytes, first.memory.unexplained_bytes) == (0, 0)
    assert first.memory.bus_width_bits == made.bus_bits
    assert first.power.limit_watts == first.power.default_limit_watts == made.watts
    assert first.power.min_limit_watts == made.min_watts
    assert (first.clocks.max_sm_mhz, first.clocks.max_memory_mhz) == (made.sm_mhz, made.memory_mhz)
    assert first.clocks.event_reasons == ("gpu_idle",)
    assert (first.pcie.width, first.pcie.max_generation) == (16, made.pcie_generation)
    assert first.modes.compute == "default"
    assert first.health.recovery_action == "none"
    assert first.processes == ()
    if made.form == "board":
        assert first.active_links == made.links
    # No healthy card has an answer that failed, was cut off, or was never asked for.
    bad = {
        path: value
        for path, value in absents(first).items()
        if value.why in (Why.failed, Why.timed_out, Why.not_asked) and path != "numa_node"
    }
    assert bad == {}


def test_every_field_of_a_healthy_h200() -> None:
    seen = card()
    assert dict(seen.identity) == {
        "name": "NVIDIA H200",
        "pci_id": "10de:2335",
        "pci_subsystem": "10de:18be",
        "serial": "1650000000001",
        "board_part": PRODUCTS["h200"].board_part,
        "vbios": PRODUCTS["h200"].vbios,
        "inforom_image": PRODUCTS["h200"].inforom,
        "inforom_valid": True,
        "gsp_firmware": nvml.DRIVER,
        "architecture": "hopper",
        "compute_capability": "9.0",
        "cores": 16896,
        "module_id": 1,
        "minor": 0,
    } | {
        "serial": seen.identity.serial,
        **{
            n: value
            for n in type(seen.identity).model_fields
            if (value := getattr(seen.identity, n)) == AMD_ALONE
        },
    }
    none = EccCounts(
        corrected=0, uncorrected=0, sram_corrected=0, sram_uncorrected=0, dram_corrected=0, dram_uncorrected=0
    )
    health = seen.health
    assert (health.ecc_enabled, health.ecc_enabled_after_reset) == (True, True)
    assert health.ecc_volatile == health.ecc_aggregate == none
    assert health.sram_threshold_exceeded is False
    assert (health.remapped_rows_corrected, health.remapped_rows_uncorrected) == (0, 0)
    assert (health.row_remap_pending, health.row_remap_failed) == (False, False)
    assert health.bank_histogram == BankHistogram(max=3008, high=0, partial=0, low=0, none=0)
    assert (health.channel_repair_pending, health.tpc_repair_pending) == (False, False)
    assert health.unrepairable_memory is False
    assert why(health.retired_pages_double_bit) is why(health.retired_pages_pending) is Why.not_supported
    assert isinstance(health.slowest_call_seconds, float) and isinstance(health.start_seconds, float)
    assert isinstance(health.slowest_call, str) and health.slowest_call.startswith("nvmlDevice")
    assert seen.clocks.violations == Violations(
        power_seconds=0.0, thermal_seconds=0.0, board_limit_seconds=0.0, reliability_seconds=0.0
    )
    assert (seen.power.draw_watts, seen.power.energy_joules) == (87.5, 2371.546)
    assert (seen.temperature.gpu_celsius, seen.temperature.memory_celsius) == (31, 36)
    assert seen.temperature.margin_celsius == 50
    assert seen.modes.persistence is True
    assert (seen.modes.mig_enabled, seen.modes.mig_instances) == (False, 0)
    assert (seen.modes.virtualization, seen.modes.addressing) == ("none", "none")
    assert seen.gpu_utilization_percent == 0
    assert seen.memory_affinity == "0"
    assert seen.cpu_affinity == ranges(nvml.near_cpus(PRODUCTS["h200"], 0))


def test_links_through_switches() -> None:
    links = cards(Survey(answers("h200", 8)))[7].links
    assert isinstance(links, tuple)
    assert [link.index for link in links] == list(range(18))
    assert {(link.active, link.version, link.speed_mb_per_s, link.remote_kind) for link in links} == {
        (True, "4.0", 26562, "switch")
    }
    assert {link.remote_pci_address for link in links} == set(nvml.SWITCH_ADDRESSES[:4])
    assert {(link.replay_errors, link.recovery_errors, link.crc_flit_errors) for link in links} == {(0, 0, 0)}
    assert links[3].crc_data_errors == 7


def test_a_switch_outside_of_the_guest_has_no_address() -> None:
    links = cards(Survey(answers("h200", 2, virtual=True)))[0].links
    assert isinstance(links, tuple)
    assert {link.remote_kind for link in links} == {"switch"}
    assert {why(link.remote_pci_address) for link in links} == {Why.not_present}


def test_links_of_the_fifth_generation_count_recoveries_and_errors_left() -> None:
    links = cards(Survey(answers("b200", 2)))[0].links
    assert isinstance(links, tuple)
    assert (links[0].version, links[0].speed_mb_per_s, links[0].effective_errors) == ("5.0", 53125, 0)
    field = "nvmlDeviceGetFieldValues(0,215,0)"
    counter = "nvmlDeviceGetNvLinkErrorCounter(0,0,NVML_NVLINK_ERROR_DL_RECOVERY)"
    calls = answers("b200", 2) | {field: {"value": 5}, counter: {"absent": "not_supported", "detail": ""}}
    links = cards(Survey(calls))[0].links
    assert isinstance(links, tuple)
    assert links[0].recovery_errors == 5


def test_a_card_whose_links_the_driver_leaves_off() -> None:
    seen = cards(survey(nvml.describe("h200", 1, links="disabled")))[0]
    assert why(seen.links) is why(seen.active_links) is Why.not_supported


def test_links_without_a_count_are_those_that_answer() -> None:
    description = nvml.describe("a100", 2)
    description["nvmlDeviceGetFieldValues 0 91 0"] = nvml.code(2)
    assert cards(survey(description))[0].active_links == 12


def test_an_inactive_link_is_not_counted() -> None:
    seen = card({"nvmlDeviceGetNvLinkState 0 7": "0", "nvmlDeviceGetNvLinkState 0 8": nvml.code(999)})
    assert isinstance(seen.links, tuple)
    assert (seen.links[7].active, why(seen.links[8].active)) == (False, Why.failed)
    assert why(seen.active_links) is Why.failed


def test_cards_stand_in_the_order_of_their_addresses() -> None:
    places = ["0000:9a:00.0", "0000:18:00.0", "0001:02:00.0"]
    seen = cards(survey(nvml.describe("h200", 3, at=places)))
    assert [(c.index, c.pci_address) for c in seen] == [(1, places[1]), (0, places[0]), (2, places[2])]


def test_a_domain_of_more_than_four_digits_is_kept() -> None:
    said = card_saying("nvmlDeviceGetPciInfo(0)", {"busId": "00010000:E1:00.0"})
    assert said.pci_address == "10000:e1:00.0"


@pytest.mark.parametrize(("kind", "nodes"), [("bare", [0, 0, 0, 0, 1, 1, 1, 1]), ("guest", [-1] * 8)])
def test_numa_nodes_are_read_from_the_slot(tmp_path: Path, kind: Kind, nodes: list[int]) -> None:
    ground = Ground(tmp_path)
    ground.hold(plant("h200", 8, kind=kind))
    said = Survey(answers("h200", 8, virtual=kind == "guest"))
    assert [c.numa_node for c in cards(said, Files(live_files.live(str(ground.root))))] == nodes


# NVML and the number of cards


def test_without_nvml_the_reason_is_handed_on() -> None:
    reason = Absent(why=Why.not_present, detail="no library")
    assert nvidia.probe(reason, NO_FILES) == reason


def test_nvml_that_counts_none_lists_none() -> None:
    assert nvidia.probe(survey(nvml.describe("h200", 0)), NO_FILES) == ()


@pytest.mark.parametrize("count", [-1, 2**31, "8", None])
def test_a_nonsense_count_is_no_list(count: object) -> None:
    assert why(nvidia.probe(Survey({"nvmlDeviceGetCount()": {"value": count}}), NO_FILES)) is Why.failed


# Cards in trouble


def test_a_lost_card_is_listed_with_that_reason_everywhere() -> None:
    description = nvml.describe("h200", 2)
    nvml.lose(description, 0)
    seen = next(c for c in cards(survey(description)) if c.index == 0)
    assert (seen.usable, seen.lost, seen.index) == (False, True, 0)
    assert all("GPU is lost" in a.detail for p, a in absents(seen).items() if p.startswith("memory"))
    assert why(seen.identity.name) is why(seen.links) is why(seen.processes) is Why.failed


def test_a_card_lost_after_its_address_was_read_keeps_it() -> None:
    seen = card(
        {"nvmlDeviceGetPowerUsage 0": nvml.code(15), "nvmlDeviceGetUtilizationRates 0": nvml.code(15)}
    )
    assert (seen.usable, seen.lost) == (False, True)
    assert seen.pci_address == nvml.SOCKET_ADDRESSES[0]


@pytest.mark.parametrize(
    ("number", "usable", "lost"),
    [
        (4, False, Why.no_permission),
        (15, False, True),
        (16, False, Why.failed),
        (999, Why.failed, Why.failed),
    ],
)
def test_a_handle_that_is_refused(number: int, usable: object, lost: object) -> None:
    seen = card({"nvmlDeviceGetHandleByIndex_v2 0": nvml.code(number)})
    assert (why(seen.usable) or seen.usable, why(seen.lost) or seen.lost) == (usable, lost)
    assert {why(seen.identity.name), why(seen.memory.total_bytes), why(seen.links)} == {
        Why.no_permission if number == 4 else Why.failed
    }
    assert seen.key == "card 0"


def test_a_card_that_hangs_says_so_from_there_on() -> None:
    description = {**nvml.describe("h200", 2), "nvmlDeviceGetPowerUsage 1": nvml.HANG}
    first, second = cards(survey(description, silence_seconds=1.2))
    assert isinstance(first.health.slowest_call_seconds, float)
    assert second.identity.name == "NVIDIA H200"
    assert second.usable is True
    assert why(second.health.slowest_call_seconds) is why(second.power.draw_watts) is Why.timed_out
    assert why(second.links) is why(second.clocks.sm_mhz) is Why.timed_out


def test_a_card_that_wants_a_reset_is_not_usable() -> None:
    assert card({"* 0": nvml.code(16)}).usable is False


@pytest.mark.parametrize(
    ("change", "path", "value"),
    [
        ({"nvmlDeviceGetEccMode 0": "0 1"}, "health.ecc_enabled", False),
        ({"nvmlDeviceGetEccMode 0": "1 0"}, "health.ecc_enabled_after_reset", False),
        ({"nvmlDeviceGetTotalEccErrors 0 1 0": "3"}, "health.ecc_volatile.uncorrected", 3),
        ({"nvmlDeviceGetTotalEccErrors 0 0 1": "9"}, "health.ecc_aggregate.corrected", 9),
        ({"nvmlDeviceGetMemoryErrorCounter 0 1 1 7": "2"}, "health.ecc_aggregate.sram_uncorrected", 2),
        ({"nvmlDeviceGetMemoryErrorCounter 0 0 0 2": "4"}, "health.ecc_volatile.dram_corrected", 4),
        ({"nvmlDeviceGetSramEccErrorStatus 0": "0 0 0 0 0 0 0 0 0 0 0 1"}, "health.sram_threshold_exceeded", True),
        ({"nvmlDeviceGetRemappedRows 0": "1 2 1 0"}, "health.row_remap_pending", True),
        ({"nvmlDeviceGetRemappedRows 0": "1 2 0 1"}, "health.row_remap_failed", True),
        ({"nvmlDeviceGetRemappedRows 0": "1 2 0 0"}, "health.remapped_rows_uncorrected", 2),
        ({"nvmlDeviceGetRetiredPages_v2 0 1": "1 1 2 1"}, "health.retired_pages_double_bit", 2),
        ({"nvmlDeviceGetRetiredPages_v2 0 0": ""}, "health.retired_pages_single_bit", 0),
        ({"nvmlDeviceGetRetiredPagesPendingStatus 0": "1"}, "health.retired_pages_pending", True),
        ({"nvmlDeviceGetRepairStatus 0": "0 1"}, "health.tpc_repair_pending", True),
        ({"nvmlDeviceGetRepairStatus 0": "1 0"}, "health.channel_repair_pending", True),
        ({"nvmlDeviceGetUnrepairableMemoryFlag_v1 0": "1"}, "health.unrepairable_memory", True),
        ({"nvmlDeviceGetFieldValues 0 230 0": "1 2"}, "health.recovery_action", "node_reboot"),
        ({"nvmlDeviceValidateInforom 0": "!14"}, "identity.inforom_valid", False),
        ({"nvmlDeviceGetEnforcedPowerLimit 0": "450000"}, "power.limit_watts", 450.0),
        ({"nvmlDeviceGetCurrPcieLinkWidth 0": "8"}, "pcie.width", 8),
        ({"nvmlDeviceGetPcieReplayCounter 0": "117"}, "pcie.replays", 117),
        ({"nvmlDeviceGetComputeMode 0": "3"}, "modes.compute", "exclusive_process"),
        ({"nvmlDeviceGetComputeMode 0": "2"}, "modes.compute", "prohibited"),
        ({"nvmlDeviceGetPersistenceMode 0": "0"}, "modes.persistence", False),
        ({"nvmlDeviceGetVirtualizationMode 0": "2"}, "modes.virtualization", "vgpu"),
        ({"nvmlDeviceGetAddressingMode 0": "1"}, "modes.addressing", "hmm"),
        ({"nvmlDeviceGetViolationStatus 0 0": "1 2500000000"}, "clocks.violations.power_seconds", 2.5),
        ({"nvmlDeviceGetPerformanceState 0": "8"}, "clocks.performance_state", 8),
        ({"nvmlDeviceGetTemperatureV 0 0": "93"}, "temperature.gpu_celsius", 93),
        ({"nvmlDeviceGetMarginTemperature 0": "-4"}, "temperature.margin_celsius", -4),
        ({"nvmlDeviceGetUtilizationRates 0": "97 40"}, "gpu_utilization_percent", 97),
        ({"nvmlDeviceGetModuleId 0": "0"}, "identity.module_id", 0),
    ],
)  # fmt: skip
def test_a_state_is_read_as_it_is(change: dict[str, str], path: str, value: object) -> None:
    seen: Any = card(change)
    for name in path.split("."):
        seen = getattr(seen, name)
    assert seen == value


@pytest.mark.parametrize(
    ("mask", "reasons"),
    [
        (0, ()),
        (1, ("gpu_idle",)),
        (0x4, ("sw_power_cap",)),
        (0x48, ("hw_slowdown", "hw_thermal_slowdown")),
        (0x1B2, ("applications_clocks_setting", "sync_boost", "sw_thermal_slowdown", "hw_power_brake_slowdown",
                 "display_clock_setting")),
        (0x8000_0000_0001, ("gpu_idle", "unknown_0x800000000000")),
    ],
)  # fmt: skip
def test_event_reasons_by_name(mask: int, reasons: tuple[str, ...]) -> None:
    assert card_saying("nvmlDeviceGetCurrentClocksEventReasons(0)", mask).clocks.event_reasons == reasons


def test_older_drivers_answer_through_the_older_calls() -> None:
    seen = card(
        {"nvmlDeviceGetTemperatureV 0 0": "!13", "nvmlDeviceGetCurrentClocksEventReasons 0": "!13",
         "nvmlDeviceGetCurrentClocksThrottleReasons 0": "8"}
    )  # fmt: skip
    assert (seen.temperature.gpu_celsius, seen.clocks.event_reasons) == (31, ("hw_slowdown",))


# MIG, fabric


def test_mig_on() -> None:
    seen = card(
        {
            "nvmlDeviceGetMigMode 0": "1 1",
            "nvmlDeviceGetMaxMigDeviceCount 0": "7",
            "nvmlDeviceGetMigDeviceHandleByIndex 0 0": "201",
            "nvmlDeviceGetMigDeviceHandleByIndex 0 1": "202",
            "nvmlDeviceGetRemappedRows 0": "!3",
            "nvmlDeviceGetUtilizationRates 0": "!3",
        }
    )
    assert (seen.modes.mig_enabled, seen.modes.mig_instances) == (True, 2)
    assert why(seen.health.row_remap_pending) is why(seen.gpu_utilization_percent) is Why.not_supported
    refused = card(
        {"nvmlDeviceGetMigMode 0": "1 1", "nvmlDeviceGetMaxMigDeviceCount 0": "1",
         "nvmlDeviceGetMigDeviceHandleByIndex 0 0": "!4"}
    )  # fmt: skip
    assert why(refused.modes.mig_instances) is Why.no_permission


@pytest.mark.parametrize(
    ("words", "state", "health", "problems"),
    [
        ({}, "completed", "healthy", ()),
        ({"state": 2}, "in_progress", "healthy", ()),
        ({"state": 1}, "not_started", "healthy", ()),
        ({"summary": 2, "mask": 0b01}, "completed", "unhealthy", ("degraded_bandwidth",)),
        ({"summary": 3, "mask": 0b01_01_01_10}, "completed", "limited_capacity",
         ("route_recovery", "route_unhealthy", "access_timeout_recovery")),
        ({"mask": 0b0101_10_10_10_10}, "completed", "healthy", ("incorrect_configuration",)),
        ({"mask": 0b0001_10_10_10_10}, "completed", "healthy", ()),
    ],
)  # fmt: skip
def test_fabric(words: dict[str, int], state: str, health: str, problems: tuple[str, ...]) -> None:
    description = nvml.describe("h200", 2)
    nvml.set_fabric(description, 0, **words)
    fabric = cards(survey(description))[0].fabric
    assert (fabric.state, fabric.status, fabric.health) == (state, "success", health)
    assert fabric.health_problems == problems
    assert (fabric.clique_id, fabric.cluster_uuid) == (0, "00000000-0000-0000-0000-000000000000")


def test_a_fabric_error_and_a_driver_that_tells_no_health() -> None:
    description = nvml.describe("h200", 2)
    nvml.set_fabric(description, 0, status=999, mask=0, summary=0)
    fabric = cards(survey(description))[0].fabric
    assert fabric.status == "error 999"
    assert why(fabric.health) is why(fabric.health_problems) is Why.not_supported


def test_cards_without_a_fabric() -> None:
    outside = cards(Survey(answers("h200", 1)))[0].fabric
    assert (outside.state if isinstance(outside.state, str) else outside.state.why) in (
        "not_supported",
        "completed",
    )
    unknown = cards(Survey(answers("l40s", 2)))[0].fabric
    assert why(unknown.state) is why(unknown.status) is Why.not_supported


# Memory that nobody in sight holds


MIB = 1024**2


def test_memory_in_use_that_no_process_explains() -> None:
    description = nvml.describe("h200", 1)
    nvml.occupy(description, 0, 900 * MIB)
    memory = cards(survey(description))[0].memory
    assert memory.used_bytes == memory.unexplained_bytes == 900 * MIB


def test_processes_explain_what_they_hold_and_count_once(tmp_path: Path) -> None:
    description = nvml.describe("h200", 1)
    nvml.occupy(description, 0, 900 * MIB)
    description["nvmlDeviceGetComputeRunningProcesses_v3 0"] = nvml.process(71, 500 * MIB)
    description["nvmlDeviceGetGraphicsRunningProcesses_v3 0"] = nvml.process(71, 500 * MIB)
    description["nvmlDeviceGetMPSComputeRunningProcesses_v3 0"] = nvml.process(72, 300 * MIB)
    (tmp_path / "proc/71").mkdir(parents=True)
    (tmp_path / "proc/71/comm").write_text("python3\n")
    seen = cards(survey(description), Files(live_files.live(str(tmp_path))))[0]
    assert seen.memory.unexplained_bytes == 100 * MIB
    assert isinstance(seen.processes, tuple)
    assert seen.processes[0] == Process(pid=71, kind="compute", used_bytes=500 * MIB, name="python3")
    assert [(p.pid, p.kind, why(p.name)) for p in seen.processes[1:]] == [
        (71, "graphics", None),
        (72, "mps", Why.not_present),
    ]


def test_a_process_whose_share_is_not_told_leaves_the_rest_unknown() -> None:
    description = nvml.describe("h200", 1)
    nvml.occupy(description, 0, 900 * MIB)
    description["nvmlDeviceGetComputeRunningProcesses_v3 0"] = nvml.process(71, 2**64 - 1)
    seen = cards(survey(description))[0]
    assert isinstance(seen.processes, tuple)
    assert why(seen.processes[0].used_bytes) is why(seen.memory.unexplained_bytes) is Why.not_supported


def test_processes_never_explain_more_than_is_in_use() -> None:
    description = nvml.describe("h200", 1)
    nvml.occupy(description, 0, 400 * MIB)
    description["nvmlDeviceGetComputeRunningProcesses_v3 0"] = nvml.process(71, 500 * MIB)
    assert cards(survey(description))[0].memory.unexplained_bytes == 0


@pytest.mark.parametrize(
    ("list_", "number", "expected"),
    [("Compute", 4, Why.no_permission), ("Graphics", 3, None), ("MPSCompute", 13, None), ("Graphics", 999, Why.failed)],
)  # fmt: skip
def test_a_process_list_that_is_refused(list_: str, number: int, expected: Why | None) -> None:
    seen = card({f"nvmlDeviceGet{list_}RunningProcesses_v3 0": nvml.code(number)})
    assert why(seen.processes) is why(seen.memory.unexplained_bytes) is expected


# Numbers that cannot be


@pytest.mark.parametrize(
    ("question", "value", "path", "expected"),
    [
        ("nvmlDeviceGetMemoryInfo(0,nvmlMemory_v2)", {"total": 0, "used": 0}, "memory.total_bytes", Why.failed),
        ("nvmlDeviceGetMemoryInfo(0,nvmlMemory_v2)", {"total": 2**36, "used": 2**37}, "memory.used_bytes", Why.failed),
        ("nvmlDeviceGetMemoryInfo(0,nvmlMemory_v2)", {}, "memory.free_bytes", Why.failed),
        ("nvmlDeviceGetMemoryBusWidth(0)", 0, "memory.bus_width_bits", Why.failed),
        ("nvmlDeviceGetNumGpuCores(0)", 0, "identity.cores", Why.failed),
        ("nvmlDeviceGetMinorNumber(0)", 0xFFFFFFFF, "identity.minor", Why.not_supported),
        ("nvmlDeviceGetTemperatureV(0,NVML_TEMPERATURE_GPU)", 2**64 - 1, "temperature.gpu_celsius", Why.not_supported),
        ("nvmlDeviceGetTemperatureV(0,NVML_TEMPERATURE_GPU)", 2**63, "temperature.gpu_celsius", Why.failed),
        ("nvmlDeviceGetTemperatureV(0,NVML_TEMPERATURE_GPU)", -300, "temperature.gpu_celsius", Why.failed),
        ("nvmlDeviceGetFieldValues(0,82)", 9223372036854775794, "temperature.memory_celsius", Why.not_supported),
        ("nvmlDeviceGetFieldValues(0,82)", 0x7FFFFFF3, "temperature.memory_celsius", Why.no_permission),
        ("nvmlDeviceGetPowerUsage(0)", 0, "power.draw_watts", Why.failed),
        ("nvmlDeviceGetEnforcedPowerLimit(0)", 0xFFFFFFFF, "power.limit_watts", Why.not_supported),
        ("nvmlDeviceGetMaxClockInfo(0,NVML_CLOCK_SM)", 0, "clocks.max_sm_mhz", Why.failed),
        ("nvmlDeviceGetCurrPcieLinkWidth(0)", 0, "pcie.width", Why.failed),
        ("nvmlDeviceGetCurrPcieLinkGeneration(0)", 77, "pcie.generation", Why.failed),
        ("nvmlDeviceGetUtilizationRates(0)", {"gpu": 101}, "gpu_utilization_percent", Why.failed),
        ("nvmlDeviceGetEccMode(0)", [7, 7], "health.ecc_enabled", Why.failed),
        ("nvmlDeviceGetEccMode(0)", "on", "health.ecc_enabled", Why.failed),
        ("nvmlDeviceGetRemappedRows(0)", [0], "health.row_remap_pending", Why.failed),
        ("nvmlDeviceGetRowRemapperHistogram(0)", {"max": 1}, "health.bank_histogram", Why.failed),
        ("nvmlDeviceGetArchitecture(0)", 0xFFFFFFFF, "identity.architecture", Why.failed),
        ("nvmlDeviceGetName(0)", "", "identity.name", Why.not_supported),
        ("nvmlDeviceGetSerial(0)", "[N/A]", "identity.serial", Why.not_supported),
        ("nvmlDeviceGetUUID(0)", 7, "uuid", Why.failed),
        ("nvmlDeviceGetPciInfo(0)", {"busId": "nowhere"}, "pci_address", Why.failed),
        ("nvmlDeviceGetPciInfo(0)", None, "identity.pci_id", Why.failed),
        ("nvmlDeviceGetCudaComputeCapability(0)", [9], "identity.compute_capability", Why.failed),
        ("nvmlDeviceGetCpuAffinity(0,32)", [0] * 32, "cpu_affinity", Why.failed),
        ("nvmlDeviceGetCpuAffinity(0,32)", "all", "cpu_affinity", Why.failed),
        ("nvmlDeviceGetComputeRunningProcesses_v3(0)", 3, "processes", Why.failed),
        ("nvmlDeviceGetComputeRunningProcesses_v3(0)", [{"pid": -1}], "processes", Why.failed),
        ("nvmlDeviceGetFieldValues(0,91)", 9999, "active_links", None),
    ],
)  # fmt: skip
def test_nonsense_is_no_value(question: str, value: object, path: str, expected: Why | None) -> None:
    seen: Any = card_saying(question, value)
    for name in path.split("."):
        seen = getattr(seen, name)
    assert why(seen) is expected


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_no_answer_whatever_breaks_the_probes(data: st.DataObject) -> None:
    calls = answers("h200", 2)
    for question in data.draw(st.lists(st.sampled_from(sorted(calls)), min_size=1, max_size=40, unique=True)):
        calls[question] = data.draw(json_values | st.builds(dict, value=json_values))
    said = Survey(calls)
    seen = nvidia.probe(said, NO_FILES)
    topology.probe(said, NO_FILES, seen)

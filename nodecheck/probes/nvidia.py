"""NVIDIA cards, from one survey of NVML."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from nodecheck.facts import Absent, Card, Maybe, Why
from nodecheck.facts.card import (
    BankHistogram,
    Clocks,
    EccCounts,
    Fabric,
    Health,
    Identity,
    Link,
    Memory,
    Modes,
    Pcie,
    Power,
    Process,
    Temperature,
    Violations,
)
from nodecheck.probes import text as texts
from nodecheck.probes.answer import flag, named, named_at_least, nonsense, number, part, scaled, text
from nodecheck.probes.kernel_log import pci_address
from nodecheck.sources import Files
from nodecheck.sources.channel import Answer
from nodecheck.sources.nvml import Survey, error_number

_GIB = 1024**3
_MAX_MEMORY = 16 * 1024 * _GIB
_MAX_WATTS = 20_000
_MAX_MHZ = 20_000
_MAX_LINKS = 36
"""NVML_NVLINK_MAX_LINKS."""

_INVALID_ARGUMENT = 2
_GPU_IS_LOST, _RESET_REQUIRED = 15, 16

_ARCHITECTURES = {
    2: "kepler", 3: "maxwell", 4: "pascal", 5: "volta", 6: "turing", 7: "ampere", 8: "ada", 9: "hopper",
    10: "blackwell", 13: "rubin",
}  # fmt: skip
_COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}
_VIRTUALIZATION_MODES = {0: "none", 1: "passthrough", 2: "vgpu", 3: "host_vgpu", 4: "host_vsga"}
_ADDRESSING_MODES = {0: "none", 1: "hmm", 2: "ats"}
_RECOVERY_ACTIONS = {
    0: "none", 1: "gpu_reset", 2: "node_reboot", 3: "drain_p2p", 4: "drain_and_reset", 5: "imex_reset",
    6: "bus_reset", 7: "system_reboot",
}  # fmt: skip
_EVENT_REASONS = (
    "gpu_idle", "applications_clocks_setting", "sw_power_cap", "hw_slowdown", "sync_boost",
    "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "display_clock_setting",
)  # fmt: skip
"""By bit, lowest first (nvml.h, nvmlClocksEventReason…)."""
_LINK_VERSIONS = {1: "1.0", 2: "2.0", 3: "2.2", 4: "3.0", 5: "3.1", 6: "4.0", 7: "5.0", 8: "6.0"}
_REMOTE_KINDS = {0: "gpu", 1: "ibmnpu", 2: "switch", 0xFF: "unknown"}
_FABRIC_STATES = {0: "not_supported", 1: "not_started", 2: "in_progress", 3: "completed"}
_FABRIC_HEALTH = {1: "healthy", 2: "unhealthy", 3: "limited_capacity"}
_FABRIC_PROBLEMS = (
    (0, "degraded_bandwidth"),
    (2, "route_recovery"),
    (4, "route_unhealthy"),
    (6, "access_timeout_recovery"),
)
"""Where in the health mask each problem has its two bits; 1 there is yes, 2 no, 0 not known (nvml.h)."""
_FABRIC_CONFIGURATION_SHIFT, _FABRIC_CONFIGURATION_RIGHT = 8, (0, 1)
"""Four bits: 0 not known, 1 right, from 2 on the kinds of wrong."""

_PROCESS_LISTS: tuple[tuple[str, Literal["compute", "graphics", "mps"]], ...] = (
    ("Compute", "compute"),
    ("Graphics", "graphics"),
    ("MPSCompute", "mps"),
)

_FIELD_LINK_SPEED_COMMON, _FIELD_LINK_COUNT, _FIELD_LINK_SPEED = 90, 91, 164
_FIELD_MEMORY_TEMPERATURE, _FIELD_RECOVERY_ACTION = 82, 230
_FIELD_LINK_RECOVERIES, _FIELD_LINK_EFFECTIVE_ERRORS = 215, 219


def probe(survey: Maybe[Survey], files: Files) -> Maybe[tuple[Card, ...]]:
    """The cards that NVML counts, in the order of their PCI addresses; () where it works and counts none.

    A card that is refused, lost or does not answer is listed as well, each of its facts with the reason.
    """
    if isinstance(survey, Absent):
        return survey
    count = number(survey.get("nvmlDeviceGetCount"), 0, 64)
    if isinstance(count, Absent):
        return count
    cards = [_Asked(survey, files, index).card() for index in range(count)]
    return tuple(sorted(cards, key=_place))


def _place(card: Card) -> tuple[bool, str, int]:
    if isinstance(card.pci_address, Absent):
        return True, "", card.index
    return False, card.pci_address.zfill(16), card.index


class _Asked:
    """The survey's answers about one card."""

    def __init__(self, survey: Survey, files: Files, index: int) -> None:
        self._survey = survey
        self._files = files
        self._index = index
        self._errors = set[int | None]()
        """The numbers of the errors that calls about the card came back with so far."""

    def _get(self, function: str, *arguments: object) -> Answer:
        answer = self._survey.get(function, self._index, *arguments)
        if isinstance(answer, Absent):
            self._errors.add(error_number(answer))
        return answer

    def _field(self, field: int, *link: int) -> Answer:
        return self._get("nvmlDeviceGetFieldValues", field, *link)

    def _either(self, newer: tuple[object, ...], older: tuple[object, ...]) -> Answer:
        """The newer call's answer; the older one's where the newer one is not known to the driver."""
        first = self._get(str(newer[0]), *newer[1:])
        if isinstance(first, Absent) and first.why in (Why.not_present, Why.not_supported):
            second = self._get(str(older[0]), *older[1:])
            return first if isinstance(second, Absent) else second
        return first

    def card(self) -> Card:
        pci = self._get("nvmlDeviceGetPciInfo")
        address = self._address(part(pci, "busId"))
        processes = self._processes()
        return Card(
            vendor="nvidia",
            source="nvml",
            index=self._index,
            pci_address=address,
            uuid=text(self._get("nvmlDeviceGetUUID")),
            identity=self._identity(pci),
            memory=self._memory(processes),
            health=self._health(),
            power=self._power(),
            clocks=self._clocks(),
            temperature=self._temperature(),
            pcie=self._pcie(),
            modes=self._modes(),
            fabric=self._fabric(),
            links=self._links(),
            processes=processes,
            gpu_utilization_percent=number(part(self._get("nvmlDeviceGetUtilizationRates"), "gpu"), 0, 100),
            cpu_affinity=_affinity(self._get("nvmlDeviceGetCpuAffinity", 32)),
            memory_affinity=_affinity(
                self._get("nvmlDeviceGetMemoryAffinity", 16, "NVML_AFFINITY_SCOPE_NODE")
            ),
            numa_node=self._numa_node(address),
            usable=self._usable(),  # these two last: any answer may say it
            lost=self._lost(),
        )

    def _lost(self) -> Maybe[bool]:
        if _GPU_IS_LOST in self._errors:
            return True
        handle = self._get("nvmlDeviceGetHandleByIndex")
        return handle if isinstance(handle, Absent) else False

    def _usable(self) -> Maybe[bool]:
        handle = self._get("nvmlDeviceGetHandleByIndex")
        if self._errors & {_GPU_IS_LOST, _RESET_REQUIRED}:
            return False
        if isinstance(handle, Absent):
            return False if handle.why is Why.no_permission else handle
        return True

    def _address(self, bus_id: Answer) -> Maybe[str]:
        line = text(bus_id)
        return line if isinstance(line, Absent) else pci_address(line) or nonsense(bus_id)

    def _numa_node(self, address: Maybe[str]) -> Maybe[int]:
        if isinstance(address, Absent):
            return address
        return texts.parse(self._files.read(f"/sys/bus/pci/devices/{address}/numa_node"), texts.number)

    def _identity(self, pci: Answer) -> Identity:
        capability = self._get("nvmlDeviceGetCudaComputeCapability")
        major, minor = number(part(capability, 0), 1, 99), number(part(capability, 1), 0, 9)
        return Identity(
            name=text(self._get("nvmlDeviceGetName")),
            pci_id=_pci_id(part(pci, "pciDeviceId")),
            pci_subsystem=_pci_id(part(pci, "pciSubSystemId")),
            serial=text(self._get("nvmlDeviceGetSerial")),
            board_part=text(self._get("nvmlDeviceGetBoardPartNumber")),
            vbios=text(self._get("nvmlDeviceGetVbiosVersion")),
            inforom_image=text(self._get("nvmlDeviceGetInforomImageVersion")),
            inforom_valid=flag(self._get("nvmlDeviceValidateInforom")),
            gsp_firmware=text(self._get("nvmlDeviceGetGspFirmwareVersion")),
            architecture=named(self._get("nvmlDeviceGetArchitecture"), _ARCHITECTURES),
            compute_capability=_first_absent(major, minor) or f"{major}.{minor}",
            cores=number(self._get("nvmlDeviceGetNumGpuCores"), 1, 10**6),
            module_id=number(self._get("nvmlDeviceGetModuleId"), 0, 1023),
            minor=number(self._get("nvmlDeviceGetMinorNumber"), 0, 1023),
        )

    def _memory(self, processes: Maybe[tuple[Process, ...]]) -> Memory:
        info = self._get("nvmlDeviceGetMemoryInfo", "nvmlMemory_v2")
        total = number(part(info, "total"), 1024**2, _MAX_MEMORY)
        most = _MAX_MEMORY if isinstance(total, Absent) else total
        used = number(part(info, "used"), 0, most)
        return Memory(
            total_bytes=total,
            reserved_bytes=number(part(info, "reserved"), 0, most),
            used_bytes=used,
            free_bytes=number(part(info, "free"), 0, most),
            bar1_total_bytes=number(
                part(self._get("nvmlDeviceGetBAR1MemoryInfo"), "bar1Total"), 1, _MAX_MEMORY
            ),
            bus_width_bits=number(self._get("nvmlDeviceGetMemoryBusWidth"), 1, 65536),
            unexplained_bytes=unexplained(used, processes),
        )

    def _processes(self) -> Maybe[tuple[Process, ...]]:
        found: list[Process] = []
        for call, kind in _PROCESS_LISTS:
            answer = self._get(f"nvmlDeviceGet{call}RunningProcesses_v3")
            if isinstance(answer, Absent):
                if kind != "compute" and answer.why in (Why.not_supported, Why.not_present):
                    continue  # under MIG, and where the driver has no such list
                return answer
            if not isinstance(answer, list):
                return nonsense(answer)
            for entry in answer:
                pid = number(part(entry, "pid"), 0, 2**32)
                if isinstance(pid, Absent):
                    return pid
                used = part(entry, "usedGpuMemory")
                found.append(
                    Process(
                        pid=pid,
                        kind=kind,
                        used_bytes=Absent(why=Why.not_supported, detail="not told for this process")
                        if used is None
                        else number(used, 0, _MAX_MEMORY),
                        name=texts.parse(self._files.read(f"/proc/{pid}/comm"), texts.word),
                    )
                )
        return tuple(found)

    def _ecc_counts(self, counter: str) -> Maybe[EccCounts]:
        def total(error: str) -> Maybe[int]:
            return number(
                self._get("nvmlDeviceGetTotalEccErrors", f"NVML_MEMORY_ERROR_TYPE_{error}", counter)
            )

        def at(error: str, location: str) -> Maybe[int]:
            return number(
                self._get(
                    "nvmlDeviceGetMemoryErrorCounter",
                    f"NVML_MEMORY_ERROR_TYPE_{error}",
                    counter,
                    f"NVML_MEMORY_LOCATION_{location}",
                )
            )

        corrected, uncorrected = total("CORRECTED"), total("UNCORRECTED")
        if isinstance(corrected, Absent) and isinstance(uncorrected, Absent):
            return uncorrected
        return EccCounts(
            corrected=corrected,
            uncorrected=uncorrected,
            sram_corrected=at("CORRECTED", "SRAM"),
            sram_uncorrected=at("UNCORRECTED", "SRAM"),
            dram_corrected=at("CORRECTED", "DRAM"),
            dram_uncorrected=at("UNCORRECTED", "DRAM"),
        )

    def _retired_pages(self, cause: str) -> Maybe[int]:
        pages = self._get("nvmlDeviceGetRetiredPages_v2", f"NVML_PAGE_RETIREMENT_CAUSE_{cause}")
        if isinstance(pages, Absent):
            return pages
        return len(pages) if isinstance(pages, list) else nonsense(pages)

    def _health(self) -> Health:
        ecc = self._get("nvmlDeviceGetEccMode")
        remapped = self._get("nvmlDeviceGetRemappedRows")
        repair = self._get("nvmlDeviceGetRepairStatus")
        slowest = self._get_timing("slowest")
        seconds = part(slowest, "seconds")
        return Health(
            ecc_enabled=flag(part(ecc, 0)),
            ecc_enabled_after_reset=flag(part(ecc, 1)),
            ecc_volatile=self._ecc_counts("NVML_VOLATILE_ECC"),
            ecc_aggregate=self._ecc_counts("NVML_AGGREGATE_ECC"),
            sram_threshold_exceeded=flag(
                part(self._get("nvmlDeviceGetSramEccErrorStatus"), "bThresholdExceeded")
            ),
            retired_pages_single_bit=self._retired_pages("MULTIPLE_SINGLE_BIT_ECC_ERRORS"),
            retired_pages_double_bit=self._retired_pages("DOUBLE_BIT_ECC_ERROR"),
            retired_pages_pending=flag(self._get("nvmlDeviceGetRetiredPagesPendingStatus")),
            remapped_rows_corrected=number(part(remapped, 0), 0, 10**6),
            remapped_rows_uncorrected=number(part(remapped, 1), 0, 10**6),
            row_remap_pending=flag(part(remapped, 2)),
            row_remap_failed=flag(part(remapped, 3)),
            bank_histogram=self._bank_histogram(),
            channel_repair_pending=flag(part(repair, 0)),
            tpc_repair_pending=flag(part(repair, 1)),
            unrepairable_memory=flag(self._get("nvmlDeviceGetUnrepairableMemoryFlag_v1")),
            recovery_action=named_at_least(self._field(_FIELD_RECOVERY_ACTION), _RECOVERY_ACTIONS),
            start_seconds=_seconds(self._get_timing("start")),
            slowest_call=text(part(slowest, "question")),
            slowest_call_seconds=_seconds(seconds),
        )

    def _get_timing(self, what: str) -> Answer:
        return self._survey.get(what, self._index)

    def _bank_histogram(self) -> Maybe[BankHistogram]:
        answer = self._get("nvmlDeviceGetRowRemapperHistogram")
        counts = {name: number(part(answer, name), 0, 10**6) for name in BankHistogram.model_fields}
        absent = _first_absent(*counts.values())
        return absent or BankHistogram.model_validate(counts)

    def _power(self) -> Power:
        limits = self._get("nvmlDeviceGetPowerManagementLimitConstraints")
        return Power(
            limit_watts=_watts(self._get("nvmlDeviceGetEnforcedPowerLimit")),
            requested_limit_watts=_watts(self._get("nvmlDeviceGetPowerManagementLimit")),
            default_limit_watts=_watts(self._get("nvmlDeviceGetPowerManagementDefaultLimit")),
            min_limit_watts=_watts(part(limits, 0)),
            max_limit_watts=_watts(part(limits, 1)),
            draw_watts=_watts(self._get("nvmlDeviceGetPowerUsage")),
            energy_joules=scaled(self._get("nvmlDeviceGetTotalEnergyConsumption"), 1000),
        )

    def _clock(self, function: str, kind: str) -> Maybe[int]:
        return number(self._get(f"nvmlDeviceGet{function}", f"NVML_CLOCK_{kind}"), 1, _MAX_MHZ)

    def _clocks(self) -> Clocks:
        def violation(policy: str) -> Maybe[float]:
            status = self._get("nvmlDeviceGetViolationStatus", f"NVML_PERF_POLICY_{policy}")
            return scaled(part(status, "violationTime"), 10**9, highest=2**63 - 32)

        violations = Violations(
            power_seconds=violation("POWER"),
            thermal_seconds=violation("THERMAL"),
            board_limit_seconds=violation("BOARD_LIMIT"),
            reliability_seconds=violation("RELIABILITY"),
        )
        every = [getattr(violations, name) for name in Violations.model_fields]
        return Clocks(
            sm_mhz=self._clock("ClockInfo", "SM"),
            memory_mhz=self._clock("ClockInfo", "MEM"),
            max_sm_mhz=self._clock("MaxClockInfo", "SM"),
            max_memory_mhz=self._clock("MaxClockInfo", "MEM"),
            application_sm_mhz=self._clock("ApplicationsClock", "SM"),
            application_memory_mhz=self._clock("ApplicationsClock", "MEM"),
            default_application_sm_mhz=self._clock("DefaultApplicationsClock", "SM"),
            default_application_memory_mhz=self._clock("DefaultApplicationsClock", "MEM"),
            event_reasons=event_reasons(
                self._either(
                    ("nvmlDeviceGetCurrentClocksEventReasons",),
                    ("nvmlDeviceGetCurrentClocksThrottleReasons",),
                )
            ),
            violations=every[0] if all(isinstance(value, Absent) for value in every) else violations,
            performance_state=number(self._get("nvmlDeviceGetPerformanceState"), 0, 15),
        )

    def _temperature(self) -> Temperature:
        def threshold(kind: str) -> Maybe[int]:
            answer = self._get("nvmlDeviceGetTemperatureThreshold", f"NVML_TEMPERATURE_THRESHOLD_{kind}")
            return number(answer, 1, 150)

        core = self._either(
            ("nvmlDeviceGetTemperatureV", "NVML_TEMPERATURE_GPU"),
            ("nvmlDeviceGetTemperature", "NVML_TEMPERATURE_GPU"),
        )
        return Temperature(
            gpu_celsius=number(core, 1, 150),
            memory_celsius=number(self._field(_FIELD_MEMORY_TEMPERATURE), 1, 150),
            margin_celsius=number(self._get("nvmlDeviceGetMarginTemperature"), -100, 150),
            slowdown_celsius=threshold("SLOWDOWN"),
            shutdown_celsius=threshold("SHUTDOWN"),
        )

    def _pcie(self) -> Pcie:
        def generation(which: str) -> Maybe[int]:
            return number(self._get(f"nvmlDeviceGet{which}PcieLinkGeneration"), 1, 9)

        def width(which: str) -> Maybe[int]:
            return number(self._get(f"nvmlDeviceGet{which}PcieLinkWidth"), 1, 32)

        return Pcie(
            generation=generation("Curr"),
            width=width("Curr"),
            max_generation=generation("Max"),
            max_width=width("Max"),
            card_max_generation=generation("GpuMax"),
            replays=number(self._get("nvmlDeviceGetPcieReplayCounter"), 0, 2**32 - 2),
        )

    def _modes(self) -> Modes:
        mig = self._get("nvmlDeviceGetMigMode")
        enabled = flag(part(mig, 0))
        return Modes(
            mig_enabled=enabled,
            mig_enabled_after_reset=flag(part(mig, 1)),
            mig_instances=self._mig_instances() if enabled is True else 0 if enabled is False else enabled,
            compute=named_at_least(self._get("nvmlDeviceGetComputeMode"), _COMPUTE_MODES),
            persistence=flag(self._get("nvmlDeviceGetPersistenceMode")),
            virtualization=named_at_least(
                self._get("nvmlDeviceGetVirtualizationMode"), _VIRTUALIZATION_MODES
            ),
            addressing=named(self._get("nvmlDeviceGetAddressingMode"), _ADDRESSING_MODES),
        )

    def _mig_instances(self) -> Maybe[int]:
        count = number(self._get("nvmlDeviceGetMaxMigDeviceCount"), 0, 32)
        if isinstance(count, Absent):
            return count
        handles = [self._get("nvmlDeviceGetMigDeviceHandleByIndex", k) for k in range(count)]
        unseen = [h for h in handles if isinstance(h, Absent) and h.why is not Why.not_present]
        return unseen[0] if unseen else sum(not isinstance(handle, Absent) for handle in handles)

    def _fabric(self) -> Fabric:
        info = self._get("nvmlDeviceGetGpuFabricInfoV")
        state = named(part(info, "state"), _FABRIC_STATES)
        if isinstance(state, Absent) or state == "not_supported":
            outside = Absent(why=Why.not_supported, detail="the card does not join an NVSwitch fabric")
            rest = state if isinstance(state, Absent) else outside
            return Fabric(
                state=state, status=rest, health=rest, health_problems=rest, clique_id=rest, cluster_uuid=rest
            )
        status = number(part(info, "status"), 0, 1000)
        summary = number(part(info, "healthSummary"), 0, 255)
        return Fabric(
            state=state,
            status=status if isinstance(status, Absent) else f"error {status}" if status else "success",
            health=Absent(why=Why.not_supported, detail="the driver does not tell")
            if summary == 0
            else named_at_least(summary, _FABRIC_HEALTH),
            health_problems=_fabric_problems(part(info, "healthMask")),
            clique_id=number(part(info, "cliqueId"), 0, 2**32 - 2),
            cluster_uuid=_uuid(part(info, "clusterUuid")),
        )

    def _links(self) -> Maybe[tuple[Link, ...]]:
        count = number(self._field(_FIELD_LINK_COUNT), 0, _MAX_LINKS)
        links: list[Link] = []
        for index in range(_MAX_LINKS if isinstance(count, Absent) else count):
            link = self._link(index)
            if isinstance(link.active, Absent):
                if index == 0 and link.active.why is Why.not_supported:
                    return link.active  # the driver has the links switched off, or knows of none
                if isinstance(count, Absent):
                    at_end = (
                        link.active.why in (Why.not_supported, Why.not_asked)
                        or error_number(link.active) == _INVALID_ARGUMENT
                    )
                    if index and not at_end:
                        return link.active  # there may be more: the links before it are not all
                    break
            links.append(link)
        return tuple(links) if links or not isinstance(count, Absent) else count

    def _link(self, index: int) -> Link:
        def errors(counter: str) -> Answer:
            return self._get("nvmlDeviceGetNvLinkErrorCounter", index, f"NVML_NVLINK_ERROR_DL_{counter}")

        speed = self._field(_FIELD_LINK_SPEED, index)
        if isinstance(speed, Absent) and speed.why is Why.not_supported:
            speed = self._field(_FIELD_LINK_SPEED_COMMON)
        recoveries = errors("RECOVERY")
        if isinstance(recoveries, Absent) and recoveries.why is Why.not_supported:
            recoveries = self._field(_FIELD_LINK_RECOVERIES, index)
        return Link(
            index=index,
            active=flag(self._get("nvmlDeviceGetNvLinkState", index)),
            version=_link_version(self._get("nvmlDeviceGetNvLinkVersion", index)),
            speed_mb_per_s=number(speed, 0, 10**6),
            remote_kind=named(self._get("nvmlDeviceGetNvLinkRemoteDeviceType", index), _REMOTE_KINDS),
            remote_pci_address=_remote_address(
                part(self._get("nvmlDeviceGetNvLinkRemotePciInfo", index), "busId")
            ),
            replay_errors=number(errors("REPLAY")),
            recovery_errors=number(recoveries),
            crc_flit_errors=number(errors("CRC_FLIT")),
            crc_data_errors=number(errors("CRC_DATA")),
            effective_errors=number(self._field(_FIELD_LINK_EFFECTIVE_ERRORS, index)),
        )


def _first_absent(*values: Maybe[int]) -> Absent | None:
    return next((value for value in values if isinstance(value, Absent)), None)


def _pci_id(answer: Answer) -> Maybe[str]:
    """`10de:2335` out of NVML's device << 16 | vendor."""
    value = number(answer, 1, 2**32 - 2)
    return value if isinstance(value, Absent) else f"{value & 0xFFFF:04x}:{value >> 16:04x}"


def _watts(answer: Answer) -> Maybe[float]:
    """Milliwatts in watts. A card that draws nothing, or may draw nothing, is not alive."""
    return scaled(answer, 1000, 1, _MAX_WATTS * 1000)


def _seconds(answer: Answer) -> Maybe[float]:
    if isinstance(answer, Absent):
        return answer
    return float(answer) if type(answer) in (int, float) and answer >= 0 else nonsense(answer)


def unexplained(used: Maybe[int], processes: Maybe[tuple[Process, ...]]) -> Maybe[int]:
    """Memory in use less what the processes in sight hold.

    Version 2 of NVML's memory leaves the driver's own share out of `used` (an idle H200 has 0), so nothing is
    taken off for it; whoever judges allows for less than a context. A process in several lists counts once.
    """
    if isinstance(used, Absent):
        return used
    if isinstance(processes, Absent):
        return processes
    held: dict[int, int] = {}
    for process in processes:
        if isinstance(process.used_bytes, Absent):
            return process.used_bytes
        held[process.pid] = max(held.get(process.pid, 0), process.used_bytes)
    return max(used - sum(held.values()), 0)


def event_reasons(answer: Answer) -> Maybe[tuple[str, ...]]:
    """The names of `Clocks.event_reasons` for NVML's bits."""
    mask = number(answer, 0, 2**63 - 32)
    if isinstance(mask, Absent):
        return mask
    bits = [bit for bit in range(mask.bit_length()) if mask >> bit & 1]
    return tuple(
        _EVENT_REASONS[bit] if bit < len(_EVENT_REASONS) else f"unknown_0x{1 << bit:x}" for bit in bits
    )


def _fabric_problems(answer: Answer) -> Maybe[tuple[str, ...]]:
    """Decoded health mask; where the driver fills in nothing of it, it does not say that there is none."""
    mask = number(answer, 0, 2**32 - 2)
    if isinstance(mask, Absent):
        return mask
    if mask == 0:
        return Absent(why=Why.not_supported, detail="the driver does not tell")
    problems = [name for shift, name in _FABRIC_PROBLEMS if mask >> shift & 3 == 1]
    if mask >> _FABRIC_CONFIGURATION_SHIFT & 15 not in _FABRIC_CONFIGURATION_RIGHT:
        problems.append("incorrect_configuration")
    return tuple(problems)


def _uuid(answer: Answer) -> Maybe[str]:
    if isinstance(answer, Absent):
        return answer
    if not isinstance(answer, list) or not all(type(b) is int and 0 <= b < 256 for b in answer):
        return nonsense(answer)
    digits = bytes(answer).hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _link_version(answer: Answer) -> Maybe[str]:
    if answer == 0:  # NVML_NVLINK_VERSION_INVALID: a link that leads nowhere has none
        return Absent(why=Why.not_supported, detail="the link has no version")
    return named(answer, _LINK_VERSIONS)


def _remote_address(bus_id: Answer) -> Maybe[str]:
    line = text(bus_id)
    if isinstance(line, Absent):
        return line
    address = pci_address(line)
    if address is None or address == "0000:00:00.0":
        # An NVSwitch outside of the virtual machine: all bits set, or none.
        return Absent(why=Why.not_present, detail=f"the far end is not on this machine's bus ({line})")
    return address


def _affinity(words: Answer) -> Maybe[str]:
    """`0-31,64-95` for a set of small numbers, 64 of them in a word."""
    if isinstance(words, Absent):
        return words
    if not isinstance(words, list) or not all(type(w) is int and 0 <= w < 2**64 for w in words):
        return nonsense(words)
    numbers = [64 * i + bit for i, w in enumerate(words) for bit in range(64) if w >> bit & 1]
    return _ranges(numbers) if numbers else Absent(why=Why.failed, detail="the driver names none")


def _ranges(numbers: Sequence[int]) -> str:
    """`0-31,64-95` for sorted numbers."""
    parts: list[tuple[int, int]] = []
    for n in numbers:
        if parts and parts[-1][1] == n - 1:
            parts[-1] = (parts[-1][0], n)
        else:
            parts.append((n, n))
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)

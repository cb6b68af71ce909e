"""What is known about one card. Units stand in the names; see `nodecheck.facts.base` for absent values."""

from __future__ import annotations

from typing import Literal

from nodecheck.facts.base import Absent, Fact, Maybe, known, seen

Vendor = Literal["nvidia", "amd"]


class Identity(Fact):
    """What the card says it is."""

    name: Maybe[str] = seen("product name", nvml="nvmlDeviceGetName")
    pci_id: Maybe[str] = seen(
        "vendor and device id, `10de:2335`, lower case", nvml="nvmlDeviceGetPciInfo_v3, pciDeviceId"
    )
    pci_subsystem: Maybe[str] = seen(
        "subsystem vendor and device id, `10de:18be`", nvml="nvmlDeviceGetPciInfo_v3, pciSubSystemId"
    )
    serial: Maybe[str] = seen("board serial number", nvml="nvmlDeviceGetSerial")
    board_part: Maybe[str] = seen("board part number", nvml="nvmlDeviceGetBoardPartNumber")
    vbios: Maybe[str] = seen("VBIOS version", nvml="nvmlDeviceGetVbiosVersion")
    inforom_image: Maybe[str] = seen("InfoROM image version", nvml="nvmlDeviceGetInforomImageVersion")
    inforom_valid: Maybe[bool] = seen("InfoROM checksum is right", nvml="nvmlDeviceValidateInforom")
    gsp_firmware: Maybe[str] = seen("GSP firmware version", nvml="nvmlDeviceGetGspFirmwareVersion")
    architecture: Maybe[str] = seen(
        "architecture, lower case: `hopper`, `blackwell`", nvml="nvmlDeviceGetArchitecture"
    )
    compute_capability: Maybe[str] = seen("`9.0`", nvml="nvmlDeviceGetCudaComputeCapability")
    cores: Maybe[int] = seen("CUDA cores", nvml="nvmlDeviceGetNumGpuCores")
    module_id: Maybe[int] = seen("slot on the baseboard", nvml="nvmlDeviceGetModuleId")
    minor: Maybe[int] = seen("N of /dev/nvidiaN", nvml="nvmlDeviceGetMinorNumber")


class Memory(Fact):
    """Device memory. `used_bytes` leaves out what the driver reserves for itself."""

    total_bytes: Maybe[int] = seen("all memory", nvml="nvmlDeviceGetMemoryInfo v2, total")
    reserved_bytes: Maybe[int] = seen("kept by the driver", nvml="nvmlDeviceGetMemoryInfo v2, reserved")
    used_bytes: Maybe[int] = seen("in use by programs", nvml="nvmlDeviceGetMemoryInfo v2, used")
    free_bytes: Maybe[int] = seen("free", nvml="nvmlDeviceGetMemoryInfo v2, free")
    bar1_total_bytes: Maybe[int] = seen("BAR1 aperture", nvml="nvmlDeviceGetBAR1MemoryInfo, bar1Total")
    bus_width_bits: Maybe[int] = seen("memory bus width", nvml="nvmlDeviceGetMemoryBusWidth")
    unexplained_bytes: Maybe[int] = seen(
        "in use, and held by no process that can be seen from here",
        nvml="nvmlDeviceGetMemoryInfo v2, used, less nvmlDeviceGetComputeRunningProcesses_v3 and Graphics",
    )


class EccCounts(Fact):
    """Error counts since the last driver load (volatile) or over the card's life (aggregate)."""

    corrected: Maybe[int] = seen("all corrected", nvml="nvmlDeviceGetTotalEccErrors, corrected")
    uncorrected: Maybe[int] = seen("all uncorrected", nvml="nvmlDeviceGetTotalEccErrors, uncorrected")
    sram_corrected: Maybe[int] = seen("SRAM, corrected", nvml="nvmlDeviceGetMemoryErrorCounter, SRAM")
    sram_uncorrected: Maybe[int] = seen("SRAM, uncorrected", nvml="nvmlDeviceGetMemoryErrorCounter, SRAM")
    dram_corrected: Maybe[int] = seen("DRAM, corrected", nvml="nvmlDeviceGetMemoryErrorCounter, DRAM")
    dram_uncorrected: Maybe[int] = seen("DRAM, uncorrected", nvml="nvmlDeviceGetMemoryErrorCounter, DRAM")


class BankHistogram(Fact):
    """How many memory banks still have all, many, some, few or no spare rows (`nvmlDeviceGetRowRemapperHistogram`)."""

    max: int
    high: int
    partial: int
    low: int
    none: int


class Health(Fact):
    """Memory errors, repairs and what the driver itself asks for."""

    ecc_enabled: Maybe[bool] = seen("ECC is on", nvml="nvmlDeviceGetEccMode, current")
    ecc_enabled_after_reset: Maybe[bool] = seen(
        "ECC after the next reset", nvml="nvmlDeviceGetEccMode, pending"
    )
    ecc_volatile: Maybe[EccCounts] = seen("since the driver was loaded", nvml="volatile counters")
    ecc_aggregate: Maybe[EccCounts] = seen("over the card's life", nvml="aggregate counters")
    sram_threshold_exceeded: Maybe[bool] = seen(
        "SRAM errors past the vendor's threshold", nvml="nvmlDeviceGetSramEccErrorStatus, bThresholdExceeded"
    )
    retired_pages_single_bit: Maybe[int] = seen(
        "pages retired for corrected errors (before Ampere)", nvml="nvmlDeviceGetRetiredPages_v2, single bit"
    )
    retired_pages_double_bit: Maybe[int] = seen(
        "pages retired for uncorrected errors (before Ampere)",
        nvml="nvmlDeviceGetRetiredPages_v2, double bit",
    )
    retired_pages_pending: Maybe[bool] = seen(
        "pages wait for a reset to be retired", nvml="nvmlDeviceGetRetiredPagesPendingStatus"
    )
    remapped_rows_corrected: Maybe[int] = seen(
        "rows remapped for corrected errors", nvml="nvmlDeviceGetRemappedRows, corrRows"
    )
    remapped_rows_uncorrected: Maybe[int] = seen(
        "rows remapped for uncorrected errors", nvml="nvmlDeviceGetRemappedRows, uncRows"
    )
    row_remap_pending: Maybe[bool] = seen(
        "a row waits for a reset to be remapped", nvml="nvmlDeviceGetRemappedRows, isPending"
    )
    row_remap_failed: Maybe[bool] = seen(
        "a remap failed in the past", nvml="nvmlDeviceGetRemappedRows, failureOccurred"
    )
    bank_histogram: Maybe[BankHistogram] = seen(
        "spare rows left, by bank", nvml="nvmlDeviceGetRowRemapperHistogram"
    )
    channel_repair_pending: Maybe[bool] = seen(
        "memory channel repair pending", nvml="nvmlDeviceGetRepairStatus"
    )
    tpc_repair_pending: Maybe[bool] = seen("TPC repair pending", nvml="nvmlDeviceGetRepairStatus")
    unrepairable_memory: Maybe[bool] = seen(
        "memory that can no longer be repaired", nvml="nvmlDeviceGetUnrepairableMemoryFlag_v1"
    )
    recovery_action: Maybe[str] = seen(
        "what the driver wants done: `none`, `gpu_reset`, `node_reboot`, `drain_p2p`, `drain_and_reset`, "
        "`imex_reset`, `bus_reset`, `system_reboot`",
        nvml="field NVML_FI_DEV_GET_GPU_RECOVERY_ACTION (230)",
    )
    start_seconds: Maybe[float] = seen(
        "until the driver handed out the card; seconds where persistence mode is off",
        nvml="duration of nvmlDeviceGetHandleByIndex_v2",
    )
    slowest_call: Maybe[str] = seen(
        "the question about this card that took longest, the handing out left aside",
        nvml="every call about the card",
    )
    slowest_call_seconds: Maybe[float] = seen(
        "how long that took; `timed_out` where the card stopped answering", nvml="every call about the card"
    )


class Power(Fact):
    limit_watts: Maybe[float] = seen("enforced power limit", nvml="nvmlDeviceGetEnforcedPowerLimit")
    requested_limit_watts: Maybe[float] = seen("requested limit", nvml="nvmlDeviceGetPowerManagementLimit")
    default_limit_watts: Maybe[float] = seen(
        "the board's default", nvml="nvmlDeviceGetPowerManagementDefaultLimit"
    )
    min_limit_watts: Maybe[float] = seen("lowest", nvml="nvmlDeviceGetPowerManagementLimitConstraints, min")
    max_limit_watts: Maybe[float] = seen("highest", nvml="nvmlDeviceGetPowerManagementLimitConstraints, max")
    draw_watts: Maybe[float] = seen("draw now", nvml="nvmlDeviceGetPowerUsage")
    energy_joules: Maybe[float] = seen(
        "since the driver was loaded", nvml="nvmlDeviceGetTotalEnergyConsumption"
    )


class Violations(Fact):
    """How long a limit has held the clocks down, since the driver was loaded (seconds)."""

    power_seconds: Maybe[float] = seen("power cap", nvml="nvmlDeviceGetViolationStatus, POWER")
    thermal_seconds: Maybe[float] = seen("heat", nvml="nvmlDeviceGetViolationStatus, THERMAL")
    board_limit_seconds: Maybe[float] = seen("board limit", nvml="nvmlDeviceGetViolationStatus, BOARD_LIMIT")
    reliability_seconds: Maybe[float] = seen("reliability", nvml="nvmlDeviceGetViolationStatus, RELIABILITY")


class Clocks(Fact):
    sm_mhz: Maybe[int] = seen("SM clock now", nvml="nvmlDeviceGetClockInfo, SM")
    memory_mhz: Maybe[int] = seen("memory clock now", nvml="nvmlDeviceGetClockInfo, MEM")
    max_sm_mhz: Maybe[int] = seen("highest SM clock", nvml="nvmlDeviceGetMaxClockInfo, SM")
    max_memory_mhz: Maybe[int] = seen("highest memory clock", nvml="nvmlDeviceGetMaxClockInfo, MEM")
    application_sm_mhz: Maybe[int] = seen("application clock, SM", nvml="nvmlDeviceGetApplicationsClock, SM")
    application_memory_mhz: Maybe[int] = seen(
        "application clock, memory", nvml="nvmlDeviceGetApplicationsClock, MEM"
    )
    default_application_sm_mhz: Maybe[int] = seen(
        "application clock that the card comes with, SM", nvml="nvmlDeviceGetDefaultApplicationsClock, SM"
    )
    default_application_memory_mhz: Maybe[int] = seen(
        "application clock that the card comes with, memory",
        nvml="nvmlDeviceGetDefaultApplicationsClock, MEM",
    )
    event_reasons: Maybe[tuple[str, ...]] = seen(
        "why the clocks are where they are, decoded: `gpu_idle`, `applications_clocks_setting`, `sw_power_cap`, "
        "`hw_slowdown`, `sync_boost`, `sw_thermal_slowdown`, `hw_thermal_slowdown`, `hw_power_brake_slowdown`, "
        "`display_clock_setting`, `unknown_0x…`",
        nvml="nvmlDeviceGetCurrentClocksEventReasons",
    )
    violations: Maybe[Violations] = seen("time under a limit", nvml="nvmlDeviceGetViolationStatus")
    performance_state: Maybe[int] = seen("P-state", nvml="nvmlDeviceGetPerformanceState")


class Temperature(Fact):
    gpu_celsius: Maybe[int] = seen("core", nvml="nvmlDeviceGetTemperatureV")
    memory_celsius: Maybe[int] = seen("HBM", nvml="field NVML_FI_DEV_MEMORY_TEMP (82)")
    margin_celsius: Maybe[int] = seen(
        "degrees left to the limit (T.Limit)", nvml="nvmlDeviceGetMarginTemperature"
    )
    slowdown_celsius: Maybe[int] = seen(
        "slowdown threshold", nvml="nvmlDeviceGetTemperatureThreshold, SLOWDOWN"
    )
    shutdown_celsius: Maybe[int] = seen(
        "shutdown threshold", nvml="nvmlDeviceGetTemperatureThreshold, SHUTDOWN"
    )


class Pcie(Fact):
    """The host link. The generation falls when the card idles and says nothing then; the width does not."""

    generation: Maybe[int] = seen("now", nvml="nvmlDeviceGetCurrPcieLinkGeneration")
    width: Maybe[int] = seen("lanes now", nvml="nvmlDeviceGetCurrPcieLinkWidth")
    max_generation: Maybe[int] = seen("card and slot together", nvml="nvmlDeviceGetMaxPcieLinkGeneration")
    max_width: Maybe[int] = seen("card and slot together", nvml="nvmlDeviceGetMaxPcieLinkWidth")
    card_max_generation: Maybe[int] = seen("the card alone", nvml="nvmlDeviceGetGpuMaxPcieLinkGeneration")
    replays: Maybe[int] = seen("replay counter", nvml="nvmlDeviceGetPcieReplayCounter")


class Modes(Fact):
    mig_enabled: Maybe[bool] = seen("MIG is on", nvml="nvmlDeviceGetMigMode, current")
    mig_enabled_after_reset: Maybe[bool] = seen(
        "MIG after the next reset", nvml="nvmlDeviceGetMigMode, pending"
    )
    mig_instances: Maybe[int] = seen(
        "MIG devices that can be opened", nvml="nvmlDeviceGetMigDeviceHandleByIndex"
    )
    compute: Maybe[str] = seen(
        "`default`, `exclusive_thread`, `prohibited`, `exclusive_process`", nvml="nvmlDeviceGetComputeMode"
    )
    persistence: Maybe[bool] = seen("persistence mode", nvml="nvmlDeviceGetPersistenceMode")
    virtualization: Maybe[str] = seen(
        "`none`, `passthrough`, `vgpu`, `host_vgpu`, `host_vsga`", nvml="nvmlDeviceGetVirtualizationMode"
    )
    addressing: Maybe[str] = seen("`none`, `hmm`, `ats`", nvml="nvmlDeviceGetAddressingMode")


class Process(Fact):
    """A process on the card as the driver reports it: the pid may be of another namespace."""

    pid: int
    kind: Literal["compute", "graphics", "mps"]
    used_bytes: Maybe[int]
    name: Maybe[str]


class Link(Fact):
    """One NVLink (or xGMI link) as seen from this card.

    A few CRC data errors are the normal state: a healthy pair of H200s showed 4 to 25 on every link (2026-11-30).
    """

    index: int
    active: Maybe[bool] = seen("state", nvml="nvmlDeviceGetNvLinkState")
    version: Maybe[str] = seen("`3.0`, `4.0`, `5.0`", nvml="nvmlDeviceGetNvLinkVersion")
    speed_mb_per_s: Maybe[int] = seen(
        "raw rate one way, 10^6 bytes/s",
        nvml="field NVML_FI_DEV_NVLINK_GET_SPEED (164) or _SPEED_MBPS_COMMON (90)",
    )
    remote_kind: Maybe[str] = seen(
        "`gpu`, `ibmnpu`, `switch`, `unknown`", nvml="nvmlDeviceGetNvLinkRemoteDeviceType"
    )
    remote_pci_address: Maybe[str] = seen("far end", nvml="nvmlDeviceGetNvLinkRemotePciInfo_v2")
    replay_errors: Maybe[int] = seen("DL replay", nvml="nvmlDeviceGetNvLinkErrorCounter, DL_REPLAY")
    recovery_errors: Maybe[int] = seen(
        "DL recovery; link recovery events from NVLink 5 on",
        nvml="nvmlDeviceGetNvLinkErrorCounter, DL_RECOVERY, or field NVLINK_COUNT_LINK_RECOVERY_EVENTS (215)",
    )
    crc_flit_errors: Maybe[int] = seen("CRC flit", nvml="nvmlDeviceGetNvLinkErrorCounter, DL_CRC_FLIT")
    crc_data_errors: Maybe[int] = seen("CRC data", nvml="nvmlDeviceGetNvLinkErrorCounter, DL_CRC_DATA")
    effective_errors: Maybe[int] = seen(
        "errors left after forward error correction (NVLink 5)",
        nvml="field NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS (219)",
    )


class Fabric(Fact):
    """Membership of an NVSwitch fabric (`nvmlDeviceGetGpuFabricInfoV`)."""

    state: Maybe[str] = seen(
        "`not_supported`, `not_started`, `in_progress`, `completed`",
        nvml="nvmlDeviceGetGpuFabricInfoV, state",
    )
    status: Maybe[str] = seen("`success`, or the NVML error", nvml="nvmlDeviceGetGpuFabricInfoV, status")
    health: Maybe[str] = seen(
        "`healthy`, `unhealthy`, `limited_capacity`", nvml="nvmlDeviceGetGpuFabricInfoV, healthSummary"
    )
    health_problems: Maybe[tuple[str, ...]] = seen(
        "`degraded_bandwidth`, `route_recovery`, `route_unhealthy`, `access_timeout_recovery`, "
        "`incorrect_configuration`",
        nvml="nvmlDeviceGetGpuFabricInfoV, healthMask",
    )
    clique_id: Maybe[int] = seen("clique", nvml="nvmlDeviceGetGpuFabricInfoV, cliqueId")
    cluster_uuid: Maybe[str] = seen("cluster", nvml="nvmlDeviceGetGpuFabricInfoV, clusterUuid")


class Card(Fact):
    """One card. Joined with other sources on `uuid` or `pci_address`, never on `index`."""

    vendor: Vendor
    source: str
    """Which source the card was read from: `nvml`, later `amdsmi`, `nvidia-smi -q -x`, …"""
    index: int
    """The source's own number for the card. For display only: CUDA may number the cards otherwise."""
    usable: Maybe[bool] = seen(
        "the driver hands out the device (False: listed, but not to be opened, lost, or in need of a reset)",
        nvml="nvmlDeviceGetHandleByIndex_v2",
    )
    lost: Maybe[bool] = seen(
        "the driver has lost the device: it fell off the bus", nvml="NVML_ERROR_GPU_IS_LOST, from any call"
    )
    pci_address: Maybe[str] = seen("`0000:1b:00.0`, lower case", nvml="nvmlDeviceGetPciInfo_v3, busId")
    uuid: Maybe[str] = seen("`GPU-…`", nvml="nvmlDeviceGetUUID")
    identity: Identity = Identity()
    memory: Memory = Memory()
    health: Health = Health()
    power: Power = Power()
    clocks: Clocks = Clocks()
    temperature: Temperature = Temperature()
    pcie: Pcie = Pcie()
    modes: Modes = Modes()
    fabric: Fabric = Fabric()
    links: Maybe[tuple[Link, ...]] = seen(
        "NVLinks that the card has", nvml="field NVML_FI_DEV_NVLINK_LINK_COUNT (91)"
    )
    processes: Maybe[tuple[Process, ...]] = seen(
        "processes that can be seen from here", nvml="nvmlDeviceGetComputeRunningProcesses_v3 and Graphics"
    )
    gpu_utilization_percent: Maybe[int] = seen(
        "busy over the last sample", nvml="nvmlDeviceGetUtilizationRates, gpu"
    )
    cpu_affinity: Maybe[str] = seen("CPUs near the card, `0-31,64-95`", nvml="nvmlDeviceGetCpuAffinity")
    memory_affinity: Maybe[str] = seen(
        "NUMA nodes whose memory is near the card, `0`", nvml="nvmlDeviceGetMemoryAffinity, NODE"
    )
    numa_node: Maybe[int] = seen("NUMA node of the card's slot", linux="/sys/bus/pci/devices/*/numa_node")

    @property
    def key(self) -> str:
        """The name other facts use for this card: its UUID, else its PCI address, else its index."""
        if known(self.uuid):
            return self.uuid
        if known(self.pci_address):
            return self.pci_address
        return f"card {self.index}"

    @property
    def short_name(self) -> str:
        """What people call it within one node: `GPU 3`."""
        return f"GPU {self.index}"

    @property
    def label(self) -> str:
        """The name with the address that tells it from others: `GPU 3 (0000:9b:00.0)`."""
        return f"{self.short_name} ({self.pci_address})" if known(self.pci_address) else self.short_name

    @property
    def active_links(self) -> Maybe[int]:
        """How many NVLinks are up, or why that is not known. A link whose state is absent makes the count absent."""
        if isinstance(self.links, Absent):
            return self.links
        count = 0
        for link in self.links:
            if isinstance(link.active, Absent):
                return link.active
            count += link.active
        return count

"""What is known about one card. Units stand in the names; see `nodecheck.facts.base` for absent values."""

from __future__ import annotations

from typing import Literal

from nodecheck.facts.base import Absent, Fact, Gathered, Maybe, known, seen, seen_on_amd

Vendor = Literal["nvidia", "amd"]

BUSY_BYTES = 512 * 1024**2
"""More memory in use than this is somebody's: one CUDA context takes 527 MiB on an H200 with driver 580, and what an
idle driver keeps for itself is not counted in `used_bytes`."""
BUSY_PERCENT = 10
"""A card that is busy for so much of the time has a job; a display server stays below."""


class Identity(Fact):
    """What the card says it is."""

    name: Maybe[str] = seen(
        "product name",
        nvml="nvmlDeviceGetName",
        amd_smi="static, asic.market_name",
        amdsmi="amdsmi_get_gpu_asic_info, market_name",
        rocm_smi="Card Series",
    )
    pci_id: Maybe[str] = seen(
        "vendor and device id, `10de:2335`, lower case",
        nvml="nvmlDeviceGetPciInfo_v3, pciDeviceId",
        sysfs="/sys/bus/pci/devices/*/vendor, device",
    )
    pci_subsystem: Maybe[str] = seen(
        "subsystem vendor and device id, `10de:18be`",
        nvml="nvmlDeviceGetPciInfo_v3, pciSubSystemId",
        sysfs="/sys/bus/pci/devices/*/subsystem_vendor, subsystem_device",
    )
    serial: Maybe[str] = seen(
        "board serial number",
        nvml="nvmlDeviceGetSerial",
        sysfs="/sys/class/drm/card*/device/serial_number",
        amd_smi="static, board.product_serial",
        amdsmi="amdsmi_get_gpu_board_info, product_serial",
    )
    board_part: Maybe[str] = seen(
        "board part number",
        nvml="nvmlDeviceGetBoardPartNumber",
        sysfs="/sys/class/drm/card*/device/product_number",
        amd_smi="static, board.model_number",
        amdsmi="amdsmi_get_gpu_board_info, model_number",
    )
    vbios: Maybe[str] = seen(
        "VBIOS version",
        nvml="nvmlDeviceGetVbiosVersion",
        sysfs="/sys/class/drm/card*/device/vbios_version",
        amd_smi="static, ifwi.part_number or vbios.part_number",
        amdsmi="amdsmi_get_gpu_vbios_info, part_number",
        rocm_smi="VBIOS version",
    )
    inforom_image: Maybe[str] = seen("InfoROM image version", nvml="nvmlDeviceGetInforomImageVersion")
    inforom_valid: Maybe[bool] = seen("InfoROM checksum is right", nvml="nvmlDeviceValidateInforom")
    gsp_firmware: Maybe[str] = seen("GSP firmware version", nvml="nvmlDeviceGetGspFirmwareVersion")
    architecture: Maybe[str] = seen(
        "architecture, lower case: `hopper`, `blackwell`",
        nvml="nvmlDeviceGetArchitecture",
        sysfs="/sys/class/kfd/kfd/topology/nodes/*/properties, gfx_target_version",
        amd_smi="static, asic.target_graphics_version",
        amdsmi="amdsmi_get_gpu_asic_info, target_graphics_version",
    )
    compute_capability: Maybe[str] = seen(
        "`9.0`",
        nvml="nvmlDeviceGetCudaComputeCapability",
        sysfs="/sys/class/kfd/kfd/topology/nodes/*/properties, gfx_target_version",
        amd_smi="static, asic.target_graphics_version",
        amdsmi="amdsmi_get_gpu_asic_info, target_graphics_version",
    )
    cores: Maybe[int] = seen("CUDA cores", nvml="nvmlDeviceGetNumGpuCores")
    module_id: Maybe[int] = seen(
        "slot on the baseboard",
        nvml="nvmlDeviceGetModuleId",
        amd_smi="static, asic.oam_id",
        amdsmi="amdsmi_get_gpu_asic_info, oam_id",
    )
    minor: Maybe[int] = seen("N of /dev/nvidiaN", nvml="nvmlDeviceGetMinorNumber")
    gfx: Maybe[str] = seen_on_amd(
        "the name compilers use, `gfx942`",
        sysfs="/sys/class/kfd/kfd/topology/nodes/*/properties, gfx_target_version",
        amd_smi="static, asic.target_graphics_version",
        amdsmi="amdsmi_get_gpu_asic_info, target_graphics_version",
    )
    compute_units: Maybe[int] = seen_on_amd(
        "compute units of the device, or of the partition",
        sysfs="/sys/class/kfd/kfd/topology/nodes/*/properties, simd_count / simd_per_cu",
        amd_smi="static, asic.num_compute_units",
        amdsmi="amdsmi_get_gpu_asic_info, num_compute_units",
    )
    ifwi_version: Maybe[str] = seen_on_amd(
        "version of the VBIOS, which is called IFWI from ROCm 7.1 on",
        amd_smi="static, ifwi.version or vbios.version",
        amdsmi="amdsmi_get_gpu_vbios_info, version",
    )
    firmware_bundle: Maybe[str] = seen_on_amd(
        "version of the bundle that all firmware of the board comes from",
        amd_smi="firmware, PLDM_BUNDLE",
        amdsmi="amdsmi_get_fw_info, PLDM_BUNDLE",
    )
    render_minor: Maybe[int] = seen_on_amd(
        "N of /dev/dri/renderDN", sysfs="/sys/class/kfd/kfd/topology/nodes/*/properties, drm_render_minor"
    )


class Memory(Fact):
    """Device memory. `used_bytes` leaves out what the driver reserves for itself."""

    total_bytes: Maybe[int] = seen(
        "all memory",
        nvml="nvmlDeviceGetMemoryInfo v2, total",
        sysfs="/sys/class/drm/card*/device/mem_info_vram_total, or KFD's mem_banks/*/properties",
        amd_smi="static, vram.size",
        amdsmi="amdsmi_get_gpu_memory_total, VRAM",
        rocm_smi="VRAM Total Memory (B)",
    )
    reserved_bytes: Maybe[int] = seen("kept by the driver", nvml="nvmlDeviceGetMemoryInfo v2, reserved")
    used_bytes: Maybe[int] = seen(
        "in use by programs",
        nvml="nvmlDeviceGetMemoryInfo v2, used",
        sysfs="/sys/class/drm/card*/device/mem_info_vram_used",
        amd_smi="metric, mem_usage.used_vram",
        amdsmi="amdsmi_get_gpu_memory_usage, VRAM",
        rocm_smi="VRAM Total Used Memory (B)",
    )
    free_bytes: Maybe[int] = seen(
        "free",
        nvml="nvmlDeviceGetMemoryInfo v2, free",
        sysfs="/sys/class/drm/card*/device/mem_info_vram_total less mem_info_vram_used",
    )
    bar1_total_bytes: Maybe[int] = seen(
        "BAR1 aperture",
        nvml="nvmlDeviceGetBAR1MemoryInfo, bar1Total",
        sysfs="/sys/class/drm/card*/device/mem_info_vis_vram_total",
    )
    bus_width_bits: Maybe[int] = seen(
        "memory bus width",
        nvml="nvmlDeviceGetMemoryBusWidth",
        sysfs="/sys/class/kfd/kfd/topology/nodes/*/mem_banks/*/properties, width",
        amd_smi="static, vram.bit_width",
        amdsmi="amdsmi_get_gpu_vram_info, vram_bit_width",
    )
    unexplained_bytes: Maybe[int] = seen(
        "in use, and held by no process that can be seen from here",
        nvml="nvmlDeviceGetMemoryInfo v2, used, less nvmlDeviceGetComputeRunningProcesses_v3 and Graphics",
        sysfs="mem_info_vram_used, less what KFD says of the processes",
    )
    kind: Maybe[str] = seen_on_amd(
        "`HBM3`", amd_smi="static, vram.type", amdsmi="amdsmi_get_gpu_vram_info, vram_type"
    )


class EccCounts(Fact):
    """Error counts since the last driver load (volatile) or over the card's life (aggregate)."""

    corrected: Maybe[int] = seen(
        "all corrected",
        nvml="nvmlDeviceGetTotalEccErrors, corrected",
        sysfs="sum over /sys/class/drm/card*/device/ras/*_err_count",
        amd_smi="metric, ecc.total_correctable_count",
        amdsmi="amdsmi_get_gpu_total_ecc_count, correctable_count",
    )
    uncorrected: Maybe[int] = seen(
        "all uncorrected",
        nvml="nvmlDeviceGetTotalEccErrors, uncorrected",
        sysfs="sum over /sys/class/drm/card*/device/ras/*_err_count",
        amd_smi="metric, ecc.total_uncorrectable_count",
        amdsmi="amdsmi_get_gpu_total_ecc_count, uncorrectable_count",
    )
    sram_corrected: Maybe[int] = seen("SRAM, corrected", nvml="nvmlDeviceGetMemoryErrorCounter, SRAM")
    sram_uncorrected: Maybe[int] = seen("SRAM, uncorrected", nvml="nvmlDeviceGetMemoryErrorCounter, SRAM")
    dram_corrected: Maybe[int] = seen(
        "DRAM, corrected",
        nvml="nvmlDeviceGetMemoryErrorCounter, DRAM",
        sysfs="/sys/class/drm/card*/device/ras/umc_err_count, ce",
        amd_smi="metric, ecc_blocks.UMC",
        amdsmi="amdsmi_get_gpu_ecc_count, UMC",
    )
    dram_uncorrected: Maybe[int] = seen(
        "DRAM, uncorrected",
        nvml="nvmlDeviceGetMemoryErrorCounter, DRAM",
        sysfs="/sys/class/drm/card*/device/ras/umc_err_count, ue",
        amd_smi="metric, ecc_blocks.UMC",
        amdsmi="amdsmi_get_gpu_ecc_count, UMC",
    )
    deferred: Maybe[int] = seen_on_amd(
        "found, and not yet consumed by any program",
        sysfs="sum over /sys/class/drm/card*/device/ras/*_err_count",
        amd_smi="metric, ecc.total_deferred_count",
        amdsmi="amdsmi_get_gpu_total_ecc_count, deferred_count",
    )


class EccBlock(Fact):
    """Errors of one block of an AMD card since the driver was loaded. XGMI_WAFL is the xGMI links: on MI300 their
    errors are counted nowhere else."""

    name: str
    """`UMC` (memory), `GFX`, `SDMA`, `MMHUB`, `XGMI_WAFL`, … as the driver's RAS calls them, upper case."""
    corrected: Maybe[int] = seen_on_amd(
        "corrected",
        sysfs="/sys/class/drm/card*/device/ras/*_err_count, ce",
        amd_smi="metric, ecc_blocks.*",
        amdsmi="amdsmi_get_gpu_ecc_count",
    )
    uncorrected: Maybe[int] = seen_on_amd(
        "uncorrected",
        sysfs="/sys/class/drm/card*/device/ras/*_err_count, ue",
        amd_smi="metric, ecc_blocks.*",
        amdsmi="amdsmi_get_gpu_ecc_count",
    )
    deferred: Maybe[int] = seen_on_amd(
        "deferred",
        sysfs="/sys/class/drm/card*/device/ras/*_err_count, de",
        amd_smi="metric, ecc_blocks.*",
        amdsmi="amdsmi_get_gpu_ecc_count",
    )


class BankHistogram(Fact):
    """How many memory banks still have all, many, some, few or no spare rows (`nvmlDeviceGetRowRemapperHistogram`)."""

    max: int
    high: int
    partial: int
    low: int
    none: int


class Health(Fact):
    """Memory errors, repairs and what the driver itself asks for."""

    ecc_enabled: Maybe[bool] = seen(
        "ECC is on",
        nvml="nvmlDeviceGetEccMode, current",
        sysfs="/sys/class/drm/card*/device/ras/features",
        amd_smi="static, ras.ecc_block_state",
        amdsmi="amdsmi_get_gpu_ecc_enabled",
    )
    ecc_enabled_after_reset: Maybe[bool] = seen(
        "ECC after the next reset", nvml="nvmlDeviceGetEccMode, pending"
    )
    ecc_volatile: Maybe[EccCounts] = seen(
        "since the driver was loaded",
        nvml="volatile counters",
        sysfs="/sys/class/drm/card*/device/ras/*_err_count",
        amd_smi="metric, ecc",
        amdsmi="amdsmi_get_gpu_total_ecc_count",
    )
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
    ecc_blocks: Maybe[tuple[EccBlock, ...]] = seen_on_amd(
        "errors by block, in the order of their names",
        sysfs="/sys/class/drm/card*/device/ras/*_err_count",
        amd_smi="metric, ecc_blocks",
        amdsmi="amdsmi_get_gpu_ecc_count",
    )
    bad_pages_retired: Maybe[int] = seen_on_amd(
        "pages taken out of use",
        sysfs="/sys/class/drm/card*/device/ras/gpu_vram_bad_pages, R",
        amd_smi="bad-pages, retired",
        amdsmi="amdsmi_get_gpu_bad_page_info, RESERVED",
    )
    bad_pages_pending: Maybe[int] = seen_on_amd(
        "pages that wait for a reset to be taken out of use",
        sysfs="/sys/class/drm/card*/device/ras/gpu_vram_bad_pages, P",
        amd_smi="bad-pages, pending",
        amdsmi="amdsmi_get_gpu_bad_page_info, PENDING",
    )
    bad_pages_unreservable: Maybe[int] = seen_on_amd(
        "pages that could not be taken out of use",
        sysfs="/sys/class/drm/card*/device/ras/gpu_vram_bad_pages, F",
        amd_smi="bad-pages, unreservable",
        amdsmi="amdsmi_get_gpu_bad_page_info, UNRESERVABLE",
    )
    bad_page_threshold: Maybe[int] = seen_on_amd(
        "pages at which the driver gives the card up",
        amd_smi="static, ras.bad_page_threshold",
        amdsmi="amdsmi_get_gpu_bad_page_threshold",
    )
    bad_page_threshold_exceeded: Maybe[bool] = seen_on_amd(
        "more bad pages than that", amd_smi="static, ras.bad_page_threshold_exceeded"
    )


class Power(Fact):
    limit_watts: Maybe[float] = seen(
        "enforced power limit",
        nvml="nvmlDeviceGetEnforcedPowerLimit",
        sysfs="/sys/class/drm/card*/device/hwmon/hwmon*/power1_cap",
        amd_smi="static, limit.(ppt0.)socket_power_limit or limit.socket_power",
        amdsmi="amdsmi_get_power_cap_info, power_cap",
        rocm_smi="Max Graphics Package Power (W)",
    )
    requested_limit_watts: Maybe[float] = seen("requested limit", nvml="nvmlDeviceGetPowerManagementLimit")
    default_limit_watts: Maybe[float] = seen(
        "the board's default",
        nvml="nvmlDeviceGetPowerManagementDefaultLimit",
        sysfs="/sys/class/drm/card*/device/hwmon/hwmon*/power1_cap_default",
        amdsmi="amdsmi_get_power_cap_info, default_power_cap",
    )
    min_limit_watts: Maybe[float] = seen(
        "lowest",
        nvml="nvmlDeviceGetPowerManagementLimitConstraints, min",
        sysfs="/sys/class/drm/card*/device/hwmon/hwmon*/power1_cap_min",
        amd_smi="static, limit.(ppt0.)min_power_limit",
        amdsmi="amdsmi_get_power_cap_info, min_power_cap",
    )
    max_limit_watts: Maybe[float] = seen(
        "highest",
        nvml="nvmlDeviceGetPowerManagementLimitConstraints, max",
        sysfs="/sys/class/drm/card*/device/hwmon/hwmon*/power1_cap_max",
        amd_smi="static, limit.(ppt0.)max_power_limit or limit.max_power",
        amdsmi="amdsmi_get_power_cap_info, max_power_cap",
    )
    draw_watts: Maybe[float] = seen(
        "draw now",
        nvml="nvmlDeviceGetPowerUsage",
        sysfs="/sys/class/drm/card*/device/hwmon/hwmon*/power1_input or power1_average",
        amd_smi="metric, power.socket_power",
        amdsmi="amdsmi_get_power_info, current_socket_power",
    )
    energy_joules: Maybe[float] = seen(
        "since the driver was loaded",
        nvml="nvmlDeviceGetTotalEnergyConsumption",
        amd_smi="metric, energy.total_energy_consumption",
    )


class Violations(Fact):
    """How long a limit has held the clocks down, since the driver was loaded (seconds)."""

    power_seconds: Maybe[float] = seen("power cap", nvml="nvmlDeviceGetViolationStatus, POWER")
    thermal_seconds: Maybe[float] = seen("heat", nvml="nvmlDeviceGetViolationStatus, THERMAL")
    board_limit_seconds: Maybe[float] = seen("board limit", nvml="nvmlDeviceGetViolationStatus, BOARD_LIMIT")
    reliability_seconds: Maybe[float] = seen("reliability", nvml="nvmlDeviceGetViolationStatus, RELIABILITY")


class Clocks(Fact):
    sm_mhz: Maybe[int] = seen(
        "SM clock now",
        nvml="nvmlDeviceGetClockInfo, SM",
        sysfs="/sys/class/drm/card*/device/hwmon/hwmon*/freq1_input (sclk)",
        amd_smi="metric, clock.gfx_0.clk",
        amdsmi="amdsmi_get_clock_info, GFX",
    )
    memory_mhz: Maybe[int] = seen(
        "memory clock now",
        nvml="nvmlDeviceGetClockInfo, MEM",
        sysfs="/sys/class/drm/card*/device/hwmon/hwmon*/freq2_input (mclk)",
        amd_smi="metric, clock.mem_0.clk",
        amdsmi="amdsmi_get_clock_info, MEM",
    )
    max_sm_mhz: Maybe[int] = seen(
        "highest SM clock",
        nvml="nvmlDeviceGetMaxClockInfo, SM",
        sysfs="/sys/class/drm/card*/device/pp_dpm_sclk, or KFD's max_engine_clk_fcompute",
        amd_smi="metric, clock.gfx_0.max_clk",
        amdsmi="amdsmi_get_clock_info, GFX",
    )
    max_memory_mhz: Maybe[int] = seen(
        "highest memory clock",
        nvml="nvmlDeviceGetMaxClockInfo, MEM",
        sysfs="/sys/class/drm/card*/device/pp_dpm_mclk",
        amd_smi="metric, clock.mem_0.max_clk",
        amdsmi="amdsmi_get_clock_info, MEM",
    )
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
        amd_smi="metric, throttle.*_violation_status",
        amdsmi="amdsmi_get_violation_status, active_*",
    )
    violations: Maybe[Violations] = seen("time under a limit", nvml="nvmlDeviceGetViolationStatus")
    performance_state: Maybe[int] = seen("P-state", nvml="nvmlDeviceGetPerformanceState")
    limited_percent: Maybe[tuple[tuple[str, float], ...]] = seen_on_amd(
        "(limit, share of the last sample in which it held the clocks down); the names are those of `event_reasons`",
        amd_smi="metric, throttle.*_violation_activity",
        amdsmi="amdsmi_get_violation_status, per_*",
    )
    performance_level: Maybe[str] = seen_on_amd(
        "who sets the clocks: `auto`, `low`, `high`, `manual`, `perf_determinism`, …",
        sysfs="/sys/class/drm/card*/device/power_dpm_force_performance_level",
        amd_smi="metric, perf_level",
    )


class Temperature(Fact):
    gpu_celsius: Maybe[int] = seen(
        "core",
        nvml="nvmlDeviceGetTemperatureV",
        sysfs="/sys/class/drm/card*/device/hwmon/hwmon*/temp2_input (junction)",
        amd_smi="metric, temperature.hotspot",
        amdsmi="amdsmi_get_temp_metric, HOTSPOT",
    )
    memory_celsius: Maybe[int] = seen(
        "HBM",
        nvml="field NVML_FI_DEV_MEMORY_TEMP (82)",
        sysfs="/sys/class/drm/card*/device/hwmon/hwmon*/temp3_input (mem)",
        amd_smi="metric, temperature.mem",
        amdsmi="amdsmi_get_temp_metric, VRAM",
    )
    margin_celsius: Maybe[int] = seen(
        "degrees left to the limit (T.Limit)", nvml="nvmlDeviceGetMarginTemperature"
    )
    slowdown_celsius: Maybe[int] = seen(
        "slowdown threshold",
        nvml="nvmlDeviceGetTemperatureThreshold, SLOWDOWN",
        sysfs="/sys/class/drm/card*/device/hwmon/hwmon*/temp2_crit",
    )
    shutdown_celsius: Maybe[int] = seen(
        "shutdown threshold",
        nvml="nvmlDeviceGetTemperatureThreshold, SHUTDOWN",
        sysfs="/sys/class/drm/card*/device/hwmon/hwmon*/temp2_emergency",
    )


class Pcie(Fact):
    """The host link. The generation falls when the card idles and says nothing then; the width does not."""

    generation: Maybe[int] = seen(
        "now",
        nvml="nvmlDeviceGetCurrPcieLinkGeneration",
        sysfs="/sys/bus/pci/devices/*/current_link_speed",
        amd_smi="metric, pcie.speed",
        amdsmi="amdsmi_get_pcie_info, pcie_speed",
    )
    width: Maybe[int] = seen(
        "lanes now",
        nvml="nvmlDeviceGetCurrPcieLinkWidth",
        sysfs="/sys/bus/pci/devices/*/current_link_width",
        amd_smi="metric, pcie.width",
        amdsmi="amdsmi_get_pcie_info, pcie_width",
    )
    max_generation: Maybe[int] = seen(
        "card and slot together",
        nvml="nvmlDeviceGetMaxPcieLinkGeneration",
        sysfs="/sys/bus/pci/devices/*/max_link_speed",
        amd_smi="static, bus.max_pcie_speed",
        amdsmi="amdsmi_get_pcie_info, max_pcie_speed",
    )
    max_width: Maybe[int] = seen(
        "card and slot together",
        nvml="nvmlDeviceGetMaxPcieLinkWidth",
        sysfs="/sys/bus/pci/devices/*/max_link_width",
        amd_smi="static, bus.max_pcie_width",
        amdsmi="amdsmi_get_pcie_info, max_pcie_width",
    )
    card_max_generation: Maybe[int] = seen("the card alone", nvml="nvmlDeviceGetGpuMaxPcieLinkGeneration")
    replays: Maybe[int] = seen(
        "replay counter",
        nvml="nvmlDeviceGetPcieReplayCounter",
        sysfs="/sys/class/drm/card*/device/pcie_replay_count",
        amd_smi="metric, pcie.replay_count",
        amdsmi="amdsmi_get_pcie_info, pcie_replay_count",
    )
    rollovers: Maybe[int] = seen_on_amd(
        "how often the replay counter ran over",
        amd_smi="metric, pcie.replay_roll_over_count",
        amdsmi="amdsmi_get_pcie_info, pcie_replay_roll_over_count",
    )
    recoveries: Maybe[int] = seen_on_amd(
        "times the link went from L0 to recovery",
        amd_smi="metric, pcie.l0_to_recovery_count",
        amdsmi="amdsmi_get_pcie_info, pcie_l0_to_recovery_count",
    )
    naks_sent: Maybe[int] = seen_on_amd(
        "packets refused by the card",
        amd_smi="metric, pcie.nak_sent_count",
        amdsmi="amdsmi_get_pcie_info, pcie_nak_sent_count",
    )
    naks_received: Maybe[int] = seen_on_amd(
        "packets of the card that were refused",
        amd_smi="metric, pcie.nak_received_count",
        amdsmi="amdsmi_get_pcie_info, pcie_nak_received_count",
    )


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
        "`none`, `passthrough`, `vgpu`, `host_vgpu`, `host_vsga`; of AMD cards also `virtual_function` (a guest's part "
        "of a card by SR-IOV) and `host`",
        nvml="nvmlDeviceGetVirtualizationMode",
        sysfs="device id and hypervisor flag",
        amdsmi="amdsmi_get_gpu_virtualization_mode",
    )
    addressing: Maybe[str] = seen("`none`, `hmm`, `ats`", nvml="nvmlDeviceGetAddressingMode")
    compute_partition: Maybe[str] = seen_on_amd(
        "how the package is split into devices: `SPX` (not), `DPX`, `TPX`, `QPX`, `CPX`",
        sysfs="/sys/class/drm/card*/device/current_compute_partition",
        amd_smi="static or partition, (accelerator_)partition",
        amdsmi="amdsmi_get_gpu_compute_partition",
    )
    memory_partition: Maybe[str] = seen_on_amd(
        "how its memory is split: `NPS1` (not), `NPS2`, `NPS4`, `NPS8`",
        sysfs="/sys/class/drm/card*/device/current_memory_partition",
        amd_smi="static or partition, memory_partition",
        amdsmi="amdsmi_get_gpu_memory_partition",
    )


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
    active: Maybe[bool] = seen(
        "state",
        nvml="nvmlDeviceGetNvLinkState",
        amd_smi="xgmi, link_status",
        amdsmi="amdsmi_get_gpu_xgmi_link_status",
    )
    version: Maybe[str] = seen("`3.0`, `4.0`, `5.0`", nvml="nvmlDeviceGetNvLinkVersion")
    speed_mb_per_s: Maybe[int] = seen(
        "raw rate one way, 10^6 bytes/s",
        nvml="field NVML_FI_DEV_NVLINK_GET_SPEED (164) or _SPEED_MBPS_COMMON (90)",
        sysfs="/sys/class/kfd/kfd/topology/nodes/*/io_links/*/properties, max_bandwidth",
    )
    remote_kind: Maybe[str] = seen(
        "`gpu`, `ibmnpu`, `switch`, `unknown`",
        nvml="nvmlDeviceGetNvLinkRemoteDeviceType",
        sysfs="/sys/class/kfd/kfd/topology/nodes/*/io_links/*/properties, node_to",
    )
    remote_pci_address: Maybe[str] = seen(
        "far end",
        nvml="nvmlDeviceGetNvLinkRemotePciInfo_v2",
        sysfs="/sys/class/kfd/kfd/topology/nodes/*/io_links/*/properties, node_to",
    )
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


class Card(Gathered):
    """One card: what the programs of the renter count as a device. Joined with other sources on `uuid` or
    `pci_address`, never on `index`.

    Of AMD's, each of the two dies (GCDs) of an MI250 is a card, and so is each partition of a package in DPX, QPX or
    CPX mode; `package` says which of them sit together.
    """

    vendor: Vendor
    source: str
    """Which source the card was read from: `nvml`; `sysfs`, `amd_smi`, `amdsmi` or `rocm_smi` for AMD's cards; the
    command whose output was imported, `nvidia-smi -q -x`."""
    index: int
    """The source's own number for the card. For display only: CUDA may number the cards otherwise."""
    usable: Maybe[bool] = seen(
        "the driver hands out the device (False: listed, but not to be opened, lost, or in need of a reset)",
        nvml="nvmlDeviceGetHandleByIndex_v2",
        sysfs="/sys/class/kfd/kfd/topology/nodes/*/gpu_id, and access to /dev/kfd and the render node",
    )
    lost: Maybe[bool] = seen(
        "the driver has lost the device: it fell off the bus",
        nvml="NVML_ERROR_GPU_IS_LOST, from any call",
        sysfs="/sys/bus/pci/devices/*/config reads as all ones",
    )
    pci_address: Maybe[str] = seen(
        "`0000:1b:00.0`, lower case", nvml="nvmlDeviceGetPciInfo_v3, busId", sysfs="/sys/bus/pci/devices/*"
    )
    uuid: Maybe[str] = seen(
        "`GPU-…`",
        nvml="nvmlDeviceGetUUID",
        sysfs="/sys/class/kfd/kfd/topology/nodes/*/properties, unique_id",
        amd_smi="list, uuid",
        amdsmi="amdsmi_get_gpu_enumeration_info, hip_uuid",
        rocm_smi="Unique ID",
    )
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
        "NVLinks that the card has",
        nvml="field NVML_FI_DEV_NVLINK_LINK_COUNT (91)",
        sysfs="/sys/class/kfd/kfd/topology/nodes/*/io_links/*/properties, type 11",
    )
    processes: Maybe[tuple[Process, ...]] = seen(
        "processes that can be seen from here",
        nvml="nvmlDeviceGetComputeRunningProcesses_v3 and Graphics",
        sysfs="/sys/class/kfd/kfd/proc/*/vram_*",
        amd_smi="process",
        amdsmi="amdsmi_get_gpu_process_list",
    )
    gpu_utilization_percent: Maybe[int] = seen(
        "busy over the last sample",
        nvml="nvmlDeviceGetUtilizationRates, gpu",
        sysfs="/sys/class/drm/card*/device/gpu_busy_percent",
        amd_smi="metric, usage.gfx_activity",
        amdsmi="amdsmi_get_gpu_activity, gfx_activity",
    )
    cpu_affinity: Maybe[str] = seen(
        "CPUs near the card, `0-31,64-95`",
        nvml="nvmlDeviceGetCpuAffinity",
        sysfs="/sys/bus/pci/devices/*/local_cpulist",
    )
    memory_affinity: Maybe[str] = seen(
        "NUMA nodes whose memory is near the card, `0`",
        nvml="nvmlDeviceGetMemoryAffinity, NODE",
        sysfs="/sys/bus/pci/devices/*/numa_node",
    )
    numa_node: Maybe[int] = seen(
        "NUMA node of the card's slot",
        linux="/sys/bus/pci/devices/*/numa_node",
        sysfs="/sys/bus/pci/devices/*/numa_node",
    )

    package: Maybe[str] = seen_on_amd(
        "cards of which this is the same are dies or partitions of one package",
        sysfs="the PCI address of the package's first card: KFD's location_id, domain and io_links",
    )
    partition: Maybe[int] = seen_on_amd(
        "number of this partition of the package, 0 where it is not split",
        sysfs="/sys/class/kfd/kfd/topology/nodes/*/properties, location_id",
        amd_smi="list, partition_id",
    )
    hive: Maybe[str] = seen_on_amd(
        "cards of which this is the same are joined by xGMI, `0x…`; `0x0` where the card is in none",
        sysfs="/sys/class/kfd/kfd/topology/nodes/*/properties, hive_id",
        amdsmi="amdsmi_get_xgmi_info, xgmi_hive_id",
    )

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

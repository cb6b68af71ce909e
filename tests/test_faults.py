"""What is broken is found: faults planted at a node's real boundaries, and the finding that each must lead to.

Every case goes the whole way: the stand-in below the real pynvml in its child, files below a folder, the sources,
the probes, the judge with the shipped profile.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from nodecheck.judge import BROKEN_RULE, Cause, Status, Verdict, judge
from nodecheck.profile import load
from tests.fakes import nvml
from tests.fakes.faults import (
    DENIED,
    TIMED_OUT,
    Plant,
    both,
    context,
    cuda_init,
    driver,
    ended,
    environment,
    fabric,
    fewer_devices,
    field,
    file,
    files,
    impatient,
    import_hangs,
    kernels_fail,
    limits,
    log,
    lost,
    memory,
    no_interpreter,
    no_links,
    no_torch,
    occupied,
    of_device,
    on_every_card,
    on_every_link,
    package,
    parameters,
    port_down,
    process,
    program,
    torch,
    unlinked,
    without,
    wrong_sum,
)
from tests.fakes.node import healthy, output
from tests.fakes.nvml import CRASH, DEAF, HANG, code
from tests.fakes.tree import GIB, Ground, Kind, configuration, limit_cgroup

pytestmark = pytest.mark.skipif(not nvml.compiler(), reason="no C compiler here")

FAIL, WARN, UNKNOWN = Status.fail, Status.warn, Status.unknown
NOT_AS_RENTED, FAULTY, MISCONFIGURED, NOT_VISIBLE = (
    Cause.not_as_rented,
    Cause.faulty,
    Cause.misconfigured,
    Cause.not_visible,
)
REJECTED, INCOMPLETE = Verdict.rejected, Verdict.incomplete
WARNED, ACCEPTED = Verdict.accepted_with_warnings, Verdict.accepted


@dataclass(frozen=True)
class Fault:
    name: str
    plant: Plant
    finding: str
    status: Status
    cause: Cause
    verdict: Verdict
    card: int | None = None
    """The card that the finding must name, where it is about one."""
    profile: str = "h200x4"
    kind: Kind = "bare"
    also: tuple[str, ...] = ()
    """What else is rightly found, beside the finding, its root and what follows from either."""


CUDA_802 = (802, "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized")
CUDA_803 = (
    803,
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
    "system has unsupported display driver / cuda driver combination",
)
CUDA_46 = (46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable")
NO_MODULE = {
    "type": "ModuleNotFoundError",
    "message": "No module named 'torch'",
    "code": None,
    "missing": True,
}
BROKEN_IMPORT = {
    "type": "ImportError",
    "message": "libcudnn.so.9: cannot open shared object file",
    "code": None,
    "missing": False,
}
OLD_DRIVER = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.82.01  Wed Oct 27 21:21:55 UTC 2021\n"
EXCLUDED = f"{nvml.pci_info('0000:5d:00.0', 0x233510DE, 0x18BE10DE)} {nvml.uuid(3)}"
NARROW = nvml.WELL & ~0b11 | 0b01
"""`healthMask` of a fabric with less bandwidth than it should have."""

DRIVER = [
    Fault("library and kernel module of two versions", driver("nvmlInitWithFlags", code(18)),
          "cards.listed", FAIL, MISCONFIGURED, REJECTED),
    Fault("driver not loaded", driver("nvmlInitWithFlags", code(9)),
          "cards.listed", FAIL, MISCONFIGURED, REJECTED),
    Fault("driver refuses this user", driver("nvmlInitWithFlags", code(4)),
          "cards.listed", FAIL, MISCONFIGURED, REJECTED),
    Fault("driver's library missing", driver("nvmlInitWithFlags", code(12)),
          "cards.listed", FAIL, MISCONFIGURED, REJECTED),
    Fault("container lost its devices", driver("nvmlInitWithFlags", code(999)),
          "cards.listed", FAIL, MISCONFIGURED, REJECTED, kind="container"),
    Fault("start hangs", both(impatient(0.7), driver("nvmlInitWithFlags", HANG)),
          "cards.listed", FAIL, FAULTY, REJECTED),
    Fault("start crashes", driver("nvmlInitWithFlags", CRASH), "cards.listed", FAIL, FAULTY, REJECTED),
    Fault("no card listed", driver("nvmlDeviceGetCount_v2", "0"),
          "cards.listed", FAIL, NOT_AS_RENTED, REJECTED),
]  # fmt: skip

COUNT = [
    Fault("a card lost to the driver", driver("nvmlDeviceGetCount_v2", "3"),
          "cards.count", FAIL, FAULTY, REJECTED),
    Fault("the bus has more than the driver", driver("nvmlDeviceGetCount_v2", "3"),
          "cards.count.agreement", FAIL, FAULTY, REJECTED),
    Fault("a card too few",
          both(driver("nvmlDeviceGetCount_v2", "3"), without("/sys/bus/pci/devices/0000:5d:00.0"),
               without("/proc/driver/nvidia/gpus/0000:5d:00.0")),
          "cards.count", FAIL, NOT_AS_RENTED, REJECTED),
    Fault("a smaller bundle than named", driver("nvmlDeviceGetCount_v2", "2"),
          "cards.count", FAIL, FAULTY, REJECTED),
    Fault("a card excluded by the driver's options",
          both(driver("nvmlDeviceGetCount_v2", "3"), driver("nvmlGetExcludedDeviceCount", "1"),
               driver("nvmlGetExcludedDeviceInfoByIndex 0", EXCLUDED)),
          "cards.excluded", FAIL, NOT_AS_RENTED, REJECTED),
    Fault("one card listed twice",
          both(driver("nvmlDeviceGetUUID 3", nvml.uuid(2)),
               lambda node: node.nvml.update({"nvmlDeviceGetPciInfo_v3 3": node.nvml["nvmlDeviceGetPciInfo_v3 2"]})),
          "cards.duplicate", FAIL, NOT_AS_RENTED, REJECTED),
    Fault("CUDA_VISIBLE_DEVICES hides cards", both(environment(CUDA_VISIBLE_DEVICES="0,1"), fewer_devices(2)),
          "cards.hidden_by_environment", WARN, MISCONFIGURED, INCOMPLETE),
    Fault("torch sees fewer cards", fewer_devices(3), "stack.torch.devices", FAIL, FAULTY, REJECTED),
    Fault("torch counts otherwise than its runtime", torch(device_count=0, devices=[]), "stack.torch.devices", FAIL,
          MISCONFIGURED, REJECTED),
]  # fmt: skip

USE = [
    Fault("card lost", lost(2), "cards.usable", FAIL, FAULTY, REJECTED, 2),
    Fault("card lost at its handle", driver("nvmlDeviceGetHandleByIndex_v2 1", code(15)),
          "cards.usable", FAIL, FAULTY, REJECTED, 1),
    Fault("card not for this user", driver("nvmlDeviceGetHandleByIndex_v2 1", code(4)),
          "cards.usable", FAIL, MISCONFIGURED, REJECTED, 1),
    Fault("one card of two not for this user", driver("nvmlDeviceGetHandleByIndex_v2 1", code(4)),
          "cards.usable", FAIL, MISCONFIGURED, REJECTED, 1, profile="h200x2"),
    Fault("card wants a reset", driver("* 3", code(16)), "cards.usable", FAIL, FAULTY, REJECTED, 3),
    Fault("a call hangs", both(impatient(0.7), driver("nvmlDeviceGetPowerUsage 1", HANG)),
          "health.responsive", FAIL, FAULTY, REJECTED, 1),
    Fault("a call hangs and minds no signal", both(impatient(0.7), driver("nvmlDeviceGetEccMode 2", DEAF)),
          "health.responsive", FAIL, FAULTY, REJECTED, 2),
    Fault("a call crashes the driver's library", driver("nvmlDeviceGetRemappedRows 0", CRASH),
          "health.responsive", FAIL, FAULTY, REJECTED, 0),
    Fault("a card hangs at its handle", both(impatient(0.7), driver("nvmlDeviceGetHandleByIndex_v2 3", HANG)),
          "cards.usable", FAIL, FAULTY, REJECTED, 3),
    Fault("the driver keeps much of the memory", memory(2, 143771, 6000),
          "cards.memory.reserved", WARN, NOT_AS_RENTED, WARNED, 2),
    Fault("foreign memory in use", occupied(1, 40),
          "cards.memory.unexplained", WARN, NOT_AS_RENTED, WARNED, 1),
    Fault("a program of one's own in use",
          both(occupied(1, 8), driver("nvmlDeviceGetComputeRunningProcesses_v3 1", nvml.process(4711, 8 * GIB))),
          "cards.processes", WARN, MISCONFIGURED, WARNED, 1),
    Fault("card busy", driver("nvmlDeviceGetUtilizationRates 0", "97 40"),
          "cards.idle", WARN, MISCONFIGURED, WARNED, 0),
    Fault("exclusive mode", driver("nvmlDeviceGetComputeMode 0", "3"),
          "cards.compute_mode", WARN, MISCONFIGURED, WARNED, 0),
    Fault("prohibited mode", driver("nvmlDeviceGetComputeMode 0", "2"),
          "cards.compute_mode", FAIL, MISCONFIGURED, REJECTED, 0),
    Fault("MIG on", on_every_card("nvmlDeviceGetMigMode", "1 1"),
          "cards.mig", FAIL, NOT_AS_RENTED, REJECTED, 3),
    Fault("MIG on after the next reset", driver("nvmlDeviceGetMigMode 0", "0 1"),
          "cards.mig", WARN, NOT_AS_RENTED, WARNED, 0),
    Fault("a share of a card", on_every_card("nvmlDeviceGetVirtualizationMode", "2"),
          "cards.virtualization", FAIL, NOT_AS_RENTED, REJECTED, 0, kind="guest"),
]  # fmt: skip

IDENTITY = [
    Fault("another model", driver("nvmlDeviceGetName 0", "NVIDIA H100 80GB HBM3"),
          "cards.model", FAIL, NOT_AS_RENTED, REJECTED, 0),
    Fault("another PCI id",
          driver("nvmlDeviceGetPciInfo_v3 0", nvml.pci_info("0000:18:00.0", 0x233010DE, 0x16C110DE)),
          "cards.pci_id", FAIL, NOT_AS_RENTED, REJECTED, 0),
    Fault("another generation", driver("nvmlDeviceGetArchitecture 2", "8"),
          "cards.architecture", FAIL, NOT_AS_RENTED, REJECTED, 2),
    Fault("another compute capability", driver("nvmlDeviceGetCudaComputeCapability 2", "8 9"),
          "cards.compute_capability", FAIL, NOT_AS_RENTED, REJECTED, 2),
    Fault("cores missing", driver("nvmlDeviceGetNumGpuCores 2", "14592"),
          "cards.cores", FAIL, NOT_AS_RENTED, REJECTED, 2),
    Fault("memory missing", memory(3, 81559), "cards.memory.total", FAIL, NOT_AS_RENTED, REJECTED, 3),
    Fault("a narrow memory bus", driver("nvmlDeviceGetMemoryBusWidth 3", "5120"),
          "cards.memory.bus_width", FAIL, NOT_AS_RENTED, REJECTED, 3),
    Fault("right name on another card", memory(3, 81559), "cards.identity", FAIL, NOT_AS_RENTED, REJECTED, 3),
    Fault("one card unlike the others", memory(3, 143275),
          "cards.uniform", WARN, NOT_AS_RENTED, WARNED),
    Fault("power capped", driver("nvmlDeviceGetEnforcedPowerLimit 1", "500000"),
          "cards.power_limit", FAIL, NOT_AS_RENTED, REJECTED, 1),
    Fault("highest clock far below the product's", driver("nvmlDeviceGetMaxClockInfo 1 1", "1410"),
          "cards.clocks.max", FAIL, NOT_AS_RENTED, REJECTED, 1),
    Fault("highest clock below the product's", driver("nvmlDeviceGetMaxClockInfo 1 2", "3000"),
          "cards.clocks.max", WARN, NOT_AS_RENTED, WARNED, 1),
    Fault("application clocks set down", driver("nvmlDeviceGetApplicationsClock 0 1", "1200"),
          "cards.clocks.application", WARN, MISCONFIGURED, WARNED, 0),
]  # fmt: skip

CONDITION = [
    Fault("hardware slowdown", driver("nvmlDeviceGetCurrentClocksEventReasons 2", "8"),
          "cards.clocks.event_reasons", FAIL, FAULTY, REJECTED, 2),
    Fault("power brake", driver("nvmlDeviceGetCurrentClocksEventReasons 2", str(0x80)),
          "cards.clocks.event_reasons", FAIL, FAULTY, REJECTED, 2),
    Fault("slowed by heat", driver("nvmlDeviceGetCurrentClocksEventReasons 2", str(0x21)),
          "cards.clocks.event_reasons", WARN, FAULTY, WARNED, 2),
    Fault("slowed by heat before", driver("nvmlDeviceGetViolationStatus 2 1", "1790000000000000 300000000000"),
          "cards.clocks.violations", WARN, FAULTY, WARNED, 2),
    Fault("hot when idle", driver("nvmlDeviceGetMarginTemperature 0", "2"),
          "cards.temperature", WARN, FAULTY, WARNED, 0),
    Fault("at its limit when idle", driver("nvmlDeviceGetMarginTemperature 0", "-1"),
          "cards.temperature", FAIL, FAULTY, REJECTED, 0),
    Fault("hot memory", field(1, nvml.FIELD_MEMORY_TEMPERATURE, 97),
          "cards.temperature", WARN, FAULTY, WARNED, 1),
    Fault("half the PCIe lanes", driver("nvmlDeviceGetCurrPcieLinkWidth 2", "8"),
          "cards.pcie.width", FAIL, FAULTY, REJECTED, 2),
    Fault("an older PCIe slot", driver("nvmlDeviceGetMaxPcieLinkGeneration 2", "3"),
          "cards.pcie.generation", FAIL, NOT_AS_RENTED, REJECTED, 2),
    Fault("PCIe replays", driver("nvmlDeviceGetPcieReplayCounter 2", "250000"),
          "cards.pcie.replays", WARN, FAULTY, WARNED, 2),
    Fault("driver asks for what nobody knows", field(1, nvml.FIELD_RECOVERY_ACTION, 9),
          "health.recovery_action", FAIL, FAULTY, REJECTED, 1),
    Fault("an unknown virtualisation mode", driver("nvmlDeviceGetVirtualizationMode 1", "5"),
          "cards.virtualization", FAIL, NOT_AS_RENTED, REJECTED, 1),
    Fault("an unknown compute mode", driver("nvmlDeviceGetComputeMode 1", "5"),
          "cards.compute_mode", WARN, MISCONFIGURED, WARNED, 1),
    Fault("an unknown fabric health", fabric(0, summary=4),
          "topology.fabric.health", FAIL, FAULTY, REJECTED, 0),
    Fault("an unknown peer status", driver("nvmlDeviceGetP2PStatus 0 1 0", "99"),
          "topology.pairs.p2p", FAIL, MISCONFIGURED, REJECTED),
    Fault("lost at one answer", driver("nvmlDeviceGetRemappedRows 1", code(15)),
          "cards.usable", FAIL, FAULTY, REJECTED, 1),
    Fault("a reset wanted at one answer", driver("nvmlDeviceGetEccMode 1", code(16)),
          "cards.usable", FAIL, FAULTY, REJECTED, 1),
    Fault("InfoROM corrupt", driver("nvmlDeviceValidateInforom 1", code(14)),
          "health.inforom", FAIL, FAULTY, REJECTED, 1),
    Fault("driver asks for a reset", field(1, nvml.FIELD_RECOVERY_ACTION, 1),
          "health.recovery_action", FAIL, FAULTY, REJECTED, 1),
]  # fmt: skip

MEMORY = [
    Fault("ECC off", driver("nvmlDeviceGetEccMode 2", "0 0"),
          "health.ecc_mode", FAIL, MISCONFIGURED, REJECTED, 2),
    Fault("ECC off after the next reset", driver("nvmlDeviceGetEccMode 2", "1 0"),
          "health.ecc_pending", WARN, MISCONFIGURED, WARNED, 2),
    Fault("uncorrected errors now", driver("nvmlDeviceGetTotalEccErrors 0 1 0", "2"),
          "health.ecc_uncorrected_volatile", FAIL, FAULTY, REJECTED, 0),
    Fault("uncorrected errors before", driver("nvmlDeviceGetTotalEccErrors 0 1 1", "1"),
          "health.ecc_uncorrected_aggregate", WARN, FAULTY, WARNED, 0),
    Fault("uncorrected SRAM errors before", driver("nvmlDeviceGetMemoryErrorCounter 0 1 1 7", "9"),
          "health.ecc_uncorrected_aggregate", FAIL, FAULTY, REJECTED, 0),
    Fault("a flood of corrected errors", driver("nvmlDeviceGetTotalEccErrors 0 0 0", "20000000"),
          "health.ecc_corrected", WARN, FAULTY, WARNED, 0),
    Fault("SRAM threshold passed", driver("nvmlDeviceGetSramEccErrorStatus 3", "0 5 0 0 0 0 0 0 0 0 5 1"),
          "health.sram_threshold", FAIL, FAULTY, REJECTED, 3),
    Fault("a page waits to be retired", driver("nvmlDeviceGetRetiredPagesPendingStatus 0", "1"),
          "health.retired_pages", FAIL, FAULTY, REJECTED, 0),
    Fault("a row waits to be remapped", driver("nvmlDeviceGetRemappedRows 1", "0 1 1 0"),
          "health.row_remap_pending", FAIL, FAULTY, REJECTED, 1),
    Fault("remapping failed", driver("nvmlDeviceGetRemappedRows 1", "0 1 0 1"),
          "health.row_remap_failed", FAIL, FAULTY, REJECTED, 1),
    Fault("very many rows remapped", driver("nvmlDeviceGetRemappedRows 1", "0 600 0 0"),
          "health.row_remap_capacity", FAIL, FAULTY, REJECTED, 1),
    Fault("a bank without spare rows", driver("nvmlDeviceGetRowRemapperHistogram 1", "3000 0 0 0 8"),
          "health.row_remap_capacity", WARN, FAULTY, WARNED, 1),
    Fault("a channel waits for repair", driver("nvmlDeviceGetRepairStatus 0", "1 0"),
          "health.repair_pending", FAIL, FAULTY, REJECTED, 0),
    Fault("a TPC waits for repair", driver("nvmlDeviceGetRepairStatus 0", "0 1"),
          "health.repair_pending", FAIL, FAULTY, REJECTED, 0),
    Fault("memory beyond repair", driver("nvmlDeviceGetUnrepairableMemoryFlag_v1 2", "1"),
          "health.unrepairable_memory", FAIL, FAULTY, REJECTED, 2),
]  # fmt: skip

LINKS = [
    Fault("a link down", driver("nvmlDeviceGetNvLinkState 1 7", "0"),
          "topology.nvlink.active_links", FAIL, FAULTY, REJECTED, 1),
    Fault("all links of a card down", unlinked(2), "topology.nvlink.active_links", FAIL, FAULTY, REJECTED, 2),
    Fault("links switched off by the driver",
          both(parameters(NvLinkDisable=1), no_links),
          "topology.nvlink.disabled_by_driver", FAIL, MISCONFIGURED, REJECTED),
    Fault("a link at a lower rate", field(0, nvml.FIELD_LINK_SPEED, 13281, 5),
          "topology.nvlink.speed", FAIL, FAULTY, REJECTED, 0),
    Fault("links of an older generation", on_every_link(0, "nvmlDeviceGetNvLinkVersion", "4"),
          "topology.nvlink.version", FAIL, NOT_AS_RENTED, REJECTED, 0),
    Fault("a link that recovers", driver(f"nvmlDeviceGetNvLinkErrorCounter 3 4 {nvml.RECOVERY}", "12"),
          "topology.nvlink.errors", WARN, FAULTY, WARNED, 3),
    Fault("a card joined over PCIe alone", unlinked(2),
          "topology.pairs.nvlink", FAIL, NOT_AS_RENTED, REJECTED),
    Fault("a bridge missing", both(unlinked(0), unlinked(1)),
          "topology.pairs.nvlink", FAIL, NOT_AS_RENTED, REJECTED,
          profile="h100-nvlx2"),
    Fault("peer access off",
          both(driver("nvmlDeviceGetP2PStatus 0 1 0", "4"), driver("nvmlDeviceGetP2PStatus 0 1 1", "4")),
          "topology.pairs.p2p", FAIL, MISCONFIGURED, REJECTED),
    Fault("peer access off between bridged cards",
          both(driver("nvmlDeviceGetP2PStatus 0 1 0", "1"), driver("nvmlDeviceGetP2PStatus 0 1 1", "1")),
          "topology.pairs.p2p", FAIL, MISCONFIGURED, REJECTED, profile="h100-nvlx2"),
    Fault("fabric in progress", fabric(1, state=2, summary=0, mask=0),
          "topology.fabric.state", FAIL, MISCONFIGURED, REJECTED, 1),
    Fault("fabric never started", fabric(1, state=1, summary=0, mask=0),
          "topology.fabric.state", FAIL, MISCONFIGURED, REJECTED, 1),
    Fault("fabric ended with an error", fabric(1, state=3, status=999),
          "topology.fabric.state", FAIL, MISCONFIGURED, REJECTED, 1),
    Fault("no fabric where there should be one", fabric(0, state=0, summary=0, mask=0),
          "topology.fabric.state", FAIL, MISCONFIGURED, REJECTED, 0),
    Fault("fabric unhealthy", fabric(0, summary=2, mask=NARROW),
          "topology.fabric.health", FAIL, FAULTY, REJECTED, 0),
    Fault("fabric at part of its capacity", fabric(0, summary=3, mask=NARROW),
          "topology.fabric.health", FAIL, FAULTY, REJECTED, 0),
    Fault("cards in two cliques",
          driver("nvmlDeviceGetGpuFabricInfoV 3 3", f"{'0' * 32} 0 1 3 {nvml.WELL} 1"),
          "topology.fabric.clique", FAIL, MISCONFIGURED, REJECTED),
    Fault("an adapter's port down", port_down(2),
          "topology.adapters", WARN, FAULTY, WARNED),
    Fault("uncorrected PCIe errors",
          of_device("0000:2a:00.0", "aer_dev_fatal", "Undefined 0\nDLP 1\nTLP 2\nTOTAL_ERR_FATAL 3\n"),
          "topology.pci.aer", WARN, FAULTY, WARNED),
]  # fmt: skip

HOST = [
    Fault("few CPUs", process("cpus", 3), "host.cpus", WARN, MISCONFIGURED, WARNED),
    Fault("a small CPU quota", lambda node: limit_cgroup(node.tree, cpus=2),
          "host.cpus", WARN, MISCONFIGURED, WARNED, kind="container"),
    Fault("a small memory limit", lambda node: limit_cgroup(node.tree, memory_bytes=32 * GIB),
          "host.memory", WARN, MISCONFIGURED, WARNED, kind="container"),
    Fault("a small memory limit, version 1", lambda node: limit_cgroup(node.tree, memory_bytes=32 * GIB, version=1),
          "host.memory", WARN, MISCONFIGURED, WARNED, kind="container"),
    Fault("little shared memory", files("usage /dev/shm", [64 << 20, 64 << 20]),
          "host.shm", WARN, MISCONFIGURED, WARNED, kind="container"),
    Fault("few open files", limits(nofile=256), "host.open_files", WARN, MISCONFIGURED, WARNED),
    Fault("few processes", limits(nproc=100),
          "host.process_limit", WARN, MISCONFIGURED, WARNED, kind="container"),
    Fault("disk full", both(files("usage /", [100 * GIB, GIB]), files("usage /data", [100 * GIB, GIB])),
          "host.disk_free", WARN, MISCONFIGURED, WARNED),
    Fault("a mount that hangs", files("usage /data", TIMED_OUT), "host.mounts", WARN, FAULTY, WARNED),
    Fault("IOMMU translates",
          file("/proc/cmdline", "BOOT_IMAGE=/boot/vmlinuz root=/dev/sda iommu.passthrough=0\n"),
          "host.iommu", WARN, MISCONFIGURED, WARNED),
    Fault("ACS redirects",
          of_device("0000:17:00.0", "config", configuration("1000:c030", bridge=True, acs_control=0x1D)),
          "host.acs", WARN, MISCONFIGURED, WARNED),
    Fault("a process stuck in the kernel", process("processes", [[1, "systemd", "S"], [77, "python", "D"]]),
          "host.stuck_processes", WARN, FAULTY, WARNED),
    Fault("clock not in time", process("clock_synchronized", False),
          "host.clock", WARN, MISCONFIGURED, WARNED),
]  # fmt: skip

STACK = [
    Fault("no torch", no_torch(NO_MODULE), "stack.torch.present", WARN, MISCONFIGURED, INCOMPLETE),
    Fault("torch that cannot be imported", no_torch(BROKEN_IMPORT),
          "stack.torch.present", FAIL, MISCONFIGURED, REJECTED),
    Fault("torch for the CPU alone",
          torch(version="2.11.0+cpu", cuda=None, cudnn=None, nccl=None, arch_list=[], available=False, device_count=0,
                devices=[]),
          "stack.torch.gpu_build", FAIL, MISCONFIGURED, REJECTED),
    Fault("torch without code for the card",
          both(torch(version="2.0.1+cu117", cuda="11.7", arch_list=["sm_70", "sm_80", "sm_86"]),
               kernels_fail(209, "CUDA error: no kernel image is available for execution on the device")),
          "stack.torch.arch", FAIL, MISCONFIGURED, REJECTED, profile="b200x4"),
    Fault("torch with PTX for the card only", torch(arch_list=["sm_80", "compute_80"]),
          "stack.torch.arch", WARN, MISCONFIGURED, WARNED),
    Fault("several torch installations",
          torch(folders=["/home/user/torch", "/opt/venv/lib/python3.12/site-packages/torch"]),
          "stack.torch.duplicates", WARN, MISCONFIGURED, WARNED),
    Fault("a package built for AMD's cards", package("vllm", "hip"), "stack.extensions", WARN, MISCONFIGURED, WARNED),
    Fault("driver too old",
          both(file("/proc/driver/nvidia/version", OLD_DRIVER), driver("nvmlSystemGetDriverVersion", "470.82.01"),
               driver("nvmlSystemGetNVMLVersion", "11.470.82.01"),
               program("fabric_manager", output("Fabric Manager version is : 470.82.01\n"))),
          "stack.driver.minimum", WARN, MISCONFIGURED, WARNED),
    Fault("library of another driver", driver("nvmlSystemGetNVMLVersion", "12.570.86.15"),
          "stack.driver.library_match", FAIL, MISCONFIGURED, REJECTED),
    Fault("fabric manager of another version",
          both(program("fabric_manager", output("Fabric Manager version is : 570.86.15\n")), cuda_init(*CUDA_802)),
          "stack.driver.fabric_manager", FAIL, MISCONFIGURED, REJECTED),
    Fault("driver too old for torch's CUDA",
          both(driver("nvmlSystemGetCudaDriverVersion_v2", "12040"), torch(libcuda_version=12040),
               cuda_init(*CUDA_803)),
          "stack.driver.runtime", FAIL, MISCONFIGURED, REJECTED, also=("stack.cuda_init",)),
    Fault("CUDA waits for the fabric", cuda_init(*CUDA_802),
          "stack.cuda_init", FAIL, MISCONFIGURED, REJECTED),
    Fault("a card busy for CUDA", context(2, *CUDA_46), "stack.context", FAIL, MISCONFIGURED, REJECTED, 2),
    Fault("a card that computes wrongly", wrong_sum(3), "stack.context", FAIL, FAULTY, REJECTED, 3),
    Fault("a card that crashes a program", ended(1, "kernel", returncode=-11),
          "stack.context", FAIL, FAULTY, REJECTED, 1),
    Fault("a card that hangs a program", ended(1, "context", returncode=None, cut_off="no end after 120 s"),
          "stack.context", FAIL, FAULTY, REJECTED, 1),
    Fault("another NCCL goes first",
          both(environment(LD_LIBRARY_PATH="/opt/nccl/lib"), file("/opt/nccl/lib/libnccl.so.2.18.3", ""),
               torch(nccl_loaded={"path": "/opt/nccl/lib/libnccl.so.2.18.3", "version": 21803},
                     libraries=["/opt/nccl/lib/libnccl.so.2.18.3"])),
          "stack.nccl.shadowed", WARN, MISCONFIGURED, WARNED),
    Fault("NCCL told to avoid NVLink", environment(NCCL_P2P_DISABLE="1"),
          "stack.environment.nccl", WARN, MISCONFIGURED, WARNED),
    Fault("NCCL told so by a file", file("/etc/nccl.conf", "NCCL_ALGO=Tree\nNCCL_P2P_DISABLE=1\n"),
          "stack.environment.nccl", WARN, MISCONFIGURED, WARNED),
    Fault("CUDA told to wait for every kernel", environment(CUDA_LAUNCH_BLOCKING="1"),
          "stack.environment.cuda", WARN, MISCONFIGURED, WARNED),
    Fault("a library that shares the card out", file("/etc/ld.so.preload", "/usr/local/vgpu/libvgpu.so\n"),
          "stack.environment.preload", WARN, NOT_AS_RENTED, WARNED, kind="container"),
]  # fmt: skip

KERNEL_LOG = [
    Fault("Xid 79", log("NVRM: Xid (PCI:0000:2a:00): 79, pid=4711, GPU has fallen off the bus."),
          "kernel_log.xid", FAIL, FAULTY, REJECTED, also=("kernel_log.fallen_off_bus",)),
    Fault("Xid 48", log("NVRM: Xid (PCI:0000:2a:00): 48, pid='<unknown>', An uncorrectable double bit error (DBE)"),
          "kernel_log.xid", FAIL, FAULTY, REJECTED),
    Fault("Xid 13", log("NVRM: Xid (PCI:0000:2a:00): 13, pid=4711, name=python, Graphics Exception: ESR 0x504730"),
          "kernel_log.xid", WARN, MISCONFIGURED, WARNED),
    Fault("a fatal SXid",
          log("nvidia-nvswitch0: SXid (PCI:0000:83:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"),
          "kernel_log.sxid", FAIL, FAULTY, REJECTED),
    Fault("fallen off the bus",
          log("NVRM: GPU at PCI:0000:3a:00: GPU-00000003-0000-4000-8000-000000000000",
              "NVRM: GPU 0000:3a:00.0: GPU has fallen off the bus."),
          "kernel_log.fallen_off_bus", FAIL, FAULTY, REJECTED),
    Fault("a card that failed to start", log("NVRM: GPU 0000:3a:00.0: RmInitAdapter failed! (0x25:0x65:1457)"),
          "kernel_log.driver", WARN, FAULTY, WARNED),
    Fault("NVLink trouble", log("NVRM: knvlinkUpdatePostRxDetectLinkMask_IMPL: Failed to update Rx Detect Link mask!"),
          "kernel_log.nvlink", WARN, FAULTY, WARNED),
    Fault("a fatal PCIe error of a card",
          log("nvidia 0000:2a:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer"),
          "kernel_log.pcie", FAIL, FAULTY, REJECTED),
    Fault("uncorrected host memory", log("EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0"),
          "kernel_log.memory", FAIL, FAULTY, REJECTED),
    Fault("out of memory", log("Out of memory: Killed process 4711 (python) total-vm:1048576kB, anon-rss:1048576kB"),
          "kernel_log.system", WARN, MISCONFIGURED, WARNED),
    Fault("a lockup", log("watchdog: BUG: soft lockup - CPU#3 stuck for 23s! [python:4711]"),
          "kernel_log.system", WARN, FAULTY, WARNED),
    Fault("a port that went down", log("mlx5_core 0000:19:00.0 ib0: lost carrier"),
          "kernel_log.adapters", WARN, FAULTY, WARNED),
]  # fmt: skip

UNSEEN = [
    Fault("memory not told", driver("nvmlDeviceGetMemoryInfo_v2 1", code(999)),
          "cards.memory.total", UNKNOWN, NOT_VISIBLE, INCOMPLETE, 1),
    Fault("name not told", driver("nvmlDeviceGetName 1", code(4)),
          "cards.model", UNKNOWN, NOT_VISIBLE, INCOMPLETE, 1),
    Fault("state of a link not told", driver("nvmlDeviceGetNvLinkState 1 3", code(999)),
          "topology.nvlink.active_links", UNKNOWN, NOT_VISIBLE, INCOMPLETE, 1),
    Fault("fabric not told",
          both(*(driver(f"nvmlDeviceGetGpuFabricInfoV 1 {version}", code(999)) for version in "23*")),
          "topology.fabric.state", UNKNOWN, NOT_VISIBLE, INCOMPLETE, 1),
    Fault("links between two cards not told",
          driver("nvmlDeviceGetP2PStatus 0 1 2", code(999)),
          "topology.pairs.nvlink", UNKNOWN, NOT_VISIBLE, INCOMPLETE),
    *(
        Fault(f"a pair's call {name} ({card})", both(impatient(0.7), driver("nvmlDeviceGetP2PStatus 1 3 2", how)),
              "health.responsive", FAIL, FAULTY, REJECTED, card)
        for name, how in (("hangs", HANG), ("crashes", CRASH))
        for card in (1, 3)
    ),
    Fault("ECC counters not told",
          both(driver("nvmlDeviceGetTotalEccErrors 0 *", code(999)),
               driver("nvmlDeviceGetMemoryErrorCounter 0 *", code(999))),
          "health.ecc_uncorrected_volatile", UNKNOWN, NOT_VISIBLE, INCOMPLETE, 0),
    Fault("ECC counters not there",
          both(driver("nvmlDeviceGetTotalEccErrors 0 *", code(3)),
               driver("nvmlDeviceGetMemoryErrorCounter 0 *", code(3))),
          "health.ecc_uncorrected_volatile", UNKNOWN, NOT_VISIBLE, ACCEPTED, 0),
    *(
        Fault(f"{call} answers {answer}", driver(call.replace("#", "1"), answer),
              finding, UNKNOWN, NOT_VISIBLE, INCOMPLETE, 1)
        for call, finding, *answers in (
            ("nvmlDeviceGetEccMode #", "health.ecc_mode", code(999), "7 7"),
            ("nvmlDeviceGetRemappedRows #", "health.row_remap_pending", code(999), "0 0 2 0"),
            ("nvmlDeviceGetRemappedRows #", "health.row_remap_failed", "0 0 0 5"),
            ("nvmlDeviceGetEnforcedPowerLimit #", "cards.power_limit", code(999), "0"),
            ("nvmlDeviceGetMigMode #", "cards.mig", code(999)),
            ("nvmlDeviceGetVirtualizationMode #", "cards.virtualization", code(999)),
            ("nvmlDeviceGetCurrPcieLinkWidth #", "cards.pcie.width", code(999), "0", "33"),
            ("nvmlDeviceGetNumGpuCores #", "cards.cores", code(999), "0"),
        )
        for answer in answers
    ),
    Fault("blank temperature", driver("nvmlDeviceGetTemperatureV 0 0", str(2**31 - 1)),
          "cards.temperature", UNKNOWN, NOT_VISIBLE, ACCEPTED, 0),
    Fault("UUID not told", driver("nvmlDeviceGetUUID 1", code(999)),
          "stack.context", UNKNOWN, NOT_VISIBLE, INCOMPLETE, 1),
    Fault("where links end not told", on_every_link(1, "nvmlDeviceGetNvLinkRemoteDeviceType", code(999)),
          "topology.pairs.nvlink", UNKNOWN, NOT_VISIBLE, INCOMPLETE),
    Fault("version of the library empty", driver("nvmlSystemGetNVMLVersion", ""),
          "stack.driver.library_match", UNKNOWN, NOT_VISIBLE, ACCEPTED),
    Fault("kernel log closed", files("kmsg", DENIED),
          "kernel_log.readable", UNKNOWN, NOT_VISIBLE, ACCEPTED),
    Fault("torch hangs at its import", import_hangs,
          "stack.torch.present", UNKNOWN, NOT_VISIBLE, INCOMPLETE),
    Fault("no interpreter", no_interpreter,
          "stack.context", UNKNOWN, NOT_VISIBLE, INCOMPLETE),
]  # fmt: skip

FAULTS = [*DRIVER, *COUNT, *USE, *IDENTITY, *CONDITION, *MEMORY, *LINKS, *HOST, *STACK, *KERNEL_LOG, *UNSEEN]


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    return Ground(tmp_path_factory.mktemp("node"))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault(fault: Fault, ground: Ground) -> None:
    node = healthy(fault.profile, kind=fault.kind)
    fault.plant(node)
    judgement = judge(node.probe(ground), load(fault.profile))
    seen = [f for f in judgement.findings if f.id == fault.finding and f.status is fault.status]
    if fault.card is not None:
        seen = [f for f in seen if f.subject.label.startswith(f"GPU {fault.card}")]
    told = {
        f"{f.id} {f.status.value}: {f.subject.label}: {f.detail}"
        for f in judgement.findings
        if f.id == fault.finding or f.status in (FAIL, WARN) or (f.status is UNKNOWN and f.required)
    }
    assert seen, told
    assert {f.cause for f in seen} == {fault.cause}, told
    assert judgement.verdict is fault.verdict, (judgement.verdict, told)
    alarms = {f.id for f in judgement.findings if f.status in (FAIL, WARN) and f.root is None}
    assert alarms <= {fault.finding, *fault.also} | {f.root for f in seen}, told


@pytest.mark.parametrize("answer", [code(3), code(4), code(13), code(999), ""])
def test_a_card_that_tells_nothing_is_never_accepted(answer: str, ground: Ground) -> None:
    node = healthy("h200x2")
    for call in node.nvml:
        symbol, *arguments = call.split()
        if arguments and arguments[0] == "1" and symbol != "nvmlDeviceGetHandleByIndex_v2":
            node.nvml[call] = answer
    judgement = judge(node.probe(ground), load("h200x2"))
    assert judgement.verdict in (INCOMPLETE, REJECTED)
    strange = {f.id: f.detail for f in judgement.findings if f.door == BROKEN_RULE}
    assert not strange


def test_the_table_is_long_and_its_names_are_distinct() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 60

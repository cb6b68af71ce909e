"""A node's NVML, made up: a description of every answer, and a library of our own that the real pynvml loads.

`describe` gives a healthy node. A fault is a change to one answer, in the vocabulary of `libnvidia-ml.c`:

    d = describe("h200", 4)
    d["nvmlDeviceGetEccMode 2"] = "0 1"               # ECC off on card 2, on again after a reset
    d["nvmlDeviceGetPowerUsage 1"] = HANG             # this call never returns
    lose(d, 3)                                        # every call on card 3: GPU is lost
    d["nvmlInitWithFlags"] = code(18)                 # driver and library do not match

The keys are exported symbols (`nvmlDeviceGetMemoryInfo_v2`), not pynvml's names.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from tests.fakes.nvml.products import PRODUCTS, Product

Description = dict[str, str]
"""`SYMBOL ARGUMENT …` → what the call gives, see `libnvidia-ml.c`."""

Links = Literal["up", "inactive", "disabled"]
"""`up`: as sold. `inactive`: the links are there and lead nowhere. `disabled`: the driver leaves them off."""

HANG, DEAF, CRASH = "!hang", "!deaf", "!crash"

DRIVER = "580.159.04"
SOCKET_ADDRESSES = (
    "0000:18:00.0", "0000:2a:00.0", "0000:3a:00.0", "0000:5d:00.0",
    "0000:9a:00.0", "0000:ab:00.0", "0000:ba:00.0", "0000:db:00.0",
)  # fmt: skip
"""An eight-card node with two sockets: four cards under each."""
GRACE_ADDRESSES = ("0008:01:00.0", "0009:01:00.0", "0018:01:00.0", "0019:01:00.0")
SWITCH_ADDRESSES = tuple(f"0000:{bus:02x}:00.0" for bus in range(0x83, 0x89))
FIELD_MEMORY_TEMPERATURE, FIELD_LINK_COUNT, FIELD_LINK_SPEED = 82, 91, 164
FIELD_LINK_RECOVERY_EVENTS, FIELD_LINK_EFFECTIVE_ERRORS, FIELD_RECOVERY_ACTION = 215, 219, 230
REPLAY, RECOVERY, CRC_FLIT, CRC_DATA = range(4)
"""Kinds of NVLink error counters."""
WELL = 0b1_10_10_10_10
"""`healthMask` of a fabric that looked for every trouble it knows, and found none."""
HIDDEN_SWITCH = f"FFFF:FF:FF.0 {2**32 - 1} 255 31 0 0 FFFFFFFF:FF:FF.0"
"""`nvmlPciInfo_t` of an NVSwitch that a guest does not see."""


def code(number: int) -> str:
    """The answer that is an `nvmlReturn_t`."""
    return f"!{number}"


def lose(description: Description, card: int) -> None:
    """Every call on `card` says NVML_ERROR_GPU_IS_LOST; its handle can still be had."""
    description[f"* {card}"] = code(15)


def addresses(product: Product, count: int, *, virtual: bool = False) -> tuple[str, ...]:
    """Where the first `count` cards of a node sit on PCI, lower case with a domain of four digits."""
    if virtual:
        return tuple(f"0000:00:{slot:02x}.0" for slot in range(5, 5 + count))
    return (GRACE_ADDRESSES if product.arm else SOCKET_ADDRESSES)[:count]


def uuid(card: int) -> str:
    return f"GPU-{card + 1:08x}-0000-4000-8000-000000000000"


def describe(
    product: str | Product,
    count: int,
    *,
    virtual: bool = False,
    at: Sequence[str] | None = None,
    links: Links | None = None,
) -> Description:
    """A healthy node with `count` cards.

    `virtual`: a guest with pass-through, its PCI tree flat and its NVSwitches out of sight. `at`: the PCI
    addresses, in NVML's order. `links`: left out, `up` where there is somebody to link to, else `inactive`.
    """
    card = PRODUCTS[product] if isinstance(product, str) else product
    places = tuple(at) if at is not None else addresses(card, count, virtual=virtual)
    if links is None:
        links = "up" if card.form == "board" or (card.form == "bridge" and count > 1) else "inactive"
    d: Description = {
        "nvmlInitWithFlags": "",
        "nvmlSystemGetDriverVersion": DRIVER,
        "nvmlSystemGetNVMLVersion": f"13.{DRIVER}",
        "nvmlSystemGetCudaDriverVersion": "13000",
        "nvmlSystemGetCudaDriverVersion_v2": "13000",
        "nvmlSystemGetDriverBranch": "r580_00",
        "nvmlSystemGetConfComputeState": "0 0 0" if card.architecture >= 9 else code(3),
        "nvmlSystemGetProcessName *": code(6),
        "nvmlDeviceGetCount_v2": str(count),
        "nvmlGetExcludedDeviceCount": "0",
        "nvmlGetExcludedDeviceInfoByIndex *": code(2),
        "nvmlDeviceGetHandleByIndex_v2 *": code(2),
    }
    for i in range(count):
        _identity(d, card, i, places[i], virtual)
        _memory_and_health(d, card, i)
        _state(d, card, i, virtual)
        _links(d, card, i, places, count, links, virtual)
        _fabric(d, card, i, card.fabric and links == "up", virtual)
        for j in range(count):
            if i != j:
                _pair(d, card, i, j, virtual, links)
    return d


def pci_info(address: str, pci_id: int = 0, subsystem: int = 0) -> str:
    """`nvmlPciInfo_t` for a device at `0000:18:00.0`; its long form has eight digits of domain."""
    domain, bus, slot = address.split(".")[0].split(":")
    numbers = (int(domain, 16), int(bus, 16), int(slot, 16), pci_id, subsystem)
    return f"{address.upper()} {' '.join(map(str, numbers))} 0000{address.upper()}"


def process(pid: int, used_bytes: int) -> str:
    """One record of a process list; join several with spaces."""
    whole = 0xFFFFFFFF
    return f"{pid} {used_bytes} {whole} {whole}"


def occupy(description: Description, card: int, used_bytes: int) -> None:
    """Somebody's programs hold `used_bytes` of the card; no list shows them."""
    total, reserved, _free, used = map(int, description[f"nvmlDeviceGetMemoryInfo_v2 {card}"].split())
    set_memory(description, card, total, reserved, used + used_bytes)


def set_memory(description: Description, card: int, total: int, reserved: int, used: int = 0) -> None:
    """Both versions of the call: the old one counts what the driver reserves as used."""
    free = total - reserved - used
    description[f"nvmlDeviceGetMemoryInfo_v2 {card}"] = f"{total} {reserved} {free} {used}"
    description[f"nvmlDeviceGetMemoryInfo {card}"] = f"{total} {free} {used + reserved}"


def set_fabric(
    description: Description,
    card: int,
    *,
    state: int = 3,
    status: int = 0,
    mask: int = WELL,
    summary: int = 1,
) -> None:
    """State 0 not supported, 1 not started, 2 in progress, 3 completed.

    Summary 0 not supported, 1 healthy, 2 unhealthy, 3 limited capacity.
    """
    record = f"{'0' * 32} {status} 0 {state} {mask}"
    description[f"nvmlDeviceGetGpuFabricInfoV {card} 2"] = record
    description[f"nvmlDeviceGetGpuFabricInfoV {card} 3"] = f"{record} {summary}"
    description[f"nvmlDeviceGetGpuFabricInfoV {card} *"] = code(25)


def field(description: Description, card: int, number: int, value: int | str, scope: int = 0) -> None:
    """A field value as an unsigned int, or the fault to answer with."""
    answer = f"1 {value}" if isinstance(value, int) else value
    description[f"nvmlDeviceGetFieldValues {card} {number} {scope}"] = answer


def _identity(d: Description, card: Product, i: int, address: str, virtual: bool) -> None:
    d[f"nvmlDeviceGetHandleByIndex_v2 {i}"] = str(i)
    d[f"nvmlDeviceGetIndex {i}"] = str(i)
    d[f"nvmlDeviceGetName {i}"] = card.name
    d[f"nvmlDeviceGetUUID {i}"] = uuid(i)
    d[f"nvmlDeviceGetPciInfo_v3 {i}"] = pci_info(
        address, card.device_id << 16 | 0x10DE, card.subsystem_id << 16 | 0x10DE
    )
    d[f"nvmlDeviceGetMinorNumber {i}"] = str(i)
    d[f"nvmlDeviceGetBoardId {i}"] = str(256 * (i + 1))
    d[f"nvmlDeviceGetVbiosVersion {i}"] = card.vbios
    d[f"nvmlDeviceGetGspFirmwareVersion {i}"] = DRIVER
    d[f"nvmlDeviceGetArchitecture {i}"] = str(card.architecture)
    d[f"nvmlDeviceGetCudaComputeCapability {i}"] = f"{card.capability[0]} {card.capability[1]}"
    d[f"nvmlDeviceGetNumGpuCores {i}"] = str(card.cores)
    d[f"nvmlDeviceGetMemoryBusWidth {i}"] = str(card.bus_bits)
    d[f"nvmlDeviceGetVirtualizationMode {i}"] = "1" if virtual else "0"
    d[f"nvmlDeviceGetAddressingMode {i}"] = "2" if card.arm else "0"
    if card.data_centre:
        d[f"nvmlDeviceGetSerial {i}"] = f"16500000000{i + 1:02d}"
        d[f"nvmlDeviceGetBoardPartNumber {i}"] = card.board_part
        d[f"nvmlDeviceGetInforomImageVersion {i}"] = card.inforom
        d[f"nvmlDeviceGetInforomConfigurationChecksum {i}"] = "0"
        d[f"nvmlDeviceValidateInforom {i}"] = ""
    if card.form == "board":
        d[f"nvmlDeviceGetModuleId {i}"] = str(i + 1)


def _memory_and_health(d: Description, card: Product, i: int) -> None:
    mib = 1024**2
    set_memory(d, i, card.memory_mib * mib, card.reserved_mib * mib)
    d[f"nvmlDeviceGetBAR1MemoryInfo {i}"] = f"{card.bar1_mib * mib} {(card.bar1_mib - 2) * mib} {2 * mib}"
    d[f"nvmlDeviceGetUtilizationRates {i}"] = "0 0"
    for kind in ("Compute", "Graphics", "MPSCompute"):
        d[f"nvmlDeviceGet{kind}RunningProcesses_v3 {i}"] = ""
    field(d, i, FIELD_RECOVERY_ACTION, 0)
    if not card.data_centre:
        return
    d[f"nvmlDeviceGetEccMode {i}"] = "1 1"
    d[f"nvmlDeviceGetTotalEccErrors {i} *"] = "0"
    d[f"nvmlDeviceGetMemoryErrorCounter {i} *"] = "0"
    d[f"nvmlDeviceGetSramEccErrorStatus {i}"] = " ".join("0" * 12)
    d[f"nvmlDeviceGetRemappedRows {i}"] = "0 0 0 0"
    d[f"nvmlDeviceGetRowRemapperHistogram {i}"] = f"{card.bus_bits // 2} 0 0 0 0"
    d[f"nvmlDeviceGetRepairStatus {i}"] = "0 0"
    d[f"nvmlDeviceGetUnrepairableMemoryFlag_v1 {i}"] = "0"
    field(d, i, FIELD_MEMORY_TEMPERATURE, 36 + i)


def _state(d: Description, card: Product, i: int, virtual: bool) -> None:
    milliwatts = card.watts * 1000
    for limit in ("PowerManagementLimit", "PowerManagementDefaultLimit", "EnforcedPowerLimit"):
        d[f"nvmlDeviceGet{limit} {i}"] = str(milliwatts)
    d[f"nvmlDeviceGetPowerManagementLimitConstraints {i}"] = f"{card.min_watts * 1000} {milliwatts}"
    d[f"nvmlDeviceGetPowerUsage {i}"] = str(milliwatts // 8 + 137 * i)
    d[f"nvmlDeviceGetTotalEnergyConsumption {i}"] = str(2371546 + 1000 * i)
    graphics, sm, memory, video = range(4)
    for clock, highest, application in (
        (graphics, card.sm_mhz, card.application_sm_mhz),
        (sm, card.sm_mhz, card.application_sm_mhz),
        (memory, card.memory_mhz, card.memory_mhz),
        (video, card.sm_mhz - 300, None),
    ):
        d[f"nvmlDeviceGetClockInfo {i} {clock}"] = str(card.memory_mhz if clock == memory else 345)
        d[f"nvmlDeviceGetMaxClockInfo {i} {clock}"] = str(highest)
        if application and card.data_centre:
            d[f"nvmlDeviceGetApplicationsClock {i} {clock}"] = str(application)
            d[f"nvmlDeviceGetDefaultApplicationsClock {i} {clock}"] = str(application)
    d[f"nvmlDeviceGetCurrentClocksEventReasons {i}"] = "1"
    d[f"nvmlDeviceGetCurrentClocksThrottleReasons {i}"] = "1"
    d[f"nvmlDeviceGetSupportedClocksEventReasons {i}"] = "511"
    d[f"nvmlDeviceGetViolationStatus {i} *"] = "1790000000000000 0"
    d[f"nvmlDeviceGetPerformanceState {i}"] = "0" if card.data_centre else "8"
    d[f"nvmlDeviceGetTemperature {i} 0"] = str(31 + i)
    d[f"nvmlDeviceGetTemperatureV {i} 0"] = str(31 + i)
    if card.architecture >= 9:
        d[f"nvmlDeviceGetMarginTemperature {i}"] = str(50 - i)
    else:
        for threshold, celsius in enumerate((92, 89, 95, 85)):
            d[f"nvmlDeviceGetTemperatureThreshold {i} {threshold}"] = str(celsius)
    d[f"nvmlDeviceGetCurrPcieLinkGeneration {i}"] = "1"
    d[f"nvmlDeviceGetCurrPcieLinkWidth {i}"] = "16"
    for call in ("MaxPcieLinkGeneration", "GpuMaxPcieLinkGeneration"):
        d[f"nvmlDeviceGet{call} {i}"] = str(card.pcie_generation)
    d[f"nvmlDeviceGetMaxPcieLinkWidth {i}"] = "16"
    d[f"nvmlDeviceGetPcieReplayCounter {i}"] = "0"
    if card.data_centre and card.name != "NVIDIA L40S":
        d[f"nvmlDeviceGetMigMode {i}"] = "0 0"
        d[f"nvmlDeviceGetMaxMigDeviceCount {i}"] = "0"
        d[f"nvmlDeviceGetMigDeviceHandleByIndex {i} *"] = code(6)
    d[f"nvmlDeviceGetComputeMode {i}"] = "0"
    d[f"nvmlDeviceGetPersistenceMode {i}"] = "0" if virtual else "1"
    node = 0 if virtual else socket(card, i)
    d[f"nvmlDeviceGetCpuAffinity {i}"] = words(near_cpus(card, node, virtual))
    d[f"nvmlDeviceGetCpuAffinityWithinScope {i}"] = d[f"nvmlDeviceGetCpuAffinity {i}"]
    d[f"nvmlDeviceGetMemoryAffinity {i}"] = str(1 << node)


def socket(card: Product, i: int) -> int:
    """Which of the two CPU sockets the card sits under."""
    return i // (2 if card.arm else 4)


def near_cpus(card: Product, node: int, virtual: bool = False) -> list[int]:
    """Logical CPUs of a NUMA node: all 16 of a guest, 72 of a Grace, or 16 cores with two threads each."""
    if virtual:
        return list(range(16))
    if card.arm:
        return list(range(72 * node, 72 * node + 72))
    return [first + 16 * node + core for first in (0, 32) for core in range(16)]


def words(numbers: list[int]) -> str:
    """A set of small numbers as 64-bit words."""
    bits = sum(1 << number for number in numbers)
    return " ".join(str(bits >> shift & (2**64 - 1)) for shift in range(0, bits.bit_length(), 64))


def peers(card: Product, i: int, count: int) -> list[int]:
    """The cards that a bridge joins `i` to."""
    first = i - i % card.bridged_group
    return [j for j in range(first, min(first + card.bridged_group, count)) if j != i]


def _links(
    d: Description, card: Product, i: int, places: Sequence[str], count: int, links: Links, virtual: bool
) -> None:
    if not card.links or links == "disabled":
        return
    d[f"nvmlDeviceGetNvLinkState {i} *"] = code(2)
    field(d, i, FIELD_LINK_COUNT, card.links)
    others = peers(card, i, count) if card.form == "bridge" else []
    for link in range(card.links):
        up = links == "up"
        d[f"nvmlDeviceGetNvLinkState {i} {link}"] = "1" if up else "0"
        d[f"nvmlDeviceGetNvLinkVersion {i} {link}"] = str(card.link_version)
        d[f"nvmlDeviceGetNvLinkErrorCounter {i} {link} *"] = "0" if up else code(3)
        field(d, i, FIELD_LINK_SPEED, card.link_mb_per_s if up else 0, link)
        if card.architecture >= 10:
            for errors in (FIELD_LINK_RECOVERY_EVENTS, FIELD_LINK_EFFECTIVE_ERRORS):
                field(d, i, errors, 0, link)
        if not up:
            continue
        # A healthy H200 counts a few damaged data packets on every link; they were sent again.
        d[f"nvmlDeviceGetNvLinkErrorCounter {i} {link} {CRC_DATA}"] = str(4 + link)
        if card.form == "bridge":
            kind, where = "0", pci_info(places[others[link % len(others)]])
        else:
            hidden = virtual or card.switch_ids is None
            kind = "2"
            where = HIDDEN_SWITCH if hidden else pci_info(SWITCH_ADDRESSES[link % switch_count(card)])
        d[f"nvmlDeviceGetNvLinkRemoteDeviceType {i} {link}"] = kind
        d[f"nvmlDeviceGetNvLinkRemotePciInfo_v2 {i} {link}"] = where


def switch_count(card: Product) -> int:
    """How many NVSwitches of an eight-card board show on the bus."""
    return card.switch_ids[1] if card.switch_ids else 0


def _fabric(d: Description, card: Product, i: int, joined: bool, virtual: bool) -> None:
    if joined:
        set_fabric(d, i, summary=0, mask=0) if virtual else set_fabric(d, i)
    elif card.architecture >= 9:
        set_fabric(d, i, state=0, mask=0, summary=0)


def _pair(d: Description, card: Product, i: int, j: int, virtual: bool, links: Links) -> None:
    same_socket = socket(card, i) == socket(card, j)
    d[f"nvmlDeviceGetTopologyCommonAncestor {i} {j}"] = "30" if virtual else "40" if same_socket else "50"
    d[f"nvmlDeviceOnSameBoard {i} {j}"] = "0"
    joined = links == "up" and (
        card.form == "board" or (card.form == "bridge" and j in peers(card, i, j + 1))
    )
    reachable = card.data_centre
    read, write, nvlink, atomics = range(4)
    d[f"nvmlDeviceGetP2PStatus {i} {j} {read}"] = d[f"nvmlDeviceGetP2PStatus {i} {j} {write}"] = (
        "0" if reachable else "1"
    )
    d[f"nvmlDeviceGetP2PStatus {i} {j} {nvlink}"] = "0" if joined else "5"
    d[f"nvmlDeviceGetP2PStatus {i} {j} {atomics}"] = "0" if joined else "5"


def write(description: Description, path: Path) -> None:
    """The description as the library reads it."""
    path.write_text(json.dumps(description, indent=0, ensure_ascii=False), encoding="utf-8")


def compiler() -> str | None:
    """The C compiler that the stand-in needs, if this machine has one."""
    return shutil.which("cc")


def library() -> Path:
    """The folder with `libnvidia-ml.so.1`, compiled once for each state of its source; needs `cc`."""
    source = Path(__file__).with_name("libnvidia-ml.c")
    mark = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"nodecheck-stand-in-{os.getuid()}-{mark}"
    built = folder / "libnvidia-ml.so.1"
    if not built.exists():
        folder.mkdir(mode=0o700, exist_ok=True)
        draft = folder / f"draft-{os.getpid()}"
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(draft), str(source)], check=True
        )
        draft.replace(built)
    return folder


def environment(path: Path) -> dict[str, str]:
    """What a process needs so that the real pynvml finds the description at `path`."""
    return {"LD_LIBRARY_PATH": str(library()), "NODECHECK_FAKE_NVML": str(path)}

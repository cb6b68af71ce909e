"""What amdgpu and the PCI bus show of a card in sysfs: no library, no version of anything in between."""

from __future__ import annotations

import re
from typing import Any

from nodecheck.facts import Absent, Maybe, Why
from nodecheck.facts.card import EccBlock, Process
from nodecheck.probes import isolation
from nodecheck.probes.belief import Reading
from nodecheck.probes.kfd import KfdDevice
from nodecheck.probes.text import number, parse, word
from nodecheck.sources import Files

PCI = "/sys/bus/pci/devices"
_PROCESSES = "/sys/class/kfd/kfd/proc"

VIRTUAL_FUNCTIONS = frozenset({
    "1002:7410", "1002:74b5", "1002:74b6", "1002:74b9", "1002:74bc", "1002:74bd", "1002:75b0", "1002:75b3",
})  # fmt: skip
"""Device ids that only a part handed to a guest by SR-IOV has (pci.ids: … VF)."""

ARCHITECTURES = {
    "gfx906": "gcn5", "gfx908": "cdna1", "gfx90a": "cdna2", "gfx940": "cdna3", "gfx941": "cdna3",
    "gfx942": "cdna3", "gfx950": "cdna4",
}  # fmt: skip
_FAMILIES = {"gfx10": "rdna2", "gfx11": "rdna3", "gfx12": "rdna4"}

_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
"""PCI Express, by GT/s."""

_PER_PACKAGE = Absent(
    why=Why.not_supported, detail="the driver counts it for the whole package, not for a partition of it"
)


def read(files: Files, address: str, device: Maybe[KfdDevice], partitions: int) -> Reading:
    """Everything sysfs says of the card at `address`, which KFD shows as `device`.

    `partitions` is how many devices KFD has of this package.
    """
    place = f"{PCI}/{address[:-1]}0" if partitions > 1 else f"{PCI}/{address}"
    pci_id = _pair(files, place, "vendor", "device")
    values: dict[str, Any] = {
        "identity.pci_id": pci_id,
        "identity.pci_subsystem": _pair(files, place, "subsystem_vendor", "subsystem_device"),
        "identity.serial": _word(files, f"{place}/serial_number"),
        "identity.board_part": _word(files, f"{place}/product_number"),
        "identity.vbios": _word(files, f"{place}/vbios_version"),
        "lost": parse(files.read_hex(f"{place}/config"), _lost),
        "modes.virtualization": _virtualization(files, pci_id),
        "modes.compute_partition": _mode(files, f"{place}/current_compute_partition"),
        "modes.memory_partition": _mode(files, f"{place}/current_memory_partition"),
        "clocks.performance_level": _word(files, f"{place}/power_dpm_force_performance_level"),
        "gpu_utilization_percent": _number(files, f"{place}/gpu_busy_percent", 0, 100),
        "cpu_affinity": _word(files, f"{place}/local_cpulist"),
        "numa_node": parse(files.read(f"{place}/numa_node"), number),
    }
    near = values["numa_node"]
    values["memory_affinity"] = (
        near
        if isinstance(near, Absent)
        else str(near)
        if near >= 0
        else Absent(why=Why.not_supported, detail="the machine has no NUMA node for the card")
    )
    values |= _of_kfd(device, partitions)
    values |= (
        _pcie(files, place) | _sensors(files, place) | _clocks(files, place, device) | _ras(files, place)
    )
    values |= _memory(files, place, device, partitions)
    if pci_id in VIRTUAL_FUNCTIONS and not isinstance(device, Absent):
        values = {path: _for_a_guest(value) for path, value in values.items()}
    values["processes"] = _processes(files, device)
    values["memory.unexplained_bytes"] = _unexplained(values["memory.used_bytes"], values["processes"])
    return Reading("sysfs", values)


def _for_a_guest(value: Any) -> Any:
    """The driver of a virtual function leaves out the files of what belongs to the whole card."""
    if isinstance(value, Absent) and value.why is Why.not_present:
        return Absent(why=Why.not_supported, detail="a virtual function is not told")
    return value


# KFD


def _of_kfd(device: Maybe[KfdDevice], partitions: int) -> dict[str, Any]:
    paths = (
        "uuid", "hive", "partition", "identity.gfx", "identity.architecture", "identity.compute_capability",
        "identity.compute_units", "identity.render_minor",
    )  # fmt: skip
    if isinstance(device, Absent):
        return dict.fromkeys(paths, device)
    said = device.properties
    simds, per_unit = said.get("simd_count", 0), said.get("simd_per_cu", 0)
    missing = Absent(why=Why.not_present, detail="KFD does not say")
    return {
        "uuid": _uuid(said.get("unique_id", 0), partitions),
        "hive": f"0x{said['hive_id']:x}" if "hive_id" in said else missing,
        "partition": device.partition if partitions > 1 else 0,
        **of_gfx(device.gfx or missing),
        "identity.compute_units": simds // per_unit if simds and per_unit else missing,
        "identity.render_minor": said.get("drm_render_minor") or missing,
    }


def of_gfx(gfx: Maybe[str]) -> dict[str, Any]:
    """What follows from the name compilers use for the card."""
    paths = ("identity.gfx", "identity.architecture", "identity.compute_capability")
    if isinstance(gfx, Absent):
        return dict.fromkeys(paths, gfx)
    match = re.fullmatch(r"gfx([0-9]{1,2})([0-9a-f])[0-9a-f]", gfx)
    if match is None:
        return dict.fromkeys(paths, Absent(why=Why.failed, detail=f"{gfx!r} is no target"))
    family = ARCHITECTURES.get(gfx) or _FAMILIES.get(gfx[:5])
    capability = f"{int(match[1])}.{int(match[2], 16)}"
    unnamed = Absent(why=Why.failed, detail=f"no name is known for {gfx}")
    return dict(zip(paths, (gfx, family or unnamed, capability), strict=True))


def _uuid(unique_id: int, partitions: int) -> Maybe[str]:
    """As HIP writes it, and as ROCR_VISIBLE_DEVICES takes it."""
    if unique_id in (0, 2**64 - 1):
        return Absent(
            why=Why.not_supported, detail="the card has no unique id (some virtual functions have none)"
        )
    if partitions > 1:
        return Absent(
            why=Why.not_supported, detail=f"all partitions of the package have the same: GPU-{unique_id:016x}"
        )
    return f"GPU-{unique_id:016x}"


def _processes(files: Files, device: Maybe[KfdDevice]) -> Maybe[tuple[Process, ...]]:
    """Processes that hold memory of the card. Their numbers are the machine's, also inside of a container."""
    if isinstance(device, Absent):
        return device
    pids = files.list(_PROCESSES)
    if isinstance(pids, Absent):
        return pids
    ours = files.link("/proc/self/ns/pid") == isolation.INITIAL_NAMESPACES["pid"]
    elsewhere = Absent(why=Why.not_supported, detail="the number is the machine's, and this is a container")
    found = []
    for pid in sorted(int(name) for name in pids if re.fullmatch(r"[0-9]{1,10}", name)):
        used = parse(files.read(f"{_PROCESSES}/{pid}/vram_{device.gpu_id}"), number)
        if isinstance(used, Absent) and used.why is Why.not_present:
            continue  # it does not use this card, or has just ended
        name = parse(files.read(f"/proc/{pid}/comm"), word) if ours else elsewhere
        found.append(Process(pid=pid, kind="compute", used_bytes=used, name=name))
    return tuple(found)


def _unexplained(used: Maybe[int], processes: Maybe[tuple[Process, ...]]) -> Maybe[int]:
    """Memory in use less that of the processes; the driver's own share, some 300 MB, is in it."""
    if isinstance(used, Absent):
        return used
    if isinstance(processes, Absent):
        return processes
    for process in processes:
        if isinstance(process.used_bytes, Absent):
            return process.used_bytes
        used -= process.used_bytes
    return max(used, 0)


# The PCI device


def _pair(files: Files, place: str, vendor: str, device: str) -> Maybe[str]:
    """`1002:74a1`."""
    parts = []
    for name in (vendor, device):
        part = parse(files.read(f"{place}/{name}"), lambda text: _id(text))
        if isinstance(part, Absent):
            return part
        parts.append(part)
    return ":".join(parts)


def _id(text: str) -> str | None:
    match = re.fullmatch(r"\s*0x([0-9a-fA-F]{4})\s*", text)
    return match[1].lower() if match else None


def _lost(config: str) -> bool | None:
    """A device that has gone from the bus reads as ones."""
    return config[:8] == "ffffffff" if len(config) >= 8 else None


def _virtualization(files: Files, pci_id: Maybe[str]) -> Maybe[str]:
    if pci_id in VIRTUAL_FUNCTIONS:
        return "virtual_function"
    hypervisor = isolation.virtualization(files, files.read("/proc/cpuinfo"))
    if isinstance(hypervisor, Absent):
        return hypervisor
    return "none" if hypervisor == "none" else "passthrough"


def _pcie(files: Files, place: str) -> dict[str, Any]:
    def generation(name: str) -> Maybe[int]:
        return parse(files.read(f"{place}/{name}"), generation_of)

    return {
        "pcie.generation": generation("current_link_speed"),
        "pcie.width": _number(files, f"{place}/current_link_width", 1, 32),
        "pcie.max_generation": generation("max_link_speed"),
        "pcie.max_width": _number(files, f"{place}/max_link_width", 1, 32),
        "pcie.replays": _number(files, f"{place}/pcie_replay_count", 0, 2**53),
    }


def generation_of(speed: str) -> int | None:
    """`32.0 GT/s PCIe` → 5."""
    match = re.match(r"\s*([0-9]{1,4}(?:\.[0-9]{1,3})?) ?GT/s", speed)
    return _GENERATIONS.get(float(match[1])) if match else None


# amdgpu's own files


def _mode(files: Files, path: str) -> Maybe[str]:
    mode = _word(files, path)
    if isinstance(mode, Absent):
        return mode
    if re.fullmatch(r"[SDTQC]PX|NPS[1248]", mode):
        return mode
    return Absent(why=Why.failed, detail=f"the mode {mode!r} has no meaning")


def _memory(files: Files, place: str, device: Maybe[KfdDevice], partitions: int) -> dict[str, Any]:
    total = _number(files, f"{place}/mem_info_vram_total", 1, 2**50)
    used = _number(files, f"{place}/mem_info_vram_used", 0, 2**50)
    if partitions > 1:
        total, used = device if isinstance(device, Absent) else device.memory_bytes, _PER_PACKAGE
    elif isinstance(total, Absent) and not isinstance(device, Absent):
        total = device.memory_bytes if not isinstance(device.memory_bytes, Absent) else total
    free = next((value for value in (total, used) if isinstance(value, Absent)), None)
    return {
        "memory.total_bytes": total,
        "memory.used_bytes": used,
        "memory.free_bytes": total - used if free is None else free,  # type: ignore[operator]
        "memory.bar1_total_bytes": _number(files, f"{place}/mem_info_vis_vram_total", 1, 2**50),
        "memory.bus_width_bits": device if isinstance(device, Absent) else device.memory_width_bits,
    }


def _sensors(files: Files, place: str) -> dict[str, Any]:
    """Power in microwatts, temperatures in thousandths of a degree (kernel, Documentation/gpu/amdgpu/thermal)."""
    folders = files.list(f"{place}/hwmon")
    folder: Maybe[str]
    if isinstance(folders, Absent):
        folder = folders
    elif not folders:
        folder = Absent(why=Why.not_present, detail="amdgpu shows no sensors")
    else:
        folder = f"{place}/hwmon/{folders[0]}"

    def ask(*names: str, per_unit: int, highest: float) -> Maybe[float]:
        if isinstance(folder, Absent):
            return folder
        answer: Maybe[float] = Absent(why=Why.not_present)
        for name in names:
            answer = parse(files.read(f"{folder}/{name}"), number)
            if isinstance(answer, Absent):
                continue
            if 0 <= answer / per_unit <= highest:
                return answer / per_unit
            answer = Absent(why=Why.failed, detail=f"{name} says {answer}")
        return answer

    def watts(*names: str) -> Maybe[float]:
        return ask(*names, per_unit=1_000_000, highest=20_000)

    def celsius(name: str) -> Maybe[int]:
        return whole(ask(name, per_unit=1000, highest=250))

    return {
        "power.limit_watts": watts("power1_cap"),
        "power.default_limit_watts": watts("power1_cap_default"),
        "power.min_limit_watts": watts("power1_cap_min"),
        "power.max_limit_watts": watts("power1_cap_max"),
        "power.draw_watts": watts("power1_input", "power1_average"),
        "temperature.gpu_celsius": celsius("temp2_input"),
        "temperature.memory_celsius": celsius("temp3_input"),
        "temperature.slowdown_celsius": celsius("temp2_crit"),
        "temperature.shutdown_celsius": celsius("temp2_emergency"),
        "clocks.sm_mhz": whole(ask("freq1_input", per_unit=1_000_000, highest=20_000)),
        "clocks.memory_mhz": whole(ask("freq2_input", per_unit=1_000_000, highest=20_000)),
    }


def whole(value: Maybe[float]) -> Maybe[int]:
    return value if isinstance(value, Absent) else round(value)


def _clocks(files: Files, place: str, device: Maybe[KfdDevice]) -> dict[str, Any]:
    top = parse(files.read(f"{place}/pp_dpm_sclk"), _highest)
    if isinstance(top, Absent) and not isinstance(device, Absent):
        top = device.properties.get("max_engine_clk_fcompute") or top
    return {
        "clocks.max_sm_mhz": top,
        "clocks.max_memory_mhz": parse(files.read(f"{place}/pp_dpm_mclk"), _highest),
    }


def _highest(levels: str) -> int | None:
    """`0: 132Mhz *`, `1: 2100Mhz` → 2100."""
    return max(
        (int(mhz) for mhz in re.findall(r"^\s*\w{1,3}:\s*([0-9]{1,5})\s*Mhz", levels, re.M | re.I)),
        default=None,
    )


def _ras(files: Files, place: str) -> dict[str, Any]:
    """Errors by block, pages taken out of use, and whether RAS is on at all."""
    folder = f"{place}/ras"
    names = files.list(folder)
    counts = ("corrected", "uncorrected", "deferred")
    totals = [f"health.ecc_volatile.{name}" for name in counts]
    if isinstance(names, Absent):
        pages = [f"health.bad_pages_{name}" for name in ("retired", "pending", "unreservable")]
        return dict.fromkeys([*totals, *pages, "health.ecc_enabled", "health.ecc_blocks"], names)
    blocks = [
        _block(files, f"{folder}/{name}", name.removesuffix("_err_count"))
        for name in names
        if name.endswith("_err_count")
    ]
    return {
        "health.ecc_enabled": parse(files.read(f"{folder}/features"), _features),
        "health.ecc_blocks": tuple(sorted(blocks, key=lambda block: block.name)),
        **of_blocks(blocks),
        **_bad_pages(files, folder),
    }


def of_blocks(blocks: list[EccBlock]) -> dict[str, Any]:
    """Sums over the blocks; a block that does not tell leaves the sum unknown."""
    none = Absent(why=Why.not_supported, detail="the driver counts no errors of any block")
    values: dict[str, Any] = {}
    for name in ("corrected", "uncorrected", "deferred"):
        parts: list[Maybe[int]] = [getattr(block, name) for block in blocks]
        missing = next((part for part in parts if isinstance(part, Absent)), None)
        values[f"health.ecc_volatile.{name}"] = missing or (sum(parts) if parts else none)  # type: ignore[arg-type]
    memory = next((block for block in blocks if block.name == "UMC"), None)
    for name in ("corrected", "uncorrected"):
        values[f"health.ecc_volatile.dram_{name}"] = getattr(memory, name) if memory else none
    return values


def _block(files: Files, path: str, name: str) -> EccBlock:
    """`ue: 0`, `ce: 0` and, from Linux 6.9 on, `de: 0`."""
    text = files.read(path)

    def count(kind: str) -> Maybe[int]:
        def of(counts: str) -> int | None:
            match = re.search(rf"^{kind}: ([0-9]{{1,18}})$", counts, re.M)
            return int(match[1]) if match else None

        return parse(text, of)

    deferred = count("de")
    if isinstance(deferred, Absent) and isinstance(text, str):
        deferred = Absent(why=Why.not_supported, detail="this driver does not count deferred errors")
    return EccBlock(name=name.upper(), corrected=count("ce"), uncorrected=count("ue"), deferred=deferred)


def _features(text: str) -> bool | None:
    """`feature mask: 0x…`: a bit for each block that is watched over."""
    match = re.search(r"feature mask: 0x([0-9a-f]{1,16})", text)
    return bool(int(match[1], 16)) if match else None


def _bad_pages(files: Files, folder: str) -> dict[str, Any]:
    """Lines `0x00000001 : 0x00001000 : R`; R is retired, P waits for a reset, F could not be reserved."""
    text = files.read(f"{folder}/gpu_vram_bad_pages")

    def count(letter: str) -> Maybe[int]:
        def of(pages: str) -> int | None:
            lines = pages.strip().splitlines()
            found = re.findall(r"^0x[0-9a-fA-F]+ : 0x[0-9a-fA-F]+ : ([RPF])\s*$", pages, re.M)
            return found.count(letter) if len(found) == len(lines) else None

        return parse(text, of)

    return {
        "health.bad_pages_retired": count("R"),
        "health.bad_pages_pending": count("P"),
        "health.bad_pages_unreservable": count("F"),
    }


def _word(files: Files, path: str) -> Maybe[str]:
    """A line of text; what the driver writes for a value that it does not have is none."""
    text = files.read(path)
    if isinstance(text, Absent):
        return text
    line = word(text)
    if line is None or line.upper() in ("N/A", "UNKNOWN", "NONE", "0"):
        return Absent(why=Why.not_supported, detail=f"the driver shows {text.strip()[:20]!r}")
    return line


def _number(files: Files, path: str, lowest: int, highest: int) -> Maybe[int]:
    return _within(parse(files.read(path), number), lowest, highest)


_BLANKS = (0xFF, 0xFFFF, 0xFFFFFFFF, 2**64 - 1)


def _within(value: Maybe[int], lowest: int, highest: int) -> Maybe[int]:
    if isinstance(value, Absent) or lowest <= value <= highest:
        return value
    if value in _BLANKS or value == 0:
        return Absent(why=Why.not_supported, detail=f"the driver shows {value}")
    return Absent(why=Why.failed, detail=f"{value} cannot be: it is not within {lowest} and {highest}")

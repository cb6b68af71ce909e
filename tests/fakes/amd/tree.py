"""KFD's topology, the PCI bus and amdgpu's files of a made-up node."""

from __future__ import annotations

from typing import Any

from nodecheck.facts import Absent, Why
from tests.fakes.amd import AmdCard, AmdNode
from tests.fakes.tree import Tree, configuration, plant_cpu

NODES = "/sys/class/kfd/kfd/topology/nodes"
DENIED = Absent(why=Why.no_permission, detail="Operation not permitted")
VIDEO, RENDER = 44, 992


def plant(node: AmdNode) -> Tree:
    """The node's whole tree, as the machine shows it (what a container may not read is `denied`)."""
    tree = plant_cpu(memory_gib=2048, kind=node.kind)
    tree.files["/etc/group"] = f"root:x:0:\nvideo:x:{VIDEO}:\nrender:x:{RENDER}:\n"
    for card in node.cards:
        if card.partition == 0:
            _device(tree, node, card)
    if not node.loaded:
        return tree
    tree.folders |= {"/sys/module/amdgpu", "/sys/class/kfd/kfd/proc"}
    _log(tree, node)
    tree.files["/sys/module/amdgpu/initstate"] = "live\n"
    if node.module:
        tree.files["/sys/module/amdgpu/version"] = f"{node.module}\n"
        tree.folders.add(f"/usr/src/amdgpu-{node.module}-2278356.24.04")
    tree.files["/opt/rocm/.info/version"] = f"{node.rocm}-70\n"
    tree.files["/dev/kfd"] = ""
    for number in (0, 1):
        _cpu(tree, number)
    for position, card in enumerate(node.cards):
        _kfd(tree, node, position, card)
        if position not in node.hidden:
            tree.files[f"/dev/dri/renderD{card.render_minor}"] = ""
        for pid, size in card.processes.items():
            tree.files[f"/sys/class/kfd/kfd/proc/{pid}/vram_{card.gpu_id}"] = f"{size}\n"
    return tree


def _log(tree: Tree, node: AmdNode) -> None:
    """What amdgpu writes as it starts, in the place of NVIDIA's lines."""
    log = tree.files.get("/dev/kmsg")
    if not isinstance(log, str):
        return
    lines = [line for line in log.splitlines() if "NVRM" not in line and "nvidia" not in line]
    said = ["[drm] amdgpu kernel modesetting enabled."]
    said += [f"amdgpu {card.package}: amdgpu: RAS INFO: ras initialized successfully" for card in node.cards]
    lines += [f"6,{len(lines) + i},{9_120_034 + i},-;{line}" for i, line in enumerate(said)]
    tree.files["/dev/kmsg"] = "\n".join(lines) + "\n"


def denied(node: AmdNode) -> dict[str, Any]:
    """Answers to the questions about files that the container's device cgroup refuses."""
    answers: dict[str, Any] = {}
    for position in node.hidden:
        folder = f"{NODES}/{node.cards[position].node}"
        answers |= {f"read {folder}/{name}": DENIED for name in ("gpu_id", "properties")}
    return answers


def owners(node: AmdNode, group: int = RENDER, mode: int = 0o660) -> dict[str, Any]:
    """To whom the device files belong: what a folder of files cannot show."""
    paths = ["/dev/kfd", *(f"/dev/dri/renderD{card.render_minor}" for card in node.given)]
    return {f"owner {path}": [mode, 0, group] for path in paths}


def _cpu(tree: Tree, number: int) -> None:
    folder = f"{NODES}/{number}"
    tree.files[f"{folder}/gpu_id"] = "0\n"
    tree.files[f"{folder}/properties"] = "cpu_cores_count 48\nsimd_count 0\nvendor_id 0\nlocation_id 0\n"


def _kfd(tree: Tree, node: AmdNode, position: int, card: AmdCard) -> None:
    folder = f"{NODES}/{card.node}"
    domain, bus, rest = card.address.split(":")
    slot, function = rest.split(".")
    location = int(bus, 16) << 8 | int(slot, 16) << 3 | int(function)
    tree.files[f"{folder}/gpu_id"] = f"{card.gpu_id}\n"
    tree.files[f"{folder}/name"] = "ip discovery\n"
    tree.files[f"{folder}/properties"] = "".join(
        f"{name} {value}\n"
        for name, value in {
            "cpu_cores_count": 0,
            "simd_count": card.units * 4,
            "mem_banks_count": 1,
            "io_links_count": len(node.cards),
            "simd_per_cu": 4,
            "gfx_target_version": card.target,
            "vendor_id": 4098,
            "device_id": card.device,
            "location_id": location,
            "domain": int(domain, 16),
            "drm_render_minor": card.render_minor,
            "hive_id": card.hive,
            "num_xcc": 8,
            "max_engine_clk_fcompute": node.product.clock_mhz,
            "local_mem_size": 0,
            "unique_id": card.unique_id,
        }.items()
    )
    tree.files[f"{folder}/mem_banks/0/properties"] = (
        f"heap_type 1\nsize_in_bytes {card.memory_bytes}\nflags 0\nwidth {node.product.bus_bits}\n"
        "mem_clk_max 1300\n"
    )
    link(tree, folder, 0, card.node, max(card.numa, 0), 2, 20, 0, 64_000)
    for there, other in enumerate(node.cards):
        way = node.ways.get((position, there))
        if way is not None and way.kind == "xgmi":
            link(tree, folder, there + 1, card.node, other.node, 11, way.weight, way.mb_per_s, way.mb_per_s)


def link(
    tree: Tree, folder: str, index: int, here: int, there: int, kind: int, weight: int, least: int, most: int
) -> None:
    tree.files[f"{folder}/io_links/{index}/properties"] = (
        f"type {kind}\nversion_major 0\nnode_from {here}\nnode_to {there}\nweight {weight}\n"
        f"min_latency 0\nmax_latency 0\nmin_bandwidth {least}\nmax_bandwidth {most}\nflags 1\n"
    )


def _device(tree: Tree, node: AmdNode, card: AmdCard) -> None:
    made = node.product
    domain, bus, _ = card.address.split(":")
    root = f"/sys/devices/pci{domain}:00" if node.virtual else f"/sys/devices/pci0000:{int(bus, 16) - 1:02x}"
    folder = f"{root}/{card.address}"
    tree.links[f"/sys/bus/pci/devices/{card.address}"] = folder
    speed = f"{made.pcie} GT/s PCIe"
    values: dict[str, object] = {
        "vendor": "0x1002",
        "device": f"0x{card.device:04x}",
        "subsystem_vendor": "0x1002",
        "subsystem_device": f"0x{made.subsystem:04x}",
        "class": f"0x{made.pci_class}",
        "numa_node": card.numa,
        "local_cpulist": "0-47" if card.numa < 1 else "48-95",
        "current_link_speed": speed,
        "max_link_speed": speed,
        "current_link_width": card.width,
        "max_link_width": 16,
        "aer_dev_correctable": "RxErr 0\nBadTLP 0\nTOTAL_ERR_COR 0",
        "aer_dev_fatal": "DLP 0\nTOTAL_ERR_FATAL 0",
        "aer_dev_nonfatal": "DLP 0\nTOTAL_ERR_NONFATAL 0",
    }
    if node.loaded:
        tree.links[f"{folder}/driver"] = "/sys/bus/pci/drivers/amdgpu"
        tree.links[f"/sys/bus/pci/drivers/amdgpu/{card.address}"] = folder
        values |= {
            "mem_info_vram_total": made.memory_bytes if card.compute != "SPX" else card.memory_bytes,
            "mem_info_vram_used": card.used_bytes + sum(card.processes.values()),
            "mem_info_vis_vram_total": card.memory_bytes,
            "gpu_busy_percent": 0,
            "current_memory_partition": card.memory,
            "current_compute_partition": card.compute,
            "power_dpm_force_performance_level": "auto",
        }
        if not node.virtual:
            values |= _told_on_bare_metal(tree, node, card, folder)
    for name, value in values.items():
        tree.files[f"{folder}/{name}"] = f"{value}\n"
    space = configuration(f"1002:{card.device:04x}")
    tree.files[f"{folder}/config"] = space[:64] if node.kind == "container" else space


def _told_on_bare_metal(tree: Tree, node: AmdNode, card: AmdCard, folder: str) -> dict[str, object]:
    sensors = f"{folder}/hwmon/hwmon{card.render_minor - 120}"
    micro = 1_000_000
    for name, value in {
        "name": "amdgpu",
        "power1_cap": round(card.cap_watts * micro),
        "power1_cap_default": round(card.default_watts * micro),
        "power1_cap_max": round(card.default_watts * micro),
        "power1_cap_min": 0,
        "power1_input": 121 * micro,
        "temp2_input": 41_000,
        "temp2_crit": 100_000,
        "temp2_emergency": 110_000,
        "temp3_input": 36_000,
        "freq1_input": 132 * micro,
        "freq2_input": 900 * micro,
    }.items():
        tree.files[f"{sensors}/{name}"] = f"{value}\n"
    for block, (corrected, uncorrected, deferred) in card.ecc.items():
        tree.files[f"{folder}/ras/{block.lower()}_err_count"] = (
            f"ue: {uncorrected}\nce: {corrected}\nde: {deferred}\n"
        )
    tree.files[f"{folder}/ras/features"] = "feature mask: 0x3f7fb\n"
    tree.files[f"{folder}/ras/gpu_vram_bad_pages"] = "".join(
        f"0x{page:08x} : 0x00001000 : {letter}\n" for page, letter in enumerate(card.bad_pages)
    )
    return {
        "vbios_version": "113-M3000100-102",
        "serial_number": card.serial,
        "product_number": "102-G30211-00",
        "pcie_replay_count": card.replays,
        "pp_dpm_sclk": f"0: 132Mhz *\n1: {node.product.clock_mhz}Mhz",
        "pp_dpm_mclk": f"0: 900Mhz *\n1: {node.product.memory_mhz}Mhz",
    }

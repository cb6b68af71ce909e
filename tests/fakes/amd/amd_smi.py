"""`amd-smi` of each generation: its JSON, and what else it prints.

`answer` makes the text; `install` puts a program of that name into a folder, for the real source to start.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.fakes.amd import MIB, AmdCard, AmdNode

GENERATIONS = ("6.0", "6.2", "6.4", "7.0", "7.2", "10.1")

GROUPS = "RuntimeError: WARNING: User is missing the following required groups: {}. Please add user to these groups."
UNLOADED = "ERROR:root:Unable to detect any GPU devices, check amdgpu version and module status\n"
LEGEND = "\nLegend:\n  * = Current mode\n"
NETWORK_CARD = [{"nic": 0, "bdf": "0000:22:00.0", "uuid": "N/A"}]
NA = "N/A"

COMMANDS = (
    "version", "list", "static", "metric", "firmware", "topology", "xgmi", "bad-pages", "process", "partition",
)  # fmt: skip


def answer(node: AmdNode, command: str, generation: str) -> str:
    """What it prints on stdout."""
    release = tuple(map(int, generation.split(".")))
    if not node.loaded:
        return UNLOADED
    if command == "version":
        return _dump(_version(node, release))
    made = [_COMMANDS[command](node, i, card, release) for i, card in enumerate(node.given)]
    document: Any = made
    if command == "partition":
        document = {"current_partition": made, "memory_partition": [], "partition_profiles": []}
    elif release >= (7, 0) and command in ("static", "metric"):
        document = {"gpu_data": made}
    text = _dump(document)
    if command == "list" and release >= (7, 2):
        text += _dump(NETWORK_CARD)
    if command == "partition":
        text += LEGEND
    if node.groups_missing:
        text = GROUPS.format(", ".join(node.groups_missing)) + "\n" + text
    return text


def install(node: AmdNode, folder: Path, generation: str, *, hang: str = "") -> None:
    """A program `amd-smi` in `folder`; the command named `hang` never returns."""
    folder.mkdir(parents=True, exist_ok=True)
    for command in COMMANDS:
        (folder / f"{command}.out").write_text(answer(node, command, generation))
    program = folder / "amd-smi"
    program.write_text(
        f"#!{sys.executable} -IS\n"
        "import pathlib, sys, time\n"
        f"if sys.argv[1] == {hang!r}:\n    time.sleep(600)\n"
        f"sys.stdout.write((pathlib.Path({str(folder)!r}) / (sys.argv[1] + '.out')).read_text())\n"
    )
    program.chmod(0o755)


def output(node: AmdNode, command: str, generation: str) -> dict[str, Any]:
    """The answer of the commands' channel."""
    code = 0 if node.loaded else 195
    return {"returncode": code, "stdout": answer(node, command, generation), "stderr": "", "seconds": 0.4}


def outputs(node: AmdNode, generation: str) -> dict[str, Any]:
    """Question to the commands' channel → its answer, for all of them."""
    return {f"amd_smi_{name.replace('-', '_')}": output(node, name, generation) for name in COMMANDS}


def _dump(document: Any) -> str:
    return json.dumps(document, indent=4) + "\n"


def _unit(value: object, unit: str) -> dict[str, object]:
    return {"value": value, "unit": unit}


def _version(node: AmdNode, release: tuple[int, ...]) -> list[dict[str, Any]]:
    library = {6: "24.6.3+9578815", 7: "26.2.0", 10: "27.0.0"}[release[0]]
    driver = (
        "AMDSMI_STATUS_FILE_ERROR - Error opening file"
        if node.groups_missing
        else node.module or "6.8.0-60-generic"
    )
    return [
        {
            "tool": "AMDSMI Tool",
            "version": library,
            "amdsmi_library_version": library.split("+")[0],
            "rocm_version": ".".join(map(str, (*release, 0))),
            "amdgpu_version": driver,
        }
    ]


def _list(node: AmdNode, i: int, card: AmdCard, release: tuple[int, ...]) -> dict[str, Any]:
    number = f"{card.unique_id:016x}"
    own_form = f"{number[:2]}ff{card.device:04x}-0000-1000-80{number[-2:]}-{number[:12]}"
    said: dict[str, Any] = {
        "gpu": i,
        "bdf": card.address,
        "uuid": f"GPU-{card.unique_id:016x}" if release >= (7, 13) else own_form,
    }
    if release >= (6, 4):
        said |= {"kfd_id": card.gpu_id, "node_id": card.node, "partition_id": card.partition}
    return said


def _static(node: AmdNode, i: int, card: AmdCard, release: tuple[int, ...]) -> dict[str, Any]:
    made = node.product
    blank = bool(node.groups_missing)
    partition = card.partition > 0
    asic: dict[str, Any] = {
        "market_name": card.name,
        "vendor_id": "0x1002",
        "vendor_name": "Advanced Micro Devices Inc. [AMD/ATI]",
        "subvendor_id": "0x1002",
        "device_id": f"0x{card.device:04x}",
        "rev_id": "0x00",
        "asic_serial": f"0x{card.unique_id:016X}",
        "oam_id": i,
    }
    if release >= (6, 2):
        asic |= {"num_compute_units": card.units}
    if release >= (6, 3):
        asic |= {"target_graphics_version": card.gfx}
    if release >= (7, 0):
        asic |= {"subsystem_id": f"0x{made.subsystem:04x}"}
    firmware = {
        "name": "AMD MI300X_HW_SRIOV_CVS_1VF", "build_date": "2025/06/20 15:32", "part_number": "113-M3000100-102",
        "version": "022.040.003.043.000001",
    }  # fmt: skip
    said: dict[str, Any] = {
        "gpu": i,
        "asic": asic,
        "bus": {
            "bdf": card.address,
            "max_pcie_width": 16,
            "max_pcie_speed": _unit(int(made.pcie), "GT/s") if release >= (6, 1) else f"{int(made.pcie)} GT/s",
            "pcie_interface_version": "Gen 5",
            "slot_type": "OAM" if release >= (7, 0) else "PCIE",
        },
        "ifwi" if release >= (7, 1) else "vbios": firmware,
        "limit": _limit(card, release),
        "driver": {"name": "amdgpu", "version": node.module or "6.8.0-60-generic"},
        "board": {
            "model_number": "102-G30211-00", "product_serial": card.serial, "fru_id": "113-AMDG302110007-0",
            "product_name": card.name, "manufacturer_name": "AMD",
        },
        "ras": {
            "eeprom_version": "0x30000",
            **({"bad_page_threshold": card.threshold} if release >= (7, 0) else {}),
            "ecc_block_state": dict.fromkeys(card.ecc, "ENABLED"),
        },
        "numa": {"node": card.numa, "affinity": max(card.numa, 0)},
        "vram": {
            "type": "HBM3" if release >= (6, 2) else "HBM",
            "vendor": "HYNIX",
            "size": _unit(card.memory_bytes // MIB, "MB") if release >= (6, 1) else f"{card.memory_bytes // MIB} MB",
            **({"bit_width": made.bus_bits} if release >= (6, 3) else {}),
        },
    }  # fmt: skip
    if release < (7, 0):
        name = "accelerator_partition" if release >= (6, 4) else "compute_partition"
        said["partition"] = {name: card.compute, "memory_partition": card.memory}
    if node.virtual or partition:
        said |= {"limit": NA, "ras": NA, "board": dict.fromkeys(said["board"], NA)}
        asic["oam_id"] = NA
    if blank:
        said |= {name: dict.fromkeys(said[name], NA) for name in ("asic", "board", "vram", "ras")}
        said["limit"] = NA
    return said


def _limit(card: AmdCard, release: tuple[int, ...]) -> dict[str, Any]:
    watts, most = round(card.cap_watts), round(card.default_watts)
    if release >= (7, 2):
        first = {
            "max_power_limit": _unit(most, "W"), "min_power_limit": _unit(0, "W"),
            "socket_power_limit": _unit(watts, "W"),
        }  # fmt: skip
        return {"ppt0": first, "ppt1": NA, "slowdown_hotspot_temperature": _unit(100, "C")}
    if release >= (6, 1):
        return {"max_power": _unit(most, "W"), "min_power": _unit(0, "W"), "socket_power": _unit(watts, "W")}
    return {"max_power": most, "power_cap": watts}


def _metric(node: AmdNode, i: int, card: AmdCard, release: tuple[int, ...]) -> dict[str, Any]:
    made = node.product
    if card.partition > 0 or node.groups_missing:
        return {
            "gpu": i,
            **dict.fromkeys(("usage", "power", "clock", "temperature", "pcie", "ecc", "ecc_blocks"), NA),
        }
    total = [sum(counts[k] for counts in card.ecc.values()) for k in range(3)]
    clock = {"clk": _unit(132, "MHz"), "min_clk": _unit(132, "MHz"), "max_clk": _unit(made.clock_mhz, "MHz")}
    memory = {
        "clk": _unit(900, "MHz"),
        "min_clk": _unit(900, "MHz"),
        "max_clk": _unit(made.memory_mhz, "MHz"),
    }
    said: dict[str, Any] = {
        "gpu": i,
        "usage": {"gfx_activity": _unit(0, "%"), "umc_activity": _unit(0, "%"), "mm_activity": NA},
        "power": {"socket_power": _unit(121, "W"), "throttle_status": "UNTHROTTLED"},
        "clock": {"gfx_0": clock, "mem_0": memory} if release >= (6, 2) else {"gfx": clock, "mem": memory},
        "temperature": {"edge": NA, "hotspot": _unit(41, "C"), "mem": _unit(36, "C")},
        "pcie": {
            "width": card.width,
            "speed": _unit(int(made.pcie), "GT/s"),
            "bandwidth": _unit(12, "Mb/s"),
            "replay_count": card.replays,
            "l0_to_recovery_count": card.recoveries,
            "replay_roll_over_count": 0,
            "nak_sent_count": card.naks,
            "nak_received_count": 0,
        },
        "ecc": {
            "total_correctable_count": total[0],
            "total_uncorrectable_count": total[1],
            **({"total_deferred_count": total[2]} if release >= (6, 1) else {}),
            "cache_correctable_count": NA,
            "cache_uncorrectable_count": NA,
        },
        "ecc_blocks": {
            name: {"correctable_count": ce, "uncorrectable_count": ue, "deferred_count": de}
            for name, (ce, ue, de) in card.ecc.items()
        },
        "perf_level": "AMDSMI_DEV_PERF_LEVEL_AUTO",
        "energy": {"total_energy_consumption": _unit(123456.789, "J")},
        "mem_usage": {
            "total_vram": _unit(card.memory_bytes // MIB, "MB"),
            "used_vram": _unit(card.used_bytes // MIB, "MB"),
        },
    }
    if release >= (6, 3):
        said["throttle"] = {"accumulation_counter": 53210} | {
            key: value
            for name in ("prochot", "ppt", "socket_thermal", "vr_thermal", "hbm_thermal")
            for key, value in (
                (f"{name}_violation_status", "ACTIVE" if card.limits.get(name) else "NOT ACTIVE"),
                (f"{name}_violation_activity", _unit(card.limits.get(name, 0), "%")),
            )
        }
    if node.virtual:
        for name in ("power", "clock", "temperature", "pcie", "ecc", "ecc_blocks", "throttle"):
            said[name] = NA
        if release >= (6, 2):
            del said["ecc"], said["ecc_blocks"]
    return said


def _firmware(node: AmdNode, i: int, card: AmdCard, release: tuple[int, ...]) -> dict[str, Any]:
    listed = [
        {"fw_id": "CP_MEC1", "fw_version": "173"},
        {"fw_id": "PLDM_BUNDLE", "fw_version": "01.25.03.12"},
    ]
    return {"gpu": i, "fw_list": listed[: 1 if node.virtual or card.partition else 2]}


def _topology(node: AmdNode, i: int, card: AmdCard, release: tuple[int, ...]) -> dict[str, Any]:
    here = node.cards.index(card)
    links, tables = [], dict[str, dict[str, Any]]()
    for j, other in enumerate(node.given):
        way = node.ways.get((here, node.cards.index(other)))
        said: dict[str, Any] = {
            "gpu": j,
            "bdf": other.address,
            "weight": way.weight if way else 0,
            "link_status": "ENABLED",
            "link_type": way.kind.upper() if way else "SELF",
            "num_hops": (1 if way.kind == "xgmi" else 3) if way else 0,  # 1 for whatever xGMI path there is
            "bandwidth": f"{way.mb_per_s}-{way.mb_per_s}" if way and way.kind == "xgmi" else NA,
            "coherent": "C",
            "atomics": "64,32",
            "dma": "T",
            "bi_dir": "T",
        }
        links.append(said)
        for table, name in (
            ("link_accessibility", "link_status"), ("weight", "weight"), ("hops", "num_hops"),
            ("link_type", "link_type"), ("numa_bandwidth", "bandwidth"),
        ):  # fmt: skip
            tables.setdefault(table, {})[f"gpu_{j}"] = said[name]
    if release < (6, 1):
        return {"gpu": i, **tables}
    return {"gpu": i, "bdf": card.address, "links": links}


def _xgmi(node: AmdNode, i: int, card: AmdCard, release: tuple[int, ...]) -> dict[str, Any]:
    here = node.cards.index(card)
    said: dict[str, Any] = {
        "gpu": i,
        "bdf": card.address,
        "link_metrics": {
            "bit_rate": _unit(32, "Gb/s"),
            "max_bandwidth": _unit(512, "Gb/s"),
            "link_type": "XGMI",
        },
    }
    if release >= (6, 4):
        states = []
        for other in node.given:
            way = node.ways.get((here, node.cards.index(other)))
            down = node.virtual and release < (7, 12)  # what that release said of every link
            states.append("SELF" if way is None else "D" if down or way.down else "U")
        said["link_status"] = NA if node.virtual and release >= (7, 12) else states
    return said


def _bad_pages(node: AmdNode, i: int, card: AmdCard, release: tuple[int, ...]) -> dict[str, Any]:
    def pages(letter: str) -> Any:
        found = [
            {"page_address": f"0x{page:x}", "page_size": 4096, "status": letter}
            for page, kind in enumerate(card.bad_pages)
            if kind == letter
        ]
        return found or "No bad pages found."

    return {"gpu": i, "retired": pages("R"), "pending": pages("P"), "un_res": pages("F")}


def _process(node: AmdNode, i: int, card: AmdCard, release: tuple[int, ...]) -> dict[str, Any]:
    listed = [
        {"process_info": {"name": "python3", "pid": pid, "memory_usage": {"vram_mem": _unit(size, "B")}}}
        for pid, size in card.processes.items()
    ]
    return {"gpu": i, "process_list": listed or [{"process_info": "No running processes detected"}]}


def _partition(node: AmdNode, i: int, card: AmdCard, release: tuple[int, ...]) -> dict[str, Any]:
    return {
        "gpu": i,
        "memory": card.memory,
        "accelerator_type": card.compute,
        "accelerator_profile_index": NA,
        "partition_id": str(card.partition),
    }


_COMMANDS = {
    "list": _list, "static": _static, "metric": _metric, "firmware": _firmware, "topology": _topology,
    "xgmi": _xgmi, "bad-pages": _bad_pages, "process": _process, "partition": _partition,
}  # fmt: skip

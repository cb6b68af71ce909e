"""The stand-in for ROCm's binding itself; it is copied to where that would be and imported from there."""

from __future__ import annotations

import ctypes
import enum
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

_NODE: dict[str, Any] = {}
_RELEASE: tuple[int, ...] = ()


def _load() -> None:
    described = json.loads(Path(__file__).with_name("node.json").read_text())
    _NODE.update(described)
    globals()["_RELEASE"] = tuple(described["release"])
    fault = described["fault"]
    if fault == "missing":
        print("Unable to load library: /opt/rocm/lib/libamd_smi.so: cannot open shared object file")
        print("Please install amd-smi-lib")
        raise KeyError("libamd_smi.so")
    if fault == "older":
        raise AttributeError("/opt/rocm/lib/libamd_smi.so: undefined symbol: amdsmi_get_node_handle")
    if fault == "exit":
        sys.exit(3)
    if fault == "crash":
        os.abort()
    if fault == "chatter":
        print("WARNING: something is printed on import")
    if _RELEASE < (6, 1) and os.environ["ROCM_PATH"]:  # KeyError where it is not set
        pass


if Path(__file__).with_name("node.json").exists():
    _load()


class AmdSmiException(Exception):
    pass


class AmdSmiLibraryException(AmdSmiException):
    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(f"Error code:\n\t{code} | AMDSMI_STATUS")

    def get_error_code(self) -> int:
        return self.code


class AmdSmiMemoryType(enum.IntEnum):
    VRAM = 0


class AmdSmiClkType(enum.IntEnum):
    GFX = 0
    MEM = 4


class AmdSmiTemperatureType(enum.IntEnum):
    HOTSPOT = 1
    VRAM = 2


class AmdSmiTemperatureMetric(enum.IntEnum):
    CURRENT = 0


class AmdSmiGpuBlock(enum.IntEnum):
    UMC = 1
    SDMA = 2
    GFX = 4
    MMHUB = 8
    PCIE_BIF = 32
    HDP = 64
    XGMI_WAFL = 128


NOT_SUPPORTED, NO_PERM, DRIVER_NOT_LOADED = 2, 10, 34
NA = "N/A"


def _card(handle: int) -> dict[str, Any]:
    card: dict[str, Any] = _NODE["cards"][handle]
    return card


def _not_on_a_guest() -> None:
    if _NODE["virtual"]:
        raise AmdSmiLibraryException(NOT_SUPPORTED)


def _since(*release: int) -> None:
    if release > _RELEASE:
        raise AttributeError("module 'amdsmi' has no such attribute")


def _hangs(name: str) -> None:
    if _NODE["hang"] == name:
        time.sleep(600)


def amdsmi_init(*_: Any) -> None:
    _hangs("amdsmi_init")
    if not _NODE["loaded"] and _RELEASE >= (7, 0):
        raise AmdSmiLibraryException(DRIVER_NOT_LOADED)


def amdsmi_get_processor_handles() -> list[int]:
    return list(range(len(_NODE["cards"]))) if _NODE["loaded"] else []


def amdsmi_get_gpu_device_bdf(handle: int) -> str:
    _hangs("amdsmi_get_gpu_device_bdf")
    return str(_card(handle)["address"])


def amdsmi_get_gpu_virtualization_mode(handle: int) -> dict[str, Any]:
    _since(6, 4)
    return {"mode": ctypes.c_uint32(3 if _NODE["virtual"] else 1)}


def amdsmi_get_gpu_enumeration_info(handle: int) -> dict[str, Any]:
    _since(6, 4)
    card = _card(handle)
    return {
        "drm_render": card["render_minor"], "drm_card": handle, "hsa_id": handle, "hip_id": handle,
        "hip_uuid": f"GPU-{card['unique_id']:016x}",
    }  # fmt: skip


def amdsmi_get_gpu_asic_info(handle: int) -> dict[str, Any]:
    card = _card(handle)
    said: dict[str, Any] = {
        "market_name": card["name"],
        "vendor_id": 0x1002,
        "vendor_name": "Advanced Micro Devices Inc. [AMD/ATI]",
        "subvendor_id": 0x1002,
        "device_id": f"0x{card['device']:04x}" if _RELEASE >= (6, 2) else card["device"],
        "rev_id": 0,
        "asic_serial": f"0x{card['unique_id']:016X}",
        "oam_id": NA if _NODE["virtual"] else handle,
    }
    if _RELEASE >= (6, 2):
        said["num_compute_units"] = card["units"]
    if _RELEASE >= (6, 3):
        said["target_graphics_version"] = card["gfx"]
    if _RELEASE >= (7, 0):
        said["subsystem_id"] = f"0x{_NODE['product']['subsystem']:04x}"
    return said


def amdsmi_get_gpu_board_info(handle: int) -> dict[str, Any]:
    if _NODE["virtual"]:
        return {
            "model_number": "",
            "product_serial": NA,
            "fru_id": NA,
            "product_name": "",
            "manufacturer_name": "",
        }
    return {"model_number": "102-G30211-00", "product_serial": _card(handle)["serial"], "product_name": NA}


def amdsmi_get_gpu_vbios_info(handle: int) -> dict[str, Any]:
    return {"name": "AMD", "part_number": "113-M3000100-102", "version": "022.040.003.043.000001"}


def amdsmi_get_gpu_vram_info(handle: int) -> dict[str, Any]:
    mib = _card(handle)["memory_bytes"] // 1024**2
    kind = 4 if _RELEASE >= (6, 2) else 6
    if _RELEASE < (6, 2):
        return {"vram_type": kind, "vram_vendor": 3, "vram_size_mb": mib}
    return {"vram_type": kind, "vram_vendor": "HYNIX", "vram_size": mib, "vram_bit_width": 8192}


def amdsmi_get_gpu_memory_total(handle: int, _: Any) -> int:
    return int(_card(handle)["memory_bytes"])


def amdsmi_get_gpu_memory_usage(handle: int, _: Any) -> int:
    return int(_card(handle)["used_bytes"])


def _counts(rows: list[list[int]]) -> dict[str, Any]:
    said = {
        "correctable_count": sum(row[0] for row in rows), "uncorrectable_count": sum(row[1] for row in rows),
    }  # fmt: skip
    return said | ({"deferred_count": sum(row[2] for row in rows)} if _RELEASE >= (6, 1) else {})


def amdsmi_get_gpu_total_ecc_count(handle: int) -> dict[str, Any]:
    _not_on_a_guest()
    return _counts(list(_card(handle)["ecc"].values()))


def amdsmi_get_gpu_ecc_count(handle: int, block: AmdSmiGpuBlock) -> dict[str, Any]:
    _not_on_a_guest()
    return _counts([_card(handle)["ecc"][block.name]])


def amdsmi_get_gpu_ecc_enabled(handle: int) -> int:
    _not_on_a_guest()
    return 0x3F7FB


def amdsmi_get_gpu_bad_page_info(handle: int) -> Any:
    _not_on_a_guest()
    pages = _card(handle)["bad_pages"]
    if not pages and _RELEASE < (6, 2):
        return "No bad pages found."
    return [
        {"value": i, "page_address": i * 4096, "page_size": 4096, "status": "RPF".index(letter)}
        for i, letter in enumerate(pages)
    ]


def amdsmi_get_gpu_bad_page_threshold(handle: int) -> int:
    _since(7, 0)
    raise AmdSmiLibraryException(NO_PERM)


def amdsmi_get_pcie_info(handle: int) -> dict[str, Any]:
    _since(6, 2)
    _not_on_a_guest()
    card, speed = _card(handle), round(_NODE["product"]["pcie"] * 1000)
    return {
        "pcie_static": {
            "max_pcie_width": 16,
            "max_pcie_speed": speed,
            "pcie_interface_version": 5,
            "slot_type": 0,
        },
        "pcie_metric": {
            "pcie_width": card["width"],
            "pcie_speed": speed,
            "pcie_bandwidth": 12,
            "pcie_replay_count": card["replays"],
            "pcie_l0_to_recovery_count": card["recoveries"],
            "pcie_replay_roll_over_count": 0,
            "pcie_nak_sent_count": card["naks"],
            "pcie_nak_received_count": 2**32 - 1,
        },
    }


def amdsmi_get_power_cap_info(handle: int) -> dict[str, Any]:
    _not_on_a_guest()
    card, scale = _card(handle), 1_000_000 if _RELEASE >= (6, 2) else 1
    most = round(card["default_watts"] * scale)
    return {
        "power_cap": round(card["cap_watts"] * scale), "default_power_cap": most, "dpm_cap": 0,
        "min_power_cap": 0, "max_power_cap": most,
    }  # fmt: skip


def amdsmi_get_power_info(handle: int) -> dict[str, Any]:
    _not_on_a_guest()
    return {"current_socket_power": 121, "average_socket_power": NA, "power_limit": 65535}


def amdsmi_get_gpu_activity(handle: int) -> dict[str, Any]:
    return {"gfx_activity": 0, "umc_activity": 0, "mm_activity": 65535}


def amdsmi_get_clock_info(handle: int, kind: AmdSmiClkType) -> dict[str, Any]:
    _not_on_a_guest()
    most = _NODE["product"]["clock_mhz" if kind is AmdSmiClkType.GFX else "memory_mhz"]
    return {("cur_clk" if _RELEASE < (6, 2) else "clk"): 132, "min_clk": 132, "max_clk": most}


def amdsmi_get_temp_metric(handle: int, kind: AmdSmiTemperatureType, _: Any) -> int:
    _not_on_a_guest()
    return 41 if kind is AmdSmiTemperatureType.HOTSPOT else 36


def amdsmi_get_violation_status(handle: int) -> dict[str, Any]:
    _since(6, 3)
    _not_on_a_guest()
    limits = _card(handle)["limits"]
    said: dict[str, Any] = {}
    for name in ("prochot_thrm", "ppt_pwr", "socket_thrm", "vr_thrm", "hbm_thrm"):
        said |= {f"acc_{name}": 7, f"per_{name}": limits.get(name, 0), f"active_{name}": name in limits}
    return said


def amdsmi_get_gpu_process_list(handle: int) -> list[dict[str, Any]]:
    return [
        {"name": "python3", "pid": int(pid), "mem": size, "memory_usage": {"vram_mem": size}}
        for pid, size in _card(handle)["processes"].items()
    ]


def amdsmi_get_gpu_compute_partition(handle: int) -> str:
    return str(_card(handle)["compute"])


def amdsmi_get_gpu_memory_partition(handle: int) -> str:
    return str(_card(handle)["memory"])


def amdsmi_get_xgmi_info(handle: int) -> dict[str, Any]:
    return {"xgmi_lanes": 16, "xgmi_hive_id": _card(handle)["hive"], "xgmi_node_id": handle, "index": 0}


def amdsmi_get_gpu_xgmi_link_status(handle: int) -> dict[str, Any]:
    _since(6, 4)
    if _NODE["virtual"] and _RELEASE >= (7, 12):
        raise AmdSmiLibraryException(NOT_SUPPORTED)
    mine = [way for way in _NODE["ways"] if way[0] == handle]
    return {"status": ["D" if _NODE["virtual"] or way[5] else "U" for way in mine], "total_links": len(mine)}


def amdsmi_get_fw_info(handle: int) -> dict[str, Any]:
    listed = [
        {"fw_name": "CP_MEC1", "fw_version": "173"},
        {"fw_name": "PLDM_BUNDLE", "fw_version": "01.25.03.12"},
    ]
    return {"fw_list": listed[:1] if _NODE["virtual"] else listed}


def _way(a: int, b: int) -> list[Any]:
    return next(way for way in _NODE["ways"] if way[:2] == [a, b])


def amdsmi_topo_get_link_type(a: int, b: int) -> dict[str, Any]:
    return {"hops": 1, "type": 2 if _way(a, b)[2] == "xgmi" else 1}


def amdsmi_topo_get_link_weight(a: int, b: int) -> int:
    return int(_way(a, b)[3])


def amdsmi_is_P2P_accessible(a: int, b: int) -> bool:
    return True


def amdsmi_get_minmax_bandwidth_between_processors(a: int, b: int) -> dict[str, Any]:
    rate = _way(a, b)[4] if _way(a, b)[2] == "xgmi" else 0
    return {"min_bandwidth": rate, "max_bandwidth": rate}

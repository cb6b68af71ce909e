"""What ROCm's own binding says, from one survey of it: units, keys and marks as each release has them."""

from __future__ import annotations

import re
from typing import Any

from nodecheck.facts import Absent, Maybe, Why
from nodecheck.facts.card import EccBlock, Process
from nodecheck.probes.amdgpu import generation_of, of_gfx
from nodecheck.probes.answer import nonsense
from nodecheck.probes.belief import Reading
from nodecheck.probes.kernel_log import pci_address
from nodecheck.probes.text import word
from nodecheck.sources.amdsmi import AmdsmiSurvey
from nodecheck.sources.channel import Answer

MIB = 1024**2
MAX_CARDS = 64
ECC_BLOCKS = ("GFX", "HDP", "MMHUB", "PCIE_BIF", "SDMA", "UMC", "XGMI_WAFL")

LINK_TYPES = {1: "pcie", 2: "xgmi"}
"""What amdsmi_topo_get_link_type returns, in every release; the enumerations of that name were renumbered twice."""

_MODES = {1: "none", 2: "host", 3: "virtual_function", 4: "passthrough"}
"""amdsmi_virtualization_mode_t: bare metal, host, guest, pass-through; 0 is not known."""

_BLANKS = frozenset({2**8 - 1, 2**16 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1})
_MICROWATTS_FROM = 20_000
"""Power caps are in microwatts since ROCm 6.1.2 and were in watts before: no card takes 20 kW, or 20 mW."""
_MILLIDEGREES_FROM = 1000
_MAX_COUNT = 2**53


def count(survey: Maybe[AmdsmiSurvey]) -> Maybe[int]:
    """Cards that the binding hands out. It lists none, without an error, beside a second copy of its library."""
    if isinstance(survey, Absent):
        return survey
    return _number(survey.get("amdsmi_get_processor_handles"), 0, 1024)


def addresses(survey: AmdsmiSurvey) -> dict[int, str]:
    """The binding's own number of a card → its PCI address."""
    number = count(survey)
    found: dict[int, str] = {}
    for i in range(0 if isinstance(number, Absent) else min(number, MAX_CARDS)):
        told = survey.get("amdsmi_get_gpu_device_bdf", i)
        if isinstance(told, str) and (place := pci_address(told)):
            found[i] = place
    return found


def reading(survey: Maybe[AmdsmiSurvey], address: str) -> Reading:
    """Everything the binding says of the card at `address`."""
    if isinstance(survey, Absent):
        return Reading("amdsmi", dict.fromkeys(_PATHS, survey))
    index = next((i for i, place in addresses(survey).items() if place == address), None)
    if index is None:
        number = count(survey)
        missing = (
            number
            if isinstance(number, Absent)
            else Absent(why=Why.not_present, detail="ROCm's binding does not list this card")
        )
        return Reading("amdsmi", dict.fromkeys(_PATHS, missing))
    return Reading("amdsmi", _Asked(survey, index).values())


class _Asked:
    """The survey's answers about one card."""

    def __init__(self, survey: AmdsmiSurvey, index: int) -> None:
        self._survey = survey
        self._index = index

    def _get(self, function: str, *arguments: object) -> Answer:
        return self._survey.get(function, self._index, *arguments)

    def values(self) -> dict[str, Any]:
        asic = self._get("amdsmi_get_gpu_asic_info")
        gfx = _text(_part(asic, "target_graphics_version"))
        total = _number(self._get("amdsmi_get_gpu_memory_total", "VRAM"), 1, 2**50)
        used = _number(self._get("amdsmi_get_gpu_memory_usage", "VRAM"), 0, 2**50)
        return {
            "uuid": self._uuid(),
            "hive": self._hive(),
            "identity.name": _text(_part(asic, "market_name")),
            "identity.pci_id": _ids(asic, "vendor_id", "device_id"),
            "identity.pci_subsystem": _ids(asic, "subvendor_id", "subsystem_id"),
            "identity.serial": _text(_part(self._get("amdsmi_get_gpu_board_info"), "product_serial")),
            "identity.board_part": _text(_part(self._get("amdsmi_get_gpu_board_info"), "model_number")),
            "identity.vbios": _text(_part(self._get("amdsmi_get_gpu_vbios_info"), "part_number")),
            "identity.ifwi_version": _text(_part(self._get("amdsmi_get_gpu_vbios_info"), "version")),
            "identity.firmware_bundle": self._firmware_bundle(),
            "identity.compute_units": _number(_part(asic, "num_compute_units"), 1, 4096),
            "identity.module_id": _number(_part(asic, "oam_id"), 0, 1023),
            **of_gfx(gfx if isinstance(gfx, Absent) else gfx.split(":")[0].lower()),
            "memory.total_bytes": self._total(total),
            "memory.used_bytes": used,
            "memory.bus_width_bits": _number(
                _part(self._get("amdsmi_get_gpu_vram_info"), "vram_bit_width"), 1, 65536
            ),
            "memory.kind": self._memory_kind(),
            **self._ecc(),
            **self._bad_pages(),
            **self._power(),
            **self._clocks(),
            "temperature.gpu_celsius": _celsius(self._get("amdsmi_get_temp_metric", "HOTSPOT", "CURRENT")),
            "temperature.memory_celsius": _celsius(self._get("amdsmi_get_temp_metric", "VRAM", "CURRENT")),
            **self._pcie(),
            "modes.virtualization": self._virtualization(),
            "modes.compute_partition": _mode(self._get("amdsmi_get_gpu_compute_partition")),
            "modes.memory_partition": _mode(self._get("amdsmi_get_gpu_memory_partition")),
            "gpu_utilization_percent": _number(
                _part(self._get("amdsmi_get_gpu_activity"), "gfx_activity"), 0, 100
            ),
            "processes": self._processes(),
        }

    def _uuid(self) -> Maybe[str]:
        uuid = _text(_part(self._get("amdsmi_get_gpu_enumeration_info"), "hip_uuid"))
        if isinstance(uuid, Absent) or re.fullmatch(r"GPU-[0-9a-fA-F]{16}", uuid):
            return uuid if isinstance(uuid, Absent) else f"GPU-{uuid[4:].lower()}"
        return Absent(why=Why.not_supported, detail=f"{uuid[:40]!r} is not as HIP writes it")

    def _hive(self) -> Maybe[str]:
        hive = _number(_part(self._get("amdsmi_get_xgmi_info"), "xgmi_hive_id"), 0, 2**64 - 2)
        return hive if isinstance(hive, Absent) else f"0x{hive:x}"

    def _firmware_bundle(self) -> Maybe[str]:
        listed = _part(self._get("amdsmi_get_fw_info"), "fw_list")
        if isinstance(listed, Absent):
            return listed
        for item in listed if isinstance(listed, list) else ():
            if isinstance(item, dict) and "PLDM" in str(item.get("fw_name", "")).upper():
                return _text(item.get("fw_version"))
        return Absent(why=Why.not_present, detail="no bundle is among the firmware")

    def _total(self, total: Maybe[int]) -> Maybe[int]:
        """Bytes; where that call is not there, MB that are MiB, under the name they had until 6.1 or since."""
        if not isinstance(total, Absent):
            return total
        info = self._get("amdsmi_get_gpu_vram_info")
        for key in ("vram_size", "vram_size_mb"):
            mib = _number(_part(info, key), 1, 2**30)
            if not isinstance(mib, Absent):
                return mib * MIB
        return total

    def _memory_kind(self) -> Maybe[str]:
        """Only where it is a name: the numbers were given out anew in 6.2, and say nothing without the release."""
        kind = _part(self._get("amdsmi_get_gpu_vram_info"), "vram_type")
        if isinstance(kind, int):
            return Absent(
                why=Why.not_supported, detail=f"the number {kind} means another memory in each release"
            )
        return _text(kind)

    def _ecc(self) -> dict[str, Any]:
        total = self._get("amdsmi_get_gpu_total_ecc_count")
        blocks = []
        for name in ECC_BLOCKS:
            said = self._get("amdsmi_get_gpu_ecc_count", name)
            if isinstance(said, Absent) and said.why in (Why.not_supported, Why.not_present):
                continue
            blocks.append(
                EccBlock(
                    name=name,
                    corrected=_number(_part(said, "correctable_count")),
                    uncorrected=_number(_part(said, "uncorrectable_count")),
                    deferred=_number(_part(said, "deferred_count")),
                )
            )
        none = self._get("amdsmi_get_gpu_ecc_count", "UMC")
        missing = none if isinstance(none, Absent) else Absent(why=Why.not_supported)
        enabled = _number(self._get("amdsmi_get_gpu_ecc_enabled"), 0, 2**64 - 2)
        memory = next((block for block in blocks if block.name == "UMC"), None)
        return {
            "health.ecc_enabled": enabled if isinstance(enabled, Absent) else enabled != 0,
            "health.ecc_volatile.corrected": _number(_part(total, "correctable_count")),
            "health.ecc_volatile.uncorrected": _number(_part(total, "uncorrectable_count")),
            "health.ecc_volatile.deferred": _number(_part(total, "deferred_count")),
            "health.ecc_volatile.dram_corrected": memory.corrected if memory else missing,
            "health.ecc_volatile.dram_uncorrected": memory.uncorrected if memory else missing,
            "health.ecc_blocks": tuple(blocks) if blocks else missing,
        }

    def _bad_pages(self) -> dict[str, Any]:
        """A list since 6.1.2, a sentence before where there are none; the status is 0 for retired, 1 pending, 2 not."""
        pages = self._get("amdsmi_get_gpu_bad_page_info")
        if isinstance(pages, str) and pages.lower().startswith("no"):
            pages = []
        elif isinstance(pages, dict):
            pages = pages.get("table_records", [])
        names = ("retired", "pending", "unreservable")
        values: dict[str, Any] = {}
        for status, name in enumerate(names):
            path = f"health.bad_pages_{name}"
            if isinstance(pages, Absent):
                values[path] = pages
            elif isinstance(pages, list) and all(
                isinstance(page, dict) and "status" in page for page in pages
            ):
                values[path] = sum(page["status"] == status for page in pages)
            else:
                values[path] = nonsense(pages)
        values["health.bad_page_threshold"] = _number(
            _part(self._get("amdsmi_get_gpu_bad_page_threshold"), "bad_page_threshold", or_itself=True)
        )
        return values

    def _power(self) -> dict[str, Any]:
        cap, now = self._get("amdsmi_get_power_cap_info"), self._get("amdsmi_get_power_info")
        draw: Maybe[float] = Absent(why=Why.not_present)
        for key in ("socket_power", "current_socket_power", "average_socket_power"):
            draw = _watts(_part(now, key))
            if not isinstance(draw, Absent):
                break
        return {
            "power.limit_watts": _watts(_part(cap, "power_cap")),
            "power.default_limit_watts": _watts(_part(cap, "default_power_cap")),
            "power.min_limit_watts": _watts(_part(cap, "min_power_cap")),
            "power.max_limit_watts": _watts(_part(cap, "max_power_cap")),
            "power.draw_watts": draw,
        }

    def _clocks(self) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for kind, name in (("GFX", "sm"), ("MEM", "memory")):
            said = self._get("amdsmi_get_clock_info", kind)
            now = _number(_part(said, "clk"), 0, 20_000)
            if isinstance(now, Absent):
                now = _number(_part(said, "cur_clk"), 0, 20_000)
            values[f"clocks.{name}_mhz"] = now
            values[f"clocks.max_{name}_mhz"] = _number(_part(said, "max_clk"), 1, 20_000)
        limits = self._get("amdsmi_get_violation_status")
        for path, start in (("clocks.event_reasons", "active_"), ("clocks.limited_percent", "per_")):
            if isinstance(limits, Absent):
                values[path] = limits
                continue
            told = {
                name.removeprefix(start): value
                for name, value in (limits.items() if isinstance(limits, dict) else ())
                if name.startswith(start) and type(value) in (bool, int) and value not in _BLANKS
            }
            if not told:
                values[path] = Absent(why=Why.not_supported, detail="N/A of every limit")
            elif start == "active_":
                values[path] = tuple(sorted(name for name, value in told.items() if value == 1))
            else:
                values[path] = tuple(
                    (name, float(value)) for name, value in sorted(told.items()) if 0 <= value <= 100
                )
        return values

    def _pcie(self) -> dict[str, Any]:
        said = self._get("amdsmi_get_pcie_info")
        fixed, now = _part(said, "pcie_static"), _part(said, "pcie_metric")
        return {
            "pcie.generation": _generation(_part(now, "pcie_speed")),
            "pcie.width": _number(_part(now, "pcie_width"), 1, 32),
            "pcie.max_generation": _generation(_part(fixed, "max_pcie_speed")),
            "pcie.max_width": _number(_part(fixed, "max_pcie_width"), 1, 32),
            "pcie.replays": _number(_part(now, "pcie_replay_count")),
            "pcie.rollovers": _number(_part(now, "pcie_replay_roll_over_count")),
            "pcie.recoveries": _number(_part(now, "pcie_l0_to_recovery_count")),
            "pcie.naks_sent": _number(_part(now, "pcie_nak_sent_count")),
            "pcie.naks_received": _number(_part(now, "pcie_nak_received_count")),
        }

    def _virtualization(self) -> Maybe[str]:
        mode = _part(self._get("amdsmi_get_gpu_virtualization_mode"), "mode", or_itself=True)
        if isinstance(mode, str):
            names = {"BAREMETAL": 1, "HOST": 2, "GUEST": 3, "PASSTHROUGH": 4}
            mode = names.get(mode.rpartition("_")[2].upper(), 0)
        number = _number(mode, 0, 255)
        if isinstance(number, Absent):
            return number
        return _MODES.get(number, Absent(why=Why.failed, detail="the driver does not know"))

    def _processes(self) -> Maybe[tuple[Process, ...]]:
        listed = self._get("amdsmi_get_gpu_process_list")
        if isinstance(listed, Absent):
            return listed
        if not isinstance(listed, list):
            return nonsense(listed)
        found = []
        for item in listed:
            pid = _number(_part(item, "pid"), 0, 2**32)
            if isinstance(pid, Absent):
                return pid
            used = _number(_part(_part(item, "memory_usage"), "vram_mem"), 0, 2**50)
            found.append(Process(pid=pid, kind="compute", used_bytes=used, name=_text(_part(item, "name"))))
        return tuple(found)

    def link_states(self) -> Maybe[tuple[str, ...]]:
        """`U`, `D` or `X` of each xGMI port of the card, in the order of the ports."""
        told = _part(self._get("amdsmi_get_gpu_xgmi_link_status"), "status")
        if isinstance(told, Absent):
            return told
        words = [str(item).strip().upper() for item in told] if isinstance(told, list) else []
        known = tuple(said for said in words if said in ("U", "D", "X"))
        return known or Absent(why=Why.not_supported, detail="N/A of every link")


def link_states(survey: Maybe[AmdsmiSurvey], address: str) -> Maybe[tuple[tuple[str | None, str], ...]]:
    """(None, `U`, `D` or `X`) of each xGMI port of the card: which card is at its end is not told."""
    if isinstance(survey, Absent):
        return survey
    index = next((i for i, place in addresses(survey).items() if place == address), None)
    if index is None:
        return Absent(why=Why.not_present, detail="ROCm's binding does not list this card")
    states = _Asked(survey, index).link_states()
    return states if isinstance(states, Absent) else tuple((None, said) for said in states)


def link_type(survey: AmdsmiSurvey, a: int, b: int) -> Maybe[str]:
    """`xgmi` or `pcie`."""
    number = _number(_part(survey.get("amdsmi_topo_get_link_type", a, b), "type"), 0, 255)
    if isinstance(number, Absent):
        return number
    return LINK_TYPES.get(number, Absent(why=Why.failed, detail=f"the unknown type {number}"))


def weight(survey: AmdsmiSurvey, a: int, b: int) -> Maybe[int]:
    return _number(survey.get("amdsmi_topo_get_link_weight", a, b), 0, 10_000)


def accessible(survey: AmdsmiSurvey, a: int, b: int) -> Maybe[bool]:
    answer = survey.get("amdsmi_is_P2P_accessible", a, b)
    return answer if isinstance(answer, (bool, Absent)) else nonsense(answer)


def bandwidth(survey: AmdsmiSurvey, a: int, b: int, end: str) -> Maybe[int]:
    """10^6 bytes/s; `end` is `min` or `max`."""
    said = survey.get("amdsmi_get_minmax_bandwidth_between_processors", a, b)
    return _number(_part(said, f"{end}_bandwidth"), 1, 10**9)


_PATHS = (
    "identity.name", "identity.vbios", "identity.firmware_bundle", "memory.total_bytes", "power.limit_watts",
    "health.ecc_volatile.uncorrected", "health.ecc_volatile.corrected", "health.ecc_blocks",
    "health.bad_pages_retired", "modes.compute_partition", "modes.memory_partition", "processes",
)  # fmt: skip
"""Facts whose absence the binding has to answer for where it does not work."""


def _part(answer: Answer, key: str, *, or_itself: bool = False) -> Answer:
    """What stands under `key`; with `or_itself` an answer without keys stands for it."""
    if isinstance(answer, Absent):
        return answer
    if isinstance(answer, dict):
        if key in answer:
            return answer[key]
        return Absent(why=Why.not_present, detail=f"this release does not tell {key}")
    return answer if or_itself else nonsense(answer)


def _text(answer: Answer) -> Maybe[str]:
    if isinstance(answer, Absent):
        return answer
    if answer is None or (
        isinstance(answer, str) and answer.strip().upper() in ("", "N/A", "NONE", "UNKNOWN")
    ):
        return Absent(why=Why.not_supported, detail=f"the binding says {answer!r}")
    if not isinstance(answer, str):
        return nonsense(answer)
    return word(answer) or nonsense(answer)


def _number(answer: Answer, lowest: int = 0, highest: int = _MAX_COUNT) -> Maybe[int]:
    if isinstance(answer, Absent):
        return answer
    if answer is None or answer == "N/A" or (type(answer) is int and answer in _BLANKS - {255}):
        return Absent(why=Why.not_supported, detail=f"the binding's mark for no value, {answer}")
    if type(answer) is not int:
        return nonsense(answer)
    if lowest <= answer <= highest:
        return answer
    if answer in _BLANKS:
        return Absent(why=Why.not_supported, detail=f"the binding's mark for no value, {answer}")
    return Absent(why=Why.failed, detail=f"{answer} cannot be: it is not within {lowest} and {highest}")


def _ids(asic: Answer, vendor: str, device: str) -> Maybe[str]:
    """`1002:74a1`, from numbers or from text such as `0x74a1`."""
    parts = []
    for key in (vendor, device):
        said = _part(asic, key)
        if isinstance(said, Absent):
            return said
        match = re.fullmatch(r"(?:0x)?([0-9a-f]{1,4})", said.lower()) if isinstance(said, str) else None
        if match:
            parts.append(match[1].zfill(4))
        elif type(said) is int and 0 < said < 0xFFFF:
            parts.append(f"{said:04x}")
        else:
            return _text(said) if isinstance(_text(said), Absent) else nonsense(said)
    return ":".join(parts)


def _watts(answer: Answer) -> Maybe[float]:
    value = _number(answer, 0, 20_000_000_000)
    if isinstance(value, Absent):
        return value
    return value / 1e6 if value >= _MICROWATTS_FROM else float(value)


def _celsius(answer: Answer) -> Maybe[int]:
    value = _number(answer, 0, 250_000)
    if isinstance(value, Absent):
        return value
    return round(value / 1000) if value >= _MILLIDEGREES_FROM else value


def _generation(answer: Answer) -> Maybe[int]:
    """MT/s in this call, whatever its documentation says; GT/s where it is small."""
    value = _number(answer, 1, 1_000_000)
    if isinstance(value, Absent):
        return value
    gigatransfers = value / 1000 if value >= 1000 else float(value)
    return generation_of(f"{gigatransfers:.1f} GT/s") or nonsense(answer)


def _mode(answer: Answer) -> Maybe[str]:
    mode = _text(answer)
    if isinstance(mode, Absent) or re.fullmatch(r"[SDTQC]PX|NPS[1248]", mode):
        return mode
    return Absent(why=Why.failed, detail=f"the mode {mode!r} has no meaning")

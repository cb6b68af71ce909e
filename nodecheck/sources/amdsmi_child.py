"""Asks ROCm's own Python binding `amdsmi` what the probes use, in a process of its own.

Started by `nodecheck.sources.amdsmi` as a plain file

    python -I -S amdsmi_child.py /opt/rocm/share/amd_smi ANSWERS_FD

so that nothing but the standard library and the binding is imported: beside torch, or beside a second copy of its
library, each of the two may stop seeing the cards. The binding prints on stdout and raises anything at all when it is
imported, so that the answers go over a descriptor of their own, as JSON lines:

    {"asking": question}             before every call into the library
    {"told": {question: answer}}     after it, as `channel.encode` writes answers
    {"done": true}                   when all is told
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable
from importlib import import_module
from itertools import permutations
from typing import Any

Answer = dict[str, Any]

INIT = "amdsmi_init()"
MAX_CARDS = 64
_MAX_DEPTH = 6
_MAX_ITEMS = 4096

_CARD = (
    "amdsmi_get_gpu_device_bdf",
    "amdsmi_get_gpu_virtualization_mode",
    "amdsmi_get_gpu_enumeration_info",
    "amdsmi_get_gpu_asic_info",
    "amdsmi_get_gpu_board_info",
    "amdsmi_get_gpu_vbios_info",
    "amdsmi_get_gpu_vram_info",
    "amdsmi_get_gpu_total_ecc_count",
    "amdsmi_get_gpu_ecc_enabled",
    "amdsmi_get_gpu_bad_page_info",
    "amdsmi_get_gpu_bad_page_threshold",
    "amdsmi_get_pcie_info",
    "amdsmi_get_power_cap_info",
    "amdsmi_get_power_info",
    "amdsmi_get_gpu_activity",
    "amdsmi_get_violation_status",
    "amdsmi_get_gpu_process_list",
    "amdsmi_get_gpu_compute_partition",
    "amdsmi_get_gpu_memory_partition",
    "amdsmi_get_xgmi_info",
    "amdsmi_get_gpu_xgmi_link_status",
    "amdsmi_get_fw_info",
)

_CARD_WITH_ARGUMENTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("amdsmi_get_gpu_memory_total", ("AmdSmiMemoryType.VRAM",)),
    ("amdsmi_get_gpu_memory_usage", ("AmdSmiMemoryType.VRAM",)),
    ("amdsmi_get_clock_info", ("AmdSmiClkType.GFX",)),
    ("amdsmi_get_clock_info", ("AmdSmiClkType.MEM",)),
    ("amdsmi_get_temp_metric", ("AmdSmiTemperatureType.HOTSPOT", "AmdSmiTemperatureMetric.CURRENT")),
    ("amdsmi_get_temp_metric", ("AmdSmiTemperatureType.VRAM", "AmdSmiTemperatureMetric.CURRENT")),
    *(
        ("amdsmi_get_gpu_ecc_count", (f"AmdSmiGpuBlock.{block}",))
        for block in ("UMC", "SDMA", "GFX", "MMHUB", "PCIE_BIF", "HDP", "XGMI_WAFL")
    ),
)
"""Arguments are names in the binding: its enumerations have had other numbers from release to release."""

_PAIR = (
    "amdsmi_topo_get_link_type",
    "amdsmi_topo_get_link_weight",
    "amdsmi_is_P2P_accessible",
    "amdsmi_get_minmax_bandwidth_between_processors",
)

_WHY = {
    2: "not_supported", 3: "not_supported", 55: "not_supported",
    8: "timed_out",
    10: "no_permission",
    20: "not_present", 31: "not_present", 34: "not_present", 40: "not_present", 52: "not_present",
}  # fmt: skip
"""The library's error codes (amdsmi.h, amdsmi_status_t); every other one is `failed`."""


class Survey:
    """One round of questions."""

    def __init__(self, amdsmi: Any, tell: Callable[[dict[str, Any]], None]) -> None:
        self._amdsmi = amdsmi
        self._tell = tell

    def run(self) -> None:
        if "value" not in self._ask(INIT, self._amdsmi.amdsmi_init):
            return
        handles: list[Any] = []

        def take() -> int:
            handles.extend(self._amdsmi.amdsmi_get_processor_handles())
            return len(handles)

        self._ask("amdsmi_get_processor_handles()", take)
        del handles[MAX_CARDS:]
        for i, handle in enumerate(handles):
            for function in _CARD:
                self._call(function, (i,), (handle,))
            for function, names in _CARD_WITH_ARGUMENTS:
                self._call(function, (i,), (handle,), names)
        for a, b in permutations(range(len(handles)), 2):
            for function in _PAIR:
                self._call(function, (a, b), (handles[a], handles[b]))

    def _call(
        self,
        function: str,
        cards: tuple[int, ...] = (),
        handles: tuple[Any, ...] = (),
        names: tuple[str, ...] = (),
    ) -> None:
        question = f"{function}({','.join(map(str, (*cards, *(name.rpartition('.')[2] for name in names))))})"

        def call() -> Any:
            return getattr(self._amdsmi, function)(*handles, *(self._named(name) for name in names))

        self._ask(question, call)

    def _named(self, name: str) -> Any:
        kind, _, member = name.partition(".")
        return getattr(getattr(self._amdsmi, kind), member)

    def _ask(self, question: str, call: Callable[[], Any]) -> Answer:
        self._tell({"asking": question})
        try:
            answer: Answer = {"value": _plain(call())}
        except AttributeError as error:
            answer = {"absent": "not_present", "detail": f"this amdsmi does not have it ({error})"}
        except Exception as error:  # the binding raises whatever its library and ctypes make of it
            answer = _refused(error)
        self._tell({"told": {question: answer}})
        return answer


def _refused(error: Exception) -> Answer:
    code = None
    ask = getattr(error, "get_error_code", None)
    if callable(ask):
        code = ask()
    told = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    return {"absent": _WHY.get(code, "failed") if isinstance(code, int) else "failed", "detail": told}


def _plain(value: Any, depth: int = 0) -> Any:
    """The value as JSON can hold it: numbers out of ctypes and enumerations, text for everything else."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)  # an IntEnum too
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if depth >= _MAX_DEPTH:
        return str(value)[:200]
    if isinstance(value, dict):
        return {str(name): _plain(item, depth + 1) for name, item in list(value.items())[:_MAX_ITEMS]}
    if isinstance(value, (list, tuple)):
        return [_plain(item, depth + 1) for item in value[:_MAX_ITEMS]]
    inner = getattr(value, "value", None)  # c_uint32, Enum
    return str(value)[:200] if inner is None else _plain(inner, depth + 1)


def main() -> None:
    place, descriptor = sys.argv[1], int(sys.argv[2])

    def tell(line: dict[str, Any]) -> None:
        os.write(descriptor, json.dumps(line).encode() + b"\n")

    sys.path.insert(0, place)
    # The release that looks for its library in $ROCM_PATH alone raises KeyError where it is not set.
    os.environ.setdefault("ROCM_PATH", os.path.dirname(os.path.dirname(place)))  # noqa: PTH120
    tell({"asking": "import amdsmi"})
    try:
        amdsmi = import_module("amdsmi")
    except (
        BaseException
    ) as error:  # KeyError, AttributeError, OSError, SystemExit: all of them have been seen
        told = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        answer = {"absent": "failed", "detail": f"import amdsmi: {told}"}
        tell({"told": {INIT: answer}})
    else:
        Survey(amdsmi, tell).run()
    tell({"done": True})
    # Shutting the library down can hang on a card that is not well; the process ends with or without it.
    os._exit(0)


if __name__ == "__main__":
    main()

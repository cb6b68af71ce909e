"""Asks NVML what the probes use, in a process of its own, and says what it is about to ask.

Started by `nodecheck.sources.nvml` as a plain file (`python -I -S nvml_child.py '{"path": […], …}'`), so that
nothing but the standard library and pynvml is imported. Writes JSON lines on stdout:

    {"asking": [question, …], "cards": [index, …]}   before every call into the driver
    {"told": {question: answer, …}}                  after it, as `channel.encode` writes answers
    {"done": true}                                   when all is told

So whoever reads knows which call hangs or has crashed the process. Besides the calls, `start(card)` tells how
long its handle took (seconds), `slowest(card)` its slowest call, and `card(card)` why nothing more was asked.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable
from itertools import combinations, product
from typing import Any

Answer = dict[str, Any]
Question = tuple[Any, ...]
"""Function, further arguments. Text that names a constant of pynvml stands for its number."""

INIT = "nvmlInit()"

MAX_CARDS = 64
"""A driver that is not well may give any number."""

_SYSTEM = (
    "nvmlSystemGetDriverVersion",
    "nvmlSystemGetNVMLVersion",
    "nvmlSystemGetCudaDriverVersion_v2",
    "nvmlSystemGetDriverBranch",
    "nvmlSystemGetConfComputeState",
    "nvmlDeviceGetCount",
)

_CARD_WITHOUT_ARGUMENT = (
    "nvmlDeviceGetPciInfo",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetName",
    "nvmlDeviceGetSerial",
    "nvmlDeviceGetBoardPartNumber",
    "nvmlDeviceGetVbiosVersion",
    "nvmlDeviceGetInforomImageVersion",
    "nvmlDeviceGetArchitecture",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetNumGpuCores",
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetMemoryBusWidth",
    "nvmlDeviceGetBAR1MemoryInfo",
    "nvmlDeviceGetEccMode",
    "nvmlDeviceGetRetiredPagesPendingStatus",
    "nvmlDeviceGetRemappedRows",
    "nvmlDeviceGetRowRemapperHistogram",
    "nvmlDeviceGetRepairStatus",
    "nvmlDeviceGetUnrepairableMemoryFlag_v1",
    "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetPowerManagementLimit",
    "nvmlDeviceGetPowerManagementDefaultLimit",
    "nvmlDeviceGetPowerManagementLimitConstraints",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetPerformanceState",
    "nvmlDeviceGetMarginTemperature",
    "nvmlDeviceGetCurrPcieLinkGeneration",
    "nvmlDeviceGetCurrPcieLinkWidth",
    "nvmlDeviceGetMaxPcieLinkGeneration",
    "nvmlDeviceGetMaxPcieLinkWidth",
    "nvmlDeviceGetGpuMaxPcieLinkGeneration",
    "nvmlDeviceGetPcieReplayCounter",
    "nvmlDeviceGetComputeMode",
    "nvmlDeviceGetPersistenceMode",
    "nvmlDeviceGetVirtualizationMode",
    "nvmlDeviceGetAddressingMode",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3",
)

_CLOCKS = ("NVML_CLOCK_SM", "NVML_CLOCK_MEM")
_ERRORS = ("NVML_MEMORY_ERROR_TYPE_CORRECTED", "NVML_MEMORY_ERROR_TYPE_UNCORRECTED")
_COUNTERS = ("NVML_VOLATILE_ECC", "NVML_AGGREGATE_ECC")

_CARD: tuple[Question, ...] = (
    *((function,) for function in _CARD_WITHOUT_ARGUMENT),
    *product(
        (
            "nvmlDeviceGetClockInfo",
            "nvmlDeviceGetMaxClockInfo",
            "nvmlDeviceGetApplicationsClock",
            "nvmlDeviceGetDefaultApplicationsClock",
        ),
        _CLOCKS,
    ),
    *product(("nvmlDeviceGetTotalEccErrors",), _ERRORS, _COUNTERS),
    *product(
        ("nvmlDeviceGetMemoryErrorCounter",),
        _ERRORS,
        _COUNTERS,
        ("NVML_MEMORY_LOCATION_SRAM", "NVML_MEMORY_LOCATION_DRAM"),
    ),
    *product(
        ("nvmlDeviceGetRetiredPages_v2",),
        (
            "NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS",
            "NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR",
        ),
    ),
    *product(
        ("nvmlDeviceGetViolationStatus",),
        (
            "NVML_PERF_POLICY_POWER",
            "NVML_PERF_POLICY_THERMAL",
            "NVML_PERF_POLICY_BOARD_LIMIT",
            "NVML_PERF_POLICY_RELIABILITY",
        ),
    ),
    *product(
        ("nvmlDeviceGetTemperatureThreshold",),
        ("NVML_TEMPERATURE_THRESHOLD_SLOWDOWN", "NVML_TEMPERATURE_THRESHOLD_SHUTDOWN"),
    ),
    ("nvmlDeviceGetCpuAffinity", 32),  # words of 64 bits: room for 2048 CPUs
    ("nvmlDeviceGetMemoryAffinity", 16, "NVML_AFFINITY_SCOPE_NODE"),
)

_NEWER_AND_OLDER: tuple[tuple[Question, Question], ...] = (
    (("nvmlDeviceGetCurrentClocksEventReasons",), ("nvmlDeviceGetCurrentClocksThrottleReasons",)),
    (
        ("nvmlDeviceGetTemperatureV", "NVML_TEMPERATURE_GPU"),
        ("nvmlDeviceGetTemperature", "NVML_TEMPERATURE_GPU"),
    ),
)
"""The older call is made only where the driver or pynvml does not know the newer one."""

_LINK_COUNT = 91
_CARD_FIELDS = (_LINK_COUNT, 90, 82, 230)
"""NVLinks, their common speed, HBM temperature, recovery action. By number: older pynvml lack some names."""

_LINK_FIELDS = (164, 215, 219)
"""Of one link: speed, recovery events, errors after forward error correction."""

_LINK = (
    "nvmlDeviceGetNvLinkVersion",
    "nvmlDeviceGetNvLinkRemoteDeviceType",
    "nvmlDeviceGetNvLinkRemotePciInfo",
)
_LINK_ERRORS = (
    "NVML_NVLINK_ERROR_DL_REPLAY",
    "NVML_NVLINK_ERROR_DL_RECOVERY",
    "NVML_NVLINK_ERROR_DL_CRC_FLIT",
    "NVML_NVLINK_ERROR_DL_CRC_DATA",
)
_MAX_LINKS = 36
_MAX_MIG_DEVICES = 32

_PAIR: tuple[Question, ...] = (
    ("nvmlDeviceGetTopologyCommonAncestor",),
    *product(
        ("nvmlDeviceGetP2PStatus",),
        (
            "NVML_P2P_CAPS_INDEX_READ",
            "NVML_P2P_CAPS_INDEX_WRITE",
            "NVML_P2P_CAPS_INDEX_NVLINK",
            "NVML_P2P_CAPS_INDEX_ATOMICS",
        ),
    ),
)

_WHY = {
    3: "not_supported",
    4: "no_permission",
    6: "not_present",
    9: "not_present",
    10: "timed_out",
    12: "not_present",
    13: "not_present",
    25: "not_supported",  # the driver does not know this version of the struct
    26: "not_supported",  # deprecated
}
"""NVML's error numbers; every other one is `failed`."""

_GSP_FIRMWARE_VERSION_BYTES = 64
_INVALID_ARGUMENT = 2
_CORRUPTED_INFOROM = 14
_VERSION_MISMATCH = 25
_VALUES = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
"""Which member of the union holds a field's value, by nvmlValueType_t."""


class _FabricInfo(ctypes.Structure):
    """nvmlGpuFabricInfo_v3_t; version 2 ends before `healthSummary`. pynvml before 13 has neither."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("clusterUuid", ctypes.c_uint8 * 16),
        ("status", ctypes.c_uint),
        ("cliqueId", ctypes.c_uint32),
        ("state", ctypes.c_uint),
        ("healthMask", ctypes.c_uint32),
        ("healthSummary", ctypes.c_uint8),
    )


_FABRIC_INFO_VERSIONS = (0x3000028, 0x2000024)


class Survey:
    """One round of questions."""

    def __init__(self, pynvml: Any, write: Callable[[bytes], object], avoid: dict[str, Answer]) -> None:
        """`avoid` holds the answers to questions that are not asked, since they have hung before."""
        self._nvml = pynvml
        self._write = write
        self._avoid = avoid
        self._handles: dict[int, Any] = {}
        self._slowest: dict[int, tuple[float, str]] = {}
        self._errors = {
            value: name
            for name, value in vars(pynvml).items()
            if name.startswith("NVML_ERROR_") and isinstance(value, int)
        }

    def run(self, system: bool, cards: Iterable[int] | None, pairs: Iterable[int], glance: bool) -> bool:
        """Ask about the node, each of `cards` (None: all), every pair out of `pairs`; False where NVML does not start.

        A glance leaves out what keeps the driver busy.
        """
        if "value" not in self._ask(INIT, (), self._nvml.nvmlInit):
            return False
        count = self._system() if system else 0
        for i in range(count) if cards is None else cards:
            self._card(i, glance)
        for pair in combinations([i for i in pairs if self._open(i)], 2):
            for question in _PAIR:
                self._call(pair, *question)
        return True

    def _system(self) -> int:
        """How many cards there are."""
        told = {function: self._call((), function) for function in _SYSTEM}
        for k in range(min(self._call((), "nvmlGetExcludedDeviceCount").get("value", 0), MAX_CARDS)):
            self._call((), "nvmlGetExcludedDeviceInfoByIndex", k)
        return min(int(told["nvmlDeviceGetCount"].get("value", 0)), MAX_CARDS)

    def _open(self, i: int) -> bool:
        """Have the driver hand out the card: it brings it up where nothing else holds it up."""
        began = time.perf_counter()
        answer = self._ask(f"nvmlDeviceGetHandleByIndex({i})", (i,), lambda: self._take_handle(i))
        self._tell({f"start({i})": {"value": time.perf_counter() - began}})
        self._slowest.pop(i, None)
        if "value" not in answer:
            self._tell({f"card({i})": answer})
        return "value" in answer

    def _card(self, i: int, glance: bool) -> None:
        if not self._open(i):
            return
        for question in _CARD:
            self._call((i,), *question)
        for newer, older in _NEWER_AND_OLDER:
            if self._call((i,), *newer).get("absent") in ("not_present", "not_supported"):
                self._call((i,), *older)
        nvml, device = self._nvml, self._handles[i]
        self._ask(
            f"nvmlDeviceGetMemoryInfo({i},nvmlMemory_v2)",
            (i,),
            lambda: nvml.nvmlDeviceGetMemoryInfo(device, version=nvml.nvmlMemory_v2),
        )
        self._ask(f"nvmlDeviceGetModuleId({i})", (i,), lambda: self._module_id(device))
        self._ask(f"nvmlDeviceGetGspFirmwareVersion({i})", (i,), lambda: self._gsp_firmware(device))
        self._ask(f"nvmlDeviceGetSramEccErrorStatus({i})", (i,), lambda: self._sram_errors(device))
        self._ask(f"nvmlDeviceGetGpuFabricInfoV({i})", (i,), lambda: self._fabric(device))
        self._mig(i)
        self._links(i, self._fields(i, [(field, 0) for field in _CARD_FIELDS]))
        if not glance:
            # Last, since it takes longest (70 ms on an H200, and the driver checks one card at a time).
            self._ask(f"nvmlDeviceValidateInforom({i})", (i,), lambda: self._inforom_is_valid(device))
        seconds, slowest = self._slowest[i]
        self._tell({f"slowest({i})": {"value": {"question": slowest, "seconds": seconds}}})

    def _mig(self, i: int) -> None:
        if (self._call((i,), "nvmlDeviceGetMigMode").get("value") or [0])[0] != 1:
            return
        count = self._call((i,), "nvmlDeviceGetMaxMigDeviceCount").get("value", 0)
        for k in range(min(count, _MAX_MIG_DEVICES)):
            self._call((i,), "nvmlDeviceGetMigDeviceHandleByIndex", k)

    def _links(self, i: int, told: dict[str, Answer]) -> None:
        count = told[f"nvmlDeviceGetFieldValues({i},{_LINK_COUNT})"].get("value")
        there = []
        for link in range(_MAX_LINKS if count is None else min(count, _MAX_LINKS)):
            state = self._call((i,), "nvmlDeviceGetNvLinkState", link)
            if "absent" in state and (count is None or state["absent"] == "not_supported"):
                break
            there.append(link)
            for function in _LINK:
                self._call((i,), function, link)
            for counter in _LINK_ERRORS:
                self._call((i,), "nvmlDeviceGetNvLinkErrorCounter", link, counter)
        if there:
            self._fields(i, list(product(_LINK_FIELDS, there)))

    def _take_handle(self, i: int) -> bool:
        self._handles[i] = self._nvml.nvmlDeviceGetHandleByIndex(i)
        return True

    def _module_id(self, device: Any) -> int:
        # In place of pynvml's own default, which is one object for all calls, and which older ones do not have.
        number = ctypes.c_uint()
        code = self._nvml.nvmlDeviceGetModuleId(device, ctypes.byref(number))
        if code != 0:
            raise self._nvml.NVMLError(code)
        return number.value

    def _gsp_firmware(self, device: Any) -> bytes:
        version = ctypes.create_string_buffer(_GSP_FIRMWARE_VERSION_BYTES)
        self._nvml.nvmlDeviceGetGspFirmwareVersion(device, version)
        return version.value

    def _inforom_is_valid(self, device: Any) -> bool:
        try:
            self._nvml.nvmlDeviceValidateInforom(device)
        except self._nvml.NVMLError as error:
            if error.value == _CORRUPTED_INFOROM:
                return False
            raise
        return True

    def _sram_errors(self, device: Any) -> Any:
        status = self._nvml.c_nvmlEccSramErrorStatus_v1_t()
        self._nvml.nvmlDeviceGetSramEccErrorStatus(device, ctypes.byref(status))
        return status

    def _fabric(self, device: Any) -> Any:
        for version in _FABRIC_INFO_VERSIONS:
            info = _FabricInfo(version=version)
            try:
                self._nvml.nvmlDeviceGetGpuFabricInfoV(device, ctypes.byref(info))
            except self._nvml.NVMLError as error:
                if error.value == _VERSION_MISMATCH and version != _FABRIC_INFO_VERSIONS[-1]:
                    continue
                raise
            return info
        raise AssertionError("unreachable")

    def _fields(self, i: int, wanted: list[tuple[int, int]]) -> dict[str, Answer]:
        """Field values, all in one call; `wanted` holds (field, link)."""
        questions = [
            f"nvmlDeviceGetFieldValues({i},{field})"
            if field in _CARD_FIELDS
            else f"nvmlDeviceGetFieldValues({i},{field},{link})"
            for field, link in wanted
        ]
        values: list[Any] = []

        def call() -> None:
            values.extend(self._nvml.nvmlDeviceGetFieldValues(self._handles[i], wanted))

        answers = self._ask_all(questions, (i,), call)
        for question, value in zip(questions, values, strict=False):
            answers[question] = self._field(value)
        self._tell(answers)
        return answers

    def _field(self, value: Any) -> Answer:
        if value.nvmlReturn == _INVALID_ARGUMENT:
            return {"absent": "not_supported", "detail": "the driver does not know this field"}
        if value.nvmlReturn != 0:
            return self._refused(value.nvmlReturn)
        member = _VALUES.get(value.valueType)
        if member is None or not hasattr(value.value, member):
            return {"absent": "failed", "detail": f"a value of the unknown type {value.valueType}"}
        return {"value": _plain(getattr(value.value, member))}

    def _call(self, cards: tuple[int, ...], function: str, *arguments: Any) -> Answer:
        """Ask pynvml's `function` of `cards`; the arguments are numbers or names of its constants."""
        question = f"{function}({','.join(map(str, (*cards, *arguments)))})"

        def call() -> Any:
            numbers = [self._number(argument) for argument in arguments]
            return getattr(self._nvml, function)(*(self._handles[card] for card in cards), *numbers)

        return self._ask(question, cards, call)

    def _number(self, argument: Any) -> Any:
        value = getattr(self._nvml, argument) if isinstance(argument, str) else argument
        # NVML_P2P_CAPS_INDEX_READ is a tuple of one number in pynvml.
        return value[0] if isinstance(value, tuple) else value

    def _ask(self, question: str, cards: tuple[int, ...], call: Callable[[], Any]) -> Answer:
        answers = self._ask_all([question], cards, call)
        self._tell(answers)
        return answers[question]

    def _ask_all(
        self, questions: list[str], cards: tuple[int, ...], call: Callable[[], Any]
    ) -> dict[str, Answer]:
        if questions[0] in self._avoid:
            return {question: self._avoid[question] for question in questions}
        self._put({"asking": questions, "cards": cards})
        began = time.perf_counter()
        answer = self._answer(call)
        seconds = time.perf_counter() - began
        for card in cards:
            if seconds > self._slowest.get(card, (0.0,))[0]:
                self._slowest[card] = (seconds, questions[0])
        return dict.fromkeys(questions, answer)

    def _answer(self, call: Callable[[], Any]) -> Answer:
        try:
            return {"value": _plain(call())}
        except self._nvml.NVMLError as error:
            return self._refused(error.value)
        except AttributeError as error:
            return {"absent": "not_present", "detail": f"this nvidia-ml-py is too old: {error}"}
        except Exception as error:
            return {"absent": "failed", "detail": f"{type(error).__name__}: {error}"}

    def _refused(self, number: int) -> Answer:
        name = self._errors.get(number, "NVML_ERROR")
        return {
            "absent": _WHY.get(number, "failed"),
            "detail": f"{name} ({number}): {self._nvml.NVMLError(number)}",
        }

    def _tell(self, answers: dict[str, Answer]) -> None:
        self._put({"told": answers})

    def _put(self, line: dict[str, Any]) -> None:
        self._write(json.dumps(line).encode() + b"\n")


def _plain(value: Any) -> Any:
    """What pynvml returned as JSON: structs become objects, arrays lists, a device handle just `true`."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        return value.split(b"\0")[0].decode("utf-8", "replace")
    if isinstance(value, ctypes.Structure):
        return {field[0]: _plain(getattr(value, field[0])) for field in value._fields_}
    if isinstance(value, (list, tuple, ctypes.Array)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if hasattr(value, "contents"):
        return True
    return {name: _plain(item) for name, item in vars(value).items()}  # pynvml's nvmlFriendlyObject


def main() -> None:
    """Takes one argument, an object: `path` to import pynvml from, what `Survey.run` takes, and `avoid`."""
    order = json.loads(sys.argv[1])
    sys.path[:] = order["path"]
    # The driver's library may print; what it prints must not get between our lines.
    out = os.dup(1)
    os.dup2(2, 1)
    import pynvml

    survey = Survey(pynvml, lambda line: os.write(out, line), order["avoid"])
    if survey.run(order["system"], order["cards"], order["pairs"], order["glance"]):
        os.write(out, b'{"done": true}\n')
    # The kernel closes what NVML has open. Its own shutdown could hang, and the interpreter's takes time.
    os._exit(0)


if __name__ == "__main__":
    main()

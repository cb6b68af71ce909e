"""What the worker in the renter's interpreter said, as facts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, TypeGuard, TypeVar

from nodecheck.facts import Absent, Maybe, Why
from nodecheck.facts.base import AMD_ALONE, NVIDIA_ALONE
from nodecheck.facts.stack import ContextTest, CudaError, Extension, Library, Torch, TorchDevice
from nodecheck.probes import cuda_errors, hip_errors
from nodecheck.sources.channel import Json
from nodecheck.sources.child import signal_name
from nodecheck.sources.visible import by_address

T = TypeVar("T")

PLATFORMS: tuple[Literal["cuda", "hip"], ...] = ("cuda", "hip")

KERNEL_SUM = 2**20 * (2**20 - 1) // 2
"""What the worker's kernel must come to: 0 + 1 + … + (2^20 - 1)."""


class Said:
    """What a worker answered, or why it did not."""

    def __init__(self, answer: Maybe[dict[str, Json]]) -> None:
        self._answer = answer

    @classmethod
    def of_worker(cls, told: Json) -> Said:
        """Of a worker that lives on: that it answered at all stands for its end."""
        return cls({**told, "returncode": 0, "cut_off": ""} if isinstance(told, dict) else {})

    def _part(self, name: str) -> dict[str, Json]:
        part = None if isinstance(self._answer, Absent) else self._answer.get(name)
        return part if isinstance(part, dict) else {}

    def get(self, item: str, kind: type[T]) -> Maybe[T]:
        """The item; `not_present` where torch has none, else why it was not answered."""
        items = self._part("items")
        if item not in items:
            return self.why_not(item)
        value = items[item]
        if value is None:
            return Absent(why=Why.not_present, detail=f"{item}: none")
        if kind is float and type(value) is int:
            value = float(value)
        if _is(value, kind):
            return value
        return Absent(why=Why.failed, detail=f"{item}: an answer of another shape: {str(value)[:80]}")

    def error(self, item: str) -> dict[str, Json]:
        """The error given for the item; empty if there was none."""
        error = self._part("errors").get(item)
        return error if isinstance(error, dict) else {}

    def why_not(self, item: str) -> Absent:
        """Why there is no answer to `item`: its own error, or what ended the worker before it."""
        error = self.error(item)
        if error:
            return _absent_by(error)
        if isinstance(self._answer, Absent):
            return self._answer
        broken = self.broken()
        if broken is not None:
            return broken
        if item != "import" and self.error("import"):
            return _absent_by(self.error("import"))
        return Absent(why=Why.not_asked, detail=f"not reached; the worker ended {self._at()}")

    def broken(self) -> Absent | None:
        """What ended the worker before its own end; None where it ended by itself, or never began."""
        if isinstance(self._answer, Absent):
            return None
        code, cut_off = self._answer.get("returncode"), self._answer.get("cut_off")
        if code is None or cut_off:
            return Absent(why=Why.timed_out, detail=f"{cut_off}, {self._at()}{_innermost(self.log)}")
        if self.signal:
            return Absent(why=Why.failed, detail=f"ended by {self.signal} {self._at()}{_innermost(self.log)}")
        if type(code) is not int or code != 0:
            last = self.log.strip().rpartition("\n")[2][:200]
            return Absent(why=Why.failed, detail=f"ended with status {code} {self._at()}: {last}")
        return None

    def _at(self) -> str:
        return f"at the step {self.step!r}" if self.step else "before its first step"

    @property
    def step(self) -> str:
        return "" if isinstance(self._answer, Absent) else str(self._answer.get("step", ""))

    @property
    def signal(self) -> str:
        """Name of the signal that ended the worker; empty if none did."""
        code = None if isinstance(self._answer, Absent) else self._answer.get("returncode")
        return signal_name(-code) if type(code) is int and code < 0 else ""

    @property
    def log(self) -> str:
        return "" if isinstance(self._answer, Absent) else str(self._answer.get("log", ""))


def _is(value: object, kind: type[T]) -> TypeGuard[T]:
    """Whether the value is of the kind; bool is an int to Python, and neither is the other to us."""
    return isinstance(value, kind) and (kind is bool) == isinstance(value, bool)


def _absent_by(error: Mapping[str, Json]) -> Absent:
    why = Why.not_present if error.get("missing") is True else Why.failed
    if error.get("type") == "TimeoutError":
        why = Why.timed_out
    return Absent(why=why, detail=f"{error.get('type')}: {str(error.get('message'))[:300]}")


def _innermost(log: str) -> str:
    """The innermost lines of the stack that faulthandler wrote last, on one line."""
    _, found, dump = log.rpartition("(most recent call first):")
    frames = re.findall(r'File "([^"]*)", line (\d+) in (.*)', dump)[:4] if found else []
    return (
        "; stack: " + " < ".join(f"{name} ({file}:{line})" for file, line, name in frames) if frames else ""
    )


def context(card: str, said: Said | Absent) -> ContextTest:
    if isinstance(said, Absent):
        return ContextTest(card=card, ok=said, step=said, signal=said, error=said)
    error = _context_error(said)
    return ContextTest(
        card=card,
        ok=_worked(card, said, error),
        step=said.step or said.why_not("step"),
        signal=said.signal or Absent(why=Why.not_present, detail="it ended by itself or was cut off"),
        error=error or Absent(why=Why.not_present, detail="no CUDA error"),
        context_seconds=Absent(why=Why.not_present, detail="a CPU needs none")
        if card == "cpu"
        else said.get("context_seconds", float),
        kernel_seconds=said.get("kernel_seconds", float),
        free_bytes=Absent(why=Why.not_present, detail="no card")
        if card == "cpu"
        else said.get("free_bytes", int),
    )


def _context_error(said: Said) -> CudaError | None:
    for step in ("init", "context"):
        result = _result(said.get(step, dict))
        if result is not None and result.code != 0:
            return result
    for item in ("sum", "device"):
        error = said.error(item)
        message, code = str(error.get("message", "")), _number(error.get("code"))
        found = hip_errors.of_exception(message, code) or cuda_errors.of_exception(message, code)
        if found is not None:
            return found
    return hip_errors.of_log(said.log) if said.signal else None


def _worked(card: str, said: Said, error: CudaError | None) -> Maybe[bool]:
    if error is not None:
        return False
    for item in ("sum", "context", "init"):
        if said.error(item) and said.error(item).get("missing") is not True:
            return said.why_not(item)
    total = said.get("sum", dict)
    if isinstance(total, Absent):
        return total
    refused = None if card == "cpu" else _not_by_the_driver(card, said)
    if refused is not None:
        return refused
    got = _number(total.get("got"))
    if got is None:
        return Absent(why=Why.failed, detail=f"sum: an answer of another shape: {str(total)[:80]}")
    if got != KERNEL_SUM:
        return False
    broken = said.broken()
    if broken is not None:
        return broken
    if said.step != "done":
        return Absent(
            why=Why.failed, detail=f"the process ended at the step {said.step!r}, not at its own end"
        )
    return True


def _not_by_the_driver(card: str, said: Said) -> Absent | None:
    """What is missing for the sum to be this card's: the driver made a context, and it made it here.

    Where there is no libcuda torch has the word: it may be built for another vendor's cards.
    """
    if said.error("init").get("missing") is True:
        return None
    for step in ("init", "context"):
        result = said.get(step, dict)
        if isinstance(result, Absent):
            return result
        if _number(result.get("code")) != 0:
            return Absent(why=Why.failed, detail=f"{step}: an answer of another shape: {str(result)[:80]}")
    device = said.get("device", dict)
    if isinstance(device, Absent):
        return device
    # A card of AMD's may tell HIP no UUID; where it is meant by that, HIP found it by that all the same.
    named, wanted = ("pci_address", (card,)) if by_address(card) else ("uuid", (None, card))
    if device.get(named, "") not in wanted:
        named = str(device.get(named))[:80]
        return Absent(why=Why.failed, detail=f"the driver handed out another card, {named}")
    return None


def cuda_init(said: Said) -> Maybe[CudaError]:
    answer = said.get("init", dict)
    if isinstance(answer, Absent):
        return answer
    return _result(answer) or Absent(why=Why.failed, detail=f"an answer of another shape: {str(answer)[:80]}")


def _result(answer: Maybe[dict[str, Json]]) -> CudaError | None:
    code = None if isinstance(answer, Absent) else _number(answer.get("code"))
    if code is None or isinstance(answer, Absent):
        return None
    return cuda_errors.of_code(code, str(answer.get("name") or ""), str(answer.get("message") or ""))


def _number(value: Json) -> int | None:
    return value if type(value) is int else None


def torch(said: Said) -> Maybe[Torch]:
    """torch's facts; absent where it could not be imported."""
    seconds = said.get("import_seconds", float)
    if isinstance(seconds, Absent):
        return said.why_not("import")
    cuda, hip = said.get("cuda", str), said.get("hip", str)
    cpu_only, on_rocm = _none(cuda) and _none(hip), not isinstance(hip, Absent)
    return Torch(
        version=said.get("version", str),
        path=said.get("path", str),
        debug=said.get("debug", bool),
        cuda=cuda,
        hip=hip,
        hip_runtime=_hip_version(said.get("hip_runtime", int)) if on_rocm else AMD_ALONE,
        cudnn=NVIDIA_ALONE if on_rocm else _cudnn(said.get("cudnn", int)),
        miopen=_miopen(said.get("cudnn", int)) if on_rocm else AMD_ALONE,
        nccl=Absent(why=Why.not_present, detail="this torch is built without GPU support")
        if cpu_only
        else _nccl_built(said.get("nccl", list)),
        nccl_loaded=_nccl_loaded(said.get("nccl_loaded", dict)),
        libraries=texts(said.get("libraries", list)),
        arch_list=texts(said.get("arch_list", list)),
        available=said.get("available", bool),
        device_count=said.get("device_count", int),
        runtime_count=said.get("runtime_count", int),
        devices=devices(said),
        import_seconds=seconds,
        folders=texts(said.get("folders", list)),
        warnings=texts(said.get("warnings", list)),
    )


def _none(value: Maybe[str]) -> bool:
    return isinstance(value, Absent) and value.why is Why.not_present


def _cudnn(number: Maybe[int]) -> Maybe[str]:
    """`cudnnGetVersion`: 1000 × major + 100 × minor + patch, since 9.0 10000 × major."""
    if isinstance(number, Absent):
        return number
    major = 10000 if number >= 90000 else 1000
    return f"{number // major}.{number % major // 100}.{number % 100}"


def _miopen(number: Maybe[int]) -> Maybe[str]:
    """What torch gives for cuDNN's version: 1 000 000 × major + 1000 × minor + patch."""
    if isinstance(number, Absent):
        return number
    return f"{number // 1_000_000}.{number // 1000 % 1000}.{number % 1000}"


def _hip_version(number: Maybe[int]) -> Maybe[str]:
    """`hipRuntimeGetVersion`: 10 000 000 × major + 100 000 × minor + patch."""
    if isinstance(number, Absent):
        return number
    return f"{number // 10_000_000}.{number // 100_000 % 100}.{number % 100_000}"


def _nccl_built(version: Maybe[list[Json]]) -> Maybe[str]:
    if isinstance(version, Absent):
        return version
    return ".".join(str(part) for part in version[:3])


def _nccl_loaded(answer: Maybe[dict[str, Json]]) -> Maybe[Library]:
    """`ncclGetVersion`: 1000 × major + 100 × minor + patch, since 2.9 10000 × major."""
    if isinstance(answer, Absent):
        return answer
    number = _number(answer.get("version"))
    version: Maybe[str] = Absent(why=Why.failed, detail="ncclGetVersion gave none")
    if number is not None:
        major = 10000 if number >= 10000 else 1000
        version = f"{number // major}.{number % major // 100}.{number % 100}"
    return Library(path=str(answer.get("path")), version=version, origin="loaded")


def devices(said: Said) -> Maybe[tuple[TorchDevice, ...]]:
    answer = said.get("devices", list)
    if isinstance(answer, Absent):
        return answer
    return tuple(
        TorchDevice(
            index=index,
            name=_field(device, "name", str),
            uuid=_field(device, "uuid", str),
            pci_address=_field(device, "pci_address", str),
            capability=_field(device, "capability", str),
            total_bytes=_field(device, "total_bytes", int),
            multiprocessors=_field(device, "multiprocessors", int),
        )
        for index, device in enumerate(answer)
        if isinstance(device, dict)
    )


def _field(device: dict[str, Json], name: str, kind: type[T]) -> Maybe[T]:
    value = device.get(name)
    if value is None:
        return Absent(why=Why.not_supported, detail="this torch does not tell")
    return value if _is(value, kind) else Absent(why=Why.failed, detail=str(value)[:80])


def extensions(said: Said) -> Maybe[tuple[Extension, ...]]:
    answer = said.get("extensions", list)
    if isinstance(answer, Absent):
        return answer
    return tuple(
        Extension(name=name, version=version, built_for=_built_for(package))
        for package in answer
        if isinstance(package, dict)
        and isinstance(name := package.get("name"), str)
        and isinstance(version := package.get("version"), str)
    )


def _built_for(package: Mapping[str, Json]) -> Maybe[tuple[Literal["cuda", "hip"], ...]]:
    platforms = package.get("built_for")
    if not isinstance(platforms, list) or not package.get("files"):
        return Absent(why=Why.not_present, detail="its metadata name no shared object")
    return tuple(platform for platform in PLATFORMS if platform in platforms)


def texts(answer: Maybe[Any]) -> Maybe[tuple[str, ...]]:
    if isinstance(answer, Absent):
        return answer
    if not isinstance(answer, list):
        return Absent(why=Why.failed, detail=f"an answer of another shape: {str(answer)[:80]}")
    return tuple(str(item) for item in answer)

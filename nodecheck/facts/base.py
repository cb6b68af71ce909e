"""The vocabulary every fact is written in: a value, or the reason why there is none."""

from __future__ import annotations

import math
from enum import Enum
from typing import Any, TypeAlias, TypeGuard, TypeVar

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic.fields import FieldInfo


class Fact(BaseModel):
    """Base of everything seen on a node: immutable, strict, and closed to unknown keys."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    @field_validator("*")
    @classmethod
    def _can_be_written(cls, value: Any) -> Any:
        return _writable(value)


def _writable(value: Any) -> Any:
    # JSON has neither: a byte of a file name that is no text (Python hands it on as a lone surrogate), nor a
    # number that is none.
    if isinstance(value, str) and not value.isascii():
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, float) and not math.isfinite(value):
        return Absent(why=Why.failed, detail=f"the answer was {value}")
    if isinstance(value, tuple):
        return tuple(_writable(item) for item in value)
    if isinstance(value, dict):
        return {_writable(key): _writable(item) for key, item in value.items()}
    return value


class Why(str, Enum):
    """Why a value is absent. None of these is ever a pass."""

    not_supported = "not_supported"
    """The device or the driver says that it has no such thing."""
    no_permission = "no_permission"
    """It is there, and this user may not read it."""
    not_present = "not_present"
    """The file, tool, library or device does not exist here."""
    failed = "failed"
    """The question was asked and the answer was an error or nonsense."""
    timed_out = "timed_out"
    """The question was asked and no answer came within its deadline."""
    not_asked = "not_asked"
    """Nobody asked: an interrupted run, a recording without it, a level that leaves it out."""


class Absent(Fact):
    """A value that could not be had, with the reason and whatever the source said about it."""

    why: Why
    detail: str = ""

    def __str__(self) -> str:
        words = self.why.value.replace("_", " ")
        return f"{words}: {self.detail}" if self.detail else words


class Gathered(Fact):
    """Facts that come from more than one source."""

    other_sources: tuple[tuple[str, str], ...] = ()
    """(Dotted path of a fact, the source it was read from), where that is another one than usual."""

    def source_of(self, path: str, usual: str) -> str:
        """Which source the fact at the dotted `path` below this was read from."""
        others = dict(self.other_sources)
        while path:
            if path in others:
                return others[path]
            path = path.rpartition(".")[0]
        return usual


T = TypeVar("T")
Maybe: TypeAlias = T | Absent


def known(value: Maybe[T]) -> TypeGuard[T]:
    """Whether `value` was seen (is not an `Absent`)."""
    return not isinstance(value, Absent)


def or_none(value: Maybe[T]) -> T | None:
    """The value if it was seen, else None; for arithmetic where an absent value simply drops out."""
    return None if isinstance(value, Absent) else value


NOT_ASKED = Absent(why=Why.not_asked)

AMD_ALONE = Absent(why=Why.not_supported, detail="AMD's cards alone have it")
NVIDIA_ALONE = Absent(why=Why.not_supported, detail="NVIDIA's cards alone have it")

BROKE_DOWN = "ended the process"
"""Stands in the detail of a value whose question ended the program that asked it."""
GIVEN_UP = "nothing more was asked of this card"
"""How the detail of a value ends that was not asked for, since a question before it never came back."""

OWN_FAULT = "nodecheck's own fault: "
"""How the detail of a value begins that is absent because a probe broke: that says nothing of the node."""


def seen(description: str, **read_from: str) -> Any:
    """A field's description and where each kind of source reads it.

    `read_from` maps a source's name (`nvml`, `linux`, `torch`, …) to the call or file, so that a finding can
    name its witness: `seen("memory", nvml="nvmlDeviceGetMemoryInfo v2, total")`. AMD's cards are read from
    `sysfs` (KFD's topology, the PCI device, the driver's files), `amd_smi` (the command's JSON), `amdsmi` (the
    binding that comes with ROCm) and `rocm_smi`.
    The default is `NOT_ASKED`: a probe that never gets to a field leaves it visibly unasked.
    """
    return Field(default=NOT_ASKED, description=description, json_schema_extra={"read_from": dict(read_from)})


def seen_on_amd(description: str, **read_from: str) -> Any:
    """Like `seen`, for what AMD's cards alone have: `not_supported` unless the probe of AMD cards fills it."""
    return Field(default=AMD_ALONE, description=description, json_schema_extra={"read_from": dict(read_from)})


def origin(field: FieldInfo, source: str) -> str:
    """Where `source` reads this field, for example `nvml: nvmlDeviceGetName`; just the source if not stated."""
    extra = field.json_schema_extra
    table = extra.get("read_from") if isinstance(extra, dict) else None
    call = table.get(source) if isinstance(table, dict) else None
    return f"{source}: {call}" if call else source

"""From NVML's answers to values: nonsense is an answer that failed, never a value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from nodecheck.facts import Absent, Maybe, Why
from nodecheck.probes.text import word
from nodecheck.sources.channel import Answer

Name = TypeVar("Name", bound=str)

MAX_COUNT = 2**53
"""No counter of events gets near it; a broken card's do."""

_BLANKS = {
    0xFFFFFFFF: (Why.not_supported, "NVML's mark for a 32-bit value that is not available"),
    0xFFFFFFFFFFFFFFFF: (Why.not_supported, "NVML's mark for a value that is not available"),
    **{
        base + offset: (why, f"the driver's blank value 0x{base + offset:x}")
        for base in (0x7FFFFFF0, 0x7FFFFFFFFFFFFFF0)
        for offset, why in enumerate((Why.failed, Why.not_present, Why.not_supported, Why.no_permission))
    },
}
"""Numbers that mean that there is none: NVML_VALUE_NOT_AVAILABLE, and DCGM's blanks (dcgm_structs.h: blank,
not found, not supported, not permissioned)."""


def part(answer: Answer, at: str | int) -> Answer:
    """The field of a struct, or the item of a list."""
    if isinstance(answer, Absent):
        return answer
    if isinstance(answer, dict) and at in answer:
        return answer[at]
    if isinstance(answer, list) and isinstance(at, int) and at < len(answer):
        return answer[at]
    return nonsense(answer)


def number(answer: Answer, lowest: int = 0, highest: int = MAX_COUNT) -> Maybe[int]:
    """A whole number within the range that the quantity can have."""
    if isinstance(answer, Absent):
        return answer
    if type(answer) is not int:
        return nonsense(answer)
    if lowest <= answer <= highest:
        return answer
    if answer in _BLANKS:
        why, detail = _BLANKS[answer]
        return Absent(why=why, detail=detail)
    return Absent(why=Why.failed, detail=f"{answer} cannot be: it is not within {lowest} and {highest}")


def scaled(answer: Answer, per_unit: int, lowest: int = 0, highest: int = MAX_COUNT) -> Maybe[float]:
    """A whole number of thousandths, millionths … in the unit itself; the range is that of the number."""
    value = number(answer, lowest, highest)
    return value if isinstance(value, Absent) else value / per_unit


def flag(answer: Answer) -> Maybe[bool]:
    """0 or 1."""
    value = number(int(answer) if isinstance(answer, bool) else answer, 0, 1)
    return value if isinstance(value, Absent) else bool(value)


def text(answer: Answer) -> Maybe[str]:
    """One line of text; empty text and `N/A` are the driver's way to have none."""
    if isinstance(answer, Absent):
        return answer
    if not isinstance(answer, str):
        return nonsense(answer)
    line = word(answer)
    if line is None or line.strip("[]").upper() in ("N/A", "NOT SUPPORTED"):
        return Absent(why=Why.not_supported, detail=f"the driver says {answer[:20]!r}")
    return line


def named(answer: Answer, names: Mapping[int, Name]) -> Maybe[Name]:
    """The name of an enumeration's value."""
    value = number(answer)
    if isinstance(value, Absent):
        return value
    name = names.get(value)
    return Absent(why=Why.failed, detail=f"the unknown value {value}") if name is None else name


def named_at_least(answer: Answer, names: Mapping[int, str]) -> Maybe[str]:
    """The name of a value out of an enumeration that grows with the driver: `unknown_9` for one without a name."""
    value = number(answer, 0, 255)
    return value if isinstance(value, Absent) else names.get(value, f"unknown_{value}")


def nonsense(answer: Answer) -> Absent:
    """An answer of another shape than the call has."""
    return Absent(why=Why.failed, detail=f"an answer of another shape: {str(answer)[:80]}")

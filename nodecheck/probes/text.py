"""From the kernel's small texts to values; what does not read as it should is an answer that failed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from nodecheck.facts import Absent, Maybe, Why

T = TypeVar("T")

MAX_CPUS = 8192
"""The most that Linux can be built for (NR_CPUS)."""


def parse(text: Maybe[str], read: Callable[[str], T | None]) -> Maybe[T]:
    """What `read` makes of the text; None is nonsense."""
    if isinstance(text, Absent):
        return text
    value = read(text)
    if value is None:
        shown = " ".join(text[:80].split())
        return Absent(why=Why.failed, detail=f"not understood: {shown!r}")
    return value


def word(text: str) -> str | None:
    """A line of text without the blanks around it, at most 256 characters; None where nothing is left."""
    return " ".join(text[:1024].split())[:256] or None


def number(text: str) -> int | None:
    """A whole number that fits into 64 bits."""
    match = re.fullmatch(r"\s*(-?[0-9]{1,20})\s*", text)
    return int(match[1]) if match and abs(int(match[1])) < 2**64 else None


def number_list(text: str) -> tuple[int, ...] | None:
    """The numbers in a list such as `0-31,64-95`, as the kernel lists CPUs and NUMA nodes; sorted."""
    numbers: set[int] = set()
    for part in text.strip().split(",") if text.strip() else ():
        match = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", part)
        if match is None:
            return None
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < MAX_CPUS:
            return None
        numbers.update(range(first, last + 1))
    return tuple(sorted(numbers))


def unescape_octal(text: str) -> str:
    """`/mnt/my\\040disk` → `/mnt/my disk`: blanks, tabs, line ends and backslashes in a table of mounts."""
    return re.sub(r"\\([0-3][0-7]{2})", lambda code: chr(int(code[1], 8)), text)

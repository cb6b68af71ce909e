"""How facts read in every report: values with units, absences with reasons, foreign text made harmless."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from nodecheck.facts import Absent, Fact
from nodecheck.facts.measurements import Conditions

LONGEST = 2000
"""Characters shown of one text; the whole of it stands in report.json."""


def plain(text: str, limit: int = LONGEST) -> str:
    """`text` on one line, with nothing in it that could steer a terminal, a page or the eye.

    Control characters, direction marks, zero-width and other unprintable characters are written out (`\\x1b`,
    `\\u202e`), so that nothing is lost and nothing acts.
    """
    cut = text[:limit]
    if not cut.isprintable():
        cut = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in cut)
    return cut if len(text) <= limit else f"{cut} … ({len(text) - limit} more characters in report.json)"


def brief(text: str, limit: int) -> str:
    """`plain`, at most `limit` characters of it."""
    harmless = plain(text)
    return harmless if len(harmless) <= limit else f"{harmless[: limit - 2]} …"


def shown(value: Any, unit: str = "") -> str:
    """A fact as people read it, plain: `143771 MiB`, `yes`, `none`, `not seen (no permission)`."""
    if value is None or value == "":
        return "–"
    if isinstance(value, Absent):
        return plain(f"not seen ({value})")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if unit in ("B", "bytes") and isinstance(value, (int, float)):
        return size(value)
    if isinstance(value, float):
        value = f"{value:.6g}"
    elif isinstance(value, (tuple, list)):
        value = ", ".join(shown(item) for item in value) or "none"
    elif isinstance(value, Fact):
        value = ", ".join(f"{name} {shown(field)}" for name, field in value)
    return plain(f"{value} {unit}".rstrip())


def size(count: float) -> str:
    """A number of bytes in binary units, `140.4 GiB`; small counts, and those no machine has, in bytes."""
    if not abs(count) < 1024**6:
        return f"{count} bytes"
    amount, unit = float(count), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if abs(amount) < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.4g} {unit}"


def small_size(count: int) -> str:
    """`8 B`, `2 MiB`."""
    return size(count).replace(" bytes", " B")


def number(value: float) -> str:
    """A measured figure, to four digits: `4297`, `55.40`, `120,000`."""
    if 10_000 <= abs(value) < 1e12:
        return f"{value:,.0f}"
    return f"{value:#.4g}".rstrip(".") if value else "0"


def unit_words(unit: str) -> str:
    """The unit with its right sign."""
    return "µs" if unit == "us" else unit


def plural(count: int, noun: str) -> str:
    """`1 card`, `2 cards`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def conditions(at: Conditions) -> str:
    """`512 MiB, pageable`, in few words."""
    parts = (
        _shape(at.shape) if at.shape else "",
        small_size(at.size_bytes) if at.size_bytes is not None else "",
        at.dtype or "",
        plural(at.ranks, "rank") if at.ranks else "",
        {True: "in place", False: "out of place", None: ""}[at.in_place],
        {True: "pinned", False: "pageable", None: ""}[at.pinned],
        "all cards at once" if at.together else "",
        "sustained" if at.sustained else "",
    )
    return ", ".join(part for part in parts if part)


def _shape(shape: str) -> str:
    """`8192³`, `2048 × 2048 × 13312`."""
    sides = shape.split("x")
    if len(sides) != 3 or not all(side.isascii() and side.isdigit() for side in sides):
        return shape
    return f"{sides[0]}³" if len(set(sides)) == 1 else " × ".join(sides)


def spans(text: str) -> Iterator[tuple[str, bool]]:
    """One of our own texts in pieces, each with whether it stands between backticks, which means code."""
    for place, piece in enumerate(re.split(r"`([^`]+)`", plain(text))):
        if piece:
            yield piece, place % 2 == 1


def unmarked(text: str) -> str:
    """One of our own texts without the backticks around code."""
    return "".join(piece for piece, _ in spans(text))

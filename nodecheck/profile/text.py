"""A profile in words, for people."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from nodecheck.profile.levels import first_level
from nodecheck.profile.model import Figure, Profile, Section

WIDTH = 80
_LEVELS = {
    "standard": "measured at level standard and full",
    "full": "measured at level full only",
    None: "measured at no level: it waits for a size or shape that nodecheck takes",
}


def readable(profile: Profile) -> str:
    """The whole profile in lines of at most 80 columns: what each file says, then who says it."""
    return "\n".join(_lines(profile))


def _lines(profile: Profile) -> Iterator[str]:
    yield from _wrapped(f"{profile.name}: {profile.title}", "", "  ")
    if profile.extends:
        yield f"extends {profile.extends}"
    if profile.abstract:
        yield "to be extended; accepts nothing by itself"
    if profile.cards is not None:
        yield ""
        yield "cards"
        yield f"  count  {_value(profile.cards.count)}"
    for name in ("card", "links", "host", "stack"):
        section: Section | None = getattr(profile, name)
        if section is not None:
            yield ""
            yield name
            yield from _section(section)
    for key in ("required", "wanted"):
        if ids := getattr(profile, key):
            yield ""
            yield from _wrapped(f"{key}: {', '.join(ids)}", "", "  ")
    for level, words in _LEVELS.items():
        figures = [figure for figure in profile.figures if first_level(figure) == level]
        if figures:
            yield ""
            yield from _wrapped(f"figures, {words}", "", "  ")
            for figure in figures:
                yield from _figure(figure)


def _section(section: Section) -> Iterator[str]:
    statements = section.statements()
    width = max((len(key) for told in statements.values() for key in told), default=0)
    for witness, told in statements.items():
        for key, value in told.items():
            yield from _wrapped(_value(value), f"  {key:{width}}  ", " " * (width + 4))
        yield from _wrapped(f"from {witness}", "    ", "      ")


def _figure(figure: Figure) -> Iterator[str]:
    conditions = f" ({figure.at})" if str(figure.at) else ""
    bounds = [
        f"{level} {side} {value:g}"
        for level in ("warn", "fail")
        for side in ("below", "above")
        if (value := getattr(figure, f"{level}_{side}")) is not None
    ]
    said = f"{figure.measure}{conditions}: {figure.typical:g} {figure.unit}, {', '.join(bounds)}"
    yield from _wrapped(said, "  ", "      ")
    yield from _wrapped(f"from {figure.witness}", "    ", "      ")
    if figure.note:
        yield from _wrapped(figure.note, "    ", "      ")


def _wrapped(text: str, first: str, rest: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False
    ) or [first.rstrip()]


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    if isinstance(value, int):
        return f"{value:,}".replace(",", " ")
    return f"{value:g}" if isinstance(value, float) else str(value)

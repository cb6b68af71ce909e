"""A profile in words, for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nodecheck.profile.model import Figure, Part, Profile, Sourced

_HIDDEN = ("source", "date", "kind")


def readable(profile: Profile) -> str:
    """The whole profile: sections with their witness, then a line for each figure with its own."""
    return "\n".join(_lines(profile))


def _lines(profile: Profile) -> Iterator[str]:
    yield f"{profile.name}: {profile.title}"
    if profile.extends:
        yield f"extends {profile.extends}"
    if profile.abstract:
        yield "to be extended; accepts nothing by itself"
    for section in ("cards", "card", "links", "host", "stack"):
        part: Part | None = getattr(profile, section)
        if part is not None:
            yield ""
            yield section
            yield from _section(part)
    for key in ("required", "wanted"):
        if ids := getattr(profile, key):
            yield ""
            yield f"{key}: {', '.join(ids)}"
    if profile.figures:
        yield ""
        yield "figures"
        for figure in profile.figures:
            yield from _figure(figure)


def _section(part: Part) -> Iterator[str]:
    fields = [name for name in type(part).model_fields if name not in _HIDDEN]
    told = {name: value for name in fields if (value := getattr(part, name)) is not None}
    width = max(map(len, told), default=0)
    for name, value in told.items():
        yield f"  {name:{width}}  {_value(value)}"
    if isinstance(part, Sourced):
        yield f"  from {part.witness}"


def _figure(figure: Figure) -> Iterator[str]:
    conditions = f" ({figure.at})" if str(figure.at) else ""
    bounds = [
        f"{level} {side} {value:g}"
        for level in ("warn", "fail")
        for side in ("below", "above")
        if (value := getattr(figure, f"{level}_{side}")) is not None
    ]
    yield f"  {figure.measure}{conditions}: {figure.typical:g} {figure.unit}, {', '.join(bounds)}"
    yield f"    from {figure.witness}"
    if figure.note:
        yield f"    {figure.note}"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    if isinstance(value, int):
        return f"{value:,}".replace(",", " ")
    return f"{value:g}" if isinstance(value, float) else str(value)

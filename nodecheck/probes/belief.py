"""One card out of what several sources say of it: who is believed, and what becomes of contradictions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from nodecheck.facts import Absent, Card, Fact, Maybe, Why
from nodecheck.facts.base import NVIDIA_ALONE
from nodecheck.facts.card import EccCounts

SOURCES = ("sysfs", "amd_smi", "amdsmi", "rocm_smi")
"""In the order of belief: the kernel's own files first, then what needs more and more between it and us."""

CHECKED: dict[str, float] = {
    "uuid": 0,
    "hive": 0,
    "identity.pci_id": 0,
    "identity.gfx": 0,
    "identity.compute_units": 0,
    "memory.total_bytes": 0.01,
    "power.limit_watts": 0.01,
    "modes.compute_partition": 0,
    "modes.memory_partition": 0,
    "health.ecc_volatile.uncorrected": 0,
    "health.bad_pages_retired": 0,
    "pair.link_type": 0,
    "pair.weight": 0,
}
"""Facts that sources must agree on, and by which part of the value they may differ: a second opinion counts where a
wrong one would decide the verdict, and where the value does not change from one second to the next."""

_GRAVITY = (
    Why.timed_out, Why.no_permission, Why.failed, Why.not_supported, Why.not_present, Why.not_asked,
)  # fmt: skip
"""Which reason stands for all where each source has another one: the one that somebody can do something about."""


@dataclass(frozen=True)
class Reading:
    """What one source says of one card: dotted path below `Card` → value, or why it has none."""

    source: str
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Believed:
    value: Any
    source: str


UNTOLD = Absent(why=Why.not_present, detail="no source that could be asked tells it")


def believe(path: str, readings: Sequence[Reading], untold: Absent = UNTOLD) -> Believed:
    """The value of the first source that has one, unless a later one contradicts it on what is `CHECKED`.

    `untold` is why there is none where no source speaks of it.
    """
    said = [(r.source, r.values[path]) for r in readings if path in r.values]
    known = [(source, value) for source, value in said if not isinstance(value, Absent)]
    if not known:
        return Believed(_without(said) if said else untold, said[0][0] if said else "")
    source, value = known[0]
    if path in CHECKED:
        others = [(s, v) for s, v in known[1:] if not agree(value, v, CHECKED[path])]
        if others:
            told = "; ".join(f"{s} says {v}" for s, v in [known[0], *others])
            return Believed(Absent(why=Why.failed, detail=f"the sources disagree: {told}"), source)
    return Believed(value, source)


def agree(a: Any, b: Any, part: float) -> bool:
    """Whether two values are one, numbers being allowed to differ by this part."""
    if isinstance(a, str) and isinstance(b, str):
        return a.casefold() == b.casefold()
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return math.isclose(a, b, rel_tol=part)
    return bool(a == b)


def _without(said: Iterable[tuple[str, Absent]]) -> Absent:
    reasons = [(source, absent) for source, absent in said]
    why = min((absent.why for _, absent in reasons), key=_GRAVITY.index)
    told = dict.fromkeys(f"{source}: {absent.detail or absent.why.value}" for source, absent in reasons)
    return Absent(why=why, detail="; ".join(told))


def card(address: Maybe[str], index: int, readings: Sequence[Reading], untold: Absent = UNTOLD) -> Card:
    """The card at a PCI address; what NVIDIA's cards alone have says so, and what no source speaks of is `untold`."""
    others: dict[str, str] = {}
    source = readings[0].source if readings else SOURCES[0]

    def leaf(path: str) -> Any:
        believed = believe(path, readings, untold)
        if believed.source and believed.source != source:
            others[path] = believed.source
        return believed.value

    parts = _facts(Card, "", leaf, ("vendor", "source", "index", "other_sources", "pci_address"))
    return Card(
        vendor="amd",
        source=source,
        index=index,
        pci_address=address,
        other_sources=tuple(sorted(others.items())),
        **parts,
    )


def _facts(model: type[Fact], prefix: str, leaf: Any, without: Sequence[str] = ()) -> dict[str, Any]:
    """The fields of a model, by asking `leaf` for each that AMD's sources can tell."""
    values: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        if name in without:
            continue
        path = f"{prefix}{name}"
        group = _group(field.annotation)
        extra = field.json_schema_extra
        table = extra.get("read_from", {}) if isinstance(extra, dict) else {}
        if isinstance(table, dict) and table and not set(table) & set(SOURCES):
            values[name] = NVIDIA_ALONE
        elif group is EccCounts:
            values[name] = _counts(path, leaf)
        elif group is not None:
            values[name] = group(**_facts(group, f"{path}.", leaf))
        else:
            values[name] = leaf(path)
    return values


def _counts(path: str, leaf: Any) -> EccCounts | Absent:
    """Counters of errors; one reason for all where no counter is known."""
    parts = _facts(EccCounts, f"{path}.", leaf)
    if any(not isinstance(value, Absent) for value in parts.values()):
        return EccCounts(**parts)
    total = parts["uncorrected"]
    assert isinstance(total, Absent)  # noqa: S101
    return total


def _group(annotation: Any) -> type[Fact] | None:
    """The model that a field holds, if it holds one (`Identity`, `EccCounts | Absent`)."""
    if isinstance(annotation, type) and issubclass(annotation, Fact):
        return annotation
    if get_origin(annotation) in (Union, UnionType, Annotated):
        found = [group for part in get_args(annotation) if (group := _group(part)) not in (None, Absent)]
        return found[0] if len(found) == 1 else None
    return None

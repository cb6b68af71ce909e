"""What is wrong with a merged profile: all of it, each with its key, in one sentence.

Public tools ship thresholds a thousand times too low through a slip of units; these checks are made of such
slips.
"""

from __future__ import annotations

import difflib
import types
import typing
import unicodedata
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, PydanticUndefined

from nodecheck.profile.lines import Path
from nodecheck.profile.model import (
    MEASURES,
    SECTIONS,
    At,
    CardSpec,
    Figure,
    LinksSpec,
    Profile,
    Section,
    Sourced,
)

CEILING_FACTOR = 1.1
"""A figure may pass its datasheet by this much (clocks and rounding); beyond, one of the two is a slip."""
GROSS_FAULT = 0.5
"""A derived figure may reject only below this share of typical (or above its inverse)."""

ALWAYS_REQUIRED = {
    "cards.listed": "without it nothing says that there is a card",
    "cards.count": "without it nothing says how many there are",
    "cards.usable": "without it nothing says that the driver hands them out",
    "stack.context": "without it nothing says that a program runs on them",
}
"""Findings that no profile may set down to `wanted`: unseen, they would let a node without its cards be accepted."""

_VENDOR_IDS = {"nvidia": "10de", "amd": "1002"}
_OF_ONE_VENDOR = {
    "nvidia": ("cores",),
    "amd": ("compute_units", "compute_partition", "memory_partition"),
}
"""Keys of `[card]` that say something of this vendor's cards alone."""
_FOREIGN_LINKS = {"nvidia": "xgmi", "amd": "nvlink"}
"""The other vendor's links."""


@dataclass(frozen=True)
class Fault:
    path: Path
    says: str
    """Follows the key: `must be a whole number, not "8".`"""
    against: tuple[Path, ...] = ()
    """The keys that it contradicts. The file nearest to the user that says one of them is to blame."""


def shown(value: Any, limit: int = 60, *, quote: bool = True) -> str:
    """A value of a file as it may stand in a sentence: short, and without what could steer a terminal."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, (list, tuple)):
        return "a list"
    if isinstance(value, bool):
        return str(value).lower()
    text = value if isinstance(value, str) else str(value)
    cut = text if len(text) <= limit else text[:limit] + "…"
    safe = "".join(
        c if c.isprintable() else c.encode("unicode_escape", "replace").decode("ascii") for c in cut
    )
    return f'"{safe}"' if quote and isinstance(value, str) else safe


def check(
    table: dict[str, Any], findings: Collection[str] | None = None
) -> tuple[Profile | None, list[Fault]]:
    """The profile that a merged table describes, or none, and everything that is wrong with it.

    But for the witnesses of its sections, which each file must have right: see `witness_faults`. `findings`
    are the ids that `required` and `wanted` may name.
    """
    faults = list(_unprintable(table, ()))
    frozen: dict[str, Any] = _frozen(table)
    try:
        profile: Profile | None = Profile.model_validate(frozen)
    except ValidationError as error:
        profile = None
        found = map(_translated, error.errors(include_url=False))
        faults += [fault for fault in found if not _of_a_witness(fault.path)]
    sound = _sound(Profile, frozen, {fault.path for fault in faults})
    if sound.card is not None:
        faults += _card_faults(sound.card, frozen["card"])
    if sound.links is not None:
        faults += _links_faults(sound.links)
    for index, figure in enumerate(sound.figures or ()):
        if figure is not None:
            faults += _figure_faults(index, figure, frozen["figures"][index])
    faults += _whole_faults(sound, frozen)
    if findings is not None:
        faults += _unknown_findings(sound, findings)
    return (None if faults else profile), faults


def witness_faults(section: str, table: dict[str, Any]) -> Iterator[Fault]:
    """What is wrong with the source, the date and the kind that a file gives for what its section says."""
    try:
        Sourced.model_validate({key: table[key] for key in Sourced.model_fields if key in table})
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            fault = _translated(detail)
            says = (
                "is missing: what a file says in a section needs a source and a date of its own."
                if detail["type"] == "missing"
                else fault.says
            )
            yield Fault((section, *fault.path), says)


def _of_a_witness(path: Path) -> bool:
    return path[0] in SECTIONS and path[1:] != () and path[1] in Section.model_fields


def _sound(model: type[BaseModel], table: dict[str, Any], bad: Collection[Path], at: Path = ()) -> Any:
    """The model with what is right in `table`, unchecked; None stands for what is not, and for what is missing."""
    values: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        key = field.alias or name
        value, inner = table.get(key, field.default), _model_in(field.annotation)
        path = (*at, key)
        if value is PydanticUndefined or path in bad:
            value = None
        elif inner is not None and isinstance(value, dict) and name != "inherited":
            value = _sound(inner, value, bad, path)
        elif inner is not None and isinstance(value, tuple):
            value = tuple(
                _sound(inner, item, bad, (*path, index)) if isinstance(item, dict) else None
                for index, item in enumerate(value)
            )
        elif isinstance(value, tuple):
            value = tuple(None if (*path, index) in bad else item for index, item in enumerate(value))
        values[name] = value
    return model.model_construct(**values)


def _unknown_findings(profile: Profile, known: Collection[str]) -> Iterator[Fault]:
    for key in ("required", "wanted"):
        for finding in getattr(profile, key) or ():
            if finding is not None and finding not in known:
                near = difflib.get_close_matches(finding, known, n=1)
                hint = f"; did you mean {near[0]}?" if near else "."
                yield Fault((key,), f"there is no finding {shown(finding, quote=False)}{hint}")


def _frozen(value: Any) -> Any:
    """TOML's lists as tuples, which the strict models ask for."""
    if isinstance(value, dict):
        return {key: _frozen(item) for key, item in value.items()}
    if isinstance(value, list):
        return tuple(_frozen(item) for item in value)
    return value


def _unprintable(value: Any, path: Path) -> Iterator[Fault]:
    if isinstance(value, str):
        if any(unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") for char in value):
            yield Fault(path, "holds control characters.")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _unprintable(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unprintable(item, (*path, index))


_WORDS = {
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "string_type": "must be a text",
    "bool_type": "must be true or false",
    "date_type": "must be a date such as 2026-11-30, without quotation marks",
    "tuple_type": "must be a list",
    "model_type": "must be a table",
    "finite_number": "must be a finite number",
}
_PATTERNS = {
    "name": "letters, digits, dot, dash and underscore, beginning with a letter or digit",
    "pci_ids": "vendor and device as in 10de:2335, in lower case",
    "architecture": "one lower-case word such as hopper",
    "compute_capability": "two numbers such as 9.0",
    "arch": "a compiler's name such as sm_90 or gfx942",
    "version": "two numbers such as 4.0",
    "driver_min": "a version such as 570.86.15",
    "cuda_min": "a version such as 12.8",
    "rocm_min": "a version such as 6.0",
    "compute_partition": "SPX, DPX, TPX, QPX or CPX",
    "memory_partition": "NPS1, NPS2, NPS4 or NPS8",
    "size": "a whole number with B, KiB, MiB or GiB, such as 8GiB",
    "dtype": "torch's name of a type, such as bfloat16",
    "shape": "m x n x k such as 8192x8192x8192",
    "torch": "release and build of torch such as 2.11+cu130",
    "required": "a finding's id such as topology.fabric.state",
    "wanted": "a finding's id such as topology.fabric.state",
}
_LIMITS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "more than"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
}


def _translated(detail: ErrorDetails) -> Fault:
    """pydantic's error as a sentence about a TOML file."""
    path: Path = detail["loc"]
    kind, given, context = detail["type"], detail.get("input"), detail.get("ctx", {})
    key = next((part for part in reversed(path) if isinstance(part, str)), "")
    if kind == "extra_forbidden":
        near = difflib.get_close_matches(key, _keys_at(path[:-1]), n=1, cutoff=0.5)
        return Fault(path, "no such key" + (f"; did you mean {near[0]}?" if near else "."))
    if kind == "missing":
        return Fault(path, "is missing.")
    if kind == "literal_error":
        return Fault(path, f"must be {context['expected']}, not {shown(given)}.".replace("'", '"'))
    if kind == "string_pattern_mismatch":
        return Fault(path, f"must be {_PATTERNS.get(key, 'written otherwise')}, not {shown(given)}.")
    if kind in _LIMITS:
        name, words = _LIMITS[kind]
        return Fault(
            path, f"{shown(given)} is not plausible here, {words} {context[name]:g} is (is the unit right?)."
        )
    if kind == "string_too_long":
        return Fault(path, f"longer than {context['max_length']} characters.")
    if kind == "string_too_short":
        least = context["min_length"]
        return Fault(path, "must not be empty." if least == 1 else f"must have at least {least} characters.")
    if kind in ("too_long", "too_short"):
        bound = "at most" if kind == "too_long" else "at least"
        count = context["max_length"] if kind == "too_long" else context["min_length"]
        return Fault(path, f"must have {bound} {count} {'entry' if count == 1 else 'entries'}.")
    return Fault(path, f"{_WORDS.get(kind, detail['msg'])}, not {shown(given)}.")


def _keys_at(path: Path) -> list[str]:
    """The keys that may stand in the table at `path`."""
    model: Any = Profile
    for part in path:
        if isinstance(part, int):
            continue
        field = model.model_fields.get(part)
        if field is None:
            return []
        model = _model_in(field.annotation)
        if model is None:
            return []
    return [field.alias or name for name, field in model.model_fields.items()]


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model inside `Model | None` or `tuple[Model, ...]`."""
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return annotation if issubclass(annotation, BaseModel) else None
    return next((m for m in map(_model_in, typing.get_args(annotation)) if m is not None), None)


def _card_faults(card: CardSpec, table: dict[str, Any]) -> Iterator[Fault]:
    """Of a card that may lack keys, as all that follow; what `table` has and the card lacks is wrong by itself."""

    def fault(key: str, says: str, *against: str) -> Fault:
        return Fault(("card", key), says, tuple(("card", other) for other in against))

    vendor_id = _VENDOR_IDS.get(card.vendor)
    for index, pci_id in enumerate(card.pci_ids or ()):
        if vendor_id and pci_id is not None and not pci_id.startswith(f"{vendor_id}:"):
            yield Fault(
                ("card", "pci_ids", index),
                f"{pci_id} is no {card.vendor} card, whose ids begin {vendor_id}:.",
                (("card", "vendor"),),
            )
    prefix = {"nvidia": "sm_", "amd": "gfx"}.get(card.vendor, "")
    if card.arch is not None and not card.arch.startswith(prefix):
        yield fault("arch", f"{card.arch} is no {card.vendor} card's, which begins {prefix}.", "vendor")
    elif card.vendor == "nvidia" and card.arch is not None and card.compute_capability is not None:
        digits = card.arch.removeprefix("sm_").rstrip("abcdefghijklmnopqrstuvwxyz")
        if digits != card.compute_capability.replace(".", ""):
            yield fault(
                "arch",
                f"{card.arch} does not fit the compute capability {card.compute_capability}.",
                "compute_capability",
            )
    for other, keys in _OF_ONE_VENDOR.items():
        for key in keys:
            if card.vendor not in (None, other) and key in table:
                yield fault(key, f"says something of {other}'s cards alone.", "vendor")
    tolerance, memory = card.memory_tolerance_mib, card.memory_mib
    if tolerance is not None and memory is not None and tolerance > 0.05 * memory:
        yield fault(
            "memory_tolerance_mib",
            "more than 5 % of memory_mib: another card could pass for this one.",
            "memory_mib",
        )
    low, high = card.power_limit_min_watts, card.power_limit_watts
    if low is not None and "power_limit_watts" not in table:
        yield fault("power_limit_min_watts", "stands without power_limit_watts.")
    elif low is not None and high is not None and low > high:
        yield fault(
            "power_limit_min_watts", f"{low:g} is above power_limit_watts, {high:g}.", "power_limit_watts"
        )


def _links_faults(links: LinksSpec) -> Iterator[Fault]:
    def fault(key: str, says: str, against: str = "interconnect") -> Fault:
        return Fault(("links", key), says, (("links", against),))

    nvlink, xgmi = links.interconnect in ("nvlink", "nvlink_pairs"), links.interconnect == "xgmi"
    if links.interconnect is not None:
        for key in ("version", "links_per_card", "link_speed_mb_per_s", "links_per_pair"):
            of_both = xgmi and key in ("links_per_card", "link_speed_mb_per_s")
            if not nvlink and not of_both and getattr(links, key) is not None:
                yield fault(key, f'says something of NVLink where interconnect is "{links.interconnect}".')
        if not xgmi and (links.hive_cards is not None or links.direct is False):
            key = "direct" if links.hive_cards is None else "hive_cards"
            yield fault(key, f'says something of xGMI where interconnect is "{links.interconnect}".')
        if links.fabric and links.interconnect != "nvlink":
            yield fault("fabric", f'a fabric joins every pair, and interconnect is "{links.interconnect}".')
        if (nvlink or xgmi) and links.peer_to_peer is False:
            joined = "xGMI" if xgmi else "NVLink"
            yield fault("peer_to_peer", f"cards joined by {joined} reach each other's memory.")
    per_card, per_pair = links.links_per_card, links.links_per_pair
    if per_card is not None and per_pair is not None and per_pair > per_card:
        yield fault("links_per_pair", f"{per_pair} is more than the card has, {per_card}.", "links_per_card")


def _figure_faults(index: int, figure: Figure, table: dict[str, Any]) -> Iterator[Fault]:
    def fault(key: str, says: str) -> Fault:
        return Fault(("figures", index, *key.split(".")), says)

    if figure.measure is None:
        return
    measure = MEASURES.get(figure.measure)
    if measure is None:
        near = difflib.get_close_matches(figure.measure, MEASURES, n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]}?" if near else f": one of {', '.join(MEASURES)}."
        yield fault("measure", f"{shown(figure.measure)} is not measured{hint}")
        return
    if figure.unit is not None and figure.unit != measure.unit:
        yield fault(
            "unit", f"{shown(figure.unit)} does not fit {figure.measure}, which is in {measure.unit}."
        )
    at = table.get("at", {})
    for key in At.model_fields if isinstance(at, dict) else ():
        if key in measure.at and key not in at:
            yield fault("at", f"{figure.measure} needs {key}: it holds for exactly one.")
        if key in at and key not in (*measure.at, "torch"):
            yield fault(f"at.{key}", f"{figure.measure} does not depend on it.")
    yield from _threshold_faults(figure, table, measure.more_is_better, fault)
    for key in ("typical", "warn_below", "fail_below", "warn_above", "fail_above", "ceiling"):
        value = getattr(figure, key)
        if value is None:
            continue
        if not measure.low <= value <= measure.high:
            yield fault(
                key,
                f"{value:g} {shown(figure.unit or measure.unit, quote=False)} is not plausible for {figure.measure}, "
                f"{measure.low:g} to {measure.high:g} {measure.unit} is (is the unit right?).",
            )
        elif key != "ceiling" and figure.ceiling is not None and value > CEILING_FACTOR * figure.ceiling:
            yield fault(key, f"{value:g} is more than {CEILING_FACTOR} × the ceiling, {figure.ceiling:g}.")


def _threshold_faults(
    figure: Figure, table: dict[str, Any], more_is_better: bool, fault: Any
) -> Iterator[Fault]:
    wrong, right = ("above", "below") if more_is_better else ("below", "above")
    better = "more" if more_is_better else "less"
    for level in ("warn", "fail"):
        if getattr(figure, f"{level}_{wrong}") is not None:
            yield fault(f"{level}_{wrong}", f"of {figure.measure} {better} is better: write {level}_{right}.")
    sign = 1 if more_is_better else -1
    warn: float | None = getattr(figure, f"warn_{right}")
    fail: float | None = getattr(figure, f"fail_{right}")
    if f"warn_{right}" not in table and f"fail_{right}" not in table:
        yield fault("typical", f"stands without warn_{right} or fail_{right}, so nothing is asked.")
    side = "above" if more_is_better else "below"
    typical: float | None = figure.typical
    if warn is not None and typical is not None and sign * (warn - typical) > 0:
        yield fault(f"warn_{right}", f"{warn:g} is {side} typical, {typical:g}.")
    reference, name = (warn, f"warn_{right}") if warn is not None else (typical, "typical")
    if fail is not None and reference is not None and sign * (fail - reference) > 0:
        yield fault(f"fail_{right}", f"{fail:g} is {side} {name}, {reference:g}.")
    if fail is not None and typical is not None and figure.kind == "derived":
        bound = typical * (GROSS_FAULT if more_is_better else 1 / GROSS_FAULT)
        if sign * (fail - bound) > 0:
            yield fault(
                f"fail_{right}",
                f"{fail:g} is {side} {bound:g}: a derived figure may only warn, short of a gross fault.",
            )


def _whole_faults(profile: Profile, table: dict[str, Any]) -> Iterator[Fault]:
    """What no section can know by itself. `table` says what is there at all, right or wrong."""
    both = [finding for finding in profile.wanted or () if finding and finding in (profile.required or ())]
    if both:
        yield Fault(("wanted",), f"{both[0]} is both required and wanted.", (("required",),))
    for index, finding in enumerate(profile.wanted or ()):
        if finding in ALWAYS_REQUIRED:
            says = f"{finding} holds up every verdict: {ALWAYS_REQUIRED[finding]}."
            yield Fault(("wanted", index), says)
    if profile.abstract:
        if "cards" in table:
            yield Fault(("cards",), "an abstract profile has no count.")
        return
    if "cards" not in table:
        yield Fault(("cards",), "is missing: say how many with count (0 for a machine without a GPU).")
    if profile.cards is None or profile.cards.count is None:
        return
    count, counted = profile.count, (("cards", "count"),)
    there = [f"[{section}]" for section in ("card", "links") if section in table]
    if count == 0:
        if there:
            yield Fault(
                counted[0],
                f"0 is a machine without a GPU, and the profile has {' and '.join(there)}.",
                tuple((section,) for section in ("card", "links")),
            )
        return
    for section in ("card", "links"):
        if section not in table:
            yield Fault((section,), "is missing.")
    links = profile.links
    if links is not None and links.interconnect is not None:
        if (links.interconnect == "none") != (count == 1):
            single = "one card has no links" if count == 1 else f"{count} cards are joined somehow"
            yield Fault(
                ("links", "interconnect"), f"{single}, so it cannot be {shown(links.interconnect)}.", counted
            )
        bridged = links.bridged_group
        if links.interconnect == "nvlink_pairs" and bridged is not None and bridged > count:
            yield Fault(("links", "bridged_group"), f"{bridged} is more than cards.count, {count}.", counted)
        hive = links.hive_cards
        if hive is not None and (hive > count or count % hive):
            yield Fault(("links", "hive_cards"), f"cards.count, {count}, is no multiple of it.", counted)
        vendor = profile.card.vendor if profile.card is not None else None
        if vendor is not None and _FOREIGN_LINKS[vendor] == links.interconnect.partition("_")[0]:
            says = f'{vendor} cards are not joined by "{links.interconnect}".'
            yield Fault(("links", "interconnect"), says, (("card", "vendor"),))
    for index, figure in enumerate(profile.figures or ()):
        if figure is None:
            continue
        ranks = figure.at.ranks if figure.at is not None else None
        if ranks is not None and ranks > count:
            yield Fault(
                ("figures", index, "at", "ranks"), f"{ranks} is more than cards.count, {count}.", counted
            )
        if figure.measure is not None and figure.measure.startswith("pairs.") and count < 2:
            yield Fault(("figures", index, "measure"), f"{figure.measure} needs two cards.", counted)

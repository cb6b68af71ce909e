"""Are the cards what was rented?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from nodecheck.facts import Absent, Card, Maybe, Node, Why, known
from nodecheck.facts.card import Vendor
from nodecheck.judge.finding import NODE, Cause, Owner, Status
from nodecheck.judge.rule import (
    Look,
    OnAmd,
    Outcome,
    amd_smi,
    card_rule,
    fail,
    observe,
    passed,
    rule,
    skipped,
    smi,
    unknown,
    warn,
)
from nodecheck.profile import CardSpec, Profile

MIB = 1024**2
SHARED_SHARE = 0.45
"""Of memory that CPUs and GPU share, what the driver lets programs have at least."""


@dataclass(frozen=True)
class Mark:
    """One thing by which a product is known."""

    id: str
    name: str
    path: str
    key: str
    """What the profile calls it: one value, or a tuple of which the card has one."""
    unit: str = ""
    as_fact: Callable[[Any], Any] = lambda value: value

    def fits(self, value: Any, spec: CardSpec, card: Card) -> bool:
        if self.path == "memory.total_bytes":
            return _total_fits(value, spec, card)
        expected = self.as_fact(getattr(spec, self.key))
        return _folded(value) in map(_folded, expected if isinstance(expected, tuple) else (expected,))


def _folded(value: Any) -> Any:
    return value.strip().casefold() if isinstance(value, str) else value


def _total_fits(total_bytes: int, spec: CardSpec, card: Card) -> bool:
    least, most = (float(spec.memory_mib + sign * spec.memory_tolerance_mib) for sign in (-1, 1))
    if spec.memory_shared:
        # The driver hands out half of it unless it is told otherwise: 64289 MiB on a node of four MI300A.
        least = SHARED_SHARE * spec.memory_mib
    if spec.ecc and card.health.ecc_enabled is False and card.vendor == "nvidia":
        # Cards with GDDR keep ECC's bits in the memory itself: an L40S has 46068 MiB with ECC, 49140 without.
        most += spec.memory_mib // 15
    return least <= total_bytes / MIB <= most


NAME = Mark("cards.model", "name", "identity.name", "names")
PCI_ID = Mark("cards.pci_id", "PCI id", "identity.pci_id", "pci_ids")
ARCHITECTURE = Mark("cards.architecture", "architecture", "identity.architecture", "architecture")
CAPABILITY = Mark(
    "cards.compute_capability",
    "compute capability",
    "identity.compute_capability",
    "compute_capability",
)
CORES = Mark("cards.cores", "cores", "identity.cores", "cores")
UNITS = Mark("cards.compute_units", "compute units", "identity.compute_units", "compute_units")
GFX = Mark("cards.gfx", "compiler's target", "identity.gfx", "arch")
TOTAL = Mark(
    "cards.memory.total", "memory", "memory.total_bytes", "memory_mib", "bytes", lambda mib: mib * MIB
)
BUS_WIDTH = Mark("cards.memory.bus_width", "memory bus", "memory.bus_width_bits", "memory_bus_bits", "bits")
MARKS = (NAME, PCI_ID, ARCHITECTURE, CAPABILITY, GFX, CORES, UNITS, TOTAL, BUS_WIDTH)


def _mark_rule(
    mark: Mark,
    title: str,
    *,
    passes: str = "it is what the profile says",
    meaning: str,
    repeat: str,
    amd: str,
    required: bool = False,
    vital: bool = False,
    told_by: Mark | None = None,
    of: Vendor | None = None,
) -> None:
    """Register the rule on a mark; `amd` is the command that shows it of AMD's cards.

    `told_by` is the mark that says of an AMD card what it is where this one is not told: its name is no more than
    what a tool makes of the PCI id.
    """

    @card_rule(
        mark.id,
        title,
        path=mark.path,
        expects=mark.key,
        as_fact=mark.as_fact,
        unit=mark.unit,
        passes=passes,
        fails="it is something else",
        cause=Cause.not_as_rented,
        owner=Owner.provider,
        required=required,
        vital=vital,
        of=of,
        instead=partial(_told_otherwise, told_by) if told_by else None,
        meaning=meaning,
        next_step="Compare with what the contract names, and send this report to the provider.",
        repeat=repeat,
        on_amd=OnAmd(repeat=amd),
    )
    def judged(look: Look) -> Outcome:
        if mark.fits(look.value, look.spec, look.card):
            return passed("")
        return fail(f"The {mark.name} is {_say(look.value, mark)}, not {_say(look.expected, mark)}.")


def _told_otherwise(mark: Mark, card: Card, spec: CardSpec) -> str:
    """Why it is no loss that an AMD card does not tell; empty where it is one."""
    value = observe(card, mark.path, card.source).value
    if card.vendor != "amd" or isinstance(value, Absent) or not mark.fits(value, spec, card):
        return ""
    return f"Not told here; the {mark.name} {value} says what it is ({mark.id})."


def _ask_nvml(function: str) -> str:
    """For what nvidia-smi does not show: the driver asked with the package nvidia-ml-py, of the first card."""
    return f"python3 -c 'from pynvml import *; nvmlInit(); print({function}(nvmlDeviceGetHandleByIndex(0)))'"


def _say(value: Any, mark: Mark) -> str:
    if mark.unit == "bytes":
        return f"{value / MIB:,.0f} MiB"
    return " or ".join(value) if isinstance(value, tuple) else f"{value} {mark.unit}".strip()


_mark_rule(
    NAME,
    "The card is the model that was rented",
    required=True,
    meaning="The driver names another product than the one rented.",
    repeat=smi("name"),
    amd=amd_smi("static", "asic"),
    told_by=PCI_ID,
)
_mark_rule(
    PCI_ID,
    "The PCI id is the product's",
    required=True,
    meaning="The id burnt into the card is another product's, whatever its name says.",
    repeat=smi("pci.device_id", "pci.sub_device_id"),
    amd="lspci -nn -d 1002:",
)
_mark_rule(
    ARCHITECTURE,
    "The architecture is the product's",
    meaning="The chip is of another generation than the product's.",
    repeat=smi("name", "compute_cap"),
    amd="grep -H gfx_target_version /sys/class/kfd/kfd/topology/nodes/*/properties",
)
_mark_rule(
    CAPABILITY,
    "The compute capability is the product's",
    meaning="Programs compiled for the product may not run on this chip.",
    repeat=smi("compute_cap"),
    amd="grep -H gfx_target_version /sys/class/kfd/kfd/topology/nodes/*/properties",
)
_mark_rule(
    GFX,
    "The chip is the one that programs are compiled for",
    of="amd",
    meaning="Programs compiled for the product do not run on this chip.",
    repeat="rocminfo | grep -w gfx[0-9a-f]*",
    amd="grep -H gfx_target_version /sys/class/kfd/kfd/topology/nodes/*/properties",
)
_mark_rule(
    CORES,
    "The card has all its cores",
    vital=True,
    meaning="A cut-down or partitioned chip computes more slowly than the product that was rented.",
    repeat=_ask_nvml("nvmlDeviceGetNumGpuCores"),
    amd="",
)
_mark_rule(
    UNITS,
    "The card has all its compute units",
    of="amd",
    vital=True,
    meaning="A cut-down or partitioned chip computes more slowly than the product that was rented.",
    repeat="grep -HE 'simd_count|simd_per_cu' /sys/class/kfd/kfd/topology/nodes/*/properties",
    amd="",
)
_mark_rule(
    TOTAL,
    "The card has all its memory",
    required=True,
    passes="it is what the profile says, give or take the profile's tolerance for variants",
    meaning="Models that fit the product's memory do not fit this card, or the card is another variant.",
    repeat=smi("memory.total"),
    amd="cat /sys/class/drm/card*/device/mem_info_vram_total",
)
_mark_rule(
    BUS_WIDTH,
    "The memory bus is as wide as the product's",
    meaning="A narrower bus has less memory bandwidth in proportion.",
    repeat=_ask_nvml("nvmlDeviceGetMemoryBusWidth"),
    amd=amd_smi("static", "vram"),
)


@card_rule(
    "cards.identity",
    "All marks of the card belong to one product",
    reads="name, PCI id, architecture, compute capability, cores, memory, memory bus, the board's default "
    "power limit and the number of NVLinks, held against each other",
    passes="all marks that could be seen are the product's",
    fails="some are and some are not: the card is disguised, capped or cut down",
    cause=Cause.not_as_rented,
    owner=Owner.provider,
    required=True,
    meaning="The card calls itself one product and behaves as another: a changed name or VBIOS, a slice of "
    "a card, or a variant that is sold for less.",
    next_step="Send this report to the provider and ask for the product that was rented.",
    repeat=smi("name", "pci.device_id", "memory.total", "power.default_limit", "compute_cap"),
    on_amd=OnAmd(
        reads="name, PCI id, architecture, compiler's target, compute units, memory, memory bus and the board's "
        "default power limit, held against each other",
        repeat=amd_smi("static", "asic", "vram", "limit"),
    ),
)
def identity(look: Look) -> Outcome:
    seen: list[tuple[str, str, bool]] = []
    card, spec = look.card, look.spec
    for mark in MARKS:
        value = observe(card, mark.path, card.source).value
        if known(value) and getattr(spec, mark.key) is not None:
            seen.append((mark.name, _say(value, mark), mark.fits(value, spec, card)))
    watts = card.power.default_limit_watts
    if known(watts) and spec.power_limit_watts is not None:
        least = min(spec.power_limit_watts, spec.power_limit_min_watts or spec.power_limit_watts)
        seen.append(("default power limit", f"{watts:g} W", watts >= least - 1))
    links, shape = card.links, look.profile.links
    if known(links) and links and shape and shape.interconnect == "nvlink" and shape.links_per_card:
        seen.append(("NVLinks", str(len(links)), len(links) == shape.links_per_card))
    if len(seen) < 3:
        return Outcome(Status.unknown, detail=f"Only {len(seen)} marks of the card could be seen.")
    fitting = [name for name, _, fits in seen if fits]
    strange = [f"{name} {said}" for name, said, fits in seen if not fits]
    observed = "; ".join(f"{name} {said}" for name, said, _ in seen)
    words: dict[str, Any] = {
        "observed": observed,
        "expected": " or ".join(spec.names),
        "expected_from": spec.stated_by("names").witness,
    }
    if not strange:
        return passed(f"{len(seen)} marks agree.", **words)
    return fail(
        f"Disguised, capped or cut down: {', '.join(strange)} do not belong to {spec.names[0]}, while "
        f"{', '.join(fitting)} do."
        if fitting
        else f"Another product: {', '.join(strange)}.",
        **words,
    )


@rule(
    "cards.uniform",
    "The cards are alike",
    reads="name, PCI id, memory, cores, default power limit, VBIOS, board part and firmware of every card",
    door="nvml",
    passes="all cards agree; different VBIOS, firmware or board parts are stated",
    warns="the cards differ in name, PCI id, memory, cores or default power limit",
    cause=Cause.not_as_rented,
    owner=Owner.provider,
    meaning="Work spread over unlike cards goes at the pace of the least of them.",
    next_step="Ask the provider for a node with cards of one kind.",
    repeat=smi("name", "pci.device_id", "memory.total", "power.default_limit", "vbios_version"),
    on_amd=OnAmd(
        reads="name, PCI id, memory, compute units, default power limit, VBIOS, board part and firmware of every card",
        door="kfd",
        repeat=amd_smi("static", "asic", "vram", "ifwi", "limit"),
    ),
)
def uniform(node: Node, profile: Profile) -> Iterator[Outcome]:
    if isinstance(node.cards, Absent) and profile.count:
        yield unknown(NODE, node.cards)
        return
    if len(node.known_cards) < 2:
        yield skipped("Fewer than two cards are listed.")
        return
    hard = _differing(
        node.known_cards,
        (
            "identity.name",
            "identity.pci_id",
            "memory.total_bytes",
            "identity.cores",
            "identity.compute_units",
            "power.default_limit_watts",
        ),
    )
    soft = _differing(
        node.known_cards,
        (
            "identity.vbios",
            "identity.board_part",
            "identity.inforom_image",
            "identity.gsp_firmware",
            "identity.ifwi_version",
            "identity.firmware_bundle",
        ),
    )
    if isinstance(hard, Absent):
        yield unknown(NODE, hard)
    elif hard:
        yield warn(f"The cards differ: {'; '.join(hard)}.", observed="; ".join(hard), expected="alike")
    elif known(soft) and soft:
        yield passed(f"One product, in different issues: {'; '.join(soft)}.", observed="; ".join(soft))
    else:
        yield passed(f"{len(node.known_cards)} alike.", observed="alike", expected="alike")


def _differing(cards: Sequence[Card], paths: Sequence[str]) -> Maybe[list[str]]:
    """What differs between the cards at these paths; absent where no path was seen on two cards."""
    differing: list[str] = []
    last, compared = Absent(why=Why.not_asked), False
    for path in paths:
        values = [observe(card, path, card.source).value for card in cards]
        seen = [value for value in values if known(value)]
        last = next((value for value in values if isinstance(value, Absent)), last)
        compared = compared or len(seen) > 1
        counted = Counter(seen)
        if len(counted) > 1:
            name = path.rpartition(".")[2].replace("_", " ")
            differing.append(f"{name}: " + ", ".join(f"{n} × {value}" for value, n in counted.most_common()))
    return differing if compared else last


@card_rule(
    "cards.recorded",
    "The card can be told from others",
    reads="UUID, serial and board part number, VBIOS, InfoROM image, GSP firmware, slot on the baseboard "
    "(nvmlDeviceGetUUID, nvmlDeviceGetSerial …)",
    passes="the UUID or the serial number is known; they stand in the report",
    cause=Cause.not_visible,
    owner=Owner.provider,
    meaning="",
    next_step="",
    repeat=smi("uuid", "serial", "pci.bus_id", "vbios_version"),
    on_amd=OnAmd(
        reads="UUID, serial and board part number, VBIOS (IFWI), firmware bundle, slot on the baseboard",
        repeat=amd_smi("list"),
    ),
)
def recorded(look: Look) -> Outcome:
    card = look.card
    named = {
        "UUID": card.uuid,
        "serial": card.identity.serial,
        "board part": card.identity.board_part,
        "VBIOS": card.identity.vbios,
        "InfoROM": card.identity.inforom_image,
        "GSP firmware": card.identity.gsp_firmware,
        "IFWI": card.identity.ifwi_version,
        "firmware bundle": card.identity.firmware_bundle,
        "slot": card.identity.module_id,
    }
    if isinstance(card.uuid, Absent) and isinstance(card.identity.serial, Absent):
        return unknown(NODE, card.uuid)
    told = ", ".join(f"{name} {value}" for name, value in named.items() if known(value))
    return passed(f"{told}.", observed=told)

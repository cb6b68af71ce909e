"""Acceptance profiles: what a bundle promises, as data that a provider's engineer can read and sign.

A profile is a TOML file (`profiles/*.toml`, or one of the renter's own). `extends` names the profile it builds on;
tables are merged key by key, `figures` are appended and replaced where measure and `at` are equal.
"""

from __future__ import annotations

from datetime import date
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Kind = Literal["published", "measured", "derived"]
"""`derived`: scaled from a neighbour's figure; it may warn, and rejects only under half of typical."""


class Part(BaseModel):
    """Base of everything in a profile: immutable and closed to unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Sourced(Part):
    """A part whose statements have a witness."""

    source: str
    """Publication or measurement."""
    date: date
    kind: Kind = "published"

    @property
    def witness(self) -> str:
        """`source (kind, date)`, as findings show it."""
        return f"{self.source} ({self.kind}, {self.date.isoformat()})"


class CardSpec(Sourced):
    """What is true of every card of the bundle. A key left out is not asked."""

    vendor: Literal["nvidia", "amd"]
    names: tuple[str, ...]
    """Product names as the driver prints them, whole."""
    pci_ids: tuple[str, ...]
    """`10de:2335`; variants of the same product."""
    architecture: str
    """`hopper`."""
    compute_capability: str
    """`9.0`."""
    arch: str
    """The name compilers use, `sm_90`."""
    cores: int | None = None
    """CUDA cores."""
    memory_mib: int
    """Memory total as nvidia-smi prints it, MiB."""
    memory_tolerance_mib: int = 1024
    """How far a variant of the same product may stray, either way."""
    memory_bus_bits: int | None = None
    power_limit_watts: float | None = None
    """The limit the product ships with. A limit below it is a capped card."""
    power_limit_min_watts: float | None = None
    """The lowest limit still sold as this product, where providers may set it."""
    max_sm_clock_mhz: int | None = None
    max_memory_clock_mhz: int | None = None
    ecc: bool | None = None
    """Whether ECC must be on; None for products without it."""
    row_remap: bool = True
    """Whether the product remaps rows (Ampere and later data-centre cards)."""
    mig: bool = False
    """Whether the bundle is sold with MIG on."""
    pcie_generation: int | None = None
    pcie_widths: tuple[int, ...] = (16,)
    """Link widths that the bundle may come with."""


class CardsSpec(Part):
    count: int = Field(ge=0)


class LinksSpec(Sourced):
    """The shape of the links between the cards."""

    interconnect: Literal["nvlink", "nvlink_pairs", "pcie", "none"]
    """`nvlink`: every pair. `nvlink_pairs`: bridged pairs or groups. `pcie`: no NVLink. `none`: one card."""
    version: str | None = None
    """NVLink version as NVML prints it, `4.0`."""
    links_per_card: int | None = None
    link_speed_mb_per_s: int | None = None
    """Raw rate of a link one way, 10^6 bytes/s: 26562 for NVLink 4."""
    links_per_pair: int | None = None
    """NV# between two cards; None where only `interconnect` is promised."""
    bridged_group: int = 2
    """For `nvlink_pairs`: how many cards one bridge joins."""
    fabric: bool = False
    """Whether the cards join an NVSwitch fabric, so that the fabric manager must have finished."""
    peer_to_peer: bool = True
    """Whether cards must reach each other's memory (GeForce cards do not)."""


class HostSpec(Sourced):
    """Lower bounds for the machine around the cards; derived ones only warn."""

    cpus_per_card: float | None = None
    memory_per_card_memory: float | None = None
    """Host memory allowed, as a multiple of all cards' memory."""
    shm_bytes: int | None = None
    memlock_bytes: int | None = None
    open_files: int | None = None
    scratch_free_bytes: int | None = None
    cpus: int | None = None
    memory_bytes: int | None = None


class StackSpec(Sourced):
    driver_min: str | None = None
    """Oldest driver that serves the card, `570.86.15`."""
    cuda_min: str | None = None
    """Oldest CUDA that a framework must be built with for the card, `12.8`."""
    torch_required: bool = True


class At(Part):
    """The conditions a figure holds under."""

    size: str | None = None
    """Message or buffer size in the field's binary units, `8GiB`."""
    dtype: str | None = None
    ranks: int | None = None
    shape: str | None = None
    """`8192x8192x8192`."""


class Figure(Sourced):
    """What a measurement should give. Exactly one direction: `*_below` (more is better) or `*_above`."""

    measure: str
    """`all_reduce.busbw`, `host.h2d`, `pairs.one_way`, `hbm.copy`, `gemm.bfloat16`, …"""
    unit: str
    at: At = At()
    typical: float
    warn_below: float | None = None
    fail_below: float | None = None
    warn_above: float | None = None
    fail_above: float | None = None
    ceiling: float | None = None
    """The datasheet's figure: no threshold may lie above 1.1 × it."""
    note: str = ""


class Profile(Part):
    """A bundle, whole: what `extends` names is already merged in."""

    schema_version: Literal[1] = Field(alias="schema")
    name: str
    title: str
    extends: str | None = None
    abstract: bool = False
    """A card's file, to be extended: it has no count and accepts nothing by itself."""
    cards: CardsSpec | None = None
    card: CardSpec | None = None
    """None for a machine without a GPU."""
    links: LinksSpec | None = None
    host: HostSpec | None = None
    stack: StackSpec | None = None
    figures: tuple[Figure, ...] = ()
    required: tuple[str, ...] = ()
    """Finding ids that hold up the verdict when unknown, over the rule's own word."""
    wanted: tuple[str, ...] = ()
    """Finding ids that do not."""

    def requires(self, finding_id: str, default: bool) -> bool:
        """Whether an unknown `finding_id` holds up the verdict."""
        if finding_id in self.required:
            return True
        return default and finding_id not in self.wanted

    @property
    def count(self) -> int:
        """How many cards the bundle has."""
        return self.cards.count if self.cards else 0


class ProfileError(Exception):
    """A profile that cannot be used; the message names file, key and line."""

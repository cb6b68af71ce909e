"""What stands in a profile. Ranges are those of plausible units: `memory_mib = 141` is a slip, not a card."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from nodecheck.facts.card import Vendor

Kind = Literal["published", "measured", "derived"]
"""`derived`: scaled from a neighbour's figure; it may warn, and rejects only under half of typical."""

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=64)]
"""Safe as part of a file's name."""
PciId = Annotated[str, Field(pattern=r"^[0-9a-f]{4}:[0-9a-f]{4}$")]
FindingId = Annotated[str, Field(pattern=r"^[a-z0-9_]+(\.[a-z0-9_]+)+$")]
Version = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+){1,3}$")]
BinarySize = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,4}(B|KiB|MiB|GiB)$")]


class Part(BaseModel):
    """Base of everything in a profile: immutable, strict, and closed to unknown keys."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        allow_inf_nan=False,
        str_max_length=1000,
        populate_by_name=True,
        use_attribute_docstrings=True,
    )


class Sourced(Part):
    """A part whose statements have a witness."""

    source: str = Field(min_length=3)
    """Publication or measurement."""
    date: date
    """When it was published or measured; for a publication without a date, when it was read."""
    kind: Kind = "published"

    @property
    def witness(self) -> str:
        """`source (kind, date)`, as findings show it."""
        return f"{self.source} ({self.kind}, {self.date.isoformat()})"


class Section(Sourced):
    """A table that a file may override in part: each key keeps the witness of the file that states it."""

    inherited: dict[str, Sourced] = {}
    """The witness of every key that `source` does not speak for. Filled where files are merged, never written."""

    def stated_by(self, key: str) -> Sourced:
        """The witness of what `key` says. Raises AttributeError for a key that the table does not have."""
        if key not in type(self).model_fields:
            raise AttributeError(f"{type(self).__name__} has no {key}")
        return self.inherited.get(key, self)

    def statements(self) -> dict[str, dict[str, Any]]:
        """What the table says, by witness: key → value, without the keys left out."""
        told: dict[str, dict[str, Any]] = {}
        for key in type(self).model_fields:
            if key not in Section.model_fields and (value := getattr(self, key)) is not None:
                told.setdefault(self.stated_by(key).witness, {})[key] = value
        return told


class CardSpec(Section):
    """What is true of every card of the bundle. A key left out is not asked."""

    vendor: Vendor
    names: tuple[str, ...] = Field(min_length=1, max_length=32)
    """Product names as the driver prints them, whole."""
    pci_ids: tuple[PciId, ...] = Field(min_length=1, max_length=32)
    """`10de:2335`, lower case; variants of the same product."""
    architecture: str = Field(pattern=r"^[a-z0-9_]+$")
    """`hopper`."""
    compute_capability: str = Field(pattern=r"^[0-9]+\.[0-9]+$")
    """`9.0`."""
    arch: str = Field(pattern=r"^(sm_[0-9]+[a-z]?|gfx[0-9a-f]+)$")
    """The name compilers use, `sm_90`."""
    cores: int | None = Field(default=None, ge=64, le=1_000_000)
    """CUDA cores."""
    compute_units: int | None = Field(default=None, ge=8, le=10_000)
    """Compute units of one of AMD's devices: of the card, or of a die where each is a device."""
    memory_mib: int = Field(ge=1024, le=4_000_000)
    """Memory total as nvidia-smi or amd-smi prints it, MiB."""
    memory_tolerance_mib: int = Field(default=1024, ge=0, le=65_536)
    """How far a variant of the same product may stray, either way, MiB."""
    memory_shared: bool = False
    """Whether it is the machine's memory too (MI300A), of which the driver lets programs have a part by its setting."""
    memory_bus_bits: int | None = Field(default=None, ge=32, le=65_536)
    power_limit_watts: float | None = Field(default=None, ge=10, le=5000)
    """The limit the product ships with. A limit below it is a capped card."""
    power_limit_min_watts: float | None = Field(default=None, ge=10, le=5000)
    """The lowest limit still sold as this product, where providers may set it."""
    max_sm_clock_mhz: int | None = Field(default=None, ge=300, le=10_000)
    max_memory_clock_mhz: int | None = Field(default=None, ge=300, le=50_000)
    ecc: bool | None = None
    """Whether ECC must be on; None for products without it."""
    row_remap: bool = True
    """Whether the product remaps rows (Ampere and later data-centre cards)."""
    mig: bool = False
    """Whether the bundle is sold with MIG on."""
    compute_partition: str | None = Field(default=None, pattern=r"^[SDTQC]PX$")
    """How AMD's packages are split into devices: `SPX` is not at all. `cards.count` counts the devices."""
    memory_partition: str | None = Field(default=None, pattern=r"^NPS[1248]$")
    """How the memory of AMD's packages is split: `NPS1` is not at all."""
    pcie_generation: int | None = Field(default=None, ge=1, le=9)
    pcie_widths: tuple[Literal[1, 2, 4, 8, 16, 32], ...] = Field(default=(16,), min_length=1, max_length=6)
    """Link widths that the bundle may come with."""


class CardsSpec(Part):
    count: int = Field(ge=0, le=1024)


class LinksSpec(Section):
    """The shape of the links between the cards."""

    interconnect: Literal["nvlink", "nvlink_pairs", "xgmi", "pcie", "none"]
    """`nvlink`: every pair. `nvlink_pairs`: bridged pairs or groups. `xgmi`: AMD's, every pair of a hive. `pcie`:
    neither. `none`: one card."""
    version: str | None = Field(default=None, pattern=r"^[0-9]+\.[0-9]+$")
    """NVLink version as NVML prints it, `4.0`."""
    links_per_card: int | None = Field(default=None, ge=1, le=256)
    link_speed_mb_per_s: int | None = Field(default=None, ge=5000, le=1_000_000)
    """Raw rate of a link one way, 10^6 bytes/s: 26562 for NVLink 4."""
    links_per_pair: int | None = Field(default=None, ge=1, le=256)
    """NV# between two cards; None where only `interconnect` is promised."""
    bridged_group: int = Field(default=2, ge=2, le=64)
    """For `nvlink_pairs`: how many cards one bridge joins."""
    hive_cards: int | None = Field(default=None, ge=2, le=1024)
    """For `xgmi`: how many cards one hive joins; None: all of them."""
    direct: bool = True
    """For `xgmi`: whether each two cards of a hive have a link of their own, or reach each other through others."""
    fabric: bool = False
    """Whether the cards join an NVSwitch fabric, so that the fabric manager must have finished."""
    peer_to_peer: bool = True
    """Whether cards must reach each other's memory (GeForce cards do not; over PCIe the platform decides)."""


class HostSpec(Section):
    """Lower bounds for the machine around the cards; derived ones only warn. A key left out is not asked."""

    cpus_per_card: float | None = Field(default=None, gt=0, le=4096)
    """Logical CPUs allowed to this user, a card."""
    memory_per_card_memory: float | None = Field(default=None, gt=0, le=100)
    """Host memory allowed, as a multiple of all cards' memory."""
    shm_bytes: int | None = Field(default=None, ge=2**20, le=2**50)
    """Size of /dev/shm."""
    memlock_bytes: int | None = Field(default=None, ge=2**12, le=2**50)
    """Memory that may be locked. Only RDMA adapters need it: it says nothing on a node without them."""
    open_files: int | None = Field(default=None, ge=16, le=2**31)
    scratch_free_bytes: int | None = Field(default=None, ge=2**20, le=2**60)
    """Free on the largest writable local disk."""
    cpus: int | None = Field(default=None, ge=1, le=65_536)
    """Logical CPUs allowed to this user, in all."""
    memory_bytes: int | None = Field(default=None, ge=2**20, le=2**60)
    """Host memory allowed, in all."""


class StackSpec(Section):
    driver_min: Version | None = None
    """Oldest driver that serves the card, `570.86.15`."""
    cuda_min: Version | None = None
    """Oldest CUDA that a framework must be built with for the card, `12.8`."""
    rocm_min: Version | None = None
    """Oldest ROCm that a framework must be built with for the card, `6.0`."""
    torch_required: bool = True


class At(Part):
    """The conditions a figure holds under."""

    size: BinarySize | None = None
    """Message or buffer size in the field's binary units, `8GiB`."""
    dtype: str | None = Field(default=None, pattern=r"^[a-z0-9_]+$", max_length=32)
    """As torch names it, `bfloat16`."""
    ranks: int | None = Field(default=None, ge=2, le=1024)
    shape: str | None = Field(default=None, pattern=r"^[1-9][0-9]{0,6}x[1-9][0-9]{0,6}x[1-9][0-9]{0,6}$")
    """`8192x8192x8192`: m x n x k."""
    torch: str | None = Field(default=None, pattern=r"^[0-9]+\.[0-9]+(\+[a-z0-9.]+)?$", max_length=40)
    """`2.11+cu130`: the release of torch, and its build, that the figure is of; any other is not held against it.
    Products are cuBLAS's, and cuBLAS comes with torch. Left out: of any."""

    def __str__(self) -> str:
        torch = self.torch and f"torch {self.torch}"
        parts = (self.shape, self.size, self.dtype, self.ranks and f"{self.ranks} ranks", torch)
        return ", ".join(str(part) for part in parts if part)


@dataclass(frozen=True)
class Measure:
    """What a figure of this name is, and how a slip in it is known."""

    unit: str
    low: float
    high: float
    """Outside of `low` to `high` (in `unit`), no machine of today is plausible: a unit was mistaken."""
    at: tuple[str, ...]
    """Conditions without which the figure says nothing."""
    more_is_better: bool = True


_COLLECTIVE = Measure("GB/s", 0.5, 3000, ("size", "dtype", "ranks"))

MEASURES: dict[str, Measure] = {
    "all_reduce.busbw": _COLLECTIVE,
    "all_reduce.busbw_without_nvls": _COLLECTIVE,
    "all_gather.busbw": _COLLECTIVE,
    "reduce_scatter.busbw": _COLLECTIVE,
    "all_to_all.busbw": _COLLECTIVE,
    "broadcast.busbw": _COLLECTIVE,
    "host.h2d": Measure("GB/s", 1, 900, ("size",)),
    "host.d2h": Measure("GB/s", 1, 900, ("size",)),
    "host.bidirectional": Measure("GB/s", 1, 1800, ("size",)),
    "pairs.one_way": Measure("GB/s", 1, 3000, ("size",)),
    "pairs.two_way": Measure("GB/s", 1, 6000, ("size",)),
    "hbm.copy": Measure("GB/s", 50, 30_000, ("size",)),
    "hbm.triad": Measure("GB/s", 50, 30_000, ("size",)),
    "gemm.float64": Measure("TFLOP/s", 0.1, 1000, ("shape",)),
    "gemm.float32": Measure("TFLOP/s", 2, 2000, ("shape",)),
    "gemm.tfloat32": Measure("TFLOP/s", 5, 5000, ("shape",)),
    "gemm.float16": Measure("TFLOP/s", 10, 10_000, ("shape",)),
    "gemm.bfloat16": Measure("TFLOP/s", 10, 10_000, ("shape",)),
    "gemm.float8": Measure("TFLOP/s", 20, 20_000, ("shape",)),
    "launch.latency": Measure("us", 0.5, 1000, (), more_is_better=False),
}


class Figure(Sourced):
    """What a measurement should give. Exactly one direction: `*_below` (more is better) or `*_above`."""

    measure: str
    """`all_reduce.busbw`, `host.h2d`, `pairs.one_way`, `hbm.copy`, `gemm.bfloat16`, …"""
    unit: str
    at: At = At()
    typical: float = Field(gt=0)
    warn_below: float | None = Field(default=None, gt=0)
    fail_below: float | None = Field(default=None, gt=0)
    warn_above: float | None = Field(default=None, gt=0)
    fail_above: float | None = Field(default=None, gt=0)
    ceiling: float | None = Field(default=None, gt=0)
    """The datasheet's figure: neither typical nor a threshold may lie above 1.1 × it."""
    note: str = ""


SECTIONS: dict[str, type[Section]] = {
    "card": CardSpec,
    "links": LinksSpec,
    "host": HostSpec,
    "stack": StackSpec,
}
"""The tables that have witnesses and are merged key by key."""


class Profile(Part):
    """A bundle, whole: what `extends` names is already merged in."""

    schema_version: Literal[1] = Field(alias="schema")
    name: Name
    title: str = Field(min_length=1, max_length=200)
    extends: str | None = None
    abstract: bool = False
    """A card's or a board's file, to be extended: it has no count and accepts nothing by itself."""
    cards: CardsSpec | None = None
    card: CardSpec | None = None
    """None for a machine without a GPU."""
    links: LinksSpec | None = None
    host: HostSpec | None = None
    stack: StackSpec | None = None
    figures: tuple[Figure, ...] = Field(default=(), max_length=500)
    required: tuple[FindingId, ...] = Field(default=(), max_length=500)
    """Finding ids that hold up the verdict when unknown, over the rule's own word."""
    wanted: tuple[FindingId, ...] = Field(default=(), max_length=500)
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

    @property
    def vendor(self) -> Vendor | None:
        """Whose cards they are; None where there are none."""
        return self.card.vendor if self.card else None


NO_PROFILE = Profile(
    schema_version=1, name="none", title="No profile: nothing is promised, nothing is accepted"
)
"""Stands in where none was named and none could be suggested."""


class ProfileError(Exception):
    """A profile that cannot be used.

    `str()` is one sentence that names file, key and line; `problems` has every sentence.
    """

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        more = len(problems) - 1
        tail = f" (and {more} more: `nodecheck profiles validate FILE` shows all)" if more else ""
        super().__init__(problems[0] + tail)

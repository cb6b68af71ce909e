"""What was measured under load: rows of figures, checks of correctness, and how each stage went.

Bandwidths are GB/s = 10^9 bytes/s, rates TFLOP/s = 10^12, latencies microseconds; sizes are bytes. Definitions
(what moves, formula, repetitions) stand in `docs/measurements.md`.
"""

from __future__ import annotations

from typing import Literal

from nodecheck.facts.base import Fact, Maybe, seen

StageName = Literal[
    "context", "memory", "hbm", "gemm", "agreement", "operators", "host", "pairs", "collectives", "storage"
]

MOST_TRIES = 3
"""How often a figure is measured in all, where it lies within its own spread of a limit."""


class Conditions(Fact):
    """What a figure was measured at; what does not apply is None."""

    size_bytes: int | None = None
    """Buffer, message or file size."""
    dtype: str | None = None
    """torch's name: `bfloat16`, `float8_e4m3fn`; `tfloat32` for float32 products in TF32."""
    shape: str | None = None
    """`8192x8192x8192`, m × n × k."""
    ranks: int | None = None
    in_place: bool | None = None
    together: bool = False
    """All cards at once; else each alone."""
    sustained: bool = False
    """After seconds of load; else a short burst with pauses."""
    pinned: bool | None = None


class Load(Fact):
    """The card while it was measured, sampled from outside by NVML, or of AMD's cards from sysfs: medians over the
    samples, and extremes."""

    samples: int
    sm_mhz: Maybe[int] = seen(
        "SM clock, on AMD's cards sclk",
        nvml="nvmlDeviceGetClockInfo, SM",
        sysfs="pp_dpm_sclk, the line with a star; else hwmon freq1_input",
    )
    power_watts: Maybe[float] = seen(
        "draw", nvml="nvmlDeviceGetPowerUsage", sysfs="hwmon power1_average, else power1_input"
    )
    celsius: Maybe[int] = seen(
        "highest temperature",
        nvml="nvmlDeviceGetTemperatureV",
        sysfs="hwmon temp2_input (the hottest spot), else temp1_input",
    )
    event_reasons: Maybe[tuple[str, ...]] = seen(
        "every reason seen, as `Clocks.event_reasons`; no file of sysfs tells",
        nvml="nvmlDeviceGetCurrentClocksEventReasons",
    )
    pcie_generation: Maybe[int] = seen(
        "highest", nvml="nvmlDeviceGetCurrPcieLinkGeneration", sysfs="current_link_speed"
    )
    pcie_width: Maybe[int] = seen(
        "highest", nvml="nvmlDeviceGetCurrPcieLinkWidth", sysfs="current_link_width"
    )


class Figure(Fact):
    """One measured figure: the median over repetitions, with its spread."""

    measure: str
    """As profiles name it: `hbm.copy`, `gemm.bfloat16`, `all_reduce.busbw`, `pairs.one_way`, `launch.latency`."""
    stage: StageName
    subject: Literal["card", "pair", "group", "disk"]
    cards: tuple[str, ...]
    """`Card.key`s: one; two for a pair, from and to; all of a group in the order of their ranks. Empty for a disk."""
    name: str = ""
    """Of a group (`all`, `first half`, `NUMA node 0`) or a disk (its folder)."""
    at: Conditions = Conditions()
    unit: str
    """`GB/s`, `TFLOP/s`, `us`, `s`, `bytes`, `IOPS`."""
    median: float
    p5: float
    p95: float
    repetitions: int
    tries: tuple[float, ...] = ()
    """Medians of every time it was measured, in order, where it was measured more than once; the last counts."""
    load: Maybe[Load] = seen("the card meanwhile", nvml="sampled", sysfs="sampled")


class Check(Fact):
    """Whether data came back right: every byte or element was compared."""

    check: str
    """`memory.pattern`, `agreement.self`, `agreement.siblings`, `operators.conv2d`, `pairs.data`, `all_reduce.data`,
    `context.kernel`."""
    stage: StageName
    subject: Literal["card", "pair", "group"]
    cards: tuple[str, ...]
    name: str = ""
    at: Conditions = Conditions()
    compared: int
    """Bytes (memory) or elements; 1 of an operator that raised."""
    wrong: int
    covered: float | None = None
    """Share of the card's memory, for `memory.pattern`."""
    examples: tuple[str, ...] = ()
    """The first errors: address or index, expected, read, rank."""


class Transport(Fact):
    """How NCCL, RCCL or gloo carried a group's data, from its own log."""

    cards: tuple[str, ...]
    name: str
    """Of the group."""
    paths: tuple[str, ...]
    """`P2P/CUMEM`, `P2P/IPC`, `SHM`, `NET/Socket`, `NET/IB`, `NVLS`, `gloo/TCP`, …; each that the log names."""
    algorithms: tuple[tuple[str, str], ...] = ()
    """(collective and size, algorithm/protocol): (`all_reduce 8589934592`, `RING/SIMPLE`)."""
    library: str = ""
    """`NCCL 2.28.9`."""
    notes: tuple[str, ...] = ()
    """What else the log says of the way: why NVLS is not used, and settings of the renter's that NCCL obeyed."""


class StageRun(Fact):
    """How a stage went on one card, or on the group."""

    stage: StageName
    cards: tuple[str, ...]
    status: Literal["done", "failed", "timed_out", "skipped"]
    detail: str = ""
    """Why it did not run to its end: the error, the signal, the last lines of the log, who uses the card."""
    stacks: tuple[str, ...] = ()
    """Of every rank, where it hung."""
    seconds: float = 0.0


class Measurements(Fact):
    """Everything measured in one run."""

    stages: tuple[StageRun, ...] = ()
    figures: tuple[Figure, ...] = ()
    checks: tuple[Check, ...] = ()
    transports: tuple[Transport, ...] = ()
    accesses: tuple[tuple[str, str, bool], ...] = ()
    """(From, to, whether torch says that the one card can reach into the other's memory), as `Card.key`s."""
    bindings: tuple[tuple[str, str], ...] = ()
    """(`Card.key`, CPUs the worker was bound to, or `as found`)."""
    dropped: tuple[str, ...] = ()
    """Stages left out for the time budget, in the order in which they were dropped."""
    seconds: float = 0.0

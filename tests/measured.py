"""Measurements of healthy nodes: the profile's typical figures, with the spreads that six processes on an H200 had."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import permutations
from random import Random

from nodecheck.facts import Absent, Why
from nodecheck.facts.measurements import (
    Check,
    Conditions,
    Figure,
    Load,
    Measurements,
    StageName,
    StageRun,
    Transport,
)
from nodecheck.profile import Figure as Promised
from nodecheck.profile import Profile

MIB = 1024**2
GIB = 1024**3

SPREAD = {
    "hbm": 0.0002,
    "gemm": 0.0015,
    "gemm.float8": 0.0013,
    "host.h2d": 0.0008,
    "host.d2h": 0.0007,
    "host.bidirectional": 0.011,
    "launch.latency": 0.12,
    "pairs": 0.002,
    "latency": 0.05,
    "busbw": 0.004,
    "storage": 0.08,
}
"""Standard deviation from one process to the next, as a share: the range of six fresh processes on one H200
(2026-11-30), divided by 2.53, which is the mean range of six normal values. Pairs, collectives, storage and latencies
other than `launch.latency` could not be measured there: theirs are assumed."""

SHAPES = ("4096x4096x4096", "8192x8192x8192", "2048x2048x13312")
_OF_BFLOAT16 = {
    "bfloat16": 1.0,
    "float16": 1.0,
    "tfloat32": 0.5,
    "float32": 0.07,
    "float64": 0.08,
    "float8": 1.85,
}
CURVE = tuple(8 * 8**step for step in range(11))
"""8 B to 8 GiB in steps of 8."""

Vary = Callable[[str, tuple[str, ...]], float]
"""The factor between what was measured and what is typical, of a measure and the cards it belongs to."""


def by_spread(random: Random) -> Vary:
    """Normal noise with the spreads above."""

    def vary(measure: str, cards: tuple[str, ...]) -> float:
        return max(0.1, random.gauss(1.0, spread(measure)))

    return vary


@cache
def spread(measure: str) -> float:
    """Of the longest key that the measure begins or ends with."""
    fits = [key for key in SPREAD if measure.startswith(key) or measure.endswith(key)]
    return SPREAD[max(fits, key=len)] if fits else 0.0


def _steady(measure: str, cards: tuple[str, ...]) -> float:
    """The same noise each time, cut at two standard deviations."""
    noise = Random("/".join((measure, *cards))).gauss(0.0, 1.0)
    return 1.0 + spread(measure) * min(max(noise, -2.0), 2.0)


def measurements(
    profile: Profile, cards: tuple[str, ...], *, level: str = "standard", vary: Vary = _steady
) -> Measurements:
    """What a node that is all that `profile` promises gives; `cards` are the keys, none for a machine without."""
    return _Builder(profile, cards, level, vary).build()


class _Builder:
    def __init__(self, profile: Profile, cards: tuple[str, ...], level: str, vary: Vary) -> None:
        self.profile = profile
        self.on_cpu = not cards
        self.cards = cards or ("cpu0", "cpu1")
        self.level = level
        self.vary = vary

    def build(self) -> Measurements:
        several = len(self.cards) > 1
        stages: list[StageName] = ["context", "memory", "hbm", "gemm", "agreement", "operators", "host"]
        runs = [
            StageRun(stage=stage, cards=(card,), status="done", seconds=0.4)
            for stage in stages
            if not (self.on_cpu and stage == "host")
            for card in self.cards
        ]
        if several:
            if not self.on_cpu:
                runs.append(StageRun(stage="pairs", cards=self.cards, status="done", seconds=2.1))
            runs.append(StageRun(stage="collectives", cards=self.cards, status="done", seconds=9.6))
        runs.append(StageRun(stage="storage", cards=(), status="done", seconds=1.2))
        figures = [*self.of_cards(), *(self.of_pairs() if several and not self.on_cpu else ())]
        return Measurements(
            stages=tuple(runs),
            figures=(*figures, *(self.of_groups() if several else ()), *self.of_disks()),
            checks=tuple(self.checks()),
            transports=tuple(self.transports()) if several else (),
            bindings=tuple((card, "as found" if self.on_cpu else "0-31") for card in self.cards),
            seconds=sum(run.seconds for run in runs),
        )

    def typical(self, measure: str, **at: object) -> Promised | None:
        for figure in self.profile.figures:
            if figure.measure == measure and all(
                getattr(figure.at, key) in (None, value) for key, value in at.items()
            ):
                return figure
        return None

    def figure(
        self,
        measure: str,
        stage: StageName,
        cards: tuple[str, ...],
        typical: float,
        at: Conditions | None = None,
        *,
        unit: str = "GB/s",
        name: str = "",
        load: Load | None = None,
    ) -> Figure:
        value = typical * self.vary(measure, cards)
        subject = {"pairs": "pair", "collectives": "group", "storage": "disk"}.get(stage, "card")
        return Figure(
            measure=measure,
            stage=stage,
            subject=subject,  # type: ignore[arg-type]
            cards=cards,
            name=name,
            at=at or Conditions(),
            unit=unit,
            median=round(value, 6),
            p5=round(value * 0.999, 6),
            p95=round(value * 1.001, 6),
            repetitions=20,
            **({"load": load} if load else {}),
        )

    def load(self, sm_mhz: int, watts: float, reasons: tuple[str, ...] = ()) -> Load | None:
        spec = self.profile.card
        if spec is None:
            return None
        return Load(
            samples=9,
            sm_mhz=min(sm_mhz, spec.max_sm_clock_mhz or sm_mhz),
            power_watts=watts * (spec.power_limit_watts or 300),
            celsius=54,
            event_reasons=Absent(why=Why.not_supported, detail="no sample tells")
            if self.profile.vendor == "amd"
            else reasons,
            pcie_generation=spec.pcie_generation or 4,
            pcie_width=max(spec.pcie_widths),
        )

    def of_cards(self) -> Iterator[Figure]:
        copy = self.typical("hbm.copy")
        hbm = copy.typical if copy else 12.0
        product = self.typical("gemm.bfloat16")
        bfloat16 = product.typical if product else 0.2
        hbm_size = 256 * MIB if self.on_cpu else 4 * GIB
        busy, calm = self.load(1830, 0.9, ("sw_power_cap",)), self.load(1980, 0.4)
        for card in self.cards:
            for measure, share in (
                ("copy", 1.0),
                ("copy_payload", 0.5),
                ("read", 1.02),
                ("write", 0.98),
                ("triad", 1.013),
            ):
                yield self.figure(
                    f"hbm.{measure}",
                    "hbm",
                    (card,),
                    hbm * share,
                    Conditions(size_bytes=hbm_size),
                    load=calm,
                )
            for dtype, share in _OF_BFLOAT16.items():
                if self.on_cpu and dtype in ("float16", "tfloat32", "float8"):
                    continue
                for shape in SHAPES if not self.on_cpu else ("512x512x512",):
                    exact = self.typical(f"gemm.{dtype}", shape=shape)
                    best = 1.03 if shape == SHAPES[2] else 1.0
                    yield self.figure(
                        f"gemm.{dtype}",
                        "gemm",
                        (card,),
                        exact.typical if exact else bfloat16 * share * best,
                        Conditions(shape=shape),
                        unit="TFLOP/s",
                        load=busy,
                    )
            if self.level == "full" and not self.on_cpu:
                yield self.figure(
                    "gemm.bfloat16",
                    "gemm",
                    (card,),
                    bfloat16 * 0.82,
                    Conditions(shape=SHAPES[1], sustained=True),
                    unit="TFLOP/s",
                    load=self.load(1440, 0.99, ("sw_power_cap",)),
                )
            if not self.on_cpu:
                yield from self.of_host(card, calm)

    def of_host(self, card: str, load: Load | None) -> Iterator[Figure]:
        big = Conditions(size_bytes=512 * MIB, pinned=True)
        to_card = self.typical("host.h2d")
        to_host = self.typical("host.d2h")
        both = self.typical("host.bidirectional")
        h2d, d2h = (to_card.typical if to_card else 25.0), (to_host.typical if to_host else 25.0)
        for measure, typical in (
            ("host.h2d", h2d),
            ("host.d2h", d2h),
            ("host.bidirectional", both.typical if both else 1.8 * h2d),
        ):
            yield self.figure(measure, "host", (card,), typical, big, load=load)
            if len(self.cards) > 1:
                together = big.model_copy(update={"together": True})
                yield self.figure(measure, "host", (card,), typical * 0.93, together, load=load)
        pageable = big.model_copy(update={"pinned": False})
        yield self.figure("host.h2d", "host", (card,), h2d * 0.3, pageable)
        yield self.figure("host.d2h", "host", (card,), d2h * 0.3, pageable)
        small = Conditions(size_bytes=4096, pinned=True)
        yield self.figure("host.h2d_latency", "host", (card,), 9.0, small, unit="us")
        launch = self.typical("launch.latency")
        yield self.figure(
            "launch.latency", "host", (card,), launch.typical if launch else 7.5, Conditions(), unit="us"
        )

    def joined(self, one: str, other: str) -> bool:
        links = self.profile.links
        if links is not None and links.interconnect == "xgmi":
            size = links.hive_cards or len(self.cards)
            return self.cards.index(one) // size == self.cards.index(other) // size
        if links is None or links.interconnect not in ("nvlink", "nvlink_pairs"):
            return False
        if links.interconnect == "nvlink":
            return True
        i, j = self.cards.index(one), self.cards.index(other)
        return i // links.bridged_group == j // links.bridged_group

    def of_pairs(self) -> Iterator[Figure]:
        links = self.profile.links
        one_way, two_way = self.typical("pairs.one_way"), self.typical("pairs.two_way")
        raw = (links.links_per_pair or links.links_per_card or 0) if links else 0
        rate = raw * ((links.link_speed_mb_per_s or 26562) if links else 0) / 1000 * 0.83
        size = Conditions(size_bytes=512 * MIB)
        for pair in permutations(self.cards, 2):
            fast = one_way.typical if one_way else rate or 20.0
            typical = fast if self.joined(*pair) else 20.0
            yield self.figure("pairs.one_way", "pairs", pair, typical, size)
            yield self.figure(
                "pairs.two_way",
                "pairs",
                pair,
                two_way.typical if two_way and self.joined(*pair) else 1.95 * typical,
                size,
            )
            yield self.figure("pairs.latency", "pairs", pair, 4.0, Conditions(size_bytes=8), unit="us")

    def groups(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        yield "all", self.cards
        if len(self.cards) >= 4:
            half = len(self.cards) // 2
            yield "first half", self.cards[:half]
            yield "second half", self.cards[half:]

    def of_groups(self) -> Iterator[Figure]:
        largest = self.typical("all_reduce.busbw")
        top = largest.typical if largest else 1.0
        sizes = tuple(size for size in CURVE if size <= (16 * MIB if self.on_cpu else 8 * GIB))
        for name, cards in self.groups():
            for dtype in ("bfloat16", "float32"):
                for size in sizes if name == "all" else sizes[-1:]:
                    at = Conditions(size_bytes=size, dtype=dtype, ranks=len(cards), in_place=True)
                    exact = self.typical(
                        "all_reduce.busbw", size=f"{size // GIB}GiB", dtype="bfloat16", ranks=len(cards)
                    )
                    typical = exact.typical if exact else top * size / (size + 32 * MIB)
                    if name != "all":
                        typical = min(typical, top * 0.77)  # a half has four cards at most: no NVLS
                    yield self.figure("all_reduce.busbw", "collectives", cards, typical, at, name=name)
                    time = max(15.0, size / typical / 1000)
                    yield self.figure(
                        "all_reduce.latency", "collectives", cards, time, at, unit="us", name=name
                    )
            for collective in ("all_gather", "reduce_scatter", "all_to_all", "broadcast"):
                for size in sizes[-4::3]:
                    at = Conditions(size_bytes=size, dtype="bfloat16", ranks=len(cards), in_place=False)
                    exact = self.typical(f"{collective}.busbw", dtype="bfloat16", ranks=len(cards))
                    typical = (exact.typical if exact else 0.77 * top) * size / (size + 8 * MIB)
                    yield self.figure(f"{collective}.busbw", "collectives", cards, typical, at, name=name)

    def of_disks(self) -> Iterator[Figure]:
        for measure, typical in (("storage.sequential_write", 2.4), ("storage.sequential_read", 5.1)):
            at = Conditions(size_bytes=GIB)
            yield self.figure(measure, "storage", (), typical, at, name="/tmp")
        at = Conditions(size_bytes=4096)
        yield self.figure("storage.random_read", "storage", (), 120_000.0, at, unit="IOPS", name="/tmp")

    def checks(self) -> Iterator[Check]:
        for card in self.cards:
            total = 256 * MIB
            if self.profile.card:
                total = self.profile.card.memory_mib * MIB - int(1.6 * GIB)
            whole = self.profile.card.memory_mib * MIB if self.profile.card else total
            one = {"subject": "card", "cards": (card,)}
            yield Check(check="context.kernel", stage="context", compared=MIB, wrong=0, **one)  # type: ignore[arg-type]
            if not self.on_cpu:
                yield Check(check="host.data", stage="host", compared=128 * MIB, wrong=0, **one)  # type: ignore[arg-type]
            yield Check(
                check="memory.pattern",
                stage="memory",
                compared=2 * total,
                wrong=0,
                covered=round(total / whole, 4),
                **one,  # type: ignore[arg-type]
            )
            for check in ("agreement.self", "agreement.siblings"):
                if check == "agreement.self" or len(self.cards) > 1:
                    yield Check(check=check, stage="agreement", compared=64 * MIB, wrong=0, **one)  # type: ignore[arg-type]
            for name, dtype in (("linear", "float32"), ("linear", "bfloat16"), ("conv2d", "bfloat16")):
                at = Conditions(dtype=dtype)
                yield Check(
                    check=f"operators.{name}",
                    stage="operators",
                    at=at,
                    compared=8192,
                    wrong=0,
                    **one,  # type: ignore[arg-type]
                )
        if len(self.cards) < 2:
            return
        for pair in permutations(self.cards, 2) if not self.on_cpu else ():
            yield Check(
                check="pairs.data", stage="pairs", subject="pair", cards=pair, compared=512 * MIB, wrong=0
            )
        for name, cards in self.groups():
            for collective in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"):
                yield Check(
                    check=f"{collective}.data",
                    stage="collectives",
                    subject="group",
                    cards=cards,
                    name=name,
                    at=Conditions(size_bytes=16 * MIB, dtype="bfloat16", ranks=len(cards)),
                    compared=8 * MIB * len(cards),
                    wrong=0,
                )

    def transports(self) -> Iterator[Transport]:
        links = self.profile.links
        for name, cards in self.groups():
            nvls = bool(links and links.fabric and links.version not in (None, "3.0") and len(cards) > 4)
            if self.on_cpu:
                paths: tuple[str, ...] = ("gloo/TCP",)
            elif self.profile.vendor == "amd" and self.joined(cards[0], cards[-1]):
                paths = ("P2P/IPC",)
            elif self.joined(cards[0], cards[-1]):
                paths = ("P2P/CUMEM", "NVLS") if nvls else ("P2P/CUMEM",)
            else:
                paths = ("P2P/CUMEM", "SHM/direct") if links and links.peer_to_peer else ("SHM/direct",)
            yield Transport(
                cards=cards,
                name=name,
                paths=paths,
                algorithms=()
                if self.on_cpu
                else (("all_reduce 8589934592", "NVLS/SIMPLE" if nvls else "RING/SIMPLE"),),
                library="gloo"
                if self.on_cpu
                else "RCCL 2.27.7"
                if self.profile.vendor == "amd"
                else "NCCL 2.28.9",
            )

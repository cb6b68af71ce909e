"""What is asked of which workers, in which order, and how long each may take."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations, permutations
from typing import get_args

from nodecheck.facts import Level, Node, known, or_none
from nodecheck.facts.measurements import StageName
from nodecheck.measure.targets import Group, Target, groups
from nodecheck.sources.channel import Json

STAGES: tuple[StageName, ...] = get_args(StageName)
"""In the order in which they run: nothing that needs a sound memory comes before `memory`."""

DROPS = (
    "storage",
    "agreement",
    "collectives of sub-groups",
    "pairs two-way",
    "host together",
    "pairs",
    "memory",
    "host",
    "collectives",
    "gemm",
    "hbm",
)
"""What a time budget leaves out, first to last: what profiles promise least about goes first."""

SUSTAINED_SECONDS = 30.0
START_SECONDS = 8.0
"""`import torch` and a context; the first import of a boot takes 6 s alone."""
START_DEADLINE_SECONDS = 180.0
"""From a network disk the import has been seen to take a minute."""

_PATIENCE_SECONDS = 20.0
_PATIENCE = 10.0
"""A deadline is this much, and this many times what the step takes where all is well: a slow card is to be
measured, only one that hangs is to be given up."""


@dataclass(frozen=True)
class Step:
    """One request to workers."""

    stage: StageName
    part: str
    """What of the stage it is, as `DROPS` names it."""
    cards: tuple[str, ...]
    arguments: Mapping[str, Json] = field(default_factory=dict)
    typical_seconds: float = 1.0
    """Where all is well."""
    load_seconds: float = 0.0
    """How long load is held up on purpose, within `typical_seconds`."""
    group: str = ""
    """Of collectives: the group's name."""
    peer: str = ""
    """Of a pair: the other card."""
    place: str = ""
    """Of storage: the folder."""

    @property
    def deadline_seconds(self) -> float:
        work = self.typical_seconds - self.load_seconds
        return _PATIENCE_SECONDS + round(_PATIENCE * work) + 2 * self.load_seconds

    @property
    def name(self) -> str:
        """Of the group or the disk that the step measures; empty for cards and pairs."""
        return self.group or self.place

    @property
    def subject(self) -> tuple[str, ...]:
        """The cards that a `StageRun` of this step names."""
        if self.place:
            return ()
        return (*self.cards, self.peer) if self.peer else self.cards


def plan(
    node: Node,
    loaded: tuple[Target, ...],
    level: Level,
    stages: Collection[StageName] = STAGES,
) -> tuple[Step, ...]:
    """Every step for the targets that may be loaded, in the order in which they are to run."""
    if not loaded:
        return ()
    makers = {
        "context": _context,
        "memory": _memory,
        "hbm": _hbm,
        "gemm": _gemm,
        "agreement": _agreement,
        "host": _host,
        "pairs": _pairs,
        "collectives": _collectives,
    }
    steps: list[Step] = []
    for stage in STAGES:
        if stage not in stages:
            continue
        if stage == "storage":
            steps += _storage(node, loaded, level)
        else:
            steps += makers[stage](loaded, level)
    return tuple(steps)


def on_cpu(loaded: Iterable[Target]) -> bool:
    return any(target.model == "cpu" for target in loaded)


def _keys(loaded: Iterable[Target]) -> tuple[str, ...]:
    return tuple(target.key for target in loaded)


def _context(loaded: tuple[Target, ...], _level: Level) -> Iterator[Step]:
    yield Step("context", "context", _keys(loaded))


def _memory(loaded: tuple[Target, ...], level: Level) -> Iterator[Step]:
    # An H200 writes and reads back 128 GiB twice in 0.5 s; an L40S has a fifth of that bandwidth.
    largest = max((target.memory_bytes or 0 for target in loaded), default=0)
    seconds = 3.0 if on_cpu(loaded) else 0.5 + largest / 150e9
    yield Step("memory", "memory", _keys(loaded), {"level": level}, seconds * (4 if level == "full" else 1))


def _hbm(loaded: tuple[Target, ...], level: Level) -> Iterator[Step]:
    yield Step("hbm", "hbm", _keys(loaded), {"level": level}, 3.0 if on_cpu(loaded) else 0.5)


def _gemm(loaded: tuple[Target, ...], level: Level) -> Iterator[Step]:
    sustained = SUSTAINED_SECONDS if level == "full" and not on_cpu(loaded) else 0.0
    yield Step(
        "gemm",
        "gemm",
        _keys(loaded),
        {"level": level, "sustained_seconds": sustained},
        3.0 + sustained,
        sustained,
    )


def _agreement(loaded: tuple[Target, ...], level: Level) -> Iterator[Step]:
    yield Step("agreement", "agreement", _keys(loaded), {"level": level}, 1.5)


def _host(loaded: tuple[Target, ...], level: Level) -> Iterator[Step]:
    """Each alone, since that is what profiles state; then all at once, which shows what they share."""
    if on_cpu(loaded):
        return
    for key in _keys(loaded):
        yield Step("host", "host", (key,), {"level": level, "together": False}, 1.0)
    if len(loaded) > 1:
        yield Step("host", "host together", _keys(loaded), {"level": level, "together": True}, 1.5)


def _pairs(loaded: tuple[Target, ...], level: Level) -> Iterator[Step]:
    """One pair at a time, so that no two share a link; what has no direction is asked of one of the two."""
    if on_cpu(loaded):
        return
    keys = _keys(loaded)
    for own, peer in permutations(keys, 2):
        yield Step(
            "pairs", "pairs", (own,), {"level": level, "peer": peer, "measures": ["one_way"]}, 0.15, peer=peer
        )
    for own, peer in combinations(keys, 2):
        yield Step(
            "pairs",
            "pairs two-way",
            (own,),
            {"level": level, "peer": peer, "measures": ["two_way", "latency"]},
            0.2,
            peer=peer,
        )


def _collectives(loaded: tuple[Target, ...], level: Level) -> Iterator[Step]:
    for group in groups(loaded):
        whole = group.name == "all"
        part = "collectives" if whole else "collectives of sub-groups"
        yield _collective(group, part, level, 10.0 if whole else 3.0)


def _collective(group: Group, part: str, level: Level, seconds: float) -> Step:
    return Step(
        "collectives",
        part,
        group.cards,
        {
            "level": level,
            "group": group.name,
            "world": len(group.cards),
            "each": {card: {"rank": rank} for rank, card in enumerate(group.cards)},
        },
        seconds,
        group=group.name,
    )


REPORT_PLACE = "report"
"""Stands for the report's folder in a request, so that a recording does not depend on where reports go."""


def _storage(node: Node, loaded: tuple[Target, ...], level: Level) -> Iterator[Step]:
    """The report's disk and the scratch disk; one worker writes, as it needs no card."""
    seconds = 20.0 if level == "full" else 4.0
    for place in dict.fromkeys((REPORT_PLACE, *_scratch(node))):
        yield Step(
            "storage", "storage", (loaded[0].key,), {"level": level, "place": place}, seconds, place=place
        )


def _scratch(node: Node) -> Iterator[str]:
    """The largest local disk."""
    if known(node.host) and known(node.host.disks):
        local = [disk for disk in node.host.disks if disk.kind == "local" and not disk.read_only]
        if local:
            yield max(local, key=lambda disk: or_none(disk.free_bytes) or 0).mount


def fit(steps: Iterable[Step], seconds: float) -> tuple[tuple[Step, ...], tuple[str, ...]]:
    """The steps that fit into `seconds` where all is well, and the parts left out for that, in order."""
    kept = list(steps)
    dropped: list[str] = []
    for part in DROPS:
        if sum(step.typical_seconds for step in kept) <= seconds:
            break
        if any(step.part == part for step in kept):
            kept = [step for step in kept if step.part != part]
            dropped.append(part)
    return tuple(kept), tuple(dropped)

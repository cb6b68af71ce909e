"""What is asked of which workers, in which order, and how long each may take."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations, permutations
from typing import get_args

from nodecheck.facts import Level, Node, known, or_none
from nodecheck.facts.measurements import Figure, StageName
from nodecheck.measure.targets import Target, cpus, groups
from nodecheck.sources.channel import Json

STAGES: tuple[StageName, ...] = get_args(StageName)
"""In the order in which they are shown."""

ORDER: tuple[StageName, ...] = (
    "context",
    "hbm",
    "memory",
    "gemm",
    "agreement",
    "operators",
    "host",
    "pairs",
    "collectives",
    "storage",
)
"""In which they run: nothing that needs a sound memory comes before `memory`. `hbm` does: once `memory` has given
everything back the driver wipes it, and for some 0.2 s that takes a tenth of the memory's bandwidth (two H200s: copies
at 3830 GB/s instead of 4265). `gemm`, which follows, meanwhile prepares its factors."""

BESIDE: dict[StageName, StageName] = {"storage": "gemm"}
"""Stages that run while another does: `gemm` rests most of its time, and asks little of the host and its memory."""
SPARE_CPUS = 4
"""CPUs beside one a card, without which nothing runs beside anything: `storage` has a thread on several."""

DROPS = (
    "storage",
    "operators",
    "agreement",
    "collectives of sub-groups",
    "transport",
    "gemm sustained",
    "pairs two-way",
    "host together",
    "pairs",
    "memory",
    "host",
    "collectives",
    "gemm",
    "hbm",
)
"""What a time budget leaves out, first to last: what profiles promise least about goes first. A stage that runs beside
another costs nothing, and stays."""

SUSTAINED_SECONDS = 30.0
START_SECONDS = 8.0
"""`import torch` and a context; the first import of a boot takes 6 s alone."""

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
    pairs: tuple[tuple[str, str], ...] = ()
    """Of pairs: which, from and to."""
    beside: StageName | None = None
    """The stage while which it runs, where that one runs."""

    @property
    def request(self) -> str:
        """What the workers know it as."""
        return "transport" if self.part == "transport" else self.stage

    @property
    def deadline_seconds(self) -> float:
        work = self.typical_seconds - self.load_seconds
        return _PATIENCE_SECONDS + round(_PATIENCE * work) + 2 * self.load_seconds

    @property
    def subject(self) -> tuple[str, ...]:
        """The cards that a `StageRun` of this step names."""
        if self.stage == "storage":
            return ()
        if self.pairs:
            return tuple(dict.fromkeys(card for pair in self.pairs for card in pair))
        return self.cards


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
        "operators": _operators,
        "host": _host,
        "pairs": _pairs,
        "collectives": _collectives,
    }
    steps: list[Step] = []
    for stage in ORDER:
        if stage not in stages or not applies(stage, loaded):
            continue
        if stage == "storage":
            steps += _storage(node, loaded, level)
        else:
            steps += makers[stage](loaded, level)
    return tuple(steps)


def on_cpu(loaded: Iterable[Target]) -> bool:
    return any(target.model == "cpu" for target in loaded)


def applies(stage: StageName, some: Collection[Target]) -> bool:
    """Whether there is such a thing to be measured: a CPU has no link to its host, and one card makes no pair."""
    if stage in ("host", "pairs") and on_cpu(some):
        return False
    return stage not in ("pairs", "collectives") or len(some) > 1


def _keys(loaded: Iterable[Target]) -> tuple[str, ...]:
    return tuple(target.key for target in loaded)


def _context(loaded: tuple[Target, ...], _level: Level) -> Iterator[Step]:
    yield Step("context", "context", _keys(loaded))


def _memory(loaded: tuple[Target, ...], level: Level) -> Iterator[Step]:
    # An H200 writes and reads back 128 GiB twice in 0.5 s, and gets and returns them in as much; an L40S has a fifth
    # of that bandwidth.
    largest = max((target.memory_bytes or 0 for target in loaded), default=0)
    seconds = (3.0 if on_cpu(loaded) else 0.5 + largest / 150e9) * (4 if level == "full" else 1)
    yield Step("memory", "memory", _keys(loaded), {"level": level}, round(seconds, 1))


def _hbm(loaded: tuple[Target, ...], _level: Level) -> Iterator[Step]:
    yield Step("hbm", "hbm", _keys(loaded), {}, 3.0 if on_cpu(loaded) else 0.5)


def _gemm(loaded: tuple[Target, ...], level: Level) -> Iterator[Step]:
    yield Step("gemm", "gemm", _keys(loaded), {}, 3.0)
    if level == "full":
        arguments = {"sustained_seconds": SUSTAINED_SECONDS}
        seconds = SUSTAINED_SECONDS + 1.0
        yield Step("gemm", "gemm sustained", _keys(loaded), arguments, seconds, SUSTAINED_SECONDS)


def _agreement(loaded: tuple[Target, ...], level: Level) -> Iterator[Step]:
    seconds = 40.0 if level == "full" and not on_cpu(loaded) else 2.0
    yield Step("agreement", "agreement", _keys(loaded), {"level": level}, seconds)


def _operators(loaded: tuple[Target, ...], level: Level) -> Iterator[Step]:
    # At level full a block is compiled, and operators that search for their best way at the first use.
    quick, whole = (0.5, 40.0) if on_cpu(loaded) else (2.0, 20.0)
    seconds = whole if level == "full" else quick
    yield Step("operators", "operators", _keys(loaded), {"level": level}, seconds)


def _host(loaded: tuple[Target, ...], _level: Level) -> Iterator[Step]:
    """Each alone, since that is what profiles state; then all at once, which shows what they share."""
    keys = _keys(loaded)
    for key in keys:
        yield Step("host", "host", (key,), {"together": False}, 1.6)
    if len(keys) > 1:
        # Ranks, so that they can wait for each other.
        each: Json = {key: {"rank": rank} for rank, key in enumerate(keys)}
        yield Step("host", "host together", keys, {"together": True, "world": len(keys), "each": each}, 2.5)


def _pairs(loaded: tuple[Target, ...], _level: Level) -> Iterator[Step]:
    """One pair after the other, so that no two share a link, and all by one worker, which needs a context on every
    card: eight contexts take 3 s, and each worker's on every other card would take 20."""
    keys = _keys(loaded)
    for part, pairs, measures, each_seconds in (
        ("pairs", tuple(permutations(keys, 2)), ["one_way", "latency"], 0.1),
        ("pairs two-way", tuple(combinations(keys, 2)), ["two_way"], 0.15),
    ):
        arguments: dict[str, Json] = {"pairs": [list(pair) for pair in pairs], "measures": measures}
        seconds = round(0.4 * len(keys) + each_seconds * len(pairs), 1)
        yield Step("pairs", part, keys[:1], arguments, seconds, pairs=pairs)


def _ranks(cards: tuple[str, ...]) -> dict[str, Json]:
    return {"world": len(cards), "each": {card: {"rank": rank} for rank, card in enumerate(cards)}}


def _collectives(loaded: tuple[Target, ...], level: Level) -> Iterator[Step]:
    """All cards first; how the data went is asked once every group is measured."""
    for group in groups(loaded):
        whole = group.name == "all"
        yield Step(
            "collectives",
            "collectives" if whole else "collectives of sub-groups",
            group.cards,
            {"level": level, "group": group.name, **_ranks(group.cards)},
            (10.0 if whole else 2.0) * (4 if level == "full" else 1),
            group=group.name,
        )
    for group in groups(loaded):
        whole = group.name == "all"
        arguments = _ranks(group.cards) | ({} if whole else {"group": group.name})
        seconds = 0.5 if on_cpu(loaded) else 4.0 if whole else 1.5
        yield Step("collectives", "transport", group.cards, arguments, seconds, group=group.name)


REPORT_FOLDER = "report"
"""Stands for the report's folder in a request, so that a recording does not depend on where reports go."""


def _storage(node: Node, loaded: tuple[Target, ...], level: Level) -> Iterator[Step]:
    """The report's disk and the scratch disk; one worker writes, as it needs no card."""
    folders = list(dict.fromkeys((REPORT_FOLDER, *_scratch(node))))
    seconds = (60.0 if level == "full" else 2.0) * len(folders)
    spare = cpus(node) - len(loaded)
    beside = BESIDE["storage"] if spare >= SPARE_CPUS and not on_cpu(loaded) else None
    yield Step(
        "storage", "storage", (loaded[0].key,), {"level": level, "folders": folders}, seconds, beside=beside
    )


def _scratch(node: Node) -> Iterator[str]:
    """A folder on the largest local disk."""
    if known(node.host) and known(node.host.disks):
        local = [disk for disk in node.host.disks if disk.kind == "local" and not disk.read_only]
        if local:
            mount = max(local, key=lambda disk: or_none(disk.free_bytes) or 0).mount
            # Who is no root may not write beside the system's own folders.
            yield "/var/tmp" if mount == "/" else mount  # noqa: S108


def fit(steps: Iterable[Step], seconds: float) -> tuple[tuple[Step, ...], tuple[str, ...]]:
    """The steps that fit into `seconds` where all is well, and the parts left out for that, in order."""
    kept = tuple(steps)
    dropped: list[str] = []
    while needed(kept) > seconds:
        left = {part: tuple(step for step in kept if step.part != part) for part in DROPS}
        part = next((part for part in DROPS if needed(left[part]) < needed(kept)), None)
        if part is None:
            break
        kept = left[part]
        dropped.append(part)
    return kept, tuple(dropped)


def without(step: Step, lost: Collection[str], keys: Iterable[str]) -> Step | None:
    """The step for the cards of `keys` that are not lost; None where nothing of it is left."""
    if not any(card in lost for card in (*step.cards, *step.subject)):
        return step
    left = tuple(key for key in keys if key not in lost)
    if step.pairs:
        pairs = tuple(pair for pair in step.pairs if not set(pair) & set(lost))
        return replace(among(step, pairs), cards=left[:1]) if pairs else None
    # Whose worker writes to a disk does not matter.
    cards = left[:1] if step.stage == "storage" else tuple(card for card in step.cards if card not in lost)
    ranks = _ranks(cards) if "each" in step.arguments else {}
    return replace(step, cards=cards, arguments={**step.arguments, **ranks}) if cards else None


def among(step: Step, pairs: tuple[tuple[str, str], ...]) -> Step:
    """The step for these pairs alone."""
    return replace(step, pairs=pairs, arguments={**step.arguments, "pairs": [list(pair) for pair in pairs]})


def needed(steps: Collection[Step]) -> float:
    """Seconds that the steps take where all is well, some of them beside others."""
    beside = [step for step in steps if step.beside]
    saved = sum(
        min(
            sum(step.typical_seconds for step in beside if step.beside == stage),
            sum(step.typical_seconds for step in steps if step.stage == stage),
        )
        for stage in {step.beside for step in beside}
    )
    return sum(step.typical_seconds for step in steps) - saved


# A figure once more.


def gives(step: Step, figure: Figure) -> bool:
    """Whether the step gives this figure."""
    if step.stage != figure.stage or step.request == "transport":
        return False
    if figure.subject == "pair":
        measures = step.arguments.get("measures", [])
        return figure.cards in step.pairs and figure.measure.partition(".")[2] in measures
    if figure.subject == "disk":
        return True
    if figure.subject == "group":
        return step.group == figure.name
    sustained = step.part == "gemm sustained"
    together = step.arguments.get("together", False)
    return (
        not step.group
        and figure.cards[0] in step.cards
        and (sustained, together) == (figure.at.sustained, figure.at.together)
    )


def only(step: Step, figures: Iterable[Figure]) -> Step:
    """The step as it gives these figures and little else."""
    figures = tuple(figures)
    if step.stage == "pairs":
        step = among(
            step, tuple((own, peer) for own, peer in dict.fromkeys(figure.cards for figure in figures))
        )
    return replace(step, arguments={**step.arguments, **_narrowed(step, figures)})


def _narrowed(step: Step, figures: tuple[Figure, ...]) -> dict[str, Json]:
    if step.stage in ("hbm", "gemm", "host"):
        return {"only": sorted({figure.measure for figure in figures})}
    if step.stage == "pairs":
        return {"measures": sorted({figure.measure.partition(".")[2] for figure in figures})}
    if step.stage == "collectives":
        runs: list[Json] = []
        for figure in figures:
            at = figure.at
            run = {"collective": figure.measure.partition(".")[0], "size_bytes": at.size_bytes}
            run |= {"dtype": at.dtype, "in_place": at.in_place}
            if run not in runs:
                runs.append(run)
        return {"runs": runs}
    return {}

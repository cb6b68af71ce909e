"""What the measurements show, put in order once for every form of the report; each form only lays it out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from nodecheck.facts import NOT_ASKED, Absent, Maybe, Measurements, known, or_none
from nodecheck.facts.measurements import Check, Conditions, Figure, Load, StageRun, Transport
from nodecheck.judge import Status
from nodecheck.judge import figures as judged
from nodecheck.judge.figures import Limits
from nodecheck.profile import Figure as Promised
from nodecheck.report.document import Report
from nodecheck.report.text import conditions, number, plain, plural, shown, size, small_size, unit_words

COLUMNS = {
    "hbm.copy": "mem copy",
    "gemm.bfloat16": "bf16",
    "gemm.float8": "fp8",
    "gemm.float32": "fp32",
    "host.h2d": "H2D",
    "host.d2h": "D2H",
}
"""What tells most about a card; the rest stands in the HTML page alone."""

TITLES = {
    "hbm.copy": "Memory: copy",
    "hbm.read": "Memory: read",
    "hbm.write": "Memory: write",
    "hbm.triad": "Memory: triad",
    "gemm.bfloat16": "Products in bfloat16",
    "gemm.float16": "Products in float16",
    "gemm.tfloat32": "Products in TF32",
    "gemm.float32": "Products in float32",
    "gemm.float64": "Products in float64",
    "gemm.float8": "Products in float8",
    "host.h2d": "Host to card",
    "host.d2h": "Card to host",
    "host.bidirectional": "Host and card, both ways",
    "pairs.one_way": "One way",
    "pairs.two_way": "Both ways at once",
    "pairs.latency": "Latency",
}

STAGES = {
    "context": "context",
    "memory": "memory, every byte",
    "hbm": "memory bandwidth",
    "gemm": "matrix products",
    "agreement": "agreement",
    "operators": "operators of training",
    "host": "links to the host",
    "pairs": "links between cards",
    "collectives": "collectives",
    "storage": "disks",
}

LEVELS = (0.95, 0.85, 0.70, 0.50)
"""Shares of the fastest pair at which the matrix changes its colour."""

MOST_CARDS = 32
"""More are not put beside each other."""
MOST_CHARTS = 24
MOST_ROWS = 600
"""Of one table; all of them stand in report.json."""
_TIMES = ("us", "s")
_LONGEST_LINE = 20_000
"""Characters of one line of the record; stacks of all ranks stand in one."""


@dataclass(frozen=True)
class Cell:
    """One figure in a table."""

    text: str
    status: Status = Status.skipped
    """Against the profile and the siblings; `skipped` where there is neither."""
    note: str = ""


BLANK = Cell("–")


@dataclass(frozen=True)
class Beside:
    """One measure of all cards, at the same conditions."""

    measure: str
    at: Conditions
    unit: str
    figures: dict[str, Figure]
    """By `Card.key`."""
    typical: float | None
    """The profile's, for exactly these conditions."""
    limits: Limits
    usual: float | None
    """Median over the cards, where there are several."""

    @property
    def title(self) -> str:
        return TITLES.get(self.measure, self.measure)


@dataclass(frozen=True)
class PairCell:
    text: str
    level: int
    """0: as fast as the fastest pair, to 4; see `LEVELS`. -1: not measured, or a latency, which varies too much for
    colours."""
    status: Status
    note: str


@dataclass(frozen=True)
class PairTable:
    """One measure of every pair: rows are where the data comes from."""

    measure: str
    unit: str
    at: str
    labels: tuple[str, ...]
    rows: tuple[tuple[PairCell, ...], ...]
    extremes: str
    """The slowest and the fastest, in words."""

    @property
    def title(self) -> str:
        return TITLES.get(self.measure, self.measure)


@dataclass(frozen=True)
class Point:
    size_bytes: int
    value: float
    status: Status
    note: str


@dataclass(frozen=True)
class Series:
    """One group and type."""

    label: str
    points: tuple[Point, ...]
    """By size; of several at one size (in place or not) the best."""


@dataclass(frozen=True)
class Mark:
    """What the profile says of one size."""

    size_bytes: int
    typical: float
    limits: Limits


@dataclass(frozen=True)
class Curve:
    """The bus bandwidth of one collective over its sizes, GB/s."""

    collective: str
    series: tuple[Series, ...]
    marks: tuple[Mark, ...]


@dataclass(frozen=True)
class Exchange:
    """One collective at one size, type and placement, of one group."""

    collective: str
    group: str
    at: Conditions
    bandwidth: Cell
    spread: str
    latency: Cell


@dataclass(frozen=True)
class CheckRow:
    """Checks of one kind, together."""

    check: str
    where: str
    compared: str
    covered: str
    wrong: int
    right: bool
    """Something was compared, and nothing was wrong."""


@dataclass(frozen=True)
class Wrong:
    """A check that found wrong data."""

    check: str
    where: str
    told: str
    examples: tuple[str, ...]


@dataclass(frozen=True)
class StageRow:
    """Runs of one stage that went alike."""

    stage: str
    where: str
    run: StageRun
    seconds: str

    @property
    def why(self) -> str:
        """Why it did not come to its end: the first line of what was said."""
        status = self.run.status.replace("_", " ")
        detail = self.run.detail.partition("\n")[0] or "nothing says why"
        return detail if detail.startswith(status) else f"{status}: {detail}"


@dataclass(frozen=True)
class LoadRow:
    """What a card, or a group's cards, did during a stage."""

    stage: str
    where: str
    load: Load
    clock_share: float | None
    """Of the card's highest SM clock."""
    power_share: float | None
    """Of the card's limit."""


@dataclass(frozen=True)
class Tried:
    """A figure that was measured again because a limit lay within its spread."""

    figure: Figure
    where: str


def disk_words(figure: Figure) -> str:
    """`256 MiB, 4 at once`: for a disk the ranks are those who write or read."""
    at = conditions(figure.at.model_copy(update={"ranks": None}))
    several = f"{figure.at.ranks} at once" if (figure.at.ranks or 1) > 1 else ""
    return ", ".join(part for part in (at, several) if part)


def algorithms_words(transport: Transport) -> tuple[str, ...]:
    """A line for each algorithm and protocol: `RING/LL: all_reduce 8 B, 1 MiB; all_gather 1 MiB`."""
    used: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for what, how in transport.algorithms:
        collective, _, count = what.rpartition(" ")
        if collective and count.isascii() and count.isdigit() and len(count) < 16:
            used[how][collective].append(small_size(int(count)))
        else:
            used[how].setdefault(what, [])
    return tuple(
        f"{how}: " + "; ".join(f"{name} {', '.join(sizes)}".rstrip() for name, sizes in of_each.items())
        for how, of_each in used.items()
    )


def load_words(load: Maybe[Load]) -> str:
    """`SM 1830 MHz, 630 W, 54 °C, sw power cap`; empty where nothing was sampled."""
    if isinstance(load, Absent):
        return "" if load == NOT_ASKED else shown(load)
    parts = (
        f"SM {shown(load.sm_mhz, 'MHz')}",
        shown(load.power_watts, "W"),
        shown(load.celsius, "°C"),
        shown(load.event_reasons) if load.event_reasons else "",
        f"PCIe gen {shown(load.pcie_generation)} ×{shown(load.pcie_width)}",
        plural(load.samples, "sample"),
    )
    return ", ".join(part for part in parts if part)


def of(report: Report) -> Figures | Absent | None:
    """What was measured, or why nothing was; None at a level that measures nothing."""
    seen = report.facts.measurements
    if isinstance(seen, Absent):
        return None if report.level == "quick" else seen
    return Figures(report, seen)


class Figures:
    """The measurements of one report."""

    def __init__(self, report: Report, seen: Measurements) -> None:
        self.seen = seen
        self._report = report
        self._labels = {card.key: card.short_name for card in report.facts.known_cards}
        self._standing = _standing(report, seen)
        self.keys = self._keys()
        self.beside = self._beside()

    def _keys(self) -> tuple[str, ...]:
        """The cards, and what stands for them on a machine without."""
        found = dict.fromkeys(self._labels)
        for figure in self.seen.figures:
            if figure.subject != "disk":
                found |= dict.fromkeys(figure.cards)
        return tuple(found)

    def label(self, key: str) -> str:
        return self._labels.get(key, key)

    def where(self, cards: Sequence[str], name: str = "") -> str:
        """`GPU 3`, `8 cards`, `all`."""
        if name:
            return name
        if len(cards) > 4:
            return self.count(len(cards))
        return ", ".join(map(self.label, cards)) or "–"

    def count(self, number_of_cards: int) -> str:
        """`8 cards`; without any, the workers on the CPU are counted."""
        return plural(number_of_cards, "card" if self._labels else "worker")

    @property
    def promises(self) -> bool:
        """Whether the profile says anything of single cards."""
        return any(beside.typical is not None for beside in self.beside)

    def status(self, figure: Figure) -> Status:
        return self._standing.get(id(figure), Status.skipped)

    def _cell(self, figure: Figure | None) -> Cell:
        if figure is None:
            return BLANK
        return Cell(number(figure.median), self.status(figure), self.note(figure))

    def note(self, figure: Figure) -> str:
        """The whole figure in words."""
        if figure.subject == "pair":
            where = " → ".join(map(self.label, figure.cards))
        elif figure.name:
            where = figure.name
        else:
            where = ", ".join(map(self.label, figure.cards))
        at = disk_words(figure) if figure.subject == "disk" else conditions(figure.at)
        tries = f"; measured {len(figure.tries)} times: {tries_words(figure)}" if figure.tries else ""
        return (
            f"{figure.measure}, {where}{f', {at}' if at else ''}: {number(figure.median)} {unit_words(figure.unit)} "
            f"({number(figure.p5)} to {number(figure.p95)}, {plural(figure.repetitions, 'repetition')}){tries}"
        )

    # Cards

    def _beside(self) -> tuple[Beside, ...]:
        found: dict[tuple[str, str, bool, bool], list[Figure]] = defaultdict(list)
        for figure in self.seen.figures:
            at = figure.at
            if (
                figure.subject == "card"
                and figure.cards
                and figure.stage in ("hbm", "gemm", "host")
                and figure.unit in ("GB/s", "TFLOP/s")
                and not figure.measure.endswith("_payload")
                and at.pinned is not False
                and (at.size_bytes is None or at.size_bytes >= judged.LEAST_COPY_BYTES or not self._labels)
            ):
                found[figure.measure, figure.unit, at.sustained, at.together].append(figure)
        return tuple(self._chosen(figures) for figures in list(found.values())[:MOST_CHARTS])

    def _chosen(self, figures: list[Figure]) -> Beside:
        """At the profile's conditions, or at those under which a card gave the most."""
        best = max(figures, key=lambda figure: figure.median)
        chosen = {figure.cards[0]: figure for figure in figures if figure.at == best.at}
        promise: Promised | None = None
        if not best.at.sustained and not (best.at.together and best.stage == "host"):
            for promised in judged.promises(self._report.facts, self._report.profile):
                if promised.measure == best.measure and promised.unit == best.unit:
                    exact = judged.measured(promised, figures)
                    if exact:
                        promise = promised
                        chosen = {cards[0]: figure for cards, figure in exact.items()}
                        break
        limits = Limits(None, None)
        if promise is not None:
            limits = judged.limits_here(promise, self._report.facts, self._report.profile)
        values = [figure.median for figure in chosen.values()]
        return Beside(
            best.measure,
            next(iter(chosen.values())).at,
            best.unit,
            chosen,
            promise.typical if promise else None,
            limits,
            median(values) if len(values) > 1 else None,
        )

    @property
    def overview(self) -> tuple[Beside, ...]:
        """The columns of the table of cards."""
        plain = {
            beside.measure: beside
            for beside in self.beside
            if not beside.at.sustained and not beside.at.together
        }
        return tuple(plain[measure] for measure in COLUMNS if measure in plain)

    @staticmethod
    def at(beside: Beside) -> str:
        """The conditions of what is put side by side, without what goes without saying there."""
        said = beside.measure.startswith("hbm.") or beside.measure.endswith(f".{beside.at.dtype}")
        dtype = None if said else beside.at.dtype
        return conditions(beside.at.model_copy(update={"pinned": None, "dtype": dtype}))

    def cells(self, key: str, columns: Iterable[Beside]) -> tuple[Cell, ...]:
        return tuple(self._cell(beside.figures.get(key)) for beside in columns)

    @property
    def every_card_figure(self) -> tuple[tuple[str, str, str, tuple[Cell, ...], str], ...]:
        """(measure, conditions, unit, a cell for each of `keys`, widest spread), of everything measured on cards."""
        rows: dict[tuple[str, Conditions, str], dict[str, Figure]] = {}
        for figure in self.seen.figures:
            if figure.subject == "card" and figure.cards:
                rows.setdefault((figure.measure, figure.at, figure.unit), {})[figure.cards[0]] = figure
        return tuple(
            (
                measure,
                conditions(at),
                unit_words(unit),
                tuple(self._cell(by_card.get(key)) for key in self.keys[:MOST_CARDS]),
                spread(by_card.values()),
            )
            for (measure, at, unit), by_card in list(rows.items())[:MOST_ROWS]
        )

    @property
    def bindings(self) -> dict[str, str]:
        return dict(self.seen.bindings)

    # Pairs

    @property
    def pairs(self) -> tuple[PairTable, ...]:
        found: dict[tuple[str, Conditions, str], dict[tuple[str, ...], Figure]] = {}
        for figure in self.seen.figures:
            if figure.subject == "pair" and len(figure.cards) == 2:
                found.setdefault((figure.measure, figure.at, figure.unit), {})[figure.cards] = figure
        return tuple(
            self._pair_table(measure, at, unit, by_pair)
            for (measure, at, unit), by_pair in sorted(found.items(), key=lambda item: item[0][2] in _TIMES)[
                :6
            ]
        )

    def _pair_table(
        self, measure: str, at: Conditions, unit: str, by_pair: dict[tuple[str, ...], Figure]
    ) -> PairTable:
        less_is_better = unit in _TIMES
        ordered = sorted(by_pair.values(), key=lambda figure: figure.median, reverse=less_is_better)
        slowest, fastest = ordered[0], ordered[-1]
        extremes = f"{number(fastest.median)} {unit_words(unit)}"
        if len(ordered) > 1:
            extremes = (
                f"{number(slowest.median)} ({self._way(slowest)}) to "
                f"{number(fastest.median)} {unit_words(unit)} ({self._way(fastest)})"
            )
        if measure == "pairs.two_way":
            # It has no direction: measured once, it stands for both.
            by_pair = {(b, a): figure for (a, b), figure in by_pair.items()} | by_pair
        keys = self.keys if len(self.keys) <= MOST_CARDS else ()
        rows = tuple(
            tuple(
                PairCell("", -1, Status.skipped, self.label(a))
                if a == b
                else self._pair_cell(by_pair.get((a, b)), None if less_is_better else fastest.median)
                for b in keys
            )
            for a in keys
        )
        return PairTable(
            measure, unit_words(unit), conditions(at), tuple(map(self.label, keys)), rows, extremes
        )

    def _way(self, figure: Figure) -> str:
        return " → ".join(map(self.label, figure.cards))

    def _pair_cell(self, figure: Figure | None, fastest: float | None) -> PairCell:
        if figure is None:
            return PairCell("–", -1, Status.skipped, "not measured")
        level = -1
        if fastest is not None:
            share = figure.median / fastest if fastest > 0 else 0.0
            level = sum(share < limit for limit in LEVELS)
        return PairCell(number(figure.median), level, self.status(figure), self.note(figure))

    @property
    def unreachable(self) -> tuple[str, ...]:
        """Pairs that torch says cannot reach each other's memory."""
        return tuple(
            f"{self.label(one)} → {self.label(other)}"
            for one, other, reaches in self.seen.accesses
            if not reaches
        )

    # Groups

    def _of_groups(self, kind: str) -> Iterator[tuple[str, Figure]]:
        """Collective and figure of every measure that ends so."""
        for figure in self.seen.figures:
            if figure.stage == "collectives" and figure.subject == "group" and figure.measure.endswith(kind):
                yield figure.measure.removesuffix(kind), figure

    @property
    def curves(self) -> tuple[Curve, ...]:
        found: dict[str, dict[tuple[str, str, int], dict[int, Figure]]] = {}
        for collective, figure in self._of_groups(".busbw"):
            if figure.at.size_bytes is None or figure.at.size_bytes <= 0:
                continue
            key = (figure.name, figure.at.dtype or "", len(figure.cards))
            by_size = found.setdefault(collective, {}).setdefault(key, {})
            best = by_size.get(figure.at.size_bytes)
            if best is None or figure.median > best.median:
                by_size[figure.at.size_bytes] = figure
        curves = []
        for collective, series in found.items():
            sizes = {size_bytes for by_size in series.values() for size_bytes in by_size}
            curves.append(
                Curve(
                    collective,
                    tuple(
                        Series(", ".join(part for part in key[:2] if part), self._points(by_size))
                        for key, by_size in series.items()
                    ),
                    tuple(self._marks(f"{collective}.busbw", sizes)),
                )
            )
        return tuple(curves)

    def _points(self, by_size: dict[int, Figure]) -> tuple[Point, ...]:
        return tuple(
            Point(size_bytes, figure.median, self.status(figure), self.note(figure))
            for size_bytes, figure in sorted(by_size.items())
        )

    def _marks(self, measure: str, sizes: set[int]) -> Iterator[Mark]:
        for promised in judged.promises(self._report.facts, self._report.profile):
            if promised.measure == measure and promised.at.size and promised.at.ranks == len(self.keys):
                size_bytes = judged.size_bytes(promised.at.size)
                if size_bytes in sizes:
                    limits = judged.limits_here(promised, self._report.facts, self._report.profile)
                    yield Mark(size_bytes, promised.typical, limits)

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        latencies = {
            (collective, figure.name, figure.cards, figure.at): figure
            for collective, figure in self._of_groups(".latency")
        }
        return tuple(
            Exchange(
                collective,
                self.where(figure.cards, figure.name),
                figure.at,
                self._cell(figure),
                spread((figure,)),
                self._cell(latencies.get((collective, figure.name, figure.cards, figure.at))),
            )
            for collective, figure in self._of_groups(".busbw")
        )

    @property
    def transports(self) -> tuple[Transport, ...]:
        return self.seen.transports

    # Data, stages, load

    @property
    def checks(self) -> tuple[CheckRow, ...]:
        found: dict[tuple[str, str], list[Check]] = defaultdict(list)
        for check in self.seen.checks:
            # Of operators there are dozens: those that are wrong are told one by one, elsewhere.
            name = "operators" if check.stage == "operators" else check.check
            found[name, check.stage].append(check)
        rows = []
        for (name, stage), same in found.items():
            total = sum(check.compared for check in same)
            covered = [check.covered for check in same if check.covered is not None]
            subjects = {(check.cards, check.name) for check in same}
            rows.append(
                CheckRow(
                    name,
                    self.where(same[0].cards, same[0].name)
                    if len(subjects) == 1
                    else self.count(len(subjects))
                    if same[0].subject == "card"
                    else plural(len(subjects), same[0].subject),
                    size(total) if stage == "memory" else f"{total:,} elements",
                    f"{min(covered):.1%}" if covered else "",
                    sum(check.wrong for check in same),
                    all(check.compared and not check.wrong for check in same),
                )
            )
        return tuple(rows)

    @property
    def wrong(self) -> tuple[Wrong, ...]:
        return tuple(
            Wrong(
                check.check,
                " → ".join(map(self.label, check.cards))
                if check.subject == "pair"
                else self.where(check.cards, check.name),
                f"{check.wrong:,} of {check.compared:,} wrong"
                + (f" ({at})" if (at := conditions(check.at)) else ""),
                check.examples,
            )
            for check in self.seen.checks
            if check.wrong
        )

    @property
    def stages(self) -> tuple[StageRow, ...]:
        found: dict[tuple[str, str, str, tuple[str, ...]], list[StageRun]] = defaultdict(list)
        for run in self.seen.stages:
            found[run.stage, run.status, run.detail, run.stacks].append(run)
        rows = []
        for (stage, *_), same in found.items():
            cards = tuple(dict.fromkeys(card for run in same for card in run.cards))
            least, most = min(run.seconds for run in same), max(run.seconds for run in same)
            rows.append(
                StageRow(
                    STAGES[stage],
                    self.where(cards),
                    same[0],
                    f"{most:.1f}" if f"{least:.1f}" == f"{most:.1f}" else f"{least:.1f} to {most:.1f}",
                )
            )
        return tuple(rows)

    @property
    def not_run(self) -> tuple[StageRow, ...]:
        """Stages that did not come to their end."""
        return tuple(row for row in self.stages if row.run.status != "done")

    @property
    def loads(self) -> tuple[LoadRow, ...]:
        found: dict[tuple[str, tuple[str, ...], str], list[Load]] = defaultdict(list)
        for figure in self.seen.figures:
            if isinstance(figure.load, Load) and figure.subject in ("card", "group"):
                stage = STAGES[figure.stage] + (", sustained" if figure.at.sustained else "")
                found[stage, figure.cards, figure.name].append(figure.load)
        order = list(dict.fromkeys(stage for stage, _, _ in found))
        cards = judged.by_key(self._report.facts)
        rows = []
        for (stage, keys, name), loads in sorted(found.items(), key=lambda item: order.index(item[0][0])):
            load = _together(loads)
            card = cards.get(keys[0]) if keys else None
            rows.append(
                LoadRow(
                    stage,
                    self.where(keys, name),
                    load,
                    _share(load.sm_mhz, card.clocks.max_sm_mhz) if card else None,
                    _share(load.power_watts, card.power.limit_watts) if card else None,
                )
            )
        return tuple(rows)

    @property
    def tried(self) -> tuple[Tried, ...]:
        return tuple(
            Tried(
                figure,
                self._way(figure) if figure.subject == "pair" else self.where(figure.cards, figure.name),
            )
            for figure in self.seen.figures
            if len(figure.tries) > 1
        )

    @property
    def disks(self) -> tuple[Figure, ...]:
        return tuple(figure for figure in self.seen.figures if figure.subject == "disk")

    # The record

    def record(self) -> tuple[str, ...]:
        """Everything measured, a line each."""
        seen = self.seen
        lines = [self._ran(run) for run in seen.stages]
        for figure in seen.figures:
            load = load_words(figure.load)
            lines.append(self.note(figure) + (f"; {load}" if load else ""))
        for check in seen.checks:
            where = ", ".join(map(self.label, check.cards))
            told = f"{check.check}, {f'{check.name}: ' if check.name else ''}{where}"
            at = conditions(check.at)
            covered = f", {check.covered:.2%} of the memory" if check.covered is not None else ""
            lines.append(
                f"{told}{f', {at}' if at else ''}: {check.wrong} of {check.compared} wrong{covered}"
                + "".join(f"; {example}" for example in check.examples)
            )
        lines += [
            f"transport of {transport.name} ({', '.join(map(self.label, transport.cards))}): "
            f"{transport.library}: {', '.join(transport.paths) or 'not known'}"
            + "".join(f"; {what}: {how}" for what, how in transport.algorithms)
            + "".join(f"; {note}" for note in transport.notes)
            for transport in seen.transports
        ]
        lines += [
            f"{self.label(one)} reaches {self.label(other)}, as torch says: {shown(reaches)}"
            for one, other, reaches in seen.accesses
        ]
        lines += [f"{self.label(key)} bound to CPUs: {cpus}" for key, cpus in seen.bindings]
        lines += [f"left out for the time budget: {part}" for part in seen.dropped]
        lines.append(f"seconds in all: {seen.seconds:g}")
        return tuple(plain(line, _LONGEST_LINE) for line in lines)

    def _ran(self, run: StageRun) -> str:
        where = ", ".join(map(self.label, run.cards))
        told = f"stage {run.stage}{f', {where}' if where else ''}: {run.status}, {run.seconds:g} s"
        return told + "".join(f"; {more}" for more in (run.detail, *run.stacks) if more)


def _standing(report: Report, seen: Measurements) -> dict[int, Status]:
    """Of each figure that the profile or its siblings say something of, by its identity: the gravest status."""
    found: dict[int, Status] = {}
    order = (Status.passed, Status.warn, Status.fail)

    def note(figure: Figure, status: Status) -> None:
        known_status = found.get(id(figure), Status.passed)
        found[id(figure)] = max(known_status, status, key=order.index)

    for promised in judged.promises(report.facts, report.profile):
        for figure in judged.measured(promised, seen.figures).values():
            note(
                figure, judged.limits_of(promised, figure, report.facts, report.profile).status(figure.median)
            )
    for places in judged.places(report.facts).values():
        for place in places:
            note(place.figure, place.status)
    return found


def _together(loads: Sequence[Load]) -> Load:
    """The load that drew the most, with every reason seen and the highest temperature and link."""
    hardest = max(loads, key=lambda load: or_none(load.power_watts) or 0.0)
    reasons = tuple(dict.fromkeys(reason for load in loads for reason in or_none(load.event_reasons) or ()))
    changes: dict[str, object] = {"samples": sum(load.samples for load in loads)}
    if any(known(load.event_reasons) for load in loads):
        changes["event_reasons"] = reasons
    for name in ("celsius", "pcie_generation", "pcie_width"):
        values = [value for load in loads if known(value := getattr(load, name))]
        if values:
            changes[name] = max(values)
    return hardest.model_copy(update=changes)


def _share(value: Maybe[float], whole: Maybe[float]) -> float | None:
    if isinstance(value, Absent) or isinstance(whole, Absent) or whole <= 0:
        return None
    return min(max(value / whole, 0.0), 1.0)


def spread(figures: Iterable[Figure]) -> str:
    """The widest p5 to p95 among them, as a share of the median."""
    widths = [(figure.p95 - figure.p5) / figure.median for figure in figures if figure.median > 0]
    return f"{min(max(widths), 99.0):.1%}" if widths else ""


def tries_words(figure: Figure) -> str:
    """`440, 445, 451`."""
    return ", ".join(number(value) for value in figure.tries)

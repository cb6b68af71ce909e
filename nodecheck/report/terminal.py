"""The report on a terminal: the verdict first, everything readable at 80 columns without colour."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Iterator

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from nodecheck.facts import Absent, Card
from nodecheck.judge import Finding, Judgement, Status, Verdict
from nodecheck.report import document, figures, view
from nodecheck.report.document import Report
from nodecheck.report.figures import Cell, Figures, PairCell
from nodecheck.report.folder import Written
from nodecheck.report.text import number, plain, shown, small_size, unmarked

_WIDEST = 120
"""Columns; longer lines are hard to read."""

STYLES = {
    Status.passed: "green",
    Status.warn: "yellow",
    Status.fail: "bold red",
    Status.unknown: "magenta",
    Status.skipped: "dim",
}
_VERDICTS = {
    Verdict.accepted: "bold green",
    Verdict.accepted_with_warnings: "bold yellow",
    Verdict.rejected: "bold red",
    Verdict.incomplete: "bold magenta",
}
_NOTED = {status: STYLES[status] for status in (Status.warn, Status.fail)}
_SIGNS = {Status.warn: "*", Status.fail: "!"}
_MOST_REASONS = 12
_MOST_PAIRED = 10
"""Cards whose pairs fit into 80 columns."""
_MOST_SIZES = 5
_MOST_ROWS = 10
_LINKS = {"link": "green", "pcie": "", "unknown": "magenta", "self": "dim"}


def render(report: Report) -> str:
    """The report as text, 80 columns wide and without colour."""
    stream = io.StringIO()
    print_on(Console(file=stream, width=80, color_system=None, force_terminal=False), report)
    return stream.getvalue()


def show(report: Report, *, quiet: bool = False, folder: Written | None = None) -> None:
    """The report on stdout, and where it lies; the verdict alone where `quiet`."""
    console = stdout()
    if console is None:  # the report lies in its folder, the verdict in the exit code
        return
    if quiet:
        print(plain(report.judgement.summary))
        if folder is not None and sys.stderr is not None:
            # Not on stdout, where a script reads the verdict.
            print(f"nodecheck: the report lies in {plain(str(folder.path))}", file=sys.stderr)
        return
    print_on(console, report, folder)


def stdout() -> Console | None:
    """The terminal, or where else stdout leads; None where the caller has closed it (`>&-`)."""
    if sys.stdout is None:
        return None
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A locale without our signs (×, –) costs the signs, not the report.
        sys.stdout.reconfigure(errors="backslashreplace")
    console = _Console(file=sys.stdout)
    console.width = min(console.width or 80, _WIDEST)  # COLUMNS=0: unknown
    return console


class _Console(Console):
    def on_broken_pipe(self) -> None:
        # rich would end the program with 1, which is a verdict's code here.
        raise BrokenPipeError


def print_on(console: Console, report: Report, folder: Written | None = None) -> None:
    """The report on a console of rich's, whatever that writes to."""
    print_blocks(console, (*_blocks(report), *_place(folder)))


def print_blocks(console: Console, blocks: Iterable[RenderableType]) -> None:
    """Print them as they are: nothing in a text is taken for markup."""
    for block in blocks:
        console.print(block, highlight=False, markup=False, emoji=False, crop=False)


def _place(folder: Written | None) -> Iterator[RenderableType]:
    if folder is None:
        return
    yield heading("Report")
    for name in ("report.html", "report.md", "report.json"):
        if name == document.FILE or name in folder.report.parts:
            yield _Whole(f"{folder.path / name}")
    yield _Whole(f"SHA-256 of report.json: {folder.sha256}")
    for trouble in folder.unrendered:
        yield paragraph(f"could not be written: {trouble}", "yellow")


def _blocks(report: Report) -> Iterator[RenderableType]:
    judgement = report.judgement
    yield paragraph(judgement.summary, _VERDICTS[judgement.verdict])
    yield paragraph(view.rented(report))
    yield paragraph(view.basis(report), "dim")
    if report.interrupted:
        yield paragraph(
            "The run was interrupted: what had not been asked by then is unknown.", "bold magenta"
        )
    if recording := view.recording(report):
        yield paragraph(recording)
    for unmet in view.unmet_waivers(report):
        yield paragraph(f"--waive {unmet}: nothing to set aside.", "yellow")
    if judgement.reasons:
        yield heading("Why")
        for reason in judgement.reasons[:_MOST_REASONS]:
            yield paragraph(f"- {reason}")
        if len(judgement.reasons) > _MOST_REASONS:
            yield paragraph(f"and {len(judgement.reasons) - _MOST_REASONS} more, below")
    yield heading("Cards")
    yield _cards(report)
    if len(report.facts.known_cards) > 1:
        yield heading("Links")
        yield from _links(report)
    measured = figures.of(report)
    if isinstance(measured, Absent):
        yield heading("Measurements")
        yield paragraph(f"Nothing was measured: {shown(measured)}.", "magenta")
    elif measured is not None:
        yield from _measurements(measured)
    sources = view.Sources()
    for section in view.sections(judgement):
        yield heading(section.title)
        for group in section.groups:
            yield from _group(group, sources)
        for behind in section.behind:
            yield paragraph(f"{behind.sentence}: {view.named(behind.ids)}.", "dim")
    if waived := view.waived(judgement):
        yield heading("Set aside by waiver")
        for group in waived:
            yield from _group(group, sources)
    if sources.listed:
        yield heading("Sources")
        for number_, source in enumerate(sources.listed, 1):
            yield paragraph(f"[{number_}] {source}", "dim")
    yield heading("Doors to the node")
    yield from _ledger(judgement)


def _cards(report: Report) -> RenderableType:
    cards = report.facts.cards
    if isinstance(cards, Absent):
        return paragraph(shown(cards), by=2)
    if not cards:
        return paragraph("none", by=2)
    on_amd = view.amd_alone(report.facts)
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    for title, right in (
        ("GPU", True),
        ("PCI address", False),
        ("name", False),
        *([("CUs", True)] if on_amd else []),
        ("MiB", True),
        ("W", True),
        (view.links_name(report.facts).replace(" ", "\n"), True),
        ("PCIe lanes,\ngen now/max", False),
        ("°C", True),
        ("state", False),
    ):
        table.add_column(title, justify="right" if right else "left", no_wrap=title != "name")
    for card in cards:
        state = view.card_state(report.judgement, card.key)
        table.add_row(
            str(card.index),
            _text(_short(card.pci_address)),
            _text(_short(card.identity.name)),
            *([_text(_short(card.identity.compute_units))] if on_amd else []),
            _text(_short(_mebibytes(card))),
            _text(_short(card.power.limit_watts)),
            _text(_short(card.active_links)),
            _text(_pcie(card)),
            _text(_short(card.temperature.gpu_celsius)),
            Text(state.word, STYLES[state.status]),
        )
    return table


def _mebibytes(card: Card) -> int | Absent:
    total = card.memory.total_bytes
    return total if isinstance(total, Absent) else total // 1024**2


def _pcie(card: Card) -> str:
    # Both generations: the one of now falls when the card idles.
    pcie = card.pcie
    return f"×{_short(pcie.width)} {_short(pcie.generation)}/{_short(pcie.max_generation)}"


def _short(value: object) -> str:
    return "?" if isinstance(value, Absent) else shown(value)


def _links(report: Report) -> Iterator[RenderableType]:
    table = view.matrix(report.facts, report.profile)
    if isinstance(table, Absent):
        yield paragraph(shown(table), by=2)
        return
    grid = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    grid.add_column("")
    for label in table.labels:
        grid.add_column(label, no_wrap=True)
    for label, row in zip(table.labels, table.rows, strict=True):
        grid.add_row(Text(label, "dim"), *(_joined(cell) for cell in row))
    yield grid
    yield paragraph("  ".join(f"{sign}: {meaning}." for sign, meaning in view.legend(table)), "dim")


def _measurements(measured: Figures) -> Iterator[RenderableType]:
    """In few tables; the HTML page has all figures."""
    yield heading(f"Measurements ({measured.seen.seconds:.0f} s)")
    if columns := measured.overview:
        table = _numbers("", *(figures.COLUMNS[beside.measure] for beside in columns))
        for key in measured.keys:
            table.add_row(_text(measured.label(key)), *map(_figure, measured.cells(key, columns)))
        for name, values in (
            ("typical", [beside.typical for beside in columns]),
            ("warns <", [beside.limits.warn for beside in columns]),
            ("fails <", [beside.limits.fail for beside in columns]),
        ):
            if any(value is not None for value in values):
                table.add_row(Text(name, "dim"), *(Text(shown(value), "dim") for value in values))
        yield table
        at = (f"{figures.COLUMNS[beside.measure]} {measured.at(beside)}" for beside in columns)
        yield paragraph(f"GB/s and TFLOP/s, median (*: warns, !: fails); at {'; '.join(at)}.", "dim")
    for paired in measured.pairs[:1]:
        yield Text()
        yield paragraph(f"{paired.title} between cards, {paired.at}: {paired.extremes}")
        if 0 < len(paired.rows) <= _MOST_PAIRED:
            grid = _numbers("from", *(label.removeprefix("GPU ") for label in paired.labels))
            for label, cells in zip(paired.labels, paired.rows, strict=True):
                grid.add_row(_text(label), *map(_figure, cells))
            yield grid
    yield from _collectives(measured)
    yield Text()
    yield from _data(measured)
    if measured.seen.dropped:
        yield paragraph(f"Left out for the time budget: {', '.join(measured.seen.dropped)}.", "magenta")
    for row in measured.not_run:
        stage = f"{row.stage} on {row.where}" if row.run.cards else row.stage
        yield paragraph(f"{stage}: {row.why}", "magenta")


def _collectives(measured: Figures) -> Iterator[RenderableType]:
    curves = measured.curves
    if not curves:
        return
    sizes = sorted({p.size_bytes for curve in curves for series in curve.series for p in series.points})
    sizes = sizes[-_MOST_SIZES:]
    table = _numbers("Collectives", *(small_size(size_bytes) for size_bytes in sizes))
    for curve in curves[:_MOST_ROWS]:
        for series in curve.series[: _MOST_ROWS if curve is curves[0] else 1]:
            by_size = {point.size_bytes: point for point in series.points}
            points = (by_size.get(size_bytes) for size_bytes in sizes)
            cells = (Cell(number(p.value), p.status) if p else figures.BLANK for p in points)
            table.add_row(_text(f"{curve.collective} {series.label}"), *map(_figure, cells))
    yield Text()
    yield table
    ways = dict.fromkeys(
        f"{transport.library}: {', '.join(transport.paths)}" for transport in measured.transports[:4]
    )
    yield paragraph(f"Bus bandwidth, GB/s. {'; '.join(ways)}".rstrip(), "dim")


def _data(measured: Figures) -> Iterator[RenderableType]:
    """Whether all data was right, in one sentence where it was."""
    right = [row for row in measured.checks if row.right]
    if right:
        told = (
            f"{row.check} ({row.where}{f', {row.covered} of the memory' if row.covered else ''})"
            for row in right
        )
        yield paragraph(f"All data right: {', '.join(told)}.")
    for wrong in measured.wrong:
        example = f": {wrong.examples[0]}" if wrong.examples else ""
        yield paragraph(f"WRONG DATA: {wrong.check}, {wrong.where}: {wrong.told}{example}", "bold red")


def _numbers(first: str, *titles: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column(first)
    for title in titles:
        table.add_column(_text(title), justify="right", no_wrap=True)
    return table


def _figure(cell: Cell | PairCell) -> Text:
    """With a sign, since a pipe has no colours."""
    return _text(cell.text + _SIGNS.get(cell.status, ""), _NOTED.get(cell.status, ""))


def _joined(cell: view.Cell) -> Text:
    return Text(cell.marked, "bold red" if cell.bad else _LINKS[cell.kind])


def _group(group: view.Group, sources: view.Sources) -> Iterator[RenderableType]:
    first = group.first
    line = Text(f"{view.STATUSES[first.status]:8}", STYLES[first.status])
    line.append(unmarked(first.title), "bold")
    line.append(f"  {plain(first.id)}", "dim")
    if first.owner is not None:
        line.append(f"  for {view.OWNERS[first.owner]} to mend", "dim")
    yield Indented(line, 0)
    for row in group.rows:
        yield paragraph(f"{row.subjects}: {row.first.detail}", by=2)
        yield from _evidence(row.first, sources)
    if first.waived is not None:
        yield paragraph(f"Set aside: {first.waived}", by=2)
        return
    if first.root is not None:
        yield paragraph(f"Follows from {first.root}; mend that first.", by=2)
        return
    for title, words in (("Means", first.meaning), ("Next", first.next_step)):
        if words:
            yield paragraph(f"{title}: {unmarked(words)}", by=2)
    if first.repeat:
        yield _Whole(f"  Again: {first.repeat}")


def _evidence(finding: Finding, sources: view.Sources) -> Iterator[RenderableType]:
    for name, value, source in (
        ("observed", finding.observed, finding.observed_from),
        ("expected", finding.expected, finding.expected_from),
    ):
        if value is not None:
            line = Text(f"{name} {shown(value, finding.unit)}")
            if number_ := sources.number(source):
                line.append(f"  [{number_}]", "dim")
            elif source:
                line.append(f"  ({plain(source)})", "dim")
            yield Indented(line, 4)


def _ledger(judgement: Judgement) -> Iterator[RenderableType]:
    opened = [entry.door for entry in judgement.ledger if entry.open is True]
    if opened:
        yield paragraph(f"open: {', '.join(opened)}")
    for entry in judgement.ledger:
        if entry.open is not True:
            state = "closed" if entry.open is False else shown(entry.open)
            line = Text(f"{plain(entry.door)}: {state}", "magenta")
            line.append(f": {plain(entry.detail)}", "default")
            yield Indented(line, 0)
            if entry.unknown_findings:
                yield paragraph(f"unknown: {view.named(entry.unknown_findings)}", "dim", by=2)
            continue
        unseen = view.reasons_unseen(judgement, entry)
        for finding in unseen[: view.MOST_IDS]:
            yield paragraph(f"{entry.door}, open, and yet unknown: {finding.id}: {finding.detail}", "dim")
        if len(unseen) > view.MOST_IDS:
            yield paragraph(f"{entry.door}, open, and yet unknown: {len(unseen) - view.MOST_IDS} more", "dim")


class Indented:
    """Text that keeps its distance from the edge on every line, without blanks at their ends."""

    def __init__(self, text: Text, by: int) -> None:
        self._text, self._by = text, by

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self._text.wrap(console, max(options.max_width - self._by, 10)):
            line.rstrip()
            yield Text(" " * self._by).append(line)


class _Whole:
    """Text that is never broken, so that a command or a path can be copied."""

    def __init__(self, words: str) -> None:
        self._words = plain(words)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Segment(self._words)
        yield Segment.line()


def heading(title: str) -> RenderableType:
    return Text(f"\n{title}", "bold underline")


def paragraph(words: str, style: str = "", by: int = 0) -> RenderableType:
    return Indented(_text(words, style), by)


def _text(words: str, style: str = "") -> Text:
    return Text(plain(words), style)

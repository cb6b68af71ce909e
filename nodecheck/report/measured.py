"""Measurements as tables: cards side by side, pairs as a matrix; for a terminal, and plain lines for a pipe."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from nodecheck.facts import Measurements, Node
from nodecheck.facts.measurements import Check, Figure
from nodecheck.report.figures import STAGES, spread
from nodecheck.report.text import conditions, number, plain

ALGBW = ".algbw"
"""Left out of the tables: busbw is algbw times a factor; JSON has both."""


@dataclass(frozen=True)
class Sheet:
    """One table, in words."""

    title: str
    header: tuple[str, ...]
    """The first column holds what was measured, the second the conditions, unless it is a matrix."""
    rows: tuple[tuple[str, ...], ...]


def show(node: Node, measurements: Measurements) -> None:
    """On stdout."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A locale without our signs costs the signs, not the figures.
        sys.stdout.reconfigure(errors="backslashreplace")
    labels = {card.key: card.short_name for card in node.known_cards}
    label: Callable[[str], str] = lambda key: labels.get(key, key)  # noqa: E731
    console = Console(file=sys.stdout)
    for sheet in sheets(measurements, label):
        if console.is_terminal:
            console.print(_table(sheet))
        else:
            print("\n".join(_lines(sheet)), end="\n\n")
    for sentence in remarks(measurements, label):
        print(plain(sentence))


def sheets(measurements: Measurements, label: Callable[[str], str]) -> Iterator[Sheet]:
    """A table for each stage that has figures, and one for each measure of pairs."""
    for stage, name in STAGES.items():
        title = name.capitalize()
        figures = [
            figure
            for figure in measurements.figures
            if figure.stage == stage and not figure.measure.endswith(ALGBW)
        ]
        pairs = [figure for figure in figures if figure.subject == "pair"]
        for measure in dict.fromkeys(figure.measure for figure in pairs):
            yield _matrix(title, [figure for figure in pairs if figure.measure == measure], label)
        groups = [figure for figure in figures if figure.subject == "group"]
        cards = [figure for figure in figures if figure.subject not in ("pair", "group")]
        for others, about in ((groups, title), (cards, f"{title}: each rank" if groups else title)):
            if others:
                yield _side_by_side(about, others, label)


def _side_by_side(title: str, figures: Sequence[Figure], label: Callable[[str], str]) -> Sheet:
    columns = tuple(dict.fromkeys(_subject(figure, label) for figure in figures))
    found: dict[tuple[str, str, str], dict[str, Figure]] = {}
    for figure in figures:
        key = (figure.measure, conditions(figure.at), figure.unit)
        found.setdefault(key, {})[_subject(figure, label)] = figure
    rows = []
    for (measure, at, unit), by_subject in found.items():
        cells = (number(by_subject[column].median) if column in by_subject else "" for column in columns)
        rows.append((measure, at, unit, *cells, spread(by_subject.values())))
    return Sheet(title, ("measure", "at", "unit", *columns, "spread"), tuple(rows))


def _matrix(title: str, figures: Sequence[Figure], label: Callable[[str], str]) -> Sheet:
    first = figures[0]
    keys = tuple(dict.fromkeys(card for figure in figures for card in figure.cards))
    cells = {figure.cards: number(figure.median) for figure in figures}
    rows = tuple((label(own), *(cells.get((own, peer), "") for peer in keys)) for own in keys)
    about = ", ".join(part for part in (first.measure, conditions(first.at), first.unit) if part)
    return Sheet(f"{title}: {about}", ("from \\ to", *map(label, keys)), rows)


def remarks(measurements: Measurements, label: Callable[[str], str]) -> Iterator[str]:
    """What the tables do not show: whether the data was right, what did not run, and how the data went."""
    checks: dict[str, list[Check]] = {}
    for check in measurements.checks:
        checks.setdefault(check.check, []).append(check)
    for name, found in checks.items():
        wrong = [check for check in found if check.wrong]
        compared = sum(check.compared for check in found)
        if not compared:
            yield f"{name}: nothing was compared"
        elif not wrong:
            yield f"{name}: {compared:,} compared, all right"
        for check in wrong:
            where = check.name or ", ".join(map(label, check.cards))
            example = f"; {check.examples[0]}" if check.examples else ""
            yield f"{name}: WRONG on {where}: {check.wrong:,} of {check.compared:,}{example}"
    for transport in measurements.transports:
        ways = ", ".join(transport.paths) or "nobody knows how"
        yield f"{transport.library or 'the library'}, {transport.name}: {ways}"
    for run in measurements.stages:
        if run.status != "done":
            where = ", ".join(map(label, run.cards)) or "disks"
            why = run.detail.partition("\n")[0] or "no reason is known"
            yield f"{run.stage} on {where}: {run.status.replace('_', ' ')}: {why}"
    if measurements.dropped:
        yield f"Left out for the time budget: {', '.join(measurements.dropped)}"
    yield f"Measured in {measurements.seconds:.1f} s."


def _subject(figure: Figure, label: Callable[[str], str]) -> str:
    if figure.subject == "card":
        return label(figure.cards[0])
    return figure.name or ", ".join(map(label, figure.cards))


def _table(sheet: Sheet) -> Table:
    table = Table(title=Text(plain(sheet.title)), title_justify="left", header_style="bold")
    left = 2 if sheet.header[0] == "measure" else 1
    for place, name in enumerate(sheet.header):
        table.add_column(Text(plain(name)), justify="left" if place < left else "right")
    for row in sheet.rows:
        table.add_row(*(Text(plain(cell)) for cell in row))
    return table


def _lines(sheet: Sheet) -> Iterator[str]:
    """Columns apart by two spaces; a line is a row however long it is, so that it can be searched."""
    lines = [tuple(map(plain, line)) for line in (sheet.header, *sheet.rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    left = 2 if sheet.header[0] == "measure" else 1
    yield plain(sheet.title)
    for line in lines:
        cells = (
            cell.ljust(width) if place < left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()

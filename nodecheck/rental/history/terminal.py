"""The history on a terminal."""

from __future__ import annotations

import io
from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.text import Text

from nodecheck.rental.history import History
from nodecheck.rental.history.view import (
    Story,
    Trend,
    clock,
    emptiness,
    headlines,
    seen_once,
    span,
    still,
    stories,
    trends,
)
from nodecheck.report.terminal import STYLES, Indented, heading, paragraph, print_blocks, stdout
from nodecheck.report.text import brief, plain, plural, unmarked
from nodecheck.report.view import STATUSES

_BLOCKS = "▁▂▃▄▅▆▇█"
_DIGITS = "12345678"
"""Where the terminal's encoding has no blocks."""
_STRETCHES = 18
_LABEL = 20
_MOST_STORIES = 40
_MOST_TRENDS = 96
_LONGEST_TEXT = 300


def render(history: History) -> str:
    """The history as text, 80 columns wide and without colour."""
    stream = io.StringIO()
    print_blocks(
        Console(file=stream, width=80, color_system=None, force_terminal=False), _blocks(history, _BLOCKS)
    )
    return stream.getvalue()


def show(history: History) -> None:
    """The history on stdout."""
    console = stdout()
    if console is not None:
        print_blocks(console, _blocks(history, _signs(console)))


def _signs(console: Console) -> str:
    try:
        _BLOCKS.encode(console.encoding)
    except (LookupError, UnicodeEncodeError):
        return _DIGITS
    return _BLOCKS


def _blocks(history: History, signs: str) -> Iterator[RenderableType]:
    if history.empty:
        yield paragraph(unmarked(emptiness(history)))
    else:
        yield from _told(history, signs)
    for note in history.notes:
        yield paragraph(note, "yellow")


def _told(history: History, signs: str) -> Iterator[RenderableType]:
    took = span(history.ends - history.begins)
    title = f"{history.host} from {clock(history.begins)} to {clock(history.ends)} UTC ({took})"
    yield paragraph(title, "bold")
    for sentence in headlines(history):
        yield paragraph(sentence)
    going_on, over = stories(history)
    for name, told in (("Going on", going_on), ("Over", over)):
        if told:
            yield heading(name)
        for story in told[:_MOST_STORIES]:
            yield from _story(story)
        if len(told) > _MOST_STORIES:
            yield paragraph(f"and {len(told) - _MOST_STORIES} more: see --format html")
    if not going_on and not over:
        yield paragraph("Nothing was found that is not right.", "green")
    yield from _trends(history, signs)


def _story(story: Story) -> Iterator[RenderableType]:
    finding = story.finding
    line = Text(f"{STATUSES[finding.status]:8}", STYLES[finding.status])
    line.append(brief(f"{finding.id}  {finding.subject.label}", _LONGEST_TEXT), "bold")
    yield Indented(line, 0)
    yield paragraph(story.when, by=2)
    yield paragraph(brief(finding.detail, _LONGEST_TEXT), "dim", by=2)


def _trends(history: History, signs: str) -> Iterator[RenderableType]:
    left = _MOST_TRENDS
    for name, group in trends(history, _STRETCHES).items():
        if left <= 0:
            break
        yield heading(brief(name, _LONGEST_TEXT))
        for trend in group[:left]:
            yield _line(trend, signs)
        left -= len(group)
    if unchanged := still(history):
        yield heading("Without change")
        for name, value in unchanged[:_MOST_STORIES]:
            yield paragraph(f"{brief(name, _LONGEST_TEXT)}: {brief(value, _LONGEST_TEXT)}", by=2)
    if once := seen_once(history):
        yield Text()
        yield paragraph(f"{plural(once, 'figure')} measured once: they stand in the report.", "dim")
    if left < 0:
        yield paragraph("More figures and readings: see --format html", "dim")


def _line(trend: Trend, signs: str) -> RenderableType:
    label = brief(trend.series.subject.label, _LABEL)
    graph = "".join(" " if value is None else _sign(trend.height(value), signs) for value in trend.stretches)
    line = Text(f"{label:{_LABEL}}  ").append(graph, "cyan")
    return Indented(line.append(f"  {plain(trend.between)}, now {plain(trend.now)}"), 2)


def _sign(height: float, signs: str) -> str:
    return signs[min(int(height * len(signs)), len(signs) - 1)]

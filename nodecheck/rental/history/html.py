"""The history as one HTML page that needs nothing else: no script, no font, no picture from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cache

from jinja2 import Template

from nodecheck.judge import Status
from nodecheck.rental.history import History, view
from nodecheck.rental.history.view import Story, Trend
from nodecheck.report.html import environment
from nodecheck.report.text import brief
from nodecheck.report.view import STATUSES

TEMPLATE = "history.html.j2"
_MOST_STORIES = 60
_MOST_LIVES = 200
"""Episodes of one finding that are drawn, the newest."""
_MOST_TRENDS = 240
_STRETCHES = 120

_WIDTH, _LEFT, _RIGHT, _TOP, _ROW = 920.0, 360.0, 14.0, 26.0, 22.0
_LABEL = 54
"""Characters that fit to the left."""
_TICKS = 4
_CURVE_WIDTH, _CURVE_HEIGHT, _MARGIN = 260.0, 48.0, 5.0


def render(history: History) -> str:
    """The page; every text is escaped where it is put in."""
    going_on, over = view.stories(history)
    trends = view.trends(history, _STRETCHES)
    left, shown = _MOST_TRENDS, {}
    for name, group in trends.items():
        if left > 0:
            shown[name] = tuple((trend, curve(trend)) for trend in group[:left])
        left -= len(group)
    return _template().render(
        history=history,
        view=view,
        going_on=going_on[:_MOST_STORIES],
        over=over[:_MOST_STORIES],
        more=len(going_on[_MOST_STORIES:]) + len(over[_MOST_STORIES:]),
        timeline=timeline(history, (*going_on, *over)[:_MOST_STORIES]),
        trends=shown,
        trends_left_out=max(-left, 0),
        statuses=STATUSES,
    )


@cache
def _template() -> Template:
    return environment("nodecheck.rental.history").get_template(TEMPLATE)


@dataclass(frozen=True)
class Life:
    """An episode. Lengths are in the drawing's own units, here and below."""

    x: float
    width: float
    status: Status
    note: str


@dataclass(frozen=True)
class Row:
    y: float
    label: str
    lives: tuple[Life, ...]


@dataclass(frozen=True)
class Mark:
    """An acceptance, or a start of the machine."""

    x: float
    kind: str
    note: str


@dataclass(frozen=True)
class Tick:
    x: float
    label: str
    anchor: str


@dataclass(frozen=True)
class Timeline:
    width: float
    height: float
    left: float
    top: float
    foot: float
    rows: tuple[Row, ...]
    marks: tuple[Mark, ...]
    ticks: tuple[Tick, ...]


def timeline(history: History, stories: tuple[Story, ...]) -> Timeline | None:
    """Each finding's episodes from left to right; None where there are none."""
    if not stories:
        return None
    begins, whole = history.begins, max((history.ends - history.begins).total_seconds(), 1.0)
    room = _WIDTH - _LEFT - _RIGHT

    def x(at: datetime) -> float:
        return _LEFT + min(max((at - begins).total_seconds() / whole, 0.0), 1.0) * room

    def lives(story: Story) -> Iterator[Life]:
        for episode in story.episodes[-_MOST_LIVES:]:
            start, end = x(episode.first_seen), x(episode.last_seen)
            yield Life(
                min(start, _WIDTH - _RIGHT - 3),
                max(end - start, 3.0),
                episode.finding.status,
                Story((episode,)).when,
            )

    rows = tuple(
        Row(
            _TOP + i * _ROW,
            brief(f"{story.finding.id} · {story.finding.subject.label}", _LABEL),
            tuple(lives(story)),
        )
        for i, story in enumerate(stories)
    )
    marks = (
        *(
            Mark(x(each.at), "accepted", f"{each.verdict.value} {view.clock(each.at)}")
            for each in history.acceptances
        ),
        *(
            Mark(x(each.first_seen), "reboot", f"started again {view.clock(each.first_seen)}")
            for each in history.reboots
        ),
    )
    ticks = tuple(
        Tick(
            _LEFT + room * i / _TICKS,
            view.clock(begins + (history.ends - begins) * i / _TICKS),
            "start" if i == 0 else "end" if i == _TICKS else "middle",
        )
        for i in range(0, _TICKS + 1, 2)
    )
    foot = _TOP + len(rows) * _ROW
    return Timeline(_WIDTH, foot + 6, _LEFT, _TOP, foot, rows, marks, ticks)


@dataclass(frozen=True)
class Curve:
    width: float
    height: float
    path: str
    end: tuple[float, float]


def curve(trend: Trend) -> Curve:
    """One series as a line, with gaps where nothing was read for longer than usual."""
    stretches = trend.stretches
    across = (_CURVE_WIDTH - 2 * _MARGIN) / (len(stretches) - 1)
    usual = len(stretches) / sum(value is not None for value in stretches)
    path, before, end = "", -len(stretches), (0.0, 0.0)
    for place, value in enumerate(stretches):
        if value is None:
            continue
        x = round(_MARGIN + place * across, 1)
        y = round(_CURVE_HEIGHT - _MARGIN - trend.height(value) * (_CURVE_HEIGHT - 2 * _MARGIN), 1)
        # A point alone is a line of no length, which a round pen shows.
        path += f" L {x} {y}" if place - before <= 3 * usual else f" M {x} {y} h 0"
        before, end = place, (x, y)
    return Curve(_CURVE_WIDTH, _CURVE_HEIGHT, path.strip(), end)

"""Where everything stands in the plots of the measurements; the HTML template turns it into SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log2, log10

from nodecheck.judge import Status
from nodecheck.report.figures import Beside, Curve, Figures
from nodecheck.report.text import number, plural, small_size

MOST_BARS = 32
MOST_SERIES = 6
"""More than that nobody can tell apart."""

_CURVE_HEIGHT = 230.0
_LEFT, _RIGHT, _TOP, _FOOT = 46.0, 24.0, 12.0, 26.0

_BARS_WIDTH = 340.0
_BARS_LEFT, _BARS_RIGHT, _BARS_TOP, _ROW = 52.0, 98.0, 12.0, 19.0

_SHAPES = (
    "m -4.5 0 a 4.5 4.5 0 1 0 9 0 a 4.5 4.5 0 1 0 -9 0 z",
    "m -3 -3 h 6 v 6 h -6 z",
    "m 0 -4.2 l 4.2 7.4 h -8.4 z",
    "m 0 -4.6 l 4.6 4.6 l -4.6 4.6 l -4.6 -4.6 z",
    "m 0 4.2 l 4.2 -7.4 h -8.4 z",
    "m -4.2 -1.3 h 2.9 v -2.9 h 2.6 v 2.9 h 2.9 v 2.6 h -2.9 v 2.9 h -2.6 v -2.9 h -2.9 z",
)
"""Circle, square, triangle, diamond, triangle upside down, cross."""


@dataclass(frozen=True)
class Tick:
    at: float
    label: str


@dataclass(frozen=True)
class Symbol:
    """A measured point."""

    path: str
    status: Status
    note: str


@dataclass(frozen=True)
class Line:
    label: str
    kind: int
    """Colour, dashes and symbol."""
    path: str
    symbols: tuple[Symbol, ...]


@dataclass(frozen=True)
class Promise:
    """A short line at one size: what the profile says there."""

    path: str
    kind: str
    """`typical`, `warns`, `fails`."""
    note: str


@dataclass(frozen=True)
class CurvePlot:
    collective: str
    width: float
    height: float
    left: float
    right: float
    foot: float
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    lines: tuple[Line, ...]
    promises: tuple[Promise, ...]
    more: str
    """Of series that are not drawn."""


@dataclass(frozen=True)
class Bar:
    y: float
    width: float
    label: str
    text: str
    status: Status
    note: str


@dataclass(frozen=True)
class BarPlot:
    """One measure of all cards, from zero on."""

    beside: Beside
    width: float
    height: float
    left: float
    top: float
    foot: float
    text_at: float
    bars: tuple[Bar, ...]
    typical: float | None
    warns: float | None
    fails: float | None
    usual: float | None
    """Where the lines stand."""
    more: str


def curve_plot(curve: Curve, *, width: float = 440.0) -> CurvePlot:
    """The curves of one collective: sizes in powers of two across, GB/s up."""
    shown = curve.series[:MOST_SERIES]
    sizes = sorted({point.size_bytes for series in shown for point in series.points})
    first, last = log2(sizes[0]), log2(sizes[-1])
    if last - first < 1:
        first, last = first - 1, last + 1
    values = [point.value for series in shown for point in series.points]
    for mark in curve.marks:
        values += [mark.typical, *(limit for limit in (mark.limits.warn, mark.limits.fail) if limit)]
    step, top = _scale(max(values))
    right, foot = width - _RIGHT, _CURVE_HEIGHT - _FOOT

    def x(size_bytes: int) -> float:
        return _LEFT + (log2(size_bytes) - first) / (last - first) * (right - _LEFT)

    def y(value: float) -> float:
        return foot - min(max(value / top, 0.0), 1.0) * (foot - _TOP)

    lines = tuple(
        Line(
            series.label,
            kind,
            "M " + " L ".join(f"{x(p.size_bytes):.1f} {y(p.value):.1f}" for p in series.points),
            tuple(Symbol(symbol(kind, x(p.size_bytes), y(p.value)), p.status, p.note) for p in series.points),
        )
        for kind, series in enumerate(shown)
    )
    promises = tuple(
        Promise(
            f"M {max(x(mark.size_bytes) - 12, _LEFT):.1f} {y(value):.1f} "
            f"H {min(x(mark.size_bytes) + 12, width):.1f}",
            kind,
            f"profile, {small_size(mark.size_bytes)}: {kind} {number(value)} GB/s",
        )
        for mark in curve.marks
        for kind, value in (
            ("typical", mark.typical),
            ("warns", mark.limits.warn),
            ("fails", mark.limits.fail),
        )
        if value is not None
    )
    left_out = len(curve.series) - len(shown)
    return CurvePlot(
        curve.collective,
        width,
        _CURVE_HEIGHT,
        _LEFT,
        right,
        foot,
        tuple(
            Tick(x(2**power), small_size(2**power))
            for power in _powers(first, last, 11 if width > 600 else 5)
        ),
        tuple(Tick(y(i * step), f"{i * step:g}") for i in range(round(top / step) + 1)),
        lines,
        promises,
        f"{plural(left_out, 'series')} more in the table" if left_out else "",
    )


def _powers(first: float, last: float, most: int) -> range:
    """The powers of two that are named."""
    low, high = max(ceil(first - 1e-9), 0), floor(last + 1e-9)
    step = max(1, ceil((high - low + 1) / most))
    return range(low, high + 1, next((each for each in (step, step + 1) if (high - low) % each == 0), step))


def _scale(most: float) -> tuple[float, float]:
    """The step of the axis, 1, 2 or 5 times a power of ten, and its end."""
    if not 0 < most < 1e300:
        most = 1.0 if most <= 0 else 1e300
    power = 10.0 ** floor(log10(most / 4))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor * 5 >= most)
    return step, step * max(1, ceil(most / step - 1e-9))


def symbol(kind: int, x: float, y: float) -> str:
    """Another shape for each series, so that they differ without colours, too."""
    return f"M {x:.1f} {y:.1f} {_SHAPES[kind]}"


def bar_plot(figures: Figures, beside: Beside) -> BarPlot:
    """Bars from zero on, so that their lengths compare as the figures do."""
    measured = [(key, beside.figures[key]) for key in figures.keys if key in beside.figures]
    shown = measured[:MOST_BARS]
    marks = (beside.typical, beside.limits.warn, beside.limits.fail, beside.usual)
    top = max((*(figure.median for _, figure in shown), *(mark for mark in marks if mark is not None)))
    top = min(max(top, 1e-300), 1e300)
    room = _BARS_WIDTH - _BARS_LEFT - _BARS_RIGHT

    def along(value: float) -> float:
        return min(max(value / top, 0.0), 1.0) * room

    def place(value: float | None) -> float | None:
        return None if value is None else _BARS_LEFT + along(value)

    bars = tuple(
        Bar(
            _BARS_TOP + i * _ROW,
            along(figure.median),
            _cut(figures.label(key)),
            number(figure.median),
            figures.status(figure),
            figures.note(figure),
        )
        for i, (key, figure) in enumerate(shown)
    )
    foot = _BARS_TOP + len(bars) * _ROW
    return BarPlot(
        beside,
        _BARS_WIDTH,
        foot + 10,
        _BARS_LEFT,
        _BARS_TOP,
        foot,
        _BARS_LEFT + room + 8,
        bars,
        place(beside.typical),
        place(beside.limits.warn),
        place(beside.limits.fail),
        place(beside.usual),
        f"and {len(measured) - len(shown)} more" if len(measured) > len(shown) else "",
    )


def _cut(text: str, longest: int = 7) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def samples(plot: CurvePlot) -> Sequence[tuple[Line, str]]:
    """The lines for the legend, each with its symbol."""
    return [(line, symbol(line.kind, 14, 6)) for line in plot.lines]

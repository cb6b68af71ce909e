"""What every form of the history shows: the findings' lives, and how figures and readings went."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median_low

from nodecheck.judge import Finding, Subject
from nodecheck.rental.history import History
from nodecheck.rental.state import Episode, Series
from nodecheck.report.text import number, plural, shown, unit_words


@dataclass(frozen=True)
class Story:
    """A finding with all its episodes."""

    episodes: tuple[Episode, ...]
    """Oldest first."""

    @property
    def last(self) -> Episode:
        return self.episodes[-1]

    @property
    def finding(self) -> Finding:
        """As it was last."""
        return self.last.finding

    @property
    def when(self) -> str:
        """`since …`, `from … to …`; of several episodes, how many there were."""
        last = self.last
        if not last.over:
            told = f"since {clock(last.first_seen)}, last seen {clock(last.last_seen)}"
        elif last.first_seen == last.last_seen:
            told = f"seen once, {clock(last.last_seen)}"
        else:
            took = span(last.last_seen - last.first_seen)
            told = f"from {clock(last.first_seen)} to {clock(last.last_seen)} ({took})"
        if len(self.episodes) > 1:
            told += f"; {len(self.episodes)} times since {clock(self.episodes[0].first_seen)}"
        return told


def stories(history: History) -> tuple[tuple[Story, ...], tuple[Story, ...]]:
    """The findings that are there now, and those that are over, each in the order of the history."""
    found: dict[tuple[str, str], list[Episode]] = {}
    for episode in history.episodes:
        found.setdefault((episode.finding.id, episode.finding.subject.key), []).append(episode)
    told = [
        Story(tuple(sorted(episodes, key=lambda episode: episode.first_seen))) for episodes in found.values()
    ]
    return tuple(story for story in told if not story.last.over), tuple(
        story for story in told if story.last.over
    )


@dataclass(frozen=True)
class Trend:
    """How one series went, in stretches of equal time."""

    series: Series
    stretches: tuple[float | None, ...]
    """Of each stretch the median; None where there is no value."""

    @property
    def low(self) -> float:
        return min(value for _, value in self.series.points)

    @property
    def high(self) -> float:
        return max(value for _, value in self.series.points)

    @property
    def between(self) -> str:
        """`36 to 71 °C`."""
        low, high = words(self.low, self.series.unit), words(self.high, self.series.unit)
        if low == high:
            return low
        amount, _, unit = low.partition(" ")
        return f"{amount if high.endswith(f' {unit}') else low} to {high}"

    @property
    def now(self) -> str:
        return words(self.series.points[-1][1], self.series.unit)

    def height(self, value: float) -> float:
        """Of a value between the lowest, 0, and the highest, 1; 0.5 where there is but one."""
        reach = self.high - self.low
        return (value - self.low) / reach if 0 < reach < float("inf") else 0.5


def trends(history: History, count: int) -> dict[str, tuple[Trend, ...]]:
    """Every series that changed, by its name."""
    found: dict[str, list[Trend]] = {}
    for series in history.series:
        if len({value for _, value in series.points}) > 1:
            stretches = _stretches(series, history.begins, history.ends, count)
            found.setdefault(series.name, []).append(Trend(series, stretches))
    return {name: tuple(each) for name, each in sorted(found.items())}


def still(history: History) -> tuple[tuple[str, str], ...]:
    """Readings that stayed as they were: name, and value with subjects."""
    found: dict[str, dict[str, list[Subject]]] = {}
    for series in history.series:
        values = {value for _, value in series.points}
        if len(values) == 1 and len(series.points) > 1:
            told = words(values.pop(), series.unit)
            found.setdefault(series.name, {}).setdefault(told, []).append(series.subject)
    return tuple(
        (name, "; ".join(f"{value} ({_subjects(subjects)})" for value, subjects in values.items()))
        for name, values in sorted(found.items())
    )


def seen_once(history: History) -> int:
    """How many figures and readings have no past to compare with."""
    return sum(len(series.points) == 1 for series in history.series)


def _subjects(subjects: list[Subject]) -> str:
    if len(subjects) > 2:
        return plural(len(subjects), subjects[0].kind)
    return ", ".join(subject.label for subject in subjects)


def _stretches(series: Series, begins: datetime, ends: datetime, count: int) -> tuple[float | None, ...]:
    whole = max((ends - begins).total_seconds(), 1e-6)
    found: list[list[float]] = [[] for _ in range(count)]
    for at, value in series.points:
        place = int((at - begins).total_seconds() / whole * count)
        found[min(max(place, 0), count - 1)].append(value)
    return tuple(median_low(values) if values else None for values in found)


_SIGNS = {
    "celsius": ("°C", 1.0),
    "watts": ("W", 1.0),
    "joules": ("J", 1.0),
    "volts": ("V", 1.0),
    "amperes": ("A", 1.0),
    "hertz": ("MHz", 1e-6),
    "seconds": ("s", 1.0),
    "ratio": ("%", 100.0),
    "percent": ("%", 1.0),
}


def words(value: float, unit: str) -> str:
    """A figure or a reading with its unit: `4297 GB/s`, `71 °C`, `140.4 GiB`."""
    if unit == "bytes":
        return shown(value, unit)
    if unit in _SIGNS:
        sign, factor = _SIGNS[unit]
        return f"{value * factor:.6g} {sign}"
    return f"{number(value)} {unit_words(unit)}" if unit else f"{value:.12g}"


def clock(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M}"


def span(time: timedelta) -> str:
    """`45 min`, `2 h 10 min`, `3 d 4 h`."""
    minutes = int(time.total_seconds()) // 60
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def headlines(history: History) -> Iterable[str]:
    """What there is to tell beside the findings, a sentence each."""
    if history.checks is not None:
        checks = history.checks
        active = f", {checks.active} of them active" if checks.active else ""
        yield (
            f"{plural(checks.passive + checks.active, 'check')}{active}, the last {clock(checks.last_at)} UTC: "
            f"{checks.last_status.value}."
        )
    for accepted in history.acceptances:
        at, digest = clock(accepted.at), f"SHA-256 of the report {accepted.sha256[:12]}…"
        yield f"{accepted.verdict.value} as {accepted.profile} {at} UTC ({digest})."
    for boot in history.reboots:
        booted = f" {clock(boot.at)} UTC" if boot.at else ""
        yield f"The machine was started again{booted}, first seen {clock(boot.first_seen)} UTC."


def emptiness(history: History) -> str:
    """Why there is nothing to show."""
    since = f" since {clock(history.since)} UTC" if history.since else " yet"
    return (
        f"Nothing is remembered of {history.host}{since}: its history begins with `nodecheck accept` and "
        "`nodecheck check`."
    )

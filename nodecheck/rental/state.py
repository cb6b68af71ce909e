"""What is remembered of this node between one run and the next."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from pathlib import Path

from nodecheck.facts import Fact, Node
from nodecheck.facts.measurements import Figure
from nodecheck.judge import Finding, Subject
from nodecheck.rental.result import Change, CheckResult
from nodecheck.report.document import Report


class StateError(Exception):
    """The state cannot be read or written, in one sentence."""


class Terms(Fact):
    """What the renter said of the rental when the node was accepted."""

    ends_at: datetime | None = None
    """UTC."""
    keep: tuple[str, ...] = ()
    """Absolute paths of what must not be lost with the node."""


class Acceptance(Fact):
    """The last report of this node that was accepted."""

    report: Report
    sha256: str
    """Of its report.json."""
    terms: Terms


class Look(Fact):
    """The last check: what the next one counts from."""

    node: Node
    findings: tuple[Finding, ...]


class Episode(Fact):
    """A finding from the check that first saw it to the last that did."""

    finding: Finding
    """As it was last."""
    first_seen: datetime
    last_seen: datetime
    over: bool
    """A later check did not find it."""


class Series(Fact):
    """One figure or reading over time."""

    name: str
    """A figure's measure with its conditions, or a reading's name."""
    subject: Subject
    unit: str
    points: tuple[tuple[datetime, float], ...]
    """Oldest first."""


class State:
    """The state of one node, in a file of its own, named by the host; used by one process at a time (`lock`)."""

    def __init__(self, folder: Path | None = None, host: str | None = None) -> None:
        """Open it, or make it. `folder` is platformdirs' state folder unless given. Raises `StateError`."""
        raise NotImplementedError

    def accept(self, report: Report, terms: Terms) -> None:
        """Take an accepted report for the baseline. Raises `StateError`."""
        raise NotImplementedError

    def acceptance(self) -> Acceptance | None:
        raise NotImplementedError

    def last_look(self) -> Look | None:
        raise NotImplementedError

    def changes(self, findings: Collection[Finding], at: datetime) -> tuple[Change, ...]:
        """How these findings differ from the last check's. Writes nothing."""
        raise NotImplementedError

    def record(self, result: CheckResult, node: Node) -> None:
        """Remember a check, whole or not at all, and prune what is old. Raises `StateError`."""
        raise NotImplementedError

    def episodes(self, since: datetime | None = None) -> tuple[Episode, ...]:
        """Every finding that was not right, by its first sight."""
        raise NotImplementedError

    def series(self, since: datetime | None = None) -> tuple[Series, ...]:
        """Figures (of acceptances and active checks) and readings over time."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


def figure_name(figure: Figure) -> str:
    """One name for a measure under its conditions, the same in every run."""
    raise NotImplementedError

"""What is remembered of this node between one run and the next: an SQLite file, written whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import os
import sqlite3
import struct
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from nodecheck.facts import Absent, Fact, Node, or_none
from nodecheck.facts.measurements import Figure
from nodecheck.judge import Finding, Status, Subject, Verdict
from nodecheck.probes.mounts import kind_of, mounts
from nodecheck.rental.episodes import Gravity, Ongoing, Step, changes, steps
from nodecheck.rental.place import StateError as StateError
from nodecheck.rental.place import make_folder, state_file
from nodecheck.rental.result import Change, CheckResult, Reading
from nodecheck.report.document import MAX_BYTES, Report, ReportError, dump, parse
from nodecheck.report.text import conditions
from nodecheck.sources import Files
from nodecheck.sources.files import live
from nodecheck.writing import reason

ENDING: Final = ".sqlite3"

BUSY_SECONDS = 5.0
"""How long one process waits for what another is writing."""
READINGS_WHOLE = timedelta(days=30)
"""Readings that are older are thinned to those of one check an hour."""
READINGS_KEPT = timedelta(days=180)
CHECKS_KEPT = timedelta(days=365)
EPISODES_KEPT = timedelta(days=365)
"""After they were last seen."""
MOST_EPISODES = 5000
"""That are over; a finding that comes and goes with every check would fill the disk within their year."""
MOST_POINTS = 1000
"""Of one reading, in a series."""
_DAMAGED_KEPT = 5
"""Damaged files that are left lying."""

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE documents (name TEXT PRIMARY KEY, body BLOB NOT NULL)",
        """CREATE TABLE acceptances (
            at INTEGER PRIMARY KEY, profile TEXT NOT NULL, verdict TEXT NOT NULL, sha256 TEXT NOT NULL)""",
        "CREATE TABLE checks (at INTEGER NOT NULL, kind TEXT NOT NULL, status TEXT NOT NULL)",
        "CREATE INDEX checks_by_time ON checks (at)",
        "CREATE TABLE boots (id TEXT PRIMARY KEY, at INTEGER, first_seen INTEGER NOT NULL)",
        """CREATE TABLE episodes (
            number INTEGER PRIMARY KEY, id TEXT NOT NULL, subject TEXT NOT NULL, gravity INTEGER NOT NULL,
            first_seen INTEGER NOT NULL, last_seen INTEGER NOT NULL, over INTEGER NOT NULL, finding TEXT NOT NULL)""",
        "CREATE UNIQUE INDEX open_episodes ON episodes (id, subject) WHERE over = 0",
        "CREATE TABLE layouts (number INTEGER PRIMARY KEY, columns TEXT NOT NULL UNIQUE)",
        """CREATE TABLE rows (
            at INTEGER NOT NULL, kept INTEGER NOT NULL, layout INTEGER NOT NULL, numbers BLOB NOT NULL)""",
        "CREATE INDEX rows_by_time ON rows (kept, at, layout)",
    ),
)
"""What makes each version of the file out of the one before.

Times are microseconds since 1970, UTC. A row holds the readings of one check (`kept` = 0), or the figures of an
acceptance or an active check (`kept` = 1), as compressed doubles in the order of its layout's columns.
"""

T = TypeVar("T")


class Terms(Fact):
    """What the renter said of the rental when the node was accepted."""

    ends_at: datetime | None = None
    """UTC."""
    keep: tuple[str, ...] = ()
    """Absolute paths of what must not be lost with the node."""
    copied_if: tuple[str, ...] = ()
    """A command that ends with 0 and prints nothing where `{path}` has been copied off the node; see `keeping`."""


@dataclass(frozen=True)
class Acceptance:
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


class Accepted(Fact):
    """That a report of this node was accepted."""

    at: datetime
    profile: str
    verdict: Verdict
    sha256: str
    """Of its report.json."""


class Checks(Fact):
    """How many checks ran, and the last of them."""

    passive: int
    active: int
    first_at: datetime
    last_at: datetime
    last_status: Status


class Boot(Fact):
    """A start of the machine."""

    at: datetime | None
    """None where it was not seen how long the machine had been up."""
    first_seen: datetime
    """By the first run after it."""


class State:
    """The state of one node, in a file of its own, named by the host; used by one process at a time (`lock`).

    Others may read meanwhile. A damaged file is set aside and a new one begun; `notes` says so, and what else could
    not be read, in a sentence each.
    """

    def __init__(self, folder: Path | None = None, host: str | None = None) -> None:
        """Open it, or make it. `folder` is platformdirs' state folder unless given. Raises `StateError`."""
        self.path = state_file(ENDING, folder, host)
        self.notes: list[str] = []
        make_folder(self.path.parent)
        self._connection = _connect(self.path)
        self._run(self._prepare)

    def accept(self, report: Report, terms: Terms) -> None:
        """Take an accepted report for the baseline. Raises `StateError`."""
        document = dump(report).encode()
        at = _micro(report.created_at)
        sha256 = hashlib.sha256(document).hexdigest()
        figures = _figure_columns(report.facts)

        def write(db: sqlite3.Connection) -> None:
            _put(db, "acceptance", document)
            _put(db, "terms", terms.model_dump_json().encode())
            db.execute(
                "INSERT OR REPLACE INTO acceptances VALUES (?, ?, ?, ?)",
                (at, report.profile.name, report.judgement.verdict.value, sha256),
            )
            db.execute("DELETE FROM rows WHERE kept = 1 AND at = ?", (at,))
            _append(db, at, figures, kept=True)
            _remember_boot(db, report.facts)

        self._write(write)

    def acceptance(self) -> Acceptance | None:
        document, terms = self._document("acceptance"), self._document("terms")
        if document is None or terms is None:
            return None
        try:
            return Acceptance(
                report=parse(document, self.path),
                sha256=hashlib.sha256(document).hexdigest(),
                terms=Terms.model_validate_json(terms),
            )
        except (ReportError, ValidationError):
            self._note(
                f"The accepted report in {self.path} cannot be read by this version: accept the node again."
            )
            return None

    def last_look(self) -> Look | None:
        document = self._document("look")
        if document is None:
            return None
        try:
            return Look.model_validate_json(document)
        except ValidationError:
            self._note(
                f"The last check in {self.path} cannot be read by this version: what is counted from it begins anew."
            )
            return None

    def changes(self, findings: Collection[Finding], at: datetime) -> tuple[Change, ...]:
        """How these findings differ from the last check's. Writes nothing. Raises `StateError`."""
        return changes(self._run(self._ongoing), findings, at)

    def record(self, result: CheckResult, node: Node) -> None:
        """Remember a check, whole or not at all, and once an hour prune what is old. Raises `StateError`."""
        at = _micro(result.taken_at)
        look = Look(node=node, findings=result.findings).model_dump_json().encode()
        readings = _reading_columns(result.readings)
        figures = _figure_columns(node, result.figures)

        def write(db: sqlite3.Connection) -> None:
            for step in steps(self._ongoing(db), result.findings, result.taken_at):
                _take(db, step)
            _put(db, "look", look)
            (before,) = db.execute("SELECT MAX(at) FROM checks").fetchone()
            db.execute("INSERT INTO checks VALUES (?, ?, ?)", (at, result.kind, result.status.value))
            _append(db, at, readings, kept=False)
            _append(db, at, figures, kept=True)
            _remember_boot(db, node)
            if before is None or before // _HOUR != at // _HOUR:
                _prune(db, result.taken_at)

        self._write(write)

    def episodes(self, since: datetime | None = None) -> tuple[Episode, ...]:
        """Every finding that was not right, by its first sight. Raises `StateError`."""
        rows = self._all(
            "SELECT finding, first_seen, last_seen, over FROM episodes WHERE last_seen >= ? OR over = 0"
            " ORDER BY first_seen, number",
            _micro(since),
        )
        found = []
        for finding, first_seen, last_seen, over in rows:
            with self._passing_over():
                found.append(
                    Episode(
                        finding=Finding.model_validate_json(finding),
                        first_seen=_time(first_seen),
                        last_seen=_time(last_seen),
                        over=bool(over),
                    )
                )
        return tuple(found)

    def series(self, since: datetime | None = None) -> tuple[Series, ...]:
        """Figures (of acceptances and active checks) and readings over time; of many readings, `MOST_POINTS` that are
        evenly spread, the newest among them. Raises `StateError`."""
        start = _micro(since)
        first, last = self._all("SELECT MIN(at), MAX(at) FROM rows WHERE kept = 0 AND at >= ?", start)[0]
        apart = max(1, -(-(last - first) // (MOST_POINTS - 1))) if first is not None else 1
        layouts = dict(self._all("SELECT number, columns FROM layouts"))
        rows = self._all(
            "SELECT at, layout, numbers FROM rows WHERE kept = 1 AND at >= ?"
            # Of a group SQLite gives the row that holds the MAX.
            " UNION ALL SELECT MAX(at), layout, numbers FROM rows WHERE kept = 0 AND at >= ? GROUP BY at / ?"
            " ORDER BY 1",
            start,
            start,
            apart,
        )
        columns: dict[int, tuple[_Column, ...]] = {}
        found: dict[tuple[str, str, str], tuple[_Column, list[tuple[datetime, float]]]] = {}
        for at, layout, numbers in rows:
            with self._passing_over():
                if layout not in columns:
                    columns[layout] = _Layout.model_validate_json(layouts[layout]).columns
                time = _time(at)
                for column, value in zip(columns[layout], _unpacked(numbers), strict=True):
                    key = (column.name, column.subject.kind, column.subject.key)
                    _, points = found.get(key, (None, []))
                    points.append((time, value))
                    found[key] = (column, points)  # its label is the newest one
        return tuple(
            Series(name=column.name, subject=column.subject, unit=column.unit, points=tuple(points))
            for column, points in found.values()
        )

    def acceptances(self, since: datetime | None = None) -> tuple[Accepted, ...]:
        """Every acceptance, oldest first. Raises `StateError`."""
        rows = self._all(
            "SELECT at, profile, verdict, sha256 FROM acceptances WHERE at >= ? ORDER BY at", _micro(since)
        )
        found = []
        for at, profile, verdict, sha256 in rows:
            with self._passing_over():
                found.append(Accepted(at=_time(at), profile=profile, verdict=Verdict(verdict), sha256=sha256))
        return tuple(found)

    def checks(self, since: datetime | None = None) -> Checks | None:
        """How many checks ran; None if none did. Raises `StateError`."""
        start = _micro(since)
        last = self._all(
            "SELECT at, status FROM checks WHERE at >= ? ORDER BY at DESC, rowid DESC LIMIT 1", start
        )
        (first_at,) = self._all("SELECT MIN(at) FROM checks WHERE at >= ?", start)[0]
        counts = dict(self._all("SELECT kind, COUNT(*) FROM checks WHERE at >= ? GROUP BY kind", start))
        for at, status in last:
            with self._passing_over():
                return Checks(
                    passive=counts.get("passive", 0),
                    active=counts.get("active", 0),
                    first_at=_time(first_at),
                    last_at=_time(at),
                    last_status=Status(status),
                )
        return None

    def reboots(self, since: datetime | None = None) -> tuple[Boot, ...]:
        """Every start of the machine but the first that was seen, oldest first. Raises `StateError`."""
        found = []
        for at, first_seen in self._all("SELECT at, first_seen FROM boots ORDER BY first_seen")[1:]:
            with self._passing_over():
                if first_seen >= _micro(since):
                    found.append(Boot(at=None if at is None else _time(at), first_seen=_time(first_seen)))
        return tuple(found)

    def close(self) -> None:
        self._connection.close()

    def _prepare(self, db: sqlite3.Connection) -> None:
        """Bring the file to this version."""
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version > len(MIGRATIONS):
            raise StateError(
                f"{self.path} was written by a newer nodecheck (version {version} of the file, this one knows "
                f"{len(MIGRATIONS)}): use that one, or move the file away to begin anew"
            )
        if version == len(MIGRATIONS):
            db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
            return
        with _transaction(db):
            # Another process may have done it meanwhile.
            (version,) = db.execute("PRAGMA user_version").fetchone()
            for statement in (statement for step in MIGRATIONS[version:] for statement in step):
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")

    def _write(self, work: Callable[[sqlite3.Connection], None]) -> None:
        def whole(db: sqlite3.Connection) -> None:
            with _transaction(db):
                work(db)

        self._run(whole)

    def _all(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        return self._run(lambda db: db.execute(query, values).fetchall())

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do the work; where the file turns out to be damaged, on a new one. Raises `StateError`."""
        try:
            return work(self._connection)
        except _ERRORS as error:
            if not _tells_of_damage(error):
                raise self._trouble(error) from None
        try:
            self._begin_anew()
            return work(self._connection)
        except _ERRORS as error:
            raise self._trouble(error) from None

    def _trouble(self, error: Exception) -> StateError:
        return StateError(f"the state in {self.path} cannot be read or written: {error}")

    def _begin_anew(self) -> None:
        self._connection.close()
        aside = f"{self.path}.damaged-{datetime.now(timezone.utc):%Y%m%dT%H%M%SZ}"
        try:
            # The file itself last: a journal that stayed behind would be taken for the new one's.
            for ending in ("-wal", "-journal", "-shm", ""):
                with suppress(FileNotFoundError):
                    Path(f"{self.path}{ending}").replace(f"{aside}{ending}")
            for old in sorted(self.path.parent.glob(f"{self.path.name}.damaged-*"))[:-_DAMAGED_KEPT]:
                old.unlink(missing_ok=True)
        except OSError as error:
            raise StateError(f"{self.path} is damaged and cannot be moved away: {reason(error)}") from None
        self._note(
            f"The state in {self.path} was damaged: it lies in {aside} now, and what is remembered of this node begins "
            "anew; accept the node again to have a baseline."
        )
        self._connection = _connect(self.path)
        self._prepare(self._connection)

    def _note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)

    @contextmanager
    def _passing_over(self) -> Iterator[None]:
        """Leave out an entry that cannot be read, and say so."""
        try:
            yield
        except (ValueError, TypeError, KeyError, OverflowError, zlib.error, struct.error):
            self._note(f"Some entries in {self.path} cannot be read and are left out.")

    def _document(self, name: str) -> bytes | None:
        """None if there is none; empty if it cannot be read."""
        rows = self._all("SELECT body FROM documents WHERE name = ?", name)
        if not rows:
            return None
        try:
            return _inflated(rows[0][0])
        except (TypeError, zlib.error):
            return b""

    def _ongoing(self, db: sqlite3.Connection) -> dict[tuple[str, str], Ongoing]:
        rows = db.execute(
            "SELECT id, subject, gravity, first_seen, last_seen, finding FROM episodes WHERE over = 0 ORDER BY number"
        )
        found = {}
        for finding_id, subject, gravity, first_seen, last_seen, finding in rows.fetchall():
            with self._passing_over():
                found[finding_id, subject] = Ongoing(
                    Finding.model_validate_json(finding),
                    Gravity(gravity),
                    _time(first_seen),
                    _time(last_seen),
                )
        return found


def figure_name(figure: Figure) -> str:
    """One name for a measure under its conditions, the same in every run."""
    at = conditions(figure.at)
    return f"{figure.measure}, {at}" if at else figure.measure


class _Column(Fact):
    """What one number of a row is."""

    name: str
    unit: str
    subject: Subject


class _Layout(Fact):
    columns: tuple[_Column, ...]


_UNITS = ("celsius", "watts", "joules", "volts", "amperes", "hertz", "bytes", "seconds", "ratio", "percent")
"""With which the name of a reading may end."""


def _reading_columns(readings: Iterable[Reading]) -> list[tuple[_Column, float]]:
    found = []
    for reading in readings:
        ending = reading.name.removesuffix("_total").rpartition("_")[2]
        unit = ending if ending in _UNITS else ""
        found.append((_Column(name=reading.name, unit=unit, subject=reading.subject), reading.value))
    return found


def _figure_columns(node: Node, figures: Iterable[Figure] | None = None) -> list[tuple[_Column, float]]:
    """Of the node's own figures unless others are given."""
    if figures is None:
        figures = () if isinstance(node.measurements, Absent) else node.measurements.figures
    names = {card.key: card.short_name for card in node.known_cards}
    found = []
    for figure in figures:
        key = "+".join((*figure.cards, figure.name) if figure.name else figure.cards)
        label = figure.name or " – ".join(names.get(card, card) for card in figure.cards)
        subject = Subject(kind=figure.subject, key=key, label=label)
        found.append((_Column(name=figure_name(figure), unit=figure.unit, subject=subject), figure.median))
    return found


def _append(db: sqlite3.Connection, at: int, numbers: list[tuple[_Column, float]], *, kept: bool) -> None:
    # A value that was no number has become the reason for that (`Fact`).
    numbers = [(column, value) for column, value in numbers if isinstance(value, float)]
    if not numbers:
        return
    columns = _Layout(columns=tuple(column for column, _ in numbers)).model_dump_json()
    db.execute("INSERT OR IGNORE INTO layouts (columns) VALUES (?)", (columns,))
    (layout,) = db.execute("SELECT number FROM layouts WHERE columns = ?", (columns,)).fetchone()
    packed = zlib.compress(struct.pack(f"<{len(numbers)}d", *(value for _, value in numbers)))
    db.execute("INSERT INTO rows VALUES (?, ?, ?, ?)", (at, kept, layout, packed))


def _unpacked(body: bytes) -> tuple[float, ...]:
    raw = _inflated(body)
    return struct.unpack(f"<{len(raw) // 8}d", raw)


def _inflated(body: bytes) -> bytes:
    """Raises zlib.error, also for more than any report has."""
    inflater = zlib.decompressobj()
    raw = inflater.decompress(body, MAX_BYTES)
    if not inflater.eof:
        raise zlib.error("cut off, or too large")
    return raw


def _put(db: sqlite3.Connection, name: str, document: bytes) -> None:
    db.execute("INSERT OR REPLACE INTO documents VALUES (?, ?)", (name, zlib.compress(document)))


def _take(db: sqlite3.Connection, step: Step) -> None:
    key = (step.finding.id, step.finding.subject.key)
    if step.what == "gone":
        db.execute("UPDATE episodes SET over = 1 WHERE over = 0 AND id = ? AND subject = ?", key)
        return
    db.execute(
        # One that is going on and cannot be read would stand in the way of its successor.
        "DELETE FROM episodes WHERE over = 0 AND id = ? AND subject = ?",
        key,
    )
    db.execute(
        "INSERT INTO episodes (id, subject, gravity, first_seen, last_seen, over, finding)"
        " VALUES (?, ?, ?, ?, ?, 0, ?)",
        (
            *key,
            step.gravity,
            _micro(step.first_seen),
            _micro(step.last_seen),
            step.finding.model_dump_json(),
        ),
    )


def _remember_boot(db: sqlite3.Connection, node: Node) -> None:
    host = or_none(node.host)
    boot_id = or_none(host.boot_id) if host else None
    if boot_id is None:
        return
    at = node.at(0.0)
    db.execute(
        "INSERT OR IGNORE INTO boots VALUES (?, ?, ?)",
        (boot_id, None if isinstance(at, Absent) else _micro(at), _micro(node.taken_at)),
    )


def _prune(db: sqlite3.Connection, now: datetime) -> None:
    whole = _micro(now - READINGS_WHOLE)
    db.execute("DELETE FROM rows WHERE kept = 0 AND at < ?", (_micro(now - READINGS_KEPT),))
    db.execute(
        "DELETE FROM rows WHERE kept = 0 AND at < ? AND rowid NOT IN"
        " (SELECT MIN(rowid) FROM rows WHERE kept = 0 AND at < ? GROUP BY at / ?)",
        (whole, whole, _HOUR),
    )
    db.execute("DELETE FROM layouts WHERE number NOT IN (SELECT layout FROM rows)")
    db.execute("DELETE FROM checks WHERE at < ?", (_micro(now - CHECKS_KEPT),))
    db.execute("DELETE FROM episodes WHERE over = 1 AND last_seen < ?", (_micro(now - EPISODES_KEPT),))
    db.execute(
        "DELETE FROM episodes WHERE number IN"
        " (SELECT number FROM episodes WHERE over = 1 ORDER BY number DESC LIMIT -1 OFFSET ?)",
        (MOST_EPISODES,),
    )


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def _connect(path: Path) -> sqlite3.Connection:
    """Raises `StateError`."""
    try:
        # SQLite would make it readable by all; its journals take the file's own permissions.
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        if not os.access(path, os.R_OK | os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
        db.text_factory = lambda raw: raw.decode("utf-8", "replace")
    except (OSError, *_ERRORS) as error:
        raise StateError(f"cannot open the state in {path}: {reason(error)}") from None
    with suppress(*_ERRORS):  # in use, or damaged: what is done next will show it
        db.execute(f"PRAGMA journal_mode = {'WAL' if _takes_wal(path.parent) else 'DELETE'}")
    return db


def _takes_wal(folder: Path) -> bool:
    """Whether processes share memory through a file there, as they do not on a network file system."""
    mounted = mounts(Files(live()))
    if isinstance(mounted, Absent):
        return False
    place = folder.resolve()
    holding = [mount for mount in mounted if place.is_relative_to(mount.place)]
    if not holding:
        return False
    # Of two at the same place the later one hides the other.
    return kind_of(max(reversed(holding), key=lambda mount: len(mount.place))) in (
        "local",
        "memory",
        "overlay",
    )


_ERRORS = (sqlite3.Error, MemoryError, UnicodeDecodeError)
"""What the binding raises; the last for a message that quotes a damaged file."""


def _tells_of_damage(error: Exception) -> bool:
    # Its subclasses say what else went wrong: the disk is full, the file is in use, …
    return type(error) in (sqlite3.DatabaseError, UnicodeDecodeError)


_HOUR = timedelta(hours=1) // timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def _micro(at: datetime | None) -> int:
    """Microseconds since 1970; None is before all times."""
    if at is None:
        return -(2**63)
    return (at - _EPOCH) // timedelta(microseconds=1)


def _time(micro: int) -> datetime:
    """Raises OverflowError and TypeError for what is no time."""
    return _EPOCH + timedelta(microseconds=micro)

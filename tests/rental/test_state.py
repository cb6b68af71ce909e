from __future__ import annotations

import os
import random
import resource
import sqlite3
import stat
import threading
import zlib
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from nodecheck.facts import Node
from nodecheck.judge import Status, Verdict
from nodecheck.rental import place, state
from nodecheck.rental.result import Reading
from nodecheck.rental.state import State, StateError, Terms, figure_name
from nodecheck.report import document
from tests import healthy as nodes
from tests.judge.cases import healthy
from tests.measured import measurements
from tests.rental.killing import kill_writers
from tests.rental.looks import START, card, check, figure, minutes, readings
from tests.report.hostile import ATTACKS, plant
from tests.report.samples import accepted, finding, rejected

NODE = healthy("h200x2")
PASS, WARN, FAIL, UNKNOWN = Status.passed, Status.warn, Status.fail, Status.unknown


def test_a_new_state_is_empty(tmp_path: Path) -> None:
    empty = State(tmp_path)
    assert empty.acceptance() is None
    assert empty.last_look() is None
    assert empty.checks() is None
    assert (empty.episodes(), empty.series(), empty.acceptances(), empty.reboots()) == ((), (), (), ())
    assert empty.notes == []


def test_an_acceptance_comes_back_as_it_was(tmp_path: Path) -> None:
    terms = Terms(ends_at=minutes(600), keep=("/data",))
    State(tmp_path).accept(rejected(), Terms())
    report = accepted()
    State(tmp_path).accept(report, terms)

    kept = State(tmp_path).acceptance()

    assert kept is not None
    assert (kept.report, kept.terms) == (report, terms)
    written = tmp_path / "report.json"
    written.write_text(document.dump(report))
    assert document.load(written) == kept.report
    assert [each.verdict for each in State(tmp_path).acceptances()] == [
        Verdict.rejected,
        Verdict.accepted,
    ]


def test_a_check_comes_back_as_it_was(tmp_path: Path) -> None:
    findings = (finding("cards.count", PASS), finding("health.ecc", FAIL, card(3)))
    State(tmp_path).record(check(START, findings), NODE)

    look = State(tmp_path).last_look()

    assert look is not None
    assert (look.node, look.findings) == (NODE, findings)
    (episode,) = State(tmp_path).episodes()
    assert (episode.finding, episode.first_seen, episode.last_seen) == (findings[1], START, START)


def test_hostile_texts_come_back_as_they_were(tmp_path: Path) -> None:
    for number, attack in enumerate(ATTACKS):
        node = plant(NODE, lambda text, attack=attack: attack + text)
        found = plant(finding("health.ecc", FAIL, card(3)), lambda text, attack=attack: attack + text)
        reading = plant(
            Reading(name="x", subject=card(1), value=1.0), lambda text, attack=attack: attack + text
        )
        kept = State(tmp_path, attack)
        kept.accept(plant(accepted(1), lambda text, attack=attack: attack + text), Terms(keep=(attack,)))
        kept.record(check(minutes(number), (found,), readings=(reading,)), node)
        kept.close()

        kept = State(tmp_path, attack)
        look = kept.last_look()
        assert look is not None
        assert (look.node, look.findings) == (node, (found,))
        assert kept.acceptance() is not None
        assert [each.finding for each in kept.episodes()] == [found]
        assert [each.name for each in kept.series() if each.subject == reading.subject] == [reading.name]
        assert kept.changes((found,), minutes(number)) == ()
        assert kept.notes == []
    assert len({path.name for path in tmp_path.glob("*.sqlite3")}) == len(ATTACKS)
    assert all(path.parent == tmp_path for path in tmp_path.rglob("*"))


@pytest.mark.parametrize(
    "host", ["", ".", "..", "../../etc/passwd", "a/b", "-rf", "x" * 300, "ä\udcff\x00", ".hidden"]
)
def test_any_host_has_a_file_of_its_own_in_the_folder(tmp_path: Path, host: str) -> None:
    path = place.state_file(".sqlite3", tmp_path, host)
    assert path.parent == tmp_path
    assert path != place.state_file(".sqlite3", tmp_path, f"{host}x")
    State(tmp_path, host).close()
    assert path.is_file()


def test_the_state_is_its_owners_alone(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "state"
    kept = State(folder, "n")
    kept.record(check(START), NODE)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for path in folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert len(list(folder.iterdir())) > 1, "the journal is there too"


def test_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert place.state_folder() == tmp_path / "nodecheck"
    assert State().path.parent == tmp_path / "nodecheck"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert place.state_folder() == tmp_path / "home" / ".local" / "state" / "nodecheck"


def test_without_a_home_it_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.delenv("HOME")

    def try_it() -> None:
        os.setuid(1_234_567)  # nobody whom /etc/passwd knows
        with pytest.raises(StateError, match="no home to keep the state in: set HOME"):
            State()

    if os.geteuid() != 0:
        pytest.skip("needs another user")
    _in_a_child(try_it)


def test_a_folder_that_cannot_be_made_is_told_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match=r"cannot make the folder .*Not a directory"):
        State(tmp_path / "file" / "state")


def test_a_folder_that_cannot_be_written_is_told_in_a_sentence(tmp_path: Path) -> None:
    State(tmp_path, "known").record(check(START), NODE)
    tmp_path.chmod(0o500)

    def try_both() -> None:
        for host in ("known", "new"):
            with pytest.raises(StateError, match="Permission denied"):
                State(tmp_path / "below", host)

    _as_nobody(try_both)
    tmp_path.chmod(0o700)


def test_a_figure_has_one_name_under_its_conditions() -> None:
    assert figure_name(figure("hbm.copy", 1.0, NODE)) == "hbm.copy"
    assert (
        figure_name(figure("host.h2d", 1.0, NODE, size_bytes=2**29, pinned=True))
        == "host.h2d, 512 MiB, pinned"
    )


def test_figures_and_readings_become_series(tmp_path: Path) -> None:
    kept = State(tmp_path)
    report = accepted(2)
    measured = measurements(report.profile, tuple(each.key for each in report.facts.known_cards))
    kept.accept(
        report.model_copy(update={"facts": report.facts.model_copy(update={"measurements": measured})}),
        Terms(),
    )
    kept.record(check(minutes(1), readings=readings(NODE, 1)), NODE)
    kept.record(
        check(
            minutes(2), kind="active", readings=readings(NODE, 2), figures=(figure("hbm.copy", 4000.0, NODE),)
        ),
        NODE,
    )

    series = {(each.name, each.subject.key): each for each in kept.series()}

    key = NODE.known_cards[0].key
    heat = series["temperature_celsius", key]
    assert (heat.unit, heat.points) == ("celsius", ((minutes(1), 47.0), (minutes(2), 54.0)))
    copy = series["hbm.copy", key]
    assert (copy.unit, copy.subject.label, copy.points) == ("GB/s", "GPU 0", ((minutes(2), 4000.0),))
    assert any(each.points[0][0] == report.created_at for each in series.values())
    assert {each.name for each in kept.series(minutes(2))} >= {"hbm.copy", "temperature_celsius"}
    assert all(at >= minutes(2) for each in kept.series(minutes(2)) for at, _ in each.points)


def test_a_long_series_is_thinned_evenly_and_keeps_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "MOST_POINTS", 10)
    kept = State(tmp_path)
    for number in range(100):
        kept.record(
            check(minutes(number), readings=(Reading(name="x", subject=card(0), value=float(number)),)), NODE
        )
    (series,) = kept.series()
    assert 8 <= len(series.points) <= 11
    assert series.points[-1] == (minutes(99), 99.0)


def test_a_number_that_is_none_is_left_out(tmp_path: Path) -> None:
    kept = State(tmp_path)
    kept.record(check(START, readings=(Reading(name="x", subject=card(0), value=float("nan")),)), NODE)
    assert kept.series() == ()


def test_old_things_go(tmp_path: Path) -> None:
    kept, day = State(tmp_path), timedelta(days=1)
    sick, well = (finding("health.ecc", FAIL, card(0)),), ()
    for number in range(5):
        kept.record(
            check(minutes(number), sick if number % 2 else well, readings=readings(NODE, number)), NODE
        )

    def points() -> list[datetime]:
        return [at for at, _ in kept.series()[0].points]

    assert points() == [minutes(number) for number in range(5)]
    later = START + 31 * day
    kept.record(check(later, readings=readings(NODE, 0)), NODE)
    assert points() == [START, later], "one an hour"
    latest = START + 181 * day
    kept.record(check(latest, readings=readings(NODE, 0), figures=(figure("hbm.copy", 1.0, NODE),)), NODE)
    assert points() == [later, latest]
    assert len(kept.episodes()) == 2
    checks = kept.checks()
    assert checks is not None
    assert checks.passive == 7
    last = START + 370 * day
    kept.record(check(last), NODE)
    assert kept.episodes() == ()
    checks = kept.checks()
    assert checks is not None
    assert checks.passive == 3
    assert [each.name for each in kept.series() if each.points[0][0] < last - 180 * day] == ["hbm.copy"]


def test_a_finding_that_comes_and_goes_does_not_fill_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "MOST_EPISODES", 3)
    kept = State(tmp_path)
    for number in range(20):
        kept.record(check(minutes(60 * number), (finding("a", FAIL),) if number % 2 else ()), NODE)
    assert [each.first_seen for each in kept.episodes()] == [
        minutes(60 * number) for number in (13, 15, 17, 19)
    ]


def test_reboots_are_counted_from_the_first_run(tmp_path: Path) -> None:
    kept = State(tmp_path)
    kept.accept(accepted(2), Terms())

    def booted(boot: str, number: float) -> Node:
        node = nodes.change(nodes.change(NODE, "host.boot_id", boot), "host.uptime_seconds", 60.0)
        return node.model_copy(update={"taken_at": minutes(number)})

    for number, boot in enumerate(["one", "one", "two", "two", "one"]):
        kept.record(check(minutes(number)), booted(boot, number))
    assert [(each.at, each.first_seen) for each in kept.reboots()][-1] == (minutes(1), minutes(2))
    assert len(kept.reboots(minutes(2))) == 1
    assert kept.reboots(minutes(3)) == ()


def test_a_clock_that_went_back_is_no_trouble(tmp_path: Path) -> None:
    kept = State(tmp_path)
    sick = (finding("health.ecc", FAIL),)
    kept.record(check(minutes(10), sick), NODE)
    kept.record(check(minutes(5), sick), NODE)
    (episode,) = kept.episodes()
    assert (episode.first_seen, episode.last_seen) == (minutes(10), minutes(10))


# Several processes, and such as are ended


def test_readers_do_not_wait_for_a_writer(tmp_path: Path) -> None:
    State(tmp_path).record(check(START, (finding("a", FAIL),)), NODE)
    writer = State(tmp_path)
    with state._transaction(writer._connection):
        writer._connection.execute("DELETE FROM episodes")
        seen: list[int] = []
        reader = threading.Thread(target=lambda: seen.append(len(State(tmp_path).episodes())))
        reader.start()
        reader.join(3)
        assert seen == [1]


def test_a_second_writer_waits_a_little_and_then_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "BUSY_SECONDS", 0.1)
    writer, other = State(tmp_path), State(tmp_path)
    with state._transaction(writer._connection), pytest.raises(StateError, match="locked"):
        other.record(check(START), NODE)
    other.record(check(START), NODE)


def test_a_writer_that_is_killed_loses_its_own_run_alone(tmp_path: Path) -> None:
    assert kill_writers(tmp_path, points=60) > 60


def test_without_shared_memory_it_works_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "_takes_wal", lambda folder: False)
    assert kill_writers(tmp_path, points=12) > 0
    assert not list(tmp_path.glob("*-wal"))


# Full disks


def test_a_file_that_may_not_grow_keeps_what_it_has(tmp_path: Path) -> None:
    kept = State(tmp_path)
    kept.record(check(START, (finding("a", FAIL),)), NODE)
    (pages,) = kept._connection.execute("PRAGMA page_count").fetchone()
    kept._connection.execute(f"PRAGMA max_page_count = {pages}")
    large = tuple(
        finding("b", FAIL, card(n), detail=random.Random(n).randbytes(4000).hex()) for n in range(100)
    )

    with pytest.raises(StateError, match="full"):
        kept.record(check(minutes(1), large), NODE)

    assert [each.finding.id for each in kept.episodes()] == ["a"]
    checks = kept.checks()
    assert checks is not None
    assert checks.last_at == START
    kept._connection.execute("PRAGMA max_page_count = 1000000")
    kept.record(check(minutes(1), large), NODE)
    assert len(kept.episodes()) == 101


@pytest.mark.parametrize("limit", [0, 1024, 4096, 30_000, 65_536, 100_000, 150_000, 200_000, 300_000])
def test_a_full_disk_is_told_in_a_sentence(tmp_path: Path, limit: int) -> None:
    def write() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        number = 0
        try:
            kept = State(tmp_path)
            while number < 1000:
                kept.record(check(minutes(number), (finding("a", FAIL, card(number)),)), NODE)
                number += 1
        except StateError as error:
            assert str(tmp_path) in str(error)
            (tmp_path / "number").symlink_to(str(number))  # a file could not be written
            return
        raise AssertionError("the disk never was full")

    _in_a_child(write)
    recorded = int(str((tmp_path / "number").readlink()))
    kept = State(tmp_path)
    checks = kept.checks()
    assert (checks.passive if checks else 0) == recorded
    assert kept.notes == []
    kept.record(check(minutes(5000)), NODE)


# Damaged files, older ones and newer ones


def test_a_file_that_is_no_state_is_set_aside(tmp_path: Path) -> None:
    path = place.state_file(".sqlite3", tmp_path, "n")
    path.write_bytes(b"This is not what it should be. " * 1000)

    kept = State(tmp_path, "n")

    assert len(kept.notes) == 1
    assert "damaged" in kept.notes[0]
    kept.record(check(START, (finding("a", FAIL),)), NODE)
    assert len(State(tmp_path, "n").episodes()) == 1
    (aside,) = tmp_path.glob("*.damaged-*")
    assert aside.read_bytes().startswith(b"This is not")


def test_whatever_is_damaged_there_is_no_traceback(tmp_path: Path) -> None:
    kept = State(tmp_path, "n")
    kept.accept(accepted(1), Terms())
    for number in range(30):
        flapping = (finding("a", FAIL), finding("b", WARN, card(number)))
        kept.record(check(minutes(number), flapping, readings=readings(NODE, number)), NODE)
    kept.close()
    whole, chance = kept.path.read_bytes(), random.Random(7)
    asides = 0
    for trial in range(150):
        raw = bytearray(whole)
        if trial % 3 == 0:
            del raw[chance.randrange(len(raw)) :]
        else:
            for _ in range(chance.choice((1, 20, 400))):
                raw[chance.randrange(len(raw))] = chance.randrange(256)
        folder = tmp_path / str(trial)
        folder.mkdir()
        (folder / kept.path.name).write_bytes(raw)
        try:
            damaged = State(folder, "n")
            damaged.acceptance()
            damaged.last_look()
            damaged.changes((finding("a", FAIL),), minutes(40))
            damaged.episodes(), damaged.series(), damaged.acceptances(), damaged.reboots(), damaged.checks()
            damaged.record(check(minutes(40), (finding("a", FAIL),), readings=readings(NODE, 1)), NODE)
            damaged.close()
        except StateError as error:
            assert str(folder) in str(error)
        asides += bool(list(folder.glob("*.damaged-*")))
    assert asides > 20


def test_a_document_that_would_burst_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = State(tmp_path)
    kept.record(check(START), NODE)
    kept._connection.execute("UPDATE documents SET body = ?", (zlib.compress(b" " * 200_000_000),))
    assert kept.last_look() is None
    assert "last check" in kept.notes[0]


def test_entries_of_another_version_are_left_out_and_told(tmp_path: Path) -> None:
    kept = State(tmp_path)
    kept.accept(accepted(1), Terms())
    kept.record(check(START, (finding("a", FAIL), finding("b", FAIL)), readings=readings(NODE, 1)), NODE)
    db = kept._connection
    db.execute("UPDATE episodes SET finding = '{\"id\": \"a\"}' WHERE id = 'a'")
    db.execute(
        "UPDATE documents SET body = ? WHERE name = 'acceptance'",
        (zlib.compress(b'{"format": "nodecheck-report/9"}'),),
    )
    assert kept.acceptance() is None
    assert "accept the node again" in kept.notes[0]
    assert [each.finding.id for each in kept.episodes()] == ["b"]
    kept.record(check(minutes(1), (finding("a", FAIL), finding("b", FAIL))), NODE)
    assert [(each.finding.id, each.first_seen) for each in kept.episodes()] == [
        ("b", START),
        ("a", minutes(1)),
    ]


VERSION_1 = Path(__file__).with_name("version-1.sql")
"""A file as version 1 writes it, with an acceptance, checks and an episode."""


def test_an_older_file_is_brought_up_to_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _version_1(tmp_path)
    assert State(tmp_path, "n").notes == []
    monkeypatch.setattr(
        state, "MIGRATIONS", (*state.MIGRATIONS[:1], ("ALTER TABLE checks ADD COLUMN summary TEXT",))
    )

    kept = State(tmp_path, "n")

    assert [each.finding.id for each in kept.episodes()] == ["health.ecc"]
    assert len(kept.acceptances()) == 1
    assert len(kept.series()) == 3
    assert kept.notes == []
    assert kept._connection.execute("SELECT COUNT(*) FROM documents").fetchone() == (3,)
    assert sqlite3.connect(path).execute("PRAGMA user_version").fetchone() == (2,)


def test_a_migration_that_fails_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _version_1(tmp_path)
    before = list(sqlite3.connect(path).iterdump())
    monkeypatch.setattr(
        state, "MIGRATIONS", (*state.MIGRATIONS[:1], ("DROP TABLE checks", "DROP TABLE no_such"))
    )
    with pytest.raises(StateError, match="no such table"):
        State(tmp_path, "n")
    db = sqlite3.connect(path)
    assert list(db.iterdump()) == before
    assert db.execute("PRAGMA user_version").fetchone() == (1,)


def test_a_newer_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = _version_1(tmp_path)
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(StateError, match="newer nodecheck"):
        State(tmp_path, "n")
    assert not list(tmp_path.glob("*.damaged-*"))


def _version_1(folder: Path) -> Path:
    path = place.state_file(".sqlite3", folder, "n")
    db = sqlite3.connect(path)
    db.executescript(VERSION_1.read_text())
    db.close()
    return path


def _in_a_child(work: Callable[[], None]) -> None:
    """Do it in a process of its own, which may spoil itself."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def _as_nobody(work: Callable[[], None]) -> None:
    """Do it as somebody who may not do everything."""

    def lowered() -> None:
        if os.geteuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        work()

    _in_a_child(lowered)

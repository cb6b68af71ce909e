"""A process that records checks, ended by SIGKILL at random moments, and what the state is then."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import time
from pathlib import Path

from nodecheck.judge import Finding, Status
from nodecheck.rental.state import State, Terms
from tests.judge.cases import healthy
from tests.rental.looks import card, check, minutes, readings
from tests.report.samples import accepted, finding

_NODE = healthy("h200x2")


def kill_writers(folder: Path, points: int, seed: int = 1) -> int:
    """Kill so many writers; every third works on a new state. How many checks were recorded in all.

    Raises AssertionError where a state does not open, is damaged, or has lost more than the run that was killed.
    """
    moments, report, recorded = random.Random(seed), accepted(2), 0
    for point in range(points):
        host = f"host-{point - point % 3}"
        known = State(folder, host) if point % 3 else None
        begin = 0
        if known is not None:
            so_far = known.checks()
            begin = so_far.passive if so_far else 0
            known.close()
        told, tell = os.pipe()
        writer = os.fork()
        if writer == 0:
            try:
                state = State(folder, host)
                state.accept(report, Terms())
                os.write(tell, b"a")
                for number in range(begin, begin + 10_000):
                    state.record(
                        check(minutes(number), _found(number), readings=readings(_NODE, number)), _NODE
                    )
                    os.write(tell, b".")
            finally:
                os._exit(1)
        os.close(tell)
        time.sleep(moments.uniform(0, 0.12))
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
        said = b""
        while some := os.read(told, 65536):
            said += some
        os.close(told)
        recorded += said.count(b".")
        _look_after(folder, host, begin + said.count(b"."), accepted_=b"a" in said)
    return recorded


def _found(number: int) -> tuple[Finding, ...]:
    """One finding that stays, one that comes and goes."""
    flapping = Status.fail if number % 4 < 2 else Status.passed
    return finding("cards.power", Status.warn, card(0)), finding("links.count", flapping, card(1))


def _look_after(folder: Path, host: str, told: int, *, accepted_: bool) -> None:
    state = State(folder, host)
    assert state.notes == []
    db = sqlite3.connect(state.path)
    assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    db.close()
    checks = state.checks()
    kept = checks.passive if checks else 0
    assert kept in (told, told + 1), f"{told} were recorded, {kept} are kept"
    assert state.acceptance() is not None or not accepted_
    if kept:
        look = state.last_look()
        assert look is not None
        assert look.findings == _found(kept - 1)
        assert [each.first_seen for each in state.episodes()] == [
            minutes(0),
            *(minutes(number) for number in range(0, kept, 4)),
        ]
        assert len(state.series()[0].points) == len({*range(kept)})
    state.close()

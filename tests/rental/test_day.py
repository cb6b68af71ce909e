"""A day of checks invents no drift, and tells each change once, when it comes. `make bench` checks every minute."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from nodecheck.rental.state import State
from tests.rental import day


def test_a_day_of_checks_tells_each_change_once_and_nothing_else(tmp_path: Path) -> None:
    told = day.run(tmp_path, step=day.STEP)
    assert sorted(told.told) == sorted(day.EXPECTED)
    for (minute, _, _), change in zip(told.told, told.changes, strict=True):
        if change.what == "new":
            assert change.first_seen == told.accepted_at + timedelta(minutes=minute)
    assert told.state_bytes < 1024**2, told.state_bytes
    state = State(tmp_path)
    assert len(state.episodes()) == sum(what == "new" for _, what, _ in day.EXPECTED)
    state.close()

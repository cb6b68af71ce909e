"""`nodecheck schedule` as a user runs it, with stand-ins for cron and systemd on PATH."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rental import clocks
from tests.rental.clocks import Machine

ROOT = Path(__file__).parents[2]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def schedule(*arguments: str, machine: Machine) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "nodecheck", "schedule", *arguments],
        cwd=machine.home,
        env=os.environ | machine.env | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_cron_comes_first_and_what_is_there_is_shown_and_taken_out(machine: Machine) -> None:
    machine.has("crontab", clocks.CRONTAB)
    machine.has("systemctl", clocks.SYSTEMCTL)
    machine.table.write_text("0 1 * * * mine\n")
    with clocks.cron_daemon():
        for _ in range(2):
            run = schedule(
                "install", "--every", "30m", "--active-daily", "04:00", "--", "--strict", machine=machine
            )
            assert run.returncode == 0, run.stderr
        entries = run.stdout.splitlines()
        assert [entry.startswith("cron: ") for entry in entries] == [True, True]
        assert entries[0].endswith("-m nodecheck check --strict")
        assert " 4 * * * cd " in entries[1]
        assert machine.table.read_text().count("check --strict") == 1
        assert machine.units() == {}
        shown = schedule("status", machine=machine)
        assert (shown.returncode, shown.stdout.splitlines()) == (0, entries)
    gone = schedule("remove", machine=machine)
    assert (gone.returncode, gone.stdout) == (0, "removed from cron\n")
    assert machine.table.read_text() == "0 1 * * * mine\n"
    assert schedule("status", machine=machine).returncode == 3


def test_systemd_stands_in_where_no_cron_runs(machine: Machine) -> None:
    machine.has("systemctl", clocks.SYSTEMCTL)
    run = schedule("install", machine=machine)
    assert run.returncode == 0, run.stderr
    assert run.stdout == "systemd: nodecheck-check.timer: active, OnBootSec=1min, OnUnitActiveSec=15min\n"
    assert "journalctl --user" in run.stderr
    machine.has("systemctl", clocks.NO_BUS)
    lost = schedule("status", machine=machine)
    assert lost.returncode == 3
    assert "systemd does not start it: systemctl --user show failed: Failed to connect to bus" in lost.stderr
    stuck = schedule("remove", machine=machine)
    assert stuck.returncode == 73
    assert "Failed to connect to bus" in stuck.stderr


def test_where_neither_works_the_line_is_printed_and_nothing_done(machine: Machine) -> None:
    machine.has("crontab", clocks.NOT_ALLOWED)
    run = schedule("install", machine=machine)
    assert run.returncode == 73
    assert "neither works here (cron: crontab -l failed: You (renter) are not allowed" in run.stderr
    assert "systemd: systemctl --user show failed: Failed to connect to bus" in run.stderr
    assert "-m nodecheck check\n" in run.stdout
    assert not machine.table.exists()
    assert machine.units() == {}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--every", "7m"), "6m or 10m"),
        (("--every", "soon"), "'soon' is no time"),
        (("--active-daily", "noon"), "04:00"),
        (("--", "--no-such-option"), "--no-such-option"),
        (("--", "--format", "xml"), "xml"),
    ],
)
def test_what_would_fail_every_time_is_refused(
    machine: Machine, arguments: tuple[str, ...], words: str
) -> None:
    machine.has("crontab", clocks.CRONTAB)
    run = schedule("install", *arguments, machine=machine)
    assert run.returncode == 64
    assert words in run.stderr
    assert not machine.table.exists()


def test_recipes_are_printed(machine: Machine) -> None:
    assert schedule("--slurm-prolog", machine=machine).stdout.startswith("#!/bin/sh\n")
    assert "kind: DaemonSet" in schedule("--kubernetes", machine=machine).stdout

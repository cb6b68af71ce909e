"""When what is run, and what it needs of the environment."""

from __future__ import annotations

import os
import socket
import sys
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from nodecheck.facts import Absent, Why
from nodecheck.report.text import brief
from nodecheck.sources import child
from nodecheck.sources.commands import find

KEPT_VARIABLES = ("PATH", "HOME", "XDG_STATE_HOME", "LD_LIBRARY_PATH")
"""What a check finds the driver's library, its state and its programs by; cron and systemd start with none of it."""

DEADLINE_SECONDS = 10.0
_LIMIT_BYTES = 16 * 1024 * 1024


class ScheduleError(Exception):
    """It could not be scheduled, or taken out, in one sentence."""


@dataclass(frozen=True)
class Plan:
    """When what is run."""

    every_minutes: int
    """A divisor of 60, or of 1440 and a multiple of 60."""
    active_at: tuple[int, int] | None
    """Hour and minute, local time."""
    options: tuple[str, ...]
    """Of `nodecheck check`."""
    folder: Path
    """Where relative paths among them begin."""


def plan(every_seconds: float, active_daily: str | None, options: Sequence[str]) -> Plan:
    """Raises `ScheduleError` for what cron cannot say, so that a plan means the same everywhere."""
    minutes, rest = divmod(every_seconds, 60)
    allowed = [n for n in range(1, 1441) if 60 % n == 0 or (n % 60 == 0 and 1440 % n == 0)]
    if rest or minutes not in allowed:
        below = max((n for n in allowed if n * 60 <= every_seconds), default=allowed[0])
        above = min((n for n in allowed if n * 60 >= every_seconds), default=allowed[-1])
        near = " or ".join(dict.fromkeys(map(_span, (below, above))))
        raise ScheduleError(
            f"--every: {every_seconds:g} s is no whole part of an hour or a day in minutes: take {near}"
        )
    strange = next((word for word in options if not word.isprintable()), None)
    if strange is not None:
        raise ScheduleError(f"the option {strange!r} has characters that no crontab can hold")
    return Plan(int(minutes), _clock(active_daily), tuple(options), Path.cwd())


def _span(minutes: int) -> str:
    return f"{minutes // 60}h" if minutes % 60 == 0 else f"{minutes}m"


def _clock(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    hour, colon, minute = text.partition(":")
    if colon and all(part.isascii() and part.isdigit() and len(part) == 2 for part in (hour, minute)):
        at = int(hour), int(minute)
        if at[0] < 24 and at[1] < 60:
            return at
    raise ScheduleError(f"--active-daily {text!r} is no time of day: write it as 04:00")


class Way(Protocol):
    """Who starts the checks."""

    name: str

    def trouble(self) -> str:
        """Why it does not work here; empty where it does."""

    def install(self, plan: Plan) -> str:
        """Put the entries in, in place of those that are there. Returns what is to be known. Raises `ScheduleError`."""

    def remove(self) -> bool:
        """Take our entries out; False where there are none. Raises `ScheduleError`."""

    def entries(self) -> tuple[str, ...]:
        """Our entries as they stand. Raises `ScheduleError`."""


def program() -> tuple[str, ...]:
    """This nodecheck, by absolute path."""
    started = Path(sys.argv[0]).absolute()
    if started.name == "nodecheck" and os.access(started, os.X_OK):
        return (str(started),)
    return (sys.executable, "-m", "nodecheck")


def variables() -> dict[str, str]:
    """What `KEPT_VARIABLES` are now; of PATH the folders that are the same from wherever one starts."""
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if os.environ.get(name)}
    if "PATH" in kept:
        folders = [folder for folder in kept["PATH"].split(os.pathsep) if folder.startswith("/")]
        kept["PATH"] = os.pathsep.join(dict.fromkeys(folders))
    return kept


def rehearse() -> None:
    """Start this nodecheck with nothing but what it will be started with. Raises `ScheduleError` where that fails."""
    # From another folder a package that was found in this one is not there.
    said = child.run(
        (*program(), "--version"),
        deadline_seconds=DEADLINE_SECONDS,
        env={**variables(), "PYTHONSAFEPATH": "1"},
    )
    if isinstance(said, Absent) or said.returncode != 0:
        why = str(said) if isinstance(said, Absent) else told(said)
        raise ScheduleError(
            f"nodecheck would not start: {' '.join(program())} says {why}; install it (pipx install)"
        )


def runs(plan: Plan) -> Mapping[str, tuple[str, ...]]:
    """The command of each entry by its name."""
    commands = {"check": (*program(), "check", *plan.options)}
    if plan.active_at is not None:
        commands["active"] = (*program(), "check", "--active", *plan.options)
    return commands


def seed() -> int:
    """Of this account on this node, always the same: so nodes do not all check in the same minute."""
    return zlib.crc32(f"{socket.gethostname()} {os.getuid()}".encode())


def run(program: str, *arguments: str, given: bytes = b"") -> child.Output:
    """Run a program of the machine to its end. Raises `ScheduleError` where it is not there or gives no answer."""
    found = find(program)
    if isinstance(found, Absent):
        raise ScheduleError(f"there is no {program} here" if found.why is Why.not_present else str(found))
    said = child.run(
        (found, *arguments),
        deadline_seconds=DEADLINE_SECONDS,
        env={**os.environ, "LC_ALL": "C"},
        limit_bytes=_LIMIT_BYTES,
        given=given,
        undecodable="surrogateescape",
    )
    if isinstance(said, Absent):
        raise ScheduleError(f"{program} gave no answer: {said}")
    return said


def told(said: child.Output) -> str:
    """What a program that failed said."""
    return brief((said.stderr.strip() or said.stdout.strip())[-200:], 200) or f"exit code {said.returncode}"

"""`--on-change`: a program of the renter's that is told what changed."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from nodecheck.facts import Absent
from nodecheck.rental.result import CheckResult, dump
from nodecheck.report.text import brief
from nodecheck.sources import child
from nodecheck.sources.child import Transcript

DEADLINE_SECONDS = 30.0
_KEPT_BYTES = 16 * 1024
_SHOWN = 300
"""Characters of what a program that failed said last."""


def command(text: str) -> tuple[str, ...]:
    """A command as it is written in one option, in words: quotes as in a shell, and nothing else of a shell.

    Raises ValueError with a sentence where it is none.
    """
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise ValueError(f"{text!r} is no command: {error}".replace("No closing", "no closing")) from None
    if not words:
        raise ValueError("it is empty: give a program, and its arguments behind it")
    return words


def tell(argv: Sequence[str], result: CheckResult, *, deadline_seconds: float = DEADLINE_SECONDS) -> str:
    """Start the program with the check's JSON on its stdin, where something changed.

    Returns what went wrong, in a sentence; empty where nothing did. Whatever the program prints is shown in that
    sentence alone, the end of it. At the deadline it is ended with everything that it started in its process group.
    """
    if not result.changes:
        return ""
    said = child.collect(
        argv, deadline_seconds=deadline_seconds, limit_bytes=_KEPT_BYTES, given=dump(result).encode()
    )
    if isinstance(said, Absent):
        return f"--on-change could not be run: {brief(said.detail, _SHOWN)}"
    if said.returncode == 0:
        return ""
    last = (said.stderr.strip() or said.stdout.strip())[-_SHOWN:]
    told = f"; it said: {brief(last, 2 * _SHOWN)}" if last else ""
    return f"--on-change {brief(argv[0], _SHOWN)} {_end(said)}{told}"


def _end(said: Transcript) -> str:
    if said.returncode is None:
        return f"was cut off: {said.cut_off}"
    if said.returncode < 0:
        return f"was ended by signal {-said.returncode}"
    return f"ended with {said.returncode}"

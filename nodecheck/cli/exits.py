"""Exit codes. 0 to 3 are the monitoring-plugins convention; the tool's own trouble lies outside of it (sysexits.h)."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    accepted = 0
    warnings = 1
    """Only under `--strict`, and of a check in the form of a monitoring plugin."""
    rejected = 2
    incomplete = 3
    usage = 64
    unreadable = 65
    internal = 70
    cannot_write = 73
    busy = 75
    """Another run is at work."""
    interrupted = 130


class Stop(Exception):
    """Ends the command with an exit code and one sentence on stderr."""

    def __init__(self, code: Exit, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code

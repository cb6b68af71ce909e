"""The few programs that are asked, by name from a fixed list; no other program, and never a shell."""

from __future__ import annotations

import os

from nodecheck.facts import Absent, Maybe, Why
from nodecheck.sources import child
from nodecheck.sources.channel import Answer, Channel, Live
from nodecheck.sources.child import Output

__all__ = ["ALLOWED", "Commands", "Output", "live"]

ALLOWED: dict[str, tuple[str, ...]] = {
    "dmesg": ("dmesg", "--color=never"),
    "journal": ("journalctl", "--dmesg", "--boot", "--output=short-monotonic", "--no-pager", "--quiet"),
    "nvcc": ("nvcc", "--version"),
    "fabric_manager": ("nv-fabricmanager", "--version"),
    "ldconfig": ("ldconfig", "-p"),
}
"""Name → argv. All of them only read."""

DEADLINE_SECONDS = 5.0
JOURNAL_DEADLINE_SECONDS = 10.0
"""A journal on a slow disk needs longer than the others."""


class Commands:
    """Typed questions to programs."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def run(self, name: str) -> Maybe[Output]:
        """Run the program called `name` in `ALLOWED`.

        `not_present` where it is not installed, `timed_out` where it was stuck (it is then abandoned, not
        waited for). Raises KeyError for a name that is not allowed.
        """
        ALLOWED[name]
        answer = self._channel.ask(name)
        if isinstance(answer, Absent):
            return answer
        try:
            return Output(
                int(answer["returncode"]),
                str(answer["stdout"]),
                str(answer["stderr"]),
                float(answer["seconds"]),
            )
        except (TypeError, KeyError, ValueError):
            return Absent(why=Why.failed, detail=f"an answer of another shape: {str(answer)[:80]}")


def live() -> Live:
    """Programs of this machine, looked up on PATH; their messages are asked for in plain English."""
    return Live(_answer)


def _answer(name: str) -> Answer:
    output = child.run(
        ALLOWED[name],
        deadline_seconds=JOURNAL_DEADLINE_SECONDS if name == "journal" else DEADLINE_SECONDS,
        env={**os.environ, "LC_ALL": "C"},
    )
    if isinstance(output, Absent):
        return output
    return {
        "returncode": output.returncode,
        "stdout": output.stdout,
        "stderr": output.stderr,
        "seconds": output.seconds,
    }

"""The few programs that are asked, by name from a fixed list; no other program and no shell is ever started."""

from __future__ import annotations

from dataclasses import dataclass

from nodecheck.facts import Absent, Maybe, Why
from nodecheck.sources.channel import Channel

ALLOWED: dict[str, tuple[str, ...]] = {
    "dmesg": ("dmesg", "--color=never"),
    "journal": ("journalctl", "--dmesg", "--boot", "--output=short-monotonic", "--no-pager", "--quiet"),
    "nvcc": ("nvcc", "--version"),
    "fabric_manager": ("nv-fabricmanager", "--version"),
    "ldconfig": ("ldconfig", "-p"),
}
"""Name → argv. All of them only read."""


@dataclass(frozen=True)
class Output:
    """What a program that ran to its end printed."""

    returncode: int
    stdout: str
    stderr: str
    seconds: float


class Commands:
    """Typed questions to programs."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def run(self, name: str) -> Maybe[Output]:
        """Run the program called `name` in `ALLOWED`.

        `not_present` where it is not installed, `timed_out` where it was stuck (it is then abandoned, not waited
        for). Raises KeyError for a name that is not allowed.
        """
        ALLOWED[name]
        answer = self._channel.ask(name)
        if isinstance(answer, Absent):
            return answer
        try:
            return Output(
                int(answer["returncode"]), str(answer["stdout"]), str(answer["stderr"]), float(answer["seconds"])
            )
        except (TypeError, KeyError, ValueError):
            return Absent(why=Why.failed, detail=f"an answer of another shape: {str(answer)[:80]}")

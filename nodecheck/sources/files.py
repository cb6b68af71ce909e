"""procfs, sysfs, /etc and /dev below a root; read only."""

from __future__ import annotations

from dataclasses import dataclass

from nodecheck.facts import Absent, Maybe, Why
from nodecheck.sources.channel import Answer, Channel


@dataclass(frozen=True)
class Usage:
    """Size of a file system in bytes."""

    total_bytes: int
    free_bytes: int
    """Free for this user."""


class Files:
    """Typed questions about files. Paths are absolute, as the node has them."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def read(self, path: str) -> Maybe[str]:
        """The text of a file, at most 1 MiB of it, undecodable bytes replaced."""
        return _text(self._channel.ask(f"read {path}"))

    def read_hex(self, path: str) -> Maybe[str]:
        """The first 4096 bytes of a file as hexadecimal digits (PCI configuration space)."""
        return _text(self._channel.ask(f"hex {path}"))

    def list(self, path: str) -> Maybe[tuple[str, ...]]:
        """Names in a directory, sorted."""
        answer = self._channel.ask(f"list {path}")
        if isinstance(answer, Absent):
            return answer
        if isinstance(answer, list) and all(isinstance(name, str) for name in answer):
            return tuple(answer)
        return _nonsense(answer)

    def resolve(self, path: str) -> Maybe[str]:
        """The path with every symbolic link followed."""
        return _text(self._channel.ask(f"resolve {path}"))

    def access(self, path: str) -> Maybe[bool]:
        """Whether this user may open the file for reading and writing; `not_present` if there is none."""
        answer = self._channel.ask(f"access {path}")
        return answer if isinstance(answer, (bool, Absent)) else _nonsense(answer)

    def usage(self, path: str) -> Maybe[Usage]:
        """Size and free space of the file system that holds `path`."""
        answer = self._channel.ask(f"usage {path}")
        if isinstance(answer, Absent):
            return answer
        if isinstance(answer, list) and len(answer) == 2 and all(type(number) is int for number in answer):
            return Usage(*answer)
        return _nonsense(answer)

    def kernel_messages(self) -> Maybe[str]:
        """What /dev/kmsg holds now (records as the kernel writes them), read without waiting."""
        return _text(self._channel.ask("kmsg"))


def _text(answer: Answer) -> Maybe[str]:
    return answer if isinstance(answer, (str, Absent)) else _nonsense(answer)


def _nonsense(answer: Answer) -> Absent:
    return Absent(why=Why.failed, detail=f"an answer of another shape: {str(answer)[:80]}")

"""procfs, sysfs, /etc and /dev below a root; read only."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

from nodecheck.facts import Absent, Maybe, Why
from nodecheck.sources.channel import Answer, Channel, Live
from nodecheck.sources.deadline import within

READ_LIMIT_BYTES = 1024 * 1024
LIST_LIMIT = 100_000
KMSG_LIMIT_BYTES = 4 * 1024 * 1024
"""The kernel's own buffer is smaller on almost every machine; of a larger one the newest part is kept."""
PATIENCE_SECONDS = 2.0


@dataclass(frozen=True)
class Usage:
    """Size of a file system in bytes."""

    total_bytes: int
    free_bytes: int
    """Free for this user."""


@dataclass(frozen=True)
class Owner:
    """Permissions of a file."""

    mode: int
    """The lowest twelve bits of st_mode."""
    user_id: int
    group_id: int


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

    def link(self, path: str) -> Maybe[str]:
        """What a symbolic link says, not followed (`/proc/self/ns/pid` says `pid:[4026531836]`)."""
        return _text(self._channel.ask(f"link {path}"))

    def access(self, path: str) -> Maybe[bool]:
        """Whether this user may open the file for reading and writing; `not_present` if there is none.

        Judged by its permissions; the file is not opened, since opening a card's device file wakes the card.
        """
        answer = self._channel.ask(f"access {path}")
        return answer if isinstance(answer, (bool, Absent)) else _nonsense(answer)

    def owner(self, path: str) -> Maybe[Owner]:
        """To whom a file belongs, and who may do what with it; it is not opened."""
        answer = self._channel.ask(f"owner {path}")
        if isinstance(answer, Absent):
            return answer
        if isinstance(answer, list) and len(answer) == 3 and all(type(number) is int for number in answer):
            return Owner(*answer)
        return _nonsense(answer)

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


def live(root: str = "/") -> Live:
    """The files of this machine, or of the tree below `root` as if it were the machine's."""
    return Live(_Tree(root).answer)


_NO_SUCH_THING = {errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ENXIO}
_FORBIDDEN = {errno.EACCES, errno.EPERM}
_UNSUPPORTED = {errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOTTY}

_FROM_MEMORY = ("/proc/", "/sys/", "/dev/", "/etc/")
"""Names below these come from memory or the root file system: looking them up never waits for a device."""
_READ_FROM_MEMORY = ("/proc/", "/sys/devices/system/", "/sys/fs/", "/sys/kernel/", "/sys/module/", "/etc/")
_ASKS_A_DRIVER = ("/proc/driver/",)
_PCI_ATTRIBUTES_IN_MEMORY = {
    "class", "vendor", "device", "subsystem_vendor", "subsystem_device", "numa_node", "local_cpulist",
}  # fmt: skip
"""Of a PCI device; the kernel keeps them, so they are answered even when the device is dead."""


class _Tree:
    """The tree below a root. Links are read as a process with this root would, and never lead out of it."""

    def __init__(self, root: str) -> None:
        self._root = "" if root == "/" else os.path.realpath(root)
        self._abandoned = 0
        self._asks: dict[str, Callable[[str], Answer]] = {
            "read": self._read,
            "hex": self._hex,
            "list": self._list,
            "resolve": self._resolve,
            "link": self._link,
            "access": self._access,
            "owner": self._owner,
            "usage": self._usage,
            "kmsg": self._kmsg,
        }

    def answer(self, question: str) -> Answer:
        verb, _, path = question.partition(" ")
        ask = self._asks[verb]
        if not _may_hang(verb, path):
            return _told(lambda: ask(path))
        # A dead mount or device tends to hang every question about it: each call that had to be abandoned
        # halves the patience with the next, so that all of them together cost a few seconds at most.
        answer = within(max(PATIENCE_SECONDS / 2**self._abandoned, 0.25), lambda: _told(lambda: ask(path)))
        if isinstance(answer, Absent) and answer.why is Why.timed_out:
            self._abandoned += 1
        return answer

    def _read(self, path: str) -> Answer:
        return self._bytes(path, READ_LIMIT_BYTES).decode("utf-8", "replace")

    def _hex(self, path: str) -> Answer:
        return self._bytes(path, 4096).hex()

    def _bytes(self, path: str, limit: int) -> bytes:
        place = self._place(path)
        # Looked at before it is opened: opening a device can be an act (/dev/watchdog).
        if not stat.S_ISREG(os.stat(place).st_mode):  # noqa: PTH116
            raise OSError(errno.EINVAL, "not a regular file")
        chunks: list[bytes] = []
        descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        try:
            while limit > 0 and (chunk := os.read(descriptor, limit)):
                chunks.append(chunk)
                limit -= len(chunk)
        finally:
            os.close(descriptor)
        return b"".join(chunks)

    def _list(self, path: str) -> Answer:
        with os.scandir(self._place(path)) as entries:
            return sorted(_printable(entry.name) for entry in islice(entries, LIST_LIMIT))

    def _resolve(self, path: str) -> Answer:
        resolved = self._follow(path)
        os.lstat(self._root + resolved)
        return _printable(resolved)

    def _link(self, path: str) -> Answer:
        parent, name = os.path.split(path)
        return _printable(os.readlink(f"{self._place(parent)}/{name}"))  # noqa: PTH115

    def _access(self, path: str) -> Answer:
        place = self._place(path)
        os.stat(place)  # noqa: PTH116  (tells a file that is missing from one that is closed)
        return os.access(place, os.R_OK | os.W_OK, effective_ids=os.access in os.supports_effective_ids)

    def _owner(self, path: str) -> Answer:
        status = os.stat(self._place(path))  # noqa: PTH116
        return [stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid]

    def _usage(self, path: str) -> Answer:
        space = os.statvfs(self._place(path))
        return [space.f_frsize * space.f_blocks, space.f_frsize * space.f_bavail]

    def _kmsg(self, _: str) -> Answer:
        records: list[bytes] = []
        ends = time.monotonic() + PATIENCE_SECONDS / 2
        descriptor = os.open(self._place("/dev/kmsg"), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            while time.monotonic() < ends:  # a kernel that logs faster than we read would never let us go
                try:
                    record = os.read(descriptor, 8192)
                except BlockingIOError:
                    break
                except BrokenPipeError:  # overwritten while we read; the next read goes on behind the gap
                    continue
                if not record:
                    break
                records.append(record)
        finally:
            os.close(descriptor)
        kept = 0
        for i in range(len(records) - 1, -1, -1):
            kept += len(records[i])
            if kept > KMSG_LIMIT_BYTES:
                del records[: i + 1]
                break
        return b"".join(records).decode("utf-8", "replace")

    def _place(self, path: str) -> str:
        """Where the file is for us. The machine's own root needs no care of ours with links."""
        return self._root + self._follow(path) if self._root else path

    def _follow(self, path: str) -> str:
        """The path, as the tree has it, with every link followed; what does not exist is kept as it is."""
        ahead = path.split("/")[::-1]
        done: list[str] = []
        links = 0
        while ahead:
            name = ahead.pop()
            if name in ("", "."):
                continue
            if name == "..":
                del done[-1:]
                continue
            here = "/" + "/".join([*done, name])
            try:
                target = os.readlink(self._root + here)  # noqa: PTH115
            except OSError:
                done.append(name)
                continue
            links += 1
            if links > 40:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            if target.startswith("/"):
                done = []
            ahead.extend(target.split("/")[::-1])
        return "/" + "/".join(done)


def _may_hang(verb: str, path: str) -> bool:
    if verb in ("usage", "kmsg"):
        return True
    if verb in ("list", "resolve", "link", "access", "owner"):
        return not path.startswith(_FROM_MEMORY)
    if path.startswith(_READ_FROM_MEMORY):
        return path.startswith(_ASKS_A_DRIVER)
    return not (
        verb == "read"
        and path.startswith("/sys/bus/pci/devices/")
        and path.rpartition("/")[2] in _PCI_ATTRIBUTES_IN_MEMORY
    )


def _told(ask: Callable[[], Answer]) -> Answer:
    """The answer, or what the kernel said instead of one."""
    try:
        return ask()
    except OSError as error:
        why = Why.failed
        if error.errno in _NO_SUCH_THING:
            why = Why.not_present
        elif error.errno in _FORBIDDEN:
            why = Why.no_permission
        elif error.errno in _UNSUPPORTED:
            why = Why.not_supported
        elif error.errno == errno.ETIMEDOUT:
            why = Why.timed_out
        return Absent(why=why, detail=error.strerror or str(error))
    except ValueError as error:  # a path with a NUL in it
        return Absent(why=Why.failed, detail=str(error))


def _printable(name: str) -> str:
    """A name as text that JSON and UTF-8 can hold."""
    return os.fsencode(name).decode("utf-8", "replace")

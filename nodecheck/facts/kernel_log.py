"""What the kernel said about cards, links and memory."""

from __future__ import annotations

from typing import Literal

from nodecheck.facts.base import Fact, Maybe, seen

EventKind = Literal[
    "xid", "sxid", "fallen_off_bus", "nvrm", "nvlink", "aer", "mce", "edac", "oom", "link_down", "segfault", "lockup"
]


class LogEvent(Fact):
    """Lines of one kind, code and device, folded together."""

    kind: EventKind
    code: int | None
    """Number of the Xid or SXid."""
    device: Maybe[str] = seen("PCI address, or what the line names", linux="kernel log")
    count: int
    first_seconds: Maybe[float] = seen("since boot", linux="kernel log")
    last_seconds: Maybe[float] = seen("since boot", linux="kernel log")
    text: str
    """The first of the lines, without its time stamp."""


class KernelLog(Fact):
    source: Maybe[str] = seen("which door opened: `/dev/kmsg`, `dmesg`, `journalctl`", linux="kernel log")
    lines: int = 0
    complete: Maybe[bool] = seen("the log still holds the first line of this boot", linux="kernel log")
    events: Maybe[tuple[LogEvent, ...]] = seen("events worth a look", linux="kernel log")

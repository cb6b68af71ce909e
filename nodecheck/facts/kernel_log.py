"""What the kernel said about cards, links and memory."""

from __future__ import annotations

from typing import Literal

from nodecheck.facts.base import Fact, Maybe, seen

EventKind = Literal[
    "xid",
    "sxid",
    "fallen_off_bus",
    "card_init",
    "nvrm",
    "nvlink",
    "amdgpu",
    "iommu",
    "aer",
    "mce",
    "edac",
    "oom",
    "link_down",
    "adapter_power",
    "adapter_heat",
    "segfault",
    "lockup",
    "panic",
]
"""`card_init`: the driver could not start a card. `nvrm`: any other complaint of the NVIDIA driver. `amdgpu`: a
message of AMD's, which `name` says. `iommu`: a device reached for memory that the IOMMU does not let it have.
`aer`: PCI Express. `mce`: the CPU's machine check, or the firmware's report of an error. `edac`: host memory.
`link_down`: a network port. `adapter_*`: a network adapter. `segfault`: in a library of the GPU stack.
`lockup`: also hung tasks and RCU stalls."""

Severity = Literal["corrected", "non_fatal", "fatal"]


class LogEvent(Fact):
    """Lines of one kind, code, device and severity, folded together."""

    kind: EventKind
    code: int | None
    """Number of the Xid or SXid."""
    name: str | None = None
    """Which of amdgpu's messages it is: `ras_uncorrectable`, `reset_failed`, …"""
    device: Maybe[str] = seen("PCI address `0000:1b:00.0`, or what the line names", linux="kernel log")
    severity: Severity | None = None
    """What the lines say of themselves; None where they say nothing."""
    action: str | None = None
    """The recovery action that the last of the lines names (Xid 154): `None`, `GPU Reset Required`, …"""
    count: int
    first_seconds: Maybe[float] = seen("since boot", linux="kernel log")
    last_seconds: Maybe[float] = seen("since boot", linux="kernel log")
    text: str
    """The first of the lines, without its time stamp."""


class KernelLog(Fact):
    source: Maybe[str] = seen("which door opened: `/dev/kmsg`, `dmesg`, `journalctl`", linux="kernel log")
    lines: int = 0
    complete: Maybe[bool] = seen("the log still holds every line of this boot", linux="kernel log")
    excerpt: bool = False
    """Lines that somebody pasted, and that are not known to be all: what they do not say may have been said."""
    first_line_seconds: Maybe[float] = seen("since boot, of the oldest line left", linux="kernel log")
    events: Maybe[tuple[LogEvent, ...]] = seen(
        "events worth a look, in the order of their first lines", linux="kernel log"
    )

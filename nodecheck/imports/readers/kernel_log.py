"""The kernel's log as dmesg, journalctl, syslog, pstore or /dev/kmsg show it."""

from __future__ import annotations

import re
from itertools import islice

from nodecheck.imports.kind import Kind, Piece, Section
from nodecheck.probes.kernel_log import read_lines, summarise

MAX_LINES = 500_000
"""Lines that are looked at; the kernel's own buffer holds some ten thousand."""

_LINE = re.compile(
    r"\d{1,7},\d{1,20},\d{1,20},[^;\n]{0,200};"  # /dev/kmsg
    r"|<\d{1,3}>(?:\[|[A-Z][a-z]{2} )"  # dmesg -r, pstore, syslog with its priority
    r"|\[ *\d{1,12}\.\d{3,9}\]"  # dmesg
    r"|\[[A-Z][a-z]{2} [A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d \d{4}\] "  # dmesg -T
    r"|(?:kern|daemon|user|syslog) *:[a-z]+ *: "  # dmesg -x
    r"|[A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d \S{1,255} [\w.@/-]{1,80}(?:\[\d{1,10}\])?: "  # syslog, journalctl
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S{0,20} \S{1,255} [\w.@/-]{1,80}(?:\[\d{1,10}\])?: "  # journalctl -o short-iso
    r"|(?:\[\.\.\.\] |\S{1,64} kernel: |kernel: )?(?:NVRM: |nvidia-nvswitch\d{1,3}: |nvidia \d|mlx5_core )"
    r"|\S{1,64} kernel: "
)
_OTHER_BOOT = re.compile(r"journalctl\b.{0,80}(?:-b|--boot)[ =]?-\d")


def _read(section: Section) -> Piece:
    if _OTHER_BOOT.search(section.heading):
        return Piece(remarks=("it is the log of an earlier boot, and was left out",))
    lines = read_lines(section.text)
    log = summarise("pasted output", islice(lines, MAX_LINES))
    remarks = (f"only its first {MAX_LINES} lines were looked at",) if next(lines, None) else ()
    return Piece(kernel_log=log.model_copy(update={"excerpt": log.complete is not True}), remarks=remarks)


KERNEL_LOG = Kind(
    "kernel log",
    _read,
    goes_on=_LINE,
    command=re.compile(r"(?:^|[\s/])(?:dmesg|journalctl .{0,60}(?:-k|--dmesg))\b"),
)
KINDS = (KERNEL_LOG,)

"""The kernel's log: which door opened, and the lines in it that speak of trouble."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from nodecheck.facts import Absent, KernelLog, LogEvent, Maybe, Why
from nodecheck.facts.kernel_log import EventKind, Severity
from nodecheck.probes import amdgpu_log
from nodecheck.sources.commands import Commands
from nodecheck.sources.files import Files

MAX_EVENTS = 256
"""Different events of one kind and severity that are kept apart; what comes after is counted without its device.

A flood stays readable, and hides neither what is graver than itself nor what is of another kind.
"""

MAX_CODES = 1024
"""Different codes of one kind and severity that are kept apart even then; a driver has fewer."""

_MAX_LINE = 2048
"""Characters of a line that are looked at; the kernel itself cuts a record at 1 KiB to 2 KiB of text."""

_MAX_TEXT = 400


def probe(files: Files, commands: Commands) -> KernelLog:
    """The log from the first of /dev/kmsg, dmesg and the journal that opens and holds lines."""
    doors: tuple[tuple[str, Callable[[], Maybe[str]]], ...] = (
        ("/dev/kmsg", files.kernel_messages),
        ("dmesg", lambda: _printed(commands, "dmesg")),
        ("journalctl", lambda: _printed(commands, "journal")),
    )
    closed: list[tuple[str, Absent]] = []
    for name, ask in doors:
        text = ask()
        if isinstance(text, Absent):
            closed.append((name, text))
            continue
        lines = tuple(read_lines(text))
        if not lines:
            closed.append((name, Absent(why=Why.not_present, detail="it holds no lines")))
        elif any(_SUBSTITUTE.search(line.text) for line in lines[:_HEAD]):
            closed.append(
                (name, Absent(why=Why.not_supported, detail="the sandbox shows a log of its own making"))
            )
        else:
            return summarise(name, lines)
    reason = _why_not(closed)
    return KernelLog(source=reason, lines=0, complete=reason, first_line_seconds=reason, events=reason)


def _printed(commands: Commands, name: str) -> Maybe[str]:
    output = commands.run(name)
    if isinstance(output, Absent):
        return output
    if output.returncode == 0 and output.stdout.strip():
        return output.stdout
    said = " ".join(output.stderr.split())[:200]
    if re.search(r"permi(?:tted|ssion)", said, re.IGNORECASE):
        return Absent(why=Why.no_permission, detail=said)
    if output.returncode == 0:
        return Absent(why=Why.not_present, detail="it holds no lines")
    return Absent(why=Why.failed, detail=said or f"it ended with code {output.returncode}")


def _why_not(closed: list[tuple[str, Absent]]) -> Absent:
    """One reason for all doors: the one that somebody could do something about goes first."""
    order = (Why.no_permission, Why.timed_out, Why.failed, Why.not_supported, Why.not_asked, Why.not_present)
    why = min((absent.why for _, absent in closed), key=order.index)
    return Absent(
        why=why, detail="; ".join(f"{name}: {absent.detail or absent.why.value}" for name, absent in closed)
    )


@dataclass(frozen=True)
class Line:
    text: str
    """Without time stamp, priority and host name."""
    seconds: float | None = None
    """Since boot, where the stamp says so."""
    sequence: int | None = None
    """The record's number, where /dev/kmsg gives one; the first of a boot is 0."""


_KMSG = re.compile(r"\d{1,7},(\d{1,20}),(\d{1,20}),[^;]{0,200};")
_KMSG_KEY = re.compile(r" [A-Z_]+=")
_KMSG_ESCAPE = re.compile(r"\\x([0-9a-f]{2})")
_PRIORITY = re.compile(r"<\d{1,7}>|(?:kern|user|mail|daemon|auth|syslog|authpriv|local\d) *:[a-z]+ *: ")
_SINCE_BOOT = re.compile(r"\[ *(\d{1,12}\.\d{1,9})\] ?(?:\[ *[TC]\d+\] ?)?")
_WALL_CLOCK = re.compile(
    r"\[[A-Z][a-z]{2} [A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d \d{4}\] ?"  # dmesg -T
    r"|\[?\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]? "  # ISO 8601
    r"|[A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d \S{1,255} "  # syslog, with the host
    r"|\[\.\.\.\] ?"
)
_SENDER = re.compile(r"(?:\S{1,255} )?kernel: ")


def read_lines(text: str) -> Iterator[Line]:
    """The lines of a kernel log in any of its layouts.

    /dev/kmsg records; dmesg with stamps since boot or of the wall clock, with decoded or raw priorities; the
    journal's short forms; syslog. A line without a stamp has that of the line before.
    """
    seconds: float | None = None
    for raw in _split(text):
        raw = raw.rstrip("\r")
        record = _KMSG.match(raw)
        if record:
            seconds = int(record[2]) / 1e6
            # The kernel escapes line ends inside a record; each part is a line of its own.
            body = _KMSG_ESCAPE.sub(lambda escape: chr(int(escape[1], 16)), raw[record.end() :])
            for part in body.split("\n"):
                if part.strip():
                    yield Line(_clean(part), seconds, int(record[1]))
            continue
        if not raw.strip() or _KMSG_KEY.match(raw):
            continue
        if priority := _PRIORITY.match(raw):
            raw = raw[priority.end() :]
        if since_boot := _SINCE_BOOT.match(raw):
            seconds = float(since_boot[1])
            raw = raw[since_boot.end() :]
        elif wall_clock := _WALL_CLOCK.match(raw):
            seconds = None
            raw = raw[wall_clock.end() :]
        if sender := _SENDER.match(raw):
            raw = raw[sender.end() :]
        if raw.strip():
            yield Line(_clean(raw), seconds)


def _split(text: str) -> Iterator[str]:
    """The lines, each as far as it is looked at; a log of many MB is not held a second time."""
    start = 0
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        yield text[start : min(end, start + _MAX_LINE)]
        start = end + 1


def _clean(text: str) -> str:
    return (
        text.strip()
        if text.isprintable()
        else "".join(character if character.isprintable() else " " for character in text).strip()
    )


_HEAD = 40
_FIRST_OF_BOOT = re.compile(r"Linux version |Booting Linux on physical CPU")
_SUBSTITUTE = re.compile(r"Starting gVisor")
"""gVisor answers with a log of its own: nothing in it is about this machine."""


class _Passing:
    """Lines on their way, and what is noted of all of them."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self._lines = lines
        self.count = 0
        self.first_stamp: float | None = None
        self.first_number: int | None = None
        self.gap = False
        self.begins_with_boot = False

    def __iter__(self) -> Iterator[Line]:
        number: int | None = None
        for line in self._lines:
            if self.first_stamp is None:
                self.first_stamp = line.seconds
            if self.count == 0:
                self.first_number = line.sequence
            if self.count < _HEAD and _FIRST_OF_BOOT.match(line.text):
                self.begins_with_boot = True
            if line.sequence is not None:
                self.gap = self.gap or (number is not None and line.sequence > number + 1)
                number = line.sequence
            self.count += 1
            yield line


def summarise(source: str, lines: Iterable[Line]) -> KernelLog:
    """The log that `source` showed: what is worth a look in it, and how much of the boot it covers."""
    passing = _Passing(lines)
    events = find_events(passing)
    no_stamp = Absent(why=Why.not_supported, detail="the lines carry no time since boot")
    complete: Maybe[bool]
    if passing.gap:
        complete = False  # records were overwritten while they were read
    elif passing.first_number == 0 or passing.begins_with_boot:
        complete = True
    else:
        complete = no_stamp if passing.first_stamp is None else False
    return KernelLog(
        source=source,
        lines=passing.count,
        complete=complete,
        first_line_seconds=no_stamp if passing.first_stamp is None else passing.first_stamp,
        events=events,
    )


HARMLESS = re.compile(
    "|".join(
        (
            r"NVRM: loading NVIDIA",
            r"NVRM: GPU at (?:PCI:)?[0-9A-Fa-f:.]+: GPU-",  # the preamble of an Xid, not the Xid
            r"NVRM: GPU Board Serial Number",
            r"GPU serial number is",
            r"NVRM: Persistence mode is deprecated",
            r"NVRM: gpuClearFbhubPoisonIntrForBug\d+",  # a known quirk of Hopper, cleared at every start
            r"\(CPU (?:->|<-) GSP\)",  # the history that is printed below an Xid 119
            r"NVRM:  +(?:entry|-?\d+) +",
            r"nvidia-nvswitch\d+: (?:open|release|using MSI)",
            r"nvidia-nvlink: (?:Nvlink Core is being initialized|Unregistered Nvlink Core)",
            r"SATA link down",
            r"ACCESS_REG",  # registers of the adapter that a virtual function may not read
            r"Port module event: module \d+, Cable (?:un)?plugged",
            r"EDAC MC: Ver|Giving out device to module",
            r"(?:mce|MCE): (?:CPU\d* supports|Using \d+ MCE banks|In-kernel MCE decoding enabled)",
            r"AER: enabled with IRQ|DPC: (?:enabled|error containment capabilities)",
        )
    )
)
"""Lines that look like trouble to a search for words and are seen on healthy nodes."""

_PCI_ADDRESS = re.compile(
    r"(?<![0-9A-Fa-f:.])(?:(?P<domain>[0-9A-Fa-f]{4,8}):(?P<bus>[0-9A-Fa-f]{2}):(?P<slot>[01][0-9A-Fa-f])"
    r"(?:\.(?P<function>[0-7]))?|(?P<short>[0-9A-Fa-f]{2}:[01][0-9A-Fa-f]\.[0-7]))(?![0-9A-Fa-f]|:[0-9A-Fa-f])"
)


def pci_address(text: str, *, last: bool = False) -> str | None:
    """The first (or last) PCI address in `text` as `0000:1b:00.0`, or None.

    Understands domains of four to eight digits or none, addresses without a function, capitals, and `PCI:`.
    """
    found = list(_PCI_ADDRESS.finditer(re.sub(r"\bPCI:", " ", text)))
    if not found:
        return None
    match = found[-1 if last else 0]
    if match["short"]:
        return f"0000:{match['short']}".lower()
    domain = f"{int(match['domain'], 16):04x}"
    return f"{domain}:{match['bus']}:{match['slot']}.{match['function'] or '0'}".lower()


@dataclass(frozen=True)
class _Sign:
    """What one line says."""

    kind: EventKind
    device: str | None = None
    code: int | None = None
    name: str | None = None
    severity: Severity | None = None
    action: str | None = None
    count: int = 1
    continues: bool = False
    """The line only adds detail to an event already counted."""


@dataclass
class _Fold:
    sign: _Sign
    text: str
    first: float | None
    last: float | None
    count: int = 0
    action: str | None = None


_NO_DEVICE = "the line names no device"
_MANY_DEVICES = "one of more devices than are listed"

_Key = tuple[EventKind, int | None, str | None, str | None, Severity | None]


@dataclass
class _Folds:
    folds: dict[_Key, _Fold] = field(default_factory=dict)
    seen: set[tuple[EventKind, int | None, str | None, str | None]] = field(default_factory=set)
    apart: Counter[tuple[EventKind, Severity | None]] = field(default_factory=Counter)
    """Events of a kind and severity that are kept apart, with their devices or without."""
    crowded: set[_Key] = field(default_factory=set)
    """Where events lost their device, or code, for there are too many."""

    def add(self, sign: _Sign, line: Line) -> None:
        event = (sign.kind, sign.code, sign.name, sign.device)
        if sign.continues and event in self.seen:
            return
        self.seen.add(event)
        key = _key(sign)
        if key not in self.folds and self.apart[sign.kind, sign.severity] >= MAX_EVENTS:
            sign = replace(sign, device=None)
            key = _key(sign)
            if key not in self.folds and self.apart[sign.kind, sign.severity] >= MAX_EVENTS + MAX_CODES:
                sign = replace(sign, code=None, name=None)
                key = _key(sign)
            self.crowded.add(key)
        if key not in self.folds:
            self.apart[sign.kind, sign.severity] += 1
        fold = self.folds.setdefault(key, _Fold(sign, line.text[:_MAX_TEXT], line.seconds, line.seconds))
        fold.count += sign.count
        fold.last = line.seconds
        if sign.action:
            fold.action = sign.action

    def events(self) -> Iterator[LogEvent]:
        for key, fold in self.folds.items():
            no_device = _MANY_DEVICES if key in self.crowded else _NO_DEVICE
            yield LogEvent(
                kind=fold.sign.kind,
                code=fold.sign.code,
                name=fold.sign.name,
                device=fold.sign.device or Absent(why=Why.not_present, detail=no_device),
                severity=fold.sign.severity,
                action=fold.action,
                count=fold.count,
                first_seconds=_stamp(fold.first),
                last_seconds=_stamp(fold.last),
                text=fold.text,
            )


def _key(sign: _Sign) -> _Key:
    return sign.kind, sign.code, sign.name, sign.device, sign.severity


def _stamp(seconds: float | None) -> Maybe[float]:
    if seconds is None:
        return Absent(why=Why.not_supported, detail="the line carries no time since boot")
    return seconds


def find_events(lines: Iterable[Line]) -> tuple[LogEvent, ...]:
    """The lines that speak of trouble, folded by kind, code, device and severity."""
    folds = _Folds()
    named: tuple[int, str] | None = None
    for number, line in enumerate(lines):
        if not _WORTH_A_LOOK.search(line.text):
            continue
        sign = _read(line.text)
        if sign is None:
            # The driver spreads one sentence over three lines: the card first, its loss last.
            if begun := _CARD_NAMED.search(line.text):
                address = pci_address(begun[1])
                named = (number, address) if address else None
            continue
        if sign.kind == "fallen_off_bus" and sign.device is None and named and number - named[0] <= 4:
            sign = _Sign("fallen_off_bus", named[1])
        folds.add(sign, line)
    return tuple(folds.events())


_WORTH_A_LOOK = re.compile(
    r"NVRM|nvidia|SXid|PCIe|AER|DPC|pciehp|Hardware Error|[Mm]achine [Cc]heck|Memory failure|EDAC"
    r"|[Oo]ut of memory|segfault|general protection|lockup|LOCKUP|blocked for more|stall|panic|BUG|Oops"
    r"|[Ll]ink|carrier|mlx5|amdgpu|kfd|AMD-Vi|DMAR"
)
"""Most lines of a log hold none of these words, and are passed over at once."""

# No pattern below holds two open-ended repeats: a hostile line costs no more than a long one.

_CARD_NAMED = re.compile(r"NVRM: The NVIDIA GPU (\S{1,32})")
_XID = re.compile(r"\bXid \((?P<where>[^()]{1,64})\)[^:]{0,16}: ?(?P<code>\d{1,6})\b(?P<rest>.*)")
_SXID = re.compile(r"\bSXid \((?P<where>[^()]{1,64})\)[^:]{0,16}: ?(?P<code>\d{1,6})\b,? ?(?P<rest>.*)")
_FATAL = re.compile(r"\b(non-?)?fatal\b", re.IGNORECASE)
_ACTION = re.compile(r" to 0x[0-9A-Fa-f]{1,8} \(([^()]{1,60})\)")
_NVLINK5 = range(144, 151)
"""Xids whose text says whether they are fatal (NVIDIA's Xid catalogue, sheet `XID 144-150 Decode`)."""

_FALLEN = re.compile(r"fallen off the bus|D3cold to D0, device inaccessible", re.IGNORECASE)
_CARD_INIT = re.compile(
    r"RmInitAdapter failed|BAR\d is 0M|PCI I/O region assigned to your NVIDIA device is invalid"
    r"|\bprobe (?:of \S{1,32} |with driver \S{1,32} )?failed with error"
)
_NVLINK = re.compile(r"\bk?nvlink|nvidia-nvswitch\d+: ", re.IGNORECASE)
_COMPLAINT = re.compile(
    r"fail|\berror|\bfault|\bunable\b|\bcannot\b|\bcan't\b|mismatch|\btime(?:d )?out\b|\bassert|\binvalid\b"
    r"|\blost\b|\bbad state\b|\bnot ready\b",
    re.IGNORECASE,
)
_IOMMU_FAULT = re.compile(
    r"AMD-Vi: Event logged \[IO_PAGE_FAULT(?: device=[0-9a-fA-F:.]{7,16})?"
    r"|DMAR: \[DMA (?:Read|Write)[^\]]{0,24}\] Request device \[[0-9a-fA-F:.]{7,16}"
)
_BUS_ERROR = re.compile(r"PCIe Bus Error: severity=(Correct|Uncorrect)\w{0,8}(?: \((?:Non-Fatal|Fatal)\))?")
_AER_RECEIVED = re.compile(
    r"AER: (?:Multiple )?Uncorrect\w{0,8} \((?:Non-Fatal|Fatal)\) error (?:message )?received"
)
_PORT_LOST = re.compile(r"DPC: containment event|pciehp: Slot\(\S{1,16}\): Link Down")
_MACHINE_CHECK = re.compile(
    r"Machine Check(?P<exception> Exception)?: [0-9a-f]{1,16} Bank|Machine check events logged"
    r"|Memory failure: 0x|\[Hardware Error\]: event severity: (?P<reported>\w{1,16})"
    r"|\[Hardware Error\]: (?P<decoded>Corrected|Uncorrected|Deferred)\b"
)
_EDAC = re.compile(r"\bMC\d{1,4}: (?:(?P<count>\d{1,9}) )?(?P<what>CE|UE)\b")
_OOM = re.compile(r"(?P<group>Memory cgroup )?out of memory[^:]{0,40}: Kill(?:ed)? process", re.IGNORECASE)
_SEGFAULT = re.compile(r"\bsegfault at\b|^traps: .{1,64} general protection fault\b")
_GPU_LIBRARY = re.compile(r" in (lib(?:nccl|rccl|cuda|cublas|cudnn|cufft|torch|c10|nvidia-)[\w.+-]{0,64})\[")
_LOCKUPS = (
    ("soft lockup", re.compile(r"BUG: soft lockup")),
    ("hard lockup", re.compile(r"detected hard LOCKUP")),
    ("hung task", re.compile(r"INFO: task .{1,80} blocked for more than \d+ seconds")),
    ("RCU stall", re.compile(r"\brcu_\w{1,16} (?:self-)?detected (?:expedited )?stalls?\b")),
)
_PANIC = re.compile(
    r"Kernel panic - not syncing|BUG: (?:unable to handle|kernel NULL pointer)|kernel BUG at|\bOops: "
    r"|^general protection fault\b"
)
_LINK_DOWN = re.compile(
    r"\b(?P<port>(?:eth|ib|en|bond)\w{0,14}):? (?:NIC |port \d+ )?"
    r"(?:lost carrier|carrier (?:is )?lost|link (?:is )?down)\b",
    re.IGNORECASE,
)


def _read(text: str) -> _Sign | None:
    """What the line says, or None where it says nothing worth a look."""
    driver = "NVRM:" in text
    # These first: they quote the name of a process, which may be any word.
    if sxid := _SXID.search(text):
        return _sxid(sxid)
    if driver and (xid := _XID.search(text)):
        return _xid(xid)
    if HARMLESS.search(text):
        return None
    if fault := _IOMMU_FAULT.search(text):
        return _Sign("iommu", pci_address(text[: fault.end()], last=True))
    message = amdgpu_log.read(text)
    if message and message.name != amdgpu_log.OTHER:
        return _of_amdgpu(message, text)
    if driver or "nvidia" in text:
        if _FALLEN.search(text):
            return _Sign("fallen_off_bus", pci_address(text))
        if _CARD_INIT.search(text):
            return _Sign("card_init", pci_address(text))
        if _NVLINK.search(text) and _COMPLAINT.search(text):
            return _Sign("nvlink", pci_address(text))
        if driver and _COMPLAINT.search(text):
            return _Sign("nvrm", pci_address(text))
    if sign := _of_the_bus(text) or _of_the_host(text) or _of_an_adapter(text):
        return sign
    return _of_amdgpu(message, text) if message else None


def _of_amdgpu(message: amdgpu_log.Message, text: str) -> _Sign:
    device = pci_address(text)
    if message.name == "lost":
        return _Sign("fallen_off_bus", device)
    if message.name == "not_started":
        return _Sign("card_init", device)
    return _Sign("amdgpu", device, name=message.name, count=message.count, continues=message.continues)


def _xid(line: re.Match[str]) -> _Sign:
    code = int(line["code"])
    action = _ACTION.search(line["rest"]) if code == 154 else None
    return _Sign(
        "xid",
        pci_address(line["where"]),
        code,
        severity=_fatal(line["rest"]) if code in _NVLINK5 else None,
        action=action[1].strip() if action else None,
    )


def _sxid(line: re.Match[str]) -> _Sign:
    more = line["rest"].startswith(("Data ", "Severity "))
    severity = None if more else _fatal(line["rest"])
    return _Sign("sxid", pci_address(line["where"]), int(line["code"]), severity=severity, continues=more)


def _fatal(text: str) -> Severity | None:
    word = _FATAL.search(text)
    if word is None:
        return None
    return "non_fatal" if word[1] else "fatal"


def _of_the_bus(text: str) -> _Sign | None:
    if error := _BUS_ERROR.search(text):
        corrected = error[1] == "Correct"
        return _Sign(
            "aer", pci_address(text), severity="corrected" if corrected else _fatal(error[0]) or "fatal"
        )
    if received := _AER_RECEIVED.search(text):
        return _Sign("aer", pci_address(text, last=True), severity=_fatal(received[0]))
    if _PORT_LOST.search(text):
        return _Sign("aer", pci_address(text), severity="fatal")
    return None


def _of_the_host(text: str) -> _Sign | None:
    if check := _MACHINE_CHECK.search(text):
        return _Sign("mce", severity=_machine_check(check))
    if "EDAC" in text and (memory := _EDAC.search(text)):
        severity: Severity = "corrected" if memory["what"] == "CE" else "fatal"
        return _Sign("edac", severity=severity, count=max(1, int(memory["count"] or 1)))
    if killed := _OOM.search(text):
        return _Sign("oom", "memory cgroup" if killed["group"] else "whole machine")
    if _SEGFAULT.search(text):
        library = _GPU_LIBRARY.search(text)
        return _Sign("segfault", library[1]) if library else None
    for name, pattern in _LOCKUPS:
        if pattern.search(text):
            return _Sign("lockup", name)
    return _Sign("panic") if _PANIC.search(text) else None


def _of_an_adapter(text: str) -> _Sign | None:
    if "insufficient power on the PCIe slot" in text:
        return _Sign("adapter_power", pci_address(text))
    if "Port module event" in text and "high temperature" in text.lower():
        return _Sign("adapter_heat", pci_address(text))
    down = _LINK_DOWN.search(text)
    return _Sign("link_down", down["port"]) if down else None


def _machine_check(check: re.Match[str]) -> Severity | None:
    word = (check["reported"] or check["decoded"] or "").lower()
    if word in ("corrected", "info"):
        return "corrected"
    if check["exception"] or word == "fatal":
        return "fatal"
    return "non_fatal" if word else None

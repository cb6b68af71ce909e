"""The table that `nvidia-smi` prints, and what it prints instead where the driver does not answer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

from nodecheck.facts import NOT_ASKED, Absent, Card, Maybe, Stack, Topology, Why
from nodecheck.facts.card import (
    Clocks,
    EccCounts,
    Health,
    Identity,
    Memory,
    Modes,
    Power,
    Process,
    Temperature,
)
from nodecheck.facts.stack import Driver
from nodecheck.imports.kind import Kind, Piece, Section
from nodecheck.imports.readers.nvidia_fields import (
    COMPUTE_MODES,
    MAX_CARDS,
    MIB,
    absence,
    counted,
    process,
    version,
)
from nodecheck.imports.readers.nvidia_query import time_of
from nodecheck.probes.kernel_log import pci_address
from nodecheck.probes.text import word

# Cells are parted by `|`, and within a cell by their form: the widths of columns change with every driver.
_VERSIONS = re.compile(
    r"\| NVIDIA-SMI (?P<tool>\S+) {1,80}(?:Driver Version: (?P<driver>\S+))?(?: {1,80}CUDA Version: (?P<cuda>\S+))?"
)
_FIRST = re.compile(
    r"\| {1,6}(?P<index>\d{1,3}) {1,6}(?P<name>\S.{0,80}?) {1,60}(?P<persistence>On|Off|N/A|ERR!|\[N/A\]) {0,10}\|"
    r" {1,20}(?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]) {1,10}(?P<display>\S{1,8}) {0,10}\|"
    r" {0,40}(?P<ecc>\S.{0,20}?) {0,20}\|"
)
_NO_NUMBER = r"N/A|ERR!|Unknown Error|\[.{1,20}\]"
_SECOND = re.compile(
    r"\| {0,6}(?P<fan>\S{1,6}) {1,10}(?P<temperature>\d{1,3}C|N/A|ERR!) {1,10}"
    r"(?P<state>P\d{1,2}|N/A|ERR!|Unknown) {1,40}"
    rf"(?P<draw>\d{{1,5}}W|{_NO_NUMBER}) {{0,5}}/ {{0,8}}(?P<limit>\d{{1,5}}W|{_NO_NUMBER}) {{0,20}}\|"
    rf" {{0,40}}(?P<used>\d{{1,9}}MiB|{_NO_NUMBER}) {{0,5}}/ {{0,20}}(?P<total>\d{{1,9}}MiB|{_NO_NUMBER}) {{0,10}}\|"
    r" {0,20}(?P<busy>\d{1,3}%|N/A|ERR!) {1,20}(?P<compute>\S.{0,20}?) {0,10}\|"
)
_THIRD = re.compile(r"\| {20,60}\| {10,60}\| {0,40}(?P<mig>\S.{0,20}?)\*? {0,10}\|")
_PROCESS = re.compile(
    r"\| {1,6}(?P<gpu>\d{1,3})(?: {1,6}(?:\d{1,3}|N/A) {1,6}(?:\d{1,3}|N/A))? {1,20}"
    r"(?P<pid>\d{1,10}) {1,10}(?P<kind>[CGM+]{1,3}) {1,10}"
    r"(?P<name>\S.{0,200}?) {1,100}(?P<used>\d{1,9}MiB|N/A|\[.{1,20}\])? {0,10}\|"
)
_CUT_NAME = re.compile(r"\.\.\.?$")


def _read(section: Section) -> Piece:
    driver = Driver()
    taken_at: datetime | None = None
    rows: list[_Row] = []
    processes: dict[int, list[Process]] = {}
    listed_processes = ended = False
    remarks: list[str] = []
    for line in _lines(section.text):
        if versions := _VERSIONS.match(line):
            if rows:
                remarks.append("more than one table; only the first was read")
                break
            driver = Driver(version=_version(versions["driver"]), cuda_version=_version(versions["cuda"]))
        elif "Processes:" in line:
            listed_processes = ended = True
        elif listed_processes and (entry := _PROCESS.match(line)):
            one = process(
                entry["pid"], entry["kind"], entry["name"].replace("...", ""), _spaced(entry["used"] or "")
            )
            if one is not None:
                processes.setdefault(int(entry["gpu"]), []).append(one)
        elif not listed_processes and (first := _FIRST.match(line)) and len(rows) < MAX_CARDS:
            rows.append(_Row(first))
            ended = False
        elif rows and not listed_processes and (second := _SECOND.match(line)):
            rows[-1].second = second
        elif rows and not listed_processes and (third := _THIRD.match(line)):
            rows[-1].third = third
        elif not line.strip():
            # What follows the cards: the rule below the last of them stands below each of the others, too.
            ended = True
        taken_at = taken_at or time_of(line)
    whole_list = listed_processes and section.text.rstrip().endswith("+")
    count = counted(row.index for row in rows)
    if not ended:
        count = Absent(why=Why.failed, detail="the table is cut short")
        remarks.append(f"the table is cut short; {len(rows)} cards were read")
    remarks += [f"GPU {row.index}: its second line was not understood" for row in rows if row.second is None]
    cards = tuple(
        row.card(tuple(processes.get(row.index, ())) if whole_list or row.index in processes else NOT_ASKED)
        for row in rows
    )
    return Piece(
        cards=cards if cards else NOT_ASKED,
        topology=Topology(nvml_count=count) if cards else NOT_ASKED,
        stack=Stack(driver=driver),
        taken_at=taken_at,
        remarks=tuple(remarks),
    )


class _Row:
    """The lines of one card."""

    def __init__(self, first: re.Match[str]) -> None:
        self.first = first
        self.second: re.Match[str] | None = None
        self.third: re.Match[str] | None = None
        self.index = int(first["index"])

    def card(self, processes: Maybe[tuple[Process, ...]]) -> Card:
        first, second, third = self.first, self.second, self.third
        ecc = _whole(first["ecc"])
        memory, power = Memory(), Power()
        state: Maybe[int] = NOT_ASKED
        heat: Maybe[int] = NOT_ASKED
        compute: Maybe[str] = NOT_ASKED
        busy: Maybe[int] = NOT_ASKED
        if second is not None:
            memory = Memory(total_bytes=_mib(second["total"]), used_bytes=_mib(second["used"]))
            power = Power(limit_watts=_float(second["limit"]), draw_watts=_float(second["draw"]))
            state, heat = _whole(second["state"].removeprefix("P")), _whole(second["temperature"].rstrip("C"))
            busy = _whole(second["busy"].rstrip("%"))
            said = second["compute"]
            compute = absence(said) or COMPUTE_MODES.get(said.lower()) or said.lower().replace(" ", "_")
        mig = _flag(third["mig"]) if third is not None else NOT_ASKED
        ecc_off = first["ecc"].lower() in ("off", "disabled")
        # A card that is going prints ERR! for what it no longer answers; the table does not say more.
        answers = second is not None and "ERR!" not in second[0]
        return Card(
            vendor="nvidia",
            source=TABLE.name,
            index=self.index,
            usable=True if answers else NOT_ASKED,
            lost=False if answers else NOT_ASKED,
            pci_address=pci_address(first["bus"]) or NOT_ASKED,
            identity=Identity(name=_name(first["name"])),
            memory=memory,
            # Volatile errors since the driver was loaded; where ECC is off, or there is none, no number stands here.
            health=Health(
                ecc_enabled=False if ecc_off else ecc if isinstance(ecc, Absent) else True,
                ecc_volatile=EccCounts(uncorrected=ecc) if not isinstance(ecc, Absent) else NOT_ASKED,
            ),
            power=power,
            clocks=Clocks(performance_state=state),
            temperature=Temperature(gpu_celsius=heat),
            modes=Modes(persistence=_flag(first["persistence"]), compute=compute, mig_enabled=mig),
            processes=processes,
            gpu_utilization_percent=busy,
        )


def _version(text: str | None) -> Maybe[str]:
    if text is None:
        return NOT_ASKED
    return absence(text) or version(text) or Absent(why=Why.failed, detail=f"not understood: {text[:80]!r}")


def _name(text: str) -> Maybe[str]:
    if _CUT_NAME.search(text):
        return Absent(why=Why.failed, detail=f"the table cuts it short: {text}")
    return absence(text) or word(text) or NOT_ASKED


def _whole(text: str) -> Maybe[int]:
    return int(text) if re.match(r"\d{1,15}$", text) else _not(text)


def _float(text: str) -> Maybe[float]:
    watts = _whole(text.rstrip("W"))
    return watts if isinstance(watts, Absent) else float(watts)


def _mib(text: str) -> Maybe[int]:
    size = _whole(text.removesuffix("MiB"))
    return size if isinstance(size, Absent) else size * MIB


def _flag(text: str) -> Maybe[bool]:
    said = text.strip("*").lower()
    if said in ("on", "enabled"):
        return True
    return False if said in ("off", "disabled") else _not(text)


def _not(text: str) -> Absent:
    return absence(text) or Absent(why=Why.failed, detail=f"not understood: {text[:80]!r}")


def _spaced(size: str) -> str:
    return size.replace("MiB", " MiB")


def _unnamed(pattern: re.Pattern[str]) -> str:
    """The pattern as a part of a larger one."""
    return re.sub(r"\?P<\w+>", "?:", pattern.pattern)


def _lines(text: str) -> Iterator[str]:
    for line in text[:4_000_000].removesuffix("\n").split("\n"):
        yield line[:400]


# Instead of the table

_ERRORS: tuple[tuple[str, str], ...] = (
    ("Failed to initialize NVML: Driver/library version mismatch", "NVML_ERROR_LIB_RM_VERSION_MISMATCH"),
    ("NVIDIA-SMI has failed because it couldn't communicate with", "NVML_ERROR_DRIVER_NOT_LOADED"),
    ("Failed to initialize NVML: Driver Not Loaded", "NVML_ERROR_DRIVER_NOT_LOADED"),
    ("Failed to initialize NVML: Insufficient Permissions", "NVML_ERROR_NO_PERMISSION"),
    ("Failed to initialize NVML: Unknown Error", "NVML_ERROR_UNKNOWN"),
    ("Failed to initialize NVML: ", "NVML"),
)
"""How the line begins, and the error of NVML behind it, by which rules know it."""
_NONE = re.compile(r"No devices were found")
_HANDLE = re.compile(
    r"Unable to determine the device handle for GPU ?(?P<bus>[0-9A-Fa-f:.]{7,16}): (?P<said>.{1,120})"
)


def _read_error(section: Section) -> Piece:
    cards: list[Card] = []
    for line in _lines(section.text):
        for said, name in _ERRORS:
            if line.startswith(said):
                return Piece(cards=Absent(why=Why.failed, detail=f"{name}: {word(line[:200])}"))
        if _NONE.match(line):
            return Piece(cards=(), topology=Topology(nvml_count=0))
        if handle := _HANDLE.match(line):
            cards.append(
                Card(
                    vendor="nvidia",
                    source=ERROR.name,
                    index=len(cards),
                    usable=False,
                    lost="lost" in handle["said"].lower(),
                    pci_address=pci_address(handle["bus"]) or NOT_ASKED,
                    identity=Identity(name=Absent(why=Why.failed, detail=handle["said"].strip())),
                )
            )
    told = Absent(
        why=Why.failed, detail="nvidia-smi could not get at every card and says nothing of the others"
    )
    return Piece(
        cards=tuple(cards) if cards else NOT_ASKED, topology=Topology(nvml_count=told), numbered=False
    )


_WITHIN = re.compile(rf"{_unnamed(_VERSIONS)}|{_unnamed(_FIRST)}", re.MULTILINE)
TABLE = Kind(
    "nvidia-smi",
    _read,
    begins=re.compile(r"[A-Z][a-z]{2} [A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d:\d\d \d{4}\s*$"),
    goes_on=_WITHIN,
    recognises=lambda text: bool(re.search(rf"^(?:{_WITHIN.pattern})", text, re.MULTILINE)),
)
ERROR = Kind(
    "nvidia-smi (error)",
    _read_error,
    begins=re.compile("|".join([*(re.escape(said) for said, _ in _ERRORS), _NONE.pattern])),
    goes_on=_HANDLE,
)
KINDS = (TABLE, ERROR)

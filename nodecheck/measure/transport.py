"""How a group's data went: the log of NCCL or RCCL → `facts.Transport`.

Read are NCCL 2.14 to 2.29 and RCCL. A log comes from a program that anybody may have replaced, and may be torn, or
mixed from several ranks: whatever is no known line is passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from nodecheck.facts.measurements import Transport
from nodecheck.sources.channel import Json

MARK = "nodecheck runs "
"""Begins the line that names the next collective, as the worker's stage `collectives` writes it."""

MOST_LINES = 200_000
MOST_LINE_CHARACTERS = 2000
MOST_NAMES = 64
MOST_NOTES = 12

_COLLECTIVES = {
    "AllReduce": "all_reduce",
    "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter",
    "Broadcast": "broadcast",
    "Reduce": "reduce",
    "AlltoAll": "all_to_all",
    "AllToAll": "all_to_all",
}
_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
"""In the order of NCCL's numbers (`NCCL_ALGO_*` in nccl_common.h): until 2.23 its log gives the number alone."""
_PROTOCOLS = ("LL", "LL128", "SIMPLE")
"""`NCCL_PROTO_*`."""

_VERSION = re.compile(r"(?:^|NCCL INFO )\s*([NR]CCL) version\s*:?\s*(\d+(?:\.\d+){1,3})")
_VIA = re.compile(r" via (direct shared memory|(?:P2P|SHM|NET|COLLNET)\b[^\[\]\n]*)")
_TUNING = re.compile(r"(?:\b([A-Za-z]+): )?\b(\d{1,19}) Bytes -> Algo (\w+) proto (\w+)")
_MARK = re.compile(re.escape(MARK) + r"([a-z_]{1,32}) (\d{1,19})\b")
_NVLS_CHANNELS = re.compile(r"\b([1-9]\d{0,4}) nvls channels")
_NVLS_ABSENT = re.compile(r"NVLS multicast support is not available")
_NVLS_FAILED = re.compile(r"(?:bind|create|Failed).{0,80}(?:NVLink SHARP|NVLS|[Mm]ulticast).{0,160}")
_CHANNELS = re.compile(r"\b([1-9]\d{0,4}) coll channels")
_MSCCL = re.compile(r"MSCCL: Initialization finished")
_SETTING = re.compile(r"\b([NR]CCL_[A-Z0-9_]{1,60}) set (?:by environment )?to (\S{1,80})")
_OURS = ("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE")


@dataclass(frozen=True)
class Log:
    """What one rank's log, or several ranks', says."""

    library: str = ""
    """`NCCL 2.28.9`, `RCCL 2.22.3`; empty where the log does not say."""
    paths: tuple[str, ...] = ()
    """As `Transport.paths`."""
    algorithms: tuple[tuple[str, str], ...] = ()
    """As `Transport.algorithms`."""
    notes: tuple[str, ...] = ()
    """As `Transport.notes`."""


def read(log: str) -> Log:
    """Any text; never raises."""
    library, call, channels = "", "", False
    of_rccl: dict[str, None] = {}
    paths: dict[str, None] = {}
    algorithms: dict[tuple[str, str], None] = {}
    notes: dict[str, None] = {}
    for whole in log.splitlines()[:MOST_LINES]:
        line = whole[:MOST_LINE_CHARACTERS]
        if found := _MARK.search(line):
            call = f"{found[1]} {found[2]}"
        elif found := _VIA.search(line):
            paths[_path(found[1])] = None
        elif found := _TUNING.search(line):
            collective = _COLLECTIVES.get(found[1] or "", found[1] or "")
            # Which rank's share the line counts depends on NCCL's version: our own word on the call is better.
            about = (
                call if not collective or call.startswith(f"{collective} ") else f"{collective} {found[2]}"
            )
            algorithm = f"{_name(found[3], _ALGORITHMS)}/{_name(found[4], _PROTOCOLS)}"
            algorithms[(about or found[2], algorithm)] = None
        elif found := _VERSION.search(line):
            library = library or f"{found[1]} {found[2]}"
        elif found := _SETTING.search(line):
            if found[1] not in _OURS:
                notes[f"{found[1]} set to {_plain(found[2]).removesuffix('.')}"] = None
        elif _NVLS_ABSENT.search(line):
            notes["NVLS multicast support is not available"] = None
        elif found := _NVLS_FAILED.search(line):
            notes[_plain(found[0])] = None
        elif _MSCCL.search(line):
            of_rccl["MSCCL is on, and names no algorithm for the collectives that it runs"] = None
        if found := _CHANNELS.search(line):
            of_rccl[f"{found[1]} channels for collectives"] = None
        channels = channels or _NVLS_CHANNELS.search(line) is not None
    if any(algorithm.startswith("NVLS") for _, algorithm in algorithms) or (channels and not algorithms):
        # Channels alone say that it could be used; NCCL up to 2.18 says no more.
        paths["NVLS"] = None
    if library.startswith("RCCL"):
        # Of xGMI's many links each channel takes a few; NCCL's channels say nothing that its paths do not.
        notes |= of_rccl
    return Log(
        library,
        tuple(paths)[:MOST_NAMES],
        tuple(algorithms)[: 4 * MOST_NAMES],
        tuple(notes)[:MOST_NOTES],
    )


def transport(cards: Sequence[str], name: str, answers: Iterable[Mapping[str, Json]]) -> Transport:
    """Of a group, from what stage `transport` answered on each of its cards.

    Paths are empty where there was no log to read: nobody knows then how the data went.
    """
    told = list(answers)
    if told and all(answer.get("backend") == "gloo" for answer in told):
        return Transport(cards=tuple(cards), name=name, paths=("gloo/TCP",), library="gloo")
    logs = [read(text) for answer in told if isinstance(text := answer.get("log"), str)]
    library = next((log.library for log in logs if log.library), "") or _library(told)
    return Transport(
        cards=tuple(cards),
        name=name,
        paths=tuple(dict.fromkeys(path for log in logs for path in log.paths)),
        algorithms=tuple(dict.fromkeys(pair for log in logs for pair in log.algorithms)),
        library=library,
        notes=tuple(dict.fromkeys(note for log in logs for note in log.notes))[:MOST_NOTES],
    )


def _library(answers: Iterable[Mapping[str, Json]]) -> str:
    """By torch's word."""
    for answer in answers:
        version = answer.get("version")
        if isinstance(version, list) and version and all(isinstance(part, int) for part in version):
            name = "RCCL" if answer.get("library") == "RCCL" else "NCCL"
            return f"{name} {'.'.join(str(part) for part in version[:4])}"
    return ""


def _path(text: str) -> str:
    """`P2P/CUMEM`, `P2P/IPC`, `P2P/direct`, `P2P/indirect`, `SHM`, `NET/Socket`, `NET/IB`, `COLLNET`.

    What follows (which adapter, whether one side reads, GDRDMA, the communicator of RCCL) is left off.
    """
    if text.startswith("direct shared memory"):
        return "SHM"
    kind, _, rest = text.strip().partition("/")
    if kind not in ("P2P", "NET"):
        return re.sub(r"\W.*", "", kind) or "?"
    way = rest.partition("/")[0].partition(" comm ")[0].strip()
    if kind == "P2P":
        way = way.partition(" ")[0]  # `direct pointer`
    way = _plain(way)[:32]
    return f"{kind}/{way}" if way else kind


def _name(word: str, names: Sequence[str]) -> str:
    if word.isdecimal() and len(word) < 4:
        return names[int(word)] if int(word) < len(names) else word
    return _plain(word).upper()[:32]


def _plain(text: str) -> str:
    """Printable, on one line, and short."""
    return "".join(sign for sign in text if sign.isprintable())[:200].strip()

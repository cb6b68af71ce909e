"""What nvidia-smi lists card by card: `-L`, `nvlink -s`, `nvlink -c`, `nvlink -e`."""

from __future__ import annotations

import re
from typing import Any

from nodecheck.facts import NOT_ASKED, Absent, Card, Topology, Why
from nodecheck.facts.card import Identity, Link, Modes
from nodecheck.imports.kind import Kind, Piece, Section
from nodecheck.imports.readers.nvidia_fields import MAX_CARDS, absence, counted, uuid
from nodecheck.probes.kernel_log import pci_address
from nodecheck.probes.text import word

_CARD = re.compile(
    r"GPU (?P<index>\d{1,3}): (?P<name>\S.{0,100}?) \(UUID: (?P<uuid>GPU-[0-9A-Fa-f-]{4,64})\)\s*$"
)
_MIG = re.compile(r"\s+MIG \S.{0,60}Device +\d+: \(UUID: ")
_LINK = re.compile(
    r"\s+Link (?P<link>\d{1,3})(?:: (?P<state>.{0,60})|, (?P<what>[A-Z][\w ]{1,40}): (?P<said>\S{1,20}))"
)
_COUNT = re.compile(r"(?P<counter>Replay|Recovery|CRC FLIT|CRC Flit|CRC) Errors: (?P<count>\d{1,18})")
_SPEED = re.compile(r"(?P<speed>\d{1,6}(?:\.\d{1,6})?) GB/s$")
_REMOTE = re.compile(r"\s+Link (?P<link>\d{1,3}): Remote Device (?P<bus>[0-9A-Fa-f:.]{7,16})")

_COUNTERS = {
    "replay": "replay_errors", "recovery": "recovery_errors", "crc flit": "crc_flit_errors", "crc": "crc_data_errors",
}  # fmt: skip
_MAX_LINKS = 36


def _read(section: Section, source: str) -> Piece:
    cards: dict[int, dict[str, Any]] = {}
    links: dict[int, dict[int, dict[str, Any]]] = {}
    instances: dict[int, int] = {}
    now: int | None = None
    last = ""
    *lines, rest = section.text[:4_000_000].split("\n")
    whole = bool(_CARD.match(rest)) or rest.endswith((" GB/s", ">"))
    if whole:  # also without an end of line
        lines.append(rest)
    for line in lines:
        line = line[:300].rstrip()
        last = line or last
        if named := _CARD.match(line):
            if len(cards) >= MAX_CARDS:
                break
            now = int(named["index"])
            cards[now] = {
                "uuid": uuid(named["uuid"]),
                "identity": Identity(name=word(named["name"]) or NOT_ASKED),
            }
        elif now is not None and _MIG.match(line):
            instances[now] = instances.get(now, 0) + 1
        elif now is not None and (link := _LINK.match(line)) and int(link["link"]) < _MAX_LINKS:
            told = links.setdefault(now, {}).setdefault(int(link["link"]), {})
            if link["state"] is not None:
                told |= _state(link["state"].strip(), line)
    cut = bool(rest) and not whole
    if now is not None and links and not cut:
        # Each card has as many lines as the others.
        cut = bool(_CARD.match(last)) or 0 < len(links.get(now, ())) < max(map(len, links.values()))
    if now is not None and cut:
        links.pop(now, None)
    listed = tuple(
        Card(
            vendor="nvidia",
            source=source,
            index=index,
            usable=True,
            modes=Modes(mig_enabled=True, mig_instances=instances[index]) if index in instances else Modes(),
            links=tuple(Link(index=k, **told) for k, told in sorted(links[index].items()) if told)
            if index in links
            else NOT_ASKED,
            **told,
        )
        for index, told in sorted(cards.items())
    )
    return Piece(
        cards=listed, topology=Topology(nvml_count=_CUT if cut or not section.whole else counted(cards))
    )


_CUT = Absent(why=Why.failed, detail="the list is cut short")


def _state(said: str, line: str) -> dict[str, Any]:
    """What a line says of its link."""
    if counted := _COUNT.match(said):
        return {_COUNTERS[counted["counter"].lower()]: int(counted["count"])}
    if remote := _REMOTE.match(line):
        return {"remote_pci_address": pci_address(remote["bus"]) or NOT_ASKED}
    if "inactive" in said.lower():
        return {"active": False}
    if speed := _SPEED.match(said):
        return {"active": True, "speed_mb_per_s": round(float(speed["speed"]) * 1000)}
    absent = absence(said)
    return {"active": absent} if absent else {}


_STATUS_LINE = re.compile(
    r"^\s+Link \d{1,3}: (?:\d{1,6}(?:\.\d{1,6})? GB/s|<?inactive>?)", re.MULTILINE | re.IGNORECASE
)
_ERROR_LINE = re.compile(r"^\s+Link \d{1,3}: \S.{0,20} Errors: ", re.MULTILINE)
_CAPABILITY_LINE = re.compile(r"^\s+Link \d{1,3}, .{1,60}: ", re.MULTILINE)


def _kind(name: str, command: str, sign: re.Pattern[str] | None) -> Kind:
    return Kind(
        name,
        lambda section: _read(section, name),
        goes_on=_CARD,
        command=re.compile(command),
        recognises=lambda text: sign is None or bool(sign.search(text)),
    )


KINDS = (
    _kind("nvidia-smi nvlink -s", r"nvidia-smi nvlink .{0,40}(?:-s|--status)\b", _STATUS_LINE),
    _kind("nvidia-smi nvlink -e", r"nvidia-smi nvlink .{0,40}(?:-e|--errorcounters)\b", _ERROR_LINE),
    _kind("nvidia-smi nvlink -c", r"nvidia-smi nvlink .{0,40}(?:-c|--capabilities)\b", _CAPABILITY_LINE),
    _kind("nvidia-smi -L", r"nvidia-smi (?:-L|--list-gpus)\b", None),
)

"""`rocm-smi`: its table of all cards, the lines of its other options, the matrices of `--showtopo`, and its JSON.

Text is brought into the form of the JSON, so that one parser reads both (`nodecheck.probes.rocm_smi`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nodecheck.facts import NOT_ASKED, Absent, Maybe, Topology, Why, known
from nodecheck.imports.kind import Kind, Piece, Section, Unreadable
from nodecheck.imports.readers.amd_fields import MAX_CARDS, MAX_TEXT, cards, counted, lines, pairs
from nodecheck.probes.amd_smi import PairTold, documents
from nodecheck.probes.rocm_smi import address, entries, values

Entries = dict[int, dict[str, Any]]

_UNTOLD = Absent(why=Why.not_supported, detail="rocm-smi does not say")


def _piece(
    section: Section, name: str, told: Mapping[int, Mapping[str, Any]], ways: _Ways, whole: bool
) -> Piece:
    if not told:
        raise Unreadable("it speaks of no card")
    found = cards(name, {index: (address(said), _values(said)) for index, said in sorted(told.items())})
    beyond = {index for way in ways for index in way} - set(told)
    count = counted(found, section, whole=whole)
    if known(count) and beyond:
        said = f"it shows {len(found)} cards and speaks of {len(beyond)} more"
        count = Absent(why=Why.failed, detail=said)
    return Piece(
        cards=found,
        topology=Topology(amd_smi_count=count, pairs=pairs(name, found, _told(ways))),
        remarks=() if whole else (f"it is cut short; {len(found)} cards were read",),
    )


def _values(said: Mapping[str, Any]) -> dict[str, Any]:
    node = str(said.get("(topology) numa node", ""))
    return values(said) | ({"numa_node": int(node)} if re.fullmatch(r"\d{1,4}", node) else {})


# What joins two cards

_Ways = dict[tuple[int, int], dict[str, str]]
_PROPERTIES = {"weight": "weight", "link type": "link_type", "link accessibility": "accessible"}


def _told(ways: _Ways) -> Maybe[dict[tuple[int, int], PairTold]]:
    """Its count of hops is left out: it is 1 for every way over xGMI."""
    if not ways:
        return NOT_ASKED
    return {way: _way(said) for way, said in ways.items()}


def _way(said: Mapping[str, str]) -> PairTold:
    kind, weight = said.get("link_type", "").lower(), said.get("weight", "")
    return PairTold(
        link_type=kind if kind in ("xgmi", "pcie") else _UNTOLD,
        weight=int(weight) if re.fullmatch(r"\d{1,4}", weight) else _UNTOLD,
        accessible={"true": True, "false": False}.get(said.get("accessible", "").lower(), NOT_ASKED),
        min_mb_per_s=NOT_ASKED,
        max_mb_per_s=NOT_ASKED,
    )


# JSON


_BETWEEN = re.compile(
    r"\(topology\) (?P<what>[\w ]{1,40}?) between drm devices (?P<a>\d{1,3}) and (?P<b>\d{1,3})$"
)


def _read_json(section: Section) -> Piece:
    """Raises `Unreadable` where the document is damaged or speaks of no card."""
    found = documents(section.text[:MAX_TEXT])
    if isinstance(found, Absent):
        raise Unreadable(found.detail)
    ways: _Ways = {}
    for document in found:
        system = document.get("system") if isinstance(document, dict) else None
        for key, said in system.items() if isinstance(system, dict) else ():
            if (match := _BETWEEN.match(key)) and (name := _PROPERTIES.get(match["what"])):
                ways.setdefault((int(match["a"]), int(match["b"])), {})[name] = str(said)
    return _piece(section, JSON.name, entries(found), ways, whole=True)


# Text


_SAYS = re.compile(
    r"GPU ?\[?(?P<index>\d{1,3})\]?\s{0,20}: (?P<key>[^:]{1,60}?)\s*:\s{0,20}(?P<value>\S.{0,200}?)\s*$"
)
_TITLE = re.compile(r"=+ ?(?P<title>[A-Z][\w ()]{2,60}?) ?=+\s*$")
_MATRIX = re.compile(
    r"(?P<what>Weight|Hops|Link Type|Link Accessibility|Access) between two GPUs", re.IGNORECASE
)
_ROW = re.compile(r"\s{0,8}(?P<index>\d{1,3})\s+\S.{20,200}$")
_HEAD = re.compile(r"\s{0,8}(?:Device|GPU)\s.{0,200}\bPwrCap\b")
_END = "End of ROCm SMI Log"


def _read_text(section: Section) -> Piece:
    """Raises `Unreadable` where it speaks of no card."""
    told: Entries = {}
    ways: _Ways = {}
    matrix, columns, in_table, ended = "", list[int](), False, False
    for line in lines(section):
        line = line[:4000]
        if match := _TITLE.match(line):
            ended = ended or _END in line
            found = _MATRIX.match(match["title"])
            matrix, columns, in_table = found["what"].lower() if found else "", [], False
        elif match := _SAYS.match(line):
            _of(told, int(match["index"])).setdefault(match["key"].strip().lower(), match["value"])
        elif _HEAD.match(line):
            in_table = True
        elif in_table and (match := _ROW.match(line)):
            _of(told, int(match["index"])).update(_row(line))
        elif matrix and not columns:
            columns = [int(number) for number in re.findall(r"GPU(\d{1,3})\b", line)][:MAX_CARDS]
        elif matrix and (words := line.split()) and (row := re.fullmatch(r"GPU(\d{1,3})", words[0])):
            here = int(row[1])
            _of(told, here)
            for there, said in zip(columns, words[1:], strict=False):
                if there != here and (name := _PROPERTIES.get(matrix)):
                    ways.setdefault((here, there), {})[name] = said
    return _piece(section, TEXT.name, told, ways, whole=ended)


def _of(told: Entries, index: int) -> dict[str, Any]:
    return told.setdefault(index, {}) if index in told or len(told) < MAX_CARDS else {}


def _row(line: str) -> Iterator[tuple[str, str]]:
    """A line of the table, under the names of the JSON: columns come and go, so that each is known by its form."""
    for key, pattern in _CELLS:
        if match := pattern.search(line):
            yield key, match[1]


_CELLS: Sequence[tuple[str, re.Pattern[str]]] = (
    ("device id", re.compile(r"\b(0x[0-9a-f]{4})\b")),
    ("temperature (sensor junction) (c)", re.compile(r"(\d{1,3}\.\d)\W{0,2}[cC]\b")),
    ("average graphics package power (w)", re.compile(r"\d\W{0,2}[cC]\s+(\d{1,4}(?:\.\d{1,3})?)W\s")),
    ("memory partition", re.compile(r"\b(NPS[1248]),")),
    ("compute partition", re.compile(r"\bNPS[1248], ?([SDTQC]PX)\b")),
    ("max graphics package power (w)", re.compile(r"\s(\d{1,4}(?:\.\d{1,3})?)W\s+\d{1,3}%\s+\d{1,3}%\s*$")),
    ("gpu use (%)", re.compile(r"\s\d{1,3}%\s+(\d{1,3})%\s*$")),
)

_SIGN = re.compile(
    r"=+ (?:ROCm System|Concise Info|.{0,20} between two GPUs)|^GPU ?\[\d{1,3}\]\s*: ", re.MULTILINE
)
JSON = Kind(
    "rocm-smi --json",
    _read_json,
    begins=re.compile(r"\{"),
    command=re.compile(r"rocm-smi .{0,200}--json"),
    recognises=lambda text: bool(re.search(r'"card\d{1,3}"\s*:', text[:10_000])),
    vendor_numbers="amd",
)
TEXT = Kind(
    "rocm-smi",
    _read_text,
    begins=re.compile(r"=+ ROCm System Management Interface =+"),
    goes_on=re.compile(
        r"GPU ?\[\d{1,3}\]\s{0,20}: |=+ ?(?:Concise Info|\w[\w ]{2,20} between two GPUs) ?=+"
        r"|\s+GPU0(?:\s+GPU\d{1,3}){0,255}\s*$"
    ),
    command=re.compile(r"rocm-smi\b(?!.{0,200}--json)"),
    recognises=lambda text: bool(_SIGN.search(text[:20_000])),
    vendor_numbers="amd",
)
KINDS = (JSON, TEXT)

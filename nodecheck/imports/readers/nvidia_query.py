"""`nvidia-smi -q -x`, `nvidia-smi -q` and `nvidia-smi --query-gpu=… --format=csv`: the same answers in three forms."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from datetime import datetime, timezone
from itertools import islice
from xml.etree.ElementTree import ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import XMLParser

from nodecheck.facts import NOT_ASKED, Absent, Card, Maybe, Stack, Topology, Why
from nodecheck.facts.stack import Driver
from nodecheck.imports.kind import Kind, Piece, Section, Unreadable
from nodecheck.imports.readers.nvidia_fields import CSV_NAMES, MAX_CARDS, Answers, card, value, version

_MAX_PAIRS = 20_000
"""Answers about one card; the longest document there is has under 1000, its tables of clocks left aside."""

_CUT = Absent(why=Why.failed, detail="the output is cut short or damaged before its end")


def _piece(source: str, head: Answers, blocks: list[tuple[str, Answers]], *, whole: bool) -> Piece:
    """What a document says: of the driver in `head`, of each card in a block with its address."""
    attached = _attached(head, len(blocks), whole)
    remarks = []
    if not whole:
        remarks.append(f"it is cut short or damaged; {len(blocks)} cards were read")
    elif isinstance(attached, int) and attached != len(blocks):
        remarks.append(f"it says that {attached} cards are attached and shows {len(blocks)}")
    numbered = not whole or attached == len(blocks) or isinstance(attached, Absent)
    return Piece(
        cards=_cards(source, blocks) if blocks or (whole and attached == 0) else NOT_ASKED,
        topology=Topology(nvml_count=attached),
        stack=Stack(
            driver=Driver(
                version=value(head, version, "driver_version", "driver version"),
                cuda_version=value(head, version, "cuda_version", "cuda version"),
            )
        ),
        taken_at=time_of(str(head.get("timestamp"))),
        numbered=numbered,
        remarks=tuple(remarks),
    )


def _cards(source: str, blocks: list[tuple[str, Answers]]) -> tuple[Card, ...]:
    return tuple(card(answers, source, index, address) for index, (address, answers) in enumerate(blocks))


def _attached(head: Answers, shown: int, whole: bool) -> Maybe[int]:
    said = head.get("attached_gpus", "attached gpus")
    if isinstance(said, str) and re.match(r"\d{1,4}$", said):
        return int(said)
    if not whole:
        return _CUT
    told = f"the output shows {shown} and does not say how many cards are attached"
    return Absent(why=Why.failed, detail=told)


def time_of(text: str) -> datetime | None:
    """`Mon Nov 30 17:04:42 2026`, or `2026/11/30 17:04:42.123`. The node's own time zone is not told; UTC is
    assumed."""
    line = " ".join(text.split())
    form = "%a %b %d %H:%M:%S %Y" if line[:1].isalpha() else "%Y/%m/%d %H:%M:%S.%f"
    try:
        return datetime.strptime(line[:40], form).replace(tzinfo=timezone.utc)
    except ValueError:
        return None


# XML

_LEFT_OUT = ("supported_clocks", "accounted_processes")
"""Long tables of which nothing is used."""

_UNFIT = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
"""Characters that XML does not allow; names of processes may hold them."""


_MAX_DEPTH, _MAX_ELEMENTS = 40, 400_000
"""Eight cards with all their tables of clocks have under 7000 elements."""


class _TooMuch(Exception):
    """No such document is as deep or as long."""


class _Target:
    """Collects the answers while the document is parsed, so that its tree is never held."""

    def __init__(self) -> None:
        self.head: list[tuple[str, str]] = []
        self.blocks: list[tuple[str, list[tuple[str, str]]]] = []
        self.ended = False
        self._elements = 0
        self._path: list[str] = []
        self._text: list[str] = []
        self._leaf = False

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        tag = tag.lower()[:80]
        self._elements += 1
        if len(self._path) > _MAX_DEPTH or self._elements > _MAX_ELEMENTS:
            raise _TooMuch
        if len(self._path) == 1 and tag == "gpu" and len(self.blocks) < MAX_CARDS:
            self.blocks.append((attributes.get("id", "")[:80], []))
        self._path.append(tag)
        self._text, self._leaf = [], True

    def data(self, data: str) -> None:
        if len(self._text) < 8:
            self._text.append(data[:1000])

    def end(self, _tag: str) -> None:
        path, text = self._path, "".join(self._text).strip()
        if self._leaf and not any(name in _LEFT_OUT for name in path):
            pairs = self.blocks[-1][1] if path[1:2] == ["gpu"] and self.blocks else self.head
            if len(pairs) < _MAX_PAIRS:
                pairs.append(("/".join(path[2:] if path[1:2] == ["gpu"] else path[1:]), text))
        path.pop()
        self._text, self._leaf = [], False
        self.ended = not path

    def close(self) -> None:
        return None


def _read_xml(section: Section) -> Piece:
    text = section.text
    end = text.find("</nvidia_smi_log>")
    document = text if end < 0 else text[: end + len("</nvidia_smi_log>")]
    target = _Target()
    parser = XMLParser(target=target)
    try:
        for at in range(0, len(document), 65536):
            parser.feed(_UNFIT.sub("?", document[at : at + 65536]))
    except (ParseError, DefusedXmlException, _TooMuch):
        pass  # what came before the damage counts
    return _piece(
        XML.name,
        Answers(target.head),
        [(address, Answers(pairs)) for address, pairs in target.blocks],
        whole=target.ended,
    )


# Text

_BLOCK = re.compile(r"GPU (?P<address>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s*$")
_ANSWER = re.compile(r"(?P<indent> *)(?P<name>\S[^:]{0,100}?) *(?: : ?(?P<value>.{0,1000}))?$")


def _read_text(section: Section) -> Piece:
    head: list[tuple[str, str]] = []
    blocks: list[tuple[str, list[tuple[str, str]]]] = []
    pairs, path = head, list[tuple[int, str]]()
    last = ""
    # Where the text ends within a line, that may be half of a value.
    for line in _lines(section.text[: section.text.rfind("\n") + 1]):
        if block := _BLOCK.match(line):
            if len(blocks) >= MAX_CARDS:
                break
            pairs, path = [], []
            blocks.append((block["address"], pairs))
            continue
        answer = _ANSWER.match(line.expandtabs(4).rstrip())
        if answer is None or not line.strip() or len(pairs) >= _MAX_PAIRS:
            continue
        last = line
        indent = len(answer["indent"])
        while path and path[-1][0] >= indent:
            path.pop()
        path.append((indent, answer["name"].lower()))
        if answer["value"] is not None:
            pairs.append(("/".join(name for _, name in path[-8:]), answer["value"].strip()))
    # Cut within a line, or before the first card: otherwise nothing in the form itself tells.
    whole = section.whole and (not last or " : " in last or _heading(last)) and bool(blocks)
    return _piece(
        TEXT.name, Answers(head), [(address, Answers(told)) for address, told in blocks], whole=whole
    )


def _heading(line: str) -> bool:
    return line.startswith(" ") and ":" not in line


def _lines(text: str) -> Iterator[str]:
    position = 0
    while position < len(text):
        end = text.find("\n", position)
        end = len(text) if end < 0 else end
        yield text[position : min(end, position + 1200)]
        position = end + 1


# CSV

_NAME = r"[a-z][a-z_0-9.]{1,80}(?: \[[A-Za-z/%]{1,8}\])?"
_KNOWN = "|".join(re.escape(name) for name in sorted(CSV_NAMES, key=len, reverse=True))
_HEADER = re.compile(
    rf"(?=[^\n]{{0,4000}}[.,])(?=(?:[^,\n]{{1,80}},){{0,150}}? ?(?:{_KNOWN})(?:[ ,]|\s*$))"
    rf"{_NAME}(?:, ?{_NAME}){{0,150}}\s*$"
)
_ASKED = re.compile(r"--query-gpu[= ]['\"]?([\w.,]{1,4000})")


def _columns(line: str) -> list[str]:
    return [name.split(" [")[0].strip() for name in line.split(",")]


def _read_csv(section: Section) -> Piece:
    lines = list(islice((line for line in _lines(section.text) if line.strip()), MAX_CARDS + 1))
    if lines and _HEADER.match(lines[0]):
        columns, lines = _columns(lines[0]), lines[1:]
    elif asked := _ASKED.search(section.heading):
        columns = asked[1].split(",")
    else:
        raise Unreadable("its columns have no names: paste the command, or leave noheader out of its format")
    rows = []
    remarks = []
    for line in lines:
        cells = next(csv.reader([line], skipinitialspace=True), [])
        if len(cells) != len(columns):
            remarks.append("a line has another number of values than there are columns, and was left out")
            continue
        rows.append(Answers(zip(columns, (cell.strip() for cell in cells), strict=True)))
    cards = []
    for place, row in enumerate(rows):
        index = row.get("index")
        numbered = isinstance(index, str) and re.match(r"\d{1,3}$", index)
        cards.append(card(row, CSV.name, int(str(index)) if numbered else place))
    first = rows[0] if rows else Answers(())
    count = value(first, lambda text: int(text) if re.match(r"\d{1,4}$", text) else None, "count")
    if count == NOT_ASKED:
        count = Absent(why=Why.failed, detail="the output does not say how many cards there are")
    return Piece(
        cards=tuple(cards) if cards else NOT_ASKED,
        topology=Topology(nvml_count=count),
        stack=Stack(driver=Driver(version=value(first, version, "driver_version"))),
        taken_at=time_of(str(first.get("timestamp"))),
        numbered="index" in columns,
        remarks=tuple(dict.fromkeys(remarks)),
    )


XML = Kind(
    "nvidia-smi -q -x",
    _read_xml,
    begins=re.compile(r"(?:\s*<\?xml[^>]{0,200}>)?\s*(?:<!DOCTYPE[^>]{0,200}>)?\s*<nvidia_smi_log"),
)
TEXT = Kind("nvidia-smi -q", _read_text, begins=re.compile(r"=+ ?NVSMI LOG ?=+"), goes_on=_BLOCK)
CSV = Kind(
    "nvidia-smi --query-gpu",
    _read_csv,
    begins=_HEADER,
    command=re.compile(r"nvidia-smi\b.{0,200}--query-gpu"),
)
KINDS = (XML, TEXT, CSV)

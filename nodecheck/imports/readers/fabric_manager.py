"""The log of NVIDIA's fabric manager: its version; what else it says is told and not judged."""

from __future__ import annotations

import re

from nodecheck.facts import NOT_ASKED, Host
from nodecheck.imports.kind import Kind, Piece, Section
from nodecheck.probes.text import word

_LINE = re.compile(
    r"\[[A-Z][a-z]{2} \d{1,2} \d{4} \d\d:\d\d:\d\d\] \[(?P<level>[A-Z]{4,8})\] \[tid \d{1,10}\] (?P<text>.{0,400})"
)
_VERSION = re.compile(r"Fabric Manager version (?:is )?(\d[\d.]{2,30})", re.IGNORECASE)
_GRAVE = ("ERROR", "CRITICAL")


def _read(section: Section) -> Piece:
    version, grave, first = "", 0, ""
    position = 0
    text = section.text
    while position < len(text):
        end = text.find("\n", position)
        end = len(text) if end < 0 else end
        line = _LINE.match(text[position : min(end, position + 600)])
        position = end + 1
        if line is None:
            continue
        if found := _VERSION.search(line["text"]):
            version = found[1].rstrip(".")
        if line["level"] in _GRAVE:
            grave += 1
            first = first or (word(line["text"]) or "")
    remarks = (f"{grave} lines of errors, which no check looks at; the first: {first}",) if grave else ()
    return Piece(host=Host(fabric_manager_version=version) if version else NOT_ASKED, remarks=remarks)


FABRIC_MANAGER = Kind("fabric manager log", _read, goes_on=_LINE)
KINDS = (FABRIC_MANAGER,)

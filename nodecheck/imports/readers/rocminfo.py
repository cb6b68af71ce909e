"""`rocminfo`: what ROCm's runtime hands to programs, agent by agent.

`BDFID` is the PCI address without its domain. Virtual functions each have a domain of their own and the same BDFID,
often 0, so that it names no card: cards are known by their UUID, which is the one that HIP has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from nodecheck.imports.kind import Kind, Piece, Section, Unreadable
from nodecheck.imports.readers.amd_fields import MAX_CARDS, card, lines
from nodecheck.probes.amdgpu import of_gfx
from nodecheck.probes.text import word

_CLOSED = re.compile(r"Unable to open /dev/kfd.{0,100}|ROCk module is NOT loaded.{0,60}")
_AGENT = re.compile(r"\s{0,8}Agent \d{1,3}\s*$")
_SAYS = re.compile(r"\s{2,4}(?P<key>[A-Z][\w .()/-]{1,40}?):\s{0,40}(?P<value>\S.{0,200}?)\s*$")


def read(section: Section) -> Piece:
    """Raises `Unreadable` where no agent is a card."""
    agents = [agent for agent in _agents(lines(section)) if agent.get("device type") == "GPU"]
    if not agents:
        closed = _CLOSED.search(section.text[:10_000])
        raise Unreadable(f"rocminfo sees no card: {closed[0]}" if closed else "none of its agents is a card")
    found = tuple(
        card(KIND.name, index, values=_values(agent)) for index, agent in enumerate(agents[:MAX_CARDS])
    )
    return Piece(cards=found)


def _agents(text: Iterable[str]) -> Iterator[dict[str, str]]:
    """What stands under each agent in the first place; the size of its pools is
    less than the card's memory."""
    agent: dict[str, str] | None = None
    for line in text:
        line = line[:300]
        if _AGENT.match(line):
            if agent:
                yield agent
            agent = {}
        elif agent is None:
            continue
        elif match := _SAYS.match(line):
            agent.setdefault(match["key"].lower(), match["value"])
    if agent:
        yield agent


def _values(agent: dict[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if re.fullmatch(r"gfx[0-9a-f]{3,5}", name := agent.get("name", "")):
        values |= of_gfx(name)
    if re.fullmatch(r"GPU-[0-9a-f]{16}", uuid := agent.get("uuid", ""), re.IGNORECASE):
        values["uuid"] = f"GPU-{uuid[4:].lower()}"
    if product := word(agent.get("marketing name", "")):
        values["identity.name"] = product
    if match := re.fullmatch(r"\d{1,6}\(0x([0-9a-f]{1,4})\)", agent.get("chip id", "")):
        values["identity.pci_id"] = f"1002:{match[1].zfill(4)}"
    if re.fullmatch(r"[1-9]\d{0,3}", units := agent.get("compute unit", "")):
        values["identity.compute_units"] = int(units)
    if re.fullmatch(r"[1-9]\d{2,4}", clock := agent.get("max clock freq. (mhz)", "")):
        values["clocks.max_sm_mhz"] = int(clock)
    return values


KIND = Kind(
    "rocminfo",
    read,
    begins=re.compile(r"ROCk module (?:version \S{1,40} )?is (?:NOT )?loaded"),
    goes_on=re.compile(
        r"HSA (?:System Attributes|Agents)\s*$|\s{2,4}Uuid:\s+(?:GPU|CPU)-|\s{0,8}Agent \d{1,3}\s*$"
    ),
    command=re.compile(r"\brocminfo\b"),
    vendor_numbers="hsa",
)
KINDS = (KIND,)

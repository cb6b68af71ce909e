"""`amd-smi`: its JSON, the same as indented text, its tables of links, and the table that it prints by itself.

Text is brought into the form of the JSON, so that one parser reads both (`nodecheck.probes.amd_smi`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from nodecheck.facts import NOT_ASKED, Absent, Card, Maybe, Stack, Topology, Why, known
from nodecheck.facts.base import NVIDIA_ALONE
from nodecheck.facts.card import Link, Process
from nodecheck.imports.kind import Kind, Piece, Section, Unreadable
from nodecheck.imports.readers.amd_fields import (
    MAX_CARDS,
    MAX_TEXT,
    cards,
    counted,
    driver,
    lines,
    pairs,
)
from nodecheck.probes.amd_smi import MIB, AmdSmi, documents
from nodecheck.probes.amdgpu import VIRTUAL_FUNCTIONS
from nodecheck.probes.kernel_log import pci_address
from nodecheck.probes.text import word
from nodecheck.sources.child import Output

_HEAD = 200_000
"""Characters in which an output has shown what it is."""


def _read(section: Section, command: str) -> Piece:
    """Raises `Unreadable` where the JSON is damaged, or nothing in the text speaks of a card."""
    name = f"amd-smi {command}"
    text = section.text[:MAX_TEXT]
    entries, whole = _from_text(section, command)
    if entries:
        text = json.dumps(entries)
    smi = _parsed(command, text)
    if not smi.numbers:
        damaged = documents(text)
        raise Unreadable(damaged.detail if isinstance(damaged, Absent) else "it speaks of no card")
    addresses = smi.addresses if known(smi.addresses) else {}
    found = cards(name, {gpu: (addresses.get(gpu), smi.values(gpu)) for gpu in smi.numbers})
    if command == "xgmi":
        found = _with_links(found, smi)
    count: Maybe[int] = NOT_ASKED
    if all(known(card.pci_address) for card in found):
        count = counted(found, section, whole=whole)
    return Piece(
        cards=found,
        topology=Topology(amd_smi_count=count, pairs=pairs(name, found, smi.ways)),
        remarks=() if whole else (f"it is cut short; {len(found)} cards were read",),
    )


def _parsed(command: str, text: str) -> AmdSmi:
    said: dict[str, Maybe[Output]] = {command: Output(0, text, "", 0.0)}
    smi = AmdSmi(said, virtual=False)
    ids = {smi.values(gpu).get("identity.pci_id") for gpu in smi.numbers[:MAX_CARDS]}
    return AmdSmi(said, virtual=True) if ids & VIRTUAL_FUNCTIONS else smi


_GUESTS = Absent(
    why=Why.not_supported,
    detail="every link is said to be down, as releases before 7.12 say of all links of a virtual function",
)
_NO_COUNTERS = dict.fromkeys(
    ("version", "replay_errors", "recovery_errors", "crc_flit_errors", "crc_data_errors", "effective_errors"),
    NVIDIA_ALONE,
)


def _with_links(found: Sequence[Card], smi: AmdSmi) -> tuple[Card, ...]:
    """The cards, with the states of their links: by the cards at the far ends, or by ports."""
    states = {
        card.index: smi.link_states(card.pci_address)
        for card in found
        if not isinstance(card.pci_address, Absent)
    }
    told = {state for said in states.values() if not isinstance(said, Absent) for _, state in said} - {"X"}
    update = []
    for card in found:
        said = states.get(card.index, NOT_ASKED)
        links: Maybe[tuple[Link, ...]]
        if isinstance(said, Absent):
            links = said if said.why is not Why.not_present else NOT_ASKED
        elif told == {"D"}:
            links = _GUESTS
        else:
            # A port that is switched off leads nowhere.
            there = [(far, state) for far, state in said if far or state != "X"]
            links = tuple(
                Link(
                    index=i,
                    active=state == "U",
                    remote_kind="gpu",
                    remote_pci_address=far or NOT_ASKED,
                    **_NO_COUNTERS,
                )
                for i, (far, state) in enumerate(there)
            )
        update.append(card.model_copy(update={"links": links}))
    return tuple(update)


# From text to the form of the JSON


Entry = dict[str, Any]


def _from_text(section: Section, command: str) -> tuple[list[Entry], bool]:
    """The entries of the cards, and whether the text goes on to its end. None where it is no text."""
    text = lines(section)
    if command in _TABLES:
        entries, whole = _of_tables(text)
        if entries:
            return entries, whole
    entries = [entry for entry in _blocks(text) if "gpu" in entry]
    if not entries:
        return [], True
    for entry in entries:
        _as_json(entry)
    # Of a card alone only the blank line that ends it says that the text is whole.
    return entries, _tells(entries[-1], entries[0]) if len(entries) > 1 else text[-1] == ""


def _tells(entry: Entry, other: Entry) -> bool:
    """Whether one card is told all that the other is: a text that is cut short tells its last card less."""
    for key, value in other.items():
        if key not in entry:
            return False
        if isinstance(value, dict) and isinstance(entry[key], dict) and not _tells(entry[key], value):
            return False
    return True


_LINE = re.compile(r"(?P<indent> {0,40})(?P<key>[A-Za-z][\w /-]{0,60}):(?: +(?P<value>\S.{0,400}?))?\s*$")


def _blocks(text: Sequence[str]) -> Iterator[Entry]:
    """`GPU: 0` and what stands indented below it. A name that comes again holds a list."""
    entry: Entry | None = None
    inside: list[tuple[int, Entry]] = []
    count = 0
    for line in text:
        match = _LINE.match(line[:600])
        if match is None:
            continue
        indent, key, value = len(match["indent"]), match["key"].lower(), match["value"]
        if indent == 0:
            if entry:
                yield entry
            entry, inside = None, []
            if value is not None and value.isdecimal() and len(value) < 5 and count < MAX_CARDS:
                count += 1
                entry = {key: int(value)}
                inside = [(0, entry)]
            continue
        while inside and inside[-1][0] >= indent:
            inside.pop()
        if not inside:
            continue
        below: Entry = {}
        _put(inside[-1][1], key, below if value is None else value)
        inside.append((indent, below))
    if entry:
        yield entry


def _put(entry: Entry, key: str, value: Any) -> None:
    if key not in entry:
        entry[key] = value
    elif isinstance(entry[key], list):
        entry[key].append(value)
    else:
        entry[key] = [entry[key], value]


def _as_json(entry: Entry) -> None:
    """Lists, which the text writes as names that come again."""
    for key in ("retired", "pending", "un_res"):
        pages = entry.get(key)
        if isinstance(pages, dict):
            addresses = pages.get("page_address", [])
            entry[key] = [{}] * (len(addresses) if isinstance(addresses, list) else 1)
    if "process_info" in entry:
        processes = entry.pop("process_info")
        entry["process_list"] = processes if isinstance(processes, list) else [processes]
    if isinstance(entry.get("process_list"), dict):
        processes = entry["process_list"].get("process_info", [])
        entry["process_list"] = processes if isinstance(processes, list) else [processes]
    if isinstance(entry.get("fw_list"), dict):
        entry["fw_list"] = list(entry["fw_list"].values())


_TABLES = {
    "topology": {
        "ACCESS": "link_status", "WEIGHT": "weight", "LINK TYPE": "link_type", "NUMA BW": "bandwidth",
        "CACHE COHERANCY": "coherent", "CACHE COHERENCY": "coherent", "ATOMICS": "atomics", "DMA": "dma",
        "BI-DIRECTIONAL": "bi_dir", "HOPS": "num_hops",
    },
    "xgmi": {"XGMI LINK STATUS": "link_status", "LINK METRIC": "", "GPU LINK PORT STATUS": "port_status"},
}  # fmt: skip
_TITLE = re.compile(
    "(" + "|".join(title for titles in _TABLES.values() for title in titles) + r")(?: TABLE)?:\s*$"
)
_LABEL = re.compile(
    r"(?:GPU(?P<gpu>\d{1,4})|(?P<bdf>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]))$"
)
_STATE = re.compile(r"(?:U|D|X|SELF|N/A)$")


def _of_tables(text: Sequence[str]) -> tuple[list[Entry], bool]:
    """The tables of `amd-smi topology` and `amd-smi xgmi`, which have a line for each card, and mostly a column."""
    columns: list[str] = []
    order: list[str] = []
    places: dict[str, str] = {}
    cells: dict[str, dict[str, dict[str, str]]] = {}
    states: dict[str, list[str]] = {}
    title: str | None = None
    widest = 0
    for line in text:
        words = line[:8000].split()
        if match := _TITLE.match(line[:100]):
            title, columns = match[1], []
        elif title is None or not words:
            continue
        elif not columns:
            columns = [label for label in words if _LABEL.match(label)] or ["?"]
            widest = max(widest, len(columns))
        elif match := _LABEL.match(words[0]):
            label, rest = words[0], words[1:]
            if len(order) >= MAX_CARDS and label not in order:
                continue
            if label not in order:
                order.append(label)
            if match["bdf"]:
                places[label] = label
            elif rest and (there := _LABEL.match(rest[0])) and there["bdf"]:
                places[label] = rest.pop(0)
            if title in ("XGMI LINK STATUS", "GPU LINK PORT STATUS"):
                if title == "XGMI LINK STATUS":
                    states[label] = [said for said in rest if _STATE.match(said)]
            elif name := _TABLES["topology"].get(title):
                of_card = cells.setdefault(label, {})
                for there_label, said in zip(columns, rest, strict=False):
                    of_card.setdefault(there_label, {})[name] = said
    numbers = {label: _number(label, n) for n, label in enumerate(order)}
    entries = [
        {
            "gpu": numbers[label],
            **({"bdf": places[label]} if label in places else {}),
            **({"link_status": states[label]} if label in states else {}),
            "links": [
                {"gpu": numbers[there], **said}
                for there, said in cells.get(label, {}).items()
                if there in numbers
            ],
        }
        for label in order
    ]
    return entries, len(order) >= widest


def _number(label: str, place: int) -> int:
    """`GPU3` → 3; of an address the place in the table, which has the cards in amd-smi's order."""
    match = _LABEL.match(label)
    return int(match["gpu"]) if match and match["gpu"] else place


# Versions


_VERSIONS = re.compile(
    r"AMDSMI Library version: (?P<library>[\w.+-]{1,40})(?: \| ROCm version: (?P<rocm>[\w.+-]{1,40}))?"
)


def _read_version(section: Section) -> Piece:
    """Raises `Unreadable` where it tells no version."""
    rocm: Maybe[str]
    library: Maybe[str]
    if match := _VERSIONS.search(section.text[:_HEAD]):
        rocm, library = match["rocm"] or NOT_ASKED, match["library"]
    else:
        smi = AmdSmi({"version": Output(0, section.text[:MAX_TEXT], "", 0.0)}, virtual=False)
        rocm, library = smi.versions("rocm_version"), smi.versions("amdsmi_library_version")
    if isinstance(library, Absent):
        raise Unreadable(library.detail or "it tells no version")
    if isinstance(rocm, str) and not re.match(r"\d", rocm):
        rocm = Absent(why=Why.not_supported, detail=f"amd-smi says {rocm}")
    return Piece(stack=Stack(driver=driver(rocm_version=rocm, amdsmi_version=library)))


# The table that amd-smi prints by itself


_TABLE_HEAD = re.compile(
    r"\| AMD-SMI (?P<library>\d[\d.]{0,20}).{0,60}?ROCm version: (?P<rocm>\d[\d.]{0,20})"
)
_FIRST = re.compile(
    r"\| (?P<bdf>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]) +(?P<name>\S.{0,60}?) \| "
    r"\S.{0,12}?  +(?:(?P<celsius>\d{1,3}) ?\W{0,2}C|\S+) +(?P<errors>\d{1,18}|N/A) +"
    r"(?:(?P<draw>\d{1,5}|N/A)/(?P<limit>\d{1,5})|.{0,14}) *(?:W|N/A)? *\|"
)
_SECOND = re.compile(
    r"\| +(?P<index>\d{1,4}) +(?P<hip>\S+) +(?P<oam>\d{1,4}|N/A) +(?:(?P<compute>[SDTQC]PX)/(?P<memory>NPS[1248])|\S+)"
    r" +\| +(?:(?P<busy>\d{1,3}) %|\S+).{0,30}? (?P<used>\d{1,9})/(?P<total>\d{1,9}) MB \|"
)
_PROCESS = re.compile(r"\| +(?P<gpu>\d{1,4}) +(?P<pid>\d{1,10}) +(?P<name>\S.{0,40}?)  +.{1,60}\|")


def _read_table(section: Section) -> Piece:
    """Raises `Unreadable` where it shows no card."""
    head = None
    found: dict[int, tuple[str | None, dict[str, Any]]] = {}
    processes: dict[int, list[Process]] = {}
    address, values = "", dict[str, Any]()
    ended = listed = False  # the cards', the processes' part
    for line in lines(section):
        line = line[:300]
        if match := _TABLE_HEAD.match(line):
            head = match
        elif match := _FIRST.match(line):
            address, values = pci_address(match["bdf"]) or "", _first_line(match)
        elif (match := _SECOND.match(line)) and address:
            found[int(match["index"])] = (address, values | _second_line(match))
            address = ""
        elif line.startswith("| Processes:"):
            ended = True
        elif ended and (match := _PROCESS.match(line)):
            name = word(match["name"])
            processes.setdefault(int(match["gpu"]), []).append(
                Process(
                    pid=int(match["pid"]),
                    kind="compute",
                    used_bytes=NOT_ASKED,
                    name=NOT_ASKED if name in (None, "N/A") else str(name),
                )
            )
        elif ended and line.startswith("+"):
            listed = True
    if not found:
        raise Unreadable("it shows no card")
    for gpu, (_, of_card) in found.items():
        if listed:
            of_card["processes"] = tuple(processes.get(gpu, ()))
    told = cards("amd-smi", found)
    stack: Maybe[Stack] = NOT_ASKED
    if head:
        stack = Stack(driver=driver(rocm_version=head["rocm"], amdsmi_version=head["library"]))
    return Piece(
        cards=told,
        topology=Topology(amd_smi_count=counted(told, section, whole=ended)),
        stack=stack,
        remarks=() if ended else (f"it is cut short; {len(told)} cards were read",),
    )


def _first_line(match: re.Match[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    name = word(match["name"])
    if name and not name.startswith(("...", "0x", "N/A")):  # cut at its beginning, or none at all
        values["identity.name"] = name
    if match["celsius"]:
        values["temperature.gpu_celsius"] = int(match["celsius"])
    if match["errors"].isdecimal() and int(match["errors"]):
        # It writes 0 as well where the card is not told of any.
        values["health.ecc_volatile.uncorrected"] = int(match["errors"])
    if match["draw"] and match["draw"].isdecimal():
        values["power.draw_watts"] = float(match["draw"])
    if match["limit"] and int(match["limit"]):
        values["power.limit_watts"] = float(match["limit"])
    return values


def _second_line(match: re.Match[str]) -> dict[str, Any]:
    values: dict[str, Any] = {
        "memory.used_bytes": int(match["used"]) * MIB,
        "memory.total_bytes": int(match["total"]) * MIB,
    }
    if match["oam"] != "N/A":
        values["identity.module_id"] = int(match["oam"])
    if match["compute"]:
        values |= {"modes.compute_partition": match["compute"], "modes.memory_partition": match["memory"]}
    if match["busy"]:
        values["gpu_utilization_percent"] = int(match["busy"])
    return values


# Kinds


_JSON = r"\[\s*(?:\{.{0,2000})?$|\{"
_CARDS = r"(?:GPU|CPU|CORE): ?\d{1,4}\s*$"
_SIGNS = {
    "static": "asic|bus|vbios|ifwi|limit|board|ras|vram|driver|numa|soc_pstate|cache_info",
    "list": "uuid",
    "xgmi": r"link_metrics|link_state|link_status\"\s*:\s*[\[{]",
    "topology": "links|link_accessibility|weight|numa_bandwidth",
    "process": "process_list|process_info",
    "bad-pages": "retired|pending|un_res",
    "firmware": "fw_list",
    "metric": "usage|power|clock|temperature|pcie|ecc|ecc_blocks|mem_usage|fb_usage|perf_level|throttle|energy|fan",
}
"""Command → what its answer tells of a card; what a later one tells may stand in an earlier one as well."""
_OF_A_CARD = re.compile(r'"gpu"\s*:\s*\d|^GPU: ?\d', re.IGNORECASE | re.MULTILINE)


def _kind(command: str) -> Kind:
    titles = "".join(rf"|{title}(?: TABLE)?:\s*$" for title in _TABLES.get(command, ()))
    sign = re.compile(
        rf'[{{,]\s*"(?:{_SIGNS[command]})\b|^ {{4}}(?:{_SIGNS[command]}):', re.IGNORECASE | re.MULTILINE
    )
    table = re.compile(titles.removeprefix("|"), re.MULTILINE) if titles else None

    def recognises(text: str) -> bool:
        head = text[:_HEAD]
        if table and table.match(head):
            return True
        return bool(_OF_A_CARD.search(head) and sign.search(head))

    return Kind(
        f"amd-smi {command}",
        lambda section: _read(section, command),
        begins=re.compile(rf"{_JSON}|GPU: ?0\s*$"),
        goes_on=re.compile(f"{_CARDS}{titles}"),
        command=re.compile(rf"amd-smi {command}\b"),
        recognises=recognises,
        vendor_numbers="amd",
    )


_TABLE = Kind(
    "amd-smi",
    _read_table,
    begins=re.compile(r"\| AMD-SMI \d"),
    goes_on=re.compile(r"\| BDF +GPU-Name \||\| [0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7] "),
    command=re.compile(r"amd-smi\s*$"),
    recognises=lambda text: "| BDF" in text[:_HEAD],
    vendor_numbers="amd",
)
_VERSION = Kind(
    "amd-smi version",
    _read_version,
    begins=re.compile(rf"{_JSON}|AMDSMI Tool: "),
    command=re.compile(r"amd-smi version\b"),
    recognises=lambda text: "AMDSMI Tool" in text[:_HEAD],
)
_GONE = re.compile(
    r"(?:ERROR:root:)?(?:Unable to detect any GPU devices|Driver not initialized \(amdgpu not found|"
    r"AMDSMI_STATUS_DRIVER_NOT_LOADED)"
)


def _read_nothing(section: Section) -> Piece:
    said = next(line for line in section.text[:_HEAD].splitlines() if _GONE.match(line))
    raise Unreadable(f"it sees no card: {word(said.removeprefix('ERROR:root:'))}")


_NOTHING = Kind(
    "amd-smi without a driver",
    _read_nothing,
    begins=_GONE,
    recognises=lambda text: bool(_GONE.match(text)),
    vendor_numbers="amd",
)
_ADDRESSED = ("static", "list", "xgmi", "topology")
KINDS = (
    *(_kind(command) for command in _ADDRESSED),
    _TABLE,
    *(_kind(command) for command in _SIGNS if command not in _ADDRESSED),
    _VERSION,
    _NOTHING,
)
"""Those that tell the cards' addresses first: the numbers of the others are then joined with them."""

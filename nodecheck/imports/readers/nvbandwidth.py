"""nvbandwidth: its text, and its JSON (`-j`).

A matrix's rows and columns are cards, or CPU and cards; GB/s are 10^9 bytes of payload a second. The size of the
buffers is not printed: it is 512 MiB (nvbandwidth 0.8) unless the command at the prompt says otherwise.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nodecheck.facts import Card, Measurements, Stack
from nodecheck.facts.card import Identity
from nodecheck.facts.measurements import Conditions, Figure, StageName
from nodecheck.facts.stack import Driver
from nodecheck.imports.kind import Kind, Piece, Section, Unreadable

_BUFFER_MIB = 512
_REPETITIONS = 3
"""nvbandwidth's own default of samples, of which it prints the median."""

_OF_A_CARD: Mapping[str, tuple[str, StageName, bool | None]] = {
    "host_to_device_memcpy_ce": ("host.h2d", "host", True),
    "device_to_host_memcpy_ce": ("host.d2h", "host", True),
    "device_local_copy": ("hbm.copy_payload", "hbm", None),
}
"""Test → our measure, stage, and whether the host's memory is pinned."""
_OF_A_PAIR = {"device_to_device_memcpy_write_ce": False, "device_to_device_memcpy_read_ce": True}
"""Test → whether the row reads from the column, so that the data go the other way. The later one gives way."""

_DEVICE = re.compile(
    r"(?:Device )?(\d{1,3}): (.{1,100}?) \(([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\)"
)
_SUM = re.compile(r"SUM (\w{1,80}) ")
_ROW = re.compile(r"\s*(\d{1,3})((?:\s+(?:\d{1,9}\.\d{1,6}|N/A))+)\s*$")
_DRIVER = re.compile(r"Driver Version: (\d[\d.]{1,20})$")
_SIZE = re.compile(r"(?:-b|--bufferSize)[ =](\d{1,6})\b")


@dataclass(frozen=True)
class _Test:
    name: str
    matrix: tuple[tuple[float | None, ...], ...]


def read_text(section: Section) -> Piece:
    """Raises `Unreadable` where no matrix is whole."""
    cards: list[Card] = []
    tests: list[_Test] = []
    rows: list[tuple[float | None, ...]] = []
    driver = ""
    for line in section.text.splitlines():
        if device := _DEVICE.match(line):
            cards.append(_card(device))
        elif told := _DRIVER.match(line):
            driver = told[1]
        elif total := _SUM.match(line):
            tests.append(_Test(total[1], tuple(rows)))
            rows = []
        elif (row := _ROW.match(line)) and int(row[1]) == len(rows):
            rows.append(tuple(_value(word) for word in row[2].split()))
        elif line.startswith(("Running ", "memcpy ")):
            rows = []
    return _piece(section, cards, tests, driver)


def read_json(section: Section) -> Piece:
    """Raises `Unreadable` where the document is damaged or holds no matrix."""
    try:
        document = json.loads(section.text[: section.text.rindex("}") + 1])["nvbandwidth"]
        listed = [_DEVICE.match(str(one)) for one in document.get("GPU Device list", [])]
        tests = [
            _Test(
                str(test["name"]),
                tuple(tuple(_value(str(word)) for word in row) for row in test["bandwidth_matrix"]),
            )
            for test in document["testcases"]
            if "bandwidth_matrix" in test
        ]
        driver = str(document.get("Driver Version", ""))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise Unreadable("it is no whole document of nvbandwidth") from None
    return _piece(section, [_card(device) for device in listed if device], tests, driver)


def _piece(section: Section, cards: list[Card], tests: list[_Test], driver: str) -> Piece:
    size = _SIZE.search(section.heading)
    size_bytes = (int(size[1]) if size else _BUFFER_MIB) * 2**20
    keys = {card.index: card.key for card in cards}
    figures = tuple(_figures(tests, size_bytes, lambda index: keys.get(index, f"card {index}")))
    if not figures and not cards:
        raise Unreadable("no matrix in it is whole")
    told: dict[str, Any] = {"cards": tuple(cards)} if cards else {}
    if figures:
        told["measurements"] = Measurements(figures=figures)
    if re.fullmatch(r"\d+(\.\d+)+", driver):
        told["stack"] = Stack(driver=Driver(version=driver))
    return Piece(**told)


def _card(device: re.Match[str]) -> Card:
    return Card(
        vendor="nvidia",
        source="nvbandwidth",
        index=int(device[1]),
        pci_address=f"{device[3][-4:]}:{device[4]}:{device[5]}.0".lower(),
        identity=Identity(name=device[2]),
    )


def _value(word: str) -> float | None:
    return float(word) if re.fullmatch(r"\d{1,9}(?:\.\d{1,9})?", word) else None


def _figures(tests: Iterable[_Test], size_bytes: int, key: Callable[[int], str]) -> Iterator[Figure]:
    by_name = {test.name: test for test in tests}
    for name, (measure, stage, pinned) in _OF_A_CARD.items():
        for row in by_name[name].matrix[:1] if name in by_name else ():
            for index, value in enumerate(row):
                if value is not None:
                    at = Conditions(size_bytes=size_bytes, pinned=pinned)
                    yield _figure(measure, stage, (key(index),), at, value)
                    if stage == "hbm":  # each byte is read and written
                        yield _figure("hbm.copy", stage, (key(index),), at, 2 * value)
    pairs = next((test for name in _OF_A_PAIR if (test := by_name.get(name))), None)
    for first, row in enumerate(pairs.matrix if pairs else ()):
        for second, value in enumerate(row):
            if pairs is not None and value is not None and first != second:
                ends = (second, first) if _OF_A_PAIR[pairs.name] else (first, second)
                cards = tuple(map(key, ends))
                yield _figure("pairs.one_way", "pairs", cards, Conditions(size_bytes=size_bytes), value)


def _figure(measure: str, stage: StageName, cards: tuple[str, ...], at: Conditions, value: float) -> Figure:
    return Figure(
        measure=measure,
        stage=stage,
        subject="pair" if len(cards) == 2 else "card",
        cards=cards,
        at=at,
        unit="GB/s",
        median=value,
        p5=value,
        p95=value,
        repetitions=_REPETITIONS,
    )


KINDS = (
    Kind(
        name="nvbandwidth -j",
        read=read_json,
        begins=re.compile(r"\{"),
        recognises=lambda text: '"nvbandwidth"' in text,
    ),
    Kind(
        name="nvbandwidth",
        read=read_text,
        begins=re.compile(r"nvbandwidth Version"),
        goes_on=re.compile(r"SUM \w+_(?:copy|ce|sm) |Running (?:host|device)_\w+\.|Device \d+: NVIDIA .* \("),
        recognises=lambda text: "SUM " in text,
    ),
)

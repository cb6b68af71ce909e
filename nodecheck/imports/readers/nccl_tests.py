"""nccl-tests and rccl-tests: `all_reduce_perf` and its kin, as a table and as the JSON of `-J`.

Definitions are those of nccl-tests' doc/PERFORMANCE.md: busbw = algbw × factor, and S is the whole array. Where nothing
names the collective, the factor between the two bandwidths does: 2 (n - 1) / n is all_reduce's alone.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from nodecheck.facts import NOT_ASKED, Card, Maybe, Measurements
from nodecheck.facts.card import Identity
from nodecheck.facts.measurements import Check, Conditions, Figure
from nodecheck.imports.kind import Kind, Piece, Section, Unreadable
from nodecheck.imports.readers.amd_fields import card as amd_card
from nodecheck.imports.readers.amd_fields import is_amd
from nodecheck.probes.text import word

_COLLECTIVES = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "sendrecv": "send_recv",
}
"""nccl-tests' word → ours; a longer word stands before one that it begins with."""
_DTYPES = {
    "float": "float32",
    "half": "float16",
    "double": "float64",
    "bfloat16": "bfloat16",
    "int8": "int8",
    "uint8": "uint8",
    "int32": "int32",
    "uint32": "uint32",
    "int64": "int64",
    "uint64": "uint64",
    "f8e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
}
_LEAST_BUSBW = 1.0
"""GB/s: below, two digits behind the point say nothing of the factor."""

_RANK = re.compile(
    r"#\s+Rank\s+\d{1,5}\s.{0,120}?\bdevice\s+(?P<index>\d{1,3})\s+\[(?P<pci>[0-9a-fA-Fx:.]{2,20})\](?P<name>.{0,100})"
)
_ITERATIONS = re.compile(r"#.{0,200}(?<!warmup )(?<!agg )\biters:\s*(\d{1,9})")
_RCCL = re.compile(r"^(?:rccl-tests: Version|RCCL version) ?", re.MULTILINE)
_NAMED = re.compile(rf"\b({'|'.join(_COLLECTIVES)})_perf\b")


@dataclass(frozen=True)
class _Row:
    size_bytes: int
    count: int
    dtype: str
    redop: str
    sides: tuple[tuple[bool, float, float, float, int | None], ...]
    """In place, microseconds, algbw and busbw in GB/s, wrong elements (None: not checked)."""


def read_table(section: Section) -> Piece:
    """A table's figures and checks, and the cards that its head lists. Raises `Unreadable` where no row is whole."""
    text = section.text
    ours = bool(_RCCL.search(text))
    ranks: list[Card] = []
    rows: list[_Row] = []
    iterations = 1
    for line in text.splitlines():
        if rank := _RANK.match(line):
            ranks.append(_card(int(rank["index"]), rank["pci"], rank["name"], of_amd=ours))
        elif found := _ITERATIONS.match(line):
            iterations = int(found[1])
        elif row := _row(line.split()):
            rows.append(row)
    named = _NAMED.search(section.heading) or _NAMED.search(text)
    return _piece(rows, ranks, _COLLECTIVES.get(named[1]) if named else None, iterations)


def read_json(section: Section) -> Piece:
    """The document that `-J` writes. Raises `Unreadable` where it is damaged or holds no result."""
    try:
        document = json.loads(section.text[: section.text.rindex("}") + 1])
        results, config = document["results"], document["config"]
        devices = config["devices"]
        named = _NAMED.search(" ".join(word for word in document["args"] if isinstance(word, str)))
        ranks = [
            _card(int(device["device"]), str(device["device_hex"]), str(device["device_info"]))
            for device in devices
        ]
        repeated = int(config["iterations"])
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise Unreadable("it is no whole document of nccl-tests") from None
    rows = [row for result in results if isinstance(result, dict) and (row := _json_row(result))]
    return _piece(rows, ranks, _COLLECTIVES.get(named[1]) if named else None, repeated)


def _piece(rows: list[_Row], cards: list[Card], collective: str | None, iterations: int) -> Piece:
    if not rows:
        raise Unreadable("no row of its table is whole")
    keys = tuple(card.key for card in cards)
    if len(set(keys)) < len(keys):
        return Piece(
            remarks=("its ranks are on several nodes or share a card: that says nothing of this node alone",)
        )
    ranks = len(keys)
    if ranks < 2:
        return Piece(cards=tuple(cards) or NOT_ASKED, remarks=("it does not list the ranks that took part",))
    collective = collective or _guessed(rows, ranks)
    if collective is None:
        return Piece(cards=tuple(cards), remarks=("it does not say which collective it measured",))
    found: Maybe[Measurements] = Measurements(
        figures=tuple(_figures(rows, collective, keys, max(iterations, 1))),
        checks=tuple(_checks(rows, collective, keys)),
    )
    return Piece(cards=tuple(cards), measurements=found)


def _card(index: int, pci: str, name: str, *, of_amd: bool = False) -> Card:
    """`[0x1b]` is only the bus's number: no address. Older releases of HIP give no name."""
    match = re.fullmatch(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?", pci.lower())
    address = f"{match[1][-4:]}:{match[2]}:{match[3]}.{match[4] or 0}" if match else None
    product = word(name)
    if of_amd or is_amd(name):
        return amd_card("rccl-tests", index, address, {"identity.name": product} if product else {})
    return Card(
        vendor="nvidia",
        source="nccl-tests",
        index=index,
        pci_address=address or NOT_ASKED,
        identity=Identity(name=product or NOT_ASKED),
    )


_HEAD, _SIDE, _PER_ITERATION, _TIMESTAMP = 5, 4, 4, 2
"""Columns: size, count, type, redop, root; then time, algbw, busbw, #wrong for each side, with four more a side where
every iteration is told, and date and time at the end where they are asked for."""


def _row(words: list[str]) -> _Row | None:
    if (
        len(words) < _HEAD + _SIDE
        or not words[0].isdecimal()
        or not words[1].isdecimal()
        or words[2] not in _DTYPES
    ):
        return None
    columns = len(words) - _HEAD
    width = _SIDE + (_PER_ITERATION if columns >= 2 * (_SIDE + _PER_ITERATION) else 0)
    if columns not in (width, 2 * width, 2 * width + _TIMESTAMP):
        return None
    sides = []
    for place in range(min(columns // width, 2)):
        start = _HEAD + place * width
        try:
            micros, algbw, busbw = (float(word) for word in words[start : start + 3])
        except ValueError:  # N/A: this collective has no such form
            continue
        wrong = words[start + 3]
        sides.append((place == 1, micros, algbw, busbw, int(float(wrong)) if _number(wrong) else None))
    return _Row(int(words[0]), int(words[1]), _DTYPES[words[2]], words[3], tuple(sides)) if sides else None


def _json_row(result: dict[str, Any]) -> _Row | None:
    sides = []
    for name, in_place in (("out_of_place", False), ("in_place", True)):
        side = result.get(name)
        if not isinstance(side, dict):
            continue
        time, algbw, busbw, wrong = (_float(side.get(key)) for key in ("time", "alg_bw", "bus_bw", "nwrong"))
        if time is not None and algbw is not None and busbw is not None:
            sides.append((in_place, time, algbw, busbw, None if wrong is None else int(wrong)))
    size, count, dtype = result.get("size"), result.get("count"), result.get("type")
    if not sides or type(size) is not int or type(count) is not int or dtype not in _DTYPES:
        return None
    return _Row(size, count, _DTYPES[dtype], str(result.get("redop", "none")), tuple(sides))


def _float(value: object) -> float | None:
    return float(value) if type(value) in (int, float) and math.isfinite(value) else None  # type: ignore[arg-type]


def _number(word: str) -> bool:
    return re.fullmatch(r"\d{1,15}(?:\.\d{1,6})?(?:e\+\d{1,2})?", word) is not None


def _guessed(rows: Iterable[_Row], ranks: int) -> str | None:
    """The collective, where the factor between the bandwidths at the largest size leaves one alone."""
    largest = max(rows, key=lambda row: row.size_bytes)
    _, _, algbw, busbw, _ = largest.sides[-1]
    if busbw < _LEAST_BUSBW or algbw <= 0:
        return None
    factor = busbw / algbw
    if abs(factor - 2 * (ranks - 1) / ranks) < 0.02 and ranks > 2:
        return "all_reduce"
    if abs(factor - (ranks - 1) / ranks) < 0.02 and largest.redop != "none":
        return "reduce_scatter"
    return None


def _at(row: _Row, in_place: bool, ranks: int) -> Conditions:
    return Conditions(size_bytes=row.size_bytes, dtype=row.dtype, ranks=ranks, in_place=in_place)


def _figures(
    rows: Iterable[_Row], collective: str, keys: tuple[str, ...], iterations: int
) -> Iterator[Figure]:
    for row in rows:
        for in_place, micros, algbw, busbw, _ in row.sides:
            for name, unit, value in (
                ("algbw", "GB/s", algbw),
                ("busbw", "GB/s", busbw),
                ("latency", "us", micros),
            ):
                yield Figure(
                    measure=f"{collective}.{name}",
                    stage="collectives",
                    subject="group",
                    cards=keys,
                    name="all",
                    at=_at(row, in_place, len(keys)),
                    unit=unit,
                    median=value,
                    p5=value,
                    p95=value,
                    repetitions=iterations,
                )


def _checks(rows: Iterable[_Row], collective: str, keys: tuple[str, ...]) -> Iterator[Check]:
    for row in rows:
        for in_place, _, _, _, wrong in row.sides:
            if wrong is not None:
                yield Check(
                    check=f"{collective}.data",
                    stage="collectives",
                    subject="group",
                    cards=keys,
                    name="all",
                    at=_at(row, in_place, len(keys)),
                    compared=row.count,
                    wrong=wrong,
                )


KINDS = (
    Kind(
        name="nccl-tests -J",
        read=read_json,
        begins=re.compile(r"\{"),
        recognises=lambda text: '"results"' in text and '"bus_bw"' in text,
    ),
    Kind(
        name="nccl-tests",
        read=read_table,
        begins=re.compile(r"# (?:nThread|Collective test starting|nccl-tests version|rccl-tests)"),
        goes_on=re.compile(r"#\s+Rank\s+\d+\s|#\s+size\s+count\s+type\s"),
        recognises=lambda text: "busbw" in text,
    ),
)

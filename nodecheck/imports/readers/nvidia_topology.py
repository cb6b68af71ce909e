"""The matrices of `nvidia-smi topo -m` and `nvidia-smi topo -p2p`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import cast, get_args

from nodecheck.facts import NOT_ASKED, Absent, Card, Maybe, Topology, Why
from nodecheck.facts.topology import Adapter, Distance, Pair
from nodecheck.imports.kind import Kind, Piece, Section, Unreadable
from nodecheck.imports.readers.nvidia_fields import MAX_CARDS, absence, counted

_DISTANCES = frozenset(get_args(Distance))
_NVLINKS = re.compile(r"NV(\d{1,3})$")
_LABEL = re.compile(r"GPU(\d{1,3})$")
_LEGEND = re.compile(r"\s+(NIC\d{1,3}): (\S{1,40})\s*$")
_CUT = Absent(why=Why.failed, detail="the matrix is cut short: neither card's line shows the pair")
_MAX_NEIGHBOURS = 64
"""Cards whose pairs are told; more are no node but damage."""


@dataclass(frozen=True)
class _Matrix:
    columns: tuple[str, ...]
    """`GPU0`, `NIC0`, `mlx5_0` …, as the first line has them."""
    rows: Mapping[str, tuple[str, ...]]
    """What stands in each line behind its label."""
    names: Mapping[str, str]
    """NIC0 → mlx5_0, out of the legend."""
    ended: bool
    """Whether the first line goes on to its last column."""

    @property
    def cards(self) -> tuple[int, ...]:
        found = [int(match[1]) for label in self.columns if (match := _LABEL.match(label))]
        return tuple(dict.fromkeys(found))[:_MAX_NEIGHBOURS]

    def cell(self, a: str, b: str) -> str | None:
        row = self.rows.get(a, ())
        at = self.columns.index(b) if b in self.columns else len(row)
        return row[at] if at < len(row) else None

    def between(self, a: int, b: int) -> Maybe[str]:
        """What both lines say of a pair; one alone does where the other is missing."""
        here, there = self.cell(f"GPU{a}", f"GPU{b}"), self.cell(f"GPU{b}", f"GPU{a}")
        if here is None and there is None:
            return _CUT
        if here is not None and there is not None and here != there:
            return Absent(why=Why.failed, detail=f"one line of the matrix says {here}, the other {there}")
        said = str(here or there)
        return absence(said) or said


def _matrix(section: Section) -> _Matrix:
    columns: tuple[str, ...] = ()
    rows: dict[str, tuple[str, ...]] = {}
    names: dict[str, str] = {}
    ended = False
    *lines, rest = section.text[:1_000_000].split("\n")
    lines.append(
        rest.rpartition("\t")[0]
    )  # where the text ends within a line, its last cell may be half of one
    for line in lines:
        words = line[:8000].split()
        if not columns:
            before, affinity, _ = line[:8000].partition("CPU Affinity")
            columns, ended = tuple(before.split()[: 2 * MAX_CARDS]), bool(affinity)
        elif legend := _LEGEND.match(line[:200]):
            names[legend[1]] = legend[2]
        elif words and words[0] in columns and words[0] not in rows:
            rows[words[0]] = tuple(words[1:])
    return _Matrix(columns, rows, names, ended)


def _read_ways(section: Section) -> Piece:
    matrix = _matrix(section)
    cards = []
    for index in matrix.cards:
        rest = matrix.rows.get(f"GPU{index}", ())[len(matrix.columns) :]
        cards.append(
            Card(
                vendor="nvidia",
                source=WAYS.name,
                index=index,
                cpu_affinity=_affinity(rest, 0),
                memory_affinity=_affinity(rest, 1),
            )
        )
    adapters = tuple(
        Adapter(name=matrix.names.get(label, label), port=1, distances=_distances(matrix, label))
        for label in matrix.columns
        if not _LABEL.match(label)
    )
    pairs = tuple(_pair(a, b, matrix.between(a, b)) for a, b in combinations(matrix.cards, 2))
    cut = sum(pair.nvlinks == _CUT for pair in pairs)
    return Piece(
        cards=tuple(cards),
        topology=Topology(
            nvml_count=counted(matrix.cards)
            if matrix.ended
            else Absent(why=Why.failed, detail="the first line of the matrix is cut short"),
            pairs=pairs,
            adapters=adapters if adapters else NOT_ASKED,
        ),
        remarks=(f"the matrix is cut short: {cut} of {len(pairs)} pairs are missing",) if cut else (),
    )


def _pair(a: int, b: int, said: Maybe[str]) -> Pair:
    pair = Pair(a=f"card {a}", b=f"card {b}", source=WAYS.name)
    if isinstance(said, Absent):
        return pair.model_copy(update={"distance": said, "nvlinks": said})
    if links := _NVLINKS.match(said):
        return pair.model_copy(update={"nvlinks": int(links[1])})
    if said in _DISTANCES:
        return pair.model_copy(update={"distance": said, "nvlinks": 0})
    strange = Absent(why=Why.failed, detail=f"not understood: {said[:20]!r}")
    return pair.model_copy(update={"distance": strange, "nvlinks": strange})


def _affinity(rest: tuple[str, ...], at: int) -> Maybe[str]:
    said = rest[at] if at < len(rest) else ""
    if re.match(r"[\d,-]{1,200}$", said):
        return said
    return absence(said) or NOT_ASKED if said else NOT_ASKED


def _distances(matrix: _Matrix, port: str) -> tuple[tuple[str, Distance], ...]:
    found = []
    for index in matrix.cards:
        said = matrix.cell(port, f"GPU{index}") or matrix.cell(f"GPU{index}", port)
        if said in _DISTANCES:
            found.append((f"card {index}", cast(Distance, said)))
    return tuple(found)


_ABILITIES = {"r": "p2p_read", "w": "p2p_write", "n": "p2p_nvlink", "a": "p2p_atomics"}
_STATES = {
    "OK": "ok", "CNS": "chipset_not_supported", "GNS": "gpu_not_supported", "TNS": "topology_not_supported",
    "DR": "disabled_by_regkey", "NS": "not_supported", "U": "unknown",
}  # fmt: skip
_ASKED = re.compile(r"-p2p[ =]([rwnap])\b")


def _read_peers(section: Section) -> Piece:
    asked = _ASKED.search(section.heading)
    ability = _ABILITIES.get(asked[1]) if asked else None
    if ability is None:
        raise Unreadable(
            "the matrix does not say what was asked for (reading, writing, NVLink); paste it with its command, "
            "`nvidia-smi topo -p2p r`"
        )
    matrix = _matrix(section)
    pairs = []
    for a, b in combinations(matrix.cards, 2):
        said = matrix.between(a, b)
        state = said if isinstance(said, Absent) else _STATES.get(said, "unknown")
        pair = Pair(a=f"card {a}", b=f"card {b}", source=PEERS.name)
        pairs.append(pair.model_copy(update={ability: state}))
    return Piece(
        cards=tuple(Card(vendor="nvidia", source=PEERS.name, index=index) for index in matrix.cards),
        topology=Topology(pairs=tuple(pairs)),
    )


_FIRST = re.compile(r"\s+GPU\d{1,3}(?:\s+(?!NV\d)[A-Za-z]\w{0,40}\d){0,100}\s*(?:CPU Affinity.{0,80})?$")
_OF_WAYS = re.compile(r"CPU Affinity|^\s*GPU\d{1,3}\s.*\b(?:NV\d{1,3}|SYS|NODE|PHB|PXB|PIX)\b", re.MULTILINE)
WAYS = Kind(
    "nvidia-smi topo -m",
    _read_ways,
    begins=_FIRST,
    recognises=lambda text: bool(_OF_WAYS.search(text)),
)
PEERS = Kind("nvidia-smi topo -p2p", _read_peers, begins=_FIRST)
KINDS = (WAYS, PEERS)

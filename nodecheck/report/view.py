"""What every report shows, put in order once: causes, groups of findings, the matrix of pairs, every fact."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

from nodecheck.facts import Absent, Maybe, Node, known
from nodecheck.judge import Cause, Finding, Judgement, Owner, Status
from nodecheck.profile import Profile
from nodecheck.report.document import Report
from nodecheck.report.text import plural, shown

CAUSES: dict[Cause, str] = {
    Cause.not_as_rented: "Not as rented",
    Cause.faulty: "Faulty",
    Cause.misconfigured: "Misconfigured",
    Cause.slow: "Slow",
    Cause.not_visible: "Could not be seen",
}
"""Titles, in the order of the report."""

OWNERS: dict[Owner, str] = {Owner.provider: "the provider", Owner.renter: "the renter"}

STATUSES: dict[Status, str] = {
    Status.fail: "FAIL",
    Status.warn: "WARN",
    Status.unknown: "UNKNOWN",
    Status.skipped: "SKIPPED",
    Status.passed: "PASS",
}


@dataclass(frozen=True)
class Group:
    """Findings of one rule that say the same of several subjects."""

    findings: tuple[Finding, ...]

    @property
    def first(self) -> Finding:
        return self.findings[0]

    @property
    def follows(self) -> bool:
        """Whether this is but a consequence of another finding, which stands before it."""
        return self.first.root is not None

    @property
    def subjects(self) -> str:
        """`GPU 0 (0000:18:00.0), GPU 3 (…)`."""
        return ", ".join(finding.subject.label for finding in self.findings)

    @property
    def scope(self) -> str:
        """The same in short: `8 cards` where there are many."""
        many = len(self.findings) > 4
        return plural(len(self.findings), self.first.subject.kind) if many else self.subjects

    @property
    def rows(self) -> tuple[Group, ...]:
        """The findings, those together that say exactly the same of their subjects."""
        return _together(
            self.findings,
            lambda f: (f.detail, f.observed, f.expected, f.unit, f.observed_from, f.expected_from),
        )


@dataclass(frozen=True)
class Section:
    """Everything of one cause, the gravest first."""

    cause: Cause
    groups: tuple[Group, ...]

    @property
    def title(self) -> str:
        return CAUSES[self.cause]


def sections(judgement: Judgement) -> tuple[Section, ...]:
    """Warnings, failures and unknowns that hold up the verdict, by cause; without what was waived."""
    counted = [
        f
        for f in judgement.findings
        if f.waived is None
        and (f.status in (Status.fail, Status.warn) or (f.status is Status.unknown and f.required))
    ]
    return tuple(
        Section(cause, tuple(sorted(_groups(of_cause), key=_gravity)))
        for cause in CAUSES
        if (of_cause := [f for f in counted if f.cause is cause])
    )


def missed(judgement: Judgement) -> tuple[Group, ...]:
    """What was not seen and is only wanted, so that it does not hold up the verdict."""
    return _groups(f for f in judgement.findings if f.status is Status.unknown and not f.required)


def waived(judgement: Judgement) -> tuple[Group, ...]:
    """What was set aside, with its reason."""
    return _groups(f for f in judgement.findings if f.waived is not None)


def with_status(judgement: Judgement, status: Status) -> tuple[Group, ...]:
    """Passed or skipped findings; subjects with the same observation stand together."""
    return _together(
        (f for f in judgement.findings if f.status is status),
        lambda f: (f.id, f.observed, f.expected, f.unit, f.detail if f.observed is None else ""),
    )


def count(judgement: Judgement, status: Status) -> int:
    return sum(f.status is status for f in judgement.findings)


def card_status(judgement: Judgement, key: str) -> Status:
    """The gravest status on this card and its pairs.

    Left out: what was waived, unknowns that were only wanted, and what a pair suffers from its other card.
    """
    found = {
        f.status
        for f in judgement.findings
        if key in f.subject.key.split("+")
        and f.waived is None
        and (f.status is not Status.unknown or f.required)
        and (f.subject.kind == "card" or f.root is None)
    }
    gravest = (Status.fail, Status.unknown, Status.warn, Status.passed)
    return next((status for status in gravest if status in found), Status.skipped)


@dataclass(frozen=True)
class Cell:
    """One place of the pair matrix."""

    text: str
    """`NV18`, `SYS`, `X` for the card itself, `?` where it is not known."""
    kind: Literal["self", "nvlink", "pcie", "unknown"]
    nvlinks: int
    note: str
    """The whole observation, in words."""


@dataclass(frozen=True)
class Matrix:
    """Every card against every card."""

    labels: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    @property
    def uniform(self) -> Cell | None:
        """What joins every pair, where it is the same for all of them."""
        cells = {cell.text: cell for row in self.rows for cell in row if cell.kind != "self"}
        return next(iter(cells.values())) if len(cells) == 1 else None


def matrix(node: Node) -> Maybe[Matrix]:
    """How the cards are joined, or why that is not known."""
    if isinstance(node.topology, Absent):
        return node.topology
    if isinstance(node.cards, Absent):
        return node.cards
    if isinstance(node.topology.pairs, Absent):
        return node.topology.pairs
    pairs = {frozenset((pair.a, pair.b)): pair for pair in node.topology.pairs}
    rows = []
    for row in node.cards:
        cells = []
        for column in node.cards:
            if row is column:
                cells.append(Cell("X", "self", 0, row.label))
                continue
            names = f"{row.label} – {column.label}"
            pair = pairs.get(frozenset((row.key, column.key)))
            if pair is None:
                cells.append(Cell("?", "unknown", 0, f"{names}: not seen"))
                continue
            nvlinks = pair.nvlinks if known(pair.nvlinks) else 0
            p2p = f"P2P read {shown(pair.p2p_read)}, write {shown(pair.p2p_write)}"
            note = f"{names}: {shown(pair.nvlinks)} NVLinks, PCIe {shown(pair.distance)}, {p2p}"
            if nvlinks:
                cells.append(Cell(f"NV{nvlinks}", "nvlink", nvlinks, note))
            elif isinstance(pair.distance, Absent) or isinstance(pair.nvlinks, Absent):
                cells.append(Cell("?", "unknown", 0, note))
            else:
                cells.append(Cell(pair.distance, "pcie", 0, note))
        rows.append(tuple(cells))
    return Matrix(tuple(f"GPU{card.index}" for card in node.cards), tuple(rows))


LEGEND: dict[str, str] = {
    "NV": "joined by so many NVLinks",
    "internal": "on one board",
    "PIX": "one PCIe bridge between them",
    "PXB": "several PCIe bridges",
    "PHB": "through the CPU's host bridge",
    "NODE": "between host bridges of one NUMA node",
    "SYS": "between NUMA nodes",
    "?": "not seen",
}


def legend(table: Matrix) -> tuple[tuple[str, str], ...]:
    """The signs that `table` uses, explained."""
    used = {
        "NV" if cell.kind == "nvlink" else cell.text
        for row in table.rows
        for cell in row
        if cell.kind != "self"
    }
    return tuple((sign, meaning) for sign, meaning in LEGEND.items() if sign in used)


def headline(judgement: Judgement) -> str:
    """The summary without the verdict's own words, for where these stand before it."""
    return judgement.summary.removeprefix(judgement.verdict.value).strip()


def basis(report: Report) -> str:
    """What the verdict rests on, in one sentence."""
    node, judgement = report.facts, report.judgement
    cards = "no card" if isinstance(node.cards, Absent) else plural(len(node.cards), "card")
    doors = judgement.ledger
    opened = sum(entry.open is True for entry in doors)
    return (
        f"Rests on {plural(len(judgement.findings), 'finding')} ({count(judgement, Status.passed)} passed), "
        f"{cards} seen, {opened} of {plural(len(doors), 'door')} to the node open; "
        f"facts of {node.taken_at:%Y-%m-%d %H:%M:%S} UTC."
    )


def facts(node: Node) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Every single fact but the measurements as `path = value`, by section; for the record at a report's end."""
    titles: list[tuple[str, Any, str]] = [("Host", node.host, "host")]
    if isinstance(node.cards, Absent):
        titles.append(("Cards", node.cards, "cards"))
    else:
        titles += [(card.label, card, f"cards.{i}") for i, card in enumerate(node.cards)]
    titles += [
        ("Topology", node.topology, "topology"),
        ("Stack", node.stack, "stack"),
        ("Kernel log", node.kernel_log, "kernel_log"),
        ("Doors", node.doors, "doors"),
        ("Probes", (node.tool_version, node.level, node.taken_at), "run"),
    ]
    return tuple((title, tuple(_lines(value, path))) for title, value, path in titles)


def _lines(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, BaseModel) and not isinstance(value, Absent):
        for name in type(value).model_fields:
            yield from _lines(getattr(value, name), f"{path}.{name}")
    elif isinstance(value, tuple) and value:
        for i, item in enumerate(value):
            yield from _lines(item, f"{path}.{i}")
    else:
        yield f"{path} = {shown(value)}"


def _groups(findings: Iterable[Finding]) -> tuple[Group, ...]:
    return _together(
        findings,
        lambda f: (
            (f.id, f.status, f.cause, f.owner, f.meaning, f.next_step, f.repeat, f.required, f.waived, f.root)
        ),
    )


def _together(findings: Iterable[Finding], alike: Callable[[Finding], Hashable]) -> tuple[Group, ...]:
    groups: dict[Hashable, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(alike(finding), []).append(finding)
    return tuple(Group(tuple(same)) for same in groups.values())


def _gravity(group: Group) -> tuple[bool, int]:
    order = (Status.fail, Status.unknown, Status.warn)
    return group.follows, order.index(group.first.status)


def witnesses(profile: Profile) -> tuple[tuple[str, str], ...]:
    """Where each part of the profile has its statements from."""
    parts = (
        ("Card", profile.card),
        ("Links", profile.links),
        ("Host", profile.host),
        ("Stack", profile.stack),
    )
    return tuple(
        (title, witness) for title, part in parts if part is not None for witness in part.statements()
    )

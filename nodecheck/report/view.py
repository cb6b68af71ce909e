"""What every report shows, put in order once: causes, groups of findings, the matrix of pairs, every fact."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

from nodecheck.facts import Absent, Card, Maybe, Node, known
from nodecheck.facts.topology import Pair
from nodecheck.judge import Cause, Finding, Judgement, LedgerEntry, Owner, Status
from nodecheck.profile import NO_PROFILE, LinksSpec, Profile
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
class Behind:
    """What could not be seen because of one finding: said in a line, not in a block each."""

    root: str
    groups: tuple[Group, ...]

    @property
    def sentence(self) -> str:
        count = sum(len(group.findings) for group in self.groups)
        follow = "finding follows" if count == 1 else "findings follow"
        return f"{count} {follow} from {self.root} and could not be seen"

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(group.first.id for group in self.groups))


@dataclass(frozen=True)
class Section:
    """Everything of one cause with what follows from it: the roots first, the gravest before the others."""

    cause: Cause
    groups: tuple[Group, ...]
    behind: tuple[Behind, ...]

    @property
    def title(self) -> str:
        return CAUSES[self.cause]


def sections(judgement: Judgement) -> tuple[Section, ...]:
    """Warnings, failures and unknowns that hold up the verdict, by cause; without what was waived.

    The cause with the gravest finding comes first. What follows from a finding stands in that one's section.
    """
    counted = _counted(judgement)
    roots = _roots(judgement)
    unseen: dict[str, list[Finding]] = {}
    for finding in judgement.findings:
        if (root := _hidden_by(finding, roots)) is not None:
            unseen.setdefault(root.id, []).append(finding)
    made = []
    for cause in CAUSES:
        own = [f for f in counted if _hidden_by(f, roots) is None and _way(f, roots)[-1].cause is cause]
        if own:
            groups = sorted(_groups(own), key=lambda g: (len(_way(g.first, roots)), _gravity(g.first)))
            ids = (id for id in unseen if _way(roots[id], roots)[-1].cause is cause)
            made.append(Section(cause, tuple(groups), tuple(Behind(id, _groups(unseen[id])) for id in ids)))
    return tuple(sorted(made, key=lambda section: min(_gravity(group.first) for group in section.groups)))


def _counted(judgement: Judgement) -> list[Finding]:
    return [
        f
        for f in judgement.findings
        if f.waived is None
        and (f.status in (Status.fail, Status.warn) or (f.status is Status.unknown and f.required))
    ]


def _roots(judgement: Judgement) -> dict[str, Finding]:
    """What other findings may follow from: the gravest finding of each id."""
    return {f.id: f for f in sorted(_counted(judgement), key=_gravity, reverse=True)}


def _way(finding: Finding, roots: dict[str, Finding]) -> list[Finding]:
    """From the finding to what it follows from at last."""
    way = [finding]
    while (before := roots.get(way[-1].root or "")) is not None and before not in way:
        way.append(before)
    return way


def _hidden_by(finding: Finding, roots: dict[str, Finding]) -> Finding | None:
    """For an unknown that follows from another finding: the nearest of these that has a block of its own."""
    if finding.status is not Status.unknown:
        return None
    before = _way(finding, roots)[1:]
    return next((f for f in before if f.status is not Status.unknown or len(_way(f, roots)) == 1), None)


def missed(judgement: Judgement) -> tuple[Group, ...]:
    """What was not seen and is only wanted, so that it does not hold up the verdict; by itself alone."""
    roots = _roots(judgement)
    return _groups(
        f
        for f in judgement.findings
        if f.status is Status.unknown and not f.required and _hidden_by(f, roots) is None
    )


MOST_IDS = 6
"""Ids named in one line; more of them are counted."""


def named(ids: Iterable[str], sign: Callable[[str], str] = str) -> str:
    """`a, b, c and 51 more`; `sign` is what a form does with an id."""
    every = tuple(ids)
    more = f" and {len(every) - MOST_IDS} more" if len(every) > MOST_IDS else ""
    return ", ".join(sign(id) for id in every[:MOST_IDS]) + more


def reasons_unseen(judgement: Judgement, entry: LedgerEntry) -> tuple[Finding, ...]:
    """What an open door did not show all the same, where no other place of the report says why."""
    if entry.open is not True:
        return ()
    groups = (group.first for group in missed(judgement))
    return tuple(f for f in groups if f.door == entry.door and f.id in entry.unknown_findings)


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


@dataclass(frozen=True)
class State:
    """How a card stands, in a word, and the status whose colour the word has."""

    word: str
    status: Status


def card_state(judgement: Judgement, key: str) -> State:
    """The gravest status on this card and its pairs; WAIVED where only what was set aside speaks against it.

    Left out: unknowns that were only wanted, and what a pair suffers from its other card.
    """
    about = [f for f in judgement.findings if key in f.subject.key.split("+")]
    found = {
        f.status
        for f in about
        if f.waived is None
        and (f.status is not Status.unknown or f.required)
        and (f.subject.kind == "card" or f.root is None)
    }
    gravest = (Status.fail, Status.unknown, Status.warn)
    for status in gravest:
        if status in found:
            return State(STATUSES[status], status)
    if any(f.waived is not None for f in about):
        return State("WAIVED", Status.warn)
    status = Status.passed if Status.passed in found else Status.skipped
    return State(STATUSES[status], status)


def unmet_waivers(report: Report) -> tuple[str, ...]:
    """Ids of waivers that had nothing to set aside."""
    met = {f.id for f in report.judgement.findings if f.waived is not None}
    return tuple(id for id in report.waivers if id not in met)


@dataclass(frozen=True)
class Cell:
    """One place of the pair matrix."""

    text: str
    """`NV18`, `xGMI`, `2 hops`, `SYS`, `X` for the card itself, `?` where it is not known."""
    kind: Literal["self", "link", "pcie", "unknown"]
    """`link`: the makers' own, NVLink or xGMI."""
    links: int
    """So many of them."""
    note: str
    """The whole observation, in words."""
    bad: bool = False
    """Less than the profile promises."""

    @property
    def marked(self) -> str:
        """The text, with a sign that needs no colour where it is less than promised."""
        return f"{self.text}!" if self.bad else self.text


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


def matrix(node: Node, profile: Profile) -> Maybe[Matrix]:
    """How the cards are joined, or why that is not known; judged by what the profile says of every pair."""
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
            elif row.vendor == "amd":
                cells.append(_by_xgmi(pair, names, profile.links, of_one_hive=row.hive == column.hive))
            else:
                cells.append(_by_nvlink(pair, names, profile.links))
        rows.append(tuple(cells))
    return Matrix(tuple(f"GPU{card.index}" for card in node.cards), tuple(rows))


def _by_nvlink(pair: Pair, names: str, promised: LinksSpec | None) -> Cell:
    least = promised.links_per_pair or 1 if promised and promised.interconnect == "nvlink" else 0
    nvlinks = pair.nvlinks if known(pair.nvlinks) else 0
    p2p = f"P2P read {shown(pair.p2p_read)}, write {shown(pair.p2p_write)}"
    note = f"{names}: {shown(pair.nvlinks)} NVLinks, PCIe {shown(pair.distance)}, {p2p}"
    if nvlinks:
        return Cell(f"NV{nvlinks}", "link", nvlinks, note, nvlinks < least)
    if isinstance(pair.distance, Absent) or isinstance(pair.nvlinks, Absent):
        return Cell("?", "unknown", 0, note)
    return Cell(pair.distance, "pcie", 0, note, least > 0)


def _by_xgmi(pair: Pair, names: str, promised: LinksSpec | None, *, of_one_hive: bool) -> Cell:
    wanted = promised if promised and promised.interconnect == "xgmi" else None
    note = (
        f"{names}: {shown(pair.link_type)}, weight {shown(pair.weight)}, hops {shown(pair.hops)}, "
        f"PCIe {shown(pair.distance)}, reach into each other's memory {shown(pair.accessible)}"
    )
    if isinstance(pair.link_type, Absent):
        return Cell("?", "unknown", 0, note)
    if pair.link_type == "xgmi":
        far = known(pair.hops) and pair.hops > 1
        text = f"{pair.hops} hops" if far else "xGMI"
        return Cell(text, "link", 1, note, far and wanted is not None and wanted.direct)
    missing = wanted is not None and (wanted.hive_cards is None or of_one_hive)
    return Cell("PCIe" if isinstance(pair.distance, Absent) else pair.distance, "pcie", 0, note, missing)


_LINKS: dict[str, str] = {"nvidia": "NVLinks", "amd": "xGMI links"}


def links_name(node: Node) -> str:
    """What the maker of these cards calls the links between them."""
    vendors = {card.vendor for card in node.known_cards}
    return _LINKS[vendors.pop()] if len(vendors) == 1 else "links"


def amd_alone(node: Node) -> bool:
    """Whether all cards are AMD's: they are told apart by compute units and partitions."""
    return bool(node.known_cards) and all(card.vendor == "amd" for card in node.known_cards)


def partitions(card: Card) -> str:
    """`SPX, NPS1`: how an AMD package and its memory are split."""
    modes = (card.modes.compute_partition, card.modes.memory_partition)
    return ", ".join("?" if isinstance(mode, Absent) else mode for mode in modes)


LEGEND: dict[str, str] = {
    "NV": "joined by so many NVLinks",
    "xGMI": "joined by xGMI, directly",
    "hops": "joined by xGMI, through other cards",
    "internal": "on one board",
    "PIX": "one PCIe bridge between them",
    "PXB": "several PCIe bridges",
    "PHB": "through the CPU's host bridge",
    "NODE": "between host bridges of one NUMA node",
    "SYS": "between NUMA nodes",
    "PCIe": "over PCIe",
    "?": "not seen",
    "!": "less than the profile promises",
}


def legend(table: Matrix) -> tuple[tuple[str, str], ...]:
    """The signs that `table` uses, explained."""
    used = {
        "NV" if cell.text.startswith("NV") else "hops" if cell.text.endswith("hops") else cell.text
        for row in table.rows
        for cell in row
        if cell.kind != "self"
    } | {"!" for row in table.rows for cell in row if cell.bad}
    return tuple((sign, meaning) for sign, meaning in LEGEND.items() if sign in used)


def headline(judgement: Judgement) -> str:
    """The summary without the verdict's own words, for where these stand before it."""
    return judgement.summary.removeprefix(judgement.verdict.value).strip()


def rented(report: Report) -> str:
    """What the node was held against, in one sentence."""
    profile = report.profile
    if profile.name == NO_PROFILE.name:
        return "No profile was named, and none fits: nothing is promised, nothing is accepted."
    guess = "" if report.judgement.named else ", which was only suggested, not named by the renter"
    return f"Held against the profile {profile.name}{guess}: {profile.title}."


def recording(report: Report) -> str:
    """Where the facts come from, if not from the machine that nodecheck ran on; else nothing."""
    words = report.argv
    for word, after in zip(words, (*words[1:], ""), strict=False):
        option, equals, path = word.partition("=")
        if option == "--from":
            return (
                f"The facts come from a recording ({path if equals else after}), not from the machine itself."
            )
    return ""


def wall_clock(node: Node, seconds: Maybe[float]) -> str:
    """Seconds since boot as a time of day, or nothing where that cannot be computed."""
    when = node.at(seconds)
    return "" if isinstance(when, Absent) else f"{when:%Y-%m-%d %H:%M:%S} UTC"


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


def _gravity(finding: Finding) -> int:
    return (Status.fail, Status.unknown, Status.warn).index(finding.status)


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


class Sources:
    """Witnesses too long to stand beside their values: they get a number each, and are listed once."""

    _LONGEST = 48

    def __init__(self) -> None:
        self.listed: list[str] = []

    def number(self, source: str) -> int | None:
        """The number of a long one, from 1; None where it is short."""
        if len(source) <= self._LONGEST:
            return None
        if source not in self.listed:
            self.listed.append(source)
        return self.listed.index(source) + 1

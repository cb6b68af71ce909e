"""What a ticket says in its form: the verdict, what fails and since when, the promise, the evidence, the commands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nodecheck.facts import Absent, LogEvent, Node
from nodecheck.judge import Finding, Owner, Status
from nodecheck.report import view
from nodecheck.report.document import Report
from nodecheck.report.page import Block, Command, Heading, Item, Line, Table
from nodecheck.report.text import plural, shown
from nodecheck.report.view import Group

_TROUBLE = (Status.fail, Status.warn)
_MOST_EVENTS = 6
"""Kernel log events named for one problem."""
_TOLD = ("xid", "sxid", "fallen_off_bus", "card_init", "nvlink", "aer")
"""Kinds of events that say something of a card's trouble."""


@dataclass(frozen=True)
class Sent:
    """A report in the ticket."""

    report: Report
    """Redacted."""
    place: str
    """Its folder in the zip."""
    node: int
    """Reports of one node have the same number."""
    original_sha256: str
    """Of report.json as it was read."""


def blocks(sent: Sequence[Sent], owner: Owner, left_out: Sequence[str]) -> Iterator[Block]:
    """The page for `owner`. `sent` stands in the order of time; of each node the last report is what holds."""
    nodes = [[one for one in sent if one.node == node] for node in dict.fromkeys(s.node for s in sent)]
    several = len(nodes) > 1
    problems = sum(len({g.first.id for g in _problems(node[-1].report, owner)}) for node in nodes)
    mends = {Owner.provider: "for the provider to mend", Owner.renter: "to mend yourself"}[owner]
    what = f"{plural(problems, 'problem')} {mends}" if problems else f"nothing {mends}"
    last = [node[-1].report for node in nodes]
    verdicts = ", ".join(dict.fromkeys(f"{r.judgement.verdict.value} {r.profile.name}" for r in last))
    yield Heading(f"{verdicts}: {what}" + (f" on {plural(len(nodes), 'node')}" if several else ""), 1)
    for node in nodes:
        yield from _node(node, owner, several)
    yield Heading("Attached")
    for number, one in enumerate(sent, 1):
        yield Item(
            f"{one.place}: {one.report.judgement.verdict.value}, {_time(one.report)}; a redacted copy: the "
            f"original's report.json has the SHA-256 {one.original_sha256}",
            f"report {number}",
        )
    yield Item("the SHA-256 of every file here", "manifest.json")
    yield Item("which pseudonyms stand for names, addresses and secrets", "replaced.md")
    if left_out:
        yield Heading("Left out")
        for sentence in left_out:
            yield Item(sentence)
    yield Line("Check a copy after unpacking:")
    yield Command(f"nodecheck report verify {sent[-1].place}")


def _node(history: Sequence[Sent], owner: Owner, several: bool) -> Iterator[Block]:
    report = history[-1].report
    judgement, node = report.judgement, report.facts
    if several:
        yield Heading(f"Node {history[-1].node}: {judgement.verdict.value}")
    yield Line(judgement.summary)
    yield Line(f"{view.rented(report)} Facts of {_time(report)}.")
    yield from _machine(node)
    problems = _problems(report, owner)
    if problems:
        yield Heading("What fails" if owner is Owner.provider else "What you can mend")
    for group in problems:
        yield from _problem(group, history)
    yield from _beside(report, owner)
    if gone := _gone(history, owner):
        yield Heading("Seen earlier, and not in the last report")
        for sentence in gone:
            yield Item(sentence)
    yield Heading("See it all again")
    yield Command(f"nodecheck accept --profile {report.profile.name} --level {report.level}")


def _machine(node: Node) -> Iterator[Block]:
    if not isinstance(node.host, Absent):
        host = node.host
        yield Item(f"{shown(host.name)}, {shown(host.os)}, kernel {shown(host.kernel)}", "host")
    if not isinstance(node.stack, Absent):
        yield Item(shown(node.stack.driver.version), "driver")
    if isinstance(node.cards, Absent):
        yield Item(shown(node.cards), "cards")
    elif node.cards:
        rows = ((c.short_name, c.pci_address, c.uuid, c.identity.serial, c.identity.name) for c in node.cards)
        yield Table(
            ("card", "PCI address", "UUID", "serial", "name"),
            tuple(tuple(_cell(value) for value in row) for row in rows),
        )


def _cell(value: object) -> str:
    return f"not seen ({value.why.value.replace('_', ' ')})" if isinstance(value, Absent) else shown(value)


def _problems(report: Report, owner: Owner) -> list[Group]:
    """What `owner` can mend, the gravest first; not what was waived."""
    groups = [group for section in view.sections(report.judgement) for group in section.groups]
    mine = [g for g in groups if g.first.owner is owner and g.first.status in _TROUBLE]
    return sorted(mine, key=lambda group: (group.follows, group.first.status is not Status.fail))


def _problem(group: Group, history: Sequence[Sent]) -> Iterator[Block]:
    first = group.first
    node = history[-1].report.facts
    yield Heading(f"{view.STATUSES[first.status]}: {first.title} (`{first.id}`)", 3)
    for row in group.rows:
        yield Item(row.first.detail, row.subjects)
        if row.first.expected is not None:
            promised = first.owner is Owner.provider and not row.first.expected_from.startswith("rule ")
            source = f", by {row.first.expected_from}" if row.first.expected_from else ""
            yield Item(
                f"{shown(row.first.expected, row.first.unit)}{source}",
                "promised" if promised else "wanted",
                1,
            )
        if row.first.observed is not None:
            source = f", from {row.first.observed_from}" if row.first.observed_from else ""
            yield Item(f"{shown(row.first.observed, row.first.unit)}{source}", "seen", 1)
    for subjects, since in _since(group, history):
        yield Item(since, f"since, on {subjects}" if subjects else "since")
    if group.follows:
        yield Line(f"Follows from `{first.root}`: mend that first.", ours=True)
        return
    for event in _events(group, node)[:_MOST_EVENTS]:
        yield Item(_event(event, node), "kernel log")
    if first.meaning:
        yield Line(f"What it means: {first.meaning}", ours=True)
    if first.next_step:
        yield Line(f"Next step: {first.next_step}", ours=True)
    if first.repeat:
        yield Line("See it again:")
        yield Command(first.repeat)


def _since(group: Group, history: Sequence[Sent]) -> list[tuple[str, str]]:
    """Since when, for each of the group's subjects for which that is another time; for one answer, once."""
    told: dict[str, list[str]] = {}
    for finding in group.findings:
        told.setdefault(_first_seen(finding, history), []).append(finding.subject.label)
    if len(told) == 1:
        return [("", next(iter(told)))]
    return [(", ".join(subjects), since) for since, subjects in told.items()]


def _first_seen(finding: Finding, history: Sequence[Sent]) -> str:
    """The report from which on it was never seen right."""
    if len(history) == 1:
        return f"{_time(history[0].report)} at the latest, the only report of this node here"
    first, right = history[-1], None
    for one in reversed(history):
        status = _status(one.report, finding)
        if status is Status.passed:
            right = one
            break
        if status in _TROUBLE:
            first = one
    words = f"first seen at {_time(first.report)} ({first.place})"
    if right is not None:
        return f"{words}; still right at {_time(right.report)} ({right.place})"
    if first is not history[0]:
        return f"{words}; the reports before did not see it, nor that it was right"
    return f"{words}, the earliest report here"


def _status(report: Report, finding: Finding) -> Status | None:
    """What an other report says of the same; the gravest where it says it more than once."""
    said = {
        other.status
        for other in report.judgement.findings
        if other.id == finding.id and other.subject.key == finding.subject.key
    }
    order = (Status.fail, Status.warn, Status.unknown, Status.skipped, Status.passed)
    return next((status for status in order if status in said), None)


def _events(group: Group, node: Node) -> list[LogEvent]:
    """What the kernel log says of the cards that the group is about; of the machine, where it is about that."""
    if isinstance(node.kernel_log, Absent) or isinstance(node.kernel_log.events, Absent):
        return []
    keys = {key for finding in group.findings for key in finding.subject.key.split("+")}
    places = {card.pci_address for card in node.known_cards if card.key in keys}
    of_log = group.first.id.startswith("kernel_log.")
    return [
        event
        for event in node.kernel_log.events
        if (event.device in places and event.kind in _TOLD) or (of_log and "node" in keys)
    ]


def _event(event: LogEvent, node: Node) -> str:
    which = event.name if event.code is None else event.code
    what = f"{event.kind.replace('_', ' ').replace('xid', 'Xid')} {'' if which is None else which}".strip()
    times = list(
        dict.fromkeys(
            filter(None, (view.wall_clock(node, s) for s in (event.first_seconds, event.last_seconds)))
        )
    )
    when = " to ".join(times) or "at a time that is not known"
    return f"{what}, {plural(event.count, 'time')}, {when}"


def _beside(report: Report, owner: Owner) -> Iterator[Block]:
    """What is not in the list above, so that nobody takes the list for the whole."""
    other = Owner.renter if owner is Owner.provider else Owner.provider
    others = {group.first.id for group in _problems(report, other)}
    unseen = [
        group
        for section in view.sections(report.judgement)
        for group in section.groups
        if group.first.status is Status.unknown and not group.follows
    ]
    waived = view.waived(report.judgement)
    if not (others or unseen or waived):
        return
    yield Heading("Beside it")
    if others:
        whose = "the renter can mend, and does" if other is Owner.renter else "the provider must mend"
        yield Item(f"{plural(len(others), 'problem')} that {whose}: {view.named(sorted(others))}")
    for group in unseen:
        yield Item(f"{group.scope}: {group.first.detail}", f"could not be seen, {group.first.id}")
    for group in waived:
        yield Item(f"{group.scope}: {group.first.waived}", f"set aside by the renter, {group.first.id}")


def _gone(history: Sequence[Sent], owner: Owner) -> list[str]:
    """Trouble of earlier reports that the last one does not show: it may come and go."""
    now = {(g.first.id, f.subject.key) for g in _problems(history[-1].report, owner) for f in g.findings}
    told: dict[tuple[str, str], str] = {}
    for one in history[:-1]:
        for group in _problems(one.report, owner):
            for finding in group.findings:
                if (finding.id, finding.subject.key) in now:
                    continue
                status = _status(history[-1].report, finding)
                then = "passes now" if status is Status.passed else "cannot be seen now"
                what = f"{finding.id} ({finding.subject.label}): {finding.detail}"
                told[finding.id, finding.subject.key] = f"{what} Last seen at {_time(one.report)}; {then}."
    return list(told.values())


def _time(report: Report) -> str:
    return f"{report.facts.taken_at:%Y-%m-%d %H:%M:%S} UTC"

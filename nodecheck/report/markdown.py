"""The report for a ticket: the verdict first, what is wrong, the evidence, and how to see it again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from nodecheck.facts import Absent
from nodecheck.judge import Finding, Status
from nodecheck.report import figures, view
from nodecheck.report.document import Report
from nodecheck.report.figures import Figures
from nodecheck.report.text import number, plain, shown

_HARMLESS = re.compile(r"""[\w()'"“”’.,:;?!/%=×–—·°…→+-]+""")
"""The signs of words that may stand in Markdown as they are, unless they form one of these:"""
_RISKY = re.compile(
    r"""
      //|^www\.                # becomes a link
    | ^(?!\d\d:\d\d:\d\d\W?$).*:[\w+-]+:  # an emoji's name, but no time of day
    | ^_|_$|__                 # emphasis
    | ^[-+=]+$|^\d+[.)]$       # a list, a rule, a heading's underline
    | [!%][\d"]|^GH-\d         # a merge request, a milestone, an issue
    | ^[0-9a-f]{7,}$           # a commit
    """,
    re.IGNORECASE | re.VERBOSE,
)

_MOST_PAIRED = 16
"""Cards whose pairs a ticket shows."""


def render(report: Report) -> str:
    """The report in GitHub's and GitLab's Markdown; a node's text cannot become markup, link or mention."""
    return "\n".join(_lines(report)).rstrip() + "\n"


def _lines(report: Report) -> Iterator[str]:
    judgement = report.judgement
    yield f"**{judgement.verdict.value}** {_prose(view.headline(judgement))}"
    yield ""
    yield f"Rented as {_prose(report.profile.title)}. {_prose(view.basis(report))}"
    if report.interrupted:
        yield ""
        yield "The run was interrupted: what had not been asked by then is unknown."
    for section in view.sections(judgement):
        yield ""
        yield f"## {section.title}"
        for group in section.groups:
            yield from _group(group)
    if waived := view.waived(judgement):
        yield ""
        yield "## Set aside by waiver"
        for group in waived:
            yield from _group(group)
    yield from _node(report)
    measured = figures.of(report)
    if measured is not None:
        yield ""
        yield "## Measurements"
        yield ""
        if isinstance(measured, Absent):
            yield f"Nothing was measured: {_prose(shown(measured))}."
        else:
            yield from _measurements(measured)
    yield from _ledger(report)
    yield ""
    yield "## Run"
    yield ""
    yield f"- nodecheck {_prose(report.tool.version)}, {report.created_at:%Y-%m-%d %H:%M:%S} UTC"
    if report.argv:
        yield f"- command: {_code('nodecheck ' + ' '.join(report.argv))}"
    for name, digest in report.parts.items():
        if name not in ("report.html", "report.md"):
            yield f"- SHA-256 of {_code(name)}: {_code(digest)}"


def _group(group: view.Group) -> Iterator[str]:
    first = group.first
    yield ""
    yield f"### {view.STATUSES[first.status]}: {_prose(first.title)} ({_code(first.id)})"
    yield ""
    for row in group.rows:
        yield f"- **{_prose(row.subjects)}**: {_prose(row.first.detail)}{_evidence(row.first)}"
    yield ""
    if first.waived is not None:
        yield f"Set aside: {_prose(first.waived)}"
        return
    if first.root is not None:
        yield f"Follows from {_code(first.root)}; mend that first."
        return
    if first.meaning:
        yield f"What it means: {_prose(first.meaning)}"
        yield ""
    if first.next_step:
        owner = f" (for {view.OWNERS[first.owner]} to mend)" if first.owner else ""
        yield f"Next step{owner}: {_prose(first.next_step)}"
        yield ""
    if first.repeat:
        yield f"See it again: {_code(first.repeat)}"


def _evidence(finding: Finding) -> str:
    parts = []
    if finding.observed is not None:
        source = f" (read from {_prose(finding.observed_from)})"
        parts.append(f"observed {_code(shown(finding.observed, finding.unit))}{source}")
    if finding.expected is not None:
        source = f" ({_prose(finding.expected_from)})" if finding.expected_from else ""
        parts.append(f"expected {_code(shown(finding.expected, finding.unit))}{source}")
    evidence = ", ".join(parts)
    return f" {evidence[0].upper()}{evidence[1:]}." if parts else ""


def _node(report: Report) -> Iterator[str]:
    node = report.facts
    yield ""
    yield "## Node"
    yield ""
    if isinstance(node.host, Absent):
        yield f"- host: {_prose(shown(node.host))}"
    else:
        host = node.host
        yield f"- host: {_value(host.name)}, {_value(host.os)}, kernel {_value(host.kernel)}"
        yield f"- container: {_value(host.container)}; virtualization: {_value(host.virtualization)}"
    if not isinstance(node.stack, Absent):
        torch = node.stack.torch
        built = (
            _value(torch)
            if isinstance(torch, Absent)
            else f"{_value(torch.version)}, CUDA {_value(torch.cuda)}"
        )
        yield f"- driver: {_value(node.stack.driver.version)}; PyTorch: {built}"
    yield f"- facts of {node.taken_at:%Y-%m-%d %H:%M:%S} UTC"
    yield ""
    if isinstance(node.cards, Absent):
        yield f"Cards: {_prose(shown(node.cards))}"
        return
    yield from _table(
        ("GPU", "PCI address", "name", "memory", "UUID", "serial", "state"),
        (
            (
                str(card.index),
                _value(card.pci_address),
                _value(card.identity.name),
                _prose(shown(card.memory.total_bytes, "bytes")),
                _value(card.uuid),
                _value(card.identity.serial),
                view.STATUSES[view.card_status(report.judgement, card.key)],
            )
            for card in node.cards
        ),
    )
    if len(node.cards) > 1:
        yield ""
        links = view.matrix(node)
        if isinstance(links, Absent):
            yield f"Links: {_prose(shown(links))}"
        else:
            yield from _table(
                ("", *links.labels),
                (
                    (label, *(cell.text for cell in row))
                    for label, row in zip(links.labels, links.rows, strict=True)
                ),
            )


def _measurements(measured: Figures) -> Iterator[str]:
    if columns := measured.overview:
        heads = (f"{figures.COLUMNS[beside.measure]}, {beside.unit}" for beside in columns)
        rows: list[tuple[str, ...]] = [
            (_prose(measured.label(key)), *map(_figure, measured.cells(key, columns)))
            for key in measured.keys
        ]
        rows.append(("at", *(_prose(measured.at(beside)) for beside in columns)))
        rows.append(("typical", *(shown(b.typical) for b in columns)))
        rows.append(("fails under", *(shown(b.limits.fail) for b in columns)))
        yield from _table(("", *heads), rows)
        yield ""
    for table in measured.pairs[:1]:
        yield f"Pairs, {_prose(table.title)}, {_prose(table.at)}: {_prose(table.extremes)}"
        yield ""
        if 0 < len(table.rows) <= _MOST_PAIRED:
            yield from _table(
                ("from", *map(_prose, table.labels)),
                (
                    (_prose(label), *(_figure(cell) for cell in row))
                    for label, row in zip(table.labels, table.rows, strict=True)
                ),
            )
            yield ""
    for curve in measured.curves[:1]:
        sizes = sorted({point.size_bytes for series in curve.series for point in series.points})[-6:]
        rows = []
        for series in curve.series:
            by_size = {point.size_bytes: number(point.value) for point in series.points}
            rows.append((_prose(series.label), *(by_size.get(size_bytes, "–") for size_bytes in sizes)))
        heads = (figures.small_size(size_bytes) for size_bytes in sizes)
        yield from _table((f"{_prose(curve.collective)}, bus GB/s", *heads), rows)
        yield ""
    for transport in measured.transports[:4]:
        ways = ", ".join(map(_code, transport.paths)) or "not known"
        yield f"- {_prose(transport.name)}: {_prose(transport.library)} over {ways}"
    right = [row for row in measured.checks if not row.wrong]
    if right:
        yield f"- data right: {', '.join(f'{_code(row.check)} ({_prose(row.where)})' for row in right)}"
    for wrong in measured.wrong:
        example = f": {_code(wrong.examples[0])}" if wrong.examples else ""
        yield f"- **wrong data**: {_code(wrong.check)}, {_prose(wrong.where)}: {_prose(wrong.told)}{example}"
    for part in measured.seen.dropped:
        yield f"- left out for the time budget: {_prose(part)}"
    for row in measured.not_run:
        yield f"- {row.stage}, {_prose(row.where)}: {_prose(row.why)}"
    yield f"- measured in {measured.seen.seconds:.1f} s"


def _figure(cell: figures.Cell | figures.PairCell) -> str:
    return f"**{cell.text}**" if cell.status in (Status.warn, Status.fail) else cell.text


def _ledger(report: Report) -> Iterator[str]:
    ledger = report.judgement.ledger
    yield ""
    yield "## What could be seen"
    yield ""
    opened = [_code(entry.door) for entry in ledger if entry.open is True]
    yield f"- open: {', '.join(opened) or 'nothing'}"
    for entry in ledger:
        lost = ", ".join(_code(finding) for finding in entry.unknown_findings)
        if entry.open is True:
            if lost:
                yield f"- {_code(entry.door)}: open, and yet unknown: {lost}"
            continue
        state = "closed" if entry.open is False else _prose(shown(entry.open))
        cost = f"; unknown by that: {lost}" if lost else ""
        yield f"- {_code(entry.door)}: {state}: {_prose(entry.detail)}{cost}"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    head = tuple(head)
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _value(value: object) -> str:
    return _prose(shown(value))


def _prose(text: str) -> str:
    """The words of `text`; runs of words that Markdown or a forge could take for more stand in code spans."""
    parts: list[str] = []
    risky: list[str] = []
    for word in plain(text).split(" "):
        if _HARMLESS.fullmatch(word) and not _RISKY.search(word):
            if risky:
                parts.append(_code(" ".join(risky)))
                risky = []
            parts.append(word)
        else:
            risky.append(word)
    if risky:
        parts.append(_code(" ".join(risky)))
    return " ".join(parts)


def _code(text: str) -> str:
    """A code span of `text`, to the letter. A pipe would end a table's cell even there and stands outside."""
    return "&#124;".join(_span(piece) for piece in plain(text).split("|"))


def _span(text: str) -> str:
    if not text.strip():
        return text
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if text[0] in "` " or text[-1] in "` " else ""
    return f"{fence}{pad}{text}{pad}{fence}"

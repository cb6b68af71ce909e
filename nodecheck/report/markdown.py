"""The report for a ticket: the verdict first, what is wrong, the evidence, and how to see it again."""

from __future__ import annotations

from collections.abc import Iterator

from nodecheck.facts import Absent, known
from nodecheck.judge import Finding, Status
from nodecheck.report import figures, view
from nodecheck.report.document import Report
from nodecheck.report.figures import Figures
from nodecheck.report.markup import block, code, ours, prose, table
from nodecheck.report.text import number, shown, small_size

_MOST_REASONS = 40
_MOST_PAIRED = 16
"""Cards whose pairs a ticket shows."""


def render(report: Report) -> str:
    """The report in GitHub's and GitLab's Markdown; a node's text cannot become markup, link or mention."""
    return "\n".join(_lines(report)).rstrip() + "\n"


def _lines(report: Report) -> Iterator[str]:
    judgement = report.judgement
    yield f"**{judgement.verdict.value}** {prose(view.headline(judgement))}"
    yield ""
    yield f"{prose(view.rented(report))} {prose(view.basis(report))}"
    if report.interrupted:
        yield ""
        yield "The run was interrupted: what had not been asked by then is unknown."
    if recording := view.recording(report):
        yield ""
        yield prose(recording)
    for unmet in view.unmet_waivers(report):
        yield ""
        yield f"{code(f'--waive {unmet}')}: nothing to set aside."
    if judgement.reasons:
        yield ""
        yield "## Why"
        yield ""
        for reason in judgement.reasons[:_MOST_REASONS]:
            yield f"- {prose(reason)}"
        if len(judgement.reasons) > _MOST_REASONS:
            yield f"- and {len(judgement.reasons) - _MOST_REASONS} more, below"
    sources = view.Sources()
    for section in view.sections(judgement):
        yield ""
        yield f"## {section.title}"
        for group in section.groups:
            yield from _group(group, sources)
        if section.behind:
            yield ""
        for behind in section.behind:
            yield f"- {prose(behind.sentence)}: {view.named(behind.ids, code)}"
    if waived := view.waived(judgement):
        yield ""
        yield "## Set aside by waiver"
        for group in waived:
            yield from _group(group, sources)
    if sources.listed:
        yield ""
        yield "## Sources"
        yield ""
        for number_, source in enumerate(sources.listed, 1):
            yield f"- [{number_}] {prose(source)}"
    yield from _node(report)
    measured = figures.of(report)
    if measured is not None:
        yield ""
        yield "## Measurements"
        yield ""
        if isinstance(measured, Absent):
            yield f"Nothing was measured: {prose(shown(measured))}."
        else:
            yield from _measurements(measured)
    yield from _ledger(report)
    yield ""
    yield "## Run"
    yield ""
    yield f"- nodecheck {prose(report.tool.version)}, {report.created_at:%Y-%m-%d %H:%M:%S} UTC"
    if report.argv:
        yield "- command:"
        yield ""
        yield from block("nodecheck " + " ".join(report.argv), indent="  ")
        yield ""
    for name, digest in report.parts.items():
        if name not in ("report.html", "report.md"):
            yield f"- SHA-256 of {code(name)}: {code(digest)}"


def _group(group: view.Group, sources: view.Sources) -> Iterator[str]:
    first = group.first
    yield ""
    yield f"### {view.STATUSES[first.status]}: {ours(first.title)} ({code(first.id)})"
    yield ""
    for row in group.rows:
        yield f"- **{prose(row.subjects)}**: {prose(row.first.detail)}"
        for line in _evidence(row.first, sources):
            yield f"  - {line}"
    yield ""
    if first.waived is not None:
        yield f"Set aside: {prose(first.waived)}"
        return
    if first.root is not None:
        yield f"Follows from {code(first.root)}; mend that first."
        return
    if first.meaning:
        yield f"What it means: {ours(first.meaning)}"
        yield ""
    if first.next_step:
        owner = f" (for {view.OWNERS[first.owner]} to mend)" if first.owner else ""
        yield f"Next step{owner}: {ours(first.next_step)}"
        yield ""
    if first.repeat:
        yield "See it again:"
        yield ""
        yield from block(first.repeat)


def _evidence(finding: Finding, sources: view.Sources) -> Iterator[str]:
    for name, value, source in (
        ("observed", finding.observed, finding.observed_from),
        ("expected", finding.expected, finding.expected_from),
    ):
        if value is not None:
            number_ = sources.number(source)
            witness = f" [{number_}]" if number_ else f" ({prose(source)})" if source else ""
            yield f"{name} {code(shown(value, finding.unit))}{witness}"


def _node(report: Report) -> Iterator[str]:
    node = report.facts
    yield ""
    yield "## Node"
    yield ""
    if isinstance(node.host, Absent):
        yield f"- host: {prose(shown(node.host))}"
    else:
        host = node.host
        yield f"- host: {_value(host.name)}, {_value(host.os)}, kernel {_value(host.kernel)}"
        yield f"- container: {_value(host.container)}; virtualization: {_value(host.virtualization)}"
    if not isinstance(node.stack, Absent):
        torch = node.stack.torch
        built = (
            _value(torch)
            if isinstance(torch, Absent)
            else f"{_value(torch.version)}, HIP {_value(torch.hip)}"
            if known(torch.hip)
            else f"{_value(torch.version)}, CUDA {_value(torch.cuda)}"
        )
        yield f"- driver: {_value(node.stack.driver.version)}; PyTorch: {built}"
    yield f"- facts of {node.taken_at:%Y-%m-%d %H:%M:%S} UTC"
    yield ""
    if isinstance(node.cards, Absent):
        yield f"Cards: {prose(shown(node.cards))}"
        return
    if not node.cards:
        yield "Cards: none"
        return
    on_amd = view.amd_alone(node)
    yield from table(
        (
            "GPU",
            "state",
            "name",
            "PCI address",
            *(["CUs", "partitions"] if on_amd else []),
            "memory",
            "power limit",
            f"{view.links_name(node)} up",
            "PCIe, gen now of max",
            "ECC",
        ),
        (
            (
                str(card.index),
                view.card_state(report.judgement, card.key).word,
                _value(card.identity.name),
                _value(card.pci_address),
                *([_cell(card.identity.compute_units), prose(view.partitions(card))] if on_amd else []),
                prose(shown(card.memory.total_bytes, "bytes")),
                prose(shown(card.power.limit_watts, "W")),
                _cell(card.active_links),
                f"×{_cell(card.pcie.width)}, gen {_cell(card.pcie.generation)} of {_cell(card.pcie.max_generation)}",
                _cell(card.health.ecc_enabled)
                if isinstance(card.health.ecc_enabled, Absent)
                else ("on" if card.health.ecc_enabled else "off"),
            )
            for card in node.cards
        ),
    )
    yield ""
    yield from table(
        ("GPU", "UUID", "serial", "board part", "VBIOS", "PCI id"),
        (
            (
                str(card.index),
                _value(card.uuid),
                _value(card.identity.serial),
                _value(card.identity.board_part),
                _value(card.identity.vbios),
                _value(card.identity.pci_id),
            )
            for card in node.cards
        ),
    )
    if len(node.cards) > 1:
        yield ""
        links = view.matrix(node, report.profile)
        if isinstance(links, Absent):
            yield f"Links: {prose(shown(links))}"
            return
        yield from table(
            ("", *links.labels),
            (
                (label, *(f"**{cell.marked}**" if cell.bad else cell.text for cell in row))
                for label, row in zip(links.labels, links.rows, strict=True)
            ),
        )
        yield ""
        yield "; ".join(f"{sign}: {meaning}" for sign, meaning in view.legend(links))


def _measurements(measured: Figures) -> Iterator[str]:
    if columns := measured.overview:
        heads = (f"{figures.COLUMNS[beside.measure]}, {beside.unit}" for beside in columns)
        rows: list[tuple[str, ...]] = [
            (prose(measured.label(key)), *map(_figure, measured.cells(key, columns))) for key in measured.keys
        ]
        rows.append(("at", *(prose(measured.at(beside)) for beside in columns)))
        rows.append(("typical", *(shown(b.typical) for b in columns)))
        rows.append(("fails under", *(shown(b.limits.fail) for b in columns)))
        yield from table(("", *heads), rows)
        yield ""
    for pairs in measured.pairs[:1]:
        yield f"Pairs, {prose(pairs.title)}, {prose(pairs.at)}: {prose(pairs.extremes)}"
        yield ""
        if 0 < len(pairs.rows) <= _MOST_PAIRED:
            yield from table(
                ("from", *map(prose, pairs.labels)),
                (
                    (prose(label), *(_figure(cell) for cell in row))
                    for label, row in zip(pairs.labels, pairs.rows, strict=True)
                ),
            )
            yield ""
    for curve in measured.curves[:1]:
        sizes = sorted({point.size_bytes for series in curve.series for point in series.points})[-6:]
        rows = []
        for series in curve.series:
            by_size = {point.size_bytes: number(point.value) for point in series.points}
            rows.append((prose(series.label), *(by_size.get(size_bytes, "–") for size_bytes in sizes)))
        heads = (small_size(size_bytes) for size_bytes in sizes)
        yield from table((f"{prose(curve.collective)}, bus GB/s", *heads), rows)
        yield ""
    for transport in measured.transports[:4]:
        ways = ", ".join(map(code, transport.paths)) or "not known"
        yield f"- {prose(transport.name)}: {prose(transport.library)} over {ways}"
    right = [row for row in measured.checks if row.right]
    if right:
        yield f"- data right: {', '.join(f'{code(row.check)} ({prose(row.where)})' for row in right)}"
    for wrong in measured.wrong:
        example = f": {code(wrong.examples[0])}" if wrong.examples else ""
        yield f"- **wrong data**: {code(wrong.check)}, {prose(wrong.where)}: {prose(wrong.told)}{example}"
    for part in measured.seen.dropped:
        yield f"- left out for the time budget: {prose(part)}"
    for row in measured.not_run:
        yield f"- {row.stage}, {prose(row.where)}: {prose(row.why)}"
    yield f"- measured in {measured.seen.seconds:.1f} s"


def _figure(cell: figures.Cell | figures.PairCell) -> str:
    return f"**{cell.text}**" if cell.status in (Status.warn, Status.fail) else cell.text


def _ledger(report: Report) -> Iterator[str]:
    ledger = report.judgement.ledger
    yield ""
    yield "## What could be seen"
    yield ""
    opened = [code(entry.door) for entry in ledger if entry.open is True]
    yield f"- open: {', '.join(opened) or 'nothing'}"
    for entry in ledger:
        if entry.open is True:
            unseen = view.reasons_unseen(report.judgement, entry)
            for finding in unseen[: view.MOST_IDS]:
                yield f"- {code(entry.door)}, open, and yet unknown: {code(finding.id)}: {prose(finding.detail)}"
            if len(unseen) > view.MOST_IDS:
                yield f"- {code(entry.door)}, open, and yet unknown: {len(unseen) - view.MOST_IDS} more"
            continue
        lost = view.named(entry.unknown_findings, code)
        state = "closed" if entry.open is False else prose(shown(entry.open))
        cost = f"; unknown by that: {lost}" if lost else ""
        yield f"- {code(entry.door)}: {state}: {prose(entry.detail)}{cost}"


def _value(value: object) -> str:
    return prose(shown(value))


def _cell(value: object) -> str:
    """Like `_value`; of what was not seen the reason alone, as a table has little room."""
    return value.why.value.replace("_", " ") if isinstance(value, Absent) else _value(value)

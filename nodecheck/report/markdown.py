"""The report for a ticket: the verdict first, what is wrong, the evidence, and how to see it again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from nodecheck.facts import Absent
from nodecheck.judge import Finding, Status
from nodecheck.report import figures, view
from nodecheck.report.document import Report
from nodecheck.report.figures import Figures
from nodecheck.report.text import number, plain, shown, spans

_ACTING = re.compile(
    r"""
      [a-z][a-z0-9+.-]*://\S+ | www\.\S+               # links
    | \b[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b  # a PCI address: `:ab:` and others in it are emojis
    | (?<![\w.:+-])[\w.:+-]*:(?:100|1234|(?=[\w+-]*[a-z+]|-1:)[\w+-]+):(?:[\w.:+-]*[\w+-])?  # an emoji's name
    | (?<![\w.+/-])[\w.+/-]*[@\#]\w(?:[\w./@\#-]*\w)?  # a mention, an address, an issue, a commit elsewhere
    | [!&$]\d+ | [%~](?:\d[\w.]*|"[^"]*") | ~\w+ | \^\w+\#\d+ | \[\w+:[^\]\s]+\] | \bGH-\d+  # references
    | (?<![\w-])[0-9a-f]{7,40}(?![\w-])                 # a commit
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""What forges look for in text that is already rendered, where no backslash helps: only code is left alone."""
_MARKUP = re.compile(r"[\\`*\[\]<~$]|&(?=[#\w])|(?<![^\W_])_|_(?![^\W_])")
_OPENING = re.compile(r"(?=[-+=>#])|\d{1,9}(?=[.)](?: |$))")
"""What would begin a list, a heading, a quotation or a rule."""

_MOST_REASONS = 40
_MOST_PAIRED = 16
"""Cards whose pairs a ticket shows."""


def render(report: Report) -> str:
    """The report in GitHub's and GitLab's Markdown; a node's text cannot become markup, link or mention."""
    return "\n".join(_lines(report)).rstrip() + "\n"


def _lines(report: Report) -> Iterator[str]:
    judgement = report.judgement
    yield f"**{judgement.verdict.value}** {_prose(view.headline(judgement))}"
    yield ""
    yield f"{_prose(view.rented(report))} {_prose(view.basis(report))}"
    if report.interrupted:
        yield ""
        yield "The run was interrupted: what had not been asked by then is unknown."
    if recording := view.recording(report):
        yield ""
        yield _prose(recording)
    for unmet in view.unmet_waivers(report):
        yield ""
        yield f"{_code(f'--waive {unmet}')}: nothing to set aside."
    if judgement.reasons:
        yield ""
        yield "## Why"
        yield ""
        for reason in judgement.reasons[:_MOST_REASONS]:
            yield f"- {_prose(reason)}"
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
            yield f"- {_prose(behind.sentence)}: {view.named(behind.ids, _code)}"
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
            yield f"- [{number_}] {_prose(source)}"
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
        yield "- command:"
        yield ""
        yield from _block("nodecheck " + " ".join(report.argv), indent="  ")
        yield ""
    for name, digest in report.parts.items():
        if name not in ("report.html", "report.md"):
            yield f"- SHA-256 of {_code(name)}: {_code(digest)}"


def _group(group: view.Group, sources: view.Sources) -> Iterator[str]:
    first = group.first
    yield ""
    yield f"### {view.STATUSES[first.status]}: {_ours(first.title)} ({_code(first.id)})"
    yield ""
    for row in group.rows:
        yield f"- **{_prose(row.subjects)}**: {_prose(row.first.detail)}"
        for line in _evidence(row.first, sources):
            yield f"  - {line}"
    yield ""
    if first.waived is not None:
        yield f"Set aside: {_prose(first.waived)}"
        return
    if first.root is not None:
        yield f"Follows from {_code(first.root)}; mend that first."
        return
    if first.meaning:
        yield f"What it means: {_ours(first.meaning)}"
        yield ""
    if first.next_step:
        owner = f" (for {view.OWNERS[first.owner]} to mend)" if first.owner else ""
        yield f"Next step{owner}: {_ours(first.next_step)}"
        yield ""
    if first.repeat:
        yield "See it again:"
        yield ""
        yield from _block(first.repeat)


def _evidence(finding: Finding, sources: view.Sources) -> Iterator[str]:
    for name, value, source in (
        ("observed", finding.observed, finding.observed_from),
        ("expected", finding.expected, finding.expected_from),
    ):
        if value is not None:
            number_ = sources.number(source)
            witness = f" [{number_}]" if number_ else f" ({_prose(source)})" if source else ""
            yield f"{name} {_code(shown(value, finding.unit))}{witness}"


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
    if not node.cards:
        yield "Cards: none"
        return
    yield from _table(
        (
            "GPU",
            "state",
            "name",
            "PCI address",
            "memory",
            "power limit",
            "NVLinks up",
            "PCIe, gen now of max",
            "ECC",
        ),
        (
            (
                str(card.index),
                view.card_state(report.judgement, card.key).word,
                _value(card.identity.name),
                _value(card.pci_address),
                _prose(shown(card.memory.total_bytes, "bytes")),
                _prose(shown(card.power.limit_watts, "W")),
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
    yield from _table(
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
            yield f"Links: {_prose(shown(links))}"
            return
        yield from _table(
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
    right = [row for row in measured.checks if row.right]
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
        if entry.open is True:
            unseen = view.reasons_unseen(report.judgement, entry)
            for finding in unseen[: view.MOST_IDS]:
                yield f"- {_code(entry.door)}, open, and yet unknown: {_code(finding.id)}: {_prose(finding.detail)}"
            if len(unseen) > view.MOST_IDS:
                yield f"- {_code(entry.door)}, open, and yet unknown: {len(unseen) - view.MOST_IDS} more"
            continue
        lost = view.named(entry.unknown_findings, _code)
        state = "closed" if entry.open is False else _prose(shown(entry.open))
        cost = f"; unknown by that: {lost}" if lost else ""
        yield f"- {_code(entry.door)}: {state}: {_prose(entry.detail)}{cost}"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    head = tuple(head)
    yield f"| {' | '.join(cell.replace('|', _PIPE) for cell in head)} |"
    yield f"|{' --- |' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', _PIPE) for cell in row)} |"


_PIPE = "\\|"
"""A pipe inside a cell, even in code."""


def _value(value: object) -> str:
    return _prose(shown(value))


def _cell(value: object) -> str:
    """Like `_value`; of what was not seen the reason alone, as a table has little room."""
    return value.why.value.replace("_", " ") if isinstance(value, Absent) else _value(value)


def _prose(text: str) -> str:
    """`text` as text: nothing in it is markup, and what a forge would act on all the same stands in code."""
    return _edged(_words(plain(text)))


def _ours(text: str) -> str:
    """One of our own texts, in which backticks mean code."""
    return _edged("".join(_code(piece) if is_code else _words(piece) for piece, is_code in spans(text)))


def _words(text: str) -> str:
    made, done = "", 0
    for acting in _ACTING.finditer(text):
        made += _MARKUP.sub(r"\\\g<0>", text[done : acting.start()]) + _code(acting[0])
        done = acting.end()
    return made + _MARKUP.sub(r"\\\g<0>", text[done:])


def _edged(made: str) -> str:
    """Blanks at the ends would be lost or be markup; so would some signs at the beginning."""
    if made.startswith(" "):
        made = f"&#32;{made[1:]}"
    if made.endswith(" "):
        made = f"{made[:-1]}&#32;"
    return _OPENING.sub(r"\g<0>\\", made, count=1) if _OPENING.match(made) else made


def _code(text: str) -> str:
    """A code span of `text`, to the letter."""
    text = plain(text)
    if not text.strip():
        return text
    fence = "`" * (_longest_run(text) + 1)
    pad = " " if text[0] in "` " or text[-1] in "` " else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _block(text: str, indent: str = "") -> Iterator[str]:
    """A command by itself, to be copied."""
    text = plain(text)
    fence = "`" * max(_longest_run(text) + 1, 3)
    yield f"{indent}{fence}sh"
    yield f"{indent}{text}"
    yield f"{indent}{fence}"


def _longest_run(text: str) -> int:
    """Of backticks."""
    return max((len(run) for run in re.findall("`+", text)), default=0)

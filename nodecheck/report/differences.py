"""The difference of two reports in words: Markdown, plain text, JSON."""

from __future__ import annotations

from collections.abc import Iterator

from nodecheck.facts import Absent
from nodecheck.facts.comparison import Change
from nodecheck.report import page
from nodecheck.report.diff import LEAST_REPETITIONS, LEAST_SHARE, Diff, FigureDifference, How, Side
from nodecheck.report.page import Block, Heading, Item, Line, Table
from nodecheck.report.text import conditions, number, plural, shown, small_size, unit_words
from nodecheck.report.view import STATUSES

_HOW: dict[How, str] = {
    "new": "New trouble",
    "worse": "Worse",
    "unseen": "Seen before, and not any more (nothing says that it is mended)",
    "better": "Better",
    "gone": "Gone: these pass now",
    "seen": "Now seen, and right",
}
_MOST_FINDINGS = 60
_MOST_FACTS = 200


def render(diff: Diff, form: str) -> str:
    """The difference as `md`, `json` or `terminal`. Raises KeyError for another."""
    if form == "json":
        return diff.model_dump_json(indent=1) + "\n"
    return {"md": page.markdown, "terminal": page.text}[form](blocks(diff))


def blocks(diff: Diff) -> Iterator[Block]:
    """The page, the verdicts first."""
    before, after = diff.before.verdict.value, diff.after.verdict.value
    yield Heading(f"{before} → {after}" if before != after else f"{before}, as before", 1)
    nodes = "One node, two reports." if diff.facts.same_node else "Two nodes, compared card by card."
    yield Line(f"{nodes} A is the first, B the second.")
    yield _side("A", diff.before)
    yield _side("B", diff.after)
    if diff.before.level != diff.after.level:
        yield Line("The levels differ: what only one of them asks for is in no list below.")
    yield from _findings(diff)
    yield from _facts(diff)
    yield from _figures(diff)
    yield Heading("Not compared")
    yield Line(f"What moves by itself, or differs in any case: {'; '.join(diff.facts.left_out)}.")


def _side(name: str, side: Side) -> Item:
    made = f"{side.created_at:%Y-%m-%d %H:%M:%S} UTC, nodecheck {side.tool_version}"
    return Item(f"{side.summary} ({made})", name)


def _findings(diff: Diff) -> Iterator[Block]:
    yield Heading("Findings")
    if not diff.findings:
        yield Line("No finding changed.")
    for how, title in _HOW.items():
        some = [finding for finding in diff.findings if finding.how == how]
        if not some:
            continue
        yield Line(f"{title}:")
        for finding in some[:_MOST_FINDINGS]:
            was = STATUSES[finding.before] if finding.before else "not there"
            now = STATUSES[finding.after] if finding.after else "not asked"
            yield Item(f"{finding.subject}: {was} → {now}: {finding.detail}", finding.id)
        if len(some) > _MOST_FINDINGS:
            yield Item(f"and {len(some) - _MOST_FINDINGS} more (--format json has all)")


def _facts(diff: Diff) -> Iterator[Block]:
    facts = diff.facts
    yield Heading("Facts")
    ways = {card.by for card in facts.cards} - {"uuid", "none"}
    if ways:
        yield Line(f"Cards are joined by {', '.join(sorted(way.replace('_', ' ') for way in ways))}:")
        for card in facts.cards:
            if card.by != "none":
                yield Item(f"{card.before} and {card.after}", card.label)
    changed = [change for change in facts.changes if not change.of_sight]
    unseen = [change for change in facts.changes if change.of_sight]
    if not facts.changes and not facts.counters:
        yield Line("No fact differs.")
    if changed:
        yield _changes(changed)
    if unseen:
        yield Line("Could be seen on one side only, or not for the same reason:")
        yield _changes(unseen)
    if facts.counters:
        yield Line("Counters:")
        yield Table(
            ("where", "counter", "A", "B", "difference"),
            tuple(
                (
                    c.subject,
                    c.path,
                    shown(c.before),
                    shown(c.after),
                    f"{c.difference:+.6g}{_reset(diff, c.difference)}",
                )
                for c in facts.counters[:_MOST_FACTS]
            ),
        )


def _reset(diff: Diff, difference: float) -> str:
    return " (reset in between)" if difference < 0 and diff.facts.same_node else ""


def _changes(changes: list[Change]) -> Table:
    rows = [
        (
            change.subject,
            change.path or "the card",
            _value(change.before, change.path),
            _value(change.after, change.path),
        )
        for change in changes[:_MOST_FACTS]
    ]
    if len(changes) > _MOST_FACTS:
        rows.append(("…", f"{len(changes) - _MOST_FACTS} more (--format json has all)", "", ""))
    return Table(("where", "fact", "A", "B"), tuple(rows))


def _value(value: object, path: str) -> str:
    if value is None:
        return "not there"
    if isinstance(value, Absent):
        return f"not seen ({value.why.value.replace('_', ' ')})"
    return shown(value, "bytes" if path.endswith("_bytes") else "")


def _figures(diff: Diff) -> Iterator[Block]:
    yield Heading("Figures")
    if not diff.figures:
        yield Line("No figure was measured on both sides.")
        return
    apart = sorted((f for f in diff.figures if f.significant), key=lambda figure: -abs(figure.change))
    if apart:
        share = f"{LEAST_SHARE:.0%}".replace("%", " %")
        yield Line(f"Beyond the spread (p5 to p95) of both sides, and beyond {share}:")
        yield Table(
            ("figure", "where", "at", "A", "B", "unit", "change"),
            tuple(_row(figure) for figure in apart),
        )
    else:
        yield Line("No figure differs beyond the spread (p5 to p95) of both sides and beyond 1 %.")
    within = [f for f in diff.figures if not f.significant and f.beyond_spread is not None]
    if within:
        widest = max(within, key=lambda figure: abs(figure.change))
        yield Line(
            f"{plural(len(within), 'further figure')} within the spreads or 1 %; of these {widest.measure} on "
            f"{widest.subject} differs most, by {_share(widest.change)}."
        )
    single = [f for f in diff.figures if f.beyond_spread is None]
    if single:
        widest = max(single, key=lambda figure: abs(figure.change))
        yield Line(
            f"{plural(len(single), 'figure')} with fewer than {LEAST_REPETITIONS} repetitions on a side: they have no "
            f"spread, and a difference says little; {widest.measure} on {widest.subject} differs most, by "
            f"{_share(widest.change)}."
        )
    for name, count in (("A", diff.figures_before_only), ("B", diff.figures_after_only)):
        if count:
            yield Line(f"{plural(count, 'figure')} measured on {name} only.")


def _row(figure: FigureDifference) -> tuple[str, ...]:
    word = {True: "better", False: "worse", None: ""}[figure.better]
    return (
        figure.measure,
        figure.subject,
        conditions(figure.at),
        _reading(figure.unit, figure.before.median, figure.before.p5, figure.before.p95),
        _reading(figure.unit, figure.after.median, figure.after.p5, figure.after.p95),
        unit_words(figure.unit),
        f"{_share(figure.change)} {word}".strip(),
    )


def _reading(unit: str, median: float, p5: float, p95: float) -> str:
    """`395.1 (394.0 to 396.2)`."""
    word = (lambda value: small_size(int(value))) if unit == "bytes" else number
    return f"{word(median)} ({word(p5)} to {word(p95)})"


def _share(change: float) -> str:
    return f"{100 * change:+.2f} %"

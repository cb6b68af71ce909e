"""A check as cron mails it: nothing where nothing changed, else a paragraph for each change."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import groupby

from nodecheck.judge import Finding, Status
from nodecheck.rental.result import Change, CheckResult
from nodecheck.report.text import brief, plain, plural, shown, unmarked
from nodecheck.report.view import OWNERS, STATUSES

COLUMNS = 78
"""Of mail. A command stands on a line of its own, as long as it is, so that it can be copied."""

_LONGEST_TEXT = 600
_LONGEST_COMMAND = 900
"""A line of mail has at most 998 characters (RFC 5322)."""
_MOST_PARAGRAPHS = 20

_ORDER = (Status.fail, Status.unknown, Status.warn, Status.passed, Status.skipped)
_WORDS = {"new": "NEW", "worse": "WORSE", "better": "BETTER", "gone": "GONE"}


def render(result: CheckResult) -> str:
    """What changed, on which card, since when, who mends it and how; empty where nothing changed."""
    if not result.changes:
        return ""
    return "\n".join(_lines(result)) + "\n"


def _lines(result: CheckResult) -> Iterator[str]:
    yield from _wrapped(
        f"nodecheck {STATUSES[result.status]}, {_time(result.taken_at)}: {_said(result.summary)}"
    )
    behind = Counter(change.finding.root for change in result.changes)
    ids = {change.finding.id for change in result.changes}
    groups = list(_together(change for change in result.changes if change.finding.root not in ids))
    for group in groups[:_MOST_PARAGRAPHS]:
        yield ""
        # A root is named by its id alone: what follows is told behind the first of several.
        yield from _paragraph(group, behind.pop(group[0].finding.id, 0))
    if len(groups) > _MOST_PARAGRAPHS:
        yield ""
        left = plural(len(groups) - _MOST_PARAGRAPHS, "more change")
        yield from _wrapped(f"And {left}: see `nodecheck history`.")
    if still := _still(result):
        yield ""
        yield from _wrapped(f"As before: {still}.")


def _together(changes: Iterable[Change]) -> Iterator[tuple[Change, ...]]:
    """Changes that say the same of several subjects, the gravest first; what is over comes last."""

    def place(change: Change) -> tuple[bool, int, str, str, str, str]:
        finding = change.finding
        gravity = _ORDER.index(finding.status)
        told = shown(finding.observed), shown(finding.expected)
        return (
            change.what == "gone",
            gravity,
            finding.id,
            change.what,
            f"{finding.detail} {told}",
            f"{change.first_seen}",
        )

    for _, group in groupby(sorted(changes, key=place), key=place):
        yield tuple(group)


def _paragraph(group: tuple[Change, ...], behind: int) -> Iterator[str]:
    change, finding = group[0], group[0].finding
    subjects = brief(", ".join(each.finding.subject.label for each in group), _LONGEST_TEXT)
    state = "was" if change.what == "gone" else "is"
    if change.what == "gone":
        when = f"from {_time(change.first_seen)} to {_time(change.last_seen)}"
    else:
        when = f"since {_time(change.first_seen)}"
    yield from _wrapped(
        f"{_WORDS[change.what]}: {plain(finding.id)} {state} {STATUSES[finding.status]} {when}: {subjects}"
    )
    sentences = [*_sentences(change)]
    if behind:
        sentences.append(
            f"{plural(behind, 'more change')} of others follow{'s' if behind == 1 else ''} from it."
        )
    yield from _wrapped(" ".join(sentences), indent="  ")
    if finding.repeat and change.what != "gone":
        yield f"  $ {brief(finding.repeat, _LONGEST_COMMAND)}"


def _sentences(change: Change) -> Iterator[str]:
    finding = change.finding
    yield _said(finding.detail or finding.title)
    if change.what == "gone":
        return
    if finding.observed is not None:
        yield f"Observed: {shown(finding.observed, finding.unit)}{_witness(finding.observed_from)}."
    if finding.expected is not None:
        yield f"Expected: {shown(finding.expected, finding.unit)}{_witness(finding.expected_from)}."
    if finding.root is not None:
        yield f"It follows from {plain(finding.root)}: mend that first."
    if finding.meaning:
        yield _said(finding.meaning)
    if finding.owner is not None:
        yield f"To be mended by {OWNERS[finding.owner]}."
    if finding.next_step:
        yield f"Next: {_said(finding.next_step)}"
    if finding.waived is not None:
        yield f"Set aside: {_said(finding.waived)}"


def _still(result: CheckResult) -> str:
    """What is not right and did not change, by status."""
    told = {_which(change.finding) for change in result.changes}
    parts = []
    for status in _ORDER[:3]:
        ids = [
            plain(f"{finding.id} ({finding.subject.label})")
            for finding in result.findings
            if finding.status is status
            and finding.waived is None
            and (finding.required or status is not Status.unknown)
            and _which(finding) not in told
        ]
        if ids:
            more = f" and {len(ids) - 5} more" if len(ids) > 5 else ""
            parts.append(f"{STATUSES[status]} {', '.join(ids[:5])}{more}")
    return "; ".join(parts)


def _which(finding: Finding) -> tuple[str, str]:
    return finding.id, finding.subject.key


def _said(text: str) -> str:
    """One of a finding's texts as a sentence."""
    words = brief(unmarked(text), _LONGEST_TEXT).strip()
    return words if words.endswith((".", "!", "?", ":")) else f"{words}."


def _witness(source: str) -> str:
    return f" ({brief(source, 200)})" if source else ""


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(
        text, COLUMNS, initial_indent=indent, subsequent_indent=indent or "  ", break_on_hyphens=False
    )

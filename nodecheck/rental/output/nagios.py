"""A check as a monitoring plugin prints it, for Nagios, Icinga, Checkmk and others.

The form is that of the Monitoring Plugins Development Guidelines: the state and one sentence, `|`, performance data;
the lines after it are long text. Data is `'label'=value[UOM];[warn];[crit];[min];[max]`.
"""

from __future__ import annotations

import re
from typing import TypeGuard

from nodecheck.judge import Finding, Status
from nodecheck.judge.finding import Scalar
from nodecheck.rental.output.subjects import cards, of_figure, steady
from nodecheck.rental.result import CheckResult
from nodecheck.report.text import brief, conditions, plural, unmarked

STATES: dict[Status, str] = {
    Status.passed: "OK",
    Status.warn: "WARNING",
    Status.fail: "CRITICAL",
    Status.unknown: "UNKNOWN",
    Status.skipped: "UNKNOWN",
}

FIRST_LINE_BYTES = 4096
"""What NRPE and older receivers take of a plugin; data that does not fit is left out, each value whole."""
LONG_TEXT_BYTES = 4000
"""Nagios reads 8 KiB in all."""

_SENTENCE = 300
_LINE = 400

_LONGEST_LABEL = 120

_UNITS = {"c": "c", "s": "s", "us": "us", "ms": "ms", "B": "B", "bytes": "B", "%": "%"}
"""Units that the guidelines know; another stands in the label."""
_ENDINGS = {"_seconds": "s", "_bytes": "B", "_percent": "%"}


def render(result: CheckResult) -> str:
    """One line with data, and a line for each finding that is not right."""
    wrong = _wrong(result)
    first = f"NODECHECK {STATES[result.status]} - {_text(result.summary, _SENTENCE)}"
    data: list[str] = []
    room = FIRST_LINE_BYTES - len(first.encode()) - 1
    for label, entry in _data(result, wrong).items():
        value = f"'{label}'={entry}"
        room -= len(value.encode()) + 1
        if room < 0:
            break
        data.append(value)
    lines = [f"{first}|{' '.join(data)}"]
    room = LONG_TEXT_BYTES
    for place, finding in enumerate(wrong):
        line = _line(finding)
        room -= len(line.encode()) + 1
        if room < 0:
            lines.append(f"and {plural(len(wrong) - place, 'more finding')}: nodecheck check --format json")
            break
        lines.append(line)
    return "\n".join(lines) + "\n"


def _wrong(result: CheckResult) -> list[Finding]:
    """What is not right and not set aside, the gravest first."""
    order = (Status.fail, Status.unknown, Status.warn)
    return sorted(
        (
            finding
            for finding in result.findings
            if finding.waived is None
            and finding.status in order
            and (finding.required or finding.status is not Status.unknown)
        ),
        key=lambda finding: order.index(finding.status),
    )


def _line(finding: Finding) -> str:
    words = [f"{finding.id} ({finding.subject.label}): {finding.detail}"]
    if finding.owner is not None:
        words.append(f"[{finding.owner.value}] {finding.next_step}")
    return f"{STATES[finding.status]}: {_text(' '.join(words), _LINE)}"


def _text(text: str, limit: int) -> str:
    """On one line, and without the sign that would begin data."""
    return brief(unmarked(text).replace("|", "¦"), limit)


def _data(result: CheckResult, wrong: list[Finding]) -> dict[str, str]:
    """Label → value with unit and ranges; each label once, and what matters most first."""
    data = {"check": f"{_number(result.seconds)}s;;;0"}

    def add(words: tuple[str, ...], value: float, unit: str, ranges: str = "") -> None:
        known = _UNITS.get(unit, "")
        label = _label(*words, *(() if known or not unit else (unit,)))
        data.setdefault(label, f"{_number(value)}{known}{ranges}")

    for finding in wrong:
        if _is_number(finding.observed):
            add((finding.id, steady(finding.subject)), finding.observed, finding.unit, _ranges(finding))
    named = cards(result)
    for figure in result.figures:
        add((figure.measure, conditions(figure.at), of_figure(figure, named)), figure.median, figure.unit)
    for reading in result.readings:
        unit = next((unit for ending, unit in _ENDINGS.items() if reading.name.endswith(ending)), "")
        add((reading.name, steady(reading.subject)), reading.value, "c" if reading.counter else unit)
    return data


def _ranges(finding: Finding) -> str:
    """The range that the value lies outside of: `;warn` or `;;crit`, where the finding says what was expected."""
    observed, expected = finding.observed, finding.expected
    if not _is_number(observed) or not _is_number(expected) or observed == expected:
        return ""
    limit = f"{_number(expected)}:" if observed < expected else f"~:{_number(expected)}"
    return {Status.warn: f";{limit}", Status.fail: f";;{limit}"}.get(finding.status, "")


def _is_number(value: Scalar | None) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _label(*words: str) -> str:
    """Any characters but the quote, the equals sign and the one that begins data."""
    return re.sub(r"['=|]", "_", brief(" ".join(word for word in words if word), _LONGEST_LABEL))


def _number(value: float) -> str:
    """Digits, a sign and a point are all that is allowed."""
    text = f"{value:.6f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text

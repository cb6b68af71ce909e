"""What monitoring calls a card, a pair or a disk: a name that does not change when cards are numbered anew."""

from __future__ import annotations

import re

from nodecheck.facts.measurements import Figure
from nodecheck.judge import Subject
from nodecheck.rental.result import CheckResult

_NUMBERED = re.compile(r"GPU \d+ \(([^()]*)\)")


def steady(subject: Subject) -> str:
    """`0000:9b:00.0` of a card, `0000:18:00.0 → 0000:9b:00.0` of a pair; the key where a label has but numbers."""
    name = _NUMBERED.sub(r"\1", subject.label)
    return subject.key if re.search(r"\bGPU \d", name) else name


def pci_address(subject: Subject) -> str:
    """Of a card; empty where its label does not say, and for what is no card."""
    match = _NUMBERED.fullmatch(subject.label) if subject.kind == "card" else None
    return match[1] if match else ""


def cards(result: CheckResult) -> dict[str, str]:
    """The steady name of every card that the check speaks of, by its key."""
    said = (
        *(finding.subject for finding in result.findings),
        *(reading.subject for reading in result.readings),
    )
    return {subject.key: steady(subject) for subject in said if subject.kind == "card"}


def of_figure(figure: Figure, named: dict[str, str]) -> str:
    """What a figure was measured on; `named` is what `cards` gives."""
    return figure.name or " → ".join(named.get(key, key) for key in figure.cards)

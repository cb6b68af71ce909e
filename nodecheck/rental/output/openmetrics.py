"""A check as a file for node_exporter's textfile collector.

That collector reads the Prometheus text format 0.0.4, of which every Prometheus and OpenMetrics reader understands
these few kinds; OpenMetrics' own types (`stateset`, `info`) it refuses, and time stamps on samples too. So the file has
gauges and counters alone, and the times are values.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from nodecheck.facts import Absent
from nodecheck.judge import Finding, Status, Subject
from nodecheck.rental.output.subjects import cards, of_figure, pci_address, steady
from nodecheck.rental.result import CheckResult
from nodecheck.report.text import brief, conditions

_LONGEST_LABEL = 200
_SUBJECT = ("subject", "uuid", "pci")

Samples = dict[tuple[str, ...], float]
"""Label values → value: each series stands once."""


def render(result: CheckResult) -> str:
    """Gauges and counters; foreign text stands in label values alone."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Check(result))
    return generate_latest(registry).decode()


class _Check(Collector):
    def __init__(self, result: CheckResult) -> None:
        self._result = result

    def collect(self) -> Iterable[Metric]:
        yield from _of_check(self._result)
        yield from _of_findings(self._result.findings)
        yield from _of_figures(self._result)
        yield from _of_readings(self._result)


def _of_check(result: CheckResult) -> Iterator[Metric]:
    at = result.taken_at.timestamp()
    yield _gauge(
        "status",
        "Status of the node at the last check: 1 for the one that holds.",
        ("status",),
        {(status.value,): status is result.status for status in Status if status is not Status.skipped},
    )
    yield _gauge("last_check_timestamp_seconds", "When the node was last checked.", (), {(): at})
    yield _gauge(
        "last_success_timestamp_seconds",
        "When a check saw all that it must; 0 where the last one did not.",
        (),
        {(): 0.0 if result.status is Status.unknown else at},
    )
    yield _gauge("check_seconds", "How long the last check took.", (), {(): result.seconds})
    yield _gauge("changes", "Findings that the last check saw change.", (), {(): len(result.changes)})
    baseline = result.baseline
    if not isinstance(baseline, Absent):
        yield _gauge(
            "baseline_timestamp_seconds",
            "When the node was accepted as it is held against.",
            ("profile", "verdict"),
            {(_label(baseline.profile), baseline.verdict.value): baseline.accepted_at.timestamp()},
        )


def _of_findings(findings: tuple[Finding, ...]) -> Iterator[Metric]:
    counts = Counter(_state(finding) for finding in findings)
    yield _gauge(
        "findings",
        "Findings of the last check, by status.",
        ("status",),
        {(state,): counts[state] for state in (*(status.value for status in Status), _WAIVED)},
    )
    wrong = (f for f in findings if f.status not in (Status.passed, Status.skipped))
    yield _gauge(
        "finding",
        "1 for each finding that is not right.",
        ("id", "status", *_SUBJECT),
        {(_label(f.id), _state(f), *_names(f.subject)): 1.0 for f in wrong},
    )


def _of_figures(result: CheckResult) -> Iterator[Metric]:
    named = cards(result)
    samples: Samples = {
        tuple(map(_label, (f.measure, conditions(f.at), of_figure(f, named), f.unit))): f.median
        for f in result.figures
    }
    if samples:
        yield _gauge(
            "figure", "Median of a measurement, in `unit`.", ("measure", "at", "subject", "unit"), samples
        )


def _of_readings(result: CheckResult) -> Iterator[Metric]:
    # The kind in the name keeps them apart from the families above, whatever they are called.
    made: dict[tuple[bool, str], Samples] = {}
    for reading in result.readings:
        kind = f"{reading.subject.kind}_"
        name = re.sub(r"[^a-zA-Z0-9_]", "_", kind + reading.name.removeprefix(kind))
        samples = made.setdefault((reading.counter, name.removesuffix("_total")), {})
        samples[_names(reading.subject)] = reading.value
    for (counter, name), samples in sorted(made.items()):
        family = (CounterMetricFamily if counter else GaugeMetricFamily)(
            f"nodecheck_{name}", "As read by the last check.", labels=_SUBJECT
        )
        for values, value in samples.items():
            family.add_metric(values, value)
        yield family


def _gauge(name: str, documentation: str, labels: tuple[str, ...], samples: Samples) -> Metric:
    family = GaugeMetricFamily(f"nodecheck_{name}", documentation, labels=labels)
    for values, value in samples.items():
        family.add_metric(values, value)
    return family


_WAIVED = "waived"


def _state(finding: Finding) -> str:
    return finding.status.value if finding.waived is None else _WAIVED


def _names(subject: Subject) -> tuple[str, str, str]:
    """Values of `_SUBJECT`."""
    pci = pci_address(subject)
    uuid = subject.key if subject.kind == "card" and subject.key != pci else ""
    return _label(steady(subject)), _label(uuid), _label(pci)


def _label(text: str) -> str:
    return brief(text, _LONGEST_LABEL)

"""The report as JUnit XML: a test case a finding, for continuous integration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from nodecheck.judge import Finding, Status
from nodecheck.report.document import Report
from nodecheck.report.text import plain, shown


def render(report: Report) -> str:
    """The findings of a report; see `suite`."""
    judgement = report.judgement
    return suite(
        f"nodecheck.{judgement.profile}",
        judgement.findings,
        at=report.created_at,
        seconds=sum(report.durations_seconds.values()),
        properties={
            "verdict": judgement.verdict.value,
            "summary": judgement.summary,
            "level": report.level,
            "nodecheck": report.tool.version,
        },
    )


def suite(
    name: str, findings: Sequence[Finding], *, at: datetime, seconds: float, properties: Mapping[str, str]
) -> str:
    """`fail` is a failure, a required `unknown` an error; skipped, waived and merely wanted ones are skipped.

    JUnit knows no warning: a `warn` is a passed case with its words in `system-out`.
    """
    suites = Element("testsuites", name="nodecheck")
    made = SubElement(suites, "testsuite", name=plain(name))
    made.set("timestamp", f"{at:%Y-%m-%dT%H:%M:%S}")
    made.set("time", f"{seconds:.3f}")
    listed = SubElement(made, "properties")
    for key, value in properties.items():
        SubElement(listed, "property", name=key, value=plain(value))
    for finding in findings:
        case = SubElement(
            made, "testcase", classname=plain(finding.id), name=plain(finding.subject.label), time="0"
        )
        _result(case, finding)
    for tag, attribute in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        made.set(attribute, str(len(made.findall(f"testcase/{tag}"))))
    made.set("tests", str(len(findings)))
    indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(suites, encoding="unicode") + "\n"


def _result(case: Element, finding: Finding) -> None:
    if finding.waived is not None:
        SubElement(case, "skipped", message=plain(f"set aside: {finding.waived}: {finding.detail}"))
    elif finding.status is Status.fail:
        _told(case, "failure", finding)
    elif finding.status is Status.unknown and finding.required:
        _told(case, "error", finding)
    elif finding.status in (Status.skipped, Status.unknown):
        SubElement(case, "skipped", message=plain(finding.detail))
    elif finding.status is Status.warn:
        SubElement(case, "system-out").text = f"WARN {_words(finding)}"


def _told(case: Element, tag: str, finding: Finding) -> None:
    element = SubElement(case, tag, message=plain(finding.detail))
    element.set("type", finding.cause.value if finding.cause else finding.status.value)
    element.text = _words(finding)


def _words(finding: Finding) -> str:
    lines = [
        (finding.title, finding.detail),
        ("observed", f"{shown(finding.observed, finding.unit)} ({finding.observed_from})"),
        ("expected", f"{shown(finding.expected, finding.unit)} ({finding.expected_from})"),
        ("means", finding.meaning),
        ("next", finding.next_step),
        ("again", finding.repeat),
    ]
    return "\n".join(f"{plain(name)}: {plain(words)}" for name, words in lines if words)

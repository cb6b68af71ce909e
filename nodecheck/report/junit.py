"""The report as JUnit XML: a test case a finding, for continuous integration."""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement, indent, tostring

from nodecheck.judge import Finding, Status
from nodecheck.report.document import Report
from nodecheck.report.text import plain, shown


def render(report: Report) -> str:
    """`fail` is a failure, a required `unknown` an error; skipped, waived and merely wanted ones are skipped.

    JUnit knows no warning: a `warn` is a passed case with its words in `system-out`.
    """
    judgement = report.judgement
    suites = Element("testsuites", name="nodecheck")
    suite = SubElement(suites, "testsuite", name=plain(f"nodecheck.{judgement.profile}"))
    suite.set("timestamp", f"{report.created_at:%Y-%m-%dT%H:%M:%S}")
    suite.set("time", f"{sum(report.durations_seconds.values()):.3f}")
    properties = SubElement(suite, "properties")
    for name, value in (
        ("verdict", judgement.verdict.value),
        ("summary", judgement.summary),
        ("level", report.level),
        ("nodecheck", report.tool.version),
    ):
        SubElement(properties, "property", name=name, value=plain(value))
    for finding in judgement.findings:
        case = SubElement(
            suite, "testcase", classname=plain(finding.id), name=plain(finding.subject.label), time="0"
        )
        _result(case, finding)
    for tag, attribute in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        suite.set(attribute, str(len(suite.findall(f"testcase/{tag}"))))
    suite.set("tests", str(len(judgement.findings)))
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

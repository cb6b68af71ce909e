"""What all forms have in common, and JUnit and JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import cycle
from pathlib import Path

import pytest
from defusedxml.ElementTree import fromstring

from nodecheck.rental.output import FORMATS, render, write
from nodecheck.rental.result import CheckResult
from tests.rental import checks
from tests.rental.output.test_nagios import read as read_nagios
from tests.rental.output.test_openmetrics import read as read_openmetrics
from tests.report.hostile import ATTACKS, plant


def poisoned(result: CheckResult, payloads: Iterable[str]) -> CheckResult:
    """Every distinct text replaced by the next payload, with a number of its own."""
    supply = cycle(payloads)
    planted: dict[str, str] = {}

    def text(before: str) -> str:
        if before not in planted:
            planted[before] = f"{next(supply)}{len(planted)}"
        return planted[before]

    return plant(result, text)


def check_text(text: str) -> None:
    assert text.replace("\n", "").isprintable()
    assert max(map(len, text.splitlines())) <= 998


def check_junit(text: str) -> None:
    tags = {element.tag for element in fromstring(text).iter()}
    assert tags <= {
        "testsuites", "testsuite", "properties", "property", "testcase", "failure", "error", "skipped", "system-out",
    }  # fmt: skip


def check_json(text: str) -> None:
    CheckResult.model_validate_json(text)


def check_nagios(text: str) -> None:
    assert text.replace("\n", "").isprintable()
    read_nagios(text)


def check_openmetrics(text: str) -> None:
    assert text.replace("\n", "").isprintable()
    read_openmetrics(text)


CHECKS: dict[str, Callable[[str], None]] = {
    "text": check_text,
    "json": check_json,
    "nagios": check_nagios,
    "openmetrics": check_openmetrics,
    "junit": check_junit,
}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    "payloads", [*([attack] for attack in ATTACKS), ATTACKS, ["x" * 5000], ["\x00\x1b" * 2000]]
)
def test_any_text_stays_text(form: str, payloads: Iterable[str]) -> None:
    CHECKS[form](render(poisoned(checks.eventful(), payloads), form))


def test_junit_says_what_the_report_says() -> None:
    suite = fromstring(render(checks.eventful(), "junit")).find("testsuite")
    assert suite is not None
    assert suite.get("name") == "nodecheck.check.active"
    assert suite.get("timestamp") == "2026-12-01T10:15:00"
    counts = (suite.get("tests"), suite.get("failures"), suite.get("errors"), suite.get("skipped"))
    assert counts == ("11", "4", "1", "3")


def test_json_is_the_check() -> None:
    assert CheckResult.model_validate_json(render(checks.eventful(), "json")) == checks.eventful()


@pytest.mark.parametrize(
    ("form", "mode"), [("openmetrics", 0o644), ("nagios", 0o644), ("text", 0o600), ("json", 0o600)]
)
def test_a_file_is_replaced_whole(tmp_path: Path, form: str, mode: int) -> None:
    path = tmp_path / "nodecheck.prom"
    path.write_text("old")
    write(checks.eventful(), form, path)
    assert path.read_text() == render(checks.eventful(), form)
    assert path.stat().st_mode & 0o777 == mode
    assert [*tmp_path.iterdir()] == [path]

"""What each form of a report says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from defusedxml.ElementTree import fromstring

from nodecheck.facts.kernel_log import LogEvent
from nodecheck.report import FORMATS, folder, render, terminal
from nodecheck.report.document import Report
from tests import healthy
from tests.report import samples

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("form", sorted(FORMATS))
@pytest.mark.parametrize(
    "report",
    [samples.accepted(1), samples.accepted(4, "container"), samples.rejected(2), samples.without_cards()],
    ids=["one", "container", "rejected", "nothing seen"],
)
def test_every_form_of_every_report(report: Report, form: str) -> None:
    text = render(report, form)
    assert text.endswith("\n")
    assert report.judgement.verdict.value in text
    assert render(report, form) == text


def words(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def test_terminal_text_begins_with_the_verdict_and_fits_80_columns() -> None:
    text = render(samples.rejected(8), "terminal")
    lines = text.splitlines()
    assert lines[0] == "REJECTED h200x8 at level quick: 47 findings."
    assert max(len(line) for line in lines) <= 80
    assert "  2 0000:3a:00.0 NVIDIA H200 143771 700       0 ×16 1/5  33 FAIL" in text
    assert "GPU2 NODE NODE X    NODE SYS  SYS  SYS  SYS" in text
    headings = ["Not as rented", "Faulty", "Misconfigured", "Could not be seen", "Set aside by waiver"]
    places = [lines.index(heading) for heading in headings]
    assert places == sorted(places)
    assert "observed 0 links" in text
    assert "expected 18 links" in text
    assert "Next: Ask the provider for another node; attach this report." in text
    assert "Follows from topology.nvlink.active_links; mend that first." in text
    assert "for the renter to mend" in words(text)


def test_closed_doors_stand_in_the_terminal_text_with_what_they_cost() -> None:
    text = render(samples.accepted(4, "container"), "terminal")
    assert "kernel_log: closed: closed to this user\n  unknown: kernel_log.xid" in text


def test_a_command_is_never_broken(capsys: pytest.CaptureFixture[str]) -> None:
    command = f"nvidia-smi --query-gpu={','.join(['pci.bus_id'] * 30)}"
    report = samples.rejected(2)
    findings = tuple(f.model_copy(update={"repeat": command}) for f in report.judgement.findings)
    assert f"Again: {command}\n" in render(samples.report(report.facts, report.profile, findings), "terminal")


def test_show_says_where_the_report_lies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = folder.write(samples.accepted(1), tmp_path)
    terminal.show(written.report, folder=written)
    shown = capsys.readouterr().out
    assert f"{written.path}/report.html\n" in shown
    assert f"SHA-256 of report.json: {written.sha256}\n" in shown
    assert "\x1b" not in shown
    terminal.show(written.report, quiet=True, folder=written)
    assert capsys.readouterr().out == f"{written.report.judgement.summary}\n"


@pytest.mark.parametrize("environment", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}])
def test_a_locale_without_our_signs_costs_only_the_signs(environment: dict[str, str]) -> None:
    code = (
        "from tests.report import samples; from nodecheck.report import terminal; "
        "terminal.show(samples.rejected(2))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": "", **environment},
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"REJECTED h200x2")


def test_html_is_one_page_that_needs_nothing() -> None:
    report = samples.rejected(8)
    events = tuple(
        LogEvent(
            kind="xid", code=79, device="0000:18:00.0", count=1, text="NVRM: Xid (PCI:0000:18:00): 79, " * 5
        )
        for _ in range(1000)
    )
    page = render(
        report.model_copy(update={"facts": healthy.change(report.facts, "kernel_log.events", events)}), "html"
    )
    assert len(page.encode()) < 1_000_000
    assert "And 800 more in report.json." in page
    assert "default-src 'none'; style-src 'unsafe-inline'" in page
    assert not re.search(r"<script|\ssrc=|\shref=|url\(|@import|https?:", page)
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page


def test_html_tells_what_the_verdict_rests_on() -> None:
    report = samples.rejected(8)
    page = render(report, "html")
    for text in (
        "<h1>REJECTED</h1>",
        "Rests on 47 findings (33 passed), 8 cards seen, 13 of 13 doors to the node open",
        "GPU-00000000-0000-4000-8000-000000000003",
        "1650000000003",
        "for the provider to mend",
        "Set aside:</b> agreed with the provider on 2 December",
        "nodecheck accept --profile h200x8",
        "all_reduce.busbw",
        "8GiB, bfloat16, 8 ranks",
        "&lt; 432",
        report.parts["facts"],
        "<summary>Passed",
    ):
        assert text in page, text


def test_an_interrupted_run_says_so_everywhere() -> None:
    report = samples.accepted(1).model_copy(update={"interrupted": True})
    for form in ("terminal", "html", "md"):
        assert "The run was interrupted" in words(render(report, form))


def test_a_suggested_profile_is_called_that() -> None:
    report = samples.accepted(1)
    suggested = report.judgement.model_copy(update={"named": False})
    page = render(report.model_copy(update={"judgement": suggested}), "html")
    assert "only suggested, not named by the renter" in page


def test_markdown_fits_a_ticket() -> None:
    text = render(samples.rejected(8), "md")
    assert text.splitlines()[0] == "**REJECTED** h200x8 at level quick: 47 findings."
    assert len(text) < 10_000
    assert "## Not as rented" in text
    assert "Observed `0 links` (read from nvml: nvmlDeviceGetName), expected `18 links`" in text
    assert "See it again: `nvidia-smi nvlink --status`" in text
    assert (
        "| 2 | `0000:3a:00.0` | NVIDIA H200 | 140.4 GiB | GPU-00000000-0000-4000-8000-000000000003 |" in text
    )
    assert "| GPU2 | NODE | NODE | X | NODE | SYS | SYS | SYS | SYS |" in text
    assert "command: `nodecheck accept --profile h200x8`" in text
    closed = render(samples.accepted(4, "container"), "md")
    assert "- `kernel_log`: closed: closed to this user; unknown by that: `kernel_log.xid`" in closed


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("NVIDIA H200", "NVIDIA H200"),
        ("@everyone", "`@everyone`"),
        ("a|b", "`a`&#124;`b`"),
        ("``x", "``` ``x ```"),
        ("see #12 now", "see `#12` now"),
        ("<b> *x* [y](z)", "`<b> *x* [y](z)`"),
        ("https://x.example", "`https://x.example`"),
        ("_x_", "`_x_`"),
        ("gpu_reset", "gpu_reset"),
        ("deadbeef01", "`deadbeef01`"),
        ("09:30:00", "09:30:00"),
        (":tada:", "`:tada:`"),
        ("- x", "`-` x"),
        ("1. x", "`1.` x"),
    ],
)
def test_markdown_puts_whatever_could_act_into_code(name: str, written: str) -> None:
    report = samples.accepted(1)
    report = report.model_copy(
        update={"facts": healthy.change(report.facts, "cards.0.identity.name", name)},
    )
    assert f"| 0 | `0000:18:00.0` | {written} | 140.4 GiB |" in render(report, "md")


def test_junit_counts_what_it_holds() -> None:
    report = samples.rejected(8)
    suite = fromstring(render(report, "junit")).find("testsuite")
    assert suite is not None
    assert suite.get("tests") == "47"
    assert (suite.get("failures"), suite.get("errors"), suite.get("skipped")) == ("9", "1", "3")
    by_name = {case.get("classname"): case for case in suite.findall("testcase")}
    failure = by_name["topology.pairs.nvlink"].find("failure")
    assert failure is not None
    assert failure.get("type") == "not_as_rented"
    assert "expected: NV18" in str(failure.text)
    assert by_name["stack.context"].find("error") is not None
    assert by_name["kernel_log.xid"].find("skipped") is not None
    waived = by_name["cards.persistence"].find("skipped")
    assert waived is not None
    assert "agreed with the provider" in str(waived.get("message"))
    warning = by_name["host.shm"].find("system-out")
    assert warning is not None
    assert str(warning.text).startswith("WARN ")


def test_an_unknown_format_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        render(samples.accepted(1), "pdf")

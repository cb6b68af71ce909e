"""What each form of a report says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from defusedxml.ElementTree import fromstring
from markdown_it import MarkdownIt

from nodecheck.facts.kernel_log import LogEvent
from nodecheck.judge import Finding, LedgerEntry, Status
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
    assert "  2 0000:3a:00.0 NVIDIA H200 143771 700       0 ×16 1/5     33 FAIL" in text
    assert "GPU2 NODE! NODE! X     NODE! SYS! SYS! SYS! SYS!" in text
    assert "!: less than the profile promises." in words(text)
    headings = [
        "Why", "Not as rented", "Faulty", "Could not be seen", "Misconfigured", "Set aside by waiver", "Sources",
    ]  # fmt: skip
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
    quiet = capsys.readouterr()
    assert quiet.out == f"{written.report.judgement.summary}\n"
    assert quiet.err == f"nodecheck: the report lies in {written.path}\n"


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
    assert len(text) < 12_000
    assert "Held against the profile h200x8: 8 × NVIDIA H200 SXM 141 GB." in text
    assert text.index("## Why") < text.index("## Not as rented")
    assert "  - observed `0 links` (nvml: nvmlDeviceGetName)\n  - expected `18 links`" in text
    assert "See it again:\n\n```sh\nnvidia-smi nvlink --status\n```\n" in text
    assert (
        "| 2 | FAIL | NVIDIA H200 | `0000:3a:00.0` | 140.4 GiB | 700 W | 0 | ×16, gen 1 of 5 | on |" in text
    )
    assert "| 2 | GPU-00000000-0000-4000-8000-000000000003 |" in text
    assert "| GPU2 | **NODE!** | **NODE!** | X | **NODE!** |" in text
    assert "  ```sh\n  nodecheck accept --profile h200x8\n  ```" in text
    closed = render(samples.accepted(4, "container"), "md")
    assert "- `kernel_log`: closed: closed to this user; unknown by that: `kernel_log.xid`" in closed


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("NVIDIA H200", "NVIDIA H200"),
        ("down: 4, 5.", "down: 4, 5."),
        ("GPU 0 (0000:18:00.0), GPU 1", "GPU 0 (`0000:18:00.0`), GPU 1"),
        ("@everyone", "`@everyone`"),
        ("a|b", r"a\|b"),
        ("``x", r"\`\`x"),
        ("see #12 now", "see `#12` now"),
        ("<b> *x* [y](z)", r"\<b> \*x\* \[y\](z)"),
        ("&lt; & 1", r"\&lt; & 1"),
        ("https://x.example", "`https://x.example`"),
        ("_x_", r"\_x\_"),
        ("gpu_reset", "gpu_reset"),
        ("deadbeef01", "`deadbeef01`"),
        ("09:30:00", "09:30:00"),
        (":tada:", "`:tada:`"),
        ("- x", r"\- x"),
        ("1. x", r"1\. x"),
        ("1.5 x", "1.5 x"),
        (" x", "&#32;x"),
    ],
)
def test_markdown_holds_foreign_text_as_text(name: str, written: str) -> None:
    report = samples.accepted(1)
    report = report.model_copy(
        update={"facts": healthy.change(report.facts, "cards.0.identity.name", name)},
    )
    assert f"| 0 | PASS | {written} | `0000:18:00.0` |" in render(report, "md")


def with_findings(*findings: Finding, **more: Any) -> Report:
    report = samples.accepted(2)
    return samples.report(report.facts, report.profile, findings, **more)


@pytest.mark.parametrize("command", ["dmesg | grep Xid", "echo ```` `uname`"])
def test_commands_are_copied_to_the_letter(command: str) -> None:
    text = render(with_findings(samples.finding("kernel_log.xid", Status.fail, repeat=command)), "md")
    (block,) = [token.content for token in MarkdownIt().parse(text) if token.type == "fence"][:1]
    assert block == f"{command}\n"
    assert f"\n{command}\n" in text


def test_backticks_in_our_own_texts_are_code() -> None:
    report = with_findings(
        samples.finding("a", Status.fail, next_step="Set it (`nvidia-smi -pl <W>`, as root).", detail="`x`")
    )
    assert "Set it (<code>nvidia-smi -pl &lt;W&gt;</code>, as root)." in render(report, "html")
    assert "Next: Set it (nvidia-smi -pl <W>, as root)." in render(report, "terminal")
    assert "Set it (`nvidia-smi -pl <W>`, as root)." in render(report, "md")
    assert r"\`x\`" in render(report, "md")  # not our own: what was seen


def test_a_long_source_is_listed_once() -> None:
    long = "own reading: one H200 SXM in a KVM guest; the same is said by others (measured, 2026-11-30)"
    findings = [
        samples.finding(id, Status.fail, observed=500, expected=700, unit="W", expected_from=long)
        for id in ("a", "b")
    ]
    report = with_findings(*findings)
    for form in ("terminal", "md"):
        text = words(render(report, form))
        assert text.count(long) == 1
        assert f"[1] {long}" in text
        assert len(re.findall(r"expected `?700 W`? \[1\]", text)) == 2


def test_a_missing_driver_does_not_drown_the_rest() -> None:
    findings = [samples.finding("cards.listed", Status.fail, observed=0, expected=2)]
    findings += [
        samples.finding(f"cards.{name}", Status.unknown, root="cards.listed")
        for name in "abcdefghijklmnopqrstuvwxyz"
    ]
    report = with_findings(*findings)
    ledger = LedgerEntry(
        door="nvml", open=False, detail="no driver", unknown_findings=tuple(f.id for f in findings[1:])
    )
    judgement = report.judgement.model_copy(update={"ledger": (ledger,)})
    report = report.model_copy(update={"judgement": judgement})
    for form in ("terminal", "md"):
        text = words(render(report, form)).replace("`", "")
        assert text.count("UNKNOWN") == 0
        assert "26 findings follow from cards.listed and could not be seen: cards.a," in text
        assert text.count("and 20 more") == 2  # there, and at the door
    assert "<summary>26 findings follow from cards.listed and could not be seen</summary>" in render(
        report, "html"
    )


def test_an_open_door_says_why_something_is_unknown_all_the_same() -> None:
    finding = samples.finding(
        "kernel_log.readable", Status.unknown, required=False, door="kernel_log", detail="Lines are gone."
    )
    report = with_findings(finding)
    ledger = LedgerEntry(door="kernel_log", open=True, detail="", unknown_findings=("kernel_log.readable",))
    judgement = report.judgement.model_copy(update={"ledger": (ledger,)})
    report = report.model_copy(update={"judgement": judgement})
    for form in ("terminal", "md"):
        told = words(render(report, form)).replace("`", "")
        assert "kernel_log, open, and yet unknown: kernel_log.readable: Lines are gone." in told


def test_waivers_are_told_even_where_they_met_nothing() -> None:
    aside = samples.finding("cards.power_limit", Status.fail, waived="agreed")
    report = with_findings(aside, waivers={"cards.power_limit": "agreed", "host.shm": "agreed too"})
    for form in ("terminal", "md", "html"):
        text = re.sub(r"</?code>|`", "", words(render(report, form)))
        assert "--waive host.shm: nothing to set aside." in text
        assert "--waive cards.power_limit: nothing" not in text
        assert "Nothing to complain of" not in text


def test_a_pair_below_the_promise_looks_it_in_the_page() -> None:
    assert '<td class="bad" title=' in render(samples.rejected(4), "html")
    assert '<td class="bad" title=' not in render(samples.accepted(4), "html")


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

"""The line of a monitoring plugin, read as a receiver reads it."""

from __future__ import annotations

import re

import pytest

from nodecheck.judge import Status
from nodecheck.rental.output import render
from nodecheck.rental.result import CheckResult, Reading
from tests.rental import checks
from tests.report import samples

LIMIT = r"(?:~|-?[0-9.]+)?:?(?:-?[0-9.]+)?"
ENTRY = re.compile(
    rf"'(?P<label>[^'=|]+)'=(?P<value>-?[0-9]+(?:\.[0-9]+)?)(?P<unit>s|ms|us|%|B|c)?"
    rf"(?:;(?P<warn>{LIMIT}))?(?:;(?P<crit>{LIMIT}))?(?:;[-0-9.]*)?(?:;[-0-9.]*)?(?: |$)"
)


def read(text: str) -> tuple[str, dict[str, dict[str, str | None]], list[str]]:
    """The sentence, the data by label, and the long text."""
    first, *long = text.splitlines()
    assert len(first.encode()) <= 4096
    assert len(text.encode()) <= 8192
    sentence, bar, rest = first.partition("|")
    assert bar
    assert "|" not in rest and not any("|" in line for line in long)
    data = {}
    while rest:
        entry = ENTRY.match(rest)
        assert entry, rest[:80]
        assert entry["label"] not in data
        data[entry["label"]] = entry.groupdict()
        rest = rest[entry.end() :]
    return sentence, data, long


def test_all_well() -> None:
    sentence, data, long = read(render(checks.quiet(), "nagios"))
    assert sentence == "NODECHECK OK - Everything is as it was accepted."
    assert long == []
    assert (data["check"]["value"], data["check"]["unit"]) == ("0.42", "s")
    assert data["temperature_celsius 0000:9b:00.0"]["value"] == "43.5"
    assert data["memory_used_bytes 0000:18:00.0"]["unit"] == "B"
    assert data["ecc_corrected_total 0000:18:00.0"]["unit"] == "c"


@pytest.mark.parametrize(
    ("status", "word"),
    [
        (Status.passed, "OK"),
        (Status.warn, "WARNING"),
        (Status.fail, "CRITICAL"),
        (Status.unknown, "UNKNOWN"),
        (Status.skipped, "UNKNOWN"),
    ],
)
def test_each_status_has_its_word(status: Status, word: str) -> None:
    assert render(checks.check(status=status), "nagios").startswith(f"NODECHECK {word} - ")


def test_what_is_wrong_has_a_line_and_a_range() -> None:
    sentence, data, long = read(render(checks.eventful(), "nagios"))
    assert sentence == "NODECHECK CRITICAL - 1 of GPU 3's NVLinks is down."
    assert long[0].startswith("CRITICAL: drift.nvlink.active_links (GPU 3 (0000:9b:00.0)): 17 of")
    assert "[provider]" in long[0]
    assert [line.partition(":")[0] for line in long] == ["CRITICAL"] * 4 + ["UNKNOWN"] + ["WARNING"] * 2
    below = data["drift.nvlink.active_links 0000:9b:00.0 links"]
    assert (below["value"], below["warn"], below["crit"]) == ("17", "", "18:")
    above = data["active.latency 0000:9b:00.0"]
    assert (above["value"], above["unit"], above["crit"]) == ("9", "us", "~:5")
    slow = data["active.gemm 0000:9b:00.0 TFLOP/s"]
    assert (slow["value"], slow["warn"], slow["crit"]) == ("780.5", "827.25:", None)
    assert data["gemm.bfloat16 8192³, bfloat16 0000:9b:00.0 TFLOP/s"]["value"] == "780.5"
    assert data["pairs.one_way 0000:18:00.0 → 0000:9b:00.0 GB/s"]["value"] == "394.9"


def test_numbers_have_no_exponent() -> None:
    values = (1e22, 1e-9, -1e-9, 141e9, 0.1 + 0.2)
    many = tuple(Reading(name=f"r{i}", subject=checks.CARD, value=v) for i, v in enumerate(values))
    _, data, _ = read(render(checks.check(readings=many), "nagios"))
    assert [data[f"r{i} 0000:9b:00.0"]["value"] for i in range(5)] == [
        "10000000000000000000000", "0", "0", "141000000000", "0.3",
    ]  # fmt: skip


def test_too_much_is_cut_at_whole_values() -> None:
    def flooded(count: int) -> CheckResult:
        findings = tuple(
            samples.finding(f"drift.n{i}", Status.fail, observed=i, expected=-1) for i in range(count)
        )
        return checks.check(findings, status=Status.fail, summary="x" * 3000)

    sentence, data, long = read(render(flooded(500), "nagios"))
    assert len(sentence) < 400
    assert 50 < len(data) < 500
    assert re.fullmatch(r"and \d+ more findings: nodecheck check --format json", long[-1])

"""The textfile, read back with the parser of its own library."""

from __future__ import annotations

from collections import Counter
from datetime import timezone

from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from nodecheck.judge import Status
from nodecheck.rental.output import render
from nodecheck.rental.result import CheckResult, Reading
from tests.rental import checks

KINDS = {"gauge", "counter"}
"""What node_exporter's collector reads of the kinds there are."""

Series = tuple[str, tuple[tuple[str, str], ...]]


def read(text: str) -> dict[Series, float]:
    found: dict[Series, float] = {}
    names = Counter(line.split()[2] for line in text.splitlines() if line.startswith("# TYPE"))
    assert set(names.values()) == {1}
    assert text.endswith("\n") and "# EOF" not in text
    for family in text_string_to_metric_families(text):
        assert family.type in KINDS
        assert family.name.startswith("nodecheck_")
        assert family.documentation
        for sample in family.samples:
            assert sample.timestamp is None
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


def value(found: dict[Series, float], name: str, **labels: str) -> float:
    return found[f"nodecheck_{name}", tuple(sorted(labels.items()))]


def test_the_check_itself() -> None:
    found = read(render(checks.quiet(), "openmetrics"))
    at = checks.NOW.replace(tzinfo=timezone.utc).timestamp()
    assert value(found, "last_check_timestamp_seconds") == at
    assert value(found, "last_success_timestamp_seconds") == at
    assert value(found, "check_seconds") == 0.42
    assert value(found, "status", status="pass") == 1
    assert [value(found, "status", status=s) for s in ("warn", "fail", "unknown")] == [0, 0, 0]
    assert value(found, "baseline_timestamp_seconds", profile="h200x8", verdict="ACCEPTED") == at - 86400
    assert value(found, "findings", status="pass") == 2
    assert value(found, "findings", status="fail") == 0


def test_what_could_not_be_seen_is_no_success() -> None:
    found = read(render(checks.check(status=Status.unknown), "openmetrics"))
    assert value(found, "last_success_timestamp_seconds") == 0
    assert value(found, "last_check_timestamp_seconds") > 0


def test_findings_figures_and_readings() -> None:
    found = read(render(checks.eventful(), "openmetrics"))
    card = {"subject": "0000:9b:00.0", "uuid": "GPU-0f4a8e5d", "pci": "0000:9b:00.0"}
    node = {"subject": "node", "uuid": "", "pci": ""}
    assert value(found, "finding", id="drift.nvlink.active_links", status="fail", **card) == 1
    assert value(found, "finding", id="drift.driver", status="warn", **node) == 1
    assert value(found, "finding", id="drift.waived", status="waived", **card) == 1
    assert not any(("id", "drift.cards.count") in labels for _, labels in found)
    assert value(found, "findings", status="waived") == 1
    assert value(found, "findings", status="unknown") == 2
    assert value(found, "changes") == 6
    assert (
        value(
            found,
            "figure",
            measure="gemm.bfloat16",
            at="8192³, bfloat16",
            subject=card["subject"],
            unit="TFLOP/s",
        )
        == 780.5
    )
    assert value(found, "card_temperature_celsius", **card) == 43.5
    assert value(found, "card_ecc_corrected_total", **card) == 43.5
    assert not any(name == "nodecheck_baseline_timestamp_seconds" for name, _ in found)


@given(
    st.lists(
        st.tuples(
            st.text(max_size=12),
            st.sampled_from(["node", "card", "disk"]),
            st.text(max_size=8),
            st.booleans(),
        )
    )
)
@settings(deadline=None, max_examples=60)
def test_no_reading_can_break_the_file(chosen: list[tuple[str, str, str, bool]]) -> None:
    readings = tuple(
        Reading.model_validate(
            {
                "name": name,
                "subject": {"kind": kind, "key": key, "label": key},
                "value": 1.5,
                "counter": counter,
            }
        )
        for name, kind, key, counter in chosen
    )
    result: CheckResult = checks.check(readings=(*readings, *readings))
    read(render(result, "openmetrics"))

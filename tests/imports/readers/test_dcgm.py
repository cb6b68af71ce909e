"""dcgmi's JSON of release 3 and of release 4."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nodecheck.imports.kind import Section, Unreadable
from nodecheck.imports.readers.dcgm import read


def document(root: str, *results: dict[str, Any], **more: Any) -> str:
    tests = [{"name": "software", "results": list(results)}]
    return json.dumps({root: {"test_categories": [{"category": "Deployment", "tests": tests}]}, **more})


def told(text: str) -> list[tuple[str, str, str]]:
    return [(one.card, one.outcome, one.detail) for one in read(Section(text)).diagnoses]


def test_release_4() -> None:
    text = document(
        "DCGM Diagnostic",
        {"entity_group": "GPU", "entity_id": 0, "status": "Pass"},
        {
            "entity_group": "GPU",
            "entity_id": 1,
            "status": "Fail",
            "warnings": [{"warning": "Row remap failed", "error_severity": 2}],
        },
        {"entity_group": "CPU", "entity_id": 0, "status": "Skip"},
        metadata={"Driver Version Detected": "580.82.09"},
    )
    assert told(text) == [("card 0", "pass", ""), ("card 1", "fail", "Row remap failed"), ("", "skip", "")]
    assert read(Section(text)).stack.driver.version == "580.82.09"


def test_release_3_names_cards() -> None:
    text = document(
        "DCGM GPU Diagnostic", {"gpu_ids": "0,2", "status": "Pass"}, {"gpu_id": "1", "status": "Warn"}
    )
    assert told(text) == [("card 0", "pass", ""), ("card 2", "pass", ""), ("card 1", "warn", "")]


def test_a_setting_is_no_fault() -> None:
    warnings = [{"warning": "Persistence mode is disabled", "error_severity": 5}]
    result = {"entity_group": "GPU", "entity_id": 0, "status": "Fail", "warnings": warnings}
    assert told(document("DCGM Diagnostic", result)) == [("card 0", "warn", "Persistence mode is disabled")]


def test_a_word_nobody_knows_is_no_verdict() -> None:
    assert told(document("DCGM Diagnostic", {"entity_id": 0, "status": "Fine"})) == [
        ("card 0", "unknown", "")
    ]


@pytest.mark.parametrize(
    "text", ["{", '{"DCGM Diagnostic": 3}', document("DCGM Diagnostic"), document("Other", {})]
)
def test_damaged(text: str) -> None:
    with pytest.raises(Unreadable):
        read(Section(text))

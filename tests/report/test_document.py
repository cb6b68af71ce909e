from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from nodecheck.report import document
from nodecheck.report.document import ReportError
from tests import healthy
from tests.report import samples


@pytest.fixture(params=[samples.accepted, samples.rejected, samples.without_cards])
def report(request: pytest.FixtureRequest) -> document.Report:
    made: document.Report = request.param()
    return made


def test_a_report_comes_back_as_it_was(report: document.Report, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(document.dump(report))
    assert document.load(path) == report
    assert document.load(tmp_path) == report


def test_the_schema_fits_a_real_report_and_refuses_a_bent_one(report: document.Report) -> None:
    schema = document.schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$id"] == "urn:nodecheck:schema:report:1"
    validator = jsonschema.Draft202012Validator(schema)
    raw = json.loads(document.dump(report))
    validator.validate(raw)
    for bent in (
        raw | {"format": "nodecheck-report/2"},
        raw | {"surprise": 1},
        raw | {"judgement": raw["judgement"] | {"verdict": "FINE"}},
        {key: value for key, value in raw.items() if key != "facts"},
    ):
        assert not validator.is_valid(bent)


def test_the_schema_says_where_facts_are_read() -> None:
    memory = document.schema()["$defs"]["Memory"]["properties"]["total_bytes"]
    assert memory["read_from"]["nvml"].startswith("nvmlDeviceGetMemoryInfo")


def test_hashes_can_be_computed_from_the_file_alone(report: document.Report) -> None:
    raw = json.loads(document.dump(report))
    assert document.hashes(raw) == report.parts
    assert set(report.parts) == {"facts", "profile", "judgement", "run", "evidence"}


def test_every_key_of_the_document_stands_under_some_hash(report: document.Report) -> None:
    raw = json.loads(document.dump(report))
    for key in raw.keys() - {"parts"}:
        assert document.hashes(raw | {key: "another"}) != report.parts, key


def test_the_command_line_is_kept_without_secrets() -> None:
    sample = samples.accepted(1)
    made = document.build(
        sample.facts,
        sample.profile,
        sample.judgement,
        argv=["accept", "--api-token", "s3", "--password=s3", "-p", "h200x1", "https://me:s3@host.example/x"],
    )
    assert made.argv == (
        "accept",
        "--api-token",
        "***",
        "--password=***",
        "-p",
        "h200x1",
        "https://***@host.example/x",
    )


def test_bytes_that_are_no_text_do_not_cost_the_report(tmp_path: Path) -> None:
    sample = samples.accepted(1)
    odd = b"caf\xe9".decode("utf-8", "surrogateescape")
    node = healthy.change(sample.facts, "host.name", odd)
    node = healthy.change(node, "stack.environment", (("A", odd),))
    made = document.build(
        node, sample.profile, sample.judgement, waivers={odd: odd}, durations={odd: 1.0}, argv=[odd]
    )
    (tmp_path / "report.json").write_text(document.dump(made))
    assert document.load(tmp_path) == made
    assert made.argv == ("caf\\udce9",)


def sentence(path: Path) -> str:
    with pytest.raises(ReportError) as caught:
        document.load(path)
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 700
    return text


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "damaged"),
        (b"not json", "damaged"),
        (b"\xff\xfe\x00", "damaged"),
        (b"[]", "not a report"),
        (b"3", "not a report"),
        (b'{"format": "nodecheck-facts/1"}', "not a report that this nodecheck reads (nodecheck-report/1)"),
        (b'{"format": "nodecheck-report/99"}', "not a report that this nodecheck reads"),
        (b'{"format": "nodecheck-report/1"}', "damaged: at tool"),
        (b"[" * 1_000_000, "damaged"),
        (b'{"format":' * 100_000, "damaged"),
    ],
)
def test_what_is_no_report_gets_one_sentence(content: bytes, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(content)
    assert expected in sentence(path)


def test_a_report_cut_short_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    raw = document.dump(samples.accepted(1)).encode()
    for length in range(0, len(raw) - 1, 997):
        path.write_bytes(raw[:length])
        assert "damaged" in sentence(path)


def test_a_key_that_steers_the_terminal_does_not_get_there(tmp_path: Path) -> None:
    raw: dict[str, Any] = json.loads(document.dump(samples.accepted(1)))
    raw["facts"]["\x1b[2J"] = 1
    path = tmp_path / "report.json"
    path.write_text(json.dumps(raw))
    assert "\x1b" not in sentence(path)


def test_what_cannot_be_read_gets_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "No such file" in sentence(tmp_path / "nothing")
    assert "No such file" in sentence(tmp_path)
    assert "not a file" in sentence(Path("/dev/zero"))
    os.mkfifo(tmp_path / "pipe")
    assert "not a file" in sentence(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert "cannot read" in sentence(tmp_path / "loop")
    assert "cannot read" in sentence(tmp_path / "a\0b")
    monkeypatch.setattr(document, "MAX_BYTES", 1000)
    (tmp_path / "large").write_bytes(b" " * 1001)
    assert "larger than any report" in sentence(tmp_path / "large")


def test_a_key_that_stands_twice_is_damage(tmp_path: Path) -> None:
    raw = document.dump(samples.accepted(1))
    path = tmp_path / "report.json"
    path.write_text('{"judgement": {"verdict": "ACCEPTED"},' + raw[1:])
    assert "the key judgement stands twice" in sentence(path)


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ('{"cards": [' + "{}," * 1_000_000 + "{}]}", "more values than any report"),
        ('{"cards": [' + "{}," * 256 + "{}]}", "names 257 cards"),
        ('{"cards": [{"x": [' + "0," * 20_000 + "0]}]}", "a list of 20001 items"),
    ],
)
def test_more_than_any_node_has_is_refused_before_it_takes_memory(
    facts: str, told: str, tmp_path: Path
) -> None:
    path = tmp_path / "report.json"
    path.write_text('{"format": "nodecheck-report/1", "facts": ' + facts + "}")
    assert told in sentence(path)

"""What the renter says of the rental's end when the node is accepted, and where it is kept."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import pytest

from nodecheck.cli.accept import _remember
from nodecheck.rental.state import State, Terms
from tests import healthy
from tests.report import samples

END = "2126-12-07T10:00Z"


def accept(*arguments: str, home: Path, profile: str = "cpu") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable, "-m", "nodecheck", "accept", "--profile", profile, "--level", "quick", "--quiet",
            *arguments,
        ],
        cwd=home,
        env=os.environ | {"XDG_STATE_HOME": str(home / "state")},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )  # fmt: skip


def test_an_accepted_node_is_remembered_with_its_terms(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    run = accept("--rental-ends", END, "--keep", "runs", "--keep", "/no/data", home=tmp_path)
    if run.returncode == 3:
        pytest.skip("this machine is not accepted")
    assert run.returncode == 0, run.stdout + run.stderr
    acceptance = State(tmp_path / "state" / "nodecheck").acceptance()
    assert acceptance is not None
    assert acceptance.terms == Terms(
        ends_at=datetime(2126, 12, 7, 10, 0, tzinfo=timezone.utc), keep=(f"{tmp_path}/runs", "/no/data")
    )
    assert "--keep /no/data: there is no such path yet" in run.stderr
    assert "--keep " + str(tmp_path) not in run.stderr
    assert acceptance.report.profile.name == "cpu"


@pytest.mark.parametrize(("end", "lasts"), [(END, True), ("2020-12-07T10:00Z", False)])
def test_a_node_that_is_accepted_anew_keeps_what_was_said_of_the_rental(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, lasts: bool
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    said = Terms(ends_at=datetime.fromisoformat(end.replace("Z", "+00:00")), keep=("/data",))
    report = samples.report(healthy.node(samples.profile(1)), samples.profile(1), ())
    for terms in (said, Terms()):
        _remember(report, terms)
    acceptance = State().acceptance()
    assert acceptance is not None
    assert acceptance.terms == (said if lasts else Terms())


def test_a_rejected_node_is_not_and_says_so(tmp_path: Path) -> None:
    run = accept("--rental-ends", END, home=tmp_path, profile="h200x4")
    assert run.returncode in (2, 3)
    assert "the node was not accepted, so its rental's end is not kept" in run.stderr
    assert not (tmp_path / "state").exists()


def test_a_state_that_cannot_be_kept_changes_no_verdict(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    run = accept(home=tmp_path)
    assert run.returncode in (0, 3)
    if run.returncode == 0:
        assert "this acceptance is not kept for `nodecheck check`" in run.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--rental-ends", "2026-12-07T10:00"), "does not say in which time zone"),
        (("--rental-ends", "2020-01-01T00:00Z"), "is over already"),
        (("--keep", "/data"), "add --rental-ends"),
        (("--rental-ends", END, "--from", "node.tar.gz"), "--from reads a recording"),
    ],
)
def test_what_cannot_be_meant_ends_the_run_before_it_begins(
    tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    run = accept(*arguments, home=tmp_path)
    assert (run.returncode, run.stdout) == (64, "")
    assert words in run.stderr
    assert not (tmp_path / "reports").exists()

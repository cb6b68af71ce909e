"""`nodecheck check` as cron runs it: a process of its own, over the real NVML binding and the stand-in library."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from nodecheck.cli.run import Run
from nodecheck.facts import NOT_ASKED
from nodecheck.judge import Verdict, judge
from nodecheck.profile import load
from nodecheck.rental.lock import lock
from nodecheck.rental.result import CheckResult
from nodecheck.report import document
from tests.fakes import nvml
from tests.fakes.nvml import Description
from tests.surveys import needs_compiler, standing_in

pytestmark = needs_compiler


@cache
def accepted() -> str:
    """A report that accepts this machine with made-up cards, as it is found."""
    with standing_in(nvml.describe("h200", 4)):
        node = Run(None, None, "quick").glance(NOT_ASKED)
    profile = load("h200x4")
    judgement = judge(node, profile).model_copy(update={"verdict": Verdict.accepted})
    return document.dump(document.build(node, profile, judgement))


class Place:
    """A machine with made-up cards, an accepted report of it, and a state folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.description: Description = nvml.describe("h200", 4)
        self.report = folder / "report.json"
        self.report.write_text(accepted())

    @property
    def environment(self) -> dict[str, str]:
        path = self.folder / "node.json"
        nvml.write(self.description, path)
        return {**os.environ, **nvml.environment(path), "XDG_STATE_HOME": str(self.folder / "state")}

    def start(self, *arguments: str | Path, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "nodecheck", "check", *map(str, arguments)],
            env=self.environment | environment,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def check(self, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        process = self.start("--baseline", self.report, *arguments, **environment)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_it_is_silent_where_nothing_changed_and_tells_a_change_once(place: Place) -> None:
    quiet = place.check()
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")
    place.description["nvmlDeviceGetEnforcedPowerLimit 2"] = "450000"
    told = place.check()
    assert told.returncode == 2
    assert told.stdout.startswith("nodecheck FAIL")
    assert "NEW: cards.power_limit is FAIL since" in told.stdout
    assert "Capped at 450 W; the product has 700 W." in told.stdout
    assert "drift.cards.power_limit" not in told.stdout  # the same trouble
    again = place.check()
    assert (again.returncode, again.stdout) == (2, "")
    place.description["nvmlDeviceGetEnforcedPowerLimit 2"] = "700000"
    back = place.check()
    assert back.returncode == 0
    assert "GONE: cards.power_limit" in back.stdout


def test_monitoring_gets_its_own_exit_codes(place: Place) -> None:
    fine = place.check("--format", "nagios")
    assert (fine.returncode, fine.stdout.split(" - ")[0]) == (0, "NODECHECK OK")
    place.description["nvmlDeviceGetPersistenceMode 0"] = "0"
    warned = place.check("--format", "nagios")
    assert (warned.returncode, warned.stdout.split(" - ")[0]) == (1, "NODECHECK WARNING")
    assert place.check().returncode == 0
    assert place.check("--strict").returncode == 1
    place.description = {"nvmlInitWithFlags": nvml.code(999)}
    lost = place.check("--format", "nagios")
    assert (lost.returncode, lost.stdout.split(" - ")[0]) == (2, "NODECHECK CRITICAL")


def test_the_whole_check_as_json_in_a_file_and_for_a_program(place: Place) -> None:
    place.check()
    place.description["nvmlDeviceGetCurrPcieLinkWidth 1"] = "8"
    output, heard = place.folder / "check.json", place.folder / "heard.json"
    program = f"{sys.executable} -c 'import sys; open(sys.argv[1], \"w\").write(sys.stdin.read())' {heard}"
    run = place.check("--format", "json", "-o", output, "--on-change", program)
    assert (run.returncode, run.stdout, run.stderr) == (2, "", "")
    told = CheckResult.model_validate_json(output.read_text())
    assert heard.read_text() == output.read_text()
    assert {change.finding.id for change in told.changes} == {"cards.pcie.width", "drift.cards.pcie_width"}
    assert told.kind == "passive"
    assert {reading.subject.kind for reading in told.readings} >= {"card", "disk"}


def test_a_program_that_fails_is_told_of_and_changes_nothing(place: Place) -> None:
    place.description["nvmlDeviceGetPersistenceMode 0"] = "0"
    run = place.check("--on-change", "/bin/false")
    assert run.returncode == 0
    assert "--on-change /bin/false ended with 1" in run.stderr


def test_without_a_baseline_it_says_how_to_get_one(place: Place) -> None:
    process = place.start()
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 3
    assert "nodecheck accept --profile NAME" in " ".join(out.split())


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--baseline", "missing.json"), 65, "cannot read the report"),
        (("--on-change", "'"), 64, "--on-change"),
        (("--format", "xml"), 64, "xml"),
    ],
)
def test_wrong_use_ends_with_a_sentence(
    place: Place, arguments: tuple[str, ...], code: int, says: str
) -> None:
    process = place.start(*arguments)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert says in err
    assert "Traceback" not in err


def test_a_report_that_accepts_nothing_is_no_baseline(place: Place) -> None:
    said: dict[str, Any] = json.loads(place.report.read_text())
    said["judgement"]["verdict"] = "REJECTED"
    place.report.write_text(json.dumps(said))
    run = place.check()
    assert run.returncode == 65
    assert "says REJECTED" in run.stderr


def test_a_second_check_is_turned_away_at_once(place: Place) -> None:
    with lock(place.folder / "state" / "nodecheck"):
        began = time.monotonic()
        run = place.check()
        assert time.monotonic() - began < 15
    assert run.returncode == 75
    assert f"process {os.getpid()}" in run.stderr
    assert place.check().returncode == 0


def test_a_state_folder_that_cannot_be_had_loses_no_check(place: Place) -> None:
    (place.folder / "state").write_text("no folder")
    place.description["nvmlDeviceGetCurrPcieLinkWidth 1"] = "8"
    run = place.check()
    assert run.returncode == 2
    assert "drift.cards.pcie_width" in run.stdout
    assert "not remembered" in run.stderr


@pytest.mark.parametrize("form", ["text", "nagios"])
def test_what_kept_a_check_from_being_whole_is_told_in_every_form(place: Place, form: str) -> None:
    (place.folder / "state").write_text("no folder")
    place.description["nvmlDeviceGetComputeRunningProcesses_v3 1"] = nvml.process(4711, 2**30)
    run = place.check("--active", "--format", form)
    assert run.returncode == 0
    assert "Nothing was measured: GPU 1 (0000:2a:00.0): process 4711 is on it" in run.stderr
    assert "not remembered" in run.stderr


def test_an_output_that_cannot_be_written_is_told_and_so_is_who_listens(place: Place) -> None:
    place.description["nvmlDeviceGetCurrPcieLinkWidth 1"] = "8"
    heard = place.folder / "heard"
    run = place.check("-o", "missing/check.json", "--on-change", f"touch {heard}")
    assert run.returncode == 73
    assert heard.exists()
    with Path("/dev/full").open("w") as full:
        process = subprocess.run(
            [sys.executable, "-m", "nodecheck", "check", "--baseline", place.report, "--format", "json"],
            env=place.environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert process.returncode == 73
    assert "cannot write to stdout" in process.stderr


@pytest.mark.parametrize(("form", "encoding"), [("text", "ascii"), ("json", "ascii"), ("nagios", "latin-1")])
def test_a_locale_without_a_character_ends_no_check(place: Place, form: str, encoding: str) -> None:
    place.description["nvmlDeviceGetName 0"] = "H200 \u03bb\u2026\U0001f600 é"
    run = place.check("--format", form, PYTHONIOENCODING=encoding, PYTHONUTF8="0")
    assert run.returncode in (1, 2)
    assert "internal error" not in run.stderr
    assert run.stdout


def test_a_polite_end_leaves_no_lock_and_no_child(place: Place) -> None:
    place.description["nvmlDeviceGetPowerUsage 2"] = nvml.HANG
    process = place.start("--baseline", place.report)
    assert wait(lambda: bool(children(process.pid)))
    time.sleep(0.5)
    left = children(process.pid)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) == 130
    assert wait(lambda: not any(Path(f"/proc/{pid}").exists() for pid in left))
    place.description = nvml.describe("h200", 4)
    assert place.check().returncode == 0


def test_active_leaves_cards_alone_that_somebody_uses(place: Place) -> None:
    place.description["nvmlDeviceGetComputeRunningProcesses_v3 1"] = nvml.process(4711, 2**30)
    run = place.check("--active", "--format", "json")
    said = CheckResult.model_validate_json(run.stdout)
    assert said.kind == "passive"
    assert said.notes == ("Nothing was measured: GPU 1 (0000:2a:00.0): process 4711 is on it.",)
    assert run.returncode == 0


def children(pid: int) -> set[int]:
    told = Path(f"/proc/{pid}/task/{pid}/children")
    try:
        own = {int(word) for word in told.read_text().split()}
    except OSError:
        return set()
    return own.union(*(children(child) for child in own)) if own else own


def wait(until: Callable[[], bool]) -> bool:
    ends = time.monotonic() + 20
    while time.monotonic() < ends:
        if until():
            return True
        time.sleep(0.02)
    return False

"""Real workers on this machine's CPU, from the command line to the report, and nothing left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

NODES = Path(__file__).parents[1] / "nodes"


def nodecheck(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "nodecheck", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
    )


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has cards")
def test_a_cpu_is_measured_judged_and_judged_again(tmp_path: Path) -> None:
    """The whole of it, within 60 s on two CPUs that nobody else uses."""
    run = nodecheck("accept", "--profile", "cpu", "--python", sys.executable, cwd=tmp_path)
    assert "at level standard" in run.stdout, run.stdout + run.stderr
    assert run.returncode in (0, 3)
    assert "nodecheck: collectives: measured in" in run.stderr
    (folder,) = (tmp_path / "reports").iterdir()
    report = json.loads((folder / "report.json").read_text())
    found = report["facts"]["measurements"]
    assert {run["status"] for run in found["stages"]} == {"done"}, found["stages"]
    assert {run["stage"] for run in found["stages"]} == {
        "context", "memory", "hbm", "gemm", "agreement", "operators", "collectives", "storage",
    }  # fmt: skip
    assert not [check for check in found["checks"] if check["wrong"] or not check["compared"]]
    names = {check["check"] for check in found["checks"]}
    assert {
        "memory.pattern",
        "agreement.self",
        "agreement.siblings",
        "operators.linear",
        "all_reduce.data",
    } <= names
    figures = {(figure["measure"], tuple(figure["cards"])) for figure in found["figures"]}
    assert ("hbm.copy", ("cpu0",)) in figures
    assert [cards for measure, cards in figures if measure == "all_reduce.busbw" and len(cards) > 1]
    assert found["transports"][0]["paths"] == ["gloo/TCP"]
    assert report["durations_seconds"]["measure.collectives"] > 0
    assert not list(tmp_path.glob("reports/*/.nodecheck*"))

    again = nodecheck("probe", "--from", folder / "evidence", cwd=tmp_path)
    assert json.loads(again.stdout)["measurements"] == found
    replayed = nodecheck("judge", "--from", folder / "evidence", "--profile", "cpu", "-q", cwd=tmp_path)
    assert replayed.stdout.startswith(run.stdout.split(":")[0].replace("\n", " "))
    tables = nodecheck("measure", "--from", folder / "evidence", cwd=tmp_path)
    assert tables.returncode == 0
    lines = tables.stdout.splitlines()
    assert [line for line in lines if line.startswith("hbm.copy ")]
    assert "all_reduce.data" in tables.stdout
    whole = nodecheck("measure", "hbm", "--json", "--from", folder / "evidence", cwd=tmp_path)
    assert {figure["stage"] for figure in json.loads(whole.stdout)["figures"]} == {"hbm"}


def test_a_recording_without_measurements(tmp_path: Path) -> None:
    recorded = ("accept", "--from", NODES / "h200x8", "--profile", "h200x8", "--quiet")
    assert "at level quick" in nodecheck(*recorded, cwd=tmp_path).stdout
    asked = nodecheck(*recorded, "--level", "standard", cwd=tmp_path)
    assert asked.returncode == 3
    assert asked.stdout.startswith("INCOMPLETE h200x8 at level standard")
    measured = nodecheck("measure", "--from", NODES / "h200x8", "--level", "standard", cwd=tmp_path)
    assert measured.returncode == 3
    assert "the recording does not hold this" in measured.stdout


def test_an_interrupted_measurement_leaves_what_it_had(tmp_path: Path) -> None:
    run = subprocess.Popen(
        [sys.executable, "-m", "nodecheck", "accept", "--profile", "cpu", "--python", sys.executable],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
    )
    assert run.stderr is not None
    for line in run.stderr:
        if "contexts and free memory" in line:
            break
    began = time.monotonic()
    run.terminate()
    run.communicate(timeout=30)
    assert time.monotonic() - began < 6
    assert run.returncode == 130
    (report,) = (tmp_path / "reports").glob("*/report.json")
    facts = json.loads(report.read_text())["facts"]["measurements"]
    states = {run["stage"]: (run["status"], run["detail"]) for run in facts["stages"]}
    assert states["context"][0] == "done"
    assert states["storage"] == ("skipped", "the run was interrupted")
    deadline = time.monotonic() + 5
    while workers_of(run.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not workers_of(run.pid)


def workers_of(parent: int) -> list[str]:
    """Workers that the run started and that still run, or that nobody is left of who started them."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
            words = (path.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if b"measure/workers/worker.py" in words and fields[1] in (str(parent), "1") and fields[0] != "Z":
            found.append(path.parent.name)
    return found

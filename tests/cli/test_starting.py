"""Workers that start while the node is looked at: the whole program over stand-ins for NVML, CUDA and torch."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import cuda, nvml
from tests.fakes.nvml.products import PRODUCTS

pytestmark = pytest.mark.skipif(not nvml.compiler(), reason="no C compiler here")

CARDS = [cuda.uuid(0), cuda.uuid(1)]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Of a process that sees two H200, and nothing of this process's Python."""
    description = tmp_path / "nvml.json"
    nvml.write(nvml.describe(PRODUCTS["h200"], 2, virtual=True), description)
    driver, torch = nvml.environment(description), cuda.environment(FAKE_CUDA_CARDS="2")
    libraries = f"{driver['LD_LIBRARY_PATH']}:{torch['LD_LIBRARY_PATH']}"
    return os.environ | torch | driver | {"LD_LIBRARY_PATH": libraries}


def nodecheck(*arguments: str | Path, cwd: Path, env: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "nodecheck", *map(str, arguments)],
        cwd=cwd,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def accept(folder: Path, env: dict[str, str], *more: str | Path) -> dict[str, Any]:
    arguments = ("accept", "--profile", "h200x2", "--time-budget", "1s", "--report-dir", folder, "--quiet")
    with nodecheck(*arguments, *more, cwd=folder.parent, env=env) as run:
        _, said = run.communicate(timeout=60)
    assert "internal" not in said and "Traceback" not in said, said
    (report,) = folder.glob("*/report.json")
    loaded: dict[str, Any] = json.loads(report.read_text())
    return loaded


def asked(folder: Path, source: str) -> list[str]:
    (evidence,) = folder.glob(f"*/evidence/{source}.json")
    return [question.partition(" ")[0] for question in json.loads(evidence.read_text())]


def test_contexts_are_tried_by_the_workers_and_replayed(tmp_path: Path, environment: dict[str, str]) -> None:
    live = accept(tmp_path / "live", environment)
    contexts = live["facts"]["stack"]["contexts"]
    assert [(test["card"], test["ok"], test["step"]) for test in contexts] == [
        (card, True, "done") for card in CARDS
    ]
    assert "context" not in asked(tmp_path / "live", "interpreter")
    assert asked(tmp_path / "live", "workers").count("start") == 1
    (evidence,) = (tmp_path / "live").glob("*/evidence")
    again = accept(tmp_path / "again", environment, "--from", evidence)
    for part in ("cards", "stack", "measurements"):
        assert again["facts"][part] == live["facts"][part]
    quick = accept(tmp_path / "quick", environment, "--from", evidence, "--level", "quick")
    assert quick["facts"]["stack"] == live["facts"]["stack"]


def test_a_card_that_refuses_is_tried_alone(tmp_path: Path, environment: dict[str, str]) -> None:
    report = accept(tmp_path / "live", environment | {"FAKE_CUDA_CONTEXT": "46"})
    contexts = report["facts"]["stack"]["contexts"]
    assert [(test["ok"], test["error"]["code"]) for test in contexts] == [(False, 46)] * 2
    assert asked(tmp_path / "live", "interpreter").count("context") == 2
    stages = report["facts"]["measurements"]["stages"]
    assert {run["status"] for run in stages} == {"skipped"}


def test_at_level_quick_nothing_stays_on_a_card(tmp_path: Path, environment: dict[str, str]) -> None:
    accept(tmp_path / "live", environment, "--level", "quick")
    assert asked(tmp_path / "live", "interpreter").count("context") == 2
    assert asked(tmp_path / "live", "workers") == []


def processes(mark: str) -> list[str]:
    """Those with `mark` in their environment."""

    def marked(entry: Path) -> bool:
        with contextlib.suppress(OSError):
            return mark.encode() in (entry / "environ").read_bytes()
        return False

    return [entry.name for entry in Path("/proc").glob("[0-9]*") if marked(entry)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("fault", ["FAKE_TORCH=hangs", "FAKE_CUDA_CONTEXT=hang"])
def test_an_interrupt_while_workers_start_begins_nothing_more(
    tmp_path: Path, environment: dict[str, str], fault: str, number: signal.Signals
) -> None:
    name, _, value = fault.partition("=")
    mark = f"NODECHECK_TEST={tmp_path.name}"
    env = environment | {name: value, "NODECHECK_TEST": tmp_path.name}
    with nodecheck("accept", "--profile", "h200x2", "--quiet", cwd=tmp_path, env=env) as run:
        until = time.monotonic() + 30
        # Itself, two workers, two for a group, and who describes torch or samples a card.
        while len(processes(mark)) < 6 and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(0.5)
        began = time.monotonic()
        run.send_signal(number)
        said, trouble = run.communicate(timeout=20)
    assert time.monotonic() - began < 5
    assert run.returncode == 130, trouble
    assert said.startswith("INCOMPLETE h200x2")
    until = time.monotonic() + 2
    while (left := processes(mark)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not left

"""A rank that hangs in the middle of a collective, in real processes over gloo: what is told, and what goes on."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from nodecheck.measure import Measuring, plan
from nodecheck.profile import load
from nodecheck.sources.channel import Live
from nodecheck.sources.crew import PROGRAM, Crew
from nodecheck.sources.workers import Workers
from tests import healthy
from tests.fakes import crew as fake
from tests.healthy import change

FAULT = """

def asleep():
    time.sleep(600)

def at_call_60(launch, calls=[0]):
    def one(self):
        calls[0] += 1
        if self.group.rank == 1 and calls[0] == 60:
            asleep()
        launch(self)
    return one

Exchange.launch = at_call_60(Exchange.launch)
"""


def test_a_rank_that_hangs_in_a_collective(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    folder = tmp_path / "workers"
    shutil.copytree(PROGRAM.parent, folder, ignore=shutil.ignore_patterns("__pycache__"))
    with (folder / "stage_collectives.py").open("a") as stage:
        stage.write(FAULT)
    monkeypatch.setattr(plan, "_PATIENCE_SECONDS", 8.0)
    monkeypatch.setattr(plan, "_PATIENCE", 0.0)
    monkeypatch.chdir(tmp_path)
    (tmp_path / plan.REPORT_FOLDER).mkdir()

    node = healthy.node(load("cpu"), level="standard")
    node = change(node, "host.cpu.affinity", 2)
    node = change(node, "stack.interpreter.path", sys.executable)
    crew = Crew(program=folder / "worker.py")
    measuring = Measuring(Workers(Live(crew.answer)), node, "standard", stages=["collectives", "storage"])
    found = measuring.run()
    crew.end()

    runs = {run.stage: run for run in found.stages}
    hung = runs["collectives"]
    assert (hung.status, hung.cards) == ("timed_out", ("cpu0", "cpu1"))
    assert 8 <= hung.seconds < 20
    waits, sleeps = hung.stacks  # of every rank
    assert "in launch" in waits and "stage_collectives.py" in waits
    assert "in asleep" in sleeps and "in asleep" not in waits
    assert "while it was at: " in hung.detail
    assert not [figure for figure in found.figures if figure.stage == "collectives"]
    (way,) = found.transports  # by fresh workers of the same ranks
    assert way.paths == ("gloo/TCP",)
    assert runs["storage"].status == "done"
    assert fake.all_gone(tmp_path, 2)

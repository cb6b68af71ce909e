"""The untimed run, of which the log is read; how the crew gives it a process of its own stands in its tests."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nodecheck.facts import Absent
from nodecheck.measure import transport as reader
from nodecheck.sources.channel import Live
from nodecheck.sources.crew import PROGRAM, Crew
from nodecheck.sources.workers import Workers
from tests.fakes import crew as fake
from tests.measure.workers.test_stage_collectives import load

stage, collectives = load("stage_transport"), load("stage_collectives")
MIB, GIB = 2**20, 2**30


class Worker:
    """On a card, for what asks nothing of it."""

    backend = "cuda"
    torch: Any = None

    def __init__(self) -> None:
        self.steps: list[str] = []

    def step(self, name: str) -> None:
        self.steps.append(name)

    def beside(self, _name: str) -> Any:
        return collectives


def test_the_mark_is_the_one_that_is_read() -> None:
    assert stage.MARK == reader.MARK


def test_the_cpu_needs_no_run() -> None:
    worker = Worker()
    worker.backend = "cpu"
    answer = stage.run(worker, {})
    assert answer["backend"] == "gloo" and answer["log"] == ""


@pytest.mark.parametrize(("group", "count"), [("all", 15), ("first half", 3)])
def test_parts_of_the_cards_run_what_is_measured_of_them(
    group: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Two:
        world = 2

    made: list[Any] = []

    def announced(_worker: Any, _group: Any, runs: list[Any]) -> int:
        made.extend(runs)
        return len(runs)

    monkeypatch.setattr(collectives, "Group", lambda _worker, _arguments: Two())
    monkeypatch.setattr(stage, "announced", announced)
    worker = Worker()
    nccl = SimpleNamespace(version=lambda: (2, 28))
    worker.torch = SimpleNamespace(cuda=SimpleNamespace(nccl=nccl))
    answer = stage.run(worker, {} if group == "all" else {"group": group})
    assert answer["announced"] == len(made) == count
    assert answer["version"] == [2, 28]
    assert {run.collective for run in made} == (
        {"all_reduce"} if count == 3 else set(collectives.COLLECTIVES)
    )


def test_an_untimed_run_leaves_out_what_would_take_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    torch = pytest.importorskip("torch")

    class Slow:
        """1 GB/s, as over sockets."""

        world, size = 2, 0

        def free_bytes(self) -> int:
            return 100 * GIB

        def align(self) -> None:
            pass

        synchronize = align

        def agree(self, _value: float) -> float:
            return self.size / 1e9 + 0.001

    class Nothing:
        def __init__(self, group: Slow, one: Any) -> None:
            self.input = torch.empty(1)
            self._group, self._size = group, one.size_bytes(2)

        def launch(self) -> None:
            self._group.size = self._size

    monkeypatch.setattr(collectives, "Exchange", Nothing)
    runs = [
        collectives.Run("all_reduce", size // 2, "bfloat16", True, 1, 1)
        for size in (MIB, 256 * MIB, GIB, 8 * GIB, 2 * GIB)
    ]
    assert stage.announced(Worker(), Slow(), runs) == 4
    assert [line.split()[-2] for line in capsys.readouterr().out.splitlines()] == [
        str(size) for size in (MIB, 256 * MIB, GIB, 2 * GIB)
    ]


def test_real_ranks_announce_each_collective(tmp_path: Path) -> None:
    """With gloo, which writes no log of its own."""
    pytest.importorskip("torch")
    program = fake.program(tmp_path / "workers")
    for name in ("stage_transport.py", "stage_collectives.py"):
        shutil.copy(PROGRAM.with_name(name), program.parent)
    (program.parent / "stage_announce.py").write_text(
        "def run(worker, arguments):\n"
        "    collectives = worker.beside('stage_collectives')\n"
        "    group = collectives.Group(worker, arguments)\n"
        "    runs = list(collectives.asked(arguments, group.world))\n"
        "    return {'made': worker.beside('stage_transport').announced(worker, group, runs)}\n"
    )
    crew = Crew(program=program)
    workers, cards = Workers(Live(crew.answer)), ["cpu0", "cpu1"]
    workers.run("start", cards, {"python": sys.executable, "environment": {"OMP_NUM_THREADS": "1"}})
    runs = [
        {"collective": "all_reduce", "size_bytes": 4096},
        {"collective": "all_to_all", "size_bytes": 65536, "dtype": "float32"},
    ]
    said = workers.run(
        "announce",
        cards,
        {
            "world": 2,
            "each": {card: {"rank": rank} for rank, card in enumerate(cards)},
            "runs": runs,
            "log": True,
            "environment": {"OMP_NUM_THREADS": "1"},
        },
    )
    crew.end()
    assert not isinstance(said, Absent)
    answer = said["answers"]["cpu0"]
    assert answer["made"] == 2
    marks = [line for line in answer["log"].splitlines() if line.startswith(stage.MARK)]
    assert marks == [
        f"{stage.MARK}all_reduce 4096 bfloat16",
        f"{stage.MARK}all_to_all 65536 float32",
    ]

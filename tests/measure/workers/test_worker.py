"""The worker by itself, without the crew: its pipes, its binding, old Pythons, and as torchrun starts it."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodecheck.sources.crew import PROGRAM
from tests.fakes import crew as fake

OLD_PYTHONS = sorted(Path("~/.pyenv/versions").expanduser().glob("3.[89].*/bin/python"))

_spec = importlib.util.spec_from_file_location("nodecheck_worker_under_test", PROGRAM)
assert _spec is not None and _spec.loader is not None
worker = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(worker)


class Asked:
    """A worker of our own and the ends of its pipes."""

    def __init__(self, process: subprocess.Popen[bytes], requests: int, answers: IO[str]) -> None:
        self.process, self.requests, self.answers = process, requests, answers

    def send(self, stage: str, **arguments: Any) -> None:
        line = json.dumps({"id": 7, "stage": stage, "arguments": arguments})
        os.write(self.requests, line.encode() + b"\n")

    def ask(self, stage: str, **arguments: Any) -> list[dict[str, Any]]:
        self.send(stage, **arguments)
        said = []
        for line in self.answers:
            said.append(json.loads(line))
            assert said[-1].pop("id") == 7
            if "answer" in said[-1] or "error" in said[-1]:
                break
        return said


@contextmanager
def started(
    program: Path, python: str = sys.executable, pythonpath: str = "", *before: str
) -> Iterator[Asked]:
    theirs, requests = os.pipe()
    answers, their_answers = os.pipe()
    process = subprocess.Popen(
        [*before, python, str(program), str(theirs), str(their_answers)],
        pass_fds=(theirs, their_answers),
        env={**os.environ, "PYTHONPATH": pythonpath},
        start_new_session=True,
    )
    os.close(theirs)
    os.close(their_answers)
    with os.fdopen(answers, encoding="utf-8") as lines:
        try:
            yield Asked(process, requests, lines)
        finally:
            os.close(requests)
            try:
                process.wait(5)
            finally:
                process.kill()


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return fake.program(tmp_path / "workers")


@pytest.fixture
def path(tmp_path: Path) -> str:
    return fake.torch(tmp_path / "made up")


@pytest.mark.parametrize("python", [sys.executable, *map(str, OLD_PYTHONS)])
def test_every_python_runs_it(program: Path, path: str, python: str) -> None:
    with started(program, python, path) as asked:
        *steps, end = asked.ask("start", card="cpu0")
        assert [step["step"] for step in steps] == ["import torch", "kernel", "done"]
        assert end["answer"]["context"]["items"]["sum"] == {"got": 549755289600, "expected": 549755289600}
        assert end["answer"]["torch"] == "2.0.0"
        assert asked.ask("echo", a=1)[-1]["answer"]["arguments"] == {"a": 1}
        failed = asked.ask("no_such_stage")[-1]["error"]
        assert failed["type"] == "FileNotFoundError"
        assert asked.ask("echo", a=2)[-1]["answer"]["arguments"] == {"a": 2}
    assert asked.process.returncode == 0
    assert not list(program.parent.rglob("*.pyc"))


@pytest.mark.parametrize("python", OLD_PYTHONS, ids=str)
def test_every_stage_is_written_for_old_pythons(python: Path) -> None:
    check = (
        "import sys; [compile(open(path, encoding='utf-8').read(), path, 'exec') for path in sys.argv[1:]]"
    )
    subprocess.run([str(python), "-c", check, *map(str, PROGRAM.parent.glob("*.py"))], check=True)


def test_a_stage_before_the_start_is_an_error(program: Path, path: str) -> None:
    with started(program, pythonpath=path) as asked:
        assert asked.ask("echo")[-1]["error"]["type"] == "RuntimeError"


def test_the_end_of_the_requests_ends_it_in_the_middle_of_a_call(program: Path, path: str) -> None:
    with started(program, pythonpath=path) as asked:
        asked.ask("start", card="cpu0")
        asked.send("nap", seconds=600)
        time.sleep(0.2)
        began = time.monotonic()
    assert asked.process.returncode == 0
    assert time.monotonic() - began < 1


def test_the_renter_s_modules_come_first_and_ours_are_not_seen(program: Path, tmp_path: Path) -> None:
    # A module of the worker's folder must not stand in for one that torch imports.
    (program.parent / "products_of_ours.py").write_text("")
    path = fake.torch(
        tmp_path / "spying", "import importlib.util as u\nseen = u.find_spec('products_of_ours')\n"
    )
    (program.parent / "stage_look.py").write_text(
        "def run(worker, arguments):\n    return {'seen': worker.torch.seen is not None}\n"
    )
    with started(program, pythonpath=path) as asked:
        asked.ask("start", card="cpu0")
        assert asked.ask("look")[-1]["answer"] == {"seen": False}


# Binding.


def test_it_binds_itself_to_the_cpus_of_its_card(program: Path, path: str) -> None:
    own = sorted(os.sched_getaffinity(0))
    with started(program, pythonpath=path) as asked:
        wanted = f"{own[-1]},{worker.MOST_CPUS - 1}"
        assert asked.ask("start", card="cpu0", cpus=wanted)[-1]["answer"]["binding"] == str(own[-1])
        assert os.sched_getaffinity(asked.process.pid) == {own[-1]}


@pytest.mark.parametrize("cpus", [None, "", str(worker.MOST_CPUS - 1)])
def test_without_cpus_that_are_there_it_stays_as_found(program: Path, path: str, cpus: str | None) -> None:
    with started(program, pythonpath=path) as asked:
        assert asked.ask("start", card="cpu0", cpus=cpus)[-1]["answer"]["binding"] == "as found"
        assert os.sched_getaffinity(asked.process.pid) == os.sched_getaffinity(0)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2 or not shutil.which("taskset"), reason="one CPU alone")
def test_what_the_renter_pinned_stays_as_found(program: Path, path: str) -> None:
    first, second, *_ = sorted(os.sched_getaffinity(0))
    with started(program, sys.executable, path, "taskset", "-c", str(first)) as asked:
        assert asked.ask("start", card="cpu0", cpus=str(second))[-1]["answer"]["binding"] == "as found"
        assert os.sched_getaffinity(asked.process.pid) == {first}


@given(st.sets(st.integers(0, 300), min_size=1))
def test_cpus_are_written_as_linux_writes_them(cpus: set[int]) -> None:
    text = worker.ranges(cpus)
    assert worker.numbers(text) == cpus
    assert text.count(",") == sum(cpu - 1 not in cpus for cpu in cpus) - 1


# The real torch.


def test_the_context_stage_says_what_starting_cost() -> None:
    pytest.importorskip("torch")
    with started(PROGRAM, pythonpath=os.environ.get("PYTHONPATH", "")) as asked:
        start = asked.ask("start", card="cpu0")[-1]["answer"]
        answer = asked.ask("context")[-1]["answer"]
    rows = {row["measure"]: row for row in answer["rows"]}
    assert rows.keys() == {"context.import", "context.kernel"}
    assert rows["context.import"]["values"] == [start["import_seconds"]]
    assert all(row["unit"] == "s" and 0 < row["values"][0] < 60 for row in rows.values())
    (check,) = answer["checks"]
    assert (check["check"], check["compared"], check["wrong"]) == ("context.kernel", 2**22, 0)


def test_ranks_of_torchrun_join_one_group(program: Path) -> None:
    pytest.importorskip("torch")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    way = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(program), "--torchrun", "add", '{"backend": "gloo"}'],
            env={**os.environ, **way, "RANK": rank, "LOCAL_RANK": rank, "GLOO_SOCKET_IFNAME": "lo"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in "01"
    ]
    try:
        said = [rank.communicate(timeout=60)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert json.loads(said[0])["sum"] == 3.0
    assert said[1] == ""

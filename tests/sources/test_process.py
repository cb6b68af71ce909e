from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nodecheck.facts import Absent, Why
from nodecheck.sources import Process, process
from nodecheck.sources.channel import Recorded


def live() -> Process:
    return Process(process.live())


def test_only_allow_listed_variables_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "NCCL_DEBUG": "INFO",
        "CUDA_VISIBLE_DEVICES": "",
        "LD_PRELOAD": "/a b",
        "NVIDIA_API_KEY": "nvapi-secret",
        "CUDA_AUTH_TOKEN": "secret",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "HOME_OF_NCCL_X": "no",
    }.items():
        monkeypatch.setenv(name, value)
    environment = live().environment()
    assert isinstance(environment, dict)
    assert environment["NCCL_DEBUG"] == "INFO"
    assert environment["CUDA_VISIBLE_DEVICES"] == ""
    assert environment["LD_PRELOAD"] == "/a b"
    assert not any("secret" in value for value in environment.values())
    assert "HOME_OF_NCCL_X" not in environment
    assert list(environment) == sorted(environment)


def test_undecodable_values_are_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_ODD", os.fsdecode(b"a\xff"))
    environment = live().environment()
    assert isinstance(environment, dict)
    assert environment["NCCL_ODD"] == "a�"


def test_limits_are_the_soft_ones() -> None:
    limits = live().limits()
    assert isinstance(limits, dict)
    assert limits == {
        "memlock": resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
        "nofile": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "nproc": resource.getrlimit(resource.RLIMIT_NPROC)[0],
    }


def test_an_unlimited_limit_is_minus_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        resource, "getrlimit", lambda number: (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    )
    assert live().limits() == {"memlock": -1, "nofile": -1, "nproc": -1}


def test_who_and_where() -> None:
    uname = live().uname()
    assert isinstance(uname, dict)
    assert uname["release"] == os.uname().release
    assert live().user_id() == os.geteuid()
    assert live().cpus() == len(os.sched_getaffinity(0))
    assert live().groups() == tuple(sorted({os.getegid(), *os.getgroups()}))


def test_the_clock_is_asked_and_not_touched() -> None:
    said = live().clock_synchronized()
    assert isinstance(said, (bool, Absent))


def until(condition: Callable[[], bool]) -> None:
    ends = time.monotonic() + 10
    while not condition() and time.monotonic() < ends:
        time.sleep(0.01)


def test_processes_are_seen_by_name_and_state() -> None:
    child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
    try:
        until(lambda: Path(f"/proc/{child.pid}/comm").read_text().startswith("python"))
        running = live().processes()
        assert isinstance(running, tuple)
        mine = {one.pid: one for one in running}
        assert mine[child.pid].name.startswith("python")
        assert mine[child.pid].state in "RS"
        assert os.getpid() in mine
    finally:
        child.kill()
        child.wait()


def plant(proc: Path, pid: int, *, name: str, state: str, flags: int = 0, switches: int = 7) -> None:
    place = proc / str(pid)
    place.mkdir(exist_ok=True)
    (place / "stat").write_text(f"{pid} ({name}) {state} 1 1 1 0 -1 {flags} 0 0 0 0\n")
    (place / "status").write_text(
        f"Name:\t{name}\nvoluntary_ctxt_switches:\t{switches}\nnonvoluntary_ctxt_switches:\t3\n"
    )


def seen(proc: Path) -> dict[int, tuple[str, str]]:
    answer = process._processes(proc)
    assert isinstance(answer, list)
    return {pid: (name, state) for pid, name, state in answer}


def test_a_name_may_hold_anything(tmp_path: Path) -> None:
    plant(tmp_path, 12, name="a) R 2 (b", state="S")
    assert seen(tmp_path) == {12: ("a) R 2 (b", "S")}


def test_the_kernel_s_threads_are_left_out_but_for_their_parent(tmp_path: Path) -> None:
    plant(tmp_path, 2, name="kthreadd", state="S", flags=0x00200000)
    plant(tmp_path, 30, name="kworker/0:1", state="D", flags=0x04208060)
    plant(tmp_path, 40, name="bash", state="S", flags=0x00400000)
    assert seen(tmp_path) == {2: ("kthreadd", "S"), 40: ("bash", "S")}


def test_only_a_process_that_never_ran_is_stuck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(tmp_path, 1, name="stuck", state="D")
    plant(tmp_path, 2, name="reader", state="D")
    plant(tmp_path, 3, name="woken", state="D")
    plant(tmp_path, 4, name="gone", state="D")

    def meanwhile(_: float) -> None:
        plant(tmp_path, 2, name="reader", state="D", switches=8)
        plant(tmp_path, 3, name="woken", state="S")
        for file in (tmp_path / "4").iterdir():
            file.unlink()

    monkeypatch.setattr("nodecheck.sources.process.time.sleep", meanwhile)
    assert seen(tmp_path) == {1: ("stuck", "D"), 2: ("reader", "R"), 3: ("woken", "S")}


def test_nothing_to_see_is_an_answer_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "12").mkdir()
    (tmp_path / "13").mkdir()
    (tmp_path / "13/stat").write_text("nonsense")
    answer = process._processes(tmp_path)
    assert isinstance(answer, Absent)
    assert answer.why is Why.not_present


@pytest.mark.parametrize(
    "stored",
    [5, "x", None, [], [["a", "b"]], {"a": 1}, [[1, "x", "S", "more"]], [None], [["one", "x", "S"]], True],
)
def test_recorded_nonsense_is_failed_not_raised(stored: object) -> None:
    questions = (
        "environment", "limits", "uname", "user_id", "groups", "cpus", "clock_synchronized", "processes",
    )  # fmt: skip
    p = Process(Recorded({question: {"value": stored} for question in questions}))
    answers = (
        p.environment(), p.limits(), p.uname(), p.user_id(), p.groups(), p.cpus(), p.clock_synchronized(),
        p.processes(),
    )  # fmt: skip
    for answer in answers:
        assert not isinstance(answer, Absent) or answer.why is Why.failed

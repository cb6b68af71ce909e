"""The short-lived process beside a worker, whose log is read."""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import nodecheck.measure
from nodecheck.measure.transport import MARK, read
from tests.measure.workers.ranks import free_port


def load(name: str) -> ModuleType:
    path = Path(nodecheck.measure.__file__).parent / "workers" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"under_test_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


stage = load("stage_transport")


def python(program: str, seconds: float = 20) -> str:
    log = stage.logged([sys.executable, "-c", program], dict(os.environ), seconds)
    assert isinstance(log, str)
    return log


def test_everything_written_is_the_log() -> None:
    log = python("import sys; print('out', flush=True); sys.stderr.write('err\\n' + 'x' * 300000)")
    assert log.startswith("out\nerr\n") and len(log) == 300008


def test_a_run_that_fails_says_how() -> None:
    with pytest.raises(RuntimeError, match=r"ended with 3; its log ends: .*last words"):
        python("print('last words', flush=True); raise SystemExit(3)")


def test_a_run_that_hangs_is_killed_and_said() -> None:
    began = time.monotonic()
    with pytest.raises(RuntimeError, match=r"longer than 1 s; its log ends: .*before"):
        python("import time; print('before', flush=True); time.sleep(600)", seconds=1)
    assert time.monotonic() - began < 10


def test_bytes_that_are_no_text_do_not_matter() -> None:
    assert "�" in python("import os; os.write(1, b'\\xff\\xfe')")


def test_the_renters_settings_stay_but_for_the_debugging_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "0")
    monkeypatch.setenv("NCCL_DEBUG_FILE", "/tmp/elsewhere.%h.%p")
    monkeypatch.setenv("NCCL_DEBUG", "WARN")
    found = stage.environment({"rank": 1, "world": 4, "address": "127.0.0.1", "port": 5})
    assert found["NCCL_NVLS_ENABLE"] == "0" and found["NCCL_DEBUG"] == "INFO"
    assert "elsewhere" not in found["NCCL_DEBUG_FILE"]
    assert (found["RANK"], found["WORLD_SIZE"], found["MASTER_PORT"]) == ("1", "4", "5")


def test_a_long_log_keeps_both_ends() -> None:
    log = stage.shortened("a" * 500_000 + "b" * 500_000)
    assert len(log) < 401_000 and log[0] == "a" and log[-1] == "b"
    assert stage.shortened("short") == "short"


def test_the_cpu_needs_no_run() -> None:
    class Worker:
        backend = "cpu"

    answer = stage.run(Worker(), {})
    assert answer["backend"] == "gloo" and answer["log"] == ""


def test_ranks_of_torchrun_announce_each_collective(monkeypatch: pytest.MonkeyPatch) -> None:
    """The very process that a card's worker starts, here with gloo."""
    pytest.importorskip("torch")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    runs = [
        {"collective": "all_reduce", "size_bytes": 4096},
        {"collective": "all_to_all", "size_bytes": 65536, "dtype": "float32"},
    ]
    words = stage.command({"announce": True, "runs": runs, "timeout": 30})
    port, logs = free_port(), {}

    def rank(number: int) -> None:
        found: dict[str, Any] = {"rank": number, "world": 2, "address": "127.0.0.1", "port": port}
        logs[number] = stage.logged(words, stage.environment(found), 60)

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(logs) == {0, 1}
    marks = [line for line in logs[0].splitlines() if line.startswith(MARK)]
    assert marks == [f"{MARK}all_reduce 4096 bfloat16", f"{MARK}all_to_all 65536 float32"]
    assert '"announced": 2' in logs[0] and read(logs[0]).paths == ()

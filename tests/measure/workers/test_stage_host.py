from __future__ import annotations

import socket
import threading
import time
from typing import Any

import pytest


@pytest.fixture
def stage(worker: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    return small(worker)


def small(worker: Any) -> Any:
    stage = worker.beside("stage_host")
    stage.CPU_BYTES, stage.SMALL_REPETITIONS, stage.LAUNCH_REPETITIONS, stage.TOGETHER_SECONDS = (
        2**18,
        10,
        3,
        0.1,
    )
    return stage


def test_rows(worker: Any, stage: Any) -> None:
    answer = worker.run("host", {"together": False})
    rows = {row["measure"]: row for row in answer["rows"]}
    bandwidths = ["host.h2d", "host.d2h", "host.bidirectional"]
    assert list(rows) == [
        *bandwidths,
        "host.h2d_latency",
        "host.d2h_latency",
        "launch.latency",
        "launch.kernel",
    ]
    for measure, row in rows.items():
        assert row["unit"] == ("GB/s" if measure in bandwidths else "us")
        assert all(0 < value < 1e6 for value in row["values"])
        assert not row.get("together")
    assert rows["host.h2d"]["size_bytes"] == 2**18
    assert rows["host.h2d"]["pinned"] is False  # nothing is on the CPU
    assert rows["host.h2d_latency"]["size_bytes"] == 4096
    assert len(rows["launch.latency"]["values"]) == 3
    (check,) = answer["checks"]
    assert check["check"] == "host.data"
    assert (check["compared"], check["wrong"]) == (2 * 2**18 // 8, 0)


def test_payload(worker: Any, stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "times", lambda function, repetitions, warmup=3: [1.0] * repetitions)
    rows = worker.run("host", {"only": ["host.h2d", "host.bidirectional"]})["rows"]
    assert [(row["measure"], row["values"][0]) for row in rows] == [
        ("host.h2d", pytest.approx(2**18 / 1e9)),
        ("host.bidirectional", pytest.approx(2 * 2**18 / 1e9)),
    ]


@pytest.mark.parametrize("direction", ["to the card", "to the host"])
def test_wrong_word(worker: Any, stage: Any, monkeypatch: pytest.MonkeyPatch, direction: str) -> None:
    name = "up" if direction == "to the card" else "down"
    copy = getattr(stage.Buffers, name)

    def wrong(self: Any) -> None:
        copy(self)
        (self.up_to if name == "up" else self.down_to)[100] ^= 1 << 40

    monkeypatch.setattr(stage.Buffers, name, wrong)
    (check,) = worker.run("host", {})["checks"]
    assert check["wrong"] == 1
    expected = 100 if name == "up" else 100 ^ (2**64 - 1)
    assert check["examples"] == [
        f"{direction}, byte 0x320: expected 0x{expected:016x}, read 0x{expected ^ 1 << 40:016x}"
    ]


def test_together(make_worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three workers, one of them late: none begins a kind of copy before all are ready."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    workers = [make_worker() for _ in range(3)]
    spans: dict[str, list[tuple[float, float]]] = {}
    answers: dict[int, Any] = {}

    def work(rank: int) -> None:
        worker = workers[rank]
        stage = small(worker)
        together = stage.together

        def noted(worker: Any, barrier: Any, measure: str, copy: Any) -> Any:
            wait = barrier.wait
            began: list[float] = []

            def waiting(name: str) -> None:
                time.sleep(0.1 * rank)
                wait(name)
                began.append(time.monotonic())

            barrier.wait = waiting
            seconds = together(worker, barrier, measure, copy)
            barrier.wait = wait
            spans.setdefault(measure, []).append((began[0], time.monotonic()))
            return seconds

        stage.together = noted
        arguments = {"together": True, "rank": rank, "world": 3, "address": "127.0.0.1", "port": port}
        answers[rank] = worker.run("host", arguments)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(answers) == [0, 1, 2]
    for answer in answers.values():
        assert [row["measure"] for row in answer["rows"]] == ["host.h2d", "host.d2h", "host.bidirectional"]
        assert all(row["together"] is True and len(row["values"]) >= 4 for row in answer["rows"])
        assert answer["checks"][0]["wrong"] == 0
    for began_and_ended in spans.values():
        began = [span[0] for span in began_and_ended]
        ended = [span[1] for span in began_and_ended]
        assert max(began) < min(ended)
        assert max(began) - min(began) < 0.08


def test_another_try_takes_other_memory(worker: Any, stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []
    buffers = stage.Buffers
    empty = worker.torch.empty

    def counting(count: int, **words: Any) -> Any:
        held.append(count)
        return empty(count, **words)

    def made(*arguments: Any) -> Any:
        assert held == [2 * stage.CPU_BYTES] * 2  # before the buffers of this try are made
        return buffers(*arguments)

    monkeypatch.setattr(worker.torch, "empty", counting)
    monkeypatch.setattr(stage, "Buffers", made)
    assert worker.run("host", {"together": False, "only": ["host.h2d"], "attempt": 3})["rows"]

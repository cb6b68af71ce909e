from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def stage(worker: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    stage = worker.beside("stage_hbm")
    monkeypatch.setattr(stage, "CPU_BYTES", 2**20)
    return stage


def test_rows(worker: Any, stage: Any) -> None:
    rows = {row["measure"]: row for row in worker.run("hbm", {})["rows"]}
    assert list(rows) == ["hbm.copy", "hbm.copy_payload", "hbm.read", "hbm.write", "hbm.triad"]
    for row in rows.values():
        assert row["unit"] == "GB/s"
        assert row["size_bytes"] == 2**20
        assert len(row["values"]) == stage.CPU_REPETITIONS
        assert all(0 < value < 1e5 for value in row["values"])
    assert rows["hbm.copy_payload"]["values"] == [value / 2 for value in rows["hbm.copy"]["values"]]


def test_only(worker: Any, stage: Any) -> None:
    rows = worker.run("hbm", {"only": ["hbm.triad"]})["rows"]
    assert [row["measure"] for row in rows] == ["hbm.triad"]


def test_traffic_is_what_moves(worker: Any, stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a second for everything, the figure is the bytes that were read and written."""

    def times(function: Any, repetitions: int, warmup: int = 3) -> list[float]:
        function()
        return [1.0] * repetitions

    monkeypatch.setattr(worker, "times", times)
    moved = {row["measure"]: row["values"][0] * 1e9 / 2**20 for row in worker.run("hbm", {})["rows"]}
    expected = {"hbm.copy": 2, "hbm.copy_payload": 1, "hbm.read": 1, "hbm.write": 1, "hbm.triad": 3}
    assert moved == pytest.approx(expected)


@pytest.mark.parametrize(
    ("free", "size"), [(139 * 2**30, 4 * 2**30), (16 * 2**30, 4 * 2**30), (8 * 2**30, 2 * 2**30)]
)
def test_smaller_on_a_small_card(
    worker: Any, stage: Any, monkeypatch: pytest.MonkeyPatch, free: int, size: int
) -> None:
    monkeypatch.setattr(worker, "backend", "cuda")
    monkeypatch.setattr(worker.torch.cuda, "mem_get_info", lambda device: (free, 140 * 2**30))
    monkeypatch.setattr(worker.torch.cuda, "empty_cache", lambda: None)
    assert stage.buffer_bytes(worker) == size

"""A real worker on the CPU, in this process, for the tests of stages."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

WORKERS = Path(__file__).parents[3] / "nodecheck" / "measure" / "workers"


@pytest.fixture(scope="session")
def worker_program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("worker_under_test", WORKERS / "worker.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def make_worker(worker_program: ModuleType) -> Callable[[], Any]:
    """Workers that have started on the CPU; what they say is in `said`."""
    pytest.importorskip("torch")

    def make() -> Any:
        said: list[dict[str, Any]] = []
        worker = worker_program.Worker(said.append)
        worker.start({"card": "cpu0", "cards": ["cpu0"]})
        worker.said = said
        return worker

    return make


@pytest.fixture
def worker(make_worker: Callable[[], Any]) -> Any:
    return make_worker()

"""Surveys of made-up nodes: the live source, its children, the real pynvml, and a stand-in for the library."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from nodecheck.facts import Absent, Maybe
from nodecheck.sources.channel import Json, decode, encode
from nodecheck.sources.nvml import Nvml, Survey, live
from tests.fakes import nvml

needs_compiler = pytest.mark.skipif(not nvml.compiler(), reason="no C compiler here")


def survey(
    description: nvml.Description, *, silence_seconds: float = 20.0, deadline_seconds: float = 40.0
) -> Maybe[Survey]:
    """What NVML says on the described node."""
    with standing_in(description):
        return Nvml(live(silence_seconds, deadline_seconds)).survey()


def answers(product: str, count: int, *, virtual: bool = False) -> dict[str, Json]:
    """The raw answers of a healthy node: a copy, to plant faults in."""
    return dict(_answers(product, count, virtual))


def healthy(product: str, count: int, *, virtual: bool = False) -> Survey:
    return Survey(answers(product, count, virtual=virtual))


@cache
def _answers(product: str, count: int, virtual: bool) -> dict[str, Json]:
    with standing_in(nvml.describe(product, count, virtual=virtual)):
        told = live(20.0, 40.0).ask("survey")
    assert isinstance(told, dict), told
    return told


@contextmanager
def standing_in(description: nvml.Description) -> Iterator[None]:
    """While it lasts, children of this process find the stand-in where NVML would be."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "node.json"
        nvml.write(description, path)
        before = dict(os.environ)
        os.environ.update(nvml.environment(path))
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


def replace(calls: dict[str, Json], where: Callable[[str], bool], answer: object) -> dict[str, Json]:
    """The raw answers with every question that `where` picks answered by `answer`, a value or an Absent."""
    stored = encode(answer) if isinstance(answer, Absent) else {"value": answer}
    assert decode(stored) == answer
    return {question: stored if where(question) else told for question, told in calls.items()}

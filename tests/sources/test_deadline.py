from __future__ import annotations

import threading
import time

import pytest

from nodecheck.facts import Absent, Why
from nodecheck.sources.deadline import beside, within


def test_a_prompt_call_gives_its_value_and_its_exception() -> None:
    assert within(10, lambda: 42) == 42
    with pytest.raises(ZeroDivisionError):
        within(10, lambda: 1 // 0)


def test_a_call_that_hangs_is_abandoned_and_its_late_value_is_handed_over() -> None:
    release = threading.Event()
    late: list[str] = []

    def hang() -> str:
        release.wait(30)
        return "after all"

    began = time.monotonic()
    answer = within(0.2, hang, late=late.append)
    assert time.monotonic() - began < 2
    assert isinstance(answer, Absent)
    assert answer.why is Why.timed_out
    assert late == []
    release.set()
    ends = time.monotonic() + 5
    while not late and time.monotonic() < ends:
        time.sleep(0.01)
    assert late == ["after all"]


def test_a_call_beside_gives_its_value_or_raises_where_it_is_asked() -> None:
    ready = threading.Event()
    waiting = beside(lambda: ready.wait(20))
    assert not waiting.done()
    ready.set()
    assert waiting.result(20) is True
    broken = beside(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        broken.result(20)


def test_a_call_beside_is_made_here_where_there_is_no_thread_to_be_had(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert beside(threading.get_ident).result(0) == threading.get_ident()

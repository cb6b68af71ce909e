"""A call that may hang, made where it can be left behind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from nodecheck.facts import Absent, Maybe, Why

T = TypeVar("T")


def within(seconds: float, call: Callable[[], T], late: Callable[[T], None] | None = None) -> Maybe[T]:
    """What `call` returns, or `timed_out` if it has not returned after `seconds`.

    The call runs in a daemon thread. A thread that is stuck in the kernel cannot be ended from outside, so it
    is abandoned: it holds up neither this call nor the end of the program. Should it return after all, `late`
    gets its value (to close what it opened). An exception of `call` is raised here.
    """
    answers: list[T] = []
    errors: list[BaseException] = []
    lock = threading.Lock()
    done = threading.Event()
    abandoned = False

    def body() -> None:
        try:
            value = call()
        except BaseException as error:  # carried over to the caller, whatever it is
            errors.append(error)
        else:
            with lock:
                too_late = abandoned
                answers.append(value)
            if too_late and late is not None:
                late(value)
        done.set()

    try:
        threading.Thread(target=body, name="within", daemon=True).start()
    except RuntimeError as error:  # the process limit is reached
        return Absent(why=Why.failed, detail=str(error))
    try:
        done.wait(seconds)
    except BaseException:  # interrupted
        with lock:
            abandoned = True
        if answers and late is not None:
            late(answers[0])
        raise
    with lock:
        abandoned = not answers
    if errors:
        raise errors[0]
    if abandoned:
        return Absent(why=Why.timed_out, detail=f"no answer within {seconds:g} s")
    return answers[0]


def beside(call: Callable[[], T]) -> Future[T]:
    """Start a call in a thread of its own; `.result()` waits for what it returns or raises.

    Unlike an executor's, the thread is a daemon: nobody has to wait for it where the program is interrupted.
    """
    future: Future[T] = Future()

    def body() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # carried over to whoever asks
            future.set_exception(error)

    try:
        threading.Thread(target=body, name="beside", daemon=True).start()
    except RuntimeError:  # the process limit is reached: then one after the other
        body()
    return future

"""How raw answers travel: one question in, one answer out, whether the node is here or in a recording.

Every source (`files`, `process`, `commands`, `nvml`, `interpreter`, `workers`) is a typed front on a `Channel`. The
live channel asks the machine, the recorded one looks the answer up, the recording one asks and writes down. So a
recording holds exactly what the probes asked for, and the probes cannot tell the two apart.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from nodecheck.facts import Absent, Why

Json = Any
"""What `json` can write: None, bool, int, float, str, list, dict."""

Answer = Json | Absent
"""A JSON value, or why there is none."""

Answers = Mapping[str, Mapping[str, Json]]
"""Question → encoded answer, for each source's name."""


class Channel(Protocol):
    """Somewhere answers come from."""

    def ask(self, question: str) -> Answer:
        """The answer to `question`; never raises for something the node did."""


class Live:
    """Answers from this machine."""

    def __init__(self, answer: Callable[[str], Answer]) -> None:
        self._answer = answer

    def ask(self, question: str) -> Answer:
        return self._answer(question)


class Recorded:
    """Answers from a recording; what it does not hold was not asked."""

    def __init__(self, answers: Mapping[str, Json]) -> None:
        self._answers = answers

    def ask(self, question: str) -> Answer:
        if question not in self._answers:
            return Absent(why=Why.not_asked, detail="the recording does not hold this")
        return decode(self._answers[question])


class Recorder:
    """Asks `inner` and keeps what it said, each question once; safe to use from several threads."""

    def __init__(self, inner: Channel) -> None:
        self._inner = inner
        self._lock = threading.Lock()
        self.answers: dict[str, Json] = {}

    def ask(self, question: str) -> Answer:
        answer = self._inner.ask(question)
        with self._lock:
            self.answers[question] = encode(answer)
        return answer


def encode(answer: Answer) -> Json:
    """The answer as JSON: `{"value": …}` or `{"absent": why, "detail": …}`."""
    if isinstance(answer, Absent):
        return {"absent": answer.why.value, "detail": answer.detail}
    return {"value": answer}


def decode(stored: Json) -> Answer:
    """The inverse of `encode`; anything else is an answer that failed."""
    if isinstance(stored, dict):
        if "value" in stored:
            return stored["value"]
        why = stored.get("absent")
        if isinstance(why, str) and why in Why.__members__:
            return Absent(why=Why(why), detail=str(stored.get("detail", "")))
    return Absent(why=Why.failed, detail="the recording is damaged here")

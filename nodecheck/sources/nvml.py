"""NVML through `pynvml`, called in child processes with a deadline: a dying card can hang or crash any call.

Each card has a child of its own: a card that hangs takes only itself along, and eight cards do not take eight
times as long, for the library serves one thread at a time.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nodecheck.facts import BROKE_DOWN, GIVEN_UP, OWN_FAULT, Absent, Maybe, Why
from nodecheck.sources import child
from nodecheck.sources.channel import Answer, Channel, Json, Live, decode, encode
from nodecheck.sources.deadline import beside
from nodecheck.sources.nvml_child import INIT, MAX_CARDS

SILENCE_SECONDS = 10.0
"""How long NVML may take over one call. Bringing a card up without persistence mode takes up to about 4 s."""

DEADLINE_SECONDS = 60.0
"""How long the whole survey may take, restarts after a hang included."""

_OF_NO_CARD = ("nvmlGetExcludedDeviceInfoByIndex",)
_OF_PAIRS = ("nvmlDeviceGetTopologyCommonAncestor", "nvmlDeviceGetP2PStatus")


class Survey:
    """The answers to one round of NVML calls.

    A call's key is the function, the device index or indices it was asked of, and its further arguments:
    `nvmlDeviceGetName(0)`, `nvmlDeviceGetNvLinkState(0,17)`,
    `nvmlDeviceGetP2PStatus(0,1,NVML_P2P_CAPS_INDEX_READ)`, `nvmlDeviceGetFieldValues(0,230)` or, for a field
    of one link, `nvmlDeviceGetFieldValues(0,164,17)`.
    `nodecheck/sources/nvml_child.py` holds the list of what is asked.
    """

    def __init__(self, calls: dict[str, Any]) -> None:
        self._calls = calls

    def get(self, function: str, *arguments: object) -> Answer:
        """What the call returned as JSON (structs are objects, field name → value), or why it did not.

        NVMLError_NotSupported becomes `not_supported`, NoPermission `no_permission`, a call that was cut off
        `timed_out`, FunctionNotFound and LibraryNotFound `not_present`, any other error `failed`; `detail`
        names the NVML error and its number. What was no longer asked because the card was refused or hung
        gets that reason; a call that the survey does not hold otherwise is `not_asked`.
        """
        key = f"{function}({','.join(map(str, arguments))})"
        cards = () if function in _OF_NO_CARD else arguments[: 2 if function in _OF_PAIRS else 1]
        for name in (key, *(f"card({card})" for card in cards), "rest()"):
            if name in self._calls:
                return decode(self._calls[name])
        return Absent(why=Why.not_asked, detail=key)

    @property
    def seconds(self) -> Maybe[float]:
        """How long the survey took."""
        answer = self.get("survey")
        return answer if isinstance(answer, (float, Absent)) else _nonsense(answer)


def error_number(absent: Absent) -> int | None:
    """NVML's number of the error (15 is GPU_IS_LOST) behind an answer, None where it was something else."""
    match = re.match(r"NVML_ERROR\w* \((\d+)\)", absent.detail)
    return int(match[1]) if match else None


class Nvml:
    """The typed front of the NVML channel."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def survey(self) -> Maybe[Survey]:
        """Every call that the probes use, in one round; absent where NVML could not be started at all."""
        return self._round("survey")

    def glance(self) -> Maybe[Survey]:
        """The same at the least cost: one process for all cards, nothing about pairs, no check of the InfoROM."""
        return self._round("glance")

    def _round(self, question: str) -> Maybe[Survey]:
        answer = self._channel.ask(question)
        if isinstance(answer, Absent):
            return answer
        return Survey(answer) if isinstance(answer, dict) else _nonsense(answer)


def live(silence_seconds: float = SILENCE_SECONDS, deadline_seconds: float = DEADLINE_SECONDS) -> Live:
    """NVML of this machine.

    A call without an answer for `silence_seconds` is given up, and its card with it. After `deadline_seconds`
    everything still open is.
    """

    rounds = {"survey": _survey, "glance": _glance}

    def answer(question: str) -> Answer:
        if question not in rounds:
            return Absent(why=Why.failed, detail=f"no such question: {question}")
        if find_spec("pynvml") is None:
            return Absent(why=Why.not_present, detail="the Python package nvidia-ml-py is not installed")
        began = time.monotonic()
        calls = rounds[question](silence_seconds, began + deadline_seconds)
        if "absent" in calls[INIT]:
            return decode(calls[INIT])
        calls["survey()"] = encode(time.monotonic() - began)
        return calls

    return Live(answer)


def _glance(silence_seconds: float, ends: float) -> dict[str, Json]:
    return _ask({"system": True, "cards": None, "glance": True}, silence_seconds, ends)


def _survey(silence_seconds: float, ends: float) -> dict[str, Json]:
    calls = _ask({"system": True}, silence_seconds, ends)
    cards = _cards(calls)
    parts: list[dict[str, Any]] = [{"cards": [i]} for i in cards]
    if len(cards) > 1:
        parts.insert(0, {"pairs": cards})
    asked = [beside(partial(_ask, part, silence_seconds, ends)) for part in parts]
    for told in [answers.result() for answers in asked]:
        # Later ones win: what a card's own child heard of it goes before what the pairs' child heard.
        calls.update(told)
    return calls


def _cards(calls: dict[str, Json]) -> list[int]:
    """The driver's numbers of its cards."""
    return list(range(min(calls.get("nvmlDeviceGetCount()", {}).get("value", 0), MAX_CARDS)))


def _ask(part: dict[str, Any], silence_seconds: float, ends: float) -> dict[str, Json]:
    """The answers to one part of the survey, with a reason for whatever has none.

    `part`: `system`, `cards` (None: all there are), `pairs`, and whether it is a `glance`. A child that hangs or
    crashes is followed by one that leaves out the card or the question.
    """
    program = str(Path(__file__).with_name("nvml_child.py"))
    order = {
        "path": [str(folder) for folder in sys.path if folder],
        "system": False,
        "cards": [],
        "pairs": [],
        "glance": False,
        "avoid": {},
        **part,
    }
    calls: dict[str, Json] = {}
    while True:
        said = child.collect(
            [sys.executable, "-I", "-S", program, json.dumps(order)],
            deadline_seconds=max(ends - time.monotonic(), 0.1),
            silence_seconds=silence_seconds,
        )
        heard = _Heard({}, [], [], False) if isinstance(said, Absent) else _read(said.stdout)
        calls.update(heard.told)
        if heard.done:
            return calls
        if order["cards"] is None:
            order["cards"] = _cards(calls)
        reason = _not_started(said) if isinstance(said, Absent) else _why_stopped(said, heard.questions)
        calls.update((question, encode(reason)) for question in heard.questions)
        if INIT not in calls:
            calls[INIT] = encode(reason)
        started = "value" in calls[INIT]
        killed = not isinstance(said, Absent) and said.returncode == -signal.SIGKILL  # by us or by the kernel
        if not started or not heard.questions or killed or time.monotonic() >= ends:
            reason = reason if started else decode(calls[INIT])
            calls.update((f"card({i})", encode(reason)) for i in order["cards"])
            return calls if order["cards"] else {**calls, "rest()": encode(reason)}
        if not heard.cards:
            order["avoid"].update((question, encode(reason)) for question in heard.questions)
            continue
        given_up = Absent(why=reason.why, detail=f"{reason.detail}; {GIVEN_UP}")
        calls.update((f"card({i})", encode(given_up)) for i in heard.cards)
        order["cards"] = [i for i in order["cards"] if i not in heard.cards]
        order["pairs"] = [i for i in order["pairs"] if i not in heard.cards]
        if not order["cards"] and len(order["pairs"]) < 2:
            return calls


@dataclass(frozen=True)
class _Heard:
    """What one child said."""

    told: dict[str, Json]
    questions: list[str]
    """What was asked last and never answered,"""
    cards: list[int]
    """and the cards it was asked of."""
    done: bool


def _read(text: str) -> _Heard:
    told: dict[str, Json] = {}
    questions: list[str] = []
    cards: list[int] = []
    done = False
    for line in text.splitlines():
        said = _line(line)
        told |= said.get("told", {})
        questions, cards = said.get("asking", questions), said.get("cards", cards)
        done = done or said.get("done", False)
    if told.keys() >= set(questions):
        questions, cards = [], []
    return _Heard(told, questions, cards, done)


def _line(text: str) -> dict[str, Any]:
    try:
        said = json.loads(text)
    except ValueError:
        return {}  # cut off while it was written
    return said if isinstance(said, dict) else {}


def _not_started(absent: Absent) -> Absent:
    """No process or thread to be had says nothing of the driver."""
    if absent.why is not Why.failed:
        return absent
    return Absent(why=Why.failed, detail=f"{OWN_FAULT}{absent.detail}")


def _why_stopped(said: child.Transcript, questions: list[str]) -> Absent:
    asked = questions[0] if questions else "NVML"
    if said.returncode is None:
        return Absent(why=Why.timed_out, detail=f"{asked} did not come back ({said.cut_off})")
    if said.returncode < 0:
        name = child.signal_name(-said.returncode)
        return Absent(why=Why.failed, detail=f"{asked} {BROKE_DOWN} ({name})")
    last = said.stderr.strip().rsplit("\n", 1)[-1][-200:]
    return Absent(why=Why.failed, detail=f"{asked} {BROKE_DOWN} (code {said.returncode}: {last})")


def _nonsense(answer: Json) -> Absent:
    return Absent(why=Why.failed, detail=f"an answer of another shape: {str(answer)[:80]}")

"""The live crew: one worker a card in the renter's interpreter, and beside each a sampler of its card.

A worker that errs, hangs or dies is ended, and started anew for the next stage that wants its card: after an error a
CUDA context may be of no more use, nor is a group that not all have left. So is one that answers, and says that it is
`spent`. Where a worker cannot even start, its card
is asked nothing more.

Two stages have processes of their own beside the worker (`_APART`): one that needs no card, and one in which NCCL is
to tell everything, which it decides once in a process.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from nodecheck.facts import Absent, Why
from nodecheck.sources.channel import Answer, Json
from nodecheck.sources.child import signal_name
from nodecheck.sources.companion import LOG_BYTES, Companion
from nodecheck.sources.visible import by_address, of_amd, showing

PROGRAM = Path(__file__).parents[1] / "measure" / "workers" / "worker.py"

OnProgress = Callable[[str, str, float, str], None]
"""Stage, card, fraction (0 … 1), the last figure in words; called from the workers' threads."""

DEADLINE_SECONDS = 120.0
"""Of a request that names none; importing torch from a network disk takes up to a minute."""

PATIENCE_SECONDS = 2.0
"""What the other ranks of a group get once one has died or erred: what they wait for never comes."""

GOODBYE_SECONDS = 2.0
"""How long a worker that was ended is waited for, so that its card's memory is free for the next one."""

SAMPLE_SECONDS = 0.075
"""Between two samples of a card; NVML's own power reading is an average over 25 ms or more."""
MOST_SAMPLES = 2000
"""Of one card in one stage: the whole of it is kept, but thinned."""

TAIL_BYTES = 4000
"""How much of the end of the log goes with an error."""

TOLD_CHARACTERS = 400_000
"""Of a log that is an answer: NCCL 2.28 writes some 100 KB a rank."""


@dataclass(frozen=True)
class _Role:
    """What a process is for."""

    name: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Set beside those that the request sets."""
    starts: bool = True
    """It imports torch and makes a context first."""
    log: bool = False
    """What it prints is its answer, or a part of it."""


_MEASURES = _Role()
_APART = {
    "storage": _Role("storage", starts=False),
    "transport": _Role(
        "transport",
        {
            "NCCL_DEBUG": "INFO",
            "NCCL_DEBUG_SUBSYS": "INIT,ENV,GRAPH,TUNING,NET,P2P,SHM",
            # Not stdout: NCCL does not flush it, and a crash would lose its last words.
            "NCCL_DEBUG_FILE": "/proc/self/fd/2",
        },
        log=True,
    ),
}
"""By stage."""

_STACKS_SECONDS = 1.0
_HIDDEN = {"CUDA_VISIBLE_DEVICES": "-1", "HIP_VISIBLE_DEVICES": "-1"}

_crews: weakref.WeakSet[Crew] = weakref.WeakSet()


def end_all() -> None:
    """End every worker there is and start none any more (the user interrupted us)."""
    for crew in list(_crews):
        crew.end(for_good=True)


class _Hand:
    """A worker, and the request that it has; `crew.changed` guards what stands here."""

    def __init__(
        self, crew: Crew, card: str, role: _Role, argv: list[str], variables: dict[str, str]
    ) -> None:
        """Raises what `Companion` raises."""
        self.card = card
        self.role = role
        self.variables = variables
        self.started = False
        """It was asked to start."""
        self._crew = crew
        self._request = 0
        self._mark = 0
        self._on_progress: Callable[[float, str], None] = lambda _fraction, _figure: None
        self.step = ""
        self.result: dict[str, Json] | None = {}
        """What the last request came to, `{"answer": …}` or `{"error": …}`; None while it is open."""
        self.companion = Companion(argv, {**os.environ, **variables}, self._heard, self._ended)

    def ask(self, stage: str, arguments: Mapping[str, Json], on_progress: OnProgress | None) -> None:
        with self._crew.changed:
            self._request += 1
            self._mark = self.companion.log.total
            self.step, self.result = "", None
            if on_progress is not None:
                self._on_progress = lambda fraction, figure: on_progress(stage, self.card, fraction, figure)
            if self.companion.gone.is_set():
                self.result = {"error": self.death()}
        self.companion.ask({"id": self._request, "stage": stage, "arguments": dict(arguments)})

    @property
    def alive(self) -> bool:
        return not self.companion.gone.is_set()

    def log(self, limit_bytes: int = TAIL_BYTES) -> str:
        """What it printed since it was asked."""
        return self.companion.log.since(self._mark, limit_bytes)

    def death(self) -> dict[str, Json]:
        code = self.companion.returncode
        error: dict[str, Json] = {"type": "died", "step": self.step, "log": self.log()}
        if code is None:
            return {**error, "type": "not_started", "message": self.companion.failure}
        if code < 0:
            name = signal_name(-code)
            return {**error, "message": f"its worker was ended by {name}", "signal": name}
        return {**error, "message": f"its worker ended with status {code}"}

    def _heard(self, said: dict[str, Json]) -> None:
        if said.get("id") != self._request:
            return
        with self._crew.changed:
            if "step" in said:
                self.step = str(said["step"])[:200]
            elif isinstance(said.get("answer"), dict):
                self.result = {"answer": _finite(said["answer"])}
            elif isinstance(said.get("error"), dict):
                self.result = {"error": {**said["error"], "step": self.step, "log": self.log()}}
            if self.result is not None:
                self._crew.changed.notify_all()
        progress = said.get("progress")
        if isinstance(progress, dict):
            fraction, figure = progress.get("fraction"), progress.get("figure", "")
            if isinstance(fraction, (int, float)):
                with contextlib.suppress(Exception):  # a display that fails costs no figure
                    self._on_progress(min(max(float(fraction), 0.0), 1.0), str(figure)[:200])

    def _ended(self) -> None:
        with self._crew.changed:
            if self.result is None:
                self.result = {"error": self.death()}
            self._crew.changed.notify_all()


class _Sampler:
    """What NVML, or sysfs, says of a card, from the stage's beginning on."""

    def __init__(self, program: str, order: dict[str, Json]) -> None:
        """Raises what `Companion` raises."""
        self._lock = threading.Lock()
        self._samples: list[tuple[float, list[Json]]] = []
        self._every = 1
        self._count = 0
        order = {**order, "every_seconds": SAMPLE_SECONDS}
        argv = [sys.executable, "-I", "-S", str(Path(__file__).with_name(program)), json.dumps(order)]
        self.companion = Companion(argv, None, self._heard, lambda: None)

    def begin(self) -> None:
        with self._lock:
            self._samples, self._every, self._count = [], 1, 0

    def since(self, began: float) -> list[Json]:
        """The samples since `began` (monotonic), as `[seconds since then, …]`."""
        with self._lock:
            return [[round(at - began, 3), *row] for at, row in self._samples if at >= began]

    def _heard(self, said: dict[str, Json]) -> None:
        at, row = said.get("at"), said.get("sample")
        if not isinstance(at, float) or not isinstance(row, list):
            return
        with self._lock:
            self._count += 1
            if self._count % self._every == 0:
                self._samples.append((at, row))
            if len(self._samples) >= MOST_SAMPLES:
                del self._samples[::2]
                self._every *= 2


class Crew:
    """Answers questions of `nodecheck.sources.workers.Workers`; may be asked of several cards from several threads."""

    def __init__(
        self, on_progress: OnProgress | None = None, program: Path = PROGRAM, sysfs: Path = Path("/sys")
    ) -> None:
        """`program` is the worker; its stages lie beside it."""
        self._on_progress = on_progress
        self._program = program
        self._sysfs = sysfs
        self.changed = threading.Condition()
        self._python = ""
        self._start: dict[str, dict[str, Json]] = {}
        """What each card's worker is started with,"""
        self._environment: dict[str, dict[str, str]] = {}
        """and what is set for it beside the renter's own environment."""
        self._start_seconds = DEADLINE_SECONDS
        self._begun: tuple[str, Answer] | None = None
        """The last `start`, and what came of it."""
        self._hands: dict[tuple[str, str], _Hand] = {}
        """By card and role."""
        self._samplers: dict[str, _Sampler] = {}
        self._refused: dict[str, Json] = {}
        """Why a card's worker could not start."""
        self._over = False
        _crews.add(self)

    def answer(self, question: str) -> Answer:
        """See `Workers.run`."""
        stage, _, text = question.partition(" ")
        try:
            arguments = json.loads(text)
            cards = [str(card) for card in arguments.pop("cards")]
            deadline_seconds = float(arguments.pop("deadline_seconds", DEADLINE_SECONDS))
            each = arguments.pop("each", {})
            log = bool(arguments.pop("log", False))
            variables = _texts(arguments.pop("environment", None))
            asked = {card: {**arguments, **each.get(card, {})} for card in cards}
            for own in asked.values():
                own["environment"] = {**variables, **_texts(own.get("environment"))}
        except (ValueError, TypeError, KeyError, AttributeError):
            return Absent(why=Why.failed, detail=f"no such question: {question[:80]}")
        try:
            if stage == "end":
                self.end()
                return {"answers": {}, "errors": {}, "seconds": 0.0, "samples": {}}
            if stage == "start":
                if self._begun is None or self._begun[0] != question:
                    self._begun = (question, self._begin(asked, deadline_seconds))
                return self._begun[1]
            return self._run(stage, asked, deadline_seconds, log)
        except BaseException:  # interrupted
            self.end()
            raise

    def end(self, for_good: bool = False) -> None:
        """End all workers and samplers; waits for them for a moment, and leaves behind what does not end."""
        self._over = self._over or for_good
        hands, samplers = list(self._hands.values()), list(self._samplers.values())
        self._begun = None
        self._hands.clear()
        self._samplers.clear()
        _dismiss([*(hand.companion for hand in hands), *(sampler.companion for sampler in samplers)])

    def _begin(self, asked: Mapping[str, dict[str, Json]], deadline_seconds: float) -> Answer:
        self.end()
        self._refused.clear()
        self._start_seconds = deadline_seconds
        for card, own in asked.items():
            others = {
                _device(other): other
                for other in asked
                if _device(other) != _device(card) and _alike(_device(other), _device(card))
            }
            cards = [card, *others.values()]
            cpus = own.get("cpus")
            self._start[card] = {
                "card": card,
                "cards": cards,
                "cpus": cpus.get(card) if isinstance(cpus, dict) else None,
            }
            self._environment[card] = {
                **(_HIDDEN if _on_cpu(card) else showing([_device(one) for one in cards])),
                **own["environment"],
            }
            self._python = str(own.get("python", ""))
        began = time.monotonic()
        for device in {_device(card) for card in asked}:
            self._sample(device)
        on_cards = [card for card in asked if _named(card)]
        if len(on_cards) > 1 and not self._over:
            self._prepare(_APART["transport"], on_cards)
        return self._whole(self._raise_hands(_MEASURES, {card: {} for card in asked}), began)

    def _prepare(self, role: _Role, cards: Iterable[str]) -> None:
        """Have torch imported where a group will want it, while nothing is measured yet; no context is made."""
        for card in cards:
            with contextlib.suppress(OSError, RuntimeError):  # it shows when the stage wants it
                self._hand(role, card, {}).ask("import", {}, None)

    def _sample(self, device: str) -> None:
        # Without a process or a thread to be had there are no samples.
        with contextlib.suppress(OSError, RuntimeError):
            if of_amd(device) or by_address(device):
                order: dict[str, Json] = {"card": device, "sysfs": str(self._sysfs)}
                self._samplers[device] = _Sampler("sysfs_sampler.py", order)
            elif device.startswith("GPU-") and find_spec("pynvml") is not None:
                order = {"path": [folder for folder in sys.path if folder], "uuid": device}
                self._samplers[device] = _Sampler("nvml_sampler.py", order)

    def _run(
        self, stage: str, asked: dict[str, dict[str, Json]], deadline_seconds: float, log: bool
    ) -> Answer:
        role = (
            _MEASURES if any(map(_on_cpu, asked)) and stage == "transport" else _APART.get(stage, _MEASURES)
        )
        variables = {card: own.pop("environment") for card, own in asked.items()}
        together = any("rank" in own for own in asked.values())
        started = self._raise_hands(role, variables)
        began = time.monotonic()
        results = {card: result for card, result in started.items() if "error" in result}
        if results and together:
            missing = ", ".join(results)
            for card in asked.keys() - results.keys():
                results[card] = _error("left_alone", f"not begun, since {missing} could not take part")
            return self._whole(results, began)
        sampled = {_device(card) for card in asked} & self._samplers.keys() if role.starts else set()
        for device in sampled:
            self._samplers[device].begin()
        hands = [self._hands[card, role.name] for card in asked if card not in results]
        way = {"address": "127.0.0.1", "port": _free_port()} if together else {}
        for hand in hands:
            hand.ask(stage, {**way, **asked[hand.card]}, self._on_progress)
        results.update(self._wait(hands, deadline_seconds, together))
        self._drop([hand for hand in hands if results[hand.card].get("answer", {}).get("spent")])
        return self._whole(results, began, sampled, role if log or role.log else None)

    def _raise_hands(
        self, role: _Role, variables: Mapping[str, dict[str, str]]
    ) -> dict[str, dict[str, Json]]:
        """Have a process in this role for each card, with these variables beside the renter's own; what became of
        each."""
        results: dict[str, dict[str, Json]] = {}
        fresh: list[_Hand] = []
        stale = [
            hand
            for card, extra in variables.items()
            if (hand := self._hands.get((card, role.name))) is not None
            and (not hand.alive or hand.variables != self._variables(role, card, extra))
        ]
        self._drop(stale)
        for card, extra in variables.items():
            if card in self._refused:
                results[card] = {"error": self._refused[card]}
            elif card not in self._start:
                results[card] = _error("not_started", "no worker was started for this card")
            elif self._over:
                results[card] = _error("not_started", "interrupted")
            elif not (_on_cpu(card) or _named(card)):
                self._refused[card] = _error("not_started", "its UUID is not known")["error"]
                results[card] = {"error": self._refused[card]}
            else:
                try:
                    hand = self._hand(role, card, extra)
                except (OSError, RuntimeError) as error:
                    results[card] = _error("not_started", str(error))
                    continue
                results[card] = {"answer": {}}
                if role.starts and not hand.started:
                    fresh.append(hand)
        for hand in fresh:
            hand.started = True
            hand.ask("start", self._start[hand.card], self._on_progress)
        results.update(self._wait(fresh, self._start_seconds, together=False))
        if role is _MEASURES:
            self._refused.update(
                {hand.card: results[hand.card]["error"] for hand in fresh if "error" in results[hand.card]}
            )
        return results

    def _hand(self, role: _Role, card: str, extra: Mapping[str, str]) -> _Hand:
        """The card's process in this role; a new one where there is none. Raises what `Companion` raises."""
        if (card, role.name) not in self._hands:
            argv = [self._python, str(self._program)]
            self._hands[card, role.name] = _Hand(self, card, role, argv, self._variables(role, card, extra))
        return self._hands[card, role.name]

    def _variables(self, role: _Role, card: str, extra: Mapping[str, str]) -> dict[str, str]:
        return {**self._environment[card], **extra, **role.variables}

    def _wait(self, hands: list[_Hand], seconds: float, together: bool) -> dict[str, dict[str, Json]]:
        """What the open requests come to, by card. Workers without an answer are ended, and those that erred."""
        ends = time.monotonic() + seconds
        with self.changed:
            lost = ""
            while waiting := [hand for hand in hands if hand.result is None]:
                if together and not lost:
                    lost = ", ".join(hand.card for hand in hands if hand.result and "error" in hand.result)
                    if lost:
                        ends = min(ends, time.monotonic() + PATIENCE_SECONDS)
                left = ends - time.monotonic()
                if left <= 0:
                    break
                self.changed.wait(left)
        for hand, stacks in zip(waiting, _stacks(waiting), strict=True):
            error = _error("left_alone", f"ended, since {lost} was no longer there") if lost else None
            if error is None:
                error = _error("timed_out", f"no answer within {seconds:g} s")
                error["error"]["timed_out"] = True
            error["error"].update(step=hand.step, stacks=stacks, log=hand.log())
            with self.changed:
                hand.result = hand.result or error
        results = {hand.card: hand.result or {} for hand in hands}
        self._drop([hand for hand in hands if "error" in results[hand.card]])
        return results

    def _drop(self, hands: Iterable[_Hand]) -> None:
        hands = list(hands)
        for hand in hands:
            if self._hands.get((hand.card, hand.role.name)) is hand:
                del self._hands[hand.card, hand.role.name]
        _dismiss([hand.companion for hand in hands])

    def _whole(
        self,
        results: Mapping[str, dict[str, Json]],
        began: float,
        sampled: Collection[str] = (),
        telling: _Role | None = None,
    ) -> Answer:
        """The answer to a question: with samples of the devices `sampled`, and the logs of processes in role
        `telling`."""
        answers = {card: result["answer"] for card, result in results.items() if "answer" in result}
        if telling is not None:
            for card in answers:
                if (card, telling.name) in self._hands:
                    answers[card]["log"] = _both_ends(self._hands[card, telling.name].log(LOG_BYTES))
        return {
            "answers": answers,
            "errors": {card: result["error"] for card, result in results.items() if "error" in result},
            "seconds": round(time.monotonic() - began, 3),
            "samples": {
                card: self._samplers[_device(card)].since(began)
                for card in results
                if _device(card) in sampled and _device(card) in self._samplers
            },
        }


def _device(card: str) -> str:
    """The UUID in a card's key: `UUID#2` is a further rank on the same card."""
    return card.partition("#")[0]


def _on_cpu(card: str) -> bool:
    return card.startswith("cpu")


def _named(card: str) -> bool:
    """Whether it is a card by its UUID, by which a program can be shown it, or by its address, where it finds it."""
    return card.startswith(("GPU-", "MIG-")) or by_address(_device(card))


def _alike(one: str, other: str) -> bool:
    """Whether a program can be shown both cards."""
    return (of_amd(one), by_address(one)) == (of_amd(other), by_address(other))


def _error(kind: str, message: str) -> dict[str, dict[str, Json]]:
    return {"error": {"type": kind, "message": message}}


def _both_ends(log: str) -> str:
    """Of a long one: its start names versions and ways, its end algorithms."""
    half = TOLD_CHARACTERS // 2
    return log if len(log) <= 2 * half else f"{log[:half]}\n…\n{log[-half:]}"


def _texts(variables: Json) -> dict[str, str]:
    return {str(name): str(value) for name, value in variables.items()} if isinstance(variables, dict) else {}


def _dismiss(companions: list[Companion]) -> None:
    """End them, and give them a moment to be gone."""
    for companion in companions:
        companion.kill()
    ends = time.monotonic() + GOODBYE_SECONDS
    for companion in companions:
        companion.gone.wait(max(ends - time.monotonic(), 0))


def _stacks(hands: list[_Hand]) -> list[list[str]]:
    """Of each hand, where its threads stand now; one that has said nothing yet could not tell."""
    marks = [hand.companion.log.total for hand in hands]
    for hand in hands:
        if hand.step:
            hand.companion.signal(signal.SIGUSR1)
    ends = time.monotonic() + (_STACKS_SECONDS if any(hand.step for hand in hands) else 0)
    sizes: list[int] = []
    while time.monotonic() < ends:
        time.sleep(0.1)
        before, sizes = sizes, [hand.companion.log.total for hand in hands]
        if before == sizes and all(size > mark for size, mark in zip(sizes, marks, strict=True)):
            break
    texts = [hand.companion.log.since(mark, 64 * 1024) for hand, mark in zip(hands, marks, strict=True)]
    return [[text] if text else [] for text in texts]


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _finite(value: Json) -> Json:
    """Without numbers that JSON has no word for (1e999 is read as one): None in their place."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    return value

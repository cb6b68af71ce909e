"""Workers that answer as the real ones do, without a process or a card: figures of a healthy node, and faults.

    crew = FakeWorkers(profile, cards)              # cards: `Card.key`s; none for a machine without
    crew.slow["hbm", cards[2]] = 0.9                # everything of that stage and card (or measure and card)
    crew.errors["memory", cards[0]] = {"type": "TimeoutError", "message": "…", "timed_out": True, "stacks": "…"}
    crew.wrong["pairs.data", cards[1]] = 3          # elements that a check finds wrong
    crew.odd.add(cards[3])                          # its products are of other bits than its siblings'
    Workers(crew)                                   # it is a channel, and can be recorded as one

What they measure is `tests.measured.measurements`, turned back into raw answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from nodecheck.facts import Absent, Why
from nodecheck.facts.measurements import Check, Conditions, Figure, Measurements, Transport
from nodecheck.profile import Profile
from nodecheck.sources.channel import Answer
from tests.measured import measurements

SECONDS = {"start": 5.2, "context": 0.1, "memory": 0.9, "hbm": 0.3, "gemm": 2.5, "agreement": 1.0,
           "operators": 1.4, "host": 1.1, "pairs": 5.0, "collectives": 6.0, "transport": 8.0,
           "storage": 3.0}  # fmt: skip
REPETITIONS = 20
SAMPLES = [
    [0.0, 1980, 310.5, 41, 0, 5, 16],
    [0.1, 1965, 652.0, 47, 4, 5, 16],
    [0.2, 1950, 690.1, 48, 4, 5, 16],
]


@dataclass
class FakeWorkers:
    profile: Profile
    cards: tuple[str, ...]
    slow: dict[tuple[str, str], float] = field(default_factory=dict)
    """(stage or measure, card) → factor of its rates; a group is as slow as its slowest card."""
    errors: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    """(stage, card) → what the crew says instead of an answer; stage `start` too."""
    wrong: dict[tuple[str, str], int] = field(default_factory=dict)
    """(check, card) → how many elements it finds wrong."""
    contexts: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What a process of its own says of each card's context; a worker finds the same. A card that is not here is not
    tried by its worker, as it was not before workers did."""
    odd: set[str] = field(default_factory=set)
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """Every request so far: stage, and cards with the arguments."""
    _measured: Measurements | None = None

    def ask(self, question: str) -> Answer:
        stage, _, text = question.partition(" ")
        arguments = json.loads(text)
        cards = arguments.pop("cards")
        self.asked.append((stage, {"cards": cards, **arguments}))
        if stage not in SECONDS:
            return Absent(why=Why.failed, detail=f"no such stage: {stage}")
        answers, errors = {}, {}
        for rank, card in enumerate(cards):
            if (stage, card) in self.errors:
                errors[card] = self.errors[stage, card]
            elif stage == "start" and self._refused(card):
                step = self.contexts[card]["step"]
                errors[card] = {"type": "RuntimeError", "message": "refused", "step": step}
            elif stage == "start":
                answers[card] = self._started(card, arguments)
            else:
                answers[card] = self._answer(stage, card, rank, cards, arguments)
        return {
            "answers": answers,
            "errors": errors,
            "seconds": SECONDS[stage],
            "samples": {} if self._on_cpu else dict.fromkeys(cards, self._samples()),
        }

    def _samples(self) -> list[list[float | None]]:
        """No file of sysfs says why the clock of a card of AMD's is held."""
        of_amd = self.profile.vendor == "amd"
        return [[*row[:4], None if of_amd else row[4], *row[5:]] for row in SAMPLES]

    def _healthy(self) -> Measurements:
        if self._measured is None:
            self._measured = measurements(self.profile, self.cards, level="full")
        return self._measured

    @property
    def _on_cpu(self) -> bool:
        return not self.cards

    def _started(self, card: str, arguments: dict[str, Any]) -> dict[str, Any]:
        binding = arguments["cpus"].get(card) or "as found"
        return {
            "binding": binding,
            "pid": 4242,
            "python": "3.12.3",
            "torch": "2.11.0",
            "import_seconds": 2.9,
            "kernel_seconds": 0.02,
            **({"context": self._tried(card)} if card in self.contexts else {}),
        }

    def _tried(self, card: str) -> dict[str, Any]:
        return {name: self.contexts[card][name] for name in ("items", "errors", "step")}

    def _refused(self, card: str) -> bool:
        """Whether the worker comes to no end."""
        told = self.contexts.get(card)
        return told is not None and (told["step"] != "done" or told["returncode"] != 0)

    def _answer(
        self, stage: str, card: str, rank: int, cards: list[str], arguments: dict[str, Any]
    ) -> dict[str, Any]:
        healthy = self._healthy()
        found: dict[str, Any] = {
            "rows": [self._row(figure) for figure in self._figures(healthy, stage, card, cards, arguments)],
            "checks": [self._check(check) for check in self._checks(healthy, stage, card, cards, arguments)],
        }
        if stage == "context":
            found["rows"] = [
                {"measure": f"context.{name}", "unit": "s", "values": [seconds]}
                for name, seconds in (("import", 2.9), ("create", 0.31), ("kernel", 0.02))
            ]
        elif stage == "agreement":
            bits = "5eed" if card not in self.odd else "0dd1"
            found["digests"] = {f"{dtype} 4096": bits * 16 for dtype in ("bfloat16", "float32")}
        elif stage == "pairs":
            found["access"] = [{"from": own, "peer": peer, "p2p": True} for own, peer in arguments["pairs"]]
        elif stage == "transport":
            way = next(way for way in healthy.transports if way.name == "all")  # parts go the same way
            found |= {"log": _log(way), "backend": "gloo" if self._on_cpu else "nccl", "version": [2, 28, 9]}
        elif stage == "collectives" and rank > 0:
            found["checks"] = []
        return found

    def _figures(
        self, healthy: Measurements, stage: str, card: str, cards: list[str], arguments: dict[str, Any]
    ) -> Iterator[Figure]:
        for figure in healthy.figures:
            if figure.stage != stage:
                continue
            if stage == "collectives":
                fits = figure.name == arguments["group"]
                if "runs" in arguments:
                    wanted = [
                        (run["collective"], run["size_bytes"], run["dtype"]) for run in arguments["runs"]
                    ]
                    at = figure.at
                    fits = fits and (figure.measure.partition(".")[0], at.size_bytes, at.dtype) in wanted
            elif stage == "pairs":
                fits = list(figure.cards) in arguments["pairs"]
                fits = fits and figure.measure.partition(".")[2] in arguments["measures"]
            elif stage == "storage":
                fits = True
            else:
                fits = figure.cards == (card,) and figure.at.together == arguments.get("together", False)
                fits = fits and figure.at.sustained == ("sustained_seconds" in arguments)
                fits = fits and figure.measure in arguments.get("only", [figure.measure])
            if fits:
                yield figure

    def _checks(
        self, healthy: Measurements, stage: str, card: str, cards: list[str], arguments: dict[str, Any]
    ) -> Iterator[Check]:
        for check in healthy.checks:
            if check.stage != stage or check.check == "agreement.siblings":
                continue
            if stage == "collectives":
                fits = check.name == arguments["group"]
            elif stage == "pairs":
                fits = list(check.cards) in arguments["pairs"] and "one_way" in arguments["measures"]
            else:
                fits = check.cards == (card,)
            if fits:
                yield check

    def _row(self, figure: Figure) -> dict[str, Any]:
        slowest = min(
            (
                self.slow.get((name, card), 1.0)
                for name in (figure.stage, figure.measure)
                for card in (*figure.cards, *([] if figure.cards else ["disk"]))
            ),
            default=1.0,
        )
        value = figure.median / slowest if figure.unit in ("us", "s") else figure.median * slowest
        spread = (figure.p95 - figure.p5) / figure.median / 2 if figure.median else 0.0
        middle = (REPETITIONS - 1) / 2
        row = {
            "measure": figure.measure,
            "unit": figure.unit,
            "values": [value * (1 + spread * (i - middle) / middle) for i in range(REPETITIONS)],
            **_told(figure.at),
        }
        return row | _pair(figure) | ({"name": figure.name} if figure.subject == "disk" else {})

    def _check(self, check: Check) -> dict[str, Any]:
        wrong = sum(self.wrong.get((check.check, card), 0) for card in check.cards)
        told = {"check": check.check, "compared": check.compared, "wrong": wrong, **_told(check.at)}
        told |= _pair(check)
        if check.covered is not None:
            told["covered"] = check.covered
        if wrong:
            told["examples"] = [
                "address 0x7f0012345000: expected 0x0000123450000000, read 0x0000123450000400"
            ]
        return told


def _log(way: Transport) -> str:
    """What of NCCL's log is read, or of RCCL's, which also says NCCL."""
    of_amd = way.library.startswith("RCCL")
    lines = [
        f"node:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via {path}"
        + " comm 0x2ceb0ba0 nRanks 08" * of_amd
        for path in way.paths
        if path != "NVLS"
    ]
    for call, algorithm in way.algorithms:
        name, protocol = algorithm.split("/")
        size = call.split(" ")[1]
        lines.append(f"nodecheck runs {call} bfloat16")
        lines.append(f"node:1:1 [0] NCCL INFO AllReduce: {size} Bytes -> Algo {name} proto {protocol}")
    first = "RCCL version : 2.27.7-HEAD:3c1d0c9" if of_amd else "NCCL version 2.28.9+cuda13.0"
    return "\n".join((first, *lines)) + "\n"


def _pair(one: Figure | Check) -> dict[str, Any]:
    """The sender is named even where it is the own card: a worker may."""
    return {"from": one.cards[0], "peer": one.cards[1]} if one.subject == "pair" else {}


def _told(at: Conditions) -> dict[str, Any]:
    """Only what applies, as the workers say it."""
    told = {name: value for name, value in at.model_dump().items() if value is not None}
    return {name: value for name, value in told.items() if value or name in ("pinned", "in_place")}

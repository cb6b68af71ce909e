"""The renter's own Python: found, and asked by a stand-alone worker that runs inside it."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from nodecheck.facts import Absent, Maybe, Why
from nodecheck.sources import child
from nodecheck.sources.channel import Answer, Channel, Json, Live
from nodecheck.sources.deadline import beside, within
from nodecheck.sources.visible import by_address, of_amd, showing

WORKER = Path(__file__).parents[1] / "measure" / "workers" / "stack.py"
EXTENSIONS = WORKER.with_name("extensions.py")

DEADLINE_SECONDS = 120.0
"""For one worker, start to end. The first `import torch` of a boot takes about 6 s, from a network disk up to
a minute."""

FIND_SECONDS = 20.0
"""For asking one candidate whether it has torch; nothing is imported for that."""

LOG_BYTES = 8 * 1024
"""How much of the end of each of the worker's stdout and stderr is kept."""


class Interpreter:
    """Typed questions to the renter's interpreter; may be asked from several threads at a time."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def chosen(self) -> Maybe[dict[str, Json]]:
        """Which interpreter was taken: `path`, `version`, `chosen` (why), `others` (they have torch too)."""
        return self._object("chosen")

    def describe(self) -> Maybe[dict[str, Json]]:
        """What torch in that interpreter says of itself and of the devices it sees (a process of its own).

        `items`: what the worker found, by name; `errors`: why it could not find others (`type`, `message`,
        `code`); `step`: the last thing it began; `returncode`: negative where a signal ended it, None where
        it was cut off; `cut_off`: why it was; `log`: the end of what it printed; `seconds`.
        """
        return self._object("describe")

    def extensions(self) -> Maybe[dict[str, Json]]:
        """Packages with GPU code beside torch, as the item `extensions`; the answer has the shape of `describe`'s."""
        return self._object("extensions")

    def context(self, card: str) -> Maybe[dict[str, Json]]:
        """A context and one tiny kernel on the card with this UUID, or on `cpu`, in a process of its own.

        The answer has the shape of `describe`'s.
        """
        return self._object(f"context {card}")

    def _object(self, question: str) -> Maybe[dict[str, Json]]:
        answer = self._channel.ask(question)
        if isinstance(answer, (dict, Absent)):
            return answer
        return Absent(why=Why.failed, detail="an answer of another shape")


def live(
    python: str | None = None,
    *,
    deadline_seconds: float = DEADLINE_SECONDS,
    environment: Mapping[str, str] | None = None,
) -> Live:
    """An interpreter of this machine.

    `python` is a path or a name on PATH. Without it: the active environment's, then each `python3` and
    `python` on PATH, then nodecheck's own; the first that has a torch is taken. `environment` stands for the
    process's own.
    """
    return Live(
        _Renter(python, deadline_seconds, dict(os.environ if environment is None else environment)).answer
    )


@dataclass(frozen=True)
class _Candidate:
    path: str
    reason: str


class _Renter:
    """Finds the interpreter once, on the first question; each further question is a process of its own."""

    def __init__(self, python: str | None, deadline_seconds: float, environment: dict[str, str]) -> None:
        self._python = python
        self._deadline_seconds = deadline_seconds
        self._environment = environment
        self._lock = threading.Lock()
        self._chosen: Maybe[dict[str, Json]] | None = None

    def answer(self, question: str) -> Answer:
        chosen = self._choose_once()
        if question == "chosen" or isinstance(chosen, Absent):
            return chosen
        if question == "describe":
            return self._ask(chosen["path"], "describe")
        if question == "extensions":
            return self._ask(chosen["path"], program=EXTENSIONS)
        word, _, card = question.partition(" ")
        if word != "context" or not card:
            return Absent(why=Why.failed, detail=f"no such question: {question[:80]}")
        if card == "cpu":
            return self._ask(chosen["path"], "cpu")
        if by_address(card):
            return self._ask(chosen["path"], "hip", card=card)
        return self._ask(chosen["path"], "hip" if of_amd(card) else "context", showing([card]))

    def _choose_once(self) -> Maybe[dict[str, Json]]:
        with self._lock:
            if self._chosen is None:
                # Looking along PATH can hang on a dead mount.
                self._chosen = within(3 * FIND_SECONDS, self._choose)
            return self._chosen

    def _choose(self) -> Maybe[dict[str, Json]]:
        if self._python is not None:
            path = shutil.which(self._python, path=self._environment.get("PATH"))
            if path is None:
                return Absent(why=Why.not_present, detail=f"--python {self._python}: no such program")
            found = self._find(path)
            return found if isinstance(found, Absent) else _choice(found, "--python", [])

        candidates = list(self._candidates())
        asked = [beside(partial(self._find, candidate.path)) for candidate in candidates]
        answers = [answer.result() for answer in asked]
        torches: dict[tuple[Json, Json], tuple[dict[str, Json], str]] = {}
        bare: list[str] = []
        for candidate, found in zip(candidates, answers, strict=True):
            if isinstance(found, Absent):
                continue
            if found["torch"] is None:
                bare.append(candidate.reason)
            else:
                # /usr/bin/python3, /usr/bin/python and /bin/python3 are one installation.
                torches.setdefault((found["prefix"], found["torch"]), (found, candidate.reason))
        if torches:
            (first, reason), *others = torches.values()
            if ACTIVE in bare:
                reason += f" ({ACTIVE} has none)"
            return _choice(first, reason, [other["path"] for other, _ in others])
        own = answers[-1]
        return (
            own
            if isinstance(own, Absent)
            else _choice(own, f"{OWN}: no interpreter was found that has torch", [])
        )

    def _candidates(self) -> Iterator[_Candidate]:
        """Interpreters to ask, in order; nodecheck's own comes last."""
        seen = set()

        def new(path: Path) -> bool:
            # Environments are told apart by their folder: their programs are links to the same file.
            where = (path.parent.resolve(), path.resolve())
            fresh = where not in seen and path.is_file() and os.access(path, os.X_OK)
            seen.add(where)
            return fresh

        for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
            prefix = Path(self._environment.get(variable, ""))
            if prefix.is_absolute() and new(prefix / "bin" / "python"):
                yield _Candidate(str(prefix / "bin" / "python"), ACTIVE)
        for entry in self._environment.get("PATH", "").split(os.pathsep):
            # A relative folder is whatever lies where the renter stands: nothing to be run unasked.
            folder = Path(entry)
            for name in ("python3", "python"):
                if folder.is_absolute() and new(folder / name):
                    yield _Candidate(str(folder / name), "the first on PATH that has torch")
        yield _Candidate(sys.executable, OWN)

    def _find(self, path: str) -> Maybe[dict[str, Json]]:
        """Ask one interpreter where its torch is: `path`, `python`, `prefix`, `torch` (None: it has none)."""
        said = self._ask(path, "find", deadline_seconds=FIND_SECONDS)
        if isinstance(said, Absent):
            return said
        items = said["items"]
        if not {"python", "prefix", "torch"} <= items.keys():
            last = said["log"].strip().rpartition("\n")[2][:200]
            return Absent(
                why=Why.failed, detail=f"{path} does not run: {said['cut_off'] or last or _ending(said)}"
            )
        torch = items["torch"]
        if not (isinstance(items["python"], str) and isinstance(items["prefix"], str)) or not (
            torch is None or isinstance(torch, str)
        ):
            return Absent(why=Why.failed, detail=f"{path}: an answer of another shape: {str(items)[:80]}")
        return {"path": path, "python": items["python"], "prefix": items["prefix"], "torch": torch}

    def _ask(
        self,
        path: str,
        mode: str = "",
        variables: Mapping[str, str] | None = None,
        deadline_seconds: float | None = None,
        program: Path = WORKER,
        card: str = "",
    ) -> Maybe[dict[str, Json]]:
        seconds = deadline_seconds or self._deadline_seconds
        dump_after = seconds - min(3.0, seconds / 5)  # in time to be read before the end
        # The environment is part of what is under test: nothing of it is left out.
        said = child.collect(
            [path, str(program), *filter(None, (mode, card)), f"{dump_after:g}"],
            deadline_seconds=seconds,
            env={**self._environment, **(variables or {})},
            limit_bytes=LOG_BYTES,
            answers=True,
        )
        if isinstance(said, Absent):
            return said
        step, items, errors = read_answers(said.answers)
        return {
            "items": items,
            "errors": errors,
            "step": step,
            "returncode": said.returncode,
            "cut_off": said.cut_off,
            "log": said.stdout + said.stderr,
            "seconds": round(said.seconds, 3),
        }


ACTIVE = "the active environment"
OWN = "nodecheck's own"


def _choice(found: dict[str, Json], reason: str, others: list[str]) -> dict[str, Json]:
    return {"path": found["path"], "version": found["python"], "chosen": reason, "others": others}


def read_answers(lines: str) -> tuple[str, dict[str, Json], dict[str, Json]]:
    """The worker's last step, its answers and its errors. Lines of another shape are passed over."""
    step, items, errors = "", {}, {}
    for line in lines.splitlines():
        try:
            said = json.loads(line)
        except ValueError:  # the last line of a worker that was cut off
            continue
        if not isinstance(said, dict):
            continue
        if "step" in said:
            step = str(said["step"])
        elif "value" in said:
            items[str(said.get("item"))] = said["value"]
        elif isinstance(said.get("error"), dict):
            errors[str(said.get("item"))] = said["error"]
    return step, items, errors


def _ending(said: dict[str, Json]) -> str:
    code = said["returncode"]
    return f"ended by {child.signal_name(-code)}" if code < 0 else f"ended with status {code}"

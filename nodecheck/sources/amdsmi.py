"""AMD's management library through the Python binding that comes with ROCm, called in a child process.

The binding is taken from the ROCm installation and never from a package index: what is there under its name has no
library of its own and fits one release alone.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from nodecheck.facts import OWN_FAULT, Absent, Maybe, Why
from nodecheck.sources import child
from nodecheck.sources.amdsmi_child import INIT
from nodecheck.sources.channel import Answer, Channel, Json, Live, decode, encode
from nodecheck.sources.deadline import within

SILENCE_SECONDS = 10.0
"""How long the library may take over one call."""

DEADLINE_SECONDS = 30.0
"""How long the whole survey may take."""

ROCM = "/opt/rocm"


class AmdsmiSurvey:
    """The answers to one round of calls.

    A call's key is the function, the binding's own number of the card or cards it was asked of, and the names of its
    further arguments: `amdsmi_get_gpu_asic_info(0)`, `amdsmi_get_gpu_ecc_count(0,UMC)`,
    `amdsmi_topo_get_link_type(0,1)`. `nodecheck/sources/amdsmi_child.py` holds the list of what is asked.
    """

    def __init__(self, calls: dict[str, Any]) -> None:
        self._calls = calls

    def get(self, function: str, *arguments: object) -> Answer:
        """What the call returned as JSON, or why it did not.

        The library's own errors become `not_supported`, `no_permission`, `not_present`, `timed_out` or `failed`
        with their names in `detail`; what was no longer asked because a call hung or ended the process has that
        call's reason; what this binding does not have is `not_present`.
        """
        key = f"{function}({','.join(map(str, arguments))})"
        for name in (key, "rest()"):
            if name in self._calls:
                return decode(self._calls[name])
        return Absent(why=Why.not_asked, detail=key)


class Amdsmi:
    """The typed front of the binding's channel."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def survey(self) -> Maybe[AmdsmiSurvey]:
        """Every call that the probes use, in one round; absent where the binding is not there or does not start."""
        answer = self._channel.ask("survey")
        if isinstance(answer, Absent):
            return answer
        return AmdsmiSurvey(answer) if isinstance(answer, dict) else _nonsense(answer)


def live(silence_seconds: float = SILENCE_SECONDS, deadline_seconds: float = DEADLINE_SECONDS) -> Live:
    """The binding of this machine's ROCm: that of $ROCM_PATH, else of /opt/rocm."""

    def answer(question: str) -> Answer:
        if question != "survey":
            return Absent(why=Why.failed, detail=f"no such question: {question}")
        return _survey(silence_seconds, deadline_seconds)

    return Live(answer)


def _survey(silence_seconds: float, deadline_seconds: float) -> Answer:
    place = within(2.0, _place)
    if isinstance(place, Absent):
        return place
    program = str(Path(__file__).with_name("amdsmi_child.py"))
    said = child.collect(
        [sys.executable, "-I", "-S", program, place],
        deadline_seconds=deadline_seconds,
        silence_seconds=silence_seconds,
        answers=True,
    )
    if isinstance(said, Absent):
        return (
            said if said.why is not Why.failed else Absent(why=Why.failed, detail=f"{OWN_FAULT}{said.detail}")
        )
    calls, question, done = _read(said.answers)
    if not done:
        reason = _why_stopped(said, question)
        calls.setdefault(INIT, encode(reason))
        calls |= {"rest()": encode(reason)}
    if "absent" in calls.get(INIT, {}):
        return decode(calls[INIT])
    return calls


def _place() -> Maybe[str]:
    """The folder that holds the package `amdsmi`."""
    roots = [root for root in (os.environ.get("ROCM_PATH"), ROCM) if root and Path(root).is_absolute()]
    for root in roots:
        folder = Path(root) / "share" / "amd_smi"
        if (folder / "amdsmi" / "__init__.py").is_file():
            return str(folder)
    return Absent(
        why=Why.not_present, detail=f"no {roots[0]}/share/amd_smi/amdsmi: ROCm's own binding is not installed"
    )


def _read(text: str) -> tuple[dict[str, Json], str, bool]:
    """(What was told, what was asked last and not told, whether all was told)."""
    told: dict[str, Json] = {}
    question, done = "", False
    for line in text.splitlines():
        try:
            said = json.loads(line)
        except ValueError:
            continue  # cut off while it was written
        if isinstance(said, dict):
            told |= said.get("told", {})
            question = said.get("asking", question)
            done = done or bool(said.get("done", False))
    return told, question, done


def _why_stopped(said: child.Transcript, question: str) -> Absent:
    asked = question or "amdsmi"
    if said.returncode is None:
        return Absent(why=Why.timed_out, detail=f"{asked} did not come back ({said.cut_off})")
    if said.returncode < 0:
        name = child.signal_name(-said.returncode)
        return Absent(why=Why.failed, detail=f"{asked} ended the process ({name})")
    last = said.stderr.strip().rsplit("\n", 1)[-1][-200:]
    return Absent(why=Why.failed, detail=f"{asked} ended the process (code {said.returncode}: {last})")


def _nonsense(answer: Json) -> Absent:
    return Absent(why=Why.failed, detail=f"an answer of another shape: {str(answer)[:80]}")

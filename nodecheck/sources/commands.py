"""The few programs that are asked, by name from a fixed list; no other program, and never a shell."""

from __future__ import annotations

import errno
import os
import shutil
import time
from functools import partial

from nodecheck.facts import Absent, Maybe, Why
from nodecheck.sources import child
from nodecheck.sources.channel import Answer, Channel, Live
from nodecheck.sources.child import Output
from nodecheck.sources.deadline import within

__all__ = ["ALLOWED", "Commands", "Output", "find", "live"]

ALLOWED: dict[str, tuple[str, ...]] = {
    "dmesg": ("dmesg", "--color=never"),
    "journal": ("journalctl", "--dmesg", "--boot", "--output=short-monotonic", "--no-pager", "--quiet"),
    "nvcc": ("nvcc", "--version"),
    "fabric_manager": ("nv-fabricmanager", "--version"),
    "ldconfig": ("ldconfig", "-p"),
    "amd_smi_version": ("amd-smi", "version", "--json"),
    "amd_smi_list": ("amd-smi", "list", "--json"),
    "amd_smi_static": ("amd-smi", "static", "--json"),
    "amd_smi_metric": ("amd-smi", "metric", "--json"),
    "amd_smi_firmware": ("amd-smi", "firmware", "--json"),
    "amd_smi_topology": ("amd-smi", "topology", "--json"),
    "amd_smi_xgmi": ("amd-smi", "xgmi", "--json"),
    "amd_smi_bad_pages": ("amd-smi", "bad-pages", "--json"),
    "amd_smi_process": ("amd-smi", "process", "--json"),
    "amd_smi_partition": ("amd-smi", "partition", "--json"),
    "rocm_smi": ("rocm-smi", "-a", "--json"),
}
"""Name → argv. All of them only read."""

_OF_ROCM = ("amd-smi", "rocm-smi")
_ROCM_FOLDERS = ("/opt/rocm/bin",)
"""Where ROCm's programs are, which its packages do not put on PATH."""

DEADLINE_SECONDS = 5.0
JOURNAL_DEADLINE_SECONDS = 10.0
"""A journal on a slow disk needs longer than the others."""
AMD_SMI_DEADLINE_SECONDS = 20.0
"""amd-smi is a program in Python that asks each card hundreds of things; more than 5 s is a driver in trouble."""


class Commands:
    """Typed questions to programs."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def only(self, *names: str) -> Commands:
        """The same, for a look that starts no other program than these."""
        return Commands(_Only(self._channel, names))

    def run(self, name: str) -> Maybe[Output]:
        """Run the program called `name` in `ALLOWED`.

        `not_present` where it is not installed, `timed_out` where it was stuck (it is then abandoned, not
        waited for). Raises KeyError for a name that is not allowed.
        """
        ALLOWED[name]
        answer = self._channel.ask(name)
        if isinstance(answer, Absent):
            return answer
        try:
            return Output(
                int(answer["returncode"]),
                str(answer["stdout"]),
                str(answer["stderr"]),
                float(answer["seconds"]),
            )
        except (TypeError, KeyError, ValueError):
            return Absent(why=Why.failed, detail=f"an answer of another shape: {str(answer)[:80]}")


class _Only:
    def __init__(self, inner: Channel, questions: tuple[str, ...]) -> None:
        self._inner = inner
        self._questions = questions

    def ask(self, question: str) -> Answer:
        if question in self._questions:
            return self._inner.ask(question)
        return Absent(why=Why.not_asked, detail="this look starts no further program")


def live() -> Live:
    """Programs of this machine, from the absolute folders of PATH; their messages are asked for in English."""
    return Live(_answer)


def _answer(name: str) -> Answer:
    program, *arguments = ALLOWED[name]
    seconds = JOURNAL_DEADLINE_SECONDS if name == "journal" else DEADLINE_SECONDS
    if program in _OF_ROCM:
        seconds = AMD_SMI_DEADLINE_SECONDS
    began = time.monotonic()
    # A dead network mount on PATH holds up even the look at what is there.
    found = within(seconds, partial(find, program))
    if isinstance(found, Absent):
        return found
    output = child.run(
        (found, *arguments),
        deadline_seconds=max(0.0, seconds - (time.monotonic() - began)),
        env={**os.environ, "LC_ALL": "C"},
    )
    if isinstance(output, Absent):
        return output
    return {
        "returncode": output.returncode,
        "stdout": output.stdout,
        "stderr": output.stderr,
        "seconds": output.seconds,
    }


def find(program: str) -> Maybe[str]:
    """Where the program is. What lies in the folder we were started in is none of the machine's programs."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    if program in _OF_ROCM:
        folders += _ROCM_FOLDERS
    path = os.pathsep.join(folder for folder in folders if os.path.isabs(folder))  # noqa: PTH117
    if found := shutil.which(program, path=path):
        return found
    if shutil.which(program, mode=os.F_OK, path=path):
        return Absent(why=Why.no_permission, detail=f"{program}: {os.strerror(errno.EACCES)}")
    return Absent(why=Why.not_present, detail=f"{program}: {os.strerror(errno.ENOENT)}")

"""The node as this process is allowed to see and use it: environment, limits, CPUs, user, clock."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nodecheck.facts import Absent, Maybe, Why
from nodecheck.sources.channel import Answer, Channel, Json, Live

ENVIRONMENT_PREFIXES = (
    "CUDA_", "NVIDIA_", "NV_", "NCCL_", "RCCL_", "TORCH_", "PYTORCH_", "OMP_", "HSA_", "HIP_", "ROCR_",
    "ROCM_", "GPU_", "UCX_", "AMD_", "AMDSMI_", "MIOPEN_",
)  # fmt: skip
"""Only variables with these prefixes, and `ENVIRONMENT_NAMES`, are ever read: others may be secrets."""

SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASSW", "CREDENTIAL", "AUTH")
"""A variable with one of these in its name is not read, whatever its prefix (`NVIDIA_API_KEY`)."""

ENVIRONMENT_NAMES = (
    "LD_LIBRARY_PATH", "LD_PRELOAD", "PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYTHONPATH",
    "KUBERNETES_SERVICE_HOST", "SLURM_JOB_ID", "SLURM_JOB_GPUS", "MKL_NUM_THREADS", "container",
)  # fmt: skip


@dataclass(frozen=True)
class RunningProcess:
    pid: int
    name: str
    """The kernel's short name (comm), never the command line."""
    state: str
    """One letter, as in /proc/PID/stat. `D` only for a process that stayed in uninterruptible sleep and did
    not run once while it was watched: a short wait for a disk is nothing to report."""


class Process:
    """Typed questions about the process and its allowance."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def environment(self) -> Maybe[dict[str, str]]:
        """The allow-listed part of the environment."""
        return self._table("environment", str)

    def limits(self) -> Maybe[dict[str, int]]:
        """Soft limits by name (`memlock`, `nofile`, `nproc`); -1 is unlimited."""
        return self._table("limits", int)

    def uname(self) -> Maybe[dict[str, str]]:
        """`node`, `release`, `version`, `machine`."""
        return self._table("uname", str)

    def user_id(self) -> Maybe[int]:
        """Effective user id; 0 is root."""
        return self._number("user_id")

    def groups(self) -> Maybe[tuple[int, ...]]:
        """Numbers of the groups that this process is in, its effective one too; sorted."""
        answer = self._channel.ask("groups")
        if isinstance(answer, Absent):
            return answer
        if isinstance(answer, list) and all(type(number) is int for number in answer):
            return tuple(answer)
        return _nonsense(answer)

    def cpus(self) -> Maybe[int]:
        """How many logical CPUs this process may run on (sched_getaffinity)."""
        return self._number("cpus")

    def clock_synchronized(self) -> Maybe[bool]:
        """Whether the kernel counts its clock as synchronised (adjtimex, STA_UNSYNC clear)."""
        answer = self._channel.ask("clock_synchronized")
        return answer if isinstance(answer, (bool, Absent)) else _nonsense(answer)

    def processes(self) -> Maybe[tuple[RunningProcess, ...]]:
        """Processes that can be seen from here; of the kernel's own threads only pid 2, their parent."""
        answer = self._channel.ask("processes")
        if isinstance(answer, Absent):
            return answer
        try:
            return tuple(RunningProcess(int(pid), str(name), str(state)) for pid, name, state in answer)
        except (TypeError, ValueError):
            return _nonsense(answer)

    def _number(self, question: str) -> Maybe[int]:
        answer = self._channel.ask(question)
        if isinstance(answer, Absent) or type(answer) is int:
            return answer
        return _nonsense(answer)

    def _table(self, question: str, kind: type) -> Maybe[dict[str, Json]]:
        answer = self._channel.ask(question)
        if isinstance(answer, Absent):
            return answer
        if isinstance(answer, dict) and all(type(value) is kind for value in answer.values()):
            return answer
        return _nonsense(answer)


def _nonsense(answer: Json) -> Absent:
    return Absent(why=Why.failed, detail=f"an answer of another shape: {str(answer)[:80]}")


def live() -> Live:
    """What this process is told about itself and its neighbours."""
    asks: dict[str, Callable[[], Answer]] = {
        "environment": _environment,
        "limits": _limits,
        "uname": _uname,
        "user_id": os.geteuid,
        "groups": lambda: sorted({os.getegid(), *os.getgroups()}),
        "cpus": lambda: len(os.sched_getaffinity(0)),
        "clock_synchronized": _clock_synchronized,
        "processes": lambda: _processes(Path("/proc")),
    }

    def answer(question: str) -> Answer:
        try:
            return asks[question]()
        except OSError as error:
            denied = error.errno in (errno.EACCES, errno.EPERM)
            missing = error.errno in (errno.ENOENT, errno.ENOSYS)
            why = Why.no_permission if denied else Why.not_present if missing else Why.failed
            return Absent(why=why, detail=error.strerror or str(error))

    return Live(answer)


def _environment() -> Answer:
    return {
        name: os.fsencode(value).decode("utf-8", "replace")
        for name, value in sorted(os.environ.items())
        if (name.startswith(ENVIRONMENT_PREFIXES) or name in ENVIRONMENT_NAMES)
        and not any(word in name.upper() for word in SECRET_WORDS)
    }


def _limits() -> Answer:
    import resource

    limits = {
        "memlock": resource.RLIMIT_MEMLOCK,
        "nofile": resource.RLIMIT_NOFILE,
        "nproc": resource.RLIMIT_NPROC,
    }
    return {name: resource.getrlimit(number)[0] for name, number in limits.items()}


def _uname() -> Answer:
    said = os.uname()
    return {"node": said.nodename, "release": said.release, "version": said.version, "machine": said.machine}


_STA_UNSYNC = 0x0040
"""linux/timex.h."""


def _clock_synchronized() -> Answer:
    import ctypes

    class Timex(ctypes.Structure):
        """`struct timex` as far as its status; what follows is only room for the kernel to write to."""

        _fields_ = (
            ("modes", ctypes.c_uint),  # 0: change nothing
            ("offset", ctypes.c_long),
            ("freq", ctypes.c_long),
            ("maxerror", ctypes.c_long),
            ("esterror", ctypes.c_long),
            ("status", ctypes.c_int),
            ("rest", ctypes.c_char * 512),
        )

    clock = Timex()
    if ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(clock)) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return not clock.status & _STA_UNSYNC


_KERNEL_THREAD = 0x00200000
"""PF_KTHREAD among the flags of /proc/PID/stat (linux/sched.h)."""
_WATCH_SECONDS = 0.1


def _processes(proc: Path) -> Answer:
    seen = [known for name in os.listdir(proc) if name.isdigit() and (known := _process(proc / name))]  # noqa: PTH208
    if not seen:
        return Absent(why=Why.not_present, detail=f"no process can be seen in {proc}")
    asleep = {pid: _switches(proc / str(pid)) for pid, _, state in seen if state == "D"}
    if asleep:
        time.sleep(_WATCH_SECONDS)
    answer: list[list[Json]] = []
    for pid, name, state in sorted(seen):
        if state == "D":
            again = _process(proc / str(pid))
            if again is None:
                continue
            # Whoever ran in between has switched: it waits now and then, and is not stuck.
            stuck = again[2] == "D" and _switches(proc / str(pid)) == asleep[pid]
            state = "D" if stuck else again[2].replace("D", "R")
        answer.append([pid, name, state])
    return answer


def _process(place: Path) -> tuple[int, str, str] | None:
    """(pid, name, state); None for one that is gone, may not be seen, or is a thread of the kernel's."""
    try:
        text = (place / "stat").read_bytes().decode("utf-8", "replace")
    except OSError:
        return None
    # The name stands in brackets and may hold brackets and blanks itself.
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    if len(fields) < 7 or "(" not in head:
        return None
    pid = int(place.name)
    if int(fields[6]) & _KERNEL_THREAD and pid != 2:
        return None
    return pid, head.partition("(")[2], fields[0]


def _switches(place: Path) -> list[str]:
    try:
        status = (place / "status").read_text(errors="replace")
    except OSError:
        return []
    return [line for line in status.splitlines() if "ctxt_switches" in line]

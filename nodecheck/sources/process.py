"""The node as this process is allowed to see and use it: environment, limits, CPUs, user, clock."""

from __future__ import annotations

from dataclasses import dataclass

from nodecheck.facts import Absent, Maybe, Why
from nodecheck.sources.channel import Channel, Json

ENVIRONMENT_PREFIXES = (
    "CUDA_", "NVIDIA_", "NV_", "NCCL_", "RCCL_", "TORCH_", "PYTORCH_", "OMP_", "HSA_", "HIP_", "ROCR_", "ROCM_",
    "GPU_", "UCX_",
)  # fmt: skip
"""Only variables with these prefixes, and `ENVIRONMENT_NAMES`, are ever read; everything else may be a secret."""

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
    """One letter, as in /proc/PID/stat: `D` is uninterruptible sleep."""


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

    def cpus(self) -> Maybe[int]:
        """How many logical CPUs this process may run on (sched_getaffinity)."""
        return self._number("cpus")

    def clock_synchronized(self) -> Maybe[bool]:
        """Whether the kernel counts its clock as synchronised (adjtimex, STA_UNSYNC clear)."""
        answer = self._channel.ask("clock_synchronized")
        return answer if isinstance(answer, (bool, Absent)) else _nonsense(answer)

    def processes(self) -> Maybe[tuple[RunningProcess, ...]]:
        """Processes that can be seen from here."""
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

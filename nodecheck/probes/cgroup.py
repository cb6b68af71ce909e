"""What control groups allow this process: the smallest limit on the way up from its own group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from nodecheck.facts import Absent, Maybe, Why
from nodecheck.probes.mounts import Mount
from nodecheck.probes.text import number, parse
from nodecheck.sources import Files

Unlimited = Literal["unlimited"]
Limit = Maybe[float | Unlimited]

_NO_LIMIT = 2**62
"""Version 1 writes "no limit" as the largest multiple of the page size below 2^63: 9223372036854771712."""

_MAX_DEPTH = 32


@dataclass(frozen=True)
class Allowance:
    cpus: Limit
    """CPU time, in CPUs."""
    memory_bytes: Maybe[int | Unlimited]
    processes: Maybe[int | Unlimited]
    """Processes and threads."""


def allowance(files: Files, mounted: Maybe[tuple[Mount, ...]], container: Maybe[str]) -> Allowance:
    """The limits of versions 1 and 2 together; a machine may use both side by side.

    `container` tells what it means when no control group can be seen: outside of a container, a process in
    the topmost group has no limit; inside one, the limit may be set where it cannot be seen.
    """
    paths = parse(files.read("/proc/self/cgroup"), _paths)
    if isinstance(paths, Absent):
        return Allowance(paths, paths, paths)
    if isinstance(mounted, Absent):
        return Allowance(mounted, mounted, mounted)

    def smallest(controller: str, v1: _Read, v2: _Read) -> Limit:
        limits: list[float] = []
        seen = False
        for mount in mounted:
            path = _path_in(files, mount, controller, paths)
            if path is None:
                continue
            seen = True
            read = v2 if mount.filesystem == "cgroup2" else v1
            for folder in _upwards(mount.place, path):
                limit = read(files, folder)
                if isinstance(limit, Absent):
                    if limit.why is Why.not_present:
                        continue  # the group is not below this mount, or sets no limit of this kind
                    return limit
                if limit != "unlimited":
                    limits.append(limit)
        if limits:
            return min(limits)
        if seen or (container == "none" and set(paths.values()) <= {"/"}):
            return "unlimited"
        return Absent(why=Why.not_present, detail=f"no control group for {controller} can be seen from here")

    return Allowance(
        cpus=smallest("cpu", _cpus_v1, _cpus_v2),
        memory_bytes=_whole(smallest("memory", _file("memory.limit_in_bytes"), _file("memory.max"))),
        processes=_whole(smallest("pids", _file("pids.max"), _file("pids.max"))),
    )


_Read = Callable[[Files, str], Limit]
"""The limit that a group's folder states."""


def _paths(text: str) -> dict[str, str] | None:
    """Controller → this process's group; version 2's hierarchy has the empty name."""
    paths: dict[str, str] = {}
    for line in text.splitlines():
        fields = line.split(":", 2)
        if len(fields) == 3:
            paths |= dict.fromkeys(fields[1].split(","), fields[2])
    return paths or None


def _path_in(files: Files, mount: Mount, controller: str, paths: dict[str, str]) -> str | None:
    """This process's group in the hierarchy mounted there; None for one without the controller."""
    if mount.filesystem == "cgroup" and controller in mount.options:
        return paths.get(controller)
    if mount.filesystem == "cgroup2":
        offered = files.read(f"{mount.place}/cgroup.controllers")
        if isinstance(offered, str) and controller in offered.split():
            return paths.get("")
    return None


def _upwards(top: str, path: str) -> list[str]:
    """The folders of the group and of those above it, up to where the hierarchy is mounted.

    A group outside of this namespace's root (`/../x`) has no folder here: only the top is left.
    """
    names = PurePosixPath("/" + path).parts[1:]
    if ".." in names:
        names = ()
    names = names[:_MAX_DEPTH]
    return ["/".join([top.rstrip("/"), *names[:depth]]) for depth in range(len(names), -1, -1)]


def _cpus_v2(files: Files, folder: str) -> Limit:
    return parse(files.read(f"{folder}/cpu.max"), _quota)


def _quota(text: str) -> float | Unlimited | None:
    """`200000 100000` is two CPUs; `max 100000` no limit."""
    fields = text.split()
    if len(fields) != 2:
        return None
    if fields[0] == "max":
        return "unlimited"
    return _ratio(number(fields[0]), number(fields[1]))


def _cpus_v1(files: Files, folder: str) -> Limit:
    quota = parse(files.read(f"{folder}/cpu.cfs_quota_us"), number)
    if isinstance(quota, Absent):
        return quota
    if quota < 0:
        return "unlimited"
    return parse(files.read(f"{folder}/cpu.cfs_period_us"), lambda text: _ratio(quota, number(text)))


def _ratio(quota: int | None, period: int | None) -> float | None:
    return quota / period if quota and period and quota > 0 and period > 0 else None


def _file(name: str) -> _Read:
    return lambda files, folder: parse(files.read(f"{folder}/{name}"), _amount)


def _amount(text: str) -> float | Unlimited | None:
    if text.strip() == "max":
        return "unlimited"
    value = number(text)
    if value is None or value < 0:
        return None
    return value if value < _NO_LIMIT else "unlimited"


def _whole(limit: Limit) -> Maybe[int | Unlimited]:
    return int(limit) if isinstance(limit, (int, float)) else limit

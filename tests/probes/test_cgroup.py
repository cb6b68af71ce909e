"""Limits of control groups, versions 1 and 2, in folders as the kernel lays them out."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodecheck.facts import Absent, Maybe, Why
from nodecheck.probes.cgroup import Allowance, allowance
from nodecheck.probes.mounts import mounts
from nodecheck.sources import Files, files
from nodecheck.sources.channel import Live, Recorded

GIB = 1024**3
UNLIMITED_V1 = "9223372036854771712\n"


def look(root: Path, contents: dict[str, str], container: Maybe[str] = "docker") -> Allowance:
    for path, text in contents.items():
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    f = Files(files.live(str(root)))
    return allowance(f, mounts(f), container)


V2 = {
    "/proc/self/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n",
    "/proc/self/cgroup": "0::/\n",
    "/sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory pids\n",
}


def test_version_2_in_a_container(tmp_path: Path) -> None:
    allowed = look(
        tmp_path,
        V2
        | {
            "/sys/fs/cgroup/cpu.max": "650000 100000\n",
            "/sys/fs/cgroup/memory.max": f"{64 * GIB}\n",
            "/sys/fs/cgroup/pids.max": "4096\n",
        },
    )
    assert allowed == Allowance(6.5, 64 * GIB, 4096)


def test_version_2_without_limits(tmp_path: Path) -> None:
    allowed = look(
        tmp_path,
        V2
        | {
            "/sys/fs/cgroup/cpu.max": "max 100000\n",
            "/sys/fs/cgroup/memory.max": "max\n",
            "/sys/fs/cgroup/pids.max": "max\n",
        },
    )
    assert allowed == Allowance("unlimited", "unlimited", "unlimited")


def test_the_topmost_group_of_the_machine_has_no_limit_files_and_no_limit(tmp_path: Path) -> None:
    assert look(tmp_path, V2, "none") == Allowance("unlimited", "unlimited", "unlimited")


def test_the_smallest_limit_on_the_way_up_counts(tmp_path: Path) -> None:
    groups = "/sys/fs/cgroup"
    allowed = look(
        tmp_path,
        V2
        | {
            "/proc/self/cgroup": "0::/user.slice/user-1000.slice/session-2.scope\n",
            f"{groups}/user.slice/cpu.max": "400000 100000\n",
            f"{groups}/user.slice/memory.max": "max\n",
            f"{groups}/user.slice/user-1000.slice/cpu.max": "max 100000\n",
            f"{groups}/user.slice/user-1000.slice/memory.max": f"{8 * GIB}\n",
            f"{groups}/user.slice/user-1000.slice/session-2.scope/cpu.max": "1600000 100000\n",
            f"{groups}/user.slice/user-1000.slice/session-2.scope/memory.max": f"{16 * GIB}\n",
            f"{groups}/other.slice/memory.max": "1\n",
        },
        "none",
    )
    assert (allowed.cpus, allowed.memory_bytes, allowed.processes) == (4.0, 8 * GIB, "unlimited")


V1 = {
    "/proc/self/mounts": (
        "tmpfs /sys/fs/cgroup tmpfs ro 0 0\n"
        "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,nosuid,cpu,cpuacct 0 0\n"
        "cgroup /sys/fs/cgroup/memory cgroup rw,nosuid,memory 0 0\n"
        "cgroup /sys/fs/cgroup/pids cgroup rw,nosuid,pids 0 0\n"
    ),
    "/proc/self/cgroup": "9:memory:/docker/0aff\n8:pids:/docker/0aff\n4:cpu,cpuacct:/docker/0aff\n0::/\n",
}


def test_version_1_in_a_container_that_sees_its_own_group_as_the_top(tmp_path: Path) -> None:
    allowed = look(
        tmp_path,
        V1
        | {
            "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "800000\n",
            "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes": f"{32 * GIB}\n",
            "/sys/fs/cgroup/pids/pids.max": "100\n",
        },
    )
    assert allowed == Allowance(8.0, 32 * GIB, 100)


def test_version_1_on_the_machine(tmp_path: Path) -> None:
    allowed = look(
        tmp_path,
        V1
        | {
            "/sys/fs/cgroup/cpu,cpuacct/docker/0aff/cpu.cfs_quota_us": "-1\n",
            "/sys/fs/cgroup/cpu,cpuacct/docker/0aff/cpu.cfs_period_us": "100000\n",
            "/sys/fs/cgroup/memory/docker/0aff/memory.limit_in_bytes": UNLIMITED_V1,
            "/sys/fs/cgroup/memory/docker/memory.limit_in_bytes": f"{2 * GIB}\n",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes": UNLIMITED_V1,
            "/sys/fs/cgroup/pids/docker/0aff/pids.max": "max\n",
        },
    )
    assert allowed == Allowance("unlimited", 2 * GIB, "unlimited")


def test_both_versions_side_by_side(tmp_path: Path) -> None:
    """A hybrid machine: version 2 is mounted and has no controllers."""
    mounted = V1["/proc/self/mounts"] + "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n"
    allowed = look(
        tmp_path,
        V1
        | {
            "/proc/self/mounts": mounted,
            "/sys/fs/cgroup/unified/cgroup.controllers": "\n",
            "/sys/fs/cgroup/unified/memory.max": "1\n",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes": f"{32 * GIB}\n",
        },
    )
    assert allowed.memory_bytes == 32 * GIB


def test_without_a_control_group_to_see_only_the_machine_itself_is_unlimited(tmp_path: Path) -> None:
    bare = {"/proc/self/mounts": "proc /proc proc rw 0 0\n", "/proc/self/cgroup": "4:memory:/\n0::/\n"}
    assert look(tmp_path / "a", bare, "none") == Allowance("unlimited", "unlimited", "unlimited")
    hidden = look(tmp_path / "b", bare, "docker")
    grouped = look(tmp_path / "c", bare | {"/proc/self/cgroup": "0::/some.slice\n"}, "none")
    unsure = look(tmp_path / "d", bare, Absent(why=Why.no_permission))
    for allowed in (hidden, grouped, unsure):
        for limit in (allowed.cpus, allowed.memory_bytes, allowed.processes):
            assert isinstance(limit, Absent)
            assert limit.why is Why.not_present


def test_a_controller_that_does_not_reach_this_group_is_not_unlimited(tmp_path: Path) -> None:
    allowed = look(tmp_path, V2 | {"/sys/fs/cgroup/cgroup.controllers": "cpu pids\n"})
    assert allowed.cpus == "unlimited"
    assert isinstance(allowed.memory_bytes, Absent)


def test_a_closed_or_broken_file_is_never_unlimited(tmp_path: Path) -> None:
    for text in ("lots\n", "", "-5\n", "100\n", "0 100000\n", "5 0\n", "max\n"):
        allowed = look(tmp_path, V2 | {"/sys/fs/cgroup/cpu.max": text})
        assert isinstance(allowed.cpus, Absent), text
        assert allowed.cpus.why is Why.failed
    answers = {
        "read /proc/self/cgroup": {"value": "0::/\n"},
        "read /proc/self/mounts": {"value": V2["/proc/self/mounts"]},
        "read /sys/fs/cgroup/cgroup.controllers": {"value": "memory cpu pids"},
        "read /sys/fs/cgroup/memory.max": {"absent": "no_permission"},
    }
    f = Files(Recorded(answers))
    limit = allowance(f, mounts(f), "none").memory_bytes
    assert isinstance(limit, Absent)
    assert limit.why is Why.no_permission


@pytest.mark.parametrize("path", ["/../other", "/..", "/a/../../b", "//", "/" + "x/" * 500])
def test_a_group_outside_of_this_view_leaves_the_top(tmp_path: Path, path: str) -> None:
    allowed = look(
        tmp_path,
        V2 | {"/proc/self/cgroup": f"0::{path}\n", "/sys/fs/cgroup/memory.max": f"{GIB}\n"},
    )
    assert allowed.memory_bytes == GIB


@given(st.text(max_size=80), st.text(max_size=80), st.text(max_size=30))
def test_no_text_raises(groups: str, mounted: str, limit: str) -> None:
    def answer(question: str) -> object:
        return {
            "read /proc/self/cgroup": groups,
            "read /proc/self/mounts": "cgroup2 /c cgroup2 rw 0 0\ncgroup /m cgroup memory 0 0\n" + mounted,
            "read /c/cgroup.controllers": "cpu memory pids",
        }.get(question, limit)

    f = Files(Live(answer))
    allowance(f, mounts(f), "docker")

"""The host probe over made-up machines, over this one, and over answers that mean harm."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodecheck.facts import Absent, Fact, Host, Why
from nodecheck.probes.host import probe
from nodecheck.sources import Commands, Files, Process, commands, files, process
from nodecheck.sources.channel import Answer, Channel, Live, Recorded, Recorder
from tests.fakes.tree import BOOT_ID, GIB, KERNEL, Ground, Tree, limit_cgroup, plant, plant_cpu

TOLD: dict[str, Answer] = {
    "environment": {},
    "limits": {"memlock": -1, "nofile": 1048576, "nproc": 4096},
    "uname": {"node": "node", "release": KERNEL, "version": "#63-Ubuntu", "machine": "x86_64"},
    "user_id": 0,
    "cpus": 64,
    "clock_synchronized": True,
    "processes": [[1, "systemd", "S"], [900, "nv-fabricmanage", "S"], [901, "nvidia-persiste", "S"]],
}
NONE = Absent(why=Why.not_present, detail="there is no such program here")


def look(
    tree: Tree, root: Path, told: dict[str, Answer] | None = None, ran: dict[str, Answer] | None = None
) -> Host:
    ground = Ground(root)
    ground.hold(tree)
    answers, programs = TOLD | (told or {}), ran or {}
    return probe(
        Files(files.live(str(ground.root))),
        Process(Live(lambda question: answers[question])),
        Commands(Live(lambda question: programs.get(question, NONE))),
    )


def test_bare_metal(tmp_path: Path) -> None:
    version = {
        "returncode": 0,
        "stdout": "Fabric Manager version is : 580.159.04\n",
        "stderr": "",
        "seconds": 0.1,
    }
    seen = look(plant("h200", 8), tmp_path, ran={"fabric_manager": version})
    assert (seen.name, seen.os, seen.kernel, seen.boot_id) == ("node", "Ubuntu 24.04.3 LTS", KERNEL, BOOT_ID)
    assert seen.uptime_seconds == 86400.0
    assert seen.is_root is True
    assert (seen.container, seen.virtualization) == ("none", "none")
    assert (seen.iommu, seen.acs_bridges) == ("passthrough", ())
    assert seen.services == ("nv-fabricmanager", "nvidia-persistenced")
    assert seen.fabric_manager_version == "580.159.04"
    assert seen.stuck_processes == 0
    cpu = seen.cpu
    assert cpu.model == "Intel(R) Xeon(R) Platinum 8480C"
    assert (cpu.sockets, cpu.cores, cpu.present, cpu.offline, cpu.affinity) == (2, 32, 64, 0, 64)
    assert (cpu.quota_cpus, cpu.numa_nodes, cpu.governor) == ("unlimited", 2, "performance")
    memory = seen.memory
    assert (memory.total_bytes, memory.limit_bytes, memory.swap_bytes) == (2048 * GIB, "unlimited", 0)
    assert (memory.transparent_huge_pages, memory.numa_balancing) == ("madvise", False)
    limits = seen.limits
    assert (limits.memlock_bytes, limits.open_files, limits.processes) == ("unlimited", 1048576, 4096)
    assert isinstance(seen.disks, tuple)
    assert [(d.mount, d.kind, d.model) for d in seen.disks] == [
        ("/", "local", "SAMSUNG MZQL23T8HCLS-00A07"),
        ("/data", "local", "SAMSUNG MZQL23T8HCLS-00A07"),
    ]


def test_a_guest(tmp_path: Path) -> None:
    seen = look(plant("h200", 1, kind="guest"), tmp_path)
    assert (seen.container, seen.virtualization, seen.iommu, seen.acs_bridges) == ("none", "kvm", "off", ())
    assert (seen.cpu.sockets, seen.cpu.numa_nodes) == (1, 1)
    assert isinstance(seen.cpu.governor, Absent)
    assert seen.cpu.governor.why is Why.not_present


@pytest.mark.parametrize("version", [1, 2])
def test_a_container_held_to_less_than_the_machine_has(tmp_path: Path, version: int) -> None:
    tree = plant("h200", 8, kind="container")
    limit_cgroup(tree, cpus=16, memory_bytes=128 * GIB, version=version)
    seen = look(tree, tmp_path, {"user_id": 1000})
    assert seen.container == "docker"
    assert seen.is_root is False
    assert seen.cpu.quota_cpus == 16.0
    assert seen.cpu.present == 64
    assert seen.memory.limit_bytes == 128 * GIB
    assert isinstance(seen.acs_bridges, Absent)
    assert seen.acs_bridges.why is Why.no_permission


def test_an_arm_machine(tmp_path: Path) -> None:
    seen = look(
        plant("gb200", 4),
        tmp_path,
        {"uname": {"node": "n", "release": "6", "version": "#1", "machine": "aarch64"}},
    )
    assert (seen.cpu.model, seen.cpu.architecture) == ("Arm Neoverse V2", "aarch64")


def test_a_machine_without_cards(tmp_path: Path) -> None:
    seen = look(plant_cpu(), tmp_path)
    assert seen.acs_bridges == ()
    assert seen.memory.total_bytes == 64 * GIB


def test_cpus_that_are_switched_off_are_counted_apart(tmp_path: Path) -> None:
    tree = plant_cpu()
    tree.files["/sys/devices/system/cpu/online"] = "0-3,8\n"
    tree.files["/sys/devices/system/cpu/present"] = "0-15\n"
    seen = look(tree, tmp_path)
    assert (seen.cpu.present, seen.cpu.offline) == (5, 11)


def test_stuck_processes_are_counted(tmp_path: Path) -> None:
    running = [[1, "systemd", "S"], [7, "nvidia-smi", "D"], [8, "python", "D"]]
    assert look(plant_cpu(), tmp_path, {"processes": running}).stuck_processes == 2


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('PRETTY_NAME="Ubuntu 24.04.3 LTS"\n', "Ubuntu 24.04.3 LTS"),
        ("NAME=x\nPRETTY_NAME='Rocky  Linux 9.5'\n", "Rocky Linux 9.5"),
        ("PRETTY_NAME=Alpine\n", "Alpine"),
        ('PRETTY_NAME="a \\"b\\" \\$c"\n', 'a "b" $c'),
    ],
)
def test_the_distribution_s_name(tmp_path: Path, text: str, name: str) -> None:
    tree = plant_cpu()
    tree.files["/etc/os-release"] = text
    assert look(tree, tmp_path).os == name


def test_the_distribution_s_other_place(tmp_path: Path) -> None:
    tree = plant_cpu()
    tree.files["/usr/lib/os-release"] = tree.files.pop("/etc/os-release")
    assert look(tree, tmp_path).os == "Ubuntu 24.04.3 LTS"


def absents(value: Any) -> Iterator[Absent]:
    """Every absent value in a fact and below it."""
    if isinstance(value, Absent):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from absents(item)
    elif isinstance(value, Fact):
        for name in type(value).model_fields:
            yield from absents(getattr(value, name))


def test_a_recording_that_holds_nothing_leaves_everything_unasked() -> None:
    empty: Channel = Recorded({})
    seen = probe(Files(empty), Process(empty), Commands(empty))
    reasons = {absent.why for absent in absents(seen)}
    assert reasons == {Why.not_asked}
    for name in Host.model_fields:
        if name not in ("cpu", "memory", "limits", "other_sources"):
            assert isinstance(getattr(seen, name), Absent), name


@pytest.mark.parametrize("why", list(Why))
def test_every_reason_travels(why: Why) -> None:
    closed: Channel = Live(lambda question: Absent(why=why, detail="because"))
    seen = probe(Files(closed), Process(closed), Commands(closed))
    known = {name for name in Host.model_fields if not isinstance(getattr(seen, name), Absent)}
    assert known == {"cpu", "memory", "limits", "other_sources"}
    assert {absent.why for absent in absents(seen)} == {why}


TEXTS = st.one_of(
    st.text(max_size=50),
    st.sampled_from(
        [
            "0-99999999\n", "0-3\n", "MemTotal: 99999999999999999999999999 kB\n", "MemTotal: 5 kB\n",
            "9" * 5000, "inf nan", "nan\n", "1e999 1\n", "cpu memory pids", "<script>",
            "\x00\x1b[2J", "max max", "-1", "[", "0::" + "/.." * 500, "4:memory,cpu,pids:/a\n", "\ud800",
            "flags : hypervisor",
            "x / overlay rw\nx /a ext4 rw", "cgroup /c cgroup cpu,memory,pids\ncgroup2 /d cgroup2 rw\n",
            "ff" * 4096, "0d00010000000c00" * 512, "0x030200\n", "0x10de\n", "DMA\n", "/../../x",
        ]
    ),
)  # fmt: skip
NAMES = st.lists(st.one_of(st.text(max_size=12), st.just("0000:01:00.0"), st.just("nvme0n1")), max_size=4)
ANSWERS = {
    "list": NAMES,
    "usage": st.lists(st.integers(), min_size=2, max_size=2),
    "environment": st.dictionaries(st.text(max_size=9), TEXTS, max_size=3),
    "uname": st.dictionaries(st.sampled_from(["node", "release", "version", "machine"]), TEXTS),
    "limits": st.dictionaries(st.sampled_from(["memlock", "nofile", "nproc"]), st.integers()),
    "cpus": st.integers(),
    "user_id": st.integers(),
    "clock_synchronized": st.booleans(),
    "processes": st.lists(st.tuples(st.integers(), TEXTS, TEXTS), max_size=3),
    "fabric_manager": st.fixed_dictionaries(
        {"returncode": st.integers(), "stdout": TEXTS, "stderr": TEXTS, "seconds": st.floats()}
    ),
}
"""What each question may be answered with, of the right shape; the others are answered with a text."""
SHAPELESS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), NAMES, st.just({"a": 1}))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_answer_makes_the_probe_raise(data: st.DataObject) -> None:
    def answer(question: str) -> Answer:
        right = ANSWERS.get(question.partition(" ")[0], TEXTS)
        return data.draw(SHAPELESS if data.draw(st.integers(0, 9)) == 0 else right, label=question)

    channel = Live(answer)
    seen = probe(Files(channel), Process(channel), Commands(channel))
    assert Host.model_validate_json(seen.model_dump_json()) == seen


def test_this_machine_is_seen_quickly_and_the_same_from_its_recording() -> None:
    channels = [Recorder(live) for live in (files.live(), process.live(), commands.live())]

    def over(f: Channel, p: Channel, c: Channel) -> Host:
        return probe(Files(f), Process(p), Commands(c))

    times = []
    for _ in range(3):
        began = time.perf_counter()
        seen = over(*channels)
        times.append(time.perf_counter() - began)
    assert min(times) < 0.15
    assert over(*(Recorded(channel.answers) for channel in channels)) == seen
    assert isinstance(seen.memory.total_bytes, int)
    assert isinstance(seen.kernel, str)

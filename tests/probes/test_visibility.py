"""The ledger of doors over made-up machines: what is open, what is closed, and the words for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodecheck.facts import Absent, Door, Node, Why
from nodecheck.probes.visibility import probe
from nodecheck.sources import Files, Process, files
from nodecheck.sources.channel import Answer, Live, Recorded
from tests.fakes.tree import Ground, Kind, Tree, plant, plant_cpu
from tests.judge.cases import faulty, healthy

NAMES = (
    "nvml", "device_files", "pci", "driver_proc", "kernel_log", "torch", "libcuda", "host", "cgroup", "dmi",
    "infiniband", "processes", "root",
)  # fmt: skip


def look(
    tree: Tree, root: Path, node: Node | None = None, *, user: Answer = 0, answers: Mapping[str, Answer] = {}
) -> dict[str, Door]:
    ground = Ground(root)
    ground.hold(tree)
    below = files.live(str(ground.root))
    doors = probe(
        node or healthy("h200x8"),
        Files(Live(lambda question: answers.get(question, below.ask(question)))),
        Process(Live(lambda question: user if question == "user_id" else Absent(why=Why.not_asked))),
    )
    assert tuple(door.name for door in doors) == NAMES
    assert all(door.detail.endswith((".", ")")) and len(door.detail) < 400 for door in doors)
    return {door.name: door for door in doors}


def test_root_on_the_machine_itself_finds_every_door_open(tmp_path: Path) -> None:
    doors = look(plant("h200", 8), tmp_path)
    assert {name for name, door in doors.items() if door.open is not True} == set()
    assert "8 cards" in doors["nvml"].detail
    assert "No container, on the machine itself" in doors["host"].detail
    assert "Supermicro" in doors["dmi"].detail


def test_a_container_of_an_ordinary_user(tmp_path: Path) -> None:
    doors = look(plant("h200", 8, kind="container"), tmp_path, healthy("h200x8", "container"), user=1000)
    closed = {name for name, door in doors.items() if door.open is False}
    assert {"kernel_log", "dmi", "processes", "root"} <= closed
    assert "In a container (docker)" in doors["host"].detail
    assert "id 1000" in doors["root"].detail
    assert "container" in doors["processes"].detail
    assert "CAP_SYSLOG" in doors["kernel_log"].detail
    assert "takes root" in doors["pci"].detail


def test_a_guest_with_one_card(tmp_path: Path) -> None:
    doors = look(plant("h200", 1, kind="guest"), tmp_path, healthy("h200x1", "vm"))
    assert "on a virtual machine (kvm): what cards it has" in doors["host"].detail
    assert isinstance(doors["infiniband"].open, Absent)
    assert doors["infiniband"].open.why is Why.not_present
    assert doors["root"].open is True


def test_a_machine_without_cards(tmp_path: Path) -> None:
    doors = look(plant_cpu(), tmp_path, healthy("cpu"))
    for name in ("nvml", "device_files", "driver_proc", "libcuda"):
        assert doors[name].open is False, name
    assert "no NVIDIA driver" in doors["nvml"].detail
    assert doors["torch"].open is True


def without(*paths: str, kind: Kind = "bare") -> Tree:
    tree = plant("h200", 2, kind=kind)
    for path in paths:
        tree.remove(path)
    return tree


def test_device_files(tmp_path: Path) -> None:
    some = [p for p in plant("h200", 2).files if p.startswith("/dev/nvidia")]
    cards = [p for p in some if p[-1].isdigit()]
    missing = look(without(*cards), tmp_path / "a")["device_files"]
    assert (missing.open, "/dev/nvidia0" in missing.detail) == (False, True)
    mute = look(without("/dev/nvidiactl"), tmp_path / "b")["device_files"]
    assert (mute.open, "/dev/nvidiactl is missing" in mute.detail) == (False, True)
    shut = look(plant("h200", 2), tmp_path / "c", answers={"access /dev/nvidia1": False})["device_files"]
    assert (shut.open, shut.detail.startswith("/dev/nvidia1 may not")) == (False, True)


def test_a_sandbox_hides_the_bus_and_the_driver(tmp_path: Path) -> None:
    doors = look(without("/sys/bus", "/proc/driver"), tmp_path)
    assert doors["pci"].open is False
    assert doors["driver_proc"].open is False


RESTRICTED = {"kernel_log.source": Absent(why=Why.no_permission, detail="dmesg: not permitted")}


def test_why_the_kernel_s_log_is_closed(tmp_path: Path) -> None:
    tree = plant("h200", 2)
    tree.files["/proc/sys/kernel/dmesg_restrict"] = "1\n"
    door = look(tree, tmp_path, faulty("h200x2", RESTRICTED))["kernel_log"]
    assert (door.open, "kernel.dmesg_restrict = 1" in door.detail) == (False, True)


@pytest.mark.parametrize(
    ("path", "door", "words"),
    [
        ("cards", "nvml", "hangs"),
        ("stack.torch", "torch", "did not end in time"),
        ("stack.cuda_init", "libcuda", "hangs"),
    ],
)
def test_a_door_that_hangs(tmp_path: Path, path: str, door: str, words: str) -> None:
    silent = Absent(why=Why.timed_out, detail="no answer within 10 s")
    seen = look(plant("h200", 2), tmp_path, faulty("h200x2", {path: silent}))[door]
    assert seen.open is False
    assert words in seen.detail
    assert "10 s" in seen.detail


def test_limits_that_cannot_be_seen(tmp_path: Path) -> None:
    hidden = Absent(why=Why.not_present, detail="no control group for cpu can be seen from here")
    door = look(plant("h200", 2), tmp_path, faulty("h200x2", {"host.cpu.quota_cpus": hidden}))["cgroup"]
    assert door.open is False


def test_rdma_adapters_without_their_device_files(tmp_path: Path) -> None:
    tree = plant("h200", 8)
    for path in [p for p in tree.files if p.startswith("/dev/infiniband/")]:
        tree.remove(path)
    door = look(tree, tmp_path)["infiniband"]
    assert (door.open, "--device=/dev/infiniband" in door.detail) == (False, True)


def test_processes_hidden_by_the_mount(tmp_path: Path) -> None:
    tree = plant("h200", 2)
    mounts = tree.files["/proc/self/mounts"]
    assert isinstance(mounts, str)
    tree.files["/proc/self/mounts"] = mounts.replace("proc /proc proc rw", "proc /proc proc rw,hidepid=2")
    door = look(tree, tmp_path)["processes"]
    assert (door.open, "hidepid" in door.detail) == (False, True)


@pytest.mark.parametrize(
    ("status", "ids", "is_open"),
    [
        ("CapEff:\t000001ffffffffff\n", "0 0 4294967295\n", True),
        ("CapEff:\t00000000a80425fb\n", "0 0 4294967295\n", False),
        ("CapEff:\t000001ffffffffff\n", "0 100000 65536\n", False),
        ("CapEff:\tlots\n", "0 0 4294967295\n", False),
    ],
)
def test_root_is_more_than_a_number(tmp_path: Path, status: str, ids: str, is_open: bool) -> None:
    tree = plant_cpu()
    tree.files["/proc/self/status"] = f"Name:\tpython\n{status}"
    tree.files["/proc/self/uid_map"] = ids
    assert look(tree, tmp_path)["root"].open is is_open


def test_before_anything_was_asked_no_door_is_called_closed() -> None:
    empty = healthy("h200x2").model_copy(
        update=dict.fromkeys(("host", "cards", "topology", "stack", "kernel_log"), Absent(why=Why.not_asked))
    )
    doors = probe(empty, Files(Recorded({})), Process(Recorded({})))
    assert tuple(door.name for door in doors) == NAMES
    for door in doors:
        assert isinstance(door.open, Absent), door.name
        assert door.open.why is Why.not_asked


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_no_answer_raises(data: st.DataObject) -> None:
    answers: st.SearchStrategy[Any] = st.one_of(
        st.none(), st.integers(), st.text(max_size=30), st.lists(st.text(max_size=9), max_size=3),
        st.sampled_from(["CapEff: f\n", "proc /proc proc hidepid=2", ["nvidia0"], ["nvidia0", "nvidiactl"], ["kfd"]]),
        st.sampled_from([Absent(why=why) for why in Why]),
    )  # fmt: skip
    channel = Live(lambda question: data.draw(answers, label=question))
    for door in probe(healthy("h200x2"), Files(channel), Process(channel)):
        assert door.detail

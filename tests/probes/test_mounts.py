from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodecheck.facts import Absent, Maybe, Why
from nodecheck.facts.host import Disk
from nodecheck.probes.mounts import MAX_DISKS, Mount, disks, kind_of, mounts
from nodecheck.sources import Files
from nodecheck.sources.channel import Answer, Live

GIB = 1024**3


def look(table: str, answers: dict[str, Answer] | None = None) -> tuple[Disk, ...]:
    def answer(question: str) -> Answer:
        if question == "read /proc/self/mounts":
            return table
        if answers and question in answers:
            return answers[question]
        if question.startswith("usage "):
            return [100 * GIB, 60 * GIB]
        return Absent(why=Why.not_present, detail="No such file or directory")

    f = Files(Live(answer))
    found: Maybe[tuple[Disk, ...]] = disks(f, mounts(f))
    assert isinstance(found, tuple)
    return found


def test_a_machine_of_its_own() -> None:
    table = (
        "sysfs /sys sysfs rw 0 0\nproc /proc proc rw 0 0\nudev /dev devtmpfs rw 0 0\n"
        "/dev/nvme0n1p2 / ext4 rw,relatime 0 0\n"
        "/dev/nvme0n1p1 /boot/efi vfat rw 0 0\n"
        "tmpfs /run tmpfs rw 0 0\ntmpfs /dev/shm tmpfs rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n"
        "/dev/loop3 /snap/core/1 squashfs ro 0 0\n"
        "/dev/md0 /scratch xfs rw,noatime 0 0\n"
        "10.0.0.5:/export/home /home nfs4 rw,vers=4.2 0 0\n"
        "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\nnsfs /run/netns/x nsfs rw 0 0\n"
    )
    found = look(
        table,
        {
            "read /sys/block/nvme0n1/device/model": "SAMSUNG MZQL23T8HCLS-00A07              \n",
            "list /sys/block/md0/slaves": ["nvme1n1p1", "nvme2n1p1"],
            "read /sys/block/nvme1n1/device/model": "Micron 7450\n",
            "read /sys/block/nvme2n1/device/model": "Micron 7450\n",
        },
    )
    assert [(d.mount, d.kind, d.model) for d in found if d.kind == "local"] == [
        ("/", "local", "SAMSUNG MZQL23T8HCLS-00A07"),
        ("/scratch", "local", "Micron 7450"),
    ]
    assert {d.mount: d.kind for d in found} == {
        "/": "local", "/scratch": "local", "/tmp": "memory", "/home": "network"
    }  # fmt: skip
    assert all((d.size_bytes, d.free_bytes) == (100 * GIB, 60 * GIB) for d in found)


def test_a_container_with_dozens_of_the_host_s_files() -> None:
    single = "".join(
        f"/dev/sda1 {place} ext4 ro 0 0\n"
        for place in ("/etc/hosts", "/etc/resolv.conf", "/usr/bin/nvidia-smi", "/usr/lib/libcuda.so.1")
    )
    table = (
        "overlay / overlay rw,lowerdir=/var/lib/docker/overlay2/l/A,upperdir=/u,workdir=/w 0 0\n"
        f"{single}/dev/sda1 /workspace ext4 rw 0 0\n/dev/sda1 /workspace/deeper ext4 rw 0 0\n"
        "shm /dev/shm tmpfs rw,size=65536k 0 0\ntmpfs /proc/acpi tmpfs ro 0 0\ntmpfs /mask tmpfs ro 0 0\n"
    )
    assert [(d.mount, d.kind) for d in look(table)] == [("/", "overlay"), ("/workspace", "local")]


def test_blanks_in_places_and_what_is_mounted_over_another() -> None:
    table = (
        "/dev/sdb1 /mnt/my\\040disk ext4 rw 0 0\n"
        "/dev/sdc1 /data ext4 rw 0 0\n"
        "//nas/share\\134x /data cifs rw 0 0\n"
    )
    found = look(table)
    assert [(d.mount, d.device, d.kind) for d in found] == [
        ("/data", "//nas/share\\x", "network"),
        ("/mnt/my disk", "/dev/sdb1", "local"),
    ]


@pytest.mark.parametrize(
    ("filesystem", "device", "kind"),
    [
        ("ext4", "/dev/vda1", "local"),
        ("zfs", "tank/data", "local"),
        ("nfs", "server:/x", "network"),
        ("lustre", "10.0.0.1@o2ib:/fs", "network"),
        ("fuse.sshfs", "me@host:/", "network"),
        ("fuse.juicefs", "JuiceFS:x", "network"),
        ("ceph", "mon:/", "network"),
        ("gpfs", "fs1", "network"),
        ("wekafs", "w", "network"),
        ("virtiofs", "share", "network"),
        ("9p", "share", "network"),
        ("newnetfs", "10.0.0.1:/export", "network"),
        ("tmpfs", "tmpfs", "memory"),
        ("overlay", "overlay", "overlay"),
        ("fuse.fuse-overlayfs", "fuse-overlayfs", "overlay"),
        ("newfs", "/dev/sdq", "unknown"),
        ("squashfs", "/dev/loop1", None),
        ("proc", "proc", None),
        ("autofs", "/etc/auto.home", None),
        ("autofs", "systemd-1", None),
        ("fuse.lxcfs", "lxcfs", None),
        ("cgroup2", "cgroup2", None),
        ("binfmt_misc", "binfmt_misc", None),
    ],
)
def test_kinds(filesystem: str, device: str, kind: str | None) -> None:
    assert kind_of(Mount(device, "/x", filesystem, ("rw",))) == kind


@pytest.mark.parametrize(
    ("device", "drive"),
    [
        ("/dev/nvme0n1", "nvme0n1"),
        ("/dev/nvme10n2p15", "nvme10n2"),
        ("/dev/sda", "sda"),
        ("/dev/sdab12", "sdab"),
        ("/dev/vda1", "vda"),
        ("/dev/mmcblk0p2", "mmcblk0"),
        ("/dev/md127", "md127"),
        ("/dev/dm-3", "dm-3"),
    ],
)
def test_the_drive_of_a_partition(device: str, drive: str) -> None:
    (disk,) = look(f"{device} / ext4 rw 0 0\n", {f"read /sys/block/{drive}/device/model": " M 1 \n"})
    assert disk.model == "M 1"


def test_a_logical_volume_names_the_drives_below_it() -> None:
    (disk,) = look(
        "/dev/mapper/vg-root / xfs rw 0 0\n",
        {
            "resolve /dev/mapper/vg-root": "/dev/dm-0",
            "list /sys/block/dm-0/slaves": ["md1"],
            "list /sys/block/md1/slaves": ["sda2", "sdb2"],
            "read /sys/block/sda/device/model": "A\n",
            "read /sys/block/sdb/device/model": "B\n",
        },
    )
    assert disk.model == "A, B"


def test_a_ring_of_devices_ends() -> None:
    (disk,) = look("/dev/dm-0 / xfs rw 0 0\n", {"list /sys/block/dm-0/slaves": ["dm-0", "dm-0"]})
    assert isinstance(disk.model, Absent)


def test_a_mount_that_does_not_answer_says_so() -> None:
    silent = Absent(why=Why.timed_out, detail="no answer within 2 s")
    (disk,) = look("nas:/x /nas nfs rw 0 0\n", {"usage /nas": silent})
    assert disk.size_bytes == silent
    assert disk.free_bytes == silent


def test_very_many_mounts_are_bounded() -> None:
    assert len(look("".join(f"s:/{i} /m/{i} nfs rw 0 0\n" for i in range(5000)))) == MAX_DISKS


def test_no_table_is_no_list() -> None:
    f = Files(Live(lambda question: Absent(why=Why.no_permission)))
    assert disks(f, mounts(f)) == Absent(why=Why.no_permission)


@given(st.text(max_size=200))
def test_no_table_raises(table: str) -> None:
    look(table)

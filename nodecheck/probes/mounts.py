"""What is mounted: the table itself, and the disks in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from nodecheck.facts import Absent, Maybe, Why
from nodecheck.facts.host import Disk
from nodecheck.probes.text import parse, unescape_octal, word
from nodecheck.sources import Files

MAX_DISKS = 64

_LOCAL = {
    "bcachefs", "btrfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "fuseblk", "jfs", "ntfs", "ntfs3",
    "reiserfs", "vfat", "xfs", "zfs",
}  # fmt: skip
_NETWORK = {
    "9p", "afs", "beegfs", "ceph", "cephfs", "cifs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs",
    "nfs4", "ocfs2", "orangefs", "panfs", "smb3", "smbfs", "virtiofs", "wekafs",
}  # fmt: skip
_MEMORY = {"ramfs", "tmpfs"}
_OVERLAY = {"aufs", "fuse.fuse-overlayfs", "overlay"}
_HELPERS = {"fuse.gvfsd-fuse", "fuse.lxcfs", "fuse.portal", "fuse.snapfuse", "fusectl"}
"""FUSE file systems that hold no data of anybody's."""

_SYSTEM_PLACES = re.compile(
    r"/(boot|dev|etc|proc|run|snap|sys|usr|bin|sbin|lib|lib32|lib64)(/|$)"
    r"|/var/lib/(containerd|containers|docker|kubelet|lxcfs|nfs)(/|$)|/var/run(/|$)"
)
"""Nobody keeps data here; a container has dozens of single files of the host's mounted at these places."""


@dataclass(frozen=True)
class Mount:
    device: str
    place: str
    filesystem: str
    options: tuple[str, ...]


def mounts(files: Files) -> Maybe[tuple[Mount, ...]]:
    """The mounts that this process sees, in their order; a line that is none is left out."""
    return parse(files.read("/proc/self/mounts"), _table)


def _table(text: str) -> tuple[Mount, ...]:
    lines = (line.split(" ") for line in text.splitlines())
    return tuple(
        Mount(
            device=unescape_octal(line[0]),
            place=unescape_octal(line[1]),
            filesystem=line[2],
            options=tuple(line[3].split(",")),
        )
        for line in lines
        if len(line) >= 4 and line[1].startswith("/")
    )


def disks(files: Files, mounted: Maybe[tuple[Mount, ...]]) -> Maybe[tuple[Disk, ...]]:
    """The file systems that can hold a renter's data, each device once, at most `MAX_DISKS`."""
    if isinstance(mounted, Absent):
        return mounted
    at = {mount.place: mount for mount in mounted}  # what is mounted over another hides it
    chosen: dict[str, Mount] = {}
    for mount in sorted(at.values(), key=lambda m: (len(m.place), m.place)):
        kind = kind_of(mount)
        if kind is None or _SYSTEM_PLACES.match(mount.place):
            continue
        if kind == "memory" and "ro" in mount.options:  # a mask over something else
            continue
        chosen.setdefault(mount.device if kind in ("local", "network") else mount.place, mount)
    return tuple(_disk(files, mount) for mount in list(chosen.values())[:MAX_DISKS])


Kind = Literal["local", "network", "memory", "overlay", "unknown"]


def kind_of(mount: Mount) -> Kind | None:
    """What a file system keeps its data on; None for one that keeps none (proc, sysfs, a squashed image)."""
    name = mount.filesystem
    if name in _OVERLAY:
        return "overlay"
    if name in _MEMORY:
        return "memory"
    if name in _LOCAL:
        return "local"
    if name in _HELPERS:
        return None
    if name in _NETWORK or name.startswith("fuse."):
        return "network"
    if name == "fuse" or mount.device.startswith(("//", "/dev/")):
        return None if name in ("devtmpfs", "squashfs", "iso9660", "erofs", "udf") else "unknown"
    # `host:/export` and `10.0.0.1@o2ib:/fs`: a network file system that the list above does not know.
    return "network" if ":/" in mount.device else None


def _disk(files: Files, mount: Mount) -> Disk:
    kind = kind_of(mount)
    assert kind is not None  # noqa: S101  (the others were left out above)
    usage = files.usage(mount.place)
    model: Maybe[str] = Absent(
        why=Why.not_supported, detail=f"a {kind} file system is on no drive of its own"
    )
    if kind in ("local", "unknown"):
        model = _model(files, mount.device)
    return Disk(
        mount=mount.place,
        device=mount.device,
        filesystem=mount.filesystem,
        kind=kind,
        size_bytes=usage if isinstance(usage, Absent) else usage.total_bytes,
        free_bytes=usage if isinstance(usage, Absent) else usage.free_bytes,
        read_only="ro" in mount.options,
        model=model,
    )


_PARTITION = re.compile(r"((?:nvme\d+n|mmcblk|md|loop|nbd|zd|dm-)\d+|[a-z]+)(?:p?\d+)?", re.ASCII)


def _model(files: Files, device: str) -> Maybe[str]:
    """Model of the drive, or of the drives, below a block device."""
    if device.startswith("/dev/mapper/"):
        resolved = files.resolve(device)
        if isinstance(resolved, Absent):
            return resolved
        device = resolved
    drives = _drives(files, device.removeprefix("/dev/"), depth=3)
    if not drives:
        return Absent(why=Why.not_present, detail=f"{device} is no block device that /sys/block knows")
    models = [parse(files.read(f"/sys/block/{drive}/device/model"), word) for drive in drives]
    names = sorted({model for model in models if not isinstance(model, Absent)})
    return ", ".join(names) if names else models[0]


def _drives(files: Files, name: str, depth: int) -> list[str]:
    """The drives behind a partition, a RAID set or a logical volume."""
    match = _PARTITION.fullmatch(name)
    if match is None or depth == 0:
        return []
    slaves = files.list(f"/sys/block/{match[1]}/slaves")
    if isinstance(slaves, Absent) or not slaves:
        return [match[1]]
    return [drive for slave in slaves[:32] for drive in _drives(files, slave, depth - 1)]

"""The device files through which programs use AMD's cards, and whether this user may open them."""

from __future__ import annotations

import re

from nodecheck.facts import Absent, Maybe, Why
from nodecheck.facts.host import DeviceFile
from nodecheck.sources import Files, Process

_NONE = Absent(why=Why.not_present, detail="no /dev/kfd: no AMD driver, or it is kept from this container")


def probe(files: Files, process: Process) -> Maybe[tuple[DeviceFile, ...]]:
    """/dev/kfd and every render node of the DRM; `not_present` where there is no /dev/kfd.

    Render nodes of other vendors' cards beside AMD's are among them: which is whose, `Identity.render_minor` says.
    """
    names = files.list("/dev")
    if isinstance(names, Absent):
        return names
    if "kfd" not in names:
        return _NONE
    dri = files.list("/dev/dri")
    minors = sorted(
        int(match[1])
        for name in (() if isinstance(dri, Absent) else dri)
        if (match := re.fullmatch(r"renderD([0-9]{1,4})", name))
    )
    groups = _group_names(files)
    mine = process.groups()
    paths = ("/dev/kfd", *(f"/dev/dri/renderD{minor}" for minor in minors))
    return tuple(_device_file(files, path, groups, mine) for path in paths)


def _device_file(files: Files, path: str, groups: dict[int, str], mine: Maybe[tuple[int, ...]]) -> DeviceFile:
    owner = files.owner(path)
    allowed = files.access(path)
    if isinstance(owner, Absent):
        return DeviceFile(path=path, allowed=allowed, mode=owner, group=owner, group_id=owner, member=owner)
    return DeviceFile(
        path=path,
        allowed=allowed,
        mode=f"{owner.mode:04o}",
        group=groups.get(owner.group_id, str(owner.group_id)),
        group_id=owner.group_id,
        member=mine if isinstance(mine, Absent) else owner.group_id in mine,
    )


def _group_names(files: Files) -> dict[int, str]:
    """Number → name, by /etc/group; a container often has no names for the machine's groups."""
    text = files.read("/etc/group")
    if isinstance(text, Absent):
        return {}
    lines = re.findall(r"^([\w.-]{1,64}):[^:\n]*:([0-9]{1,10}):", text, re.MULTILINE)
    return {int(number): name for name, number in reversed(lines)}

"""What stands between this process and the hardware: a container, a hypervisor."""

from __future__ import annotations

import re

from nodecheck.facts import Absent, Maybe
from nodecheck.probes.mounts import Mount
from nodecheck.probes.text import parse
from nodecheck.sources import Files, Process

INITIAL_NAMESPACES = {
    "pid": "pid:[4026531836]",
    "ipc": "ipc:[4026531839]",
    "uts": "uts:[4026531838]",
    "cgroup": "cgroup:[4026531835]",
}
"""The namespaces that a machine boots with have fixed numbers (PROC_*_INIT_INO of linux/proc_ns.h)."""

_GVISOR = "#1 SMP Sun Jan 10 15:06:54 PST 2016"
"""The kernel build that every gVisor sandbox claims to be."""

_MARKS = (
    ("/run/secrets/kubernetes.io", "kubernetes"),
    ("/var/run/secrets/kubernetes.io", "kubernetes"),
    ("/.singularity.d", "apptainer"),
    ("/.dockerenv", "docker"),
    ("/run/.containerenv", "podman"),
)

_GROUPS = (
    ("kubepods", "kubernetes"),
    ("docker", "docker"),
    ("libpod", "podman"),
    ("lxc", "lxc"),
    ("crio", "crio"),
    ("containerd", "containerd"),
    ("buildkit", "buildkit"),
)
"""A word in the name of the control group, and whose container it is."""

_LAYERS = (
    ("/var/lib/docker/", "docker"),
    ("/containers/storage/", "podman"),
    ("containerd", "containerd"),
)
"""A word in the layers of the root's overlay, and whose container it is."""


def container(files: Files, process: Process, mounted: Maybe[tuple[Mount, ...]]) -> Maybe[str]:
    """`none`, the kind of container this is, or `other` where it is one without a name.

    A mark such as /.dockerenv is also found in the disk image of a virtual machine that was made out of a
    container's: marks count only where the namespaces are not all the machine's own.
    """
    uname = process.uname()
    if isinstance(uname, dict) and uname.get("version") == _GVISOR:
        return "gvisor"
    apart = in_namespaces_of_its_own(files)
    marked = apart is not False and _marked(files, process)
    named = marked or _by_group(files) or _by_layers(mounted)
    if named:
        return named
    if isinstance(apart, Absent):
        return apart
    return "other" if apart else "none"


def in_namespaces_of_its_own(files: Files) -> Maybe[bool]:
    """Whether this process is cut off from the machine's processes, names or control groups."""
    said = {kind: files.link(f"/proc/self/ns/{kind}") for kind in INITIAL_NAMESPACES}
    pid = said["pid"]
    if isinstance(pid, Absent):
        return pid
    return any(isinstance(name, str) and name != INITIAL_NAMESPACES[kind] for kind, name in said.items())


def _marked(files: Files, process: Process) -> str | None:
    """What the container's maker left behind."""
    environment = process.environment()
    own = environment if isinstance(environment, dict) else {}
    if "KUBERNETES_SERVICE_HOST" in own:
        return "kubernetes"
    for path, name in _MARKS:
        if not isinstance(files.resolve(path), Absent):
            return name
    first = files.read("/proc/1/environ")
    variables = first.split("\0") if isinstance(first, str) else []
    told = [v.partition("=")[2] for v in variables if v.startswith("container=")]
    for word in (*told, files.read("/run/systemd/container"), own.get("container")):
        if isinstance(word, str) and re.fullmatch(r"[a-z][a-z0-9-]{0,31}\n?", word):
            return word.strip()
    return None


def _by_group(files: Files) -> str | None:
    groups = files.read("/proc/self/cgroup")
    return next((name for word, name in _GROUPS if isinstance(groups, str) and word in groups), None)


def _by_layers(mounted: Maybe[tuple[Mount, ...]]) -> str | None:
    roots = [m for m in mounted if m.place == "/"] if isinstance(mounted, tuple) else []
    layers = [o for o in roots[-1].options if o.startswith("lowerdir=")] if roots else []
    return next((name for word, name in _LAYERS if any(word in layer for layer in layers)), None)


_VENDORS = (
    ("vmware", "vmware"),
    ("virtualbox", "virtualbox"),
    ("innotek", "virtualbox"),
    ("xen", "xen"),
    ("virtual machine", "hyperv"),
    ("parallels", "parallels"),
    ("bhyve", "bhyve"),
    ("cloud hypervisor", "cloud-hypervisor"),
    ("firecracker", "firecracker"),
    ("qemu", "kvm"),
    ("kvm", "kvm"),
    ("bochs", "kvm"),
    ("openstack", "kvm"),
)
"""A word in the firmware's tables (DMI) that only a hypervisor writes, and its name."""

_CLOUDS = (
    "amazon ec2",
    "google",
    "digitalocean",
    "alibaba cloud",
    "hetzner",
    "vultr",
    "akamai",
    "linode",
    "nutanix",
)
"""Makers of both: their tables name KVM's guests and, where no hypervisor shows otherwise, real machines."""

_CLOCKS = (("kvm-clock", "kvm"), ("hyperv", "hyperv"), ("xen", "xen"))


def virtualization(files: Files, cpuinfo: Maybe[str]) -> Maybe[str]:
    """`none`, the hypervisor's name, or `other` for one without a name."""
    tables = [
        text
        for name in ("sys_vendor", "product_name", "board_vendor", "bios_vendor")
        if isinstance(text := files.read(f"/sys/class/dmi/id/{name}"), str)
    ]
    firmware = " ".join(tables).lower()
    guest = parse(cpuinfo, _in_a_guest)
    for word, name in _VENDORS:
        if word in firmware:
            return name
    if guest is False:
        return "none"
    if isinstance(guest, Absent):  # not an x86 CPU, or not to be seen
        if not firmware:
            return guest
        cloud = any(word in firmware for word in _CLOUDS) and "metal" not in firmware
        return "kvm" if cloud else "none"
    clocks = files.read("/sys/devices/system/clocksource/clocksource0/available_clocksource")
    for word, name in _CLOCKS:
        if isinstance(clocks, str) and word in clocks:
            return name
    return "kvm" if any(word in firmware for word in _CLOUDS) else "other"


def _in_a_guest(cpuinfo: str) -> bool | None:
    """The hypervisor flag, which x86 CPUs show to a guest; None where CPUs have no such flags."""
    match = re.search(r"^flags\s*:(.*)$", cpuinfo, re.MULTILINE)
    return "hypervisor" in match[1].split() if match else None

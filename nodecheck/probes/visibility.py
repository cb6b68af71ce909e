"""The ledger of doors: which ways to see the node were open to this user, and why the others were not."""

from __future__ import annotations

import re
from collections.abc import Callable

from nodecheck.facts import Absent, Door, Maybe, Node, Why
from nodecheck.facts.base import AMD_ALONE
from nodecheck.probes import isolation, mounts
from nodecheck.probes.text import parse
from nodecheck.sources import Files, Process

Answer = tuple[Maybe[bool], str]
"""Whether the door is open, and a sentence on what is seen through it or why it is closed."""


def probe(node: Node, files: Files, process: Process) -> tuple[Door, ...]:
    """Every door, in the order of the report. `node` has everything but its doors."""
    doors: tuple[tuple[str, Callable[[], Answer]], ...] = (
        ("nvml", lambda: _nvml(node)),
        ("device_files", lambda: _device_files(files)),
        ("pci", lambda: _pci(files)),
        ("driver_proc", lambda: _driver_proc(files)),
        ("kernel_log", lambda: _kernel_log(node, files)),
        ("torch", lambda: _torch(node)),
        ("libcuda", lambda: _libcuda(node)),
        ("host", lambda: _host(node)),
        ("cgroup", lambda: _cgroup(node)),
        ("dmi", lambda: _dmi(files)),
        ("infiniband", lambda: _infiniband(files)),
        ("processes", lambda: _processes(files)),
        ("root", lambda: _root(files, process)),
    )
    if _has_amd(node):
        doors += (
            ("kfd", lambda: _kfd(node, files)),
            ("render", lambda: _render(node)),
            ("amd_smi", lambda: _amd_smi(node)),
            ("amdsmi", lambda: _amdsmi(node)),
        )
    return tuple(
        Door(name=name, open=is_open, detail=detail) for name, look in doors for is_open, detail in [look()]
    )


def _closed(absent: Absent, reasons: dict[Why, str]) -> Answer:
    """A door that gave no answer: closed for the reason in words, or not even tried."""
    if absent.why is Why.not_asked:
        return absent, "Not asked in this run."
    words = reasons.get(absent.why) or f"No answer: {absent.why.value.replace('_', ' ')}."
    return False, f"{words} ({absent.detail})" if absent.detail else words


def _nvml(node: Node) -> Answer:
    cards: Maybe[int] = node.cards if isinstance(node.cards, Absent) else len(node.cards)
    if _has_amd(node) and not isinstance(node.topology, Absent):
        cards = node.topology.nvml_count
    if isinstance(cards, Absent):
        return _closed(
            cards,
            {
                Why.not_present: "The driver's library libnvidia-ml.so.1 is not here: this machine has no "
                "NVIDIA driver, or the container was started without the cards (--gpus all).",
                Why.no_permission: "The driver does not let this user ask about the cards.",
                Why.timed_out: "NVML did not answer in time: a card or the driver hangs.",
                Why.failed: "NVML is installed and does not work.",
            },
        )
    return True, f"NVML answers and lists {_count(cards, 'card')}."


def _device_files(files: Files) -> Answer:
    names = files.list("/dev")
    if isinstance(names, Absent):
        return _closed(names, {Why.no_permission: "This user may not list /dev."})
    cards = [name for name in names if re.fullmatch(r"nvidia[0-9]+", name)]
    kfd = ["kfd"] if "kfd" in names else []
    if not cards and not kfd:
        return False, "There is no /dev/nvidia0 or /dev/kfd: no card is handed to this machine or container."
    nvidia = bool(cards)
    if nvidia and "nvidiactl" not in names:
        return False, "/dev/nvidiactl is missing: no program can talk to the driver without it."
    shut = [
        f"/dev/{name}"
        for name in (*cards, *(["nvidiactl"] if nvidia else []), *kfd)
        if files.access(f"/dev/{name}") is not True
    ]
    if shut:
        shown = ", ".join(shut[:16])
        return False, (
            f"{shown} may not be opened by this user: the user's group, or the container's access to "
            "devices, is missing."
        )
    if kfd and not cards:
        return True, "This user may open /dev/kfd, through which all of AMD's cards are used."
    return True, f"This user may open the device files of {_count(len(cards), 'card')}."


def _pci(files: Files) -> Answer:
    devices = files.list("/sys/bus/pci/devices")
    if isinstance(devices, Absent):
        return _closed(devices, {Why.not_present: "There is no PCI bus to be seen: a sandbox hides /sys."})
    if not devices:
        return False, "The PCI bus is empty from here: a sandbox hides it, or the machine has none."
    space = files.read_hex(f"/sys/bus/pci/devices/{devices[0]}/config")
    whole = isinstance(space, str) and len(space) > 2 * 64
    return True, f"{_count(len(devices), 'device')} on the PCI bus" + (
        "." if whole else "; their configuration beyond the header takes root."
    )


def _driver_proc(files: Files) -> Answer:
    version = files.read("/proc/driver/nvidia/version")
    if isinstance(version, Absent):
        return _closed(
            version,
            {
                Why.not_present: "The NVIDIA kernel driver is not loaded, or the container hides "
                "/proc/driver/nvidia.",
                Why.timed_out: "The kernel driver did not answer in time: it hangs.",
            },
        )
    return True, "The kernel driver says of itself and its cards what it has in /proc/driver/nvidia."


# AMD's


def _has_amd(node: Node) -> bool:
    """Whether there was anything of AMD's to look at."""
    if any(card.vendor == "amd" for card in node.known_cards):
        return True
    return not isinstance(node.topology, Absent) and node.topology.kfd_count != AMD_ALONE


def _kfd(node: Node, files: Files) -> Answer:
    if isinstance(node.topology, Absent):
        return _closed(node.topology, {})
    count, hidden = node.topology.kfd_count, node.topology.kfd_hidden
    if isinstance(count, Absent):
        loaded = not isinstance(files.list("/sys/module/amdgpu"), Absent)
        return _closed(
            count,
            {
                Why.not_present: "KFD shows no topology in /sys/class/kfd: the driver amdgpu is loaded and has not "
                "started the cards, or the container hides it."
                if loaded
                else "The kernel driver amdgpu is not loaded, or the container hides /sys.",
            },
        )
    hides = isinstance(hidden, int) and hidden > 0
    return count > 0, f"KFD shows {_count(count, 'device')}" + (
        f" and keeps {hidden} more from this container." if hides else "."
    )


def _render(node: Node) -> Answer:
    if isinstance(node.host, Absent):
        return _closed(node.host, {})
    listed = node.host.device_files
    if isinstance(listed, Absent):
        return _closed(
            listed,
            {
                Why.not_present: "There is no /dev/kfd: the driver amdgpu is not loaded, or the container was started "
                "without it (--device=/dev/kfd --device=/dev/dri)."
            },
        )
    if len(listed) == 1:
        return (
            False,
            "There is no render node in /dev/dri: the container was started without (--device=/dev/dri).",
        )
    shut = [file for file in listed if file.allowed is False]
    if not shut:
        return True, f"This user may open /dev/kfd and {_count(len(listed) - 1, 'render node')} in /dev/dri."
    groups = sorted({str(file.group) for file in shut if file.member is False})
    told = ", ".join(file.path for file in shut[:8]) + " may not be opened by this user"
    if not groups:
        return False, f"{told}: the container's access to devices is missing."
    return False, (
        f"{told}, who is not in the group {' or '.join(groups)} (usermod -aG {','.join(groups)}, or "
        f"--group-add {shut[0].group_id} for a container)."
    )


def _amd_smi(node: Node) -> Answer:
    if isinstance(node.topology, Absent):
        return _closed(node.topology, {})
    count = node.topology.amd_smi_count
    if isinstance(count, Absent):
        return _closed(
            count,
            {
                Why.not_present: "amd-smi is not installed, or is neither on PATH nor in /opt/rocm/bin.",
                Why.no_permission: "amd-smi does not tell this user anything.",
                Why.timed_out: "amd-smi did not answer in time: a card or the driver hangs.",
                Why.failed: "amd-smi is installed and does not work.",
            },
        )
    return True, f"amd-smi answers and lists {_count(count, 'card')}."


def _amdsmi(node: Node) -> Answer:
    if isinstance(node.topology, Absent):
        return _closed(node.topology, {})
    count = node.topology.amdsmi_count
    if isinstance(count, Absent):
        if count.why is Why.not_asked:
            return count, "ROCm's own Python binding was not needed."
        return _closed(
            count,
            {
                Why.not_present: "ROCm's own Python binding is not installed (share/amd_smi of the ROCm installation).",
                Why.timed_out: "ROCm's own Python binding did not answer in time: a card or the driver hangs.",
                Why.failed: "ROCm's own Python binding does not work: often it and its library are of two releases.",
            },
        )
    return count > 0, f"ROCm's own Python binding answers and lists {_count(count, 'card')}."


def _kernel_log(node: Node, files: Files) -> Answer:
    log = node.kernel_log
    source = log if isinstance(log, Absent) else log.source
    if not isinstance(source, Absent):
        return True, f"The kernel's log can be read through {source}."
    restricted = files.read("/proc/sys/kernel/dmesg_restrict")
    if isinstance(restricted, str) and restricted.strip() == "1" and source.why is Why.no_permission:
        return False, (
            "The kernel's log is for root alone here (kernel.dmesg_restrict = 1; the right is CAP_SYSLOG), "
            "and this user may not read the journal."
        )
    return _closed(
        source,
        {
            Why.no_permission: "This user may not read the kernel's log: it takes root or CAP_SYSLOG.",
            Why.not_present: "There is no kernel log here; containers are commonly given none.",
        },
    )


def _torch(node: Node) -> Answer:
    if isinstance(node.stack, Absent):
        return _closed(node.stack, {})
    if isinstance(node.stack.torch, Absent):
        return _closed(
            node.stack.torch,
            {
                Why.not_present: "No interpreter here has PyTorch; name the one that has with --python.",
                Why.timed_out: "Importing PyTorch did not end in time.",
                Why.failed: "PyTorch is installed and cannot be imported.",
            },
        )
    return True, "PyTorch answers in the renter's own interpreter."


def _libcuda(node: Node) -> Answer:
    if isinstance(node.stack, Absent):
        return _closed(node.stack, {})
    if isinstance(node.stack.cuda_init, Absent):
        return _closed(
            node.stack.cuda_init,
            {
                Why.not_present: "The driver's library libcuda.so.1 is not here: this machine has no NVIDIA "
                "driver, or the container lacks the driver capability `compute`.",
                Why.timed_out: "cuInit did not return in time: a card or the driver hangs.",
            },
        )
    return True, "The driver's library libcuda.so.1 loads and answers."


def _host(node: Node) -> Answer:
    if isinstance(node.host, Absent):
        return _closed(node.host, {Why.failed: "The machine could not be looked at."})
    container, hypervisor = node.host.container, node.host.virtualization
    if isinstance(container, Absent):
        within = "Container or not is unknown"
    elif container == "none":
        within = "No container"
    else:
        within = f"In a container ({container})"
    if isinstance(hypervisor, Absent):
        on = "and whether the machine is virtual is unknown"
    elif hypervisor == "none":
        on = "on the machine itself"
    else:
        on = f"on a virtual machine ({hypervisor}): what cards it has are passed through"
    return True, f"{within}, {on}."


def _cgroup(node: Node) -> Answer:
    if isinstance(node.host, Absent):
        return _closed(node.host, {})
    cpus, memory = node.host.cpu.quota_cpus, node.host.memory.limit_bytes
    for limit in (cpus, memory):
        if isinstance(limit, Absent):
            return _closed(
                limit,
                {
                    Why.not_present: "The limits on CPU time and memory cannot be seen: no control-group "
                    "file system is mounted here.",
                },
            )
    return True, "The limits on CPU time and memory can be seen."


def _dmi(files: Files) -> Answer:
    vendor = files.read("/sys/class/dmi/id/sys_vendor")
    if isinstance(vendor, Absent):
        return _closed(
            vendor,
            {
                Why.not_present: "The firmware's tables are not here: a small virtual machine has none, and "
                "some containers hide them.",
            },
        )
    product = files.read("/sys/class/dmi/id/product_name")
    said = " ".join(" ".join(text.split()) for text in (vendor, product) if isinstance(text, str))
    serials = files.read("/sys/class/dmi/id/product_serial")
    return True, f"The firmware names the machine: {said[:120]}" + (
        "; its serial numbers take root." if isinstance(serials, Absent) else "."
    )


def _infiniband(files: Files) -> Answer:
    adapters = files.list("/sys/class/infiniband")
    if isinstance(adapters, Absent) and adapters.why is not Why.not_present:
        return _closed(adapters, {Why.no_permission: "This user may not list the RDMA adapters."})
    if not adapters or isinstance(adapters, Absent):
        none = Absent(why=Why.not_present, detail="no RDMA adapter")
        return none, "No InfiniBand or RoCE adapter is here, or the container is given none."
    verbs = files.list("/dev/infiniband")
    ports = [n for n in verbs if n.startswith("uverbs")] if isinstance(verbs, tuple) else []
    if not ports:
        return False, (
            f"{_count(len(adapters), 'RDMA adapter')} can be seen and none can be used: the device files "
            "/dev/infiniband/uverbs* are missing (--device=/dev/infiniband)."
        )
    if not any(files.access(f"/dev/infiniband/{name}") is True for name in ports):
        return False, "The RDMA adapters' device files in /dev/infiniband may not be opened by this user."
    return True, f"{_count(len(adapters), 'RDMA adapter')} can be seen and opened."


def _processes(files: Files) -> Answer:
    apart = files.link("/proc/self/ns/pid")
    if isinstance(apart, Absent):
        return _closed(apart, {Why.not_present: "Which processes can be seen is not known here."})
    if apart != isolation.INITIAL_NAMESPACES["pid"]:
        return False, (
            "Only the processes of this container can be seen: daemons of the machine and other tenants' "
            "programs on the cards stay hidden."
        )
    mounted = mounts.mounts(files)
    proc = [m for m in mounted if m.place == "/proc"] if isinstance(mounted, tuple) else []
    if any(
        option in ("hidepid=2", "hidepid=1", "hidepid=invisible", "hidepid=noaccess")
        for m in proc[-1:]
        for option in m.options
    ):
        return False, "Only this user's own processes can be seen (/proc is mounted with hidepid)."
    return True, "The processes of the whole machine can be seen."


_CAP_SYS_ADMIN = 21
"""linux/capability.h."""


def _root(files: Files, process: Process) -> Answer:
    user = process.user_id()
    if isinstance(user, Absent):
        return _closed(user, {})
    if user != 0:
        return False, (
            f"Run as an ordinary user (id {user}): PCI configuration space, serial numbers of the machine "
            "and often the kernel's log take root."
        )
    rights = parse(files.read("/proc/self/status"), _effective_rights)
    if isinstance(rights, Absent):
        return _closed(rights, {Why.failed: "Root, but with which rights is not known."})
    if not rights >> _CAP_SYS_ADMIN & 1:
        return (
            False,
            "Root of a container only: the right CAP_SYS_ADMIN is missing, as containers usually want it.",
        )
    ids = files.read("/proc/self/uid_map")
    if isinstance(ids, str) and ids.split() not in ([], ["0", "0", "4294967295"]):
        return False, "Root of a user namespace only, and an ordinary user for the machine."
    return True, "Run as root."


def _effective_rights(status: str) -> int | None:
    match = re.search(r"^CapEff:\s*([0-9a-f]{1,16})\s*$", status, re.MULTILINE)
    return int(match[1], 16) if match else None


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"

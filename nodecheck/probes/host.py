"""The machine around the cards."""

from __future__ import annotations

import math
import re

from nodecheck.facts import Absent, Host, Maybe, Why
from nodecheck.facts.host import Cpu, HostMemory, Limits
from nodecheck.probes import cgroup, device_files, isolation, mounts, pci
from nodecheck.probes.text import number, number_list, parse, word
from nodecheck.sources import Commands, Files, Process
from nodecheck.sources.process import RunningProcess

_CPU = "/sys/devices/system/cpu"

SERVICES = (
    "dcgm-exporter",
    "nv-fabricmanager",
    "nv-hostengine",
    "nvidia-cuda-mps-control",
    "nvidia-imex",
    "nvidia-persistenced",
    "nvlsm",
    "opensm",
)
"""Daemons that matter to the cards."""

_COMM_LENGTH = 15
"""The kernel keeps so much of a process's name (TASK_COMM_LEN less its end)."""


def probe(files: Files, process: Process, commands: Commands) -> Host:
    """Everything known of the host; never raises for what the node answers."""
    mounted = mounts.mounts(files)
    container = isolation.container(files, process, mounted)
    allowed = cgroup.allowance(files, mounted, container)
    cards = pci.cards(files)
    cpuinfo = files.read("/proc/cpuinfo")
    uname = process.uname()
    boot = parse(files.read("/proc/cmdline"), lambda text: text.strip()[:8192])
    user = process.user_id()
    running = process.processes()
    return Host(
        name=_of(uname, "node"),
        os=_os(files),
        kernel=_of(uname, "release"),
        boot_command_line=boot,
        boot_id=parse(files.read("/proc/sys/kernel/random/boot_id"), word),
        uptime_seconds=parse(files.read("/proc/uptime"), _seconds),
        is_root=user if isinstance(user, Absent) else user == 0,
        container=container,
        virtualization=isolation.virtualization(files, cpuinfo),
        clock_synchronized=process.clock_synchronized(),
        iommu=pci.iommu(files, cards, boot),
        acs_bridges=pci.acs_bridges(files, cards),
        services=_services(running),
        fabric_manager_version=_fabric_manager(commands),
        stuck_processes=_stuck(running),
        cpu=_cpu(files, process, cpuinfo, _of(uname, "machine"), allowed.cpus),
        memory=_memory(files, allowed.memory_bytes),
        limits=_limits(process, allowed.processes),
        disks=mounts.disks(files, mounted),
        device_files=device_files.probe(files, process),
    )


def _of(table: Maybe[dict[str, str]], key: str) -> Maybe[str]:
    if isinstance(table, Absent):
        return table
    return parse(table.get(key, ""), word)


def _os(files: Files) -> Maybe[str]:
    text = files.read("/etc/os-release")
    if isinstance(text, Absent):
        text = files.read("/usr/lib/os-release")
    return parse(text, _pretty_name)


def _pretty_name(os_release: str) -> str | None:
    """PRETTY_NAME of os-release(5), without the shell's quotes and backslashes."""
    match = re.search(r"^PRETTY_NAME=(.*)$", os_release, re.MULTILINE)
    if match is None:
        return None
    value = match[1].strip()
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1]
    return word(re.sub(r"\\(.)", r"\1", value))


def _seconds(uptime: str) -> float | None:
    match = re.match(r"\s*([0-9]{1,12}(?:\.[0-9]{1,6})?)\s", uptime)
    seconds = float(match[1]) if match else math.nan
    return seconds if math.isfinite(seconds) else None


def _services(running: Maybe[tuple[RunningProcess, ...]]) -> Maybe[tuple[str, ...]]:
    if isinstance(running, Absent):
        return running
    names = {one.name for one in running}
    return tuple(service for service in SERVICES if service[:_COMM_LENGTH] in names)


def _stuck(running: Maybe[tuple[RunningProcess, ...]]) -> Maybe[int]:
    if isinstance(running, Absent):
        return running
    return sum(one.state == "D" for one in running)


def _fabric_manager(commands: Commands) -> Maybe[str]:
    output = commands.run("fabric_manager")
    if isinstance(output, Absent):
        return output
    return parse(output.stdout + output.stderr, _version)


def _version(text: str) -> str | None:
    match = re.search(r"\b[0-9]{3,4}\.[0-9]{1,4}(?:\.[0-9]{1,4}){0,2}\b", text)
    return match[0] if match else None


def _cpu(
    files: Files, process: Process, cpuinfo: Maybe[str], machine: Maybe[str], quota: cgroup.Limit
) -> Cpu:
    online = parse(files.read(f"{_CPU}/online"), _numbers)
    present = parse(files.read(f"{_CPU}/present"), _numbers)
    packages, cores = _sockets_and_cores(files, online)
    return Cpu(
        model=parse(cpuinfo, _cpu_model),
        architecture=machine,
        sockets=packages,
        cores=cores,
        present=online if isinstance(online, Absent) else len(online),
        offline=_less(present, online),
        affinity=process.cpus(),
        quota_cpus=quota,
        numa_nodes=parse(
            files.read("/sys/devices/system/node/online"), lambda text: len(number_list(text) or ()) or None
        ),
        governor=parse(files.read(f"{_CPU}/cpu0/cpufreq/scaling_governor"), word),
    )


def _numbers(text: str) -> tuple[int, ...] | None:
    """A list of which there must be one item at least."""
    return number_list(text) or None


def _less(all_of: Maybe[tuple[int, ...]], some: Maybe[tuple[int, ...]]) -> Maybe[int]:
    if isinstance(all_of, Absent):
        return all_of
    if isinstance(some, Absent):
        return some
    return len(set(all_of) - set(some))


def _sockets_and_cores(files: Files, online: Maybe[tuple[int, ...]]) -> tuple[Maybe[int], Maybe[int]]:
    if isinstance(online, Absent):
        return online, online
    packages, cores = set[int](), set[tuple[int, int]]()
    for cpu in online:
        package = parse(files.read(f"{_CPU}/cpu{cpu}/topology/physical_package_id"), number)
        if isinstance(package, Absent):
            return package, package
        core = parse(files.read(f"{_CPU}/cpu{cpu}/topology/core_id"), number)
        if isinstance(core, Absent):
            return core, core
        packages.add(package)
        cores.add((package, core))
    return len(packages), len(cores)


def _cpu_model(cpuinfo: str) -> str | None:
    """The model's name on x86; on Arm, which has none, the two numbers that identify it."""
    match = re.search(r"^model name\s*:(.*)$", cpuinfo, re.MULTILINE)
    if match:
        return word(match[1])
    maker = re.search(r"^CPU implementer\s*:\s*(0x[0-9a-f]{1,4})\s*$", cpuinfo, re.MULTILINE)
    part = re.search(r"^CPU part\s*:\s*(0x[0-9a-f]{1,4})\s*$", cpuinfo, re.MULTILINE)
    if maker is None or part is None:
        return None
    number_pair = (maker[1], part[1])
    return _ARM_CORES.get(number_pair, "Arm implementer {} part {}".format(*number_pair))


_ARM_CORES = {
    ("0x41", "0xd0c"): "Arm Neoverse N1",
    ("0x41", "0xd40"): "Arm Neoverse V1",
    ("0x41", "0xd49"): "Arm Neoverse N2",
    ("0x41", "0xd4f"): "Arm Neoverse V2",
}
"""Main ID register's implementer and part (arch/arm64/include/asm/cputype.h). Grace has Neoverse V2 cores."""


def _memory(files: Files, limit: Maybe[int | cgroup.Unlimited]) -> HostMemory:
    meminfo = files.read("/proc/meminfo")
    shm = files.usage("/dev/shm")  # noqa: S108
    return HostMemory(
        total_bytes=_meminfo(meminfo, "MemTotal"),
        available_bytes=_meminfo(meminfo, "MemAvailable"),
        limit_bytes=limit,
        swap_bytes=_meminfo(meminfo, "SwapTotal"),
        shm_total_bytes=shm if isinstance(shm, Absent) else shm.total_bytes,
        shm_free_bytes=shm if isinstance(shm, Absent) else shm.free_bytes,
        transparent_huge_pages=parse(files.read("/sys/kernel/mm/transparent_hugepage/enabled"), _bracketed),
        numa_balancing=parse(
            files.read("/proc/sys/kernel/numa_balancing"),
            lambda text: None if (mode := number(text)) is None else mode > 0,
        ),
        huge_pages=parse(meminfo, _huge_pages),
    )


def _huge_pages(meminfo: str) -> int | None:
    match = re.search(r"^HugePages_Total:\s*([0-9]{1,12})$", meminfo, re.MULTILINE)
    return int(match[1]) if match else None


def _meminfo(text: Maybe[str], key: str) -> Maybe[int]:
    def kibibytes(meminfo: str) -> int | None:
        match = re.search(rf"^{key}:\s*([0-9]{{1,15}}) kB$", meminfo, re.MULTILINE)
        return int(match[1]) * 1024 if match else None

    return parse(text, kibibytes)


def _bracketed(text: str) -> str | None:
    """`always [madvise] never` → `madvise`."""
    match = re.search(r"\[([a-z+_-]{1,32})\]", text)
    return match[1] if match else None


def _limits(process: Process, processes: Maybe[int | cgroup.Unlimited]) -> Limits:
    limits = process.limits()

    def soft(name: str) -> Maybe[int | cgroup.Unlimited]:
        if isinstance(limits, Absent):
            return limits
        if name not in limits:
            return Absent(why=Why.not_asked, detail=f"no limit called {name} was asked for")
        value = limits[name]
        return value if value >= 0 else "unlimited"

    return Limits(
        memlock_bytes=soft("memlock"),
        open_files=soft("nofile"),
        processes=soft("nproc"),
        cgroup_processes=processes,
    )

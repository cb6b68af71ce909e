"""The machine around the cards, present and allowed."""

from __future__ import annotations

from typing import Literal

from nodecheck.facts.base import Fact, Gathered, Maybe, seen, seen_on_amd

Limit = Maybe[int | Literal["unlimited"]]


class Cpu(Fact):
    model: Maybe[str] = seen("model name", linux="/proc/cpuinfo")
    architecture: Maybe[str] = seen("`x86_64`, `aarch64`", linux="uname -m")
    sockets: Maybe[int] = seen("packages", linux="/sys/devices/system/cpu/cpu*/topology/physical_package_id")
    cores: Maybe[int] = seen("physical cores", linux="/sys/devices/system/cpu/cpu*/topology")
    present: Maybe[int] = seen("logical CPUs online", linux="/sys/devices/system/cpu/online")
    offline: Maybe[int] = seen("logical CPUs there and switched off", linux="/sys/devices/system/cpu/present")
    affinity: Maybe[int] = seen("logical CPUs this process may run on", linux="sched_getaffinity")
    quota_cpus: Maybe[float | Literal["unlimited"]] = seen(
        "CPU time allowed by cgroup, in CPUs", linux="cpu.max, or cpu.cfs_quota_us / cpu.cfs_period_us"
    )
    numa_nodes: Maybe[int] = seen("NUMA nodes online", linux="/sys/devices/system/node/online")
    governor: Maybe[str] = seen(
        "frequency governor", linux="/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
    )


class HostMemory(Fact):
    total_bytes: Maybe[int] = seen("MemTotal; may grow on demand in a VM", linux="/proc/meminfo")
    available_bytes: Maybe[int] = seen("MemAvailable", linux="/proc/meminfo")
    limit_bytes: Limit = seen("allowed by cgroup", linux="memory.max, or memory.limit_in_bytes")
    swap_bytes: Maybe[int] = seen("SwapTotal", linux="/proc/meminfo")
    shm_total_bytes: Maybe[int] = seen("/dev/shm size", linux="statvfs /dev/shm")  # noqa: S108
    shm_free_bytes: Maybe[int] = seen("/dev/shm free", linux="statvfs /dev/shm")  # noqa: S108
    transparent_huge_pages: Maybe[str] = seen(
        "`always`, `madvise`, `never`", linux="/sys/kernel/mm/transparent_hugepage/enabled"
    )
    numa_balancing: Maybe[bool] = seen("automatic NUMA balancing", linux="/proc/sys/kernel/numa_balancing")
    huge_pages: Maybe[int] = seen("huge pages set aside", linux="/proc/meminfo, HugePages_Total")


class Limits(Fact):
    memlock_bytes: Limit = seen("locked memory, soft limit", linux="getrlimit RLIMIT_MEMLOCK")
    open_files: Limit = seen("open files, soft limit", linux="getrlimit RLIMIT_NOFILE")
    processes: Limit = seen("processes and threads, soft limit", linux="getrlimit RLIMIT_NPROC")
    cgroup_processes: Limit = seen("processes and threads allowed by cgroup", linux="pids.max")


class Disk(Fact):
    mount: str
    device: str
    filesystem: str
    kind: Literal["local", "network", "memory", "overlay", "unknown"]
    size_bytes: Maybe[int] = seen("size", linux="statvfs")
    free_bytes: Maybe[int] = seen("free for this user", linux="statvfs")
    read_only: bool
    model: Maybe[str] = seen("drive model", linux="/sys/block/*/device/model")


class DeviceFile(Fact):
    """A device file that programs need to use AMD's cards."""

    path: str
    """`/dev/kfd`, `/dev/dri/renderD128`."""
    allowed: Maybe[bool] = seen_on_amd("this user may open it for reading and writing", linux="faccessat")
    mode: Maybe[str] = seen_on_amd("permissions, `0660`", linux="stat")
    group: Maybe[str] = seen_on_amd(
        "name of the group that it belongs to, or its number where it has no name here",
        linux="stat, /etc/group",
    )
    group_id: Maybe[int] = seen_on_amd("number of that group", linux="stat")
    member: Maybe[bool] = seen_on_amd("this user is in that group", linux="stat, getgroups")


class Host(Gathered):
    name: Maybe[str] = seen("host name", linux="uname -n")
    os: Maybe[str] = seen("distribution", linux="/etc/os-release PRETTY_NAME")
    kernel: Maybe[str] = seen("kernel release", linux="uname -r")
    boot_command_line: Maybe[str] = seen("kernel command line", linux="/proc/cmdline")
    boot_id: Maybe[str] = seen("changes with every boot", linux="/proc/sys/kernel/random/boot_id")
    uptime_seconds: Maybe[float] = seen("since boot", linux="/proc/uptime")
    is_root: Maybe[bool] = seen("the tool runs as root", linux="geteuid")
    container: Maybe[str] = seen(
        "`none`, `docker`, `podman`, `kubernetes`, `lxc`, `containerd`, `gvisor`, …",
        linux="/.dockerenv, /run/.containerenv, /proc/1/environ, /proc/self/cgroup, mounts",
    )
    virtualization: Maybe[str] = seen(
        "`none`, `kvm`, `xen`, `vmware`, `hyperv`, …", linux="DMI, /proc/cpuinfo hypervisor flag"
    )
    clock_synchronized: Maybe[bool] = seen("clock kept by NTP or the like", linux="adjtimex, status")
    iommu: Maybe[Literal["off", "passthrough", "translated"]] = seen(
        "IOMMU", linux="/sys/class/iommu, boot command line"
    )
    acs_bridges: Maybe[tuple[str, ...]] = seen(
        "PCI bridges above the cards with ACS redirection on", linux="PCI configuration space"
    )
    services: Maybe[tuple[str, ...]] = seen(
        "names of GPU services seen running, `nv-fabricmanager`, `nvidia-persistenced`", linux="/proc/*/comm"
    )
    fabric_manager_version: Maybe[str] = seen("installed version", linux="nv-fabricmanager --version")
    stuck_processes: Maybe[int] = seen("processes in uninterruptible sleep", linux="/proc/*/stat")
    cpu: Cpu = Cpu()
    memory: HostMemory = HostMemory()
    limits: Limits = Limits()
    disks: Maybe[tuple[Disk, ...]] = seen("mounted file systems", linux="/proc/self/mounts")
    device_files: Maybe[tuple[DeviceFile, ...]] = seen(
        "/dev/kfd and the render nodes of the cards, and whether this user may open them",
        linux="/dev/kfd, /dev/dri",
    )

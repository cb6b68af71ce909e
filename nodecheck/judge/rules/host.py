"""Is the machine around the cards large enough, and set up so that the cards can work?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from nodecheck.facts import Absent, Host, Maybe, Node, Why
from nodecheck.facts.card import Vendor
from nodecheck.facts.host import Disk
from nodecheck.judge.finding import NODE, Cause, Owner, Subject
from nodecheck.judge.rule import Observation, Outcome, fail, observe, passed, rule, skipped, unknown, warn
from nodecheck.profile import HostSpec, Profile, Sourced

GIB = 1024**3
MIB = 1024**2

_SHM = "/dev/shm"  # noqa: S108  (looked at, nothing is put there)
DOCKER_SHM_BYTES = 64 * MIB
"""What a container gets for /dev/shm unless more is asked for (Docker's default; NVIDIA/nccl#290)."""

PROCESSES_PER_CARD = 1024
"""A rank with its data loaders, CPU thread pools and NCCL's own threads has some hundreds of threads. "
"Derived."""

FULL_SHARE = 0.05
FULL_BYTES = 50 * GIB
"""A disk is nearly full with less than both left. The share is that of imbue-ai/host-health (95 % used); the
amount keeps a share of petabytes from warning with terabytes free."""

_UNLIMITED = "unlimited"


@dataclass(frozen=True)
class Look:
    """What a rule on the host is shown."""

    value: Any
    host: Host
    node: Node
    profile: Profile

    @property
    def several_cards(self) -> bool:
        """Whether cards have peers here: only then does the way between them matter."""
        return _cards(self.node, self.profile) > 1


def _cards(node: Node, profile: Profile) -> int:
    return max(profile.count, len(node.known_cards))


def host_rule(
    id: str,
    title: str,
    *,
    path: str,
    unit: str = "",
    not_present: str = "",
    of: Vendor | None = None,
    door: str = "host",
    **words: Any,
) -> Callable[[Callable[[Look], Outcome]], Callable[[Look], Outcome]]:
    """Register the decorated function as a rule on the fact at `path` of the host.

    Its outcome is completed with the observed value and its source. An absent fact is `unknown` without
    asking the function; one that is `not_present` is skipped instead where `not_present` says why that is no
    loss. The rule is skipped where it is about the cards of one vendor (`of`) and the profile has none of them.
    """

    def register(look: Callable[[Look], Outcome]) -> Callable[[Look], Outcome]:
        def judge(node: Node, profile: Profile) -> Iterator[Outcome]:
            if of not in (None, profile.vendor):
                yield skipped("Not asked of another vendor's cards.")
                return
            seen = observe(node, f"host.{path}", "linux")
            if isinstance(node.host, Absent) or isinstance(seen.value, Absent):
                if not_present and seen.value.why is Why.not_present and not isinstance(node.host, Absent):
                    yield skipped(not_present)
                else:
                    yield unknown(NODE, seen.value, observed_from=seen.source)
                return
            outcome = look(Look(seen.value, node.host, node, profile))
            known: dict[str, Any] = {"unit": unit, "observed_from": seen.source}
            if outcome.observed is None:
                known["observed"] = seen.value if isinstance(seen.value, (str, int, float, bool)) else None
            yield replace(
                outcome, **{name: value for name, value in known.items() if not getattr(outcome, name)}
            )

        rule(id, title, door=door, **words)(judge)
        return look

    return register


def _gib(number_of_bytes: float) -> float:
    return round(number_of_bytes / GIB, 3 if number_of_bytes < GIB else 1)


def _short_of(stated: Sourced, detail: str, **words: Any) -> Outcome:
    """Less than the bundle promises; a bound that was only derived from others' does no more than warn."""
    return (warn if stated.kind == "derived" else fail)(detail, **words)


# --- What is allowed ---------------------------------------------------------------------------------------


@rule(
    "host.cpus",
    "Enough CPUs are allowed",
    reads="CPUs online, the CPUs this process may run on, and the control group's share of CPU time",
    door="host",
    passes="the smallest of the three is at least what the profile asks, or the profile does not ask",
    warns="it is less, and the profile's bound is derived",
    fails="it is less, and the profile's bound is published or measured",
    cause=Cause.not_as_rented,
    owner=Owner.provider,
    meaning="The CPUs cannot read, decode and launch fast enough to keep the cards busy.",
    next_step="Ask the provider for a machine with as many CPUs as the bundle names.",
    repeat="nproc; nproc --all; cat /sys/fs/cgroup/cpu.max",
)
def cpus(node: Node, profile: Profile) -> Iterator[Outcome]:
    affinity = observe(node, "host.cpu.affinity", "linux")
    if isinstance(node.host, Absent) or isinstance(affinity.value, Absent):
        yield unknown(NODE, affinity.value, observed_from=affinity.source)
        return
    cpu = node.host.cpu
    quota = observe(node, "host.cpu.quota_cpus", "linux")
    limited = isinstance(quota.value, (int, float)) and quota.value < affinity.value
    allowed = round(quota.value, 2) if limited else affinity.value
    said = [f"{allowed:g} CPUs are allowed"]
    if limited:
        said.append(f"the control group allows no more of the {affinity.value} that programs may run on")
    if not isinstance(cpu.present, Absent) and cpu.present != affinity.value:
        said.append(f"{cpu.present} are online")
    if not isinstance(cpu.offline, Absent) and cpu.offline:
        said.append(f"{cpu.offline} are switched off")
    detail = "; ".join(said) + "."
    seen: dict[str, Any] = {
        "observed": allowed, "unit": "CPUs", "observed_from": (quota if limited else affinity).source
    }  # fmt: skip
    spec = profile.host
    asked = spec and (spec.cpus or (spec.cpus_per_card or 0) * profile.count)
    if spec and asked:
        stated = spec.stated_by("cpus" if spec.cpus else "cpus_per_card")
        seen |= {"expected": asked, "expected_from": stated.witness}
        if allowed < asked:
            there = affinity.value if isinstance(cpu.present, Absent) else cpu.present
            own = there >= asked  # the machine has them, and this container may not use them
            yield _short_of(stated, detail, **seen, **(_RAISE_THE_LIMIT if own else {}))
            return
        if isinstance(quota.value, Absent):
            yield unknown(NODE, quota.value, door="cgroup", **seen | {"observed_from": quota.source})
            return
    yield passed(detail, **seen)


_RAISE_THE_LIMIT = {
    "cause": Cause.misconfigured,
    "owner": Owner.renter,
    "next_step": "The machine has more; this container is held to less. If you start the container, raise "
    "its limit (docker: --cpus, --cpuset-cpus, --memory; Kubernetes: the pod's limits). If the provider "
    "starts it, ask them.",
}


@rule(
    "host.memory",
    "Enough host memory is allowed",
    reads="the machine's memory and the control group's limit",
    door="host",
    passes="the smaller of the two is at least what the profile asks, or the profile does not ask",
    warns="it is less, and the profile's bound is derived",
    fails="it is less, and the profile's bound is published or measured",
    cause=Cause.not_as_rented,
    owner=Owner.provider,
    meaning="Checkpoints, data loaders and offloading run out of host memory, and the kernel ends programs.",
    next_step="Ask the provider for a machine with as much memory as the bundle names.",
    repeat="grep MemTotal /proc/meminfo; cat /sys/fs/cgroup/memory.max",
)
def memory(node: Node, profile: Profile) -> Iterator[Outcome]:
    total = observe(node, "host.memory.total_bytes", "linux")
    if isinstance(node.host, Absent) or isinstance(total.value, Absent):
        yield unknown(NODE, total.value, observed_from=total.source)
        return
    limit = observe(node, "host.memory.limit_bytes", "linux")
    limited = isinstance(limit.value, int) and limit.value < total.value
    allowed = limit.value if limited else total.value
    detail = f"{_gib(allowed)} GiB of memory are allowed"
    if limited:
        detail += f" by the control group; the machine has {_gib(total.value)} GiB"
    elif isinstance(node.host.virtualization, str) and node.host.virtualization != "none":
        detail += "; the memory of a virtual machine may grow on demand"
    seen: dict[str, Any] = {
        "observed": _gib(allowed), "unit": "GiB", "observed_from": (limit if limited else total).source
    }  # fmt: skip
    spec = profile.host
    asked = spec and _memory_asked(spec, profile)
    if spec and asked:
        stated = spec.stated_by("memory_bytes" if spec.memory_bytes else "memory_per_card_memory")
        seen |= {"expected": _gib(asked), "expected_from": stated.witness}
        if allowed < asked:
            yield _short_of(
                stated, f"{detail}.", **seen, **(_RAISE_THE_LIMIT if total.value >= asked else {})
            )
            return
        if isinstance(limit.value, Absent):
            yield unknown(NODE, limit.value, door="cgroup", **seen | {"observed_from": limit.source})
            return
    yield passed(f"{detail}.", **seen)


def _memory_asked(spec: HostSpec, profile: Profile) -> float:
    if spec.memory_bytes:
        return spec.memory_bytes
    cards = profile.card.memory_mib * MIB * profile.count if profile.card else 0
    return (spec.memory_per_card_memory or 0) * cards


@host_rule(
    "host.shm",
    f"{_SHM} is large enough",
    path="memory.shm_total_bytes",
    unit="GiB",
    reads="size of /dev/shm and what is free of it",
    passes="it is at least as large as the profile asks, or the profile does not ask",
    warns="it is smaller, or filled up",
    cause=Cause.misconfigured,
    owner=Owner.renter,
    meaning="NCCL passes data through /dev/shm where cards cannot reach each other, and PyTorch's data "
    "loaders do always: both stop with errors that hardly name it (`unhandled system error`, `bus error`).",
    next_step="Start the container with --ipc=host or --shm-size=16g; in Kubernetes mount an emptyDir with "
    "medium: Memory at /dev/shm. Where only the provider can do so, ask for it.",
    repeat="df -h /dev/shm",
)
def shm(look: Look) -> Outcome:
    size, free = look.value, look.host.memory.shm_free_bytes
    spec = look.profile.host
    docker = " This is what a container gets where nobody asks for more." if size <= DOCKER_SHM_BYTES else ""
    detail = f"{_SHM} has {_gib(size)} GiB.{docker}"
    seen: dict[str, Any] = {"observed": _gib(size)}
    if not spec or not spec.shm_bytes:
        return passed(detail, **seen)
    seen |= {"expected": _gib(spec.shm_bytes), "expected_from": spec.stated_by("shm_bytes").witness}
    if size < spec.shm_bytes:
        return warn(detail, **seen)
    if isinstance(free, Absent):
        return unknown(NODE, free, **seen)
    if free < DOCKER_SHM_BYTES:
        return warn(
            f"{_SHM} has {_gib(size)} GiB, of which {_gib(free)} GiB are free.",
            **seen,
            next_step="Something fills /dev/shm: look at it with `ls -l /dev/shm` and remove what ended "
            "programs have left behind.",
        )
    return passed(detail, **seen)


@host_rule(
    "host.memlock",
    "Enough memory may be locked for RDMA",
    path="limits.memlock_bytes",
    unit="GiB",
    reads="soft limit of locked memory (RLIMIT_MEMLOCK), where an RDMA adapter is up",
    passes="it is at least what the profile asks",
    warns="it is less",
    cause=Cause.misconfigured,
    owner=Owner.renter,
    meaning="RDMA adapters work on locked memory alone: NCCL and MPI over InfiniBand fail to register their "
    "buffers.",
    next_step="Raise the limit: docker run --ulimit memlock=-1, or `* - memlock unlimited` in "
    "/etc/security/limits.conf and a new login.",
    repeat="ulimit -l",
)
def memlock(look: Look) -> Outcome:
    spec = look.profile.host
    limit = look.value
    shown = limit if limit == _UNLIMITED else _gib(limit)
    if not spec or not spec.memlock_bytes:
        return passed(f"{_said(limit)} may be locked.", observed=shown)
    seen: dict[str, Any] = {
        "observed": shown,
        "expected": _gib(spec.memlock_bytes),
        "expected_from": spec.stated_by("memlock_bytes").witness,
    }
    if limit == _UNLIMITED or limit >= spec.memlock_bytes:
        return passed(f"{_said(limit)} may be locked.", **seen)
    adapters = _rdma_ports(look.node)
    if isinstance(adapters, Absent):
        return unknown(NODE, adapters, **seen)
    if not adapters:
        return replace(skipped("No RDMA adapter is up here, and nothing else locks memory."), **seen)
    return warn(f"{_said(limit)} may be locked, and {adapters} RDMA ports are up.", **seen)


def _said(limit: Any) -> str:
    return "Any amount of memory" if limit == _UNLIMITED else f"{_gib(limit)} GiB of memory"


def _rdma_ports(node: Node) -> Maybe[int]:
    if isinstance(node.topology, Absent):
        return node.topology
    if isinstance(node.topology.adapters, Absent):
        return node.topology.adapters
    # Ports of RDMA adapters state themselves in capitals (ACTIVE), network interfaces do not (up).
    return sum(adapter.state == "ACTIVE" for adapter in node.topology.adapters)


@host_rule(
    "host.open_files",
    "Enough files may be open",
    path="limits.open_files",
    reads="soft limit of open files (RLIMIT_NOFILE)",
    passes="it is at least what the profile asks, or the profile does not ask",
    warns="it is less",
    cause=Cause.misconfigured,
    owner=Owner.renter,
    meaning="Data loaders and NCCL with many connections stop with `Too many open files`.",
    next_step="Raise the limit: `ulimit -n 1048576`, or docker run --ulimit nofile=1048576.",
    repeat="ulimit -n",
)
def open_files(look: Look) -> Outcome:
    spec = look.profile.host
    detail = f"{'Any number of' if look.value == _UNLIMITED else look.value} files may be open."
    if not spec or not spec.open_files:
        return passed(detail)
    short = look.value != _UNLIMITED and look.value < spec.open_files
    return (warn if short else passed)(
        detail, expected=spec.open_files, expected_from=spec.stated_by("open_files").witness
    )


@rule(
    "host.process_limit",
    "Enough processes and threads may run",
    reads="soft limit of processes (RLIMIT_NPROC, which does not bind root) and the control group's limit",
    door="host",
    passes=f"the smaller of the two allows {PROCESSES_PER_CARD} a card",
    warns="it allows less",
    cause=Cause.misconfigured,
    owner=Owner.renter,
    meaning="Data loaders, thread pools and NCCL fail to start their threads (`Resource temporarily "
    "unavailable`).",
    next_step="Raise the limit: docker run --pids-limit=-1, or `ulimit -u unlimited`.",
    repeat="ulimit -u; cat /sys/fs/cgroup/pids.max",
)
def process_limit(node: Node, profile: Profile) -> Iterator[Outcome]:
    own = observe(node, "host.limits.processes", "linux")
    group = observe(node, "host.limits.cgroup_processes", "linux")
    if isinstance(node.host, Absent):
        yield unknown(NODE, node.host)
        return
    binding = [group] if node.host.is_root is True else [own, group]
    asked = PROCESSES_PER_CARD * max(1, _cards(node, profile))
    source = "nodecheck: some hundreds of threads a rank (derived)"
    numbers = [limit for limit in binding if isinstance(limit.value, int)]
    smallest = min(numbers, key=lambda limit: limit.value, default=Observation(_UNLIMITED, group.source))
    seen: dict[str, Any] = {"observed": smallest.value, "expected": asked, "expected_from": source}
    if numbers and smallest.value < asked:
        yield warn(f"{smallest.value} processes and threads may run.", observed_from=smallest.source, **seen)
        return
    for limit in binding:
        if isinstance(limit.value, Absent):
            door = "cgroup" if limit is group else ""
            yield unknown(NODE, limit.value, observed_from=limit.source, door=door)
            return
    number = smallest.value if numbers else "Any number of"
    yield passed(f"{number} processes and threads may run.", observed_from=smallest.source, **seen)


# --- Disks -------------------------------------------------------------------------------------------------


@rule(
    "host.disk_free",
    "There is disk space to work in",
    reads="size and free space of every mounted file system that can hold data",
    door="host",
    passes="a writable disk of the machine has what the profile asks, and none is nearly full",
    warns=f"none has, or one is nearly full (less than {FULL_SHARE:.0%} and {FULL_BYTES // GIB} GiB left)",
    cause=Cause.misconfigured,
    owner=Owner.renter,
    meaning="Checkpoints, caches and container layers end in `No space left on device`, often hours into a "
    "run.",
    next_step="Make room (`du -xh --max-depth=2 / | sort -h | tail`), or rent a larger disk.",
    repeat="df -h",
)
def disk_free(node: Node, profile: Profile) -> Iterator[Outcome]:
    seen = observe(node, "host.disks", "linux")
    if isinstance(seen.value, Absent):
        yield unknown(NODE, seen.value, observed_from=seen.source)
        return
    disks: tuple[Disk, ...] = seen.value
    own = [d for d in disks if d.kind in ("local", "overlay", "unknown") and not d.read_only]
    largest = max(own, key=lambda d: -1 if isinstance(d.free_bytes, Absent) else d.free_bytes, default=None)
    spec = profile.host
    bound: dict[str, Any] = {"unit": "GiB", "observed_from": seen.source}
    if spec and spec.scratch_free_bytes:
        bound |= {
            "expected": _gib(spec.scratch_free_bytes),
            "expected_from": spec.stated_by("scratch_free_bytes").witness,
        }
    if largest is None:
        absent = Absent(why=Why.not_present, detail="no writable disk of the machine is mounted here")
        yield unknown(NODE, absent, **bound)
    elif isinstance(largest.free_bytes, Absent):
        yield unknown(NODE, largest.free_bytes, **bound)
    else:
        detail = f"{_gib(largest.free_bytes)} GiB are free at {largest.mount}" + (
            f" ({largest.model})." if isinstance(largest.model, str) else "."
        )
        short = spec and spec.scratch_free_bytes and largest.free_bytes < spec.scratch_free_bytes
        yield (warn if short else passed)(detail, observed=_gib(largest.free_bytes), **bound)
    for disk in disks:
        outcome = _nearly_full(disk)
        if outcome is not None:
            yield replace(outcome, observed_from=seen.source)


def _nearly_full(disk: Disk) -> Outcome | None:
    size, free = disk.size_bytes, disk.free_bytes
    if isinstance(size, Absent) or isinstance(free, Absent) or disk.read_only or disk.kind == "memory":
        return None
    if free >= FULL_BYTES or free >= FULL_SHARE * size:
        return None
    return warn(
        f"{disk.mount} is nearly full: {_gib(free)} of {_gib(size)} GiB are free.",
        subject=_of_disk(disk),
        observed=_gib(free),
        unit="GiB",
    )


def _of_disk(disk: Disk) -> Subject:
    return Subject(kind="disk", key=disk.mount, label=disk.mount)


@rule(
    "host.mounts",
    "Every mounted file system answers",
    reads="the size of every mounted file system that can hold data, asked with a deadline",
    door="host",
    passes="all of them answer",
    warns="one does not answer in time",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="A program that touches this file system hangs, and cannot be ended while it does.",
    next_step="Send this to the provider: the server behind the mount does not answer. Until then keep away "
    "from it (also in PATH, PYTHONPATH and the home directory).",
    repeat="timeout 5 df -h",
)
def mounts(node: Node, profile: Profile) -> Iterator[Outcome]:
    seen = observe(node, "host.disks", "linux")
    if isinstance(seen.value, Absent):
        yield unknown(NODE, seen.value, observed_from=seen.source)
        return
    silent = [d for d in seen.value if isinstance(d.size_bytes, Absent) and d.size_bytes.why is Why.timed_out]
    for disk in silent:
        yield warn(
            f"{disk.mount} ({disk.filesystem} from {disk.device}) did not answer in time.",
            subject=_of_disk(disk),
            observed="no answer",
            observed_from=seen.source,
        )
    if not silent:
        kinds = [f"{d.mount} ({d.filesystem}, {d.kind})" for d in seen.value]
        listed = ", ".join(kinds[:8]) + (f" and {len(kinds) - 8} more" if len(kinds) > 8 else "")
        yield passed(
            f"All answer: {listed or 'none is mounted'}.", observed=len(kinds), observed_from=seen.source
        )


# --- The way between the cards -----------------------------------------------------------------------------


@host_rule(
    "host.iommu",
    "The IOMMU does not stand between the cards",
    path="iommu",
    reads="IOMMU units, the mode of the cards' groups, the kernel's command line",
    passes="it is off or passes through; or there is one card; or this is a virtual machine, which needs it",
    warns="the machine itself, with several cards, has it translate",
    cause=Cause.misconfigured,
    owner=Owner.provider,
    meaning="Traffic between cards over PCI Express, and between cards and network adapters, is translated "
    "on its way through the CPU: slow, and known to hang or to corrupt data (NVIDIA/nccl#199, "
    "pytorch/pytorch#84803).",
    next_step="Ask the provider to boot with iommu=pt, or with the IOMMU off.",
    repeat="cat /proc/cmdline; ls /sys/class/iommu; cat /sys/kernel/iommu_groups/*/type | sort | uniq -c",
)
def iommu(look: Look) -> Outcome:
    said = {
        "off": "No IOMMU is at work.",
        "passthrough": "The IOMMU lets the cards' traffic through as it is.",
        "translated": "The IOMMU translates what the cards read and write.",
    }[look.value]
    if look.value == "translated" and look.several_cards and look.host.virtualization == "none":
        return warn(said, expected="passthrough or off")
    return passed(said)


@rule(
    "host.acs",
    "No PCI bridge sends the cards' traffic up to the CPU",
    reads="Access Control Services in the configuration of the PCI bridges above the cards",
    door="root",
    passes="no bridge redirects",
    warns="a bridge redirects, on the machine itself and with several cards",
    cause=Cause.misconfigured,
    owner=Owner.provider,
    meaning="Traffic between cards, and between cards and network adapters, takes the way through the CPU "
    "instead of the next switch: slow, and NCCL is known to hang on it (NVIDIA/nccl#199).",
    next_step="Ask the provider to switch ACS off: in the firmware's setup, or with setpci at every boot.",
    repeat="sudo lspci -vvv | grep -E '^[0-9a-f]|ACSCtl'",
)
def acs(node: Node, profile: Profile) -> Iterator[Outcome]:
    seen = observe(node, "host.acs_bridges", "linux")
    if _cards(node, profile) < 2:
        yield skipped("With fewer than two cards there is no traffic between cards.")
        return
    if isinstance(node.host, Absent) or isinstance(seen.value, Absent):
        yield unknown(NODE, seen.value, observed_from=seen.source)
        return
    bridges: tuple[str, ...] = seen.value
    if node.host.virtualization != "none":
        hidden = Absent(
            why=Why.not_supported, detail="a virtual machine does not show the real bridges above its cards"
        )
        yield unknown(NODE, hidden, observed_from=seen.source, door="pci")
        return
    shown = ", ".join(bridges[:8]) + (f" and {len(bridges) - 8} more" if len(bridges) > 8 else "")
    words: dict[str, Any] = {"observed": len(bridges), "unit": "bridges", "observed_from": seen.source}
    if bridges:
        yield warn(f"These bridges redirect: {shown}.", expected=0, **words)
    else:
        yield passed("No bridge above the cards redirects.", **words)


@host_rule(
    "host.numa_balancing",
    "Automatic NUMA balancing does not hold the cards up",
    path="memory.numa_balancing",
    not_present="The kernel has no such setting, or the sandbox hides it.",
    reads="/proc/sys/kernel/numa_balancing",
    passes="it is off; with NVIDIA's cards, with one card or one NUMA node also on, which is stated",
    warns="it is on beside several of AMD's cards",
    cause=Cause.misconfigured,
    owner=Owner.provider,
    meaning="The kernel moves memory between NUMA nodes while cards read and write it: RCCL warns of it, and "
    "collectives become uneven.",
    next_step="Ask the provider to switch it off (`sysctl kernel.numa_balancing=0`, as root).",
    repeat="cat /proc/sys/kernel/numa_balancing",
)
def numa_balancing(look: Look) -> Outcome:
    if not look.value:
        return passed("Off.")
    if look.profile.vendor == "amd" and look.several_cards and look.host.cpu.numa_nodes != 1:
        return warn("On.", expected=False, expected_from="RCCL's own start (ROCm/rccl@0cbce2a src/init.cc)")
    return passed(
        "On: the kernel moves memory between NUMA nodes, which may cost data loading a few percent."
    )


@host_rule(
    "host.iommu_passthrough",
    "The kernel was told to let AMD's cards through the IOMMU",
    of="amd",
    path="boot_command_line",
    reads="`iommu=pt` on the kernel's command line, and the IOMMU's mode",
    passes="it is there, the IOMMU is off or passes through; or this is a virtual machine or a Cray, which RCCL "
    "exempts",
    warns="an IOMMU is at work without it, on the machine itself and with several cards",
    cause=Cause.misconfigured,
    owner=Owner.provider,
    meaning="RCCL warns that the machine may become unstable or hang, and it does (ROCm/rccl#1129).",
    next_step="Ask the provider to boot with iommu=pt.",
    repeat="cat /proc/cmdline",
)
def iommu_passthrough(look: Look) -> Outcome:
    host = look.host
    there = "iommu=pt" in look.value.split() or "iommu.passthrough=1" in look.value.split()
    words: dict[str, Any] = {"observed": "iommu=pt" if there else "no iommu=pt", "expected": "iommu=pt"}
    words["expected_from"] = (
        "AMD's acceptance guide (ROCm/system-acceptance-docs@23e7312) and RCCL's own start"
    )
    if there:
        return passed("", **words)
    if not look.several_cards:
        return passed("Not there; one card has no peer that it would matter to.", **words)
    if isinstance(host.virtualization, Absent):
        return unknown(NODE, host.virtualization, **words)
    if host.virtualization != "none" or (isinstance(host.kernel, str) and "cray" in host.kernel.lower()):
        return passed("Not there, and not needed in a virtual machine or on a Cray.", **words)
    if host.iommu in ("off", "passthrough"):
        return passed(f"Not there, and the IOMMU is {host.iommu}.", **words)
    return warn("Not there, although the IOMMU is at work.", **words)


@host_rule(
    "host.pci_realloc",
    "The kernel leaves the cards' memory windows as the firmware laid them out",
    of="amd",
    path="boot_command_line",
    reads="`pci=realloc=off` on the kernel's command line, and how much of each card's memory the CPU can reach",
    passes="it is there, or all of each card's memory can be reached without it",
    warns="it is not there, on the machine itself, and a card's memory can be reached in part only",
    cause=Cause.misconfigured,
    owner=Owner.provider,
    meaning="The kernel has given a card a smaller window than its memory: peer access and large copies fail or are "
    "slow.",
    next_step="Ask the provider to boot with pci=realloc=off, and to have `Above 4G decoding` on in the firmware's "
    "setup.",
    repeat="cat /proc/cmdline; cat /sys/class/drm/card*/device/mem_info_vis_vram_total",
)
def pci_realloc(look: Look) -> Outcome:
    options = [word for word in look.value.split() if word.startswith("pci=")]
    there = any("realloc=off" in option for option in options)
    words: dict[str, Any] = {
        "observed": " ".join(options) or "no pci=",
        "expected": "pci=realloc=off",
        "expected_from": "AMD's acceptance guide (ROCm/system-acceptance-docs@23e7312)",
    }
    short = [
        card.short_name
        for card in look.node.known_cards
        if card.vendor == "amd"
        and isinstance(card.memory.bar1_total_bytes, int)
        and isinstance(card.memory.total_bytes, int)
        and card.memory.bar1_total_bytes < 0.9 * card.memory.total_bytes
    ]
    if short and not there and look.host.virtualization == "none":
        return warn(
            f"Not there, and the CPU reaches a part only of the memory of {', '.join(short)}.", **words
        )
    return passed(
        "" if there else "Not there; the CPU reaches all of the cards' memory, as far as it is told.", **words
    )


# --- The machine's state -----------------------------------------------------------------------------------


@host_rule(
    "host.stuck_processes",
    "No process is stuck in the kernel",
    path="stuck_processes",
    unit="processes",
    reads="processes in uninterruptible sleep that do not run at all while they are watched",
    door="processes",
    passes="there is none among those that can be seen",
    warns="there is one",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="A driver or a file system does not return: such a process cannot be ended, and what it holds "
    "(a card, memory, a mount) stays taken until the machine is started again.",
    next_step="Look at what it waits for (`cat /proc/PID/wchan`). If it is the GPU driver or a mount, have "
    "the machine started again.",
    repeat="ps -eo state,pid,wchan:32,comm | grep '^D'",
)
def stuck_processes(look: Look) -> Outcome:
    if look.value:
        return warn(f"{look.value} cannot be woken.", expected=0)
    return passed("None of the processes that can be seen is stuck.", expected=0)


@host_rule(
    "host.clock",
    "The clock is kept in time",
    path="clock_synchronized",
    reads="whether the kernel counts its clock as synchronised",
    passes="it does; or this is a guest or a container, whose clock others keep",
    warns="the machine itself does not",
    cause=Cause.misconfigured,
    owner=Owner.provider,
    meaning="Certificates, tokens and logs of several machines stop to fit together as the clock drifts.",
    next_step="Have a time service started (chrony or systemd-timesyncd).",
    repeat="timedatectl show -p NTPSynchronized",
)
def clock(look: Look) -> Outcome:
    if look.value:
        return passed("The kernel counts its clock as synchronised.")
    for kept_by_others in (look.host.virtualization, look.host.container):
        if isinstance(kept_by_others, Absent):
            return unknown(NODE, kept_by_others)
    if look.host.virtualization == "none" and look.host.container == "none":
        return warn("The kernel does not count its clock as synchronised.", expected=True)
    return passed(
        "No time service has set the kernel's clock here; a guest's or container's clock is the "
        "hypervisor's or the host's to keep."
    )


@rule(
    "host.isolation",
    "What stands between this user and the machine",
    reads="marks of containers and namespaces; firmware tables and the CPU's hypervisor flag",
    door="host",
    passes="always, with what was seen: containers and virtual machines are normal rentals",
    cause=Cause.not_visible,
    owner=Owner.provider,
    meaning="",
    next_step="",
    repeat="systemd-detect-virt; systemd-detect-virt --container",
)
def isolation(node: Node, profile: Profile) -> Iterator[Outcome]:
    container = observe(node, "host.container", "linux")
    hypervisor = observe(node, "host.virtualization", "linux")
    for seen in (container, hypervisor):
        if isinstance(seen.value, Absent):
            yield unknown(NODE, seen.value, observed_from=seen.source)
            return
    within = "No container" if container.value == "none" else f"Container: {container.value}"
    on = "the machine itself" if hypervisor.value == "none" else f"a virtual machine ({hypervisor.value})"
    yield passed(
        f"{within}, on {on}.",
        observed=f"{container.value} on {hypervisor.value}",
        observed_from=f"{container.source}; {hypervisor.source}",
    )


def _stated(id: str, title: str, *, path: str, repeat: str, say: Callable[[Look], str], **words: Any) -> None:
    """Register a rule that only says what is there: either setting is met on good nodes."""
    host_rule(
        id,
        title,
        path=path,
        passes="always, with what was seen",
        cause=Cause.misconfigured,
        owner=Owner.renter,
        meaning="",
        next_step="",
        repeat=repeat,
        **words,
    )(lambda look: passed(say(look)))


def _system(look: Look) -> str:
    up = look.host.uptime_seconds
    model = look.host.cpu.model
    words = [
        look.host.os if isinstance(look.host.os, str) else "an unknown distribution",
        f"Linux {look.value}",
        *([model] if isinstance(model, str) else []),
        *([f"up for {_duration(up)}"] if not isinstance(up, Absent) else []),
    ]
    return ", ".join(words) + "."


def _duration(seconds: float) -> str:
    for length, name in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {name}"
    return f"{seconds:.0f} seconds"


_stated(
    "host.os",
    "Operating system",
    path="kernel",
    reads="kernel release, distribution, CPU model, time since boot",
    repeat="uname -r; cat /etc/os-release; uptime",
    say=_system,
)
_stated(
    "host.swap",
    "Swap",
    path="memory.swap_bytes",
    unit="bytes",
    reads="SwapTotal of /proc/meminfo",
    repeat="swapon --show",
    say=lambda look: f"{_gib(look.value)} GiB of swap." if look.value else "No swap.",
)
_stated(
    "host.transparent_huge_pages",
    "Transparent huge pages",
    path="memory.transparent_huge_pages",
    not_present="The kernel has no such setting, or the sandbox hides it.",
    reads="/sys/kernel/mm/transparent_hugepage/enabled",
    repeat="cat /sys/kernel/mm/transparent_hugepage/enabled",
    say=lambda look: f"Set to {look.value}.",
)
_stated(
    "host.governor",
    "CPU frequency governor",
    path="cpu.governor",
    not_present="The CPU's frequency is the hypervisor's or the firmware's to choose here.",
    reads="scaling_governor of the first CPU",
    repeat="cat /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    say=lambda look: f"Set to {look.value}.",
)

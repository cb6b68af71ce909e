"""Is the machine around the cards as it was?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from nodecheck.facts import Absent, Maybe, Node, known
from nodecheck.facts.host import Disk
from nodecheck.judge import Cause, Owner, Subject
from nodecheck.judge.finding import NODE
from nodecheck.judge.rule import Outcome, fail, passed, skipped, unknown, warn
from nodecheck.rental.drift.cards import ANEW
from nodecheck.rental.drift.counters import elapsed_hours, same_boot
from nodecheck.rental.drift.rule import NOTHING_BEFORE, Changed, Drift, drift_rule, node_drift

GIB = 1024**3
FULL_SHARE = 0.05
FULL_HOURS = 24.0
LEAST_FILL_HOURS = 0.25
"""A checkpoint that is being written is no trend: over less time than this the rate since acceptance counts."""
MEMORY_SHARE = 0.02
"""By so much MemTotal differs between boots and kernels."""


@drift_rule(
    "drift.host.boot",
    "The machine was not started anew",
    reads="the boot's id and the time since boot (/proc/sys/kernel/random/boot_id, /proc/uptime)",
    door="host",
    passes="it runs since before the last look; a start that an earlier look has told of is stated",
    warns="it was started since the last look",
    cause=Cause.misconfigured,
    owner=Owner.provider,
    meaning="What ran has ended, local scratch data may be gone, and counters and settings that do not outlive the "
    "driver have begun anew.",
    next_step="If it was not you, ask the provider why. Look at the findings below for what is no longer as it was.",
    repeat="uptime; cat /proc/sys/kernel/random/boot_id",
    fleeting=True,
)
def boot(drift: Drift) -> Iterator[Outcome]:
    then = drift.before or drift.baseline
    if then is None:
        yield skipped(NOTHING_BEFORE)
        return
    if isinstance(drift.now.host, Absent):
        yield unknown(NODE, drift.now.host)
        return
    unbroken = same_boot(then, drift.now)
    if unbroken is None:
        yield unknown(NODE, _first_absent(drift.now.host.boot_id, drift.now.host.uptime_seconds))
        return
    began = drift.now.at(0.0)
    told = f"at {began:%Y-%m-%d %H:%M} UTC" if known(began) else "at a time that was not seen"
    words: dict[str, Any] = {"observed": f"started {told}", "expected_from": drift.witness(then)}
    if not unbroken:
        yield warn(f"It was started {told}.", **words)
    elif drift.baseline is not None and same_boot(drift.baseline, drift.now) is False:
        yield passed(f"Not since the last look; since acceptance, {told}.", **words)
    else:
        yield passed(f"It runs since then; it was started {told}.", **words)


def _first_absent(*values: Maybe[object]) -> Absent:
    return next(value for value in values if isinstance(value, Absent))


node_drift(
    "drift.host.kernel",
    "The kernel is the same",
    path="host.kernel",
    reads="kernel release (uname -r)",
    passes="it is",
    warns="it is another one",
    cause=Cause.misconfigured,
    owner=Owner.renter,
    meaning="Driver modules and file systems now run in a kernel that the node was not accepted with.",
    next_step=f"Find out who updated it (you, unattended upgrades, the provider). {ANEW}",
    repeat="uname -r",
)(lambda changed: warn(f"It was {changed.was} and is {changed.now}."))


@node_drift(
    "drift.host.clock",
    "The clock is kept in time as it was",
    path="host.clock_synchronized",
    reads="whether the kernel counts its clock as synchronised (adjtimex)",
    passes="it does, or did not before",
    warns="it no longer does",
    cause=Cause.misconfigured,
    owner=Owner.provider,
    meaning="Certificates, tokens and logs of several machines no longer fit together as the clock drifts.",
    next_step="Have the time service started again (chrony or systemd-timesyncd).",
    repeat="timedatectl show -p NTPSynchronized",
)
def clock(changed: Changed) -> Outcome | None:
    return None if changed.now else warn("The kernel no longer counts its clock as synchronised.")


@node_drift(
    "drift.host.memory",
    "The machine has the memory that it had",
    path="host.memory.total_bytes",
    unit="bytes",
    reads="MemTotal of /proc/meminfo; in a virtual machine it may grow on demand, which is no change",
    passes=f"it is as it was, within {MEMORY_SHARE:.0%}, or more",
    warns="it is less",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="A memory module was taken out of use, or the virtual machine was made smaller.",
    next_step="Send this to the provider.",
    repeat="grep MemTotal /proc/meminfo",
)
def memory(changed: Changed) -> Outcome | None:
    if changed.now >= changed.was * (1 - MEMORY_SHARE):
        return None
    return warn(f"It was {changed.was / GIB:,.0f} GiB and is {changed.now / GIB:,.0f} GiB.")


@node_drift(
    "drift.host.cpus",
    "The machine has the CPUs that it had",
    path="host.cpu.present",
    reads="logical CPUs online (/sys/devices/system/cpu/online)",
    passes="as many as there were, or more",
    warns="fewer",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="Data loading and launching kernels have less to run on than they had.",
    next_step="Send this to the provider.",
    repeat="nproc --all",
)
def cpus(changed: Changed) -> Outcome | None:
    return warn(f"{changed.now} are online, not {changed.was}.") if changed.now < changed.was else None


def _session(drift: Drift) -> str:
    """Outside of containers a limit is that of the session, and cron's is another one than a shell's."""
    if known(drift.now.host) and drift.now.host.container == "none":
        return "Outside of a container a limit is that of the session, not of the node."
    return ""


def _lowered(changed: Changed, in_bytes: bool) -> Outcome | None:
    """A limit that is lower than it was; `unlimited` is above every number."""
    if changed.now == "unlimited" or (changed.was != "unlimited" and changed.now >= changed.was):
        return None
    was, now = (
        f"{limit / GIB:,.1f} GiB" if in_bytes and limit != "unlimited" else str(limit)
        for limit in (changed.was, changed.now)
    )
    return warn(f"It was {was} and is {now}.")


for _id, _title, _path, _bytes, _needless, _reads, _repeat in (
    (
        "drift.host.memory_limit",
        "The memory allowed is what it was",
        "host.memory.limit_bytes",
        True,
        _session,
        "the cgroup's limit (memory.max)",
        "cat /sys/fs/cgroup/memory.max",
    ),
    (
        "drift.host.cpu_limit",
        "The CPU time allowed is what it was",
        "host.cpu.quota_cpus",
        False,
        _session,
        "the cgroup's quota (cpu.max)",
        "cat /sys/fs/cgroup/cpu.max",
    ),
    (
        "drift.host.shm",
        "The shared memory is as large as it was",
        "host.memory.shm_total_bytes",
        True,
        None,
        "size of /dev/shm",
        "df -h /dev/shm",
    ),
):
    node_drift(
        _id,
        _title,
        path=_path,
        unit="bytes" if _bytes else "CPUs",
        reads=_reads,
        door="host" if _needless is None else "cgroup",
        needless=_needless,
        passes="it is, or more",
        warns="it is less",
        cause=Cause.misconfigured,
        owner=Owner.provider,
        meaning="Programs that fitted when the node was accepted may be slowed or ended now.",
        next_step=f"Ask the provider what was changed, or look at how this container was started. {ANEW}",
        repeat=_repeat,
    )(partial(_lowered, in_bytes=_bytes))


# Disks


def _disks(node: Node | None) -> Maybe[tuple[Disk, ...]] | None:
    if node is None:
        return None
    return node.host if isinstance(node.host, Absent) else node.host.disks


def _of_disk(disk: Disk) -> Subject:
    return Subject(kind="disk", key=disk.mount, label=disk.mount)


def _keeps_data(disk: Disk) -> bool:
    return disk.kind != "memory" and not disk.read_only


@drift_rule(
    "drift.host.disk_filling",
    "No disk is filling up",
    reads="free space of every writable file system, and how it has changed",
    door="host",
    passes=f"{FULL_SHARE:.0%} or more are free, and will be for {FULL_HOURS:.0f} h at the rate seen; or it was as full "
    "when the node was accepted",
    warns=f"less than {FULL_SHARE:.0%} are free, or it will be full within {FULL_HOURS:.0f} h at the rate since the "
    "last look (since acceptance where that is less than a quarter of an hour ago)",
    cause=Cause.misconfigured,
    owner=Owner.renter,
    meaning="Checkpoints, caches and logs end in `No space left on device`, often hours into a run.",
    next_step="Make room (`du -xh --max-depth=2 MOUNT | sort -h | tail`), or rent a larger disk.",
    repeat="df -h",
)
def disk_filling(drift: Drift) -> Iterator[Outcome]:
    now = _disks(drift.now)
    if now is None or isinstance(now, Absent):
        yield unknown(NODE, now or _first_absent(drift.now.host))
        return
    looked, silent = 0, True
    told: set[str] = set()
    for disk in now:
        size, free = disk.size_bytes, disk.free_bytes
        if not _keeps_data(disk) or size == 0:
            continue
        if isinstance(size, Absent) or isinstance(free, Absent):
            silent = False
            yield unknown(_of_disk(disk), _first_absent(size, free))
            continue
        if disk.kind == "local" and disk.device in told:
            continue  # mounted in several places
        told.add(disk.device)
        looked += 1
        words: dict[str, Any] = {"observed": round(free / GIB, 1), "unit": "GiB", "subject": _of_disk(disk)}
        said = f"{free / GIB:,.1f} of {size / GIB:,.1f} GiB are free"
        accepted = _free(drift.baseline, disk)
        if free < FULL_SHARE * size and (accepted is None or accepted >= FULL_SHARE * size):
            silent = False
            yield warn(
                f"{said}.",
                expected=round(FULL_SHARE * size / GIB, 1),
                expected_from=f"{FULL_SHARE:.0%}",
                **words,
            )
            continue
        hours = _full_in(drift, disk, free)
        if hours is not None and hours < FULL_HOURS:
            silent = False
            yield warn(f"{said}; at the rate seen it is full in {hours:.1f} h.", **words)
    if silent:
        yield passed(
            f"{looked} file systems with room left." if looked else "None can be written to.", observed=looked
        )


def _free(node: Node | None, disk: Disk) -> int | None:
    disks = _disks(node)
    for other in disks if isinstance(disks, tuple) else ():
        if other.mount == disk.mount and known(other.free_bytes):
            return other.free_bytes
    return None


def _full_in(drift: Drift, disk: Disk, free: int) -> float | None:
    """Hours until the disk is full; None where it does not fill, or nothing tells how fast."""
    for then in (drift.before, drift.baseline):
        if then is None or (hours := elapsed_hours(then, drift.now)) < LEAST_FILL_HOURS:
            continue
        was = _free(then, disk)
        if was is not None:
            return free * hours / (was - free) if was > free else None
    return None


@drift_rule(
    "drift.host.disks",
    "Every disk is still mounted, and can be written to",
    reads="mounted file systems of the machine's own disks and of the network",
    door="host",
    passes="the machine's own are still mounted somewhere, and all that are there can be written to as before",
    warns="a disk of the machine's own is no longer mounted anywhere",
    fails="one can no longer be written to",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="What was on it cannot be reached, or nothing can be saved any more: a kernel mounts a disk read-only when "
    "it reports errors.",
    next_step="Look in the kernel log for errors of the disk, and send them to the provider.",
    repeat="findmnt -D; dmesg | grep -iE 'nvme|remount|I/O error'",
)
def disks(drift: Drift) -> Iterator[Outcome]:
    then = drift.reference
    if then is None:
        yield skipped(NOTHING_BEFORE)
        return
    was, now = _disks(then), _disks(drift.now)
    if now is None or isinstance(now, Absent):
        yield unknown(NODE, now or _first_absent(drift.now.host))
        return
    if was is None or isinstance(was, Absent):
        yield skipped(f"They were not seen in {drift.witness(then)}.")
        return
    here = {disk.mount: disk for disk in now}
    mounted = {disk.device for disk in now}
    silent = True
    for disk in was:
        if disk.kind not in ("local", "network", "unknown"):
            continue
        words: dict[str, Any] = {"subject": _of_disk(disk), "expected_from": drift.witness(then)}
        if disk.mount not in here:
            # What comes and goes by itself: automounted network storage, and a disk's further places in pods.
            if disk.kind == "network" or disk.device in mounted:
                continue
            silent = False
            said = f"{disk.mount} ({disk.filesystem} from {disk.device}) is no longer mounted."
            yield warn(said, observed="not mounted", expected="mounted", **words)
        elif here[disk.mount].read_only and not disk.read_only:
            silent = False
            said = f"{disk.mount} is mounted read-only, and was not."
            yield fail(said, observed="read-only", expected="writable", **words)
    if silent:
        yield passed("As they were.", observed=len(here), expected_from=drift.witness(then))


@drift_rule(
    "drift.host.adapters",
    "Every network port is up that was",
    reads="state of each port of network and InfiniBand adapters (/sys/class/infiniband, /sys/class/net)",
    door="infiniband",
    passes="it is",
    warns="a port is down or no longer there",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="Traffic between nodes goes over fewer ports, or over none.",
    next_step="Send this to the provider, with the ports' state.",
    repeat="ibstat; ip -br link",
)
def adapters(drift: Drift) -> Iterator[Outcome]:
    then = drift.reference
    if then is None:
        yield skipped(NOTHING_BEFORE)
        return
    if isinstance(drift.now.topology, Absent):
        yield unknown(NODE, drift.now.topology)
        return
    was = then.topology if isinstance(then.topology, Absent) else then.topology.adapters
    now = drift.now.topology.adapters
    if isinstance(was, Absent):
        yield skipped(f"They were not seen in {drift.witness(then)}.")
        return
    if isinstance(now, Absent):
        yield unknown(NODE, now)
        return
    states = {(port.name, port.port): port.state for port in now}
    silent = True
    for port in was:
        state = states.get((port.name, port.port), "gone")
        if isinstance(port.state, Absent) or port.state.lower() not in _UP:
            continue
        name = f"Port {port.port} of {port.name}"
        subject = Subject(kind="adapter", key=f"{port.name}/{port.port}", label=name)
        if isinstance(state, Absent):
            silent = False
            yield unknown(subject, state)
        elif state.lower() not in _UP:
            silent = False
            yield warn(
                f"{name} was {port.state} and is {state}.",
                subject=subject,
                observed=state,
                expected=port.state,
                expected_from=drift.witness(then),
            )
    if silent:
        yield passed(f"{len(was)} ports: as they were.", observed=len(now), expected_from=drift.witness(then))


_UP = ("active", "up")

from __future__ import annotations

from typing import Any

import pytest

from nodecheck.facts import Absent, Node, Why
from nodecheck.facts.host import Disk
from nodecheck.facts.topology import Adapter
from nodecheck.judge import REGISTRY, Cause, Finding, Owner, Status, judge
from nodecheck.profile import Profile
from tests.healthy import GIB, MIB
from tests.judge.cases import DENIED, UNASKED, Case, check, faulty, found, healthy, profile
from tests.judge.rules import test_amd

PASS, WARN, FAIL, UNKNOWN, SKIPPED = Status.passed, Status.warn, Status.fail, Status.unknown, Status.skipped
HIDDEN = Absent(why=Why.not_present, detail="no control group can be seen from here")
SILENT = Absent(why=Why.timed_out, detail="no answer within 2 s")
RENTER, PROVIDER = Owner.renter, Owner.provider


def disk(mount: str = "/", **changes: Any) -> Disk:
    facts: dict[str, Any] = {
        "mount": mount, "device": "/dev/nvme0n1", "filesystem": "ext4", "kind": "local", "size_bytes": 1000 * GIB,
        "free_bytes": 500 * GIB, "read_only": False, "model": "M",
    }  # fmt: skip
    return Disk(**facts | changes)


INFINIBAND = (Adapter(name="mlx5_0", port=1, link_layer="InfiniBand", state="ACTIVE"),)
ETHERNET = (Adapter(name="eth0", port=1, link_layer="Ethernet", state="up"),)
GUEST = {"host.virtualization": "kvm"}
CONTAINER = {"host.container": "docker"}

CASES = [
    *test_amd.HOST,
    # CPUs: h200x4 asks for 2 a card, derived
    Case("host.cpus", {}, PASS, says="192 CPUs are allowed."),
    Case("host.cpus", {"host.cpu.quota_cpus": 16.0}, PASS, says="16 CPUs are allowed; the control group"),
    Case("host.cpus", {"host.cpu.affinity": 8}, PASS, says="192 are online"),
    Case("host.cpus", {"host.cpu.offline": 16}, PASS, says="16 are switched off"),
    Case("host.cpus", {"host.cpu.quota_cpus": 7.5}, WARN, cause=Cause.misconfigured, owner=RENTER),
    Case("host.cpus", {"host.cpu.affinity": 4}, WARN, cause=Cause.misconfigured, owner=RENTER),
    Case(
        "host.cpus",
        {"host.cpu.affinity": 4, "host.cpu.present": 4},
        WARN,
        cause=Cause.not_as_rented,
        owner=PROVIDER,
    ),
    Case("host.cpus", {"host.cpu.affinity": 4, "host.cpu.quota_cpus": HIDDEN}, WARN),
    Case("host.cpus", {"host.cpu.quota_cpus": HIDDEN}, UNKNOWN),
    Case("host.cpus", {"host.cpu.affinity": DENIED}, UNKNOWN),
    Case("host.cpus", {"host": UNASKED}, UNKNOWN),
    # Memory: half of the cards' memory
    Case("host.memory", {}, PASS, says="2048"),
    Case("host.memory", {"host.memory.limit_bytes": 300 * GIB}, PASS, says="by the control group"),
    Case("host.memory", GUEST, PASS, says="may grow on demand"),
    Case(
        "host.memory", {"host.memory.limit_bytes": 100 * GIB}, WARN, cause=Cause.misconfigured, owner=RENTER
    ),
    Case(
        "host.memory", {"host.memory.total_bytes": 100 * GIB}, WARN, cause=Cause.not_as_rented, owner=PROVIDER
    ),
    Case("host.memory", {"host.memory.limit_bytes": HIDDEN}, UNKNOWN),
    Case("host.memory", {"host.memory.total_bytes": DENIED}, UNKNOWN),
    Case("host.memory", {"host.memory.total_bytes": 1 * GIB}, WARN, profile="cpu"),
    # /dev/shm
    Case("host.shm", {}, PASS),
    Case(
        "host.shm", {"host.memory.shm_total_bytes": 64 * MIB}, WARN, says="nobody asks for more", owner=RENTER
    ),
    Case("host.shm", {"host.memory.shm_free_bytes": 1 * MIB}, WARN, says="are free"),
    Case("host.shm", {"host.memory.shm_total_bytes": 64 * MIB}, PASS, profile="h200x1", says="nobody asks"),
    Case("host.shm", {"host.memory.shm_total_bytes": HIDDEN}, UNKNOWN),
    Case("host.shm", {"host.memory.shm_free_bytes": DENIED}, UNKNOWN),
    # Locked memory: asked of whole boards, where RDMA adapters are up
    Case("host.memlock", {}, PASS, profile="h200x8"),
    Case(
        "host.memlock",
        {"host.limits.memlock_bytes": 8 * MIB, "topology.adapters": INFINIBAND},
        WARN,
        profile="h200x8",
        owner=RENTER,
    ),
    Case(
        "host.memlock",
        {"host.limits.memlock_bytes": 8 * MIB, "topology.adapters": ETHERNET},
        SKIPPED,
        profile="h200x8",
        says="No RDMA adapter",
    ),
    Case(
        "host.memlock",
        {"host.limits.memlock_bytes": 8 * MIB, "topology.adapters": DENIED},
        UNKNOWN,
        profile="h200x8",
    ),
    Case("host.memlock", {"host.limits.memlock_bytes": 8 * MIB}, PASS, profile="h200x1", says="0.008 GiB"),
    Case("host.memlock", {"host.limits.memlock_bytes": DENIED}, UNKNOWN),
    # Files and processes
    Case("host.open_files", {}, PASS),
    Case("host.open_files", {"host.limits.open_files": "unlimited"}, PASS, says="Any number"),
    Case("host.open_files", {"host.limits.open_files": 256}, WARN, owner=RENTER),
    Case("host.open_files", {"host.limits.open_files": DENIED}, UNKNOWN),
    Case("host.process_limit", {}, PASS, says="Any number"),
    Case("host.process_limit", {"host.limits.cgroup_processes": 1000}, WARN, owner=RENTER, says="1000"),
    Case("host.process_limit", {"host.limits.processes": 1000}, PASS),  # root is not held to it
    Case("host.process_limit", {"host.limits.processes": 1000}, WARN, view="container"),
    Case("host.process_limit", {"host.limits.processes": 50000}, PASS, view="container", says="50000"),
    Case("host.process_limit", {"host.limits.cgroup_processes": HIDDEN}, UNKNOWN),
    Case("host.process_limit", {"host.limits.processes": DENIED}, UNKNOWN, view="container"),
    Case("host.process_limit", {"host": UNASKED}, UNKNOWN),
    # Disks
    Case("host.disk_free", {}, PASS, says="3000.0 GiB are free at / (SAMSUNG"),
    Case("host.disk_free", {"host.disks.0.free_bytes": 5 * GIB}, WARN, count=2, says="5.0"),
    Case(
        "host.disk_free",
        {"host.disks": (disk(), disk("/data", free_bytes=30 * GIB))},
        WARN,
        says="/data is nearly",
    ),
    Case(
        "host.disk_free",
        {"host.disks": (disk(), disk("/nas", kind="network", free_bytes=1 * GIB))},
        WARN,
        count=1,
    ),
    Case("host.disk_free", {"host.disks": (disk(), disk("/cd", free_bytes=0, read_only=True))}, PASS),
    Case("host.disk_free", {"host.disks": (disk(), disk("/tmp", free_bytes=0, kind="memory"))}, PASS),
    Case("host.disk_free", {"host.disks": (disk(size_bytes=2000_000 * GIB, free_bytes=60 * GIB),)}, PASS),
    Case("host.disk_free", {"host.disks": (disk("/nas", kind="network"),)}, UNKNOWN, says="no writable disk"),
    Case("host.disk_free", {"host.disks": (disk(free_bytes=SILENT, size_bytes=SILENT),)}, UNKNOWN),
    Case("host.disk_free", {"host.disks": DENIED}, UNKNOWN),
    Case("host.mounts", {}, PASS, says="/ (ext4, local)"),
    Case(
        "host.mounts",
        {"host.disks": (disk(), disk("/nas", kind="network", size_bytes=SILENT, free_bytes=SILENT))},
        WARN,
        cause=Cause.faulty,
        owner=PROVIDER,
        says="/nas",
    ),
    Case("host.mounts", {"host.disks": DENIED}, UNKNOWN),
    # The way between the cards
    Case("host.iommu", {}, PASS, says="as it is"),
    Case("host.iommu", {"host.iommu": "off"}, PASS),
    Case("host.iommu", {"host.iommu": "translated"}, WARN, owner=PROVIDER, cause=Cause.misconfigured),
    Case("host.iommu", {"host.iommu": "translated"} | GUEST, PASS),
    Case("host.iommu", {"host.iommu": "translated"} | CONTAINER, WARN),
    Case("host.iommu", {"host.iommu": "translated"}, PASS, profile="h200x1"),
    Case("host.iommu", {"host.iommu": DENIED}, UNKNOWN),
    Case("host.acs", {}, PASS),
    Case("host.acs", {"host.acs_bridges": ("0000:15:01.0",)}, WARN, says="0000:15:01.0", owner=PROVIDER),
    Case(
        "host.acs", {"host.acs_bridges": tuple(f"0000:{n:02x}:00.0" for n in range(20))}, WARN, says="12 more"
    ),
    Case("host.acs", {"host.acs_bridges": DENIED}, UNKNOWN),
    Case("host.acs", GUEST, UNKNOWN, says="virtual machine"),
    Case("host.acs", {"host.acs_bridges": ("0000:15:01.0",)}, SKIPPED, profile="h200x1"),
    # State
    Case("host.stuck_processes", {}, PASS),
    Case("host.stuck_processes", {"host.stuck_processes": 2}, WARN, cause=Cause.faulty, owner=PROVIDER),
    Case("host.stuck_processes", {"host.stuck_processes": DENIED}, UNKNOWN),
    Case("host.clock", {}, PASS),
    Case("host.clock", {"host.clock_synchronized": False}, WARN),
    Case("host.clock", {"host.clock_synchronized": False} | GUEST, PASS, says="hypervisor"),
    Case("host.clock", {"host.clock_synchronized": False} | CONTAINER, PASS),
    Case("host.clock", {"host.clock_synchronized": DENIED}, UNKNOWN),
    Case("host.clock", {"host.clock_synchronized": False, "host.virtualization": DENIED}, UNKNOWN),
    # What is only said
    Case("host.isolation", {}, PASS, says="No container, on the machine itself."),
    Case("host.isolation", GUEST | CONTAINER, PASS, says="Container: docker, on a virtual machine (kvm)."),
    Case("host.isolation", {"host.container": DENIED}, UNKNOWN),
    Case("host.isolation", {"host.virtualization": DENIED}, UNKNOWN),
    Case("host.os", {}, PASS, says="Ubuntu 24.04.3 LTS, Linux 6.8.0-60-generic, Intel"),
    Case("host.os", {"host.os": DENIED, "host.uptime_seconds": DENIED}, PASS, says="unknown distribution"),
    Case("host.os", {"host.kernel": DENIED}, UNKNOWN),
    Case("host.swap", {"host.memory.swap_bytes": 8 * GIB}, PASS, says="8.0 GiB"),
    Case("host.swap", {"host.memory.swap_bytes": DENIED}, UNKNOWN),
    Case("host.numa_balancing", {"host.memory.numa_balancing": True}, PASS, says="On"),
    Case("host.numa_balancing", {"host.memory.numa_balancing": DENIED}, UNKNOWN),
    Case("host.numa_balancing", {"host.memory.numa_balancing": HIDDEN}, SKIPPED),
    Case(
        "host.transparent_huge_pages", {"host.memory.transparent_huge_pages": "always"}, PASS, says="always"
    ),
    Case("host.transparent_huge_pages", {"host.memory.transparent_huge_pages": DENIED}, UNKNOWN),
    Case("host.governor", {"host.cpu.governor": "powersave"}, PASS, says="powersave"),
    Case("host.governor", {"host.cpu.governor": HIDDEN}, SKIPPED),
    Case("host.governor", {"host.cpu.governor": DENIED}, UNKNOWN),
]


@pytest.mark.parametrize("case", CASES, ids=[f"{i}-{case.name}" for i, case in enumerate(CASES)])
def test_rules(case: Case) -> None:
    check(case)


OURS = [id for id in REGISTRY if id.startswith("host.")]


def findings(node: Node, spec: Profile) -> list[Finding]:
    return [finding for id in OURS for finding in found(judge(node, spec), id)]


@pytest.mark.parametrize("id", OURS)
def test_every_rule_is_tried_on_what_it_cannot_see(id: str) -> None:
    assert {case.status for case in CASES if case.id == id} >= {PASS, UNKNOWN}
    rule = REGISTRY[id]
    if rule.warns or rule.fails:
        assert any(case.status is WARN for case in CASES if case.id == id)
    name = next(case.profile for case in CASES if case.id == id)
    unseen = found(judge(faulty(name, {"host": UNASKED}), profile(name)), id)
    assert {finding.status for finding in unseen} == {UNKNOWN}


@pytest.mark.parametrize("name", ["h200x8", "h200x1", "h100-nvlx4", "l40sx4", "gb200x4", "cpu"])
@pytest.mark.parametrize("view", ["bare", "vm", "container"])
def test_healthy_hosts_do_not_warn(name: str, view: Any) -> None:
    trouble = [f for f in findings(healthy(name, view), profile(name)) if f.status in (WARN, FAIL)]
    assert trouble == []


def test_the_host_never_holds_up_a_verdict() -> None:
    assert not any(REGISTRY[id].required for id in OURS)


@pytest.mark.parametrize(
    ("fault", "id"),
    [({"host.cpu.affinity": 4}, "host.cpus"), ({"host.memory.total_bytes": GIB}, "host.memory")],
)
def test_a_published_bound_rejects(fault: dict[str, Any], id: str) -> None:
    spec = profile("h200x4")
    assert spec.host is not None
    published = spec.model_copy(
        update={"host": spec.host.model_copy(update={"kind": "published", "inherited": {}})}
    )
    (finding,) = found(judge(faulty("h200x4", fault), published), id)
    assert finding.status is FAIL


def test_a_profile_that_asks_nothing_of_the_host_states_it() -> None:
    spec = profile("h200x4").model_copy(update={"host": None})
    small = faulty(
        "h200x4",
        {
            "host.cpu.affinity": 1,
            "host.memory.total_bytes": GIB,
            "host.memory.shm_total_bytes": MIB,
            "host.limits.open_files": 64,
            "host.limits.memlock_bytes": MIB,
        },
    )
    seen = {f.id: f for f in findings(small, spec)}
    for id in ("host.cpus", "host.memory", "host.shm", "host.open_files", "host.memlock"):
        assert seen[id].status is PASS
        assert seen[id].observed is not None


def test_figures_name_their_witnesses() -> None:
    (cpus,) = found(judge(faulty("h200x4", {"host.cpu.quota_cpus": 4.0}), profile("h200x4")), "host.cpus")
    assert (cpus.observed, cpus.expected, cpus.unit) == (4.0, 8, "CPUs")
    assert "cpu.max" in cpus.observed_from
    assert "derived" in cpus.expected_from

"""What is broken on AMD's nodes is found: faults planted at real boundaries, and the finding that each must lead to.

As in `test_faults.py` every case goes the whole way: files below a folder, what amd-smi prints and what ROCm's binding
answers, the sources, the probes, the judge with the shipped profile.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from nodecheck.judge import BROKEN_RULE, Cause, Judgement, Owner, Status, Verdict, judge
from nodecheck.profile import load
from tests.fakes.amd import GIB, MIB
from tests.fakes.amd.faults import (
    HUNG,
    Change,
    amd_smi_differs,
    amd_smi_hangs,
    apart,
    attribute,
    binding,
    boot,
    card,
    changed,
    ended,
    errors,
    every_attribute,
    every_card,
    fewer,
    hidden,
    hip,
    kernel,
    link_down,
    no_amd_smi,
    not_started,
    nothing,
    of_node,
    partitioned,
    shut,
    way,
    wrong_sum,
)
from tests.fakes.amd.node import healthy, stand
from tests.fakes.faults import Plant, both, environment, file, log, no_torch, torch, without
from tests.fakes.node import FakeNode
from tests.fakes.node import healthy as nvidias
from tests.fakes.tree import Ground, Kind
from tests.surveys import needs_compiler

pytestmark = needs_compiler

FAIL, WARN, UNKNOWN = Status.fail, Status.warn, Status.unknown
NOT_AS_RENTED, FAULTY, MISCONFIGURED, NOT_VISIBLE = (
    Cause.not_as_rented,
    Cause.faulty,
    Cause.misconfigured,
    Cause.not_visible,
)
PROVIDER, RENTER = Owner.provider, Owner.renter
REJECTED, INCOMPLETE = Verdict.rejected, Verdict.incomplete
WARNED, ACCEPTED = Verdict.accepted_with_warnings, Verdict.accepted


@dataclass(frozen=True)
class Fault:
    name: str
    finding: str
    status: Status
    cause: Cause
    owner: Owner | None
    verdict: Verdict
    card: int | None = None
    """The card that the finding must name, where it is about one."""
    to: Change = nothing
    """What is done to the node, so that every source tells of it."""
    plant: Plant = nothing
    """What is done to one of its boundaries."""
    profile: str = "mi300xx4"
    bundle: str = ""
    """What the node is, where it is not what was rented."""
    kind: Kind = "bare"
    generation: str = "7.2"
    also: tuple[str, ...] = ()
    """What else is rightly found, beside the finding, its root and what follows from either."""


KFD_AND_NODES = ("/dev/kfd", *(f"/dev/dri/renderD{128 + i}" for i in range(4)))
NOT_SHOWN = {"type": "LookupError", "message": "HIP shows 0 devices at 0021:00:00.0, of 3", "code": None}
NO_CODE = "HIP error: invalid device function"
BROKEN_IMPORT = {
    "type": "ImportError",
    "message": "libamdhip64.so.7: cannot open shared object file: No such file or directory",
    "code": None,
    "missing": False,
}
NO_MODULE = {
    "type": "ModuleNotFoundError",
    "message": "No module named 'torch'",
    "code": None,
    "missing": True,
}

COUNT = [
    Fault("a card too few", "cards.count", FAIL, NOT_AS_RENTED, PROVIDER, REJECTED, to=fewer(7), profile="mi300xx8"),
    Fault("a card that amdgpu has not started", "cards.usable", FAIL, FAULTY, PROVIDER, REJECTED, 2,
          plant=not_started(2)),
    Fault("a card fallen off the bus", "cards.usable", FAIL, FAULTY, PROVIDER, REJECTED, 1,
          plant=attribute(1, "config", b"\xff" * 4096)),
    Fault("a container that gets four of eight", "cards.kfd", FAIL, MISCONFIGURED, RENTER, REJECTED,
          to=hidden(4, 5, 6, 7), profile="mi300xx8", kind="container"),
    Fault("a container that gets no card", "cards.kfd", FAIL, MISCONFIGURED, RENTER, REJECTED,
          to=hidden(0, 1, 2, 3), kind="container"),
    Fault("one card listed twice", "cards.duplicate", FAIL, NOT_AS_RENTED, PROVIDER, REJECTED,
          to=lambda node: card(3, unique_id=node.cards[2].unique_id)(node)),
    Fault("HIP_VISIBLE_DEVICES hides cards", "cards.hidden_by_environment", WARN, MISCONFIGURED, RENTER, WARNED,
          plant=environment(HIP_VISIBLE_DEVICES="0,1")),
    Fault("two variables that leave no card", "cards.hidden_by_environment", WARN, MISCONFIGURED, RENTER, WARNED,
          plant=environment(ROCR_VISIBLE_DEVICES="2,3", HIP_VISIBLE_DEVICES="2,3")),
    Fault("torch counts no card", "stack.torch.devices", FAIL, MISCONFIGURED, RENTER, REJECTED,
          plant=torch(device_count=0, devices=[])),
    Fault("amd-smi counts otherwise", "cards.count.agreement", UNKNOWN, NOT_VISIBLE, None, ACCEPTED,
          plant=lambda made: amd_smi_differs(healthy("mi300xx4"), "list", change=fewer(3))(made)),
]  # fmt: skip

ACCESS = [
    Fault("the driver is not loaded", "stack.driver.amdgpu", FAIL, MISCONFIGURED, PROVIDER, REJECTED,
          to=of_node(loaded=False)),
    Fault("a group is missing", "cards.device_files", FAIL, MISCONFIGURED, RENTER, REJECTED,
          plant=shut(*KFD_AND_NODES)),
    Fault("/dev/kfd is denied by the container", "cards.device_files", FAIL, MISCONFIGURED, RENTER, REJECTED,
          plant=shut("/dev/kfd", groups=(0, 44, 992)), kind="container"),
    Fault("no /dev/kfd in the container", "cards.device_files", FAIL, MISCONFIGURED, RENTER, REJECTED,
          plant=without("/dev/kfd"), kind="container"),
    Fault("one render node is denied", "cards.device_files", FAIL, MISCONFIGURED, RENTER, REJECTED,
          plant=shut("/dev/dri/renderD131", groups=(0, 44, 992)), kind="container"),
]  # fmt: skip

IDENTITY = [
    Fault("another product of the same target", "cards.pci_id", FAIL, NOT_AS_RENTED, PROVIDER, REJECTED, 0,
          bundle="mi300ax4"),
    Fault("another generation", "cards.architecture", FAIL, NOT_AS_RENTED, PROVIDER, REJECTED, 0, bundle="mi210x4"),
    Fault("compute units missing", "cards.compute_units", FAIL, NOT_AS_RENTED, PROVIDER, REJECTED, 1,
          to=card(1, units=228)),
    Fault("memory missing", "cards.memory.total", FAIL, NOT_AS_RENTED, PROVIDER, REJECTED, 2,
          to=card(2, memory_bytes=128 * GIB)),
    Fault("right name on another card", "cards.identity", FAIL, NOT_AS_RENTED, PROVIDER, REJECTED, 3,
          to=card(3, device=0x740F, units=104, memory_bytes=64 * GIB)),
    Fault("one card unlike the others", "cards.uniform", WARN, NOT_AS_RENTED, PROVIDER, WARNED,
          to=card(3, memory_bytes=206_141_652_992 - 512 * MIB)),
    Fault("a share of a virtual function", "cards.compute_units", FAIL, NOT_AS_RENTED, PROVIDER, REJECTED, 0,
          to=card(0, units=152, memory_bytes=96 * GIB), kind="guest"),
    Fault("power capped at 550 of 750 W", "cards.power_limit", FAIL, NOT_AS_RENTED, PROVIDER, REJECTED, 1,
          to=card(1, cap_watts=550)),
    Fault("NPS4 left on", "cards.partition.memory", FAIL, MISCONFIGURED, PROVIDER, REJECTED, 0,
          to=every_card(memory="NPS4")),
    Fault("CPX left on", "cards.partition.compute", FAIL, MISCONFIGURED, PROVIDER, REJECTED, 0,
          to=partitioned("CPX"), profile="mi300xx2"),
    Fault("highest clock far below the product's", "cards.clocks.max", FAIL, NOT_AS_RENTED, PROVIDER, REJECTED, 1,
          plant=attribute(1, "pp_dpm_sclk", "0: 132Mhz *\n1: 1400Mhz\n")),
    Fault("clocks set by hand", "cards.clocks.performance_level", WARN, MISCONFIGURED, PROVIDER, WARNED, 2,
          plant=attribute(2, "power_dpm_force_performance_level", "manual\n")),
]  # fmt: skip

LINKS = [
    Fault("PCIe in the place of xGMI", "topology.pairs.xgmi", FAIL, NOT_AS_RENTED, PROVIDER, REJECTED,
          to=way(1, 3, "pcie", 40)),
    Fault("two hops that amd-smi calls one", "topology.pairs.xgmi", FAIL, NOT_AS_RENTED, PROVIDER, REJECTED,
          to=way(0, 2, "xgmi", 30, 50_000)),
    Fault("three hops", "topology.pairs.xgmi", FAIL, NOT_AS_RENTED, PROVIDER, REJECTED,
          to=way(0, 2, "xgmi", 45, 50_000)),
    Fault("a weight that is no number of hops", "topology.pairs.xgmi", UNKNOWN, NOT_VISIBLE, None, INCOMPLETE,
          to=way(0, 2, "xgmi", 17, 50_000)),
    Fault("a hive split in two", "topology.xgmi.hive", FAIL, NOT_AS_RENTED, PROVIDER, REJECTED,
          to=apart(4, 5, 6, 7), profile="mi300xx8", also=("topology.pairs.xgmi",)),
    Fault("a card in no hive", "topology.xgmi.hive", FAIL, NOT_AS_RENTED, PROVIDER, REJECTED, to=card(2, hive=0)),
    Fault("a link down", "topology.xgmi.links", FAIL, FAULTY, PROVIDER, REJECTED, 0, to=link_down(0, 3)),
    Fault("a link at half its rate", "topology.xgmi.links", FAIL, FAULTY, PROVIDER, REJECTED, 0,
          to=way(0, 1, "xgmi", 15, 25_000)),
    Fault("a bridge of four that lacks a card", "topology.pairs.xgmi", FAIL, NOT_AS_RENTED, PROVIDER, REJECTED, 7,
          to=changed(*(way(7, other, "pcie", 40) for other in (4, 5, 6))), profile="mi210x8"),
    Fault("sources disagree about a link", "topology.pairs.xgmi", UNKNOWN, NOT_VISIBLE, None, INCOMPLETE,
          plant=lambda made: amd_smi_differs(
              healthy("mi300xx4"), "topology", change=way(0, 1, "pcie", 40))(made)),
    Fault("no access to the other's memory", "topology.pairs.p2p", FAIL, MISCONFIGURED, PROVIDER, REJECTED,
          plant=lambda made: made.commands["amd_smi_topology"].update(
              stdout=made.commands["amd_smi_topology"]["stdout"].replace("ENABLED", "DISABLED"))),
]  # fmt: skip

CONDITION = [
    Fault("uncorrected errors in memory", "health.ecc_uncorrected_volatile", FAIL, FAULTY, PROVIDER, REJECTED, 1,
          to=errors(1, "UMC", uncorrected=2)),
    Fault("uncorrected errors of the links", "health.xgmi_errors", FAIL, FAULTY, PROVIDER, REJECTED, 2,
          to=errors(2, "XGMI_WAFL", uncorrected=7), also=("health.ecc_uncorrected_volatile",)),
    Fault("many corrected errors of the links", "health.xgmi_errors", WARN, FAULTY, PROVIDER, WARNED, 2,
          to=errors(2, "XGMI_WAFL", corrected=4000)),
    Fault("a flood of corrected errors", "health.ecc_corrected", WARN, FAULTY, PROVIDER, WARNED, 0,
          to=errors(0, "UMC", corrected=20_000_000)),
    Fault("deferred errors", "health.ecc_deferred", WARN, FAULTY, PROVIDER, WARNED, 0,
          to=errors(0, "UMC", deferred=1)),
    Fault("RAS is off", "health.ecc_mode", FAIL, MISCONFIGURED, PROVIDER, REJECTED, 1,
          plant=attribute(1, "ras/features", "feature mask: 0x0\n")),
    Fault("bad pages over the threshold", "health.bad_pages", FAIL, FAULTY, PROVIDER, REJECTED, 3,
          to=card(3, bad_pages="R" * 260)),
    Fault("a bad page that waits", "health.bad_pages", FAIL, FAULTY, PROVIDER, REJECTED, 3,
          to=card(3, bad_pages="RRP")),
    Fault("some retired pages", "health.bad_pages", WARN, FAULTY, PROVIDER, WARNED, 3, to=card(3, bad_pages="RR")),
    Fault("slowed by heat", "cards.clocks.event_reasons", WARN, FAULTY, PROVIDER, WARNED, 2,
          to=card(2, limits={"hbm_thermal": 30})),
    Fault("slowed by the server", "cards.clocks.event_reasons", FAIL, FAULTY, PROVIDER, REJECTED, 2,
          to=card(2, limits={"prochot": 80})),
    Fault("hot when idle", "cards.temperature", WARN, FAULTY, PROVIDER, WARNED, 0,
          plant=attribute(0, "hwmon/hwmon8/temp2_input", "98000\n")),
    Fault("half the PCIe lanes", "cards.pcie.width", FAIL, FAULTY, PROVIDER, REJECTED, 2, to=card(2, width=8)),
    Fault("an older PCIe slot", "cards.pcie.generation", FAIL, NOT_AS_RENTED, PROVIDER, REJECTED, 2,
          plant=both(attribute(2, "max_link_speed", "16.0 GT/s PCIe\n"),
                     attribute(2, "current_link_speed", "16.0 GT/s PCIe\n"))),
    Fault("PCIe replays", "cards.pcie.replays", WARN, FAULTY, PROVIDER, WARNED, 2, to=card(2, replays=250_000)),
    Fault("PCIe packets refused", "cards.pcie.link_events", WARN, FAULTY, PROVIDER, WARNED, 2, to=card(2, naks=5000)),
    Fault("the PCIe link recovers again and again", "cards.pcie.link_events", WARN, FAULTY, PROVIDER, WARNED, 1,
          to=card(1, recoveries=900)),
    Fault("uncorrected PCIe errors", "topology.pci.aer", WARN, FAULTY, PROVIDER, WARNED, 1,
          plant=attribute(1, "aer_dev_fatal", "DLP 1\nTOTAL_ERR_FATAL 1\n")),
    Fault("other people's memory", "cards.memory.unexplained", WARN, NOT_AS_RENTED, PROVIDER, WARNED, 1,
          to=card(1, used_bytes=40 * GIB)),
    Fault("a program of one's own in use", "cards.processes", WARN, MISCONFIGURED, RENTER, WARNED, 1,
          to=card(1, processes={4711: 8 * GIB})),
    Fault("a card at work", "cards.idle", WARN, MISCONFIGURED, RENTER, WARNED, 0,
          plant=attribute(0, "gpu_busy_percent", "97\n")),
]  # fmt: skip

HOST = [
    Fault("NUMA balancing is on", "host.numa_balancing", WARN, MISCONFIGURED, PROVIDER, WARNED,
          plant=file("/proc/sys/kernel/numa_balancing", "1\n")),
    Fault("the IOMMU is not told to pass through", "host.iommu_passthrough", WARN, MISCONFIGURED, PROVIDER, WARNED,
          plant=boot("intel_iommu=on")),
    Fault("the CPU reaches a part of the memory only", "host.pci_realloc", WARN, MISCONFIGURED, PROVIDER, WARNED,
          plant=every_attribute("mem_info_vis_vram_total", f"{256 * MIB}\n")),
]  # fmt: skip

STACK = [
    Fault("torch for the CPU", "stack.torch.gpu_build", FAIL, MISCONFIGURED, RENTER, REJECTED,
          plant=torch(version="2.9.1+cpu", hip=None, device_count=0, devices=[])),
    Fault("torch for the other vendor", "stack.torch.gpu_build", FAIL, MISCONFIGURED, RENTER, REJECTED,
          plant=torch(version="2.9.1+cu130", hip=None, cuda="13.0", device_count=0, devices=[])),
    Fault("a wheel for another ROCm", "stack.rocm.match", WARN, MISCONFIGURED, RENTER, WARNED,
          plant=torch(version="2.5.1+rocm6.2", hip="6.2.41133-dd7f95766")),
    Fault("libraries of two ROCms in one process", "stack.rocm.match", WARN, MISCONFIGURED, RENTER, WARNED,
          plant=torch(libraries=["/opt/rocm/lib/libMIOpen.so.1", "/opt/venv/lib/torch/lib/libamdhip64.so"])),
    Fault("a wheel older than the cards", "stack.rocm.minimum", WARN, MISCONFIGURED, RENTER, WARNED,
          plant=torch(version="2.1.2+rocm5.6", hip="5.6.31061"), also=("stack.rocm.match",)),
    Fault("a wheel without code for the cards", "stack.rocm.arch", FAIL, MISCONFIGURED, RENTER, REJECTED,
          plant=both(torch(arch_list=["gfx900", "gfx1030"]), kernel(NO_CODE)), also=("stack.context",)),
    Fault("torch's import breaks", "stack.torch.present", FAIL, MISCONFIGURED, RENTER, REJECTED,
          plant=no_torch(BROKEN_IMPORT)),
    Fault("no torch", "stack.torch.present", WARN, MISCONFIGURED, RENTER, INCOMPLETE, plant=no_torch(NO_MODULE)),
    Fault("a card refuses its context", "stack.context", FAIL, FAULTY, PROVIDER, REJECTED, 1,
          plant=hip(999, "hipErrorUnknown", "unknown error", 1)),
    Fault("a card that computes wrongly", "stack.context", FAIL, FAULTY, PROVIDER, REJECTED, 3, plant=wrong_sum(3)),
    Fault("a card that crashes programs", "stack.context", FAIL, FAULTY, PROVIDER, REJECTED, 0,
          plant=ended(0, "kernel", returncode=-6)),
    Fault("a card without a unique id, which HIP does not show", "stack.context", UNKNOWN, NOT_VISIBLE, None,
          INCOMPLETE, 1, to=every_card(unique_id=0), kind="guest",
          plant=ended(1, "context", errors={"context": NOT_SHOWN})),
    Fault("a card that hangs programs", "stack.context", FAIL, FAULTY, PROVIDER, REJECTED, 2,
          plant=ended(2, "kernel", returncode=None, cut_off="no end after 120 s")),
]  # fmt: skip

KERNEL_LOG = [
    Fault("RAS errors in the log", "kernel_log.amdgpu", FAIL, FAULTY, PROVIDER, REJECTED, 0,
          plant=log("amdgpu 0000:0c:00.0: amdgpu: socket: 0, die: 0 3 uncorrectable hardware errors detected in umc "
                    "block")),
    Fault("a reset in the log", "kernel_log.amdgpu", WARN, FAULTY, PROVIDER, WARNED, 1,
          plant=log("amdgpu 0000:15:00.0: amdgpu: GPU reset begin!",
                    "amdgpu 0000:15:00.0: amdgpu: GPU reset(2) succeeded!")),
    Fault("a fatal PCIe error of a card", "kernel_log.pcie", FAIL, FAULTY, PROVIDER, REJECTED, 2,
          plant=log("amdgpu 0000:1e:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer")),
]  # fmt: skip

UNSEEN = [
    Fault("sources disagree about the power limit", "cards.power_limit", UNKNOWN, NOT_VISIBLE, None, INCOMPLETE, 0,
          plant=lambda made: amd_smi_differs(healthy("mi300xx4"), "static", change=card(0, cap_watts=550))(made)),
    Fault("amd-smi hangs", "health.responsive", WARN, FAULTY, PROVIDER, WARNED, 0, plant=amd_smi_hangs),
    Fault("amd-smi and ROCm's binding hang", "health.responsive", WARN, FAULTY, PROVIDER, WARNED, 0,
          plant=both(no_amd_smi, binding(HUNG))),
    Fault("memory not told by anyone", "cards.memory.total", UNKNOWN, NOT_VISIBLE, None, INCOMPLETE, 1,
          plant=both(no_amd_smi, attribute(1, "mem_info_vram_total", "nonsense\n"),
                     without("/sys/class/kfd/kfd/topology/nodes/3/mem_banks"))),
]  # fmt: skip

FAULTS = [
    *COUNT, *ACCESS, *IDENTITY, *LINKS, *CONDITION, *HOST, *STACK, *KERNEL_LOG, *UNSEEN,
]  # fmt: skip


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    return Ground(tmp_path_factory.mktemp("node"))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault(fault: Fault, ground: Ground) -> None:
    node = healthy(fault.bundle or fault.profile, kind=fault.kind)
    fault.to(node)
    made = stand(node, fault.generation)
    fault.plant(made)
    judgement = judge(made.probe(ground), load(fault.profile))
    seen = [f for f in judgement.findings if f.id == fault.finding and f.status is fault.status]
    if fault.card is not None:
        seen = [f for f in seen if f.subject.label.startswith(f"GPU {fault.card}")]
    told = {
        f"{f.id} {f.status.value}: {f.subject.label}: {f.detail} (root {f.root})"
        for f in judgement.findings
        if f.id == fault.finding or f.status in (FAIL, WARN) or (f.status is UNKNOWN and f.required)
    }
    assert seen, told
    assert {(f.cause, f.owner) for f in seen} == {(fault.cause, fault.owner)}, told
    assert judgement.verdict is fault.verdict, (judgement.verdict, told)
    alarms = {f.id for f in judgement.findings if f.status in (FAIL, WARN) and f.root is None}
    assert alarms <= {fault.finding, *fault.also} | {f.root for f in seen}, told


# Foreign and mixed nodes


def troubles(judgement: Judgement) -> dict[str, set[Status]]:
    found: dict[str, set[Status]] = {}
    for finding in judgement.findings:
        if finding.status in (FAIL, WARN) and finding.root is None:
            found.setdefault(finding.id, set()).add(finding.status)
    return found


@pytest.mark.parametrize("bundle", ["mi300xx4", "mi210x8"])
def test_amd_profile_on_a_node_of_nvidias(bundle: str, ground: Ground) -> None:
    judgement = judge(nvidias("h200x4").probe(ground), load(bundle))
    assert judgement.verdict is REJECTED
    assert troubles(judgement) == {"cards.vendor": {FAIL}}
    (told,) = [f.detail for f in judgement.findings if f.id == "cards.vendor"]
    assert "4 of nvidia" in told and bundle in told


@pytest.mark.parametrize("bundle", ["h200x4", "l40sx1", "cpu"])
def test_profile_of_another_maker_on_a_node_of_amds(bundle: str, ground: Ground) -> None:
    judgement = judge(stand(healthy("mi300xx4")).probe(ground), load(bundle))
    if bundle == "cpu":
        assert judgement.verdict is REJECTED
        assert set(troubles(judgement)) == {"cards.count"}
        return
    assert judgement.verdict is REJECTED
    assert set(troubles(judgement)) == {"cards.vendor"}


def mixed() -> FakeNode:
    """Four of AMD's cards, and one of NVIDIA's beside them."""
    other, made = nvidias("l40sx1"), stand(healthy("mi300xx4"))
    made.nvml = other.nvml
    for address in other.tree.links:
        if address.startswith("/sys/bus/pci/devices/"):
            folder = other.tree.links[address]
            made.tree.links[address] = folder
            made.tree.files |= {
                path: text for path, text in other.tree.files.items() if path.startswith(f"{folder}/")
            }
    for question, answer in other.interpreter.items():
        made.interpreter.setdefault(question, answer)
    return made


@pytest.mark.parametrize("bundle", ["mi300xx4", "l40sx1"])
def test_cards_of_both_makers(bundle: str, ground: Ground) -> None:
    judgement = judge(mixed().probe(ground), load(bundle))
    assert judgement.verdict is REJECTED
    (told,) = [f.detail for f in judgement.findings if f.id == "cards.vendor"]
    assert "4 of amd and 1 of nvidia" in told
    assert "cards.vendor" in troubles(judgement)
    strange = {f.id: f.detail for f in judgement.findings if f.door == BROKEN_RULE}
    assert not strange


def test_the_table_is_long_and_its_names_are_distinct() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 40

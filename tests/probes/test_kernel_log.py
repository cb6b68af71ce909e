"""The kernel log's doors, its layouts, and the lines that matter in it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodecheck.facts import Absent, KernelLog, LogEvent, Why, known
from nodecheck.probes.kernel_log import MAX_CODES, MAX_EVENTS, find_events, pci_address, probe, read_lines
from nodecheck.sources.channel import Json, Recorded
from nodecheck.sources.commands import Commands
from nodecheck.sources.files import Files

SHARED = Path(__file__).parents[2] / "../shared"
CORPUS = SHARED / "corpus/klog"

DENIED: Json = {"absent": "no_permission", "detail": "Operation not permitted"}
MISSING: Json = {"absent": "not_present", "detail": "no such program"}


def printed(stdout: str, stderr: str = "", returncode: int = 0) -> Json:
    return {"value": {"returncode": returncode, "stdout": stdout, "stderr": stderr, "seconds": 0.01}}


def log(kmsg: Json = DENIED, dmesg: Json = MISSING, journal: Json = MISSING) -> KernelLog:
    return probe(Files(Recorded({"kmsg": kmsg})), Commands(Recorded({"dmesg": dmesg, "journal": journal})))


def events(text: str) -> tuple[LogEvent, ...]:
    return find_events(tuple(read_lines(text)))


def event(text: str) -> LogEvent:
    (only,) = events(text)
    return only


def brief(text: str) -> list[tuple[object, ...]]:
    """Kind, code and device of each event."""
    return [(e.kind, e.code, None if isinstance(e.device, Absent) else e.device) for e in events(text)]


# Doors.


def test_kmsg_goes_first() -> None:
    seen = log(kmsg={"value": "5,0,0,-;Linux version 6.8.0\n6,1,2500000,-;NVRM: loading NVIDIA UNIX\n"})
    assert (seen.source, seen.lines, seen.complete, seen.first_line_seconds) == ("/dev/kmsg", 2, True, 0.0)
    assert seen.events == ()


def test_dmesg_where_kmsg_is_closed() -> None:
    seen = log(dmesg=printed("[    0.000000] Linux version 6.8.0\n[    1.5] x\n"))
    assert (seen.source, seen.lines, seen.complete) == ("dmesg", 2, True)


def test_journal_where_the_others_are_closed_or_empty() -> None:
    seen = log(dmesg=printed(""), journal=printed("[    7.100000] gpu17 kernel: hello\n"))
    assert (seen.source, seen.lines, seen.complete, seen.first_line_seconds) == ("journalctl", 1, False, 7.1)


def test_all_doors_closed_says_which_were_tried() -> None:
    denied = "dmesg: read kernel buffer failed: Operation not permitted"
    seen = log(dmesg=printed("", denied, 1), journal=printed("", "No journal files were found.", 1))
    assert isinstance(seen.events, Absent)
    assert seen.events == seen.source == seen.complete
    assert seen.events.why is Why.no_permission
    assert all(door in seen.events.detail for door in ("/dev/kmsg", "dmesg", "journalctl", "not permitted"))


def test_a_recording_without_a_log_was_not_asked() -> None:
    seen = probe(Files(Recorded({})), Commands(Recorded({})))
    assert isinstance(seen.events, Absent)
    assert seen.events.why is Why.not_asked


def test_a_stuck_program_is_a_timeout() -> None:
    stuck: Json = {"absent": "timed_out", "detail": "no end within 5 s"}
    seen = log(kmsg=MISSING, dmesg=stuck, journal=MISSING)
    assert isinstance(seen.events, Absent)
    assert seen.events.why is Why.timed_out


def test_the_log_that_gvisor_makes_up_is_no_log() -> None:
    seen = log(
        kmsg=MISSING, dmesg=printed("[    0.000000] Starting gVisor...\n[    0.4] Creating process...\n")
    )
    assert isinstance(seen.events, Absent)
    assert seen.events.why is Why.not_supported


def test_a_log_that_lost_its_beginning_is_not_complete() -> None:
    seen = log(kmsg={"value": "6,3964,206764307,-;nvidia-nvswitch2: open (major=510)\n"})
    assert (seen.complete, seen.first_line_seconds) == (False, 206.764307)


def test_a_log_with_a_gap_is_not_complete() -> None:
    seen = log(kmsg={"value": "5,0,0,-;Linux version 6.8.0\n6,1,2,-;a\n6,900,9000000,-;b\n"})
    assert (seen.complete, seen.first_line_seconds) == (False, 0.0)


def test_a_log_of_wall_clock_stamps_cannot_say_whether_it_is_complete() -> None:
    seen = log(dmesg=printed("[Mon Nov 30 17:04:42 2026] nvidia: loading\n"))
    assert isinstance(seen.complete, Absent)


# Layouts.

XID = "NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."

LAYOUTS = {
    "kmsg": ("4,900,12345678,-;{}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:9b:00.0", 12.345678),
    "kmsg, flags": ("4,900,12345678,c,caller=T42;{}", 12.345678),
    "dmesg": ("[   12.345678] {}", 12.345678),
    "dmesg, raw priority": ("<4>[   12.345678] {}", 12.345678),
    "dmesg, caller": ("[   12.345678][  T812] {}", 12.345678),
    "dmesg, decoded ISO": ("kern  :warn  : 2025-01-21T04:41:44,285060+00:00 {}", None),
    "dmesg -T": ("[Mon Nov 30 17:04:42 2026] {}", None),
    "dmesg -T, one-digit day": ("[Sun Dec  1 14:54:40 2024] {}", None),
    "journal": ("[   12.345678] gpu17.example.com kernel: {}", 12.345678),
    "journal, ISO": ("2025-01-21T04:41:44+0000 gpu17 kernel: {}", None),
    "syslog": ("Dec  6 19:25:33 gpu17 kernel: {}", None),
    "no stamp": ("{}", None),
    "an elision": ("[...] {}", None),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_line_without_its_stamp(layout: str) -> None:
    form, seconds = LAYOUTS[layout]
    found = event(form.format(XID))
    assert (found.kind, found.code, found.device, found.text) == ("xid", 79, "0000:9b:00.0", XID)
    assert (found.first_seconds if known(found.first_seconds) else None) == seconds


def test_a_record_of_several_lines() -> None:
    found = event(
        r"4,1,5000000,-;NVRM: The NVIDIA GPU 0000:18:00.0\x0aNVRM: (PCI ID: 10de:2901) installed in this"
        r" system has\x0aNVRM: fallen off the bus and is not responding to commands."
    )
    assert (found.kind, found.device, found.first_seconds) == ("fallen_off_bus", "0000:18:00.0", 5.0)


def test_lines_are_folded_with_their_count_and_times() -> None:
    found = event("\n".join(f"[ {second}.5] {XID}" for second in (10, 20, 90)))
    assert (found.count, found.first_seconds, found.last_seconds) == (3, 10.5, 90.5)


# Events.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NVRM: Xid (PCI:0000:05:00): 79, GPU has fallen off the bus.", ("xid", 79, "0000:05:00.0")),
        ("NVRM: Xid (PCI:00000000:00:1E.0): 79, pid=1234, lost", ("xid", 79, "0000:00:1e.0")),
        ("NVRM: Xid (PCI:0000:B3:00): 31, Ch 00000010", ("xid", 31, "0000:b3:00.0")),
        ("NVRM: Xid (PCI:000d:00:00): 48, pid=3", ("xid", 48, "000d:00:00.0")),
        ("NVRM: Xid (0000:03:00): 14, Channel 00000001", ("xid", 14, "0000:03:00.0")),
        ("NVRM: Xid (PCI:0000:05:00): 99999, unknown error", ("xid", 99999, "0000:05:00.0")),
        ("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30", ("sxid", 20034, "0000:c1:00.0")),
        ("NVRM: GPU 0000:29:00.0: GPU has fallen off the bus.", ("fallen_off_bus", None, "0000:29:00.0")),
        ("NVRM: GPU 18:00.0: GPU has fallen off the bus.", ("fallen_off_bus", None, "0000:18:00.0")),
        (
            "NVRM: The NVIDIA GPU 0000:0e:00.0 (PCI ID: 10de:1b06) has fallen off the bus",
            ("fallen_off_bus", None, "0000:0e:00.0"),
        ),
        (
            "nvidia 0000:9b:00.0: Unable to change power state from D3cold to D0, device inaccessible",
            ("fallen_off_bus", None, "0000:9b:00.0"),
        ),
        (
            "NVRM: GPU 0000:9a:00.0: RmInitAdapter failed! (0x22:0x40:894)",
            ("card_init", None, "0000:9a:00.0"),
        ),
        ("NVRM: RmInitAdapter failed! (0x26:0xffffffff:1096)", ("card_init", None, None)),
        ("nvidia: probe of 0000:02:00.0 failed with error -1", ("card_init", None, "0000:02:00.0")),
        ("NVRM: API mismatch: the client has the version 550.1, but", ("nvrm", None, None)),
        ("NVRM: knvlinkUpdatePostRxDetectLinkMask_IMPL: Failed to update", ("nvlink", None, None)),
        (
            "amdgpu 0000:1e:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer",
            ("aer", None, "0000:1e:00.0"),
        ),
        (
            "pcieport 0000:00:1c.0: PCIe Bus Error: severity=Corrected, type=Physical Layer",
            ("aer", None, "0000:00:1c.0"),
        ),
        (
            "pcieport 0000:c0:01.1: AER: Uncorrectable (Fatal) error message received from 0000:c1:00.0",
            ("aer", None, "0000:c1:00.0"),
        ),
        ("pcieport 0000:c0:01.1: DPC: containment event, status:0x1f01", ("aer", None, "0000:c0:01.1")),
        ("mce: [Hardware Error]: CPU 12: Machine Check: 0 Bank 4: 9000", ("mce", None, None)),
        ("{1}[Hardware Error]: event severity: corrected", ("mce", None, None)),
        ("EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0", ("edac", None, None)),
        ("Out of memory: Killed process 51807 (python) total-vm:1kB", ("oom", None, "whole machine")),
        ("Memory cgroup out of memory: Killed process 5 (x)", ("oom", None, "memory cgroup")),
        (
            "python[9]: segfault at 7f ip 00 sp 00 error 4 in libnccl.so.2[7f+d3]",
            ("segfault", None, "libnccl.so.2"),
        ),
        ("watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python:9]", ("lockup", None, "soft lockup")),
        ("INFO: task nvidia-smi:99 blocked for more than 120 seconds.", ("lockup", None, "hung task")),
        ("rcu: INFO: rcu_preempt self-detected stall on CPU", ("lockup", None, "RCU stall")),
        ("Kernel panic - not syncing: Fatal exception", ("panic", None, None)),
        ("mlx5_core 0000:5c:00.0 eth2: Link down", ("link_down", None, "eth2")),
        ("systemd-networkd[2385]: ib1: Lost carrier", ("link_down", None, "ib1")),
        ("ixgbe 0000:01:00.0 eno1: NIC Link is Down", ("link_down", None, "eno1")),
        (
            "mlx5_core 0000:5c:00.0: mlx5_pcie_event: Detected insufficient power on the PCIe slot (27W).",
            ("adapter_power", None, "0000:5c:00.0"),
        ),
    ],
)
def test_a_line_that_matters(text: str, expected: tuple[object, ...]) -> None:
    assert brief(f"[  100.000001] {text}") == [expected]


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: GPU at PCI:0000:9b:00: GPU-509665ad-b600-ac93-3616-d754b23d636d",
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (builder@)",
        "NVRM: gpuClearFbhubPoisonIntrForBug2924523_GA100: FBHUB Interrupt detected. Clearing it.",
        "NVRM: Persistence mode is deprecated and will be removed in a future release.",
        "ata3: SATA link down (SStatus 0 SControl 300)",
        "mlx5_cmd_out_err:838:(pid 1441871): ACCESS_REG(0x805) op_mod(0x1) failed, status bad resource(0x5)",
        "mlx5_core 0000:41:00.1: Port module event: module 1, Cable unplugged",
        "pcieport 0000:64:01.0: AER: enabled with IRQ 25",
        "pcieport 0000:64:01.0: DPC: error containment capabilities: Int Msg #0, RPExt+ PoisonedTLP+",
        "EDAC MC0: Giving out device to module i10nm_edac controller Intel_10nm Socket#0: DEV 0000:7e:0c.0",
        "rcu: Preemptible hierarchical RCU implementation.",
        "nvidia-nvswitch0: open (major=510)",
        "python[9]: segfault at 7f ip 00 sp 00 error 4 in python3.12[5f+d3]",
        "docker0: port 1(veth1) entered disabled state",
        "IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready",
        'audit: type=1400 apparmor="STATUS" name="nvidia_modprobe"',
    ],
)
def test_a_line_of_a_healthy_node(text: str) -> None:
    assert events(f"[  100.000001] {text}") == ()


def test_gravity_as_the_line_says_it() -> None:
    netir = "NVRM: Xid (PCI:0009:01:00): 149, NETIR_LINK_EVT  {}   XC0 i0 Link 01 (0x021425c6 0x00000000)"
    assert event(netir.format("Fatal")).severity == "fatal"
    assert event(netir.format("Nonfatal")).severity == "non_fatal"
    assert (
        event("nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32").severity == "non_fatal"
    )
    assert event("EDAC MC1: 2 UE on DIMM_B2").severity == "fatal"
    assert event("EDAC MC1: 25 CE on DIMM_B2").count == 25
    assert (
        event("x 0000:1b:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=x").severity
        == "non_fatal"
    )
    assert event("[Hardware Error]: Corrected error, no action required.").severity == "corrected"


def test_the_last_recovery_action_counts() -> None:
    line = "NVRM: Xid (PCI:0009:01:00): 154, GPU recovery action changed from 0x0 ({}) to 0x4 ({})"
    found = event("\n".join([line.format("None", "Drain and Reset"), line.format("Drain and Reset", "None")]))
    assert (found.code, found.action, found.count) == (154, "None", 2)


def test_data_lines_below_an_sxid_are_not_further_sxids() -> None:
    lines = [
        "nvidia-nvswitch3: SXid (PCI:0000:08:00.0): 22013, Non-fatal, Link 60 Minion Link DLREQ interrupt",
        "nvidia-nvswitch3: SXid (PCI:0000:08:00.0): 22013, Severity 0 Engine instance 60",
        "nvidia-nvswitch3: SXid (PCI:0000:08:00.0): 22013, Data {0x50610002, 0x10100030}",
    ]
    assert event("\n".join(lines)).count == 1


def test_a_loss_told_over_three_lines_belongs_to_the_card_named_first() -> None:
    found = brief(
        "[ 5.0] NVRM: The NVIDIA GPU 0000:18:00.0\n"
        "[ 5.0] NVRM: (PCI ID: 10de:2901) installed in this system has\n"
        "[ 5.0] NVRM: fallen off the bus and is not responding to commands.\n"
    )
    assert found == [("fallen_off_bus", None, "0000:18:00.0")]


def test_a_card_named_long_before_is_not_the_one_that_fell() -> None:
    chatter = "[ 6.0] usb 1-1: new device\n" * 10
    found = brief(
        f"[ 5.0] NVRM: The NVIDIA GPU 0000:18:00.0\n{chatter}[ 9.0] NVRM: it has fallen off the bus.\n"
    )
    assert found == [("fallen_off_bus", None, None)]


def test_a_flood_of_different_events_stays_bounded_and_counted() -> None:
    text = "\n".join(f"NVRM: Xid (PCI:0000:05:00): {number}, x" for number in range(1000, 3000))
    found = events(text)
    assert len(found) == MAX_EVENTS + MAX_CODES + 1
    assert sum(e.count for e in found) == 2000


def test_a_flood_of_harmless_events_hides_no_grave_one() -> None:
    flood = [f"mlx5_core eth{number}: Link down" for number in range(400)]
    flood += [
        f"pcieport {number:04x}:00:01.0: PCIe Bus Error: severity=Corrected, type=Physical Layer"
        for number in range(400)
    ]
    flood += [f"NVRM: Xid (PCI:{number:04x}:05:00): 31, pid=7, name=python, x" for number in range(400)]
    grave = [
        "NVRM: Xid (PCI:0000:3a:00): 79, pid=7, GPU has fallen off the bus.",
        "NVRM: Xid (PCI:0000:3a:00): 48, pid=7, An uncorrectable double bit error",
        "nvidia-nvswitch0: SXid (PCI:0000:01:00.0): 20034, Fatal, Link 3 LTSSM Fault Up",
        "NVRM: GPU 0000:3a:00.0: GPU has fallen off the bus.",
        "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0",
        "pcieport 0000:3a:01.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer",
        "mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 7: be00000000800400",
    ]
    found: dict[tuple[object, ...], LogEvent] = {
        (e.kind, e.code, e.severity): e for e in events("\n".join(flood + grave))
    }
    for kind, code, severity in (
        ("xid", 79, None), ("xid", 48, None), ("sxid", 20034, "fatal"), ("fallen_off_bus", None, None),
        ("edac", None, "fatal"), ("aer", None, "fatal"), ("mce", None, "fatal"),
    ):  # fmt: skip
        assert found[kind, code, severity].count == 1, (kind, code)
    assert found["aer", None, "fatal"].device == "0000:3a:01.0"


def test_what_is_folded_says_why_it_names_no_device() -> None:
    text = "\n".join(f"NVRM: Xid (PCI:{number:04x}:05:00): 31, x" for number in range(MAX_EVENTS + 9))
    *_, last = events(text)
    assert (last.code, last.count) == (31, 9)
    assert isinstance(last.device, Absent)
    assert last.device.detail == "one of more devices than are listed"


@pytest.mark.parametrize("name", ["ACCESS_REG", "SATA link down", "NVRM: loading NVIDIA", "EDAC MC: Ver"])
def test_the_name_of_a_process_makes_no_xid_harmless(name: str) -> None:
    assert brief(f"NVRM: Xid (PCI:0000:3a:00): 79, pid=7, name={name}, GPU lost") == [
        ("xid", 79, "0000:3a:00.0")
    ]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("PCI:0000:9b:00", "0000:9b:00.0"),
        ("00000000:9B:00.0", "0000:9b:00.0"),
        ("00010000:9b:00.0", "10000:9b:00.0"),
        ("at 9b:00.0: x", "0000:9b:00.0"),
        ("10de:2901", None),
        ("16:24:18", None),
        ("52:54:00:12:34:56", None),
        ("nothing", None),
    ],
)
def test_pci_addresses_in_every_form(text: str, address: str | None) -> None:
    assert pci_address(text) == address


# Properties.


@given(st.text(max_size=3000))
def test_arbitrary_text_never_breaks_it(text: str) -> None:
    seen = log(kmsg={"value": text})
    assert KernelLog.model_validate_json(seen.model_dump_json()) == seen


NOISE = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), max_size=120).map(
    lambda line: line.replace("NVRM", "nvrm").replace("nvidia", "nv")
)


@given(before=st.lists(NOISE, max_size=20), after=st.lists(NOISE, max_size=20))
def test_a_known_line_is_found_inside_any_noise(before: list[str], after: list[str]) -> None:
    text = "\n".join([*before, f"[   12.345678] {XID}", *after])
    assert ("xid", 79, "0000:9b:00.0") in brief(text)


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: nvlink " * 200,
        "NVRM: Xid (" * 200,
        "Xid (PCI:0000:05:00" * 100,
        "AER: Multiple Uncorrected (" * 90,
        "probe of " * 250,
        "out of memory" * 150,
        "0000:" * 400,
        "[" * 2000,
        "INFO: task " * 190,
    ],
)
def test_hostile_lines_cost_no_more_than_long_ones(line: str) -> None:
    text = "\n".join([line] * 300)
    begin = time.perf_counter()
    events(text)
    assert time.perf_counter() - begin < 5.0


# Recorded logs of real nodes.


def corpus(name: str) -> str:
    path = CORPUS / name
    if not path.exists():
        pytest.skip("the recorded logs are not here")
    return path.read_text()


def test_recorded_switches_of_a_healthy_node() -> None:
    seen = log(kmsg={"value": corpus("kmsg-nvswitch-clean/kmsg.raw")})
    assert (seen.source, seen.events, seen.complete) == ("/dev/kmsg", (), False)


def test_recorded_xids_of_a_rack() -> None:
    found = {(e.kind, e.code, e.device, e.severity, e.action): e.count for e in events(
        corpus("xid-lines-79-14-149-154/dmesg.txt"))}  # fmt: skip
    assert found["xid", 79, "0000:05:00.0", None, None] == 3
    assert found["xid", 149, "0009:01:00.0", "fatal", None] == 3
    assert found["xid", 154, "0009:01:00.0", None, "Drain and Reset"] == 1
    assert found["xid", 154, "0008:01:00.0", None, "GPU Reset Required"] == 1
    assert {key[2] for key in found if key[0] == "fallen_off_bus"} == {"0000:29:00.0", "0000:18:00.0"}


def test_recorded_loss_without_any_xid() -> None:
    assert brief(corpus("xid-lines-79-14-149-154/dmesg-multiline.txt")) == [
        ("fallen_off_bus", None, "0000:18:00.0")
    ]


def test_recorded_malformed_lines_give_no_number_that_is_not_there() -> None:
    codes = {e.code for e in events(corpus("xid-lines-79-14-149-154/malformed.txt")) if e.kind == "xid"}
    assert codes == {99999}


def test_recorded_number_and_text_that_disagree() -> None:
    assert brief(corpus("xid-31-48-and-link-flap/dmesg.txt")) == [
        ("xid", 31, "000d:00:00.0"),
        ("xid", 48, "000d:00:00.0"),
    ]
    assert [e.device for e in events(corpus("xid-31-48-and-link-flap/syslog.txt"))] == ["eth0", "ib1"]


def test_recorded_sxids() -> None:
    found = {
        (e.code, e.device, e.severity): e.count
        for e in events(corpus("sxid-lines/dmesg.txt"))
        if e.kind == "sxid"
    }
    assert found[20034, "0000:00:00.0", "fatal"] == 2
    assert found[12028, "0000:05:00.0", "non_fatal"] == 3


def test_recorded_segfaults_in_nccl() -> None:
    found = event(corpus("nccl-segfault/dmesg.txt"))
    assert (found.kind, found.device, found.count) == ("segfault", "libnccl.so.2", 2)


def test_recorded_nvlink_trouble() -> None:
    assert event(corpus("nvlink-knvlink-lines/dmesg.txt")).kind == "nvlink"


def test_recorded_adapters() -> None:
    kinds = {e.kind for e in events(corpus("mlx5-lines/dmesg.txt"))}
    assert kinds == {"adapter_power", "adapter_heat"}


def test_recorded_panic_is_no_fault_of_the_card() -> None:
    assert [e.kind for e in events(corpus("pstore-panic-not-gpu/dmesg.txt"))] == ["panic"]


def test_recorded_log_of_a_healthy_h200() -> None:
    path = SHARED / "nodes/h200x1/host.txt"
    if not path.exists():
        pytest.skip("the recorded node is not here")
    text = path.read_text().split("--- dmesg\n")[1].split("\n---")[0]
    lines = tuple(read_lines(text))
    assert len(lines) == 8
    assert find_events(lines) == ()

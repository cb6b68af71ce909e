"""Kernel logs and the fabric manager's."""

from __future__ import annotations

import pytest

from nodecheck.facts import Absent
from tests.imports.outputs import imported, kinds, node

XID = "NVRM: Xid (PCI:0000:1b:00): 79, pid=1234, name=python3, GPU has fallen off the bus."


@pytest.mark.parametrize(
    "stamp",
    [
        "[ 1234.567890] ",
        "[Mon Nov 30 17:04:42 2026] ",
        "Nov 30 17:04:42 node7 kernel: ",
        "2026-11-30T17:04:42+0000 node7 kernel: ",
        "kern  :err   : [ 1234.567890] ",
        "<3>[ 1234.567890] ",
        "3,1234,1234567890,-;",
        "node7 kernel: ",
        "",
    ],
)
def test_every_layout(stamp: str) -> None:
    found = imported(f"{stamp}{XID}\n{stamp}usb 1-2: New USB device found\n" * 2)
    assert kinds(found) == ["kernel log"]
    (event,) = found.node.kernel_log.events
    assert (event.kind, event.code, event.device, event.count) == ("xid", 79, "0000:1b:00.0", 2)


@pytest.mark.parametrize(
    ("text", "excerpt"),
    [
        ("[    0.000000] Linux version 6.8.0\n[   12.000000] NVRM: loading\n", False),
        ("$ dmesg | grep -i nvlink\n[   12.000000] NVRM: nvlink\n", True),
        ("[Mon Nov 30 17:04:42 2026] NVRM: loading\n", True),
    ],
)
def test_what_does_not_begin_with_the_boot_is_an_excerpt(text: str, excerpt: bool) -> None:
    assert imported(text).node.kernel_log.excerpt is excerpt
    assert not imported("[    0.000000] Linux version 6.8.0\n", text).node.kernel_log.excerpt


def test_two_logs_of_one_boot_count_once() -> None:
    dmesg = f"[ 1234.567890] {XID}\n"
    found = imported(dmesg * 3, f"Nov 30 17:04:42 node7 kernel: {XID}\n" * 2)
    (event,) = found.node.kernel_log.events
    assert event.count == 3


def test_an_earlier_boot_is_left_out() -> None:
    found = imported(f"$ journalctl -k -b -1\n[ 1234.567890] {XID}\n")
    assert isinstance(found.node.kernel_log, Absent)
    assert "earlier boot" in found.not_understood[0]


def test_a_long_log_is_looked_at_as_far_as_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodecheck.imports.readers.kernel_log.MAX_LINES", 10)
    found = imported("[ 1234.567890] usb 1-2: hello\n" * 20)
    assert found.node.kernel_log.lines == 10
    assert "only its first 10 lines" in found.not_understood[0]


FABRIC = """[Feb 25 2026 13:59:45] [INFO] [tid 1803] Fabric Manager version 580.95.05 is running
[Feb 25 2026 13:59:46] [INFO] [tid 1803] multicast group 0 is freed.
[Feb 25 2026 13:59:47] [ERROR] [tid 1803] failed to find all NVSwitches
"""


def test_the_fabric_managers_log() -> None:
    found = imported(FABRIC)
    assert kinds(found) == ["fabric manager log"]
    assert found.node.host.fabric_manager_version == "580.95.05"
    assert found.node.host.source_of("fabric_manager_version", "linux") == "fabric manager log"
    assert "failed to find all NVSwitches" in found.not_understood[0]


def test_a_fabric_managers_log_without_its_version() -> None:
    assert isinstance(node(FABRIC.split("\n", 1)[1]).host, Absent)

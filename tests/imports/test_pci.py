"""lspci, the kernel's log, the fabric manager's log."""

from __future__ import annotations

from nodecheck.facts import Absent
from tests.imports.outputs import imported, kinds, node

LSPCI = """0001:00:00.0 3D controller [0302]: NVIDIA Corporation GA100 [A100 SXM4 80GB] [10de:20b2] (rev a1)
0002:00:00.0 3D controller [0302]: NVIDIA Corporation GA100 [A100 SXM4 80GB] [10de:20b2] (rev a1)
0005:00:00.0 Bridge [0680]: NVIDIA Corporation Device [10de:1af1] (rev a1)
00:1f.0 ISA bridge [0601]: Intel Corporation 82801IB (ICH9) LPC Interface Controller [8086:2918] (rev 02)
0101:00:00.0 Infiniband controller [0207]: Mellanox Technologies MT28908 Family [ConnectX-6] [15b3:101c]
"""
VERBOSE = """1b:00.0 3D controller: NVIDIA Corporation Device 2335 (rev a1)
\tNUMA node: 1
\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x8 (downgraded)
\tKernel driver in use: nvidia
1b:00.1 Audio device: NVIDIA Corporation Device 22ba (rev a1)
"""


def test_cards_and_switches_on_the_bus() -> None:
    found = imported(LSPCI)
    assert kinds(found) == ["lspci"]
    assert [(d.address, d.pci_id, d.kind) for d in found.node.topology.pci_devices] == [
        ("0001:00:00.0", "10de:20b2", "card"),
        ("0002:00:00.0", "10de:20b2", "card"),
        ("0005:00:00.0", "10de:1af1", "nvswitch"),
    ]


def test_without_numbers_and_with_details() -> None:
    (device,) = node(VERBOSE).topology.pci_devices
    assert (device.address, device.kind, device.pci_class) == ("0000:1b:00.0", "card", "030200")
    assert (device.current_width, device.max_width, device.max_speed_gt_per_s) == (8, 16, 32.0)
    assert (device.numa_node, device.driver) == (1, "nvidia")


def test_a_part_without_cards_does_not_say_that_there_are_none() -> None:
    found = imported(LSPCI.split("\n")[4])
    assert isinstance(found.node.topology, Absent)
    assert "none of the 1 devices" in found.not_understood[0]

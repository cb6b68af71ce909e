"""The table of nvidia-smi, and what stands in its place."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nodecheck.facts import Absent, Why
from nodecheck.judge import Status, judge
from nodecheck.profile import load
from tests.imports import outputs
from tests.imports.outputs import card, cards, imported, kinds, node

MIB = 1024**2


def test_a_table() -> None:
    found = imported(outputs.table(cards(2, used="1024 MiB")))
    first = card(found.node)
    assert (kinds(found), found.not_understood) == (["nvidia-smi"], ())
    assert first.identity.name == "NVIDIA H200"
    assert first.pci_address == "0000:1b:00.0"
    assert (first.memory.total_bytes, first.memory.used_bytes) == (143771 * MIB, 1024 * MIB)
    assert (first.power.limit_watts, first.power.draw_watts) == (700.0, 132.0)
    assert (first.health.ecc_enabled, first.health.ecc_volatile.uncorrected) == (True, 0)
    assert (first.modes.persistence, first.modes.compute, first.modes.mig_enabled) == (True, "default", False)
    assert first.processes == ()
    assert found.node.topology.nvml_count == 2
    assert found.node.stack.driver.version == "580.95.05"


def test_a_name_that_is_cut_is_not_known() -> None:
    name = card(node(outputs.table(cards(1, name="NVIDIA RTX 6000 Ada Gene...")))).identity.name
    assert isinstance(name, Absent)
    assert "cuts it short" in name.detail


def test_processes() -> None:
    row = "|    1   N/A  N/A            4711      C   ...venv/bin/python3 --token=x         1024MiB |"
    found = node(outputs.table(cards(2), processes=row))
    assert card(found, 0).processes == ()
    (process,) = card(found, 1).processes
    assert (process.pid, process.kind, process.name, process.used_bytes) == (
        4711,
        "compute",
        "python3",
        1024 * MIB,
    )


@pytest.mark.parametrize(("ecc", "on"), [("Off", False), ("N/A", Why.not_supported), ("3", True)])
def test_the_cell_of_uncorrected_errors(ecc: str, on: object) -> None:
    made = outputs.table(cards(1)).replace("|                    0 |", f"|{ecc:>21} |")
    told = card(node(made)).health.ecc_enabled
    assert (told.why if isinstance(told, Absent) else told) == on


def test_a_card_that_prints_errors_is_not_called_usable() -> None:
    made = outputs.table(cards(1)).replace(" 132W /", " ERR! /")
    first = card(node(made))
    assert isinstance(first.usable, Absent)
    assert isinstance(first.lost, Absent)
    assert isinstance(first.power.draw_watts, Absent)


ERRORS = [
    ("Failed to initialize NVML: Driver/library version mismatch\nNVML library: 580.95\n", "different versions"),
    (
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
        "NVIDIA driver is installed and running.\n",
        "not loaded",
    ),
    ("Failed to initialize NVML: Unknown Error\n", "lost access"),
    ("Failed to initialize NVML: Insufficient Permissions\n", "may not talk"),
    ("No devices were found\n", "lists no card"),
]  # fmt: skip


@pytest.mark.parametrize(("said", "meaning"), ERRORS)
def test_what_stands_in_its_place_is_judged(said: str, meaning: str) -> None:
    judgement = judge(node(f"$ nvidia-smi\n{said}"), load("h200x4"))
    (listed,) = [finding for finding in judgement.findings if finding.id == "cards.listed"]
    assert listed.status is Status.fail
    assert meaning in listed.detail


def test_a_card_without_a_handle() -> None:
    said = "Unable to determine the device handle for GPU0000:2B:00.0: GPU is lost.  Reboot the system\n"
    found = node(said, outputs.xml(cards(2)[:1], attached=2))
    assert [(c.pci_address, c.lost) for c in found.known_cards] == [
        ("0000:1b:00.0", False),
        ("0000:2b:00.0", True),
    ]


def test_exact_forms_go_before_the_table() -> None:
    made = cards(1, limit="699.50 W", name="NVIDIA H200 with a long name")
    table = outputs.table([replace(made[0], name="NVIDIA H200 with a lo...", temperature="55 C")])
    found = imported(table, outputs.xml(made))
    first = card(found.node)
    assert found.conflicts == ()
    assert (first.power.limit_watts, first.identity.name) == (699.5, "NVIDIA H200 with a long name")
    assert first.temperature.gpu_celsius == 30


def test_a_line_that_is_not_understood_leaves_the_card_counted_and_its_state_open() -> None:
    made = outputs.table(cards(2))
    at = made.index("| N/A ")
    found = imported(made[:at] + "| N/A   who knows" + made[at + 17 :])
    assert found.node.topology.nvml_count == 2
    assert [isinstance(c.usable, Absent) for c in found.node.known_cards] == [True, False]
    assert "GPU 0: its second line was not understood" in found.not_understood[0]

"""nvbandwidth's matrices, made up as its 0.8 prints them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nodecheck.facts import known
from nodecheck.imports.kind import Piece, Section, Unreadable
from nodecheck.imports.readers.nvbandwidth import read_json, read_text

NODE = Path(__file__).parents[4] / "shared/nodes/h200x1"

TEXT = """nvbandwidth Version: v0.8
Driver Version: 580.159.04

Device 0: NVIDIA H200 (00000000:1b:00)
Device 1: NVIDIA H200 (00000000:43:00)

Running host_to_device_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0     55.52     54.01

SUM host_to_device_memcpy_ce 109.53

Running device_to_device_memcpy_read_ce.
memcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)
           0         1
 0       N/A    390.10
 1    396.20       N/A

SUM device_to_device_memcpy_read_ce 786.30

Running device_local_copy.
memcpy local GPU(column) bandwidth (GB/s)
           0         1
 0   2084.94   2085.00

SUM device_local_copy 4169.94
"""


FIRST, SECOND = "0000:1b:00.0", "0000:43:00.0"


def figures(piece: Piece) -> dict[tuple[str, tuple[str, ...]], float]:
    found = piece.measurements
    return {(figure.measure, figure.cards): figure.median for figure in found.figures} if known(found) else {}


def test_text() -> None:
    piece = read_text(Section(TEXT))
    assert figures(piece) == {
        ("host.h2d", (FIRST,)): 55.52,
        ("host.h2d", (SECOND,)): 54.01,
        ("pairs.one_way", (SECOND, FIRST)): 390.10,
        ("pairs.one_way", (FIRST, SECOND)): 396.20,
        ("hbm.copy_payload", (FIRST,)): 2084.94,
        ("hbm.copy", (FIRST,)): 4169.88,
        ("hbm.copy_payload", (SECOND,)): 2085.0,
        ("hbm.copy", (SECOND,)): 4170.0,
    }
    assert [card.pci_address for card in piece.cards] == ["0000:1b:00.0", "0000:43:00.0"]


def test_writing_goes_the_way_of_the_row() -> None:
    piece = read_text(Section(TEXT.replace("memcpy_read_ce", "memcpy_write_ce")))
    assert figures(piece)["pairs.one_way", (FIRST, SECOND)] == 390.10


def test_the_size_of_the_buffers_stands_in_the_command() -> None:
    piece = read_text(Section(TEXT, heading="./nvbandwidth -b 1024"))
    assert known(piece.measurements)
    assert {figure.at.size_bytes for figure in piece.measurements.figures} == {2**30}


def test_nothing_whole() -> None:
    with pytest.raises(Unreadable):
        read_text(Section("nvbandwidth Version: v0.8\n"))
    with pytest.raises(Unreadable):
        read_json(Section('{"nvbandwidth": {"testcases": 7}}'))


def test_json_says_the_same() -> None:
    document = {
        "nvbandwidth": {
            "Driver Version": "580.159.04",
            "GPU Device list": ["0: NVIDIA H200 (00000000:1b:00): (vm)"],
            "testcases": [
                {"name": "device_to_host_memcpy_ce", "status": "Passed", "bandwidth_matrix": [["55.33"]]},
                {"name": "host_to_device_memcpy_sm", "status": "Waived"},
            ],
        }
    }
    assert figures(read_json(Section(json.dumps(document)))) == {("host.d2h", (FIRST,)): 55.33}


@pytest.mark.skipif(not NODE.exists(), reason="the recorded node is not here")
def test_real_node() -> None:
    assert (
        figures(read_text(Section((NODE / "nvbandwidth.txt").read_text())))["host.h2d", ("card 0",)] == 55.52
    )
    piece = read_json(Section((NODE / "nvbandwidth.json").read_text()))
    assert figures(piece)["hbm.copy_payload", ("0000:00:06.0",)] == 2085.44

"""The lines of torch.utils.collect_env."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodecheck.facts import Absent, Why, known
from nodecheck.imports.kind import Section, Unreadable
from nodecheck.imports.readers.collect_env import read

NODE = Path(__file__).parents[4] / "shared/nodes/h200x1/torch-collect-env.txt"

TEXT = """Collecting environment information...
PyTorch version: 2.11.0+cu130
Is debug build: False
CUDA used to build PyTorch: 13.0
ROCM used to build PyTorch: N/A

OS: Ubuntu 24.04.3 LTS (x86_64)
Clang version: Could not collect
Is CUDA available: True
GPU models and configuration:
GPU 0: NVIDIA H200
GPU 1: NVIDIA H200
Nvidia driver version: Could not collect

CPU:
Architecture:                            x86_64
CPU(s):                                  16
Model name:                              Intel(R) Xeon(R) Processor

[pip3] nvidia-nccl-cu13==2.28.9
"""


def test_text() -> None:
    piece = read(Section(TEXT))
    assert known(piece.stack) and known(piece.stack.torch) and known(piece.host) and known(piece.cards)
    assert piece.stack.torch.version == "2.11.0+cu130" and piece.stack.torch.available is True
    assert piece.stack.torch.nccl == "2.28.9" and piece.stack.torch.debug is False
    assert piece.host.cpu.present == 16 and piece.host.os == "Ubuntu 24.04.3 LTS (x86_64)"
    assert [card.index for card in piece.cards] == [0, 1]


def test_amds_cards_are_amds() -> None:
    piece = read(Section(TEXT.replace("NVIDIA H200", "AMD Instinct MI300X")))
    assert known(piece.cards) and {card.vendor for card in piece.cards} == {"amd"}


def test_could_not_collect_is_absent() -> None:
    piece = read(Section(TEXT))
    assert known(piece.stack) and known(piece.stack.torch)
    assert (
        isinstance(piece.stack.driver.version, Absent) and piece.stack.driver.version.why is Why.not_present
    )
    assert isinstance(piece.stack.torch.hip, Absent)
    assert known(piece.host) and isinstance(piece.host.cpu.sockets, Absent)
    assert piece.host.cpu.sockets.why is Why.not_asked


def test_no_torch() -> None:
    with pytest.raises(Unreadable):
        read(Section("Collecting environment information...\nTraceback (most recent call last):\n"))


@pytest.mark.skipif(not NODE.exists(), reason="the recorded node is not here")
def test_real_node() -> None:
    piece = read(Section(NODE.read_text()))
    assert known(piece.cards) and piece.cards[0].identity.name == "NVIDIA H200"
    assert known(piece.stack) and piece.stack.driver.version == "580.159.04"

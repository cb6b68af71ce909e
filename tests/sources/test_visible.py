"""Which variables show which cards."""

from __future__ import annotations

import pytest

from nodecheck.sources.visible import by_address, of_amd, showing

NVIDIA = "GPU-00000001-0000-4000-8000-000000000000"
AMD = ("GPU-00000000000abc01", "GPU-00000000000abc02")


@pytest.mark.parametrize(
    ("card", "is_amd"),
    [
        (AMD[0], True),
        (NVIDIA, False),
        ("MIG-00000001-0000-4000-8000-000000000000", False),
        ("0000:0c:00.0", False),
        ("GPU-00000000000ABC01", False),
        ("GPU-00000000000abc012", False),
        ("cpu0", False),
    ],
)
def test_vendors_are_told_apart_by_their_uuids(card: str, is_amd: bool) -> None:
    assert of_amd(card) is is_amd


def test_nvidia_s_are_named() -> None:
    assert showing([NVIDIA, NVIDIA]) == {"CUDA_VISIBLE_DEVICES": f"{NVIDIA},{NVIDIA}"}


@pytest.mark.parametrize(
    ("card", "is_address"),
    [
        ("0000:0c:00.3", True),
        ("0031:00:00.0", True),
        (AMD[0], False),
        ("card 3", False),
        ("0000:0c:00", False),
    ],
)
def test_cards_that_go_by_their_addresses_are_shown_by_no_variable(card: str, is_address: bool) -> None:
    assert by_address(card) is is_address
    assert is_address is (showing([card, card]) == {})


def test_amd_s_are_filtered_first_and_then_numbered() -> None:
    assert showing(AMD[::-1]) == {
        "ROCR_VISIBLE_DEVICES": f"{AMD[1]},{AMD[0]}",
        "HIP_VISIBLE_DEVICES": "0,1",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "GPU_DEVICE_ORDINAL": "0,1",
    }

"""Which cards a program is shown, and in which order: through the variables that the vendors' runtimes read."""

from __future__ import annotations

import re
from collections.abc import Sequence

_OF_AMD = re.compile(r"GPU-[0-9a-f]{16}")
"""As HIP writes the UUID of a card of AMD's; NVIDIA's have the five groups of a UUID."""


_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def of_amd(card: str) -> bool:
    """Whether this is the UUID of a card of AMD's."""
    return _OF_AMD.fullmatch(card) is not None


def by_address(card: str) -> bool:
    """Whether this is a PCI address: so a card of AMD's goes that has no UUID of its own (a partition, or a virtual
    function). No variable takes it: whoever runs on the card looks for it among those that HIP shows."""
    return _ADDRESS.fullmatch(card) is not None


def showing(cards: Sequence[str]) -> dict[str, str]:
    """Variables under which a program sees these cards of one vendor, by their UUIDs, in this order and no others.

    ROCm's lower half filters first (ROCR_VISIBLE_DEVICES), and takes UUIDs; HIP then numbers what that leaves
    (HIP_VISIBLE_DEVICES; CUDA_VISIBLE_DEVICES and GPU_DEVICE_ORDINAL are other names for it), so that whatever the
    renter has set there would pick among the wrong cards (ROCm documentation, GPU isolation techniques). None of them
    is set for cards that go by their addresses.
    """
    if any(map(by_address, cards)):
        return {}
    if not all(map(of_amd, cards)):
        return {"CUDA_VISIBLE_DEVICES": ",".join(cards)}
    numbers = ",".join(str(number) for number in range(len(cards)))
    return {
        "ROCR_VISIBLE_DEVICES": ",".join(cards),
        "HIP_VISIBLE_DEVICES": numbers,
        "CUDA_VISIBLE_DEVICES": numbers,
        "GPU_DEVICE_ORDINAL": numbers,
    }

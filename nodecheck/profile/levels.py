"""At which level a profile's figure is measured. A test holds what stands here against the stages themselves."""

from __future__ import annotations

from typing import Literal

from nodecheck.profile.model import Figure

_GIB = 2**30
_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": _GIB}

_SIZES = {"hbm": 4 * _GIB, "host": 512 * 2**20, "pairs": 512 * 2**20}
_SHAPES = ("4096x4096x4096", "8192x8192x8192", "2048x2048x13312")
_SHAPES_OF = {"gemm.float32": (_SHAPES[0], _SHAPES[2]), "gemm.float64": (_SHAPES[0], _SHAPES[2])}
_CURVE = {"standard": {8**power for power in range(1, 12)}, "full": {2**power for power in range(3, 35)}}
_STATED = {
    "standard": {2**20, _GIB, 8 * _GIB},
    "full": {2**12, 2**16, 2**20, 2**24, 2**26, 2**28, _GIB, 8 * _GIB},
}
_TYPES = ("bfloat16", "float32")
_HUGE_BYTES = 4 * _GIB
"""From here on, `standard` measures float32 for all_reduce alone."""


def first_level(figure: Figure) -> Literal["standard", "full"] | None:
    """The lowest level that measures the figure at its own conditions on a card; None where no level does.

    `quick` measures nothing.
    """
    stage = figure.measure.partition(".")[0]
    if stage == "launch":
        return "standard"
    if stage == "gemm":
        return "standard" if figure.at.shape in _SHAPES_OF.get(figure.measure, _SHAPES) else None
    size = size_bytes(figure.at.size or "0B")
    if stage in _SIZES:
        return "standard" if size == _SIZES[stage] else None
    if figure.at.dtype not in _TYPES:
        return None
    reduced = stage == "all_reduce"
    sizes = _CURVE if reduced else _STATED
    if size in sizes["standard"] and (reduced or figure.at.dtype == "bfloat16" or size < _HUGE_BYTES):
        return "standard"
    return "full" if size in sizes["full"] else None


def size_bytes(size: str) -> int:
    """`8GiB` in bytes."""
    digits = size.rstrip("BKMGi")
    return int(digits) * _UNITS[size[len(digits) :]]

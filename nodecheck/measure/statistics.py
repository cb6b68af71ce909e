"""Percentiles of a few dozen repetitions: too little to carry a numerical library for."""

from __future__ import annotations

import math
from collections.abc import Sequence


def percentile(values: Sequence[float], percent: float) -> float:
    """The value below which `percent` (0 to 100) of `values` lie, interpolated linearly between neighbours.

    The definition that numpy calls `linear` (Hyndman & Fan 1996, type 7): the lowest value is the 0th percentile,
    the highest the 100th, and every other stands at an equal distance between them. Same unit as `values`. Raises
    ValueError where there are none.
    """
    if not values:
        raise ValueError("no values")
    if not 0 <= percent <= 100:
        raise ValueError(f"{percent} is no percentage")
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    low, high = ordered[below], ordered[above]
    # Within the two neighbours whatever the rounding: equal values must not lie above their 95th percentile.
    return min(max(low + (high - low) * (place - below), low), high)

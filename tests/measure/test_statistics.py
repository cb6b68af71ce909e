from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodecheck.measure.statistics import percentile

FLOATS = st.floats(min_value=1e-9, max_value=1e12, allow_nan=False)
VALUES = st.lists(FLOATS, min_size=1, max_size=60)


@given(VALUES)
def test_the_median_is_the_one_of_the_books(values: list[float]) -> None:
    assert percentile(values, 50) == pytest.approx(statistics.median(values))


@given(VALUES, st.floats(0, 100), st.floats(0, 100))
def test_percentiles_rise_and_stay_within_the_values(values: list[float], one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert min(values) <= percentile(values, low) <= percentile(values, high) <= max(values)


@given(VALUES, st.randoms())
def test_the_order_of_the_values_does_not_matter(values: list[float], random: object) -> None:
    shuffled = list(values)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert percentile(shuffled, 5) == percentile(values, 5)


@given(st.lists(FLOATS, min_size=2, max_size=60))
def test_against_the_standard_library(values: list[float]) -> None:
    """Its inclusive quantiles have the same definition."""
    cuts = statistics.quantiles(values, n=20, method="inclusive")
    assert percentile(values, 5) == pytest.approx(cuts[0])
    assert percentile(values, 95) == pytest.approx(cuts[18])


def test_nothing_has_no_middle() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)
    with pytest.raises(ValueError, match="no percentage"):
        percentile([1.0], 101)

"""The page of drift says what the rules say."""

from __future__ import annotations

from pathlib import Path

from nodecheck.rental.drift.docs import drift_page


def test_the_page_of_drift_is_up_to_date() -> None:
    page = Path(__file__).parents[3] / "docs" / "drift.md"
    assert page.read_text(encoding="utf-8") == drift_page(), "run `make docs`"

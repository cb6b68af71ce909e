"""What cron mails."""

from __future__ import annotations

from nodecheck.judge import Status
from nodecheck.rental.output import render
from tests.rental import checks
from tests.report import samples


def flowing(text: str) -> str:
    return " ".join(text.split())


def test_nothing_is_said_where_nothing_changed() -> None:
    assert render(checks.quiet(), "text") == ""
    lasting = checks.check((checks.LOST_LINK,), status=Status.fail, notes=("It was busy.",))
    assert render(lasting, "text") == ""


def test_a_change_is_told_whole() -> None:
    one = checks.check(
        (checks.LOST_LINK,), (checks.change(checks.LOST_LINK),), Status.fail, summary="A link is down."
    )
    text = render(one, "text")
    told = flowing(text)
    assert text.startswith("nodecheck FAIL, 2026-12-01 10:15 UTC: A link is down.\n\n")
    for words in (
        "NEW: drift.nvlink.active_links is FAIL since 2026-12-01 10:15 UTC: GPU 3 (0000:9b:00.0)",
        "17 of the card's 18 NVLinks are up.",
        "Observed: 17 links (nvml: nvmlDeviceGetName).",
        "Expected: 18 links (profile: vendor's datasheet (published, 2026-08-09)).",
        "To be mended by the provider.",
        "Next: Ask the provider for another node; attach this report.",
    ):
        assert words in told
    assert "\n  $ nvidia-smi nvlink --status\n" in text


def test_a_change_of_eight_cards_is_one_paragraph() -> None:
    several = [
        samples.finding("drift.power_limit", Status.warn, card, detail="The limit is 500 W.")
        for card in (checks.CARD, checks.OTHER)
    ]
    text = render(checks.check(tuple(several), tuple(map(checks.change, several)), Status.warn), "text")
    assert text.count("The limit is 500 W.") == 1
    assert "GPU 3 (0000:9b:00.0), GPU 0 (0000:18:00.0)" in flowing(text)


def test_the_gravest_comes_first_and_what_is_over_last() -> None:
    told = flowing(render(checks.eventful(), "text"))
    order = [
        told.index(id)
        for id in ("NEW: drift.nvlink", "WORSE: drift.clock", "NEW: drift.driver", "GONE: drift.xid")
    ]
    assert order == sorted(order)
    assert "GONE: drift.xid was WARN from 2026-11-30 10:15 UTC to 2026-12-01 09:15 UTC" in told
    assert "drift.pairs" not in told
    assert "1 more change of others follows from it." in told


def test_what_follows_from_an_old_fault_names_it() -> None:
    pair = checks.eventful().findings[1]
    told = flowing(
        render(checks.check((checks.LOST_LINK, pair), (checks.change(pair),), Status.fail), "text")
    )
    assert "It follows from drift.nvlink.active_links: mend that first." in told


def test_what_stays_wrong_is_a_short_line() -> None:
    text = render(checks.eventful(), "text")
    told = flowing(text)
    assert (
        "As before: FAIL drift.old (GPU 0 (0000:18:00.0)), active.latency (GPU 3 (0000:9b:00.0)); WARN active.gemm"
        in told
    )
    assert "It has been so for days" not in told
    for silent in ("drift.fabric", "drift.waived", "drift.skipped"):
        assert silent not in told


def test_it_fits_a_mail() -> None:
    for line in render(checks.eventful(), "text").splitlines():
        assert len(line) <= 78 or line.startswith("  $ ")


def test_hundreds_of_changes_are_cut_short() -> None:
    many = tuple(samples.finding(f"drift.n{i}", Status.warn) for i in range(300))
    text = render(checks.check(many, tuple(map(checks.change, many)), Status.warn), "text")
    assert "And 280 more changes" in text
    assert len(text) < 20_000

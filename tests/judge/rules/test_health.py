from __future__ import annotations

import pytest

from nodecheck.facts import GIVEN_UP, Absent, Why
from nodecheck.facts.card import BankHistogram, EccCounts
from nodecheck.judge import Cause, Owner, Status
from tests.judge.cases import DENIED, HUNG, UNASKED, UNSUPPORTED, Case, check

PASS, WARN, FAIL, UNKNOWN, SKIPPED = Status.passed, Status.warn, Status.fail, Status.unknown, Status.skipped

CRASHED = Absent(why=Why.failed, detail="nvmlDeviceGetEccMode(0) ended the process (SIGSEGV)")
NOT_ASKED_FURTHER = Absent(why=Why.timed_out, detail=f"a call did not come back; {GIVEN_UP}")

CASES = [
    Case("health.responsive", {}, PASS, says="nvmlDeviceValidateInforom"),
    Case(
        "health.responsive",
        {"cards.0.clocks.sm_mhz": HUNG},
        FAIL,
        says="about sm_mhz: no answer within 10 s",
        cause=Cause.faulty,
    ),
    Case("health.responsive", {"cards.0.links.3.active": HUNG}, FAIL, count=1),
    Case("health.responsive", {"cards.0.health.slowest_call_seconds": HUNG}, FAIL),
    Case("health.responsive", {"cards.0.health.slowest_call_seconds": 7.5}, WARN),
    Case("health.responsive", {"cards.*.health.slowest_call_seconds": UNASKED}, PASS, says="not noted"),
    Case("health.responsive", {"cards.0.health.slowest_call_seconds": CRASHED}, FAIL, says="broke down"),
    Case("health.responsive", {"cards.0.health.slowest_call_seconds": DENIED}, UNKNOWN),
    Case(
        "health.responsive", {"topology.pairs.0.p2p_read": HUNG}, FAIL, count=2, says="Asked of it and GPU 1"
    ),
    Case("health.responsive", {"topology.pairs.5.distance": CRASHED}, FAIL, count=2, cause=Cause.faulty),
    Case("health.responsive", {"topology.pairs.0.p2p_read": NOT_ASKED_FURTHER}, PASS, count=4),
    Case("health.responsive", {"topology.pairs.0.p2p_read": DENIED}, PASS, count=4),
    Case("health.responsive", {"cards.0.usable": UNASKED}, UNKNOWN),
    Case("health.responsive", {"cards.*.usable": False}, SKIPPED),
    Case("health.start", {}, PASS),
    Case("health.start", {"cards.0.health.start_seconds": UNASKED}, UNKNOWN),
    # ECC
    Case("health.ecc_mode", {}, PASS),
    Case("health.ecc_mode", {"cards.2.health.ecc_enabled": False}, FAIL, cause=Cause.misconfigured, count=1),
    Case("health.ecc_mode", {"cards.0.health.ecc_enabled": DENIED}, UNKNOWN),
    Case("health.ecc_mode", {}, SKIPPED, profile="rtx4090x2"),
    Case("health.ecc_pending", {}, PASS),
    Case("health.ecc_pending", {"cards.0.health.ecc_enabled_after_reset": False}, WARN, says="will be off"),
    Case("health.ecc_pending", {"cards.0.health.ecc_enabled_after_reset": UNASKED}, UNKNOWN),
    Case("health.ecc_pending", {"cards.0.health.ecc_enabled": UNASKED}, UNKNOWN),
    Case("health.ecc_uncorrected_volatile", {}, PASS),
    Case(
        "health.ecc_uncorrected_volatile",
        {"cards.1.health.ecc_volatile.uncorrected": 1},
        FAIL,
        cause=Cause.faulty,
        owner=Owner.provider,
        count=1,
    ),
    Case(
        "health.ecc_uncorrected_volatile", {"cards.1.health.ecc_volatile.sram_uncorrected": 2}, FAIL, says="2"
    ),
    Case(
        "health.ecc_uncorrected_volatile",
        {"cards.1.health.ecc_volatile": EccCounts(sram_uncorrected=0, dram_uncorrected=3)},
        FAIL,
        says="3 (SRAM 0, DRAM 3)",
    ),
    Case(
        "health.ecc_uncorrected_volatile",
        {"cards.*.health.ecc_volatile": EccCounts(sram_uncorrected=0, dram_uncorrected=0)},
        PASS,
    ),
    Case(
        "health.ecc_uncorrected_volatile",
        {"cards.1.health.ecc_volatile": EccCounts(sram_uncorrected=0)},
        UNKNOWN,
    ),
    Case("health.ecc_uncorrected_volatile", {"cards.0.health.ecc_volatile": DENIED}, UNKNOWN),
    Case("health.ecc_uncorrected_volatile", {}, SKIPPED, profile="rtx4090x2"),
    Case("health.ecc_uncorrected_aggregate", {}, PASS),
    Case("health.ecc_uncorrected_aggregate", {"cards.0.health.ecc_aggregate.dram_uncorrected": 2}, WARN),
    Case(
        "health.ecc_uncorrected_aggregate",
        {"cards.0.health.ecc_aggregate.sram_uncorrected": 5},
        FAIL,
        says="5 (SRAM 5, DRAM 0)",
    ),
    Case("health.ecc_uncorrected_aggregate", {"cards.0.health.ecc_aggregate": DENIED}, UNKNOWN),
    Case("health.ecc_corrected", {}, PASS),
    Case("health.ecc_corrected", {"cards.0.health.ecc_volatile.corrected": 1}, PASS),
    Case("health.ecc_corrected", {"cards.0.health.ecc_volatile.corrected": 20_000_000}, WARN),
    Case("health.ecc_corrected", {"cards.0.health.ecc_volatile.corrected": UNASKED}, UNKNOWN),
    # What the driver flags
    Case("health.sram_threshold", {}, PASS),
    Case("health.sram_threshold", {"cards.0.health.sram_threshold_exceeded": True}, FAIL),
    Case("health.sram_threshold", {"cards.*.health.sram_threshold_exceeded": UNSUPPORTED}, SKIPPED),
    Case("health.sram_threshold", {"cards.0.health.sram_threshold_exceeded": DENIED}, UNKNOWN),
    Case("health.retired_pages", {}, SKIPPED),
    Case(
        "health.retired_pages",
        {
            "cards.*.health.retired_pages_pending": False,
            "cards.*.health.retired_pages_single_bit": 2,
            "cards.*.health.retired_pages_double_bit": 0,
        },
        PASS,
        says="2 retired",
    ),
    Case("health.retired_pages", {"cards.0.health.retired_pages_pending": True}, FAIL),
    Case(
        "health.retired_pages",
        {
            "cards.0.health.retired_pages_pending": False,
            "cards.0.health.retired_pages_single_bit": 60,
            "cards.0.health.retired_pages_double_bit": 4,
        },
        FAIL,
        says="64 pages",
    ),
    Case("health.retired_pages", {"cards.0.health.retired_pages_pending": False}, UNKNOWN),
    Case("health.retired_pages", {"cards.0.health.retired_pages_pending": DENIED}, UNKNOWN),
    Case("health.row_remap_pending", {}, PASS),
    Case("health.row_remap_pending", {"cards.0.health.row_remap_pending": True}, FAIL, owner=Owner.provider),
    Case("health.row_remap_pending", {"cards.0.health.row_remap_pending": UNSUPPORTED}, UNKNOWN),
    Case("health.row_remap_pending", {}, SKIPPED, profile="rtx4090x1"),
    Case("health.row_remap_failed", {}, PASS),
    Case("health.row_remap_failed", {"cards.0.health.row_remap_failed": True}, FAIL),
    Case("health.row_remap_failed", {"cards.0.health.row_remap_failed": DENIED}, UNKNOWN),
    Case("health.row_remap_capacity", {}, PASS),
    Case("health.row_remap_capacity", {"cards.0.health.remapped_rows_uncorrected": 2}, PASS),
    Case(
        "health.row_remap_capacity",
        {"cards.0.health.bank_histogram": BankHistogram(max=3071, high=0, partial=0, low=0, none=1)},
        WARN,
        says="1 memory banks",
    ),
    Case("health.row_remap_capacity", {"cards.0.health.remapped_rows_uncorrected": 513}, FAIL, says="513"),
    Case("health.row_remap_capacity", {"cards.0.health.bank_histogram": DENIED}, UNKNOWN),
    Case("health.repair_pending", {}, PASS),
    Case("health.repair_pending", {"cards.0.health.channel_repair_pending": True}, FAIL, says="channel"),
    Case("health.repair_pending", {"cards.0.health.tpc_repair_pending": True}, FAIL, says="a TPC"),
    Case("health.repair_pending", {"cards.*.health.channel_repair_pending": UNSUPPORTED}, SKIPPED),
    Case("health.repair_pending", {"cards.0.health.tpc_repair_pending": DENIED}, UNKNOWN),
    Case("health.unrepairable_memory", {}, PASS),
    Case("health.unrepairable_memory", {"cards.0.health.unrepairable_memory": True}, FAIL),
    Case("health.unrepairable_memory", {"cards.0.health.unrepairable_memory": DENIED}, UNKNOWN),
    Case("health.recovery_action", {}, PASS),
    Case("health.recovery_action", {"cards.0.health.recovery_action": "gpu_reset"}, FAIL, says="a reset"),
    Case("health.recovery_action", {"cards.0.health.recovery_action": "12"}, FAIL, says="does not know"),
    Case("health.recovery_action", {"cards.*.health.recovery_action": UNSUPPORTED}, SKIPPED),
    Case("health.recovery_action", {"cards.0.health.recovery_action": DENIED}, UNKNOWN),
    Case("health.inforom", {}, PASS),
    Case("health.inforom", {"cards.0.identity.inforom_valid": False}, FAIL),
    Case("health.inforom", {"cards.0.identity.inforom_valid": DENIED}, UNKNOWN),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Case) -> None:
    check(case)

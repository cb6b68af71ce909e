"""Collectives of real gloo ranks: right results, and what a bad rank looks like."""

from __future__ import annotations

import importlib.util
import statistics
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nodecheck.measure
from nodecheck.facts import NOT_ASKED
from nodecheck.facts.measurements import Figure
from nodecheck.judge import attribution
from tests.measure.workers import ranks

torch = pytest.importorskip("torch")

KIB, MIB, GIB = 2**10, 2**20, 2**30


def load(name: str) -> ModuleType:
    path = Path(nodecheck.measure.__file__).parent / "workers" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"under_test_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


stage = load("stage_collectives")


# Definitions.


@pytest.mark.parametrize(
    ("collective", "two", "four", "eight"),
    [
        ("all_reduce", 1.0, 1.5, 1.75),
        ("all_gather", 0.5, 0.75, 0.875),
        ("reduce_scatter", 0.5, 0.75, 0.875),
        ("all_to_all", 0.5, 0.75, 0.875),
        ("broadcast", 1, 1, 1),
        ("reduce", 1, 1, 1),
        ("send_recv", 1, 1, 1),
    ],
)
def test_factors_are_those_of_nccl_tests(collective: str, two: float, four: float, eight: float) -> None:
    assert [stage.busbw_factor(collective, n) for n in (2, 4, 8)] == [two, four, eight]


def test_a_published_figure_comes_out() -> None:
    # nccl-tests on 8 x H100: 8 GiB in place, 31.39 ms: algbw 273.65, busbw 478.9 GB/s.
    assert stage.algbw(8 * GIB, 0.03139) == pytest.approx(273.65, rel=1e-3)
    one = stage.Run("all_reduce", 4 * GIB, "bfloat16", True, 20, 5)
    assert stage.busbw(one, 8, 0.03139) == pytest.approx(478.9, rel=1e-3)


@pytest.mark.parametrize("collective", ["all_gather", "reduce_scatter", "all_to_all"])
def test_the_size_of_shared_arrays_is_the_whole(collective: str) -> None:
    count = stage.count_of(collective, GIB, 2, 8)
    assert count == GIB // 2 // 8 and stage.size_of(collective, count, 2, 8) == GIB


@pytest.mark.parametrize("collective", ["all_reduce", "broadcast", "reduce", "send_recv"])
def test_the_size_of_others_is_one_ranks(collective: str) -> None:
    count = stage.count_of(collective, GIB, 4, 8)
    assert count == GIB // 4 and stage.size_of(collective, count, 4, 8) == GIB


def test_no_size_is_too_small_for_a_rank() -> None:
    assert stage.count_of("all_gather", 8, 4, 8) == 1
    assert stage.size_of("all_gather", 1, 4, 8) == 32


def test_the_sizes_that_profiles_name_are_measured() -> None:
    runs = list(stage.planned("cuda", 8, {"level": "standard", "group": "all"}))
    found = {(one.collective, one.dtype, one.size_bytes(8)) for one in runs}
    for size in (GIB, 8 * GIB):
        for collective in ("all_reduce", "all_gather", "reduce_scatter"):
            assert (collective, "bfloat16", size) in found
    assert {one.in_place for one in runs if one.collective == "all_gather"} == {False, True}
    assert {one.collective for one in runs} == set(stage.COLLECTIVES)
    huge = {one.iterations for one in runs if one.size_bytes(8) >= 8 * GIB}
    assert huge == {10} and {one.iterations for one in runs if one.size_bytes(8) <= GIB} == {20}
    parts = list(stage.planned("cuda", 4, {"group": "first half"}))
    assert {(one.collective, one.dtype) for one in parts} == {("all_reduce", "bfloat16")}


def test_eight_gib_all_reduce_needs_one_buffer() -> None:
    one = stage.Run("all_reduce", 4 * GIB, "bfloat16", True, 20, 5)
    assert one.needed_bytes(8) == 8 * GIB
    gather = stage.Run("all_gather", 512 * MIB, "bfloat16", False, 20, 5)
    assert gather.size_bytes(8) == 8 * GIB and gather.needed_bytes(8) == 9 * GIB


# The pattern.


@settings(max_examples=60, deadline=None)
@given(
    dtype=st.sampled_from(["bfloat16", "float16", "float32"]),
    count=st.integers(2, 64),
    start=st.integers(0, 5000),
    length=st.integers(1, 700),
)
def test_sums_are_exact_in_any_order(dtype: str, count: int, start: int, length: int) -> None:
    pattern = stage.Pattern(torch, torch.device("cpu"), dtype, count, 256)
    data = torch.empty(length, dtype=getattr(torch, dtype))
    total = torch.zeros_like(data)
    for rank in reversed(range(count)):
        pattern.write(data, start, pattern.table([rank]))
        total += data
    wrong, examples = pattern.differences(total, start, pattern.table(), 5)
    assert (wrong, examples) == (0, [])


def test_every_wrong_element_is_counted_and_the_first_are_shown() -> None:
    pattern = stage.Pattern(torch, torch.device("cpu"), "float32", 4, 64)
    data = torch.empty(1000)
    pattern.write(data, 100, pattern.table())
    for place in (3, 200, 999):
        data[place] += 1
    data[500] = float("nan")
    wrong, examples = pattern.differences(data, 100, pattern.table(), 2)
    assert wrong == 4
    assert [place for place, _, _ in examples] == [3, 200]
    assert all(read == expected + 1 for _, expected, read in examples)


@pytest.mark.parametrize("shift", [1, 2, 31, 64, 127, 256])
def test_data_of_another_place_or_rank_shows(shift: int) -> None:
    pattern = stage.Pattern(torch, torch.device("cpu"), "bfloat16", 8, 64)
    data = torch.empty(4096, dtype=torch.bfloat16)
    pattern.write(data, shift, pattern.table([0]))
    assert pattern.differences(data, 0, pattern.table([0]), 1)[0] > 3000
    assert pattern.differences(data, shift, pattern.table([1]), 1)[0] == 4096


def test_a_sum_that_cannot_be_exact_is_refused() -> None:
    with pytest.raises(ValueError, match="not exact"):
        stage.Pattern(torch, torch.device("cpu"), "bfloat16", 512, 64)
    assert stage.Pattern(torch, torch.device("cpu"), "float32", 512, 64).modulus == 251


# Real ranks.

SMALL: dict[str, Any] = {
    "runs": [
        {"collective": collective, "size_bytes": size, "dtype": dtype, "in_place": in_place, "iterations": 4}
        for collective, placements in stage.PLACEMENTS.items()
        for in_place in placements
        for dtype in ("bfloat16", "float32")
        for size in (8, 3 * MIB)
    ]
}


@pytest.fixture(scope="module", params=[2, 4])
def healthy(request: pytest.FixtureRequest) -> list[ranks.Rank]:
    return ranks.run("collectives", request.param, SMALL)


def test_every_element_is_right_on_every_rank(healthy: list[ranks.Rank]) -> None:
    world = len(healthy)
    for number, rank in enumerate(healthy):
        assert rank.code == 0 and rank.error == "", rank.output
        assert rank.answer["rank"] == number and rank.answer["skipped"] == []
        assert [check for check in rank.answer["checks"] if check["wrong"]] == []
        assert {check["check"] for check in rank.answer["checks"]} == {
            f"{name}.data" for name in stage.COLLECTIVES
        }
        for check in rank.answer["checks"]:
            received = check["size_bytes"] // stage.ITEM_BYTES[check["dtype"]]
            if check["check"] == "reduce_scatter.data":
                received //= world
            if check["check"] == "reduce.data" and number != 0:
                received = 0
            assert check["compared"] == received, check


def test_rows_hold_a_value_an_iteration_and_agree_with_each_other(healthy: list[ranks.Rank]) -> None:
    world = len(healthy)
    rows = {
        (row["measure"], row["size_bytes"], row["dtype"], row["in_place"]): row
        for row in healthy[0].answer["rows"]
    }
    for (measure, *at), row in rows.items():
        assert len(row["values"]) == 4 and all(value > 0 for value in row["values"])
        assert row["ranks"] == world and row["loop"] > 0
        collective, _, kind = measure.partition(".")
        if kind == "busbw":
            algbw = rows[(f"{collective}.algbw", *at)]["values"]
            microseconds = rows[(f"{collective}.latency", *at)]["values"]
            factor = stage.busbw_factor(collective, world)
            for bus, alg, us in zip(row["values"], algbw, microseconds, strict=True):
                assert bus == pytest.approx(alg * factor)
                assert alg == pytest.approx(row["size_bytes"] / us / 1e3)
    assert rows[("send_recv.rank", 3 * MIB, "bfloat16", False)]["subject"] == "card"


@pytest.fixture(scope="module")
def bad() -> list[ranks.Rank]:
    sizes = {"size_bytes": MIB, "iterations": 6}
    runs = [{"collective": name, **sizes} for name in ("all_reduce", "all_gather", "send_recv")]
    return ranks.run("collectives", 4, {"runs": runs}, {1: "shifted", 2: "late", 3: "corrupt"})


def test_a_corrupted_element_is_found_and_its_rank_named(bad: list[ranks.Rank]) -> None:
    wrong = {
        (number, check["check"]): check
        for number, rank in enumerate(bad)
        for check in rank.answer["checks"]
        if check["wrong"]
    }
    assert set(wrong) == {(3, "all_reduce.data"), (1, "all_gather.data")}
    check = wrong[(3, "all_reduce.data")]
    assert check["wrong"] == 1
    (example,) = check["examples"]
    assert example.startswith("rank 3 (cpu3), element 7: expected ")


def test_a_block_in_the_wrong_place_names_who_sent_it(bad: list[ranks.Rank]) -> None:
    (check,) = [check for check in bad[1].answer["checks"] if check["wrong"]]
    assert len(check["examples"]) == stage.EXAMPLES
    assert all("rank 1 (cpu1)" in example and "sent by rank 2" in example for example in check["examples"])
    # All but the few of that block whose neighbour has the same value.
    assert check["compared"] / 4 * 0.9 < check["wrong"] <= check["compared"] / 4


def test_a_late_rank_shows_in_the_ring(bad: list[ranks.Rank]) -> None:
    rates = {}
    for number, rank in enumerate(bad):
        (row,) = [row for row in rank.answer["rows"] if row["measure"] == "send_recv.rank"]
        rates[f"cpu{number}"] = statistics.median(row["values"])
    # Rank 2 is late by 100 ms, and its neighbours in the ring wait for it; rank 0 does not.
    assert min(rates, key=lambda card: rates[card]) != "cpu0"
    assert rates["cpu2"] < rates["cpu0"] / 2
    figures = [
        Figure(
            measure="send_recv.rank",
            stage="collectives",
            subject="card",
            cards=(card,),
            unit="GB/s",
            median=rate,
            p5=rate,
            p95=rate,
            repetitions=6,
            load=NOT_ASKED,
        )
        for card, rate in rates.items()
    ]
    found = attribution.ring(tuple(rates), figures)
    assert found is not None and "cpu2" in found.cards


def test_a_killed_rank_ends_the_others() -> None:
    runs = [{"collective": "all_reduce", "size_bytes": MIB}]
    began = time.monotonic()
    found = ranks.run("collectives", 3, {"runs": runs}, {1: "killed"})
    assert time.monotonic() - began < 40
    assert found[1].code == -9 and not found[1].answer
    for rank in (found[0], found[2]):
        assert rank.code == 0, rank.output
        assert rank.error and not rank.answer
        assert rank.steps[-1] == "all_reduce 1 MiB bfloat16 in place"


# What is left out.


class Alone:
    """A group of one that agrees with itself, and a clock of its own."""

    def __init__(self, world: int = 4, free: int | None = None) -> None:
        self.world, self.rank, self.on_card = world, 0, free is not None
        self.torch, self.device = torch, torch.device("cpu")
        self._free = free

    def agree(self, value: float, least: bool = False) -> float:
        return value

    def free_bytes(self) -> int | None:
        return self._free


def why(measured: Any, size: int = MIB, collective: str = "all_reduce") -> str:
    count = stage.count_of(collective, size, 2, measured.group.world)
    obstacle = measured._obstacle(stage.Run(collective, count, "bfloat16", True, 20, 5))
    assert isinstance(obstacle, str)
    return obstacle


def test_what_does_not_fit_is_left_out_with_the_reason() -> None:
    measured = stage.Measured(Alone(free=4 * GIB), 3.0, 60.0)
    assert why(measured, 4 * GIB) == ""
    assert why(measured, 8 * GIB) == "buffers of 8 GiB do not fit into 4 GiB"


def test_what_would_take_too_long_is_left_out_with_the_reason() -> None:
    measured = stage.Measured(Alone(free=64 * GIB), 3.0, 60.0)
    measured._pace[("all_reduce", "bfloat16", True)] = 1 / 1e9
    assert why(measured, 4 * GIB) == ""
    assert why(measured, 8 * GIB) == "one call would take about 9 s, by the pace of the size before"
    assert why(stage.Measured(Alone(free=64 * GIB), 3.0, -1.0)) == "the runs before it took 0 s"


def test_a_group_of_one_is_left_out_with_the_reason() -> None:
    assert "group of one" in why(stage.Measured(Alone(world=1, free=GIB), 3.0, 60.0))


@pytest.mark.parametrize(
    "words",
    [
        "ProcessGroupGloo does not support reduce_scatter",
        "no support for _allgather_base in Gloo process group",
        "Invalid scalar type",
        "Not implemented",
    ],
)
def test_what_gloo_does_not_have_is_left_out_with_its_words(
    monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    def launch(_exchange: Any) -> None:
        raise RuntimeError(words)

    monkeypatch.setattr(stage.Exchange, "launch", launch)
    measured = stage.Measured(Alone(), 3.0, 60.0)
    assert words in why(measured)


def test_what_goes_wrong_is_no_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    def launch(_exchange: Any) -> None:
        raise RuntimeError("Connection closed by peer")

    monkeypatch.setattr(stage.Exchange, "launch", launch)
    with pytest.raises(RuntimeError, match="closed by peer"):
        why(stage.Measured(Alone(), 3.0, 60.0))

"""A run of the measurements over workers that answer like the real ones, with every way in which it can go wrong."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from nodecheck.facts import Absent, Node, Why
from nodecheck.facts.measurements import Figure, Measurements, StageRun
from nodecheck.measure import Measuring
from nodecheck.measure.plan import BESIDE, ORDER, STAGES, Step, fit, needed
from nodecheck.profile import load
from nodecheck.sources.channel import Live, Recorded, Recorder
from nodecheck.sources.workers import Workers
from tests import healthy
from tests.fakes.workers import SECONDS, FakeWorkers
from tests.healthy import change

PROFILE = load("h200x4")
NODE = healthy.node(PROFILE, level="standard").model_copy(update={"measurements": Absent(why=Why.not_asked)})
CARDS = tuple(card.key for card in NODE.known_cards)


def crew() -> FakeWorkers:
    return FakeWorkers(PROFILE, CARDS)


def measured(workers: FakeWorkers, node: Node = NODE, **options: Any) -> Measurements:
    return Measuring(Workers(workers), node, "standard", **options).run()


def runs(found: Measurements, stage: str) -> dict[tuple[str, ...], StageRun]:
    return {run.cards: run for run in found.stages if run.stage == stage}


def figure(found: Measurements, measure: str, *cards: str, **at: object) -> Figure:
    (one,) = (
        figure
        for figure in found.figures
        if figure.measure == measure
        and figure.cards == cards
        and all(getattr(figure.at, name) == value for name, value in at.items())
    )
    return one


def test_everything_is_measured_and_every_stage_is_done() -> None:
    workers = crew()
    found = measured(workers)
    assert {run.stage for run in found.stages} == {
        "context", "memory", "hbm", "gemm", "agreement", "operators", "host", "pairs", "collectives", "storage",
    }  # fmt: skip
    assert {run.status for run in found.stages} == {"done"}
    assert workers.asked[0][0] == "start"
    assert dict(found.bindings).keys() == set(CARDS)
    copy = figure(found, "hbm.copy", CARDS[2])
    assert copy.p5 <= copy.median <= copy.p95
    assert copy.repetitions == 20
    assert not isinstance(copy.load, Absent)
    assert (copy.load.sm_mhz, copy.load.celsius, copy.load.event_reasons) == (1965, 48, ("sw_power_cap",))
    groups = {(f.name, f.cards) for f in found.figures if f.measure == "all_reduce.busbw"}
    assert groups == {("all", CARDS), ("first half", CARDS[:2]), ("second half", CARDS[2:])}
    assert len([f for f in found.figures if f.measure == "pairs.one_way"]) == 12
    assert len([f for f in found.figures if f.measure == "pairs.two_way"]) == 6
    assert {check.wrong for check in found.checks} == {0}
    siblings = [check for check in found.checks if check.check == "agreement.siblings"]
    assert {check.cards for check in siblings} == {(card,) for card in CARDS}
    assert {(way.name, way.cards) for way in found.transports} == groups
    assert {way.paths for way in found.transports} == {("P2P/CUMEM",)}
    assert (CARDS[0], CARDS[1], True) in found.accesses
    assert found.dropped == ()


def test_host_links_are_measured_alone_and_then_together() -> None:
    workers = crew()
    found = measured(workers, stages=["host"])
    asked = [arguments["cards"] for stage, arguments in workers.asked if stage == "host"]
    assert asked == [[card] for card in CARDS] + [list(CARDS)]
    alone = figure(found, "host.h2d", CARDS[0], together=False, pinned=True)
    together = figure(found, "host.h2d", CARDS[0], together=True)
    assert together.median < alone.median


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (("processes", 4711), "process 4711"),
        (("memory.used_bytes", 600 * 1024**2), "600 MiB"),
        (("gpu_utilization_percent", 97), "97 % busy"),
        (("usable", False), "does not hand it out"),
    ],
)
def test_a_card_in_use_is_not_loaded_unless_forced(fault: tuple[str, Any], why: str) -> None:
    path, value = fault
    if path == "processes":
        value = ({"pid": value, "kind": "compute", "used_bytes": 5, "name": "/usr/bin/train"},)
    node = change(NODE, f"cards.1.{path}", value)
    workers = crew()
    found = measured(workers, node)
    assert why in runs(found, "hbm")[(CARDS[1],)].detail
    for stage in ("context", "memory", "hbm", "gemm", "operators", "host", "pairs", "collectives"):
        assert runs(found, stage)[(CARDS[1],)].status == "skipped"
    asked = [card for _, arguments in workers.asked for card in arguments["cards"]]
    assert CARDS[1] not in asked
    assert CARDS[1] not in json.dumps(workers.asked)
    assert figure(found, "hbm.copy", CARDS[0]).median > 4000
    forced = measured(crew(), node, force=True)
    assert ((CARDS[1],) in runs(forced, "hbm")) and (
        (runs(forced, "hbm")[(CARDS[1],)].status == "done") == (path != "usable")
    )


def test_a_card_whose_context_test_failed_is_left_alone() -> None:
    node = change(NODE, "stack.contexts.0.ok", False)
    found = measured(crew(), node, force=True)
    assert "context test failed" in runs(found, "gemm")[(CARDS[0],)].detail


@pytest.mark.parametrize(
    "blind",
    [
        lambda node: change(
            node, "stack.torch", Absent(why=Why.not_present, detail="No module named 'torch'")
        ),
        lambda node: change(node, "stack.interpreter", Absent(why=Why.not_present)),
        lambda node: change(node, "stack", Absent(why=Why.failed)),
        lambda node: change(node, "cards", Absent(why=Why.timed_out, detail="NVML hangs")),
    ],
)
def test_nothing_can_be_measured_and_it_shows(blind: Callable[[Node], Node]) -> None:
    workers = crew()
    found = measured(workers, blind(NODE))
    assert workers.asked == []
    assert found.figures == found.checks == ()
    assert found.stages
    assert {run.status for run in found.stages} == {"skipped"}
    assert all(run.detail for run in found.stages)
    assert {"memory", "hbm", "gemm", "storage"} <= {run.stage for run in found.stages}


def test_an_error_belongs_to_its_card_and_the_others_go_on() -> None:
    workers = crew()
    workers.errors["memory", CARDS[2]] = {
        "type": "died",
        "message": "its worker was ended by SIGSEGV",
        "signal": "SIGSEGV",
        "step": "addresses",
        "log": "CUDA error: an illegal memory access\n",
    }
    found = measured(workers)
    run = runs(found, "memory")[(CARDS[2],)]
    assert run.status == "failed"
    for word in ("SIGSEGV", "addresses", "illegal memory access"):
        assert word in run.detail
    assert runs(found, "memory")[(CARDS[1],)].status == "done"
    assert runs(found, "hbm")[(CARDS[2],)].status == "done"


def test_a_card_that_hangs_is_asked_nothing_more() -> None:
    workers = crew()
    hang = {"type": "timed_out", "message": "no answer", "timed_out": True, "stacks": ["Thread 1: in fill_"]}
    workers.errors["hbm", CARDS[3]] = hang
    found = measured(workers)
    run = runs(found, "hbm")[(CARDS[3],)]
    assert (run.status, run.stacks) == ("timed_out", ("Thread 1: in fill_",))
    assert "hung in stage hbm" in runs(found, "gemm")[(CARDS[3],)].detail
    assert runs(found, "collectives")[CARDS].status == "skipped"
    assert runs(found, "collectives")[CARDS[:2]].status == "done"
    later = [arguments for stage, arguments in workers.asked if stage in ("gemm", "host", "pairs", "storage")]
    assert later
    assert CARDS[3] not in json.dumps(later)
    assert {f.cards for f in found.figures if f.measure == "pairs.one_way"} == {
        (a, b) for a in CARDS[:3] for b in CARDS[:3] if a != b
    }


def test_a_worker_that_does_not_start() -> None:
    workers = crew()
    workers.errors["start", CARDS[0]] = {"type": "ImportError", "message": "libcudart.so.13 is missing"}
    found = measured(workers)
    assert "libcudart" in runs(found, "context")[(CARDS[0],)].detail
    assert "did not start" in runs(found, "hbm")[(CARDS[0],)].detail
    assert runs(found, "storage")[()].status == "done"


def test_a_rank_that_hangs_in_a_collective_is_named_with_every_stack() -> None:
    workers = crew()
    for card in CARDS:
        workers.errors["collectives", card] = {"type": "left_alone", "message": "ended with the others"}
    workers.errors["collectives", CARDS[1]] = {
        "type": "timed_out", "message": "no answer", "timed_out": True, "stacks": ["rank 1"],
    }  # fmt: skip
    found = measured(workers)
    run = runs(found, "collectives")[CARDS]
    assert run.status == "timed_out"
    assert f"{CARDS[1]}: timed_out" in run.detail
    assert run.stacks == ("rank 1",)
    assert not [f for f in found.figures if f.stage == "collectives"]
    assert runs(found, "storage")[()].status == "done"


def test_a_transport_that_cannot_be_read_costs_no_figure() -> None:
    workers = crew()
    for card in CARDS:
        workers.errors["transport", card] = {"type": "RuntimeError", "message": "the untimed run failed"}
    found = measured(workers)
    run = runs(found, "collectives")[CARDS]
    assert run.status == "done"
    assert "could not be read" in run.detail
    assert found.transports == ()
    assert figure(found, "all_reduce.busbw", *CARDS, size_bytes=8 * 1024**3, dtype="bfloat16").median > 300


def test_disks_are_measured_while_matrix_products_are() -> None:
    """Each waits for the other to begin, and both are what they are alone."""
    began = {"gemm": threading.Event(), "storage": threading.Event()}
    workers = crew()

    def ask(question: str) -> Any:
        stage = question.partition(" ")[0]
        if stage in began:
            began[stage].set()
            assert all(event.wait(10) for event in began.values())
        return workers.ask(question)

    found = Measuring(Workers(Live(ask)), NODE, "standard").run()
    assert runs(found, "storage")[()].status == runs(found, "gemm")[CARDS[:1]].status == "done"
    alone = measured(crew(), change(NODE, "host.cpu.affinity", 4))  # too few CPUs for both
    assert set(alone.figures) == set(found.figures)
    assert alone.seconds - found.seconds == pytest.approx(SECONDS["gemm"])  # of the two the shorter
    assert measured(crew(), stages=["storage"]).figures


def test_a_pair_that_ends_its_worker_costs_no_other_pair() -> None:
    workers = crew()
    fatal = [(CARDS[1], CARDS[2])]

    def ask(question: str) -> Any:
        stage, _, text = question.partition(" ")
        asked = json.loads(text)
        died = [pair for pair in fatal if stage == "pairs" and list(pair) in asked["pairs"]]
        if not died:
            return workers.ask(question)
        error = {"type": "died", "message": "ended by SIGSEGV", "step": " to ".join(died[0])}
        return {"answers": {}, "errors": {asked["cards"][0]: error}, "seconds": 1.0, "samples": {}}

    found = Measuring(Workers(Live(ask)), NODE, "standard").run()
    one_way = {figure.cards for figure in found.figures if figure.measure == "pairs.one_way"}
    assert one_way == {(a, b) for a in CARDS for b in CARDS if a != b} - set(fatal)
    failed = {cards: run for cards, run in runs(found, "pairs").items() if run.status == "failed"}
    assert failed.keys() == set(fatal)
    assert "SIGSEGV" in failed[fatal[0]].detail
    assert runs(found, "collectives")[CARDS].status == "done"
    # A node on which every pair ends it is given up, and every card is named.
    fatal[:] = [(a, b) for a in CARDS for b in CARDS if a != b]
    found = Measuring(Workers(Live(ask)), NODE, "standard", stages=["pairs"]).run()
    assert not found.figures
    assert "ended at 3 pairs" in "".join(run.detail for run in found.stages)
    assert {card for run in found.stages for card in run.cards} == set(CARDS)


def test_a_pair_that_ends_its_worker_when_measured_again_keeps_its_figure() -> None:
    workers = crew()
    measuring = Measuring(Workers(workers), NODE, "standard", stages=["pairs"])
    first = measuring.run()
    one, other, *_ = (figure for figure in first.figures if figure.measure == "pairs.one_way")
    workers.errors["pairs", CARDS[0]] = {"type": "died", "message": "m", "step": " to ".join(one.cards)}
    asked = len(workers.asked)
    second = measuring.again([one, other])
    assert [request[1]["pairs"] for request in workers.asked[asked:]] == [
        [list(one.cards), list(other.cards)],
        [list(other.cards)],
    ]
    assert figure(second, "pairs.one_way", *one.cards) == one


def test_a_disk_that_hangs_costs_no_card() -> None:
    workers = crew()
    workers.errors["storage", CARDS[0]] = {"type": "timed_out", "message": "m", "timed_out": True}
    found = measured(workers)
    assert runs(found, "storage")[()].status == "timed_out"
    assert {run.status for run in found.stages if run.stage != "storage"} == {"done"}


def test_the_odd_card_is_named() -> None:
    workers = crew()
    workers.odd.add(CARDS[2])
    found = measured(workers)
    wrong = {
        check.cards[0]: check for check in found.checks if check.check == "agreement.siblings" and check.wrong
    }
    assert set(wrong) == {CARDS[2]}
    assert "3 of 4 cards" in wrong[CARDS[2]].examples[0]


def test_of_two_that_differ_both_are_named() -> None:
    profile = load("h200x2")
    node = healthy.node(profile, level="standard")
    cards = tuple(card.key for card in node.known_cards)
    workers = FakeWorkers(profile, cards, odd={cards[0]})
    found = Measuring(Workers(workers), node, "standard").run()
    odd = [check.cards[0] for check in found.checks if check.check == "agreement.siblings" and check.wrong]
    assert sorted(odd) == sorted(cards)


def test_wrong_data_is_counted_once_for_the_group() -> None:
    workers = crew()
    workers.wrong["all_reduce.data", CARDS[0]] = 3
    workers.wrong["memory.pattern", CARDS[1]] = 8
    found = measured(workers)
    wrong = {(check.check, check.cards): check for check in found.checks if check.wrong}
    assert wrong["memory.pattern", (CARDS[1],)].wrong == 8
    assert wrong["memory.pattern", (CARDS[1],)].examples
    assert wrong["all_reduce.data", CARDS].wrong == 3


@pytest.mark.parametrize(
    ("seconds", "gone", "kept"),
    [
        (1000.0, (), {"storage", "agreement", "hbm"}),
        (51.5, ("storage",), {"agreement", "collectives", "pairs", "hbm"}),
        (20.0, ("storage", "operators", "agreement", "collectives of sub-groups"), {"hbm", "gemm"}),
        (1.0, ("storage", "operators", "agreement"), {"context"}),
    ],
)
def test_a_budget_drops_stages_in_the_stated_order(
    seconds: float, gone: tuple[str, ...], kept: set[str]
) -> None:
    workers = crew()
    found = measured(workers, budget_seconds=seconds)
    assert found.dropped[: len(gone)] == gone
    assert bool(found.dropped) == bool(gone)
    done = {run.stage for run in found.stages if run.status == "done"}
    assert kept <= done
    if "storage" in gone:
        assert "time budget" in runs(found, "storage")[()].detail


def test_every_stage_has_its_turn() -> None:
    assert sorted(ORDER) == sorted(STAGES)
    assert ORDER.index("hbm") < ORDER.index("memory") < ORDER.index("gemm")  # see there
    assert {*BESIDE, *BESIDE.values()} <= set(STAGES)


def test_what_costs_nothing_is_left_out_last() -> None:
    gemm = Step("gemm", "gemm", CARDS, typical_seconds=3.0)
    steps = [
        gemm,
        Step("agreement", "agreement", CARDS, typical_seconds=2.0),
        Step("storage", "storage", CARDS[:1], typical_seconds=2.5, beside="gemm"),
    ]
    assert needed(steps) == 5.0
    assert fit(steps, 4.0)[1] == ("agreement",)
    assert fit(steps, 2.6)[1] == ("agreement", "gemm")
    assert fit(steps, 1.0) == ((), ("agreement", "gemm", "storage"))


def test_a_slow_node_drops_more_than_was_planned() -> None:
    workers = crew()
    slow = Live(lambda question: workers.ask(question) | {"seconds": 30.0})
    found = Measuring(Workers(slow), NODE, "standard", budget_seconds=70.0).run()
    assert found.seconds <= 70.0 + 30.0
    assert "collectives" in found.dropped


def test_a_doubtful_figure_is_measured_again_and_the_last_counts() -> None:
    workers = crew()
    workers.slow["hbm.copy", CARDS[1]] = 0.9
    measuring = Measuring(Workers(workers), NODE, "standard")
    first = measuring.run()
    doubtful = figure(first, "hbm.copy", CARDS[1])
    workers.slow.clear()
    asked = len(workers.asked)
    second = measuring.again([doubtful])
    once_more = figure(second, "hbm.copy", CARDS[1])
    assert once_more.tries == (doubtful.median, once_more.median)
    assert once_more.median > doubtful.median
    assert [request[1]["only"] for request in workers.asked[asked:]] == [["hbm.copy"]]
    assert figure(second, "hbm.copy", CARDS[0]) == figure(first, "hbm.copy", CARDS[0])
    third = measuring.again([once_more])
    last = figure(third, "hbm.copy", CARDS[1])
    assert len(last.tries) == 3
    assert measuring.again([last]).figures == third.figures
    assert len(third.figures) == len(first.figures)


@pytest.mark.parametrize("measure", ["pairs.one_way", "all_reduce.busbw", "host.d2h", "gemm.float8"])
def test_any_kind_of_figure_can_be_had_again(measure: str) -> None:
    workers = crew()
    measuring = Measuring(Workers(workers), NODE, "standard")
    found = measuring.run()
    doubtful = [figure for figure in found.figures if figure.measure == measure][-1]
    asked = len(workers.asked)
    again = measuring.again([doubtful])
    (now,) = (f for f in again.figures if len(f.tries) == 2)
    assert (now.measure, now.cards, now.at, now.name) == (
        doubtful.measure, doubtful.cards, doubtful.at, doubtful.name,
    )  # fmt: skip
    assert len(workers.asked) == asked + 1


def test_what_was_measured_before_an_interrupt_is_kept() -> None:
    workers = crew()

    def ask(question: str) -> Any:
        if question.startswith("gemm"):
            raise KeyboardInterrupt
        return workers.ask(question)

    measuring = Measuring(Workers(Live(ask)), NODE, "standard")
    with pytest.raises(KeyboardInterrupt):
        measuring.run()
    found = measuring.measurements()
    assert figure(found, "hbm.copy", CARDS[0])
    assert runs(found, "hbm")[(CARDS[0],)].status == "done"
    assert {run.status for run in found.stages if run.stage in ("gemm", "host", "storage")} == {"skipped"}
    assert "interrupted" in runs(found, "gemm")[CARDS].detail


def test_a_crew_that_breaks_costs_no_report() -> None:
    def ask(question: str) -> Any:
        raise RuntimeError("can't start new thread")

    found = Measuring(Workers(Live(ask)), NODE, "standard").run()
    assert "can't start new thread" in runs(found, "context")[(CARDS[0],)].detail
    assert {run.status for run in found.stages} == {"failed", "skipped"}


def test_a_recording_gives_the_same_and_one_without_measurements_says_so() -> None:
    recorder = Recorder(crew())
    found = Measuring(Workers(recorder), NODE, "standard").run()
    stored = json.loads(json.dumps(recorder.answers))
    assert Measuring(Workers(Recorded(stored)), NODE, "standard").run() == found
    nothing = Measuring(Workers(Recorded({})), NODE, "standard").run()
    assert {run.status for run in nothing.stages} == {"skipped"}
    assert "recording" in runs(nothing, "hbm")[(CARDS[0],)].detail


def test_level_full_adds_sustained_load() -> None:
    found = Measuring(Workers(crew()), NODE, "full").run()
    sustained = figure(found, "gemm.bfloat16", CARDS[0], sustained=True)
    burst = figure(found, "gemm.bfloat16", CARDS[0], sustained=False, shape=sustained.at.shape)
    assert sustained.median < burst.median


def test_a_machine_without_cards_measures_its_cpu() -> None:
    profile = load("cpu")
    node = change(healthy.node(profile, level="standard"), "host.cpu.affinity", 2)
    workers = FakeWorkers(profile, ())
    found = Measuring(Workers(workers), node, "standard").run()
    assert {run.status for run in found.stages} == {"done"}
    assert {card for run in found.stages for card in run.cards} == {"cpu0", "cpu1"}
    assert not {"host", "pairs"} & {run.stage for run in found.stages}


def test_one_card_has_no_pairs() -> None:
    profile = load("h200x1")
    node = healthy.node(profile, level="standard")
    workers = FakeWorkers(profile, tuple(card.key for card in node.known_cards))
    found = Measuring(Workers(workers), node, "standard").run()
    assert {run.status for run in found.stages} == {"done"}
    assert not {"collectives", "pairs"} & {run.stage for run in found.stages}


def test_numa_nodes_that_are_no_halves_are_groups_of_their_own() -> None:
    profile = load("h200x8")
    node = healthy.node(profile, level="standard")
    for i in range(8):
        node = change(node, f"cards.{i}.numa_node", i % 2)
    cards = tuple(card.key for card in node.known_cards)
    workers = FakeWorkers(profile, cards)
    Measuring(Workers(workers), node, "standard", stages=["collectives"]).run()
    asked = {
        arguments["group"]: tuple(arguments["cards"])
        for stage, arguments in workers.asked
        if stage == "collectives"
    }
    assert asked["NUMA node 1"] == cards[1::2]
    assert set(asked) == {"all", "first half", "second half", "NUMA node 0", "NUMA node 1"}

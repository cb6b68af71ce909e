"""What the reports show of the measurements, and that nothing in them can act."""

from __future__ import annotations

import re
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from nodecheck.facts import Absent, Level, Measurements, Node, Why
from nodecheck.facts.measurements import Check, Conditions, Figure, StageRun, Transport
from nodecheck.judge import Status, judge
from nodecheck.judge.figures import Limits
from nodecheck.profile import NO_PROFILE, load
from nodecheck.report import document, figures, plots, render
from nodecheck.report.document import Report
from nodecheck.report.figures import Figures
from nodecheck.report.text import number, plain
from tests import healthy
from tests.report.hostile import ATTACKS, plant
from tests.report.test_hostile import (
    BROWSER,
    DANGEROUS_ATTRIBUTES,
    DANGEROUS_TAGS,
    Page,
    browse,
    check_terminal,
    texts,
)

FORMS = ("terminal", "html", "md")


def report(name: str = "h200x8", level: Level = "standard", **changes: Any) -> Report:
    """A node that is all that the profile promises; `changes` are to its measurements."""
    profile = load(name)
    node = healthy.node(profile, level=level)
    if changes:
        node = measured(node, **changes)
    return document.build(node, profile, judge(node, profile), argv=["accept", "--profile", name])


def measured(node: Node, **changes: Any) -> Node:
    assert isinstance(node.measurements, Measurements)
    return node.model_copy(update={"measurements": node.measurements.model_copy(update=changes)})


def of(made: Report) -> Figures:
    found = figures.of(made)
    assert isinstance(found, Figures)
    return found


def slowed(made: Report, share: float, measure: str, *positions: int) -> Report:
    """The same with this measure at a share of what it was, on these cards (or pairs of exactly these)."""
    node = made.facts
    assert isinstance(node.measurements, Measurements)
    keys = {node.known_cards[position].key for position in positions}
    slow = tuple(
        figure.model_copy(
            update={name: getattr(figure, name) * share for name in ("median", "p5", "p95")}
            | {"tries": (figure.median * 0.99, figure.median * share)}
        )
        if figure.measure == measure and (not keys or set(figure.cards) == keys)
        else figure
        for figure in node.measurements.figures
    )
    node = measured(node, figures=slow)
    return document.build(node, made.profile, judge(node, made.profile))


def broken() -> Report:
    """Slow and wrong in every way that has a place of its own in a report."""
    made = report()
    for share, measure, positions in (
        (0.6, "gemm.bfloat16", (5,)),
        (0.45, "pairs.one_way", (2, 3)),
        (0.6, "all_reduce.busbw", ()),
    ):
        made = slowed(made, share, measure, *positions)
    assert isinstance(made.facts.measurements, Measurements)
    seen = made.facts.measurements
    keys = tuple(card.key for card in made.facts.known_cards)
    node = measured(
        made.facts,
        stages=(
            *(run for run in seen.stages if run.stage not in ("agreement", "collectives")),
            StageRun(
                stage="agreement", cards=keys[1:2], status="skipped", detail="python3 (process 7) is on it"
            ),
            StageRun(
                stage="collectives",
                cards=keys,
                status="timed_out",
                detail="timed out: no answer within 120 s\nthe last line of the log",
                stacks=("rank 0 in all_reduce\n  line 4", "rank 1 in all_reduce"),
                seconds=120.0,
            ),
        ),
        checks=(
            *seen.checks,
            Check(
                check="memory.pattern",
                stage="memory",
                subject="card",
                cards=keys[4:5],
                compared=2**37,
                wrong=3,
                covered=0.97,
                examples=("address 0x7f00: expected 0xa5, read 0xa4",),
            ),
        ),
        transports=tuple(
            transport.model_copy(update={"notes": ("NVLS is off: the log says so",)})
            for transport in seen.transports
        ),
        accesses=tuple((a, b, keys[2] not in (a, b)) for a in keys for b in keys if a != b),
        dropped=("storage",),
    )
    return document.build(node, made.profile, judge(node, made.profile))


BROKEN = broken()


@pytest.mark.parametrize("form", FORMS)
def test_a_level_that_measures_nothing_shows_nothing(form: str) -> None:
    text = render(report(level="quick"), form)
    assert "Measurements" not in text
    assert "<svg" not in text or text.count("<svg") == 1  # the topology's


@pytest.mark.parametrize("form", FORMS)
def test_measurements_that_are_not_there_say_why(form: str) -> None:
    made = report("h200x1")
    node = made.facts.model_copy(update={"measurements": Absent(why=Why.failed, detail="no worker")})
    text = render(document.build(node, made.profile, judge(node, made.profile)), form)
    assert "Nothing was measured: not seen (failed: no worker)." in text


@pytest.mark.parametrize("name", ["h200x8", "h200x1", "cpu", "l40sx4"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_every_shape_of_node(name: str, form: str) -> None:
    text = render(report(name), form)
    assert "Measurements" in text
    assert len(text.encode()) < 1_000_000
    if form == "terminal":
        assert max(map(len, text.splitlines())) <= 80


def test_a_page_of_eight_cards_with_every_size_is_below_a_megabyte() -> None:
    """As level full has it: all sizes of all collectives, in place and not, of every group."""
    made = report(level="full")
    assert isinstance(made.facts.measurements, Measurements)
    seen = made.facts.measurements
    like = next(figure for figure in seen.figures if figure.measure == "all_reduce.busbw")
    many = tuple(
        like.model_copy(
            update={
                "measure": f"{collective}.{kind}",
                "name": name,
                "at": Conditions(size_bytes=2**power, dtype=dtype, ranks=8, in_place=in_place),
            }
        )
        for collective in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce")
        for power in (range(3, 35) if collective == "all_reduce" else range(12, 34, 3))
        for dtype in ("bfloat16", "float32")
        for in_place in (True, False)
        for name in ("all", "first half", "second half", "NUMA node 0", "NUMA node 1")
        for kind in ("busbw", "algbw", "latency")
    )
    page = render(report(level="full", figures=(*seen.figures, *many)), "html")
    assert len(page.encode()) < 1_000_000
    assert "more in report.json." in page


def test_cards_stand_side_by_side_with_what_is_promised() -> None:
    text = render(BROKEN, "terminal")
    assert re.search(r"mem copy +bf16 +fp8 +fp32 +H2D +D2H", text)
    assert re.search(r"GPU 5 +4252 +480\.4! +1468", text)
    assert re.search(r"typical +4253 +800\.3 +1468 +50\.9 +55\.46 +55\.35", text)
    assert re.search(r"warns < +4096 +720 +1230 +49 +49 +49", text)


def test_statuses_are_those_of_the_judge() -> None:
    shown = of(BROKEN)
    statuses = {
        (beside.measure, key): shown.status(figure)
        for beside in shown.overview
        for key, figure in beside.figures.items()
    }
    slow = BROKEN.facts.known_cards[5].key
    assert [place for place, status in statuses.items() if status is Status.fail] == [("gemm.bfloat16", slow)]
    assert {status for place, status in statuses.items() if place[1] != slow} == {Status.passed}


def test_without_a_profile_cards_are_still_held_against_each_other() -> None:
    made = slowed(report(), 0.8, "hbm.copy", 3)
    made = document.build(made.facts, NO_PROFILE, judge(made.facts, NO_PROFILE))
    shown = of(made)
    copy = shown.overview[0]
    assert copy.typical is None
    statuses = [shown.status(figure) for figure in copy.figures.values()]
    assert statuses == [Status.fail if i == 3 else Status.passed for i in range(8)]


def test_bars_begin_at_zero_and_marks_stand_where_they_belong() -> None:
    shown = of(BROKEN)
    products = next(beside for beside in shown.beside if beside.measure == "gemm.bfloat16")
    plot = plots.bar_plot(shown, products)
    widths = [bar.width for bar in plot.bars]
    values = [products.figures[key].median for key in shown.keys]
    for width, value in zip(widths, values, strict=True):
        assert width / widths[0] == pytest.approx(value / values[0])
    assert plot.bars[5].status is Status.fail
    assert plot.typical is not None
    assert plot.warns is not None
    assert plot.fails is not None
    assert plot.left + widths[5] < plot.fails < plot.warns < plot.typical
    assert (plot.fails - plot.left) / (plot.warns - plot.left) == pytest.approx(600 / 720)


def test_the_matrix_of_pairs_has_levels_and_statuses() -> None:
    table = of(BROKEN).pairs[0]
    assert (table.measure, table.unit, table.at) == ("pairs.one_way", "GB/s", "512 MiB")
    slow = {(2, 3), (3, 2)}
    for i, row in enumerate(table.rows):
        for j, cell in enumerate(row):
            if i == j:
                assert (cell.text, cell.level) == ("", -1)
            elif (i, j) in slow:
                assert (cell.level, cell.status) == (4, Status.fail)
            else:
                assert (cell.level, cell.status) == (0, Status.passed)
    assert re.search(r"\(GPU [23] → GPU [23]\) to ", table.extremes)
    page = render(BROKEN, "html")
    assert page.count('<td class="level4 of-note fail"') == 2
    terminal = render(BROKEN, "terminal")
    assert re.search(r"GPU 2 +396\.8 +395\.4 +177\.8! ", terminal)


def test_a_pair_that_was_not_measured_is_no_figure() -> None:
    made = report("h200x2")
    assert isinstance(made.facts.measurements, Measurements)
    kept = tuple(
        figure
        for figure in made.facts.measurements.figures
        if figure.subject != "pair" or figure.cards[0] == made.facts.known_cards[0].key
    )
    table = of(report("h200x2", figures=kept)).pairs[0]
    assert (table.rows[1][0].text, table.rows[1][0].level) == ("–", -1)


def test_curves_have_the_profiles_marks_at_its_sizes() -> None:
    curve = of(BROKEN).curves[0]
    assert curve.collective == "all_reduce"
    assert [series.label for series in curve.series][:2] == ["all, bfloat16", "all, float32"]
    assert [point.size_bytes for point in curve.series[0].points] == [8**i for i in range(1, 12)]
    assert [(mark.size_bytes // 2**30, mark.typical) for mark in curve.marks] == [(8, 473.1), (1, 467.6)]
    assert [point.status for point in curve.series[0].points][-2:] == [Status.fail, Status.fail]
    plot = plots.curve_plot(curve, width=920)
    assert [tick.label for tick in plot.across][:3] == ["8 B", "64 B", "512 B"]
    assert [promise.kind for promise in plot.promises] == 2 * ["typical", "warns", "fails"]
    assert all(tick.at <= plot.width for tick in plot.across)


def test_data_stages_tries_and_load_are_told() -> None:
    page = re.sub(r"\s+", " ", Page(render(BROKEN, "html")).text)
    for words in (
        "GPU 4: 3 of 137,438,953,472 wrong memory.pattern",
        "address 0x7f00: expected 0xa5, read 0xa4",
        "Left out for the time budget: storage.",
        "python3 (process 7) is on it",
        "the last line of the log",
        "rank 0 in all_reduce",
        "NVLS is off: the log says so",
        "Cannot reach the other card's memory, as torch says: GPU 0 → GPU 2",
        "NVLS/SIMPLE: all_reduce 8 GiB",
        "sw power cap",
        "1830 MHz",
        "storage.random_read",
    ):
        assert words in page, words
    assert re.search(r"pairs\.one_way, GPU 2 → GPU 3, 512 MiB: 391\.\d, 177\.\d GB/s", page)
    terminal = re.sub(r"\s+", " ", render(BROKEN, "terminal"))
    assert "WRONG DATA: memory.pattern, GPU 4: 3 of 137,438,953,472 wrong" in terminal
    assert "collectives on 8 cards: timed out: no answer within 120 s" in terminal
    assert "agreement on GPU 1: skipped: python3 (process 7) is on it" in terminal
    ticket = render(BROKEN, "md")
    assert "**wrong data**: `memory.pattern`, GPU 4" in ticket.replace("memory.pattern,", "memory.pattern`,")
    assert "| GPU 5 | 4252 | **480.4** |" in ticket


# Hostile text.


def poisoned(made: Report, payloads: tuple[str, ...], *, everything: bool) -> Report:
    """Every text of the measurements replaced, with a number of its own; names of measures only if `everything`."""
    supply = cycle(payloads)
    planted: dict[str, str] = {}
    keep = re.compile(r"GPU-|[a-z_0-9]+(\.[a-z_0-9]+)+$|GB/s|TFLOP/s|us$")

    def text(before: str) -> str:
        if not everything and keep.match(before):
            return before
        if before not in planted:
            payload = next(supply).encode("utf-8", "backslashreplace").decode()
            planted[before] = f"{payload}§{len(planted)}§"
        return planted[before]

    assert isinstance(made.facts.measurements, Measurements)
    changed = plant(made.facts.measurements, text)
    return made.model_copy(update={"facts": made.facts.model_copy(update={"measurements": changed})})


@pytest.mark.parametrize("everything", [False, True], ids=["names of measures kept", "everything"])
def test_hostile_text_of_the_measurements_stays_text(everything: bool) -> None:
    # Keys that are no cards' stand there whole, which is too much for a page of eight.
    sound = report("h200x2") if everything else BROKEN
    made = poisoned(sound, ATTACKS, everything=everything)
    like = poisoned(sound, ("x",), everything=everything)
    page = Page(render(made, "html"))
    assert page.tags == Page(render(like, "html")).tags
    for tag, attributes in page.tags:
        assert tag not in DANGEROUS_TAGS
        assert not any(DANGEROUS_ATTRIBUTES.match(name) for name in attributes)
    wanted = set(texts(made.facts.measurements))
    assert len(wanted) > 20
    for text in wanted:
        assert plain(text) in page.text, text
    check_terminal(render(made, "terminal"))
    markdown = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    tokens = [[token.type for token in markdown.parse(render(one, "md"))] for one in (made, like)]
    assert tokens[0] == tokens[1]


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
def test_in_a_real_browser_the_measurements_are_the_same_page(tmp_path: Path) -> None:
    page = render(poisoned(BROKEN, ATTACKS, everything=False), "html")
    page, count = re.subn(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    assert count == 1  # escaping alone must hold
    file = tmp_path / "report.html"
    file.write_text(page)
    seen = Page(browse(file, tmp_path / "profile"))
    assert sorted(seen.tags) == sorted(Page(page).tags)
    assert seen.title == Page(page).title


# Figures of any size.

TWO = report("h200x2")


@given(
    st.lists(
        st.tuples(
            st.one_of(st.integers(-8, 2**63 - 1), st.none()),
            st.floats(allow_nan=False, allow_infinity=False),
        ),
        min_size=1,
        max_size=6,
    )
)
@settings(deadline=None)
def test_no_figure_breaks_a_plot(rows: list[tuple[int | None, float]]) -> None:
    made = TWO
    keys = tuple(card.key for card in made.facts.known_cards)
    common: dict[str, Any] = {"unit": "GB/s", "repetitions": 1}
    wild: list[Figure] = []
    for size_bytes, value in rows:
        common |= {"median": value, "p5": value, "p95": value, "at": Conditions(size_bytes=size_bytes)}
        group = Figure(
            measure="all_reduce.busbw", stage="collectives", subject="group", cards=keys, name="all", **common
        )
        card = Figure(measure="hbm.copy", stage="hbm", subject="card", cards=keys[:1], **common)
        pair = Figure(measure="pairs.one_way", stage="pairs", subject="pair", cards=keys, **common)
        wild += [group, card, pair]
    node = measured(made.facts, figures=tuple(wild))
    made = made.model_copy(update={"facts": node})
    shown = of(made)
    drawn = [plots.curve_plot(curve) for curve in shown.curves]
    bars = [plots.bar_plot(shown, beside) for beside in shown.beside]
    for plot in drawn:
        assert len(plot.up) <= 12
        assert len(plot.across) <= 7
        for line in plot.lines:
            for place in re.findall(r"(\S+) (\S+)", line.path.replace("M ", "").replace("L ", "")):
                assert -1 <= float(place[0]) <= plot.width
                assert 0 <= float(place[1]) <= plot.height
    for bar in (bar for plot in bars for bar in plot.bars):
        assert 0 <= bar.width < plots.bar_plot(shown, shown.beside[0]).width
    for table in shown.pairs:
        assert table.extremes
    assert shown.record()


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0.0, "0"),
        (4297.2, "4297"),
        (55.4, "55.40"),
        (0.0001234, "0.0001234"),
        (120124.4, "120,124"),
        (1e300, "1.000e+300"),
    ],
)
def test_figures_have_four_digits(value: float, written: str) -> None:
    assert number(value) == written


def test_what_went_the_same_way_stands_in_one_line() -> None:
    ways = {
        "all_reduce 8": "RING/LL",
        "all_reduce 1048576": "RING/LL",
        "all_gather 1048576": "RING/LL",
        "all_reduce 8589934592": "NVLS/SIMPLE",
        "all_reduce": "NVLS/SIMPLE",
        "x 9²": "²",
    }
    transport = Transport(cards=(), name="all", paths=(), algorithms=tuple(ways.items()))
    assert figures.algorithms_words(transport) == (
        "RING/LL: all_reduce 8 B, 1 MiB; all_gather 1 MiB",
        "NVLS/SIMPLE: all_reduce 8 GiB",
        "²: x 9²",
    )


def test_copies_both_ways_fill_both_corners_of_the_matrix() -> None:
    both = [f for f in BROKEN.facts.measurements.figures if f.measure == "pairs.two_way"]  # type: ignore[union-attr]
    once = tuple(f for f in both if f.cards[0] < f.cards[1])
    (table,) = of(report(figures=once)).pairs
    assert len(once) == len(both) / 2 and "–" not in {cell.text for row in table.rows for cell in row}


@pytest.mark.parametrize(
    ("measure", "dtype", "words"),
    [
        ("gemm.bfloat16", "bfloat16", "8192³"),
        ("gemm.float8", "float8_e4m3fn", "8192³, float8_e4m3fn"),
        ("hbm.copy", "float32", "8192³"),
    ],
)
def test_what_goes_without_saying_is_not_said(measure: str, dtype: str, words: str) -> None:
    at = Conditions(shape="8192x8192x8192", dtype=dtype, pinned=True)
    beside = figures.Beside(measure, at, "GB/s", {}, None, Limits(None, None), None)
    assert Figures.at(beside) == words


def test_operators_are_one_row_of_data_and_a_wrong_one_is_named() -> None:
    made = report("h200x4")
    seen = made.facts.measurements
    assert isinstance(seen, Measurements)
    checks = tuple(
        check.model_copy(update={"wrong": 2, "examples": ("output [0, 7]: expected 1, got 9",)})
        if check.check == "operators.conv2d" and check.cards == (made.facts.known_cards[1].key,)
        else check
        for check in seen.checks
    )
    node = measured(made.facts, checks=checks)
    shown = of(document.build(node, made.profile, judge(node, made.profile)))
    (row,) = (row for row in shown.checks if row.check.startswith("operators"))
    assert (row.check, row.wrong, row.right) == ("operators", 2, False)
    (wrong,) = shown.wrong
    assert wrong.check == "operators.conv2d"
    assert "bfloat16" in wrong.told

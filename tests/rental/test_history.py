from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from html.parser import HTMLParser
from pathlib import Path

import pytest
import typer

from nodecheck.cli.history import moment
from nodecheck.judge import Status
from nodecheck.rental.history import FORMATS, History, gather, render, view
from nodecheck.rental.history.html import curve, timeline
from nodecheck.rental.place import state_file
from nodecheck.rental.result import Reading
from nodecheck.rental.state import State, Terms
from tests import healthy as nodes
from tests.judge.cases import healthy
from tests.rental.looks import START, card, check, figure, minutes, readings
from tests.report.hostile import ATTACKS, plant
from tests.report.samples import accepted, finding

NODE = healthy("h200x2")
NOW = minutes(60)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An hour: an acceptance, a check every minute, a link lost for good, heat three times, a reboot."""
    state = State(tmp_path)
    state.accept(accepted(2).model_copy(update={"created_at": START}), Terms())
    lost = finding("drift.nvlink", Status.fail, card(1), detail="17 of 18 NVLinks are up.")
    hot = finding("drift.heat", Status.warn, card(0), detail="The card was slowed by heat.")
    for number in range(1, 60):
        found = [lost] * (number >= 30) + [hot] * (number in (5, 6, 15, 25))
        active = number in (20, 40)
        node = nodes.change(NODE, "host.boot_id", "first" if number < 35 else "second")
        node = nodes.change(node, "host.uptime_seconds", 60.0).model_copy(
            update={"taken_at": minutes(number)}
        )
        if number < 35:
            node = nodes.change(node, "host.boot_id", "11111111-2222-4333-8444-555555555555")
        result = check(
            minutes(number),
            found,
            readings=readings(NODE, number),
            kind="active" if active else "passive",
            status=Status.fail if lost in found else Status.passed,
            figures=(figure("hbm.copy", 4200.0 - number, NODE),) if active else (),
        )
        state.record(result, node)
    state.close()
    return tmp_path


def test_it_tells_what_is_going_on_first(folder: Path) -> None:
    history = gather(NOW, folder=folder)
    going_on, over = view.stories(history)
    assert [story.finding.id for story in going_on] == ["drift.nvlink"]
    assert [(story.finding.id, len(story.episodes)) for story in over] == [("drift.heat", 3)]
    assert going_on[0].when == "since 2026-12-01 12:30, last seen 2026-12-01 12:59"
    assert over[0].when == "seen once, 2026-12-01 12:25; 3 times since 2026-12-01 12:05"
    assert [episode.over for episode in history.episodes] == [False, True, True, True]
    assert history.checks is not None
    assert (history.checks.passive, history.checks.active) == (57, 2)
    assert history.begins == START


@pytest.mark.parametrize("form", ["text", "html"])
def test_every_form_tells_the_same(folder: Path, form: str) -> None:
    page = render(gather(NOW, folder=folder), form)
    for words in (
        "59 checks, 2 of them active, the last 2026-12-01 12:59 UTC: fail.",
        "ACCEPTED as h200x2 2026-12-01 12:00 UTC",
        "The machine was started again 2026-12-01 12:34 UTC, first seen 2026-12-01 12:35 UTC.",
        "drift.nvlink",
        "17 of 18 NVLinks are up.",
        "since 2026-12-01 12:30, last seen 2026-12-01 12:59",
        "drift.heat",
        "hbm.copy",
        "4160 to 4180 GB/s, now 4160 GB/s",
        "temperature_celsius",
        "40 to 70 °C, now",
        "3 (GPU 0 (0000:18:00.0), GPU 1 (0000:2a:00.0))",
    ):
        assert words in re.sub(r"\n +", " ", page).replace("\n", " "), words


def test_a_terminal_of_80_columns_holds_it(folder: Path) -> None:
    lines = render(gather(NOW, folder=folder), "text").splitlines()
    assert max(map(len, lines)) <= 80
    assert all(line == line.rstrip() for line in lines)
    (copy,) = (line for line in lines if "now 4160 GB/s" in line)
    assert re.search(r" █ +▁ ", copy), "two figures, the second one lower"


def test_the_json_has_it_all(folder: Path) -> None:
    history = gather(NOW, folder=folder)
    assert History.model_validate_json(render(history, "json")) == history
    assert len(json.loads(render(history, "json"))["episodes"]) == 4


def test_since_leaves_out_what_was_over_before(folder: Path) -> None:
    history = gather(NOW, minutes(28), folder)
    assert [episode.finding.id for episode in history.episodes] == ["drift.nvlink"]
    assert history.acceptances == ()
    assert len(history.reboots) == 1
    assert history.begins == minutes(28)
    assert gather(NOW, START - timedelta(days=7), folder).begins == START, "no empty week is drawn"
    assert min(at for series in history.series for at, _ in series.points) >= minutes(28)


@pytest.mark.parametrize("form", FORMATS)
def test_nothing_is_told_of_a_node_that_was_never_looked_at(tmp_path: Path, form: str) -> None:
    history = gather(NOW, folder=tmp_path / "none")
    page = render(history, form)
    if form == "json":
        assert json.loads(page)["episodes"] == []
    else:
        assert "Nothing is remembered of" in page
    assert not (tmp_path / "none").exists(), "a look makes nothing"


def test_a_healthy_rental_says_so(tmp_path: Path) -> None:
    State(tmp_path).record(check(START), NODE)
    for form in ("text", "html"):
        assert "Nothing was found that is not right." in render(gather(NOW, folder=tmp_path), form)


def test_what_could_not_be_read_is_told(folder: Path) -> None:
    state = State(folder)
    state._connection.execute("UPDATE episodes SET finding = '{}' WHERE over = 0")
    state.close()
    for form in FORMATS:
        assert "cannot be read and are left out" in render(gather(NOW, folder=folder), form).replace(
            "\n", " "
        )


def test_a_clock_that_went_back_is_no_trouble(folder: Path) -> None:
    history = gather(START - timedelta(days=1), folder=folder)
    assert history.ends == minutes(59)
    for form in FORMATS:
        assert render(history, form)
    later = gather(NOW, minutes(9999), folder)
    for form in FORMATS:
        assert render(later, form)


# Drawings


def test_the_timeline_lies_within_its_frame(folder: Path) -> None:
    history = gather(NOW, minutes(10), folder)
    going_on, over = view.stories(history)
    drawn = timeline(history, (*going_on, *over))
    assert drawn is not None
    for row in drawn.rows:
        for life in row.lives:
            assert drawn.left <= life.x < life.x + life.width <= drawn.width
    (lost,) = drawn.rows[0].lives
    assert lost.width > 300, "30 of 50 minutes"


def test_a_curve_has_gaps_where_nothing_was_read(tmp_path: Path) -> None:
    state = State(tmp_path)
    for number in (*range(20), *range(40, 60)):
        reading = Reading(name="x", subject=card(0), value=float(number))
        state.record(check(minutes(number), readings=(reading,)), NODE)
    history = gather(NOW, folder=tmp_path)
    ((trend,),) = view.trends(history, 60).values()
    path = curve(trend).path
    assert path.count("M") == 2
    assert path.count("L") == 38
    assert curve(trend).end[1] < 10, "the last is the highest"


@pytest.mark.parametrize("values", [(0.0, 1e308, 1e308, -1e308), (5e-324, 0.0)])
def test_numbers_beyond_all_measure_are_drawn_all_the_same(tmp_path: Path, values: tuple[float, ...]) -> None:
    state = State(tmp_path)
    for number, value in enumerate(values):
        state.record(
            check(minutes(number), readings=(Reading(name="x", subject=card(0), value=value),)), NODE
        )
    history = gather(NOW, folder=tmp_path)
    for form in FORMATS:
        assert render(history, form)
    ((trend,),) = view.trends(history, 10).values()
    assert all(0 <= trend.height(value) <= 1 for value in values)


# Foreign text


def _poisoned(folder: Path) -> History:
    state = State(folder)
    for number, attack in enumerate(ATTACKS):
        found = plant(
            finding("drift.heat", Status.warn, card(number)), lambda text, attack=attack: f"{text}{attack}"
        )
        moved = tuple(
            plant(
                Reading(name="x", subject=card(number), value=value),
                lambda text, attack=attack: f"{text}{attack}",
            )
            for value in (1.0, 2.0)
        )
        state.record(check(minutes(2 * number), (found,), readings=moved[:1]), NODE)
        state.record(check(minutes(2 * number + 1), (found,) * (number % 2), readings=moved[1:]), NODE)
    state.close()
    return gather(NOW, folder=folder).model_copy(
        update={"host": "".join(ATTACKS).encode("ascii", "ignore").decode()}
    )


class _Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.seen: list[tuple[str, tuple[str, ...]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, tuple(sorted(name for name, _ in attrs))))


def test_foreign_text_is_no_markup(tmp_path: Path) -> None:
    page = render(_poisoned(tmp_path), "html")
    tags = _Tags(page).seen
    assert not {"script", "img", "iframe", "object", "link", "a"} & {tag for tag, _ in tags}
    assert not [name for _, names in tags for name in names if name.startswith("on")]
    assert page.count("<svg") == page.count("</svg>")
    for sign in ("\x1b", "\u202e", "\x00", "\x9b"):
        assert sign not in page
    assert "&lt;script&gt;" in page


def test_foreign_text_does_not_steer_a_terminal(tmp_path: Path) -> None:
    page = render(_poisoned(tmp_path), "text")
    assert all(char.isprintable() or char == "\n" for char in page)
    assert "[red]markup[/red]" in re.sub(r"\n +", " ", page)


BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
def test_in_a_real_browser_nothing_executes(tmp_path: Path) -> None:
    assert BROWSER is not None
    page = render(_poisoned(tmp_path), "html")
    # Escaping alone must hold, so the second lock is taken off.
    page, count = re.subn(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    assert count == 1
    file = tmp_path / "history.html"
    file.write_text(page)
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--dump-dom")
    done = subprocess.run(
        [BROWSER, *options, f"--user-data-dir={tmp_path / 'browser'}", file.as_uri()],
        capture_output=True,
        timeout=90,
        check=True,
    )
    seen = done.stdout.decode()
    assert "<title>planted" not in seen
    assert _Tags(seen).seen.count(("h1", ())) == 1
    assert sorted(_Tags(seen).seen) == sorted(_Tags(page).seen)


def test_a_page_stays_one_that_can_be_sent(tmp_path: Path) -> None:
    state = State(tmp_path)
    long = finding("drift.heat", Status.warn, detail="<b>" * 100_000)
    for number in range(40):
        many = (
            tuple(finding("drift.heat", Status.warn, card(i)) for i in range(100)) if number % 2 else (long,)
        )
        state.record(check(minutes(number), many, readings=readings(healthy("h200x8"), number)), NODE)
    history = gather(minutes(40), folder=tmp_path)
    assert len(render(history, "html")) < 1_000_000
    assert len(render(history, "text")) < 60_000


# The command


@pytest.mark.parametrize(
    ("text", "ago"),
    [
        ("90m", timedelta(minutes=90)),
        ("12h", timedelta(hours=12)),
        ("7d", timedelta(days=7)),
        ("2w", timedelta(weeks=2)),
        ("1.5h", timedelta(minutes=90)),
    ],
)
def test_since_takes_a_time_ago(text: str, ago: timedelta) -> None:
    assert moment(text, NOW) == NOW - ago


@pytest.mark.parametrize(
    "text",
    ["2026-12-01T10:00Z", "2026-12-01T10:00", "2026-12-01T12:00+02:00", "2026-12-01T10:00:00.000+00:00"],
)
def test_since_takes_an_iso_time(text: str) -> None:
    assert moment(text, NOW) == datetime(2026, 12, 1, 10, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "m",
        "0d",
        "-5h",
        "9e99w",
        "nanm",
        "infd",
        "7",
        "yesterday",
        "2026-13-01",
        "7 days",
        "0001-01-01T00:00+14:00",
    ],
)
def test_since_says_what_is_no_time(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="write it as 90m"):
        moment(text, NOW)


def test_since_is_no_time_to_come() -> None:
    with pytest.raises(typer.BadParameter, match="still to come: it is 2026-12-01T1"):
        moment("2027-01-01", NOW)


@pytest.fixture
def at_home(folder: Path) -> Iterator[dict[str, str]]:
    home = folder / "home" / "nodecheck"
    home.mkdir(parents=True)
    shutil.copy(state_file(".sqlite3", folder), home)
    yield {**os.environ, "XDG_STATE_HOME": str(home.parent)}


def _history(env: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "nodecheck", "history", *options]
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=False)


def test_the_command_shows_and_writes_it(at_home: dict[str, str], tmp_path: Path) -> None:
    shown = _history(at_home)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "drift.nvlink" in shown.stdout
    written = tmp_path / "history.html"
    assert _history(at_home, "--format", "html", "-o", str(written)).returncode == 0
    assert written.read_text().startswith("<!doctype html>")
    assert json.loads(_history(at_home, "--format", "json", "--since", "2026-01-01T12:28Z").stdout)["since"]


def test_the_command_says_what_it_cannot_do(at_home: dict[str, str], tmp_path: Path) -> None:
    assert _history(at_home, "--since", "soon").returncode == 64
    unwritable = _history(at_home, "-o", str(tmp_path / "no" / "such" / "file"))
    assert unwritable.returncode == 73
    assert "Traceback" not in unwritable.stderr
    nothing = _history({**at_home, "XDG_STATE_HOME": str(tmp_path / "elsewhere")})
    assert nothing.returncode == 0
    assert nothing.stdout.startswith("Nothing is remembered of")


def test_a_terminal_without_blocks_gets_digits(at_home: dict[str, str]) -> None:
    shown = _history({**at_home, "PYTHONIOENCODING": "ascii"})
    assert shown.returncode == 0
    assert re.search(r"GPU 0 \S+  [1-8]{10,}  40 to 70", shown.stdout)

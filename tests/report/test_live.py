from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from nodecheck.report import live
from nodecheck.report.progress import STAGES, Details, Progress

ROOT = Path(__file__).parents[2]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_time_left_goes_by_the_slowest_stage_and_never_below_zero() -> None:
    clock = Clock()
    progress = Progress(clock)
    assert progress.fraction() == 0.0
    assert progress.seconds_left() == STAGES["stack"].typical_seconds
    for stage in STAGES:
        progress.notice(stage, "started")
    clock.now += 2.0
    assert progress.seconds_left() == pytest.approx(6.0)
    progress.notice("cards", "done")
    before = progress.fraction()
    clock.now += 100.0
    assert progress.seconds_left() == 0.0
    assert before < progress.fraction() < 1.0
    for stage in STAGES:
        progress.notice(stage, "done")
    assert progress.fraction() == 1.0


def test_a_stage_nobody_announced_is_shown_too() -> None:
    progress = Progress()
    progress.notice("all_reduce", "started")
    assert "all_reduce" in dict(progress.timings())


def test_measurements_come_after_one_another_once_they_are_planned() -> None:
    clock = Clock()
    progress = Progress(clock)
    for stage in STAGES:
        progress.notice(stage, "started")
        progress.notice(stage, "done")
    progress.notice("measure.hbm", "planned", Details(seconds=4.0))
    progress.notice("measure.host", "planned", Details(seconds=6.0))
    assert progress.seconds_left() == pytest.approx(10.0)
    progress.notice("measure.hbm", "started")
    clock.now += 1.0
    assert progress.seconds_left() == pytest.approx(9.0)
    progress.notice("measure.hbm", "progress", Details(card="GPU 2", fraction=0.5, figure="copy 4297 GB/s"))
    progress.notice("measure.hbm", "progress", Details(card="GPU 1", fraction=0.25, figure="copy 4290 GB/s"))
    shown = live._figure(dict(progress.timings())["measure.hbm"])
    assert shown == "25%  GPU 1: copy 4290 GB/s"
    progress.notice("measure.hbm", "done")
    assert progress.seconds_left() == pytest.approx(6.0)
    # Asked for once more, it goes on from where it was.
    clock.now += 50.0
    progress.notice("measure.hbm", "started")
    clock.now += 1.0
    progress.notice("measure.hbm", "done")
    assert progress.seconds(dict(progress.timings())["measure.hbm"]) == pytest.approx(2.0)


def test_in_a_pipe_each_end_of_a_stage_is_a_plain_line() -> None:
    stream = io.StringIO()
    with live.display(stream=stream) as notice:
        for stage in ("host", "odd\x1b[2J\u202estage"):
            notice(stage, "started")
            notice(stage, "done")
        notice("cards", "started")
        notice("cards", "failed")
        notice("measure.pairs", "planned", Details(seconds=3.0))
        notice("measure.pairs", "started")
        notice("measure.pairs", "progress", Details(card="GPU 0", fraction=0.5, figure="379 GB/s"))
        notice("measure.pairs", "done")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 4
    assert re.fullmatch(r"nodecheck: links between cards: measured in \d\.\d s", lines[3])
    assert re.fullmatch(r"nodecheck: machine: seen in \d\.\d s", lines[0])
    assert re.fullmatch(r"nodecheck: cards: not seen, after \d\.\d s", lines[2])
    assert all(line.isprintable() for line in lines)


def test_quiet_says_nothing() -> None:
    stream = io.StringIO()
    with live.display(quiet=True, stream=stream) as notice:
        notice("host", "started")
        notice("host", "done")
    assert stream.getvalue() == ""


def test_nobody_reading_does_not_end_the_run() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream:
        with live.display(stream=stream) as notice:
            notice("host", "started")
            notice("host", "done")
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def test_threads_may_tell_at_once() -> None:
    stream = io.StringIO()
    with live.display(stream=stream) as notice:

        def work(number: int) -> None:
            notice(f"stage {number}", "started")
            notice(f"stage {number}", "done")

        threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    lines = stream.getvalue().splitlines()
    assert len(lines) == 16
    assert all(re.fullmatch(r"nodecheck: stage \d+: seen in 0\.0 s", line) for line in lines)


PROGRAM = """
import time
from nodecheck.report import live
with live.display() as notice:
    notice("host", "started")
    time.sleep(0.3)
    notice("host", "done")
    notice("cards", "started")
    time.sleep(0.3)
    notice("cards", "failed")
print("after")
"""


def test_on_a_terminal_the_list_of_stages_is_drawn_and_vanishes() -> None:
    leader, follower = pty.openpty()
    environment = {"PYTHONPATH": str(ROOT), "PATH": "", "TERM": "xterm", "COLUMNS": "80", "PYTHONUTF8": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=follower, stdout=follower, stderr=follower, env=environment
    ) as process:
        os.close(follower)
        drawn = b""
        try:
            while chunk := os.read(leader, 65536):
                drawn += chunk
        except OSError:
            pass  # the other end is closed
        assert process.wait(30) == 0
    os.close(leader)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", drawn.decode())
    assert "machine" in text
    assert re.search(r"about \d+ s left", text)
    assert drawn.rstrip().endswith(b"after")
    assert b"\x1b[2K" in drawn  # it was wiped

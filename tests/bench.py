"""`make bench`: how long nodecheck takes and how much memory, here and now. Prints what it measured, nothing else."""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from nodecheck.cli.run import Run
from nodecheck.facts import NOT_ASKED
from nodecheck.judge import Status, Verdict, judge
from nodecheck.profile import load
from nodecheck.rental.state import State
from nodecheck.report import document
from tests.fakes import nvml
from tests.fakes.node import healthy
from tests.fakes.tree import Ground
from tests.judge.cases import healthy as nodes
from tests.rental import day
from tests.rental.killing import kill_writers
from tests.rental.looks import card, check, minutes, readings
from tests.report.samples import finding
from tests.surveys import standing_in

ROOT = Path(__file__).parents[1]
NODECHECK = [sys.executable, "-m", "nodecheck"]


@dataclass
class Timed:
    wall_seconds: float
    cpu_seconds: float
    """Of the process and of its children."""
    peak_mb: float
    """Resident memory of the process itself."""
    code: int


def timed(argv: list[str], environment: dict[str, str] | None = None) -> Timed:
    began = time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    child = subprocess.Popen(
        argv, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
    )
    peak = 0.0
    while child.poll() is None:
        peak = max(peak, _peak(child.pid))
        time.sleep(0.005)
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Timed(wall, cpu, peak, child.returncode)


def _peak(pid: int) -> float:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    lines = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(lines[0].split()[1]) / 1024 if lines else 0.0


def row(name: str, argv: list[str], repeats: int, environment: dict[str, str] | None = None) -> None:
    runs = [timed(argv, environment) for _ in range(repeats)]
    seconds = [run.wall_seconds for run in runs]
    print(
        f"{name:<44} {statistics.median(seconds):6.2f} s ({min(seconds):.2f} to {max(seconds):.2f}, {repeats} runs)"
        f"  CPU {statistics.median(run.cpu_seconds for run in runs):5.2f} s"
        f"  peak {max(run.peak_mb for run in runs):3.0f} MB  exit {runs[-1].code}",
        flush=True,
    )


def accept(profile: str, folder: str, *more: str) -> list[str]:
    return [
        *NODECHECK,
        "accept",
        "--level",
        "quick",
        "--quiet",
        "--profile",
        profile,
        "--report-dir",
        folder,
        *more,
    ]


def this_machine(profile: str) -> None:
    for name, repeats in (("first", 1), ("again", 5)):
        with tempfile.TemporaryDirectory() as folder:
            row(f"accept --level quick, {name} ({profile})", accept(profile, folder), repeats)
            for report in sorted(Path(folder).glob("*/report.json"))[-1:]:
                durations = json.loads(report.read_text())["durations_seconds"]
                print(
                    "    of these: " + ", ".join(f"{stage} {took:.2f} s" for stage, took in durations.items())
                )


def eight_cards() -> None:
    """Eight cards with all links and pairs: NVML's answers through the real binding, over the stand-in library."""
    node = healthy("h200x8")
    with tempfile.TemporaryDirectory() as folder:
        seconds = []
        for number in range(5):
            ground = Ground(Path(folder) / str(number))
            # A description of its own each time: the same one would be answered from memory.
            node.nvml["nvmlSystemGetDriverBranch"] = f"bench{number}"
            nvml_channel = node.channels(ground)["nvml"]
            began = time.perf_counter()
            nvml_channel.ask("survey")
            seconds.append(time.perf_counter() - began)
    print(
        f"{'NVML survey of 8 cards, stand-in library':<44} {statistics.median(seconds):6.2f} s "
        f"({min(seconds):.2f} to {max(seconds):.2f}, 5 runs)"
    )


def remembered() -> None:
    """The state of eight cards: a day of checks every minute, 40 days of one every 15 minutes, and SIGKILL."""
    node = nodes("h200x8")
    with tempfile.TemporaryDirectory() as folder:
        for name, first, last, every in (
            ("state, 1,440 checks of a day", 0, 1440, 1),
            ("state, then 40 days of 96", 1440, 41 * 1440, 15),
        ):
            state, seconds = State(Path(folder), "bench"), []
            for number in range(first, last, every):
                found = [finding("drift.heat", Status.warn, card(0))] * (number % 500 < 30)
                result = check(minutes(number), found, readings=readings(node, number))
                began = time.perf_counter()
                state.record(result, node)
                seconds.append(time.perf_counter() - began)
            episodes = len(state.episodes())
            state.close()
            print(
                f"{name:<44} {statistics.median(seconds) * 1000:6.1f} ms each (longest {max(seconds) * 1000:.0f} ms), "
                f"{state.path.stat().st_size / 1e6:.2f} MB, {episodes} episodes"
            )
    with tempfile.TemporaryDirectory() as folder:
        recorded = kill_writers(Path(folder), points=200, seed=int(time.time()))
        print(
            f"{'state, writers killed at 200 random points':<44} {recorded} checks, none lost but the killed run"
        )


def checks() -> None:
    """`nodecheck check` of eight cards, NVML over the stand-in library; and a day of checks without the processes."""
    with tempfile.TemporaryDirectory() as folder:
        description, report = Path(folder) / "node.json", Path(folder) / "report.json"
        cards = nvml.describe("h200", 8)
        nvml.write(cards, description)
        with standing_in(cards):
            node = Run(None, None, "quick").glance(NOT_ASKED)
        profile = load("h200x8")
        judgement = judge(node, profile).model_copy(update={"verdict": Verdict.accepted})
        report.write_text(document.dump(document.build(node, profile, judgement)))
        environment = {**os.environ, **nvml.environment(description), "XDG_STATE_HOME": folder}
        row(
            "check of 8 cards, stand-in library",
            [*NODECHECK, "check", "--baseline", str(report)],
            9,
            environment,
        )
    with tempfile.TemporaryDirectory() as folder:
        told = day.run(Path(folder))
        right = "each change told once" if sorted(told.told) == sorted(day.EXPECTED) else f"told {told.told}"
        print(
            f"{f'a day of {len(told.seconds)} checks of 8 cards':<44} {sum(told.seconds):6.0f} s, "
            f"{statistics.median(told.seconds) * 1000:.0f} ms each; state {told.state_bytes / 1024:.0f} KiB; {right}"
        )


def main() -> None:
    """Every benchmark that this machine allows."""
    row("--help", [*NODECHECK, "--help"], 9)
    suggested = subprocess.run(
        [*NODECHECK, "profiles", "suggest"], capture_output=True, text=True, check=False
    )
    if suggested.returncode == 0:
        row("profiles suggest (cards without torch)", [*NODECHECK, "profiles", "suggest"], 5)
        this_machine(suggested.stdout.strip())
    recording = str(ROOT / "tests" / "nodes" / "h200x8")
    with tempfile.TemporaryDirectory() as folder:
        row("accept over an 8-card recording (h200x8)", accept("h200x8", folder, "--from", recording), 5)
    if shutil.which("cc"):
        eight_cards()
        checks()
    remembered()


if __name__ == "__main__":
    main()

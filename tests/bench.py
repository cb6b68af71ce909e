"""`make bench`: how long nodecheck takes and how much memory, here and now. Prints what it measured, nothing else."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from nodecheck.judge import Status
from nodecheck.rental.state import State
from tests.fakes.node import healthy
from tests.fakes.tree import Ground
from tests.judge.cases import healthy as nodes
from tests.rental.killing import kill_writers
from tests.rental.looks import card, check, minutes, readings
from tests.report.samples import finding

ROOT = Path(__file__).parents[1]
NODECHECK = [sys.executable, "-m", "nodecheck"]


def timed(argv: list[str]) -> tuple[float, float, int]:
    """Wall seconds, peak resident MB of the process itself (its children are not in it), exit code."""
    began = time.perf_counter()
    child = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peak = 0.0
    while child.poll() is None:
        peak = max(peak, _peak(child.pid))
        time.sleep(0.005)
    return time.perf_counter() - began, peak, child.returncode


def _peak(pid: int) -> float:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    lines = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(lines[0].split()[1]) / 1024 if lines else 0.0


def row(name: str, argv: list[str], repeats: int) -> None:
    runs = [timed(argv) for _ in range(repeats)]
    seconds = [run[0] for run in runs]
    print(
        f"{name:<44} {statistics.median(seconds):6.2f} s ({min(seconds):.2f} to {max(seconds):.2f}, {repeats} runs)"
        f"  peak {max(run[1] for run in runs):3.0f} MB  exit {runs[-1][2]}",
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
    remembered()


if __name__ == "__main__":
    main()

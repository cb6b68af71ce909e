"""`make bench`: how long nodecheck takes and how much memory, here and now. Prints what it measured, nothing else."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
NODECHECK = [sys.executable, "-m", "nodecheck"]
RECORDING = ROOT / "tests" / "nodes" / "h200x8"


def timed(argv: list[str], env: dict[str, str] | None = None) -> tuple[float, float, int]:
    """Wall seconds, peak resident MB of the process itself, exit code."""
    began = time.perf_counter()
    child = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
    _, status, usage = os.wait4(child.pid, 0)
    return time.perf_counter() - began, usage.ru_maxrss / 1024, os.waitstatus_to_exitcode(status)


def row(name: str, argv: list[str], repeats: int, env: dict[str, str] | None = None) -> None:
    runs = [timed(argv, env) for _ in range(repeats)]
    seconds = [run[0] for run in runs]
    print(
        f"{name:<46} {statistics.median(seconds):7.3f} s  ({min(seconds):.3f} to {max(seconds):.3f}, {repeats} runs)"
        f"  peak {max(run[1] for run in runs):5.0f} MB  exit {runs[-1][2]}"
    )


def stages(folder: Path) -> None:
    for report in sorted(folder.glob("*/report.json")):
        durations = json.loads(report.read_text())["durations"]
        print("    stages: " + ", ".join(f"{name} {seconds:.2f} s" for name, seconds in durations.items()))


def main() -> None:
    """Run every benchmark that this machine allows."""
    row("nodecheck --help", [*NODECHECK, "--help"], 7)
    profile = subprocess.run(
        [*NODECHECK, "profiles", "suggest"], capture_output=True, text=True, check=False
    ).stdout.strip()
    if profile:
        for name in ("accept --level quick, first", "accept --level quick, again"):
            with tempfile.TemporaryDirectory() as folder:
                row(f"{name} ({profile})", accept(profile, folder), 1 if "first" in name else 3)
                stages(Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        row(
            "accept over an 8-card recording (h200x8)",
            [*accept("h200x8", folder), "--from", str(RECORDING)],
            5,
        )
    if shutil.which("cc"):
        eight_cards()


def accept(profile: str, folder: str) -> list[str]:
    return [*NODECHECK, "accept", "--level", "quick", "--quiet", "--profile", profile, "--report-dir", folder]


def eight_cards() -> None:
    """The NVML survey of eight cards through the real binding and child process, over the stand-in library."""
    raise NotImplementedError


if __name__ == "__main__":
    main()

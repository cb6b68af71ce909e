"""Builds the sample reports of this folder from the recorded nodes in `tests/nodes` (`make samples`)."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

from nodecheck.cli.options import load_profile
from nodecheck.cli.run import Run
from nodecheck.judge import judge
from nodecheck.report import document, folder

HERE = Path(__file__).parent
NODES = HERE.parent / "tests" / "nodes"

SAMPLES = {
    "h200x4-accepted": "h200x4",
    "h200x4-rejected": "h200x4",
    "h200x4-incomplete": "h200x4",
    "h200x1": "h200x1",
    "h200x2": "h200x2",
    "mi300xx8": "mi300xx8",
    "mi300xx8-rejected": "mi300xx8",
}
"""Recorded node → the profile it is judged against."""


def main() -> None:
    """Every sample, to the same bytes each time: dated by its recording, without the time that judging took."""
    for name, profile_name in SAMPLES.items():
        node = Run(NODES / name, None, None).look(profile_name)
        profile = load_profile(profile_name)
        report = document.build(
            node,
            profile,
            judge(node, profile),
            created_at=node.taken_at + timedelta(seconds=5),
            argv=["accept", "--from", f"tests/nodes/{name}", "--profile", profile_name],
        )
        written = folder.write(report, HERE)
        shutil.rmtree(HERE / name, ignore_errors=True)
        written.path.rename(HERE / name)


if __name__ == "__main__":
    main()

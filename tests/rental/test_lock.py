from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import pytest

from nodecheck.rental.lock import Busy, lock
from nodecheck.rental.place import StateError

HOLDER = """
import sys, time
from pathlib import Path
from nodecheck.rental.lock import lock
with lock(Path(sys.argv[1]), "n"):
    print("held", flush=True)
    time.sleep(60)
"""


def _holder(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLDER, folder], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_run_is_told_who_holds_it(tmp_path: Path) -> None:
    with _holder(tmp_path) as holder:
        for _ in range(2):  # that somebody asked does not wipe out the answer
            with (
                pytest.raises(
                    Busy, match=rf"\(process {holder.pid}, since {datetime.now(timezone.utc):%Y-%m-%d}"
                ),
                lock(tmp_path, "n"),
            ):
                pass
        with lock(tmp_path, "another"):
            pass
        holder.kill()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_whatever_ends_the_holder_frees_the_lock(tmp_path: Path, number: int) -> None:
    with _holder(tmp_path) as holder:
        os.kill(holder.pid, number)
        holder.wait()
    with lock(tmp_path, "n"):
        pass


def test_it_is_free_again_after_a_run_that_failed(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), lock(tmp_path, "n"):
        raise RuntimeError
    with lock(tmp_path, "n"):
        pass


@pytest.mark.parametrize(
    "left", ["", "1 whenever\n", "\x00\xff", "9" * 5000, "7 2026-12-01 10:00:00 UTC\nmore"]
)
def test_what_another_left_in_the_file_is_no_lock_and_no_message(tmp_path: Path, left: str) -> None:
    (tmp_path / "n.lock").write_text(left)
    with lock(tmp_path, "n"):
        (tmp_path / "n.lock").write_text(left)
        with pytest.raises(Busy, match="another run is at work on this node: "), lock(tmp_path, "n"):
            pass


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StateError, match="cannot make the folder"), lock(tmp_path / "file" / "below"):
        pass


def test_a_place_that_cannot_be_locked_is_told(tmp_path: Path) -> None:
    (tmp_path / "n.lock").mkdir()
    with pytest.raises((StateError, Busy)), lock(tmp_path, "n"):
        pass

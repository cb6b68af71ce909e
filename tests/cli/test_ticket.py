"""`nodecheck ticket` as a user runs it: what it writes, what it says, and its exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from nodecheck.report import folder
from tests.report.test_folder import judged


def nodecheck(*argv: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nodecheck", "ticket", *map(str, argv)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture
def written(tmp_path: Path) -> Path:
    return folder.write(judged(), tmp_path / "reports", {"worker.log": b"password=hunter22"}).path


def test_a_ticket_is_written_where_it_is_wanted_for_its_owner_alone(written: Path, tmp_path: Path) -> None:
    done = nodecheck(written, "-o", "t.zip", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("wrote t.zip: 1 report, ")
    assert (tmp_path / "t.zip").stat().st_mode & 0o777 == 0o600
    names = zipfile.ZipFile(tmp_path / "t.zip").namelist()
    assert {"summary.md", "summary.txt", "replaced.md", "manifest.json"} < set(names)
    assert any(name.endswith("/evidence/worker.log") for name in names)


def test_without_a_name_it_takes_the_reports(written: Path, tmp_path: Path) -> None:
    done = nodecheck(written / "report.json", "--to", "renter", cwd=tmp_path)
    assert done.returncode == 0
    (made,) = tmp_path.glob("ticket-*.zip")
    assert json.loads(zipfile.ZipFile(made).read("manifest.json"))["to"] == "renter"


def test_a_damaged_one_is_named_and_the_ticket_is_written(written: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{")
    done = nodecheck("broken.json", written, "-o", "t.zip", cwd=tmp_path)
    assert done.returncode == 65
    assert "left out: broken.json" in done.stderr
    assert (tmp_path / "t.zip").exists()
    alone = nodecheck("broken.json", "-o", "u.zip", cwd=tmp_path)
    assert (alone.returncode, alone.stderr.count("\n")) == (65, 1)
    assert not (tmp_path / "u.zip").exists()


@pytest.mark.parametrize("place", ["nowhere/t.zip", "folder", "/proc/t.zip", "/dev/full"])
def test_what_cannot_be_written_leaves_nothing(place: str, written: Path, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    before = sorted(tmp_path.iterdir())
    done = nodecheck(written, "-o", place, cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (73, 1), done.stderr
    assert sorted(tmp_path.iterdir()) == before
    assert list((tmp_path / "folder").iterdir()) == []


def test_wrong_usage(written: Path, tmp_path: Path) -> None:
    assert nodecheck(cwd=tmp_path).returncode == 64
    assert nodecheck(written, "--to", "press", cwd=tmp_path).returncode == 64


def test_on_stdout_stands_the_zip_alone(written: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "nodecheck", "ticket", str(written), "-o", "/dev/stdout"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0
    (tmp_path / "t.zip").write_bytes(done.stdout)
    assert zipfile.ZipFile(tmp_path / "t.zip").testzip() is None

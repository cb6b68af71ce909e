"""`nodecheck judge` of files that are no files, too large, or in another order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nodecheck.report import document
from tests.report.test_folder import judged


def judge(path: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nodecheck", "judge", str(path), "--quiet"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("name", ["pipe", "/dev/zero", "a/b", "many.json"])
def test_what_cannot_be_read_is_refused_at_once(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "many.json").write_text('{"cards": [' + "{}," * 1_000_000 + "{}]}")
    done = judge(tmp_path / name)
    assert (done.returncode, done.stderr.count("\n")) == (65, 1), done.stderr


def test_a_report_is_one_in_whatever_order_its_keys_stand(tmp_path: Path) -> None:
    raw = json.loads(document.dump(judged()))
    (tmp_path / "report.json").write_text(json.dumps(raw, sort_keys=True))
    done = judge(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "h200x2" in done.stdout

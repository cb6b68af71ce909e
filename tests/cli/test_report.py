from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nodecheck.report import FORMATS, document, folder, render
from tests.report import samples
from tests.report.test_folder import judged

ROOT = Path(__file__).parents[2]


def nodecheck(*argv: str | Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "nodecheck", "report", *map(str, argv)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=60,
    )
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture
def written(tmp_path: Path) -> folder.Written:
    return folder.write(judged(), tmp_path / "reports", {"files.json": b"{}"})


def test_the_command_offers_every_format() -> None:
    from nodecheck.cli.report import Format

    assert {form.value for form in Format} == set(FORMATS)


@pytest.mark.parametrize("form", sorted(FORMATS))
def test_render_prints_what_the_library_renders(form: str, written: folder.Written) -> None:
    done = nodecheck("render", written.path, "--format", form)
    assert done.returncode == 0, done.stderr
    assert done.stdout == render(written.report, form)


def test_render_writes_a_file(written: folder.Written, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = nodecheck("render", written.path / "report.json", "-f", "html", "-o", page)
    assert (done.returncode, done.stdout) == (0, "")
    assert page.read_bytes() == (written.path / "report.html").read_bytes()


def test_render_to_a_full_disk(written: folder.Written) -> None:
    done = nodecheck("render", written.path, "-f", "md", "-o", "/dev/full")
    assert done.returncode == 73
    assert done.stderr == "nodecheck: cannot write /dev/full: No space left on device\n"


def test_what_is_no_report(tmp_path: Path) -> None:
    for command in ("render", "verify"):
        done = nodecheck(command, tmp_path)
        assert done.returncode == 65
        assert done.stderr.count("\n") == 1


def test_an_unknown_format_is_wrong_usage(written: folder.Written) -> None:
    assert nodecheck("render", written.path, "-f", "pdf").returncode == 64


def test_verify(written: folder.Written) -> None:
    done = nodecheck("verify", written.path)
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("as it was written: facts, profile, judgement, run, ")
    with (written.path / "report.md").open("a") as file:
        file.write("One more thing.\n")
    done = nodecheck("verify", written.path)
    assert done.returncode == 2
    assert done.stdout == "report.md: changed since the report was written (its SHA-256 is another)\n"


def test_schema() -> None:
    done = nodecheck("schema")
    assert json.loads(done.stdout) == document.schema()


def test_a_reader_that_goes_away(written: folder.Written) -> None:
    big = samples.rejected(8)
    path = written.path.parent / "big.json"
    path.write_text(document.dump(big))
    with subprocess.Popen(
        [sys.executable, "-m", "nodecheck", "report", "render", str(path), "-f", "html"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()
        assert process.wait(30) == 0


def test_diff_says_what_differs_and_exits_with_0(tmp_path: Path) -> None:
    one, other = ROOT / "reports" / "h200x4-accepted", ROOT / "reports" / "h200x4-rejected"
    for form in ("terminal", "md", "json"):
        done = nodecheck("diff", one, other, "--format", form)
        assert (done.returncode, done.stderr) == (0, "")
        assert "cards.power_limit" in done.stdout
        assert nodecheck("diff", one, other, "--format", form, "-o", tmp_path / "told").stdout == ""
        assert (tmp_path / "told").read_text() == done.stdout
    assert nodecheck("diff", one, one).returncode == 0
    (tmp_path / "report.json").write_text("{")
    damaged = nodecheck("diff", one, tmp_path)
    assert damaged.returncode == 65
    assert "Traceback" not in damaged.stderr
    assert nodecheck("diff", one).returncode == 64

"""The profiles travel inside the wheel and are found there."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from nodecheck.profile import names

PROJECT = Path(__file__).parents[2]


@pytest.mark.skipif(find_spec("hatchling") is None, reason="hatchling is not installed")
def test_a_wheel_holds_the_profiles_and_finds_them(tmp_path: Path) -> None:
    copy, built, unpacked = tmp_path / "copy", tmp_path / "built", tmp_path / "unpacked"
    copy.mkdir()
    for folder in ("nodecheck", "profiles"):
        shutil.copytree(PROJECT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "LICENSE", "README.md"):
        shutil.copy(PROJECT / file, copy / file)
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(built)],
        cwd=copy,
        check=True,
        capture_output=True,
        timeout=60,
    )
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if name.endswith(".toml") and "/profiles/" in name}
        archive.extractall(unpacked)
    assert inside == {f"nodecheck/profiles/{path.name}" for path in (PROJECT / "profiles").glob("*.toml")}

    program = (
        "import nodecheck.profile as p; print(p.__file__); [p.load(n) for n in p.names()]; print(*p.names())"
    )
    answer = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(unpacked)!r}); {program}"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout.splitlines()
    assert Path(answer[0]).is_relative_to(unpacked)
    assert tuple(answer[1].split()) == names()

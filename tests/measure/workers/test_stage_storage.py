from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

STAGE = Path(__file__).parents[3] / "nodecheck" / "measure" / "workers" / "stage_storage.py"


@pytest.fixture
def stage(worker: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    stage = worker.beside("stage_storage")
    monkeypatch.setitem(stage.FILE_BYTES, "standard", 4 * 2**20)
    monkeypatch.setitem(stage.WINDOW_SECONDS, "standard", 0.01)
    return stage


def asked(*folders: Path) -> dict[str, Any]:
    return {"level": "standard", "folders": [str(folder) for folder in folders]}


@pytest.fixture(params=["direct", "through the cache", "with a name"])
def way(request: pytest.FixtureRequest, stage: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "through the cache":
        monkeypatch.setattr(stage, "O_DIRECT", 0)
    if request.param == "with a name":
        monkeypatch.setattr(stage, "O_TMPFILE", 0)
    return str(request.param)


def test_rows(worker: Any, stage: Any, tmp_path: Path, way: str) -> None:
    answer = worker.run("storage", asked(tmp_path))
    assert [(row["measure"], row["ranks"], row["unit"]) for row in answer["rows"]] == [
        ("storage.sequential_write", 1, "GB/s"),
        ("storage.sequential_read", 1, "GB/s"),
        ("storage.sequential_write", stage.SEVERAL, "GB/s"),
        ("storage.sequential_read", stage.SEVERAL, "GB/s"),
        ("storage.random_read", 1, "IOPS"),
        ("storage.random_write", 1, "IOPS"),
        ("storage.random_read", stage.RANDOM_SEVERAL, "IOPS"),
        ("storage.random_write", stage.RANDOM_SEVERAL, "IOPS"),
    ]
    for row in answer["rows"]:
        assert row["name"] == str(tmp_path)
        assert row["size_bytes"] <= 4 * 2**20
        assert row["values"]
        assert all(value > 0 for value in row["values"])
    told = answer["folders"][str(tmp_path)]
    assert told["file_bytes"] == 4 * 2**20
    if way == "through the cache":
        assert told["direct"] is False
    assert list(tmp_path.iterdir()) == []


def test_file_has_no_name_while_it_is_used(
    worker: Any, stage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    seen: list[list[Path]] = []
    write = stage.File.write

    def looking(self: Any, buffer: Any, offset: int) -> None:
        write(self, buffer, offset)
        seen.append(list(tmp_path.iterdir()))

    monkeypatch.setattr(stage.File, "write", looking)
    worker.run("storage", asked(tmp_path))
    assert seen
    assert not any(seen)


def test_what_is_left_by_one_that_is_killed(tmp_path: Path) -> None:
    """In a process of its own, killed while it writes."""
    program = (
        "import importlib.util, sys, types\n"
        "spec = importlib.util.spec_from_file_location('stage', sys.argv[1])\n"
        "stage = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(stage)\n"
        "stage.PATIENCE_SECONDS['standard'] = 60\n"
        "worker = types.SimpleNamespace(step=lambda name: print(name, flush=True), progress=lambda *a: None)\n"
        "while True: stage.run(worker, {'folders': [sys.argv[2]]})\n"
    )
    arguments = [sys.executable, "-c", program, str(STAGE), str(tmp_path)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        child.send_signal(signal.SIGKILL)
    assert list(tmp_path.iterdir()) == []


def test_wrong_bytes(worker: Any, stage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = stage.File.read

    def shifted(self: Any, buffer: Any, offset: int) -> None:
        read(self, buffer, 0)

    monkeypatch.setattr(stage.File, "read", shifted)
    with pytest.raises(stage.WrongData, match=r"other bytes were read at \d+ than were written"):
        worker.run("storage", asked(tmp_path))


def test_two_folders_of_one_disk_and_one_that_is_not_there(worker: Any, stage: Any, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    answer = worker.run("storage", asked(tmp_path, other, tmp_path / "none"))
    assert {row["name"] for row in answer["rows"]} == {str(tmp_path)}
    same, none = answer["absent"]
    assert same["name"] == str(other)
    assert same["why"] == f"on the same file system as {tmp_path}"
    assert none["code"] == errno.ENOENT


def test_no_folder_at_all(worker: Any, stage: Any, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        worker.run("storage", asked(tmp_path / "none"))


def test_never_more_than_half_of_what_is_free(
    worker: Any, stage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def room(free: int) -> Any:
        return lambda folder: os.statvfs_result((4096, 4096, 0, 0, free // 4096, 0, 0, 0, 0, 255))

    monkeypatch.setattr(stage.os, "statvfs", room(6 * 2**20))
    answer = worker.run("storage", asked(tmp_path))
    assert answer["folders"][str(tmp_path)]["file_bytes"] == 3 * 2**20
    monkeypatch.setattr(stage.os, "statvfs", room(2**20))
    with pytest.raises(OSError, match="only 1048576 bytes are free") as caught:
        worker.run("storage", asked(tmp_path))
    assert caught.value.errno == errno.ENOSPC


@pytest.fixture
def small_limit() -> Iterator[int]:
    """No file of this process may grow beyond 2 MiB."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 * 2**20, before[1]))
    yield 2 * 2**20
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_file_that_may_not_grow(worker: Any, stage: Any, tmp_path: Path, way: str, small_limit: int) -> None:
    with pytest.raises(OSError, match=r"File too large|could be written") as caught:
        worker.run("storage", asked(tmp_path))
    assert caught.value.errno in (errno.EFBIG, errno.ENOSPC)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of 8 MiB."""
    with tempfile.TemporaryDirectory() as folder:
        made = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=8m", "none", folder], capture_output=True, check=False
        )
        if made.returncode:
            pytest.skip("may not mount")
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", folder], check=True)


def test_disk_that_fills_up_meanwhile(
    worker: Any, stage: Any, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statvfs = os.statvfs

    def then_filled(folder: str) -> Any:
        room = statvfs(folder)
        (small_disk / "another's").write_bytes(bytes(6 * 2**20))
        return room

    monkeypatch.setattr(stage.os, "statvfs", then_filled)
    with pytest.raises(OSError, match=r"No space left|could be written") as caught:
        worker.run("storage", asked(small_disk))
    assert caught.value.errno == errno.ENOSPC
    assert [path.name for path in small_disk.iterdir()] == ["another's"]
    room = statvfs(small_disk)
    assert room.f_bavail * room.f_frsize < 3 * 2**20
    assert room.f_bavail * room.f_frsize >= 2**20  # what was written is free again


def test_direct_refused(worker: Any, stage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As older tmpfs and some network file systems do, when the file is opened."""
    open_ = os.open

    def refusing(path: str, flags: int, *mode: int) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return open_(path, flags, *mode)

    monkeypatch.setattr(stage.os, "open", refusing)
    answer = worker.run("storage", asked(tmp_path))
    assert answer["folders"][str(tmp_path)]["direct"] is False
    assert len(answer["rows"]) == 8
    assert list(tmp_path.iterdir()) == []


def test_direct_refused_at_the_first_write(
    worker: Any, stage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite = os.pwrite
    refused: list[int] = []

    def refusing(descriptor: int, buffer: Any, offset: int) -> int:
        if not refused:
            refused.append(descriptor)
            raise OSError(errno.EINVAL, "Invalid argument")
        return pwrite(descriptor, buffer, offset)

    monkeypatch.setattr(stage.os, "pwrite", refusing)
    answer = worker.run("storage", asked(tmp_path))
    assert answer["folders"][str(tmp_path)]["direct"] is False


def test_slow_disk_uses_less_of_the_file(
    worker: Any, stage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(stage.PATIENCE_SECONDS, "standard", 0.0)
    rows = worker.run("storage", asked(tmp_path))["rows"]
    assert rows[0]["size_bytes"] == 4 * 2**20 // stage.SEGMENTS
    assert len(rows[0]["values"]) == len(rows[1]["values"]) == 1
    assert len(rows) == 8

"""Recordings: what is saved comes back; what is damaged, oversized, hostile or foreign is refused in one sentence."""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import json
import os
import stat
import tarfile
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodecheck import __version__
from nodecheck.facts import Absent, Why
from nodecheck.sources import NAMES, Sources, recording
from nodecheck.sources.channel import Json
from nodecheck.sources.recording import MANIFEST, RecordingError, load, members, save

TAKEN_AT = datetime(2026, 12, 1, 9, 30, 5, 250000, tzinfo=timezone.utc)

ANSWERS: dict[str, dict[str, Json]] = {
    "files": {
        "read /proc/uptime": {"value": "86400.00 1.00\n"},
        "list /dev": {"absent": "no_permission", "detail": "Permission denied"},
        "usage /": {"value": [3 * 10**12, 10**12]},
        "kmsg": {"value": "5,0,0,-;Linux version 6.8.0 € 😀\n"},
    },
    "process": {
        "uname": {"value": {"node": "gpu17", "release": "6.8.0", "version": "#1", "machine": "x86_64"}}
    },
    "commands": {"dmesg": {"value": {"returncode": 1, "stdout": "", "stderr": "no", "seconds": 0.25}}},
    "nvml": {"survey": {"value": {"nvmlDeviceGetName(0)": "NVIDIA H200", "nvmlDeviceGetCount_v2()": 1}}},
    "amdsmi": {"survey": {"value": {"amdsmi_get_gpu_device_bdf(0)": {"value": "0000:0c:00.0"}}}},
    "interpreter": {"chosen": {"value": {"path": "/opt/venv/bin/python3", "others": []}}},
    "workers": {
        'context {"cards": ["cpu0"]}': {"value": {"answers": {"cpu0": {"rows": []}}, "seconds": 0.5}}
    },
}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "node.tar.gz"
    save(ANSWERS, path, keep_identity=True, taken_at=TAKEN_AT)
    return path


def refusal(path: Path) -> str:
    """The one sentence with which a recording is refused."""
    with pytest.raises(RecordingError) as caught:
        load(path)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert str(path) in sentence
    return sentence


def pack(path: Path, files: dict[str, bytes]) -> Path:
    """An archive with these files, whatever they are."""
    with tarfile.open(path, "w:gz", format=tarfile.USTAR_FORMAT) as packed:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            packed.addfile(entry, io.BytesIO(content))
    return path


def changed(**contents: bytes) -> dict[str, bytes]:
    """A recording's files with some members replaced, and hashes that fit."""
    files = members(ANSWERS, taken_at=TAKEN_AT)
    manifest = json.loads(files[MANIFEST])
    for name, content in contents.items():
        files[f"{name}.json"] = content
        manifest["members"][f"{name}.json"] = hashlib.sha256(content).hexdigest()
    files[MANIFEST] = json.dumps(manifest).encode()
    return files


def with_manifest(**changes: Json) -> dict[str, bytes]:
    files = members(ANSWERS, taken_at=TAKEN_AT)
    manifest = json.loads(files[MANIFEST]) | changes
    return {**files, MANIFEST: json.dumps(manifest).encode()}


# Saving and reading back.


def test_what_is_saved_comes_back(archive: Path) -> None:
    loaded = load(archive)
    assert loaded.answers == ANSWERS
    assert (loaded.taken_at, loaded.tool_version) == (TAKEN_AT, __version__)


def test_the_sources_answer_from_it_as_the_node_did(archive: Path) -> None:
    sources = Sources.recorded(load(archive).answers)
    assert sources.files.read("/proc/uptime") == "86400.00 1.00\n"
    assert str(sources.files.list("/dev")) == "no permission: Permission denied"
    assert "does not hold" in str(sources.files.read("/never/asked"))


def test_an_archive_holds_exactly_its_members_readable_by_its_owner(archive: Path) -> None:
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    with tarfile.open(archive) as packed:
        entries = packed.getmembers()
    assert [entry.name for entry in entries] == [MANIFEST, *(f"{name}.json" for name in NAMES)]
    assert {(entry.mtime, entry.uid, entry.uname, entry.mode, entry.type) for entry in entries} == {
        (0, 0, "", 0o600, tarfile.REGTYPE)
    }
    assert os.listdir(archive.parent) == ["node.tar.gz"]  # noqa: PTH208


def test_the_same_answers_give_the_same_bytes(tmp_path: Path, archive: Path) -> None:
    again = tmp_path / "again.tar.gz"
    reordered = {source: dict(reversed(ANSWERS[source].items())) for source in reversed(ANSWERS)}
    save(reordered, again, keep_identity=True, taken_at=TAKEN_AT)
    assert again.read_bytes() == archive.read_bytes()


def test_the_manifest_says_what_was_scrubbed() -> None:
    manifest = json.loads(members(ANSWERS, taken_at=TAKEN_AT, scrub_serials=True)[MANIFEST])
    assert manifest["format"] == "nodecheck-recording/1"
    assert manifest["taken_at"] == "2026-12-01T09:30:05.250000+00:00"
    assert manifest["scrubbed"] == {
        "secrets": True,
        "identity": True,
        "serials": True,
        "replaced": {"host": 1},
    }


def test_a_recording_is_scrubbed_unless_told_otherwise(tmp_path: Path, archive: Path) -> None:
    save(ANSWERS, tmp_path / "scrubbed.tar.gz")
    assert load(tmp_path / "scrubbed.tar.gz").answers["process"]["uname"]["value"]["node"] == "host-1"
    assert load(archive).answers["process"]["uname"]["value"]["node"] == "gpu17"


def test_a_folder_with_the_same_files_reads_the_same(tmp_path: Path) -> None:
    for name, content in members(ANSWERS, keep_identity=True, taken_at=TAKEN_AT).items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "worker.log").write_text("something beside it")
    assert load(tmp_path).answers == ANSWERS


@pytest.mark.parametrize("name", ["workers", "amdsmi"])
def test_a_recording_from_before_there_was_a_source_reads_as_one_that_asked_none_of_it(
    name: str, tmp_path: Path
) -> None:
    files = members(ANSWERS, keep_identity=True, taken_at=TAKEN_AT)
    manifest = json.loads(files[MANIFEST])
    del files[f"{name}.json"], manifest["members"][f"{name}.json"]
    files[MANIFEST] = json.dumps(manifest).encode()
    folder = tmp_path / "node"
    folder.mkdir()
    for member, content in files.items():
        (folder / member).write_bytes(content)
    for path in (pack(tmp_path / "old.tar.gz", files), folder):
        assert load(path).answers == {**ANSWERS, name: {}}
        sources = Sources.recorded(load(path).answers)
        asked = sources.amdsmi.survey() if name == "amdsmi" else sources.workers.run("context", ["cpu0"], {})
        assert isinstance(asked, Absent)
        assert asked.why is Why.not_asked


@pytest.mark.parametrize("where", ["manifest", "file"])
def test_workers_in_one_of_the_two_places_alone_are_damage(tmp_path: Path, where: str) -> None:
    files = members(ANSWERS, taken_at=TAKEN_AT)
    if where == "manifest":
        del files["workers.json"]
    else:
        manifest = json.loads(files[MANIFEST])
        del manifest["members"]["workers.json"]
        files[MANIFEST] = json.dumps(manifest).encode()
    assert "workers.json" in refusal(pack(tmp_path / "node.tar.gz", files))


def test_an_interrupted_run_has_a_recording_too(tmp_path: Path) -> None:
    save({"files": {}}, tmp_path / "early.tar.gz")
    assert load(tmp_path / "early.tar.gz").answers == {name: {} for name in NAMES}


def test_what_json_cannot_hold_is_written_as_near_as_can_be(tmp_path: Path) -> None:
    odd: dict[str, dict[str, Json]] = {
        "process": {
            "environment": {"value": {"A": "caf\udce9", "B": float("nan"), "C": Path("/x"), "D": (1, 2)}}
        }
    }
    save(odd, tmp_path / "odd.tar.gz")
    value = load(tmp_path / "odd.tar.gz").answers["process"]["environment"]["value"]
    assert value == {"A": "caf?", "B": None, "C": "/x", "D": [1, 2]}


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.dictionaries(
        st.text(max_size=30),
        st.recursive(
            st.none() | st.booleans() | st.integers(-(2**63), 2**64) | st.text(max_size=30),
            lambda inner: (
                st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
            ),
            max_leaves=8,
        ).map(lambda value: {"value": value}),
        max_size=5,
    )
)
def test_any_answers_come_back_scrubbed_alike(tmp_path: Path, answers: dict[str, Json]) -> None:
    path = tmp_path / "any.tar.gz"
    save({"files": answers}, path, taken_at=TAKEN_AT)
    files = members({"files": answers}, taken_at=TAKEN_AT)
    assert load(path).answers["files"] == json.loads(files["files.json"])


# Writing goes wrong.


def cannot_write(path: Path) -> str:
    with pytest.raises(RecordingError) as caught:
        save(ANSWERS, path)
    return str(caught.value)


def test_a_folder_is_not_written_over(tmp_path: Path) -> None:
    assert "is a folder: name a file in it" in cannot_write(tmp_path)


def test_a_device_is_left_alone(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "not a plain file" in cannot_write(tmp_path / "pipe")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_missing_folder_is_said(tmp_path: Path) -> None:
    assert "No such file or directory" in cannot_write(tmp_path / "no" / "node.tar.gz")
    assert "cannot write" in cannot_write(Path("\0"))


@pytest.mark.parametrize(
    ("number", "words"), [(errno.ENOSPC, "No space left on device"), (errno.EACCES, "Permission denied")]
)
def test_trouble_while_writing_leaves_what_was_there(
    archive: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    before = archive.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", full)
    assert words in cannot_write(archive)
    assert archive.read_bytes() == before
    assert os.listdir(archive.parent) == ["node.tar.gz"]  # noqa: PTH208


def test_an_older_recording_is_replaced_whole(archive: Path) -> None:
    save({}, archive)
    assert load(archive).answers == {name: {} for name in NAMES}


def test_what_could_not_be_read_back_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MAX_BYTES", 1000)
    assert "more than" in cannot_write(tmp_path / "node.tar.gz")


# Damaged.


def test_every_cut_is_noticed(archive: Path) -> None:
    whole = archive.read_bytes()
    for length in {0, 1, 2, 10, 18, len(whole) // 2, len(whole) - 8, len(whole) - 1}:
        archive.write_bytes(whole[:length])
        assert "damaged" in refusal(archive) or "no .tar.gz" in refusal(archive)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(place=st.integers(min_value=0), bit=st.integers(0, 7))
def test_every_flipped_bit_is_noticed_or_harmless(archive: Path, place: int, bit: int) -> None:
    whole = bytearray(archive.read_bytes())
    whole[place % len(whole)] ^= 1 << bit
    path = archive.with_name("flipped.tar.gz")
    path.write_bytes(whole)
    try:
        assert load(path).answers == ANSWERS  # bits of gzip's own header mean nothing
    except RecordingError as error:
        assert "\n" not in str(error)


def test_a_member_that_was_changed_is_noticed(tmp_path: Path) -> None:
    files = members(ANSWERS) | {"nvml.json": b"{}\n"}
    assert "nvml.json is not what it was" in refusal(pack(tmp_path / "x.tar.gz", files))


def test_a_member_that_is_missing_is_noticed(tmp_path: Path) -> None:
    files = members(ANSWERS)
    del files["process.json"]
    assert "process.json is missing" in refusal(pack(tmp_path / "x.tar.gz", files))


def test_something_after_the_end_is_noticed(archive: Path) -> None:
    archive.write_bytes(archive.read_bytes() + b"more")
    assert "damaged" in refusal(archive)
    archive.write_bytes(archive.read_bytes()[:-4] + gzip.compress(b"more"))
    assert "after its end" in refusal(archive)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b"null", b'{"x": NaN}', b'{"x": 1e999}', b'{"x": ' + b"9" * 5000 + b"}", b'{"x": "\\ud800"}',
        b'{"x": 1}', b"\xff\xfe", b'{"a":' * 100_000, b'{"x": ' + b"[" * 200 + b"]" * 200 + b"}",
        b'{"x": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["files", "manifest"])
def test_json_that_would_break_its_reader_is_refused(tmp_path: Path, name: str, content: bytes) -> None:
    files = changed(**{name: content}) if name != "manifest" else members(ANSWERS) | {MANIFEST: content}
    assert refusal(pack(tmp_path / "x.tar.gz", files))


@pytest.mark.parametrize(
    "changes",
    [{"taken_at": "yesterday"}, {"taken_at": "2026-12-01T09:30:05"}, {"taken_at": 5}, {"taken_at": None},
     {"taken_at": "0001-01-01T00:00:00+23:59"}, {"members": []}, {"members": {}}, {"members": None}],
)  # fmt: skip
def test_a_manifest_that_makes_no_sense_is_refused(tmp_path: Path, changes: dict[str, Json]) -> None:
    assert "damaged" in refusal(pack(tmp_path / "x.tar.gz", with_manifest(**changes)))


def test_another_time_zone_is_a_time_all_the_same(tmp_path: Path) -> None:
    path = pack(tmp_path / "x.tar.gz", with_manifest(taken_at="2026-12-01T10:30:05.250000+01:00"))
    assert load(path).taken_at == TAKEN_AT
    assert load(path).taken_at.utcoffset() == timedelta(0)


# Foreign.


def test_a_newer_format_says_so(tmp_path: Path) -> None:
    path = pack(tmp_path / "x.tar.gz", with_manifest(format="nodecheck-recording/2") | {"new.json": b"{}"})
    assert "update nodecheck" in refusal(path)


@pytest.mark.parametrize("form", ["other/1", "", None, 7, "nodecheck-recording/x", "nodecheck-report/1"])
def test_another_programs_manifest_is_foreign(tmp_path: Path, form: Json) -> None:
    assert "not a nodecheck recording" in refusal(pack(tmp_path / "x.tar.gz", with_manifest(format=form)))


def test_another_programs_archive_is_foreign(tmp_path: Path) -> None:
    path = pack(tmp_path / "x.tar.gz", {"nvidia-bug-report.log": b"hello"})
    assert "“nvidia-bug-report.log”" in refusal(path)
    assert "not a nodecheck recording" in refusal(path)


@pytest.mark.parametrize(
    "content", [b"hello, I am text", b"PK\x03\x04" + b"\0" * 100, b"\x1f\x8b", b"\x1f\x8bxxxxxx"]
)
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.tar.gz"
    path.write_bytes(content)
    assert refusal(path)


def test_gzip_of_something_else_is_foreign(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(b"not a tar archive at all " * 100))
    assert "no tar archive" in refusal(path)


def test_an_empty_or_unrelated_folder_is_foreign(tmp_path: Path) -> None:
    assert "has no manifest.json" in refusal(tmp_path)
    (tmp_path / MANIFEST).write_text("{}")
    assert "another program's" in refusal(tmp_path)


def test_what_is_not_there_or_no_file_is_said(tmp_path: Path) -> None:
    assert "No such file" in refusal(tmp_path / "none.tar.gz")
    os.mkfifo(tmp_path / "pipe")
    assert "not a file" in refusal(tmp_path / "pipe")
    with pytest.raises(RecordingError, match="cannot read"):
        load(Path("a\0b"))


# Hostile.


def with_entry(
    path: Path, entry: tarfile.TarInfo, content: bytes = b"", form: int = tarfile.GNU_FORMAT
) -> Path:
    """A good recording with one more entry in front."""
    with tarfile.open(path, "w:gz", format=form) as packed:
        entry.size = len(content)
        packed.addfile(entry, io.BytesIO(content))
        for name, good in members(ANSWERS).items():
            plain = tarfile.TarInfo(name)
            plain.size = len(good)
            packed.addfile(plain, io.BytesIO(good))
    return path


@pytest.mark.parametrize(
    "name",
    [
        "../evil",
        "/etc/cron.d/evil",
        "a/../../evil",
        "files.json/../../x",
        ".",
        "evil\x1b[2J\nname",
        "x" * 300,
    ],
)
def test_entries_that_would_lead_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    sentence = refusal(with_entry(tmp_path / "x.tar.gz", tarfile.TarInfo(name), b"evil"))
    assert "which no recording has" in sentence
    assert "\x1b" not in sentence


@pytest.mark.parametrize(
    "kind",
    [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE,
     tarfile.GNUTYPE_SPARSE, tarfile.CONTTYPE],
)  # fmt: skip
def test_links_and_devices_are_refused(tmp_path: Path, kind: bytes) -> None:
    entry = tarfile.TarInfo("files.json")
    entry.type = kind
    entry.linkname = "/etc/shadow"
    assert "which no recording has" in refusal(with_entry(tmp_path / "x.tar.gz", entry))


def test_extension_headers_are_refused(tmp_path: Path) -> None:
    entry = tarfile.TarInfo("files.json")
    entry.pax_headers = {"comment": "x" * 5000}
    assert "which no recording has" in refusal(
        with_entry(tmp_path / "x.tar.gz", entry, form=tarfile.PAX_FORMAT)
    )


def test_a_member_twice_is_refused(tmp_path: Path) -> None:
    entry = tarfile.TarInfo("nvml.json")
    assert "nvml.json twice" in refusal(with_entry(tmp_path / "x.tar.gz", entry, b"{}"))


def test_a_folder_of_links_and_pipes_is_refused(tmp_path: Path) -> None:
    for name, content in members(ANSWERS).items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "nvml.json").unlink()
    (tmp_path / "nvml.json").symlink_to("/etc/passwd")
    assert "nvml.json cannot be read" in refusal(tmp_path)
    (tmp_path / "nvml.json").unlink()
    os.mkfifo(tmp_path / "nvml.json")
    assert "nvml.json cannot be read" in refusal(tmp_path)


# Oversized.


def bomb(path: Path, header_of: str, size: int) -> Path:
    """A member that unpacks to `size` zeros."""
    entry = tarfile.TarInfo(header_of)
    entry.size = size
    with gzip.open(path, "wb", compresslevel=9) as packed:
        packed.write(entry.tobuf(tarfile.USTAR_FORMAT))
        for _ in range(min(size, 1 << 31) // (1 << 20)):
            packed.write(bytes(1 << 20))
    return path


@pytest.fixture
def bounded() -> Iterator[Callable[[], float]]:
    """The most memory that was in use, in MiB."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1] / 1024**2
    tracemalloc.stop()


def test_a_bomb_is_not_unpacked(tmp_path: Path, bounded: Callable[[], float]) -> None:
    begin = time.perf_counter()
    sentence = refusal(bomb(tmp_path / "x.tar.gz", MANIFEST, 300 << 20))
    assert "unpacked it has more than 64 MiB" in sentence
    assert bounded() < 20
    assert time.perf_counter() - begin < 20


def test_zeros_after_the_end_are_not_read_for_ever(tmp_path: Path, archive: Path) -> None:
    content = gzip.decompress(archive.read_bytes()) + bytes(8 << 20)
    path = tmp_path / "x.tar.gz"
    path.write_bytes(gzip.compress(content))
    assert "after its end" in refusal(path)


@pytest.mark.parametrize(
    "size", [b"77777777777", b"\x80" + b"\xff" * 10, b"-0000000001", b"hello world", b" " * 11]
)
def test_sizes_that_are_none_are_refused(tmp_path: Path, size: bytes) -> None:
    header = bytearray(tarfile.TarInfo(MANIFEST).tobuf(tarfile.USTAR_FORMAT))
    header[124:135] = size
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    path = tmp_path / "x.tar.gz"
    path.write_bytes(gzip.compress(bytes(header) + bytes(4096)))
    assert refusal(path)


def test_a_large_archive_is_not_even_opened(tmp_path: Path) -> None:
    path = tmp_path / "x.tar.gz"
    with path.open("wb") as file:
        file.truncate(65 << 20)
    assert "no recording has more than 64 MiB" in refusal(path)


def test_a_large_file_in_a_folder_is_refused(tmp_path: Path) -> None:
    for name, content in members(ANSWERS).items():
        (tmp_path / name).write_bytes(content)
    with (tmp_path / "files.json").open("wb") as file:
        file.truncate(65 << 20)
    assert "files.json has more than 64 MiB" in refusal(tmp_path)


def test_a_member_of_millions_of_tiny_values_is_refused(tmp_path: Path, bounded: Callable[[], float]) -> None:
    content = b'{"x": [' + b"[]," * 3_000_000 + b"[]]}"
    assert "more values" in refusal(pack(tmp_path / "x.tar.gz", changed(files=content)))
    assert bounded() < 100


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.binary(max_size=3000), st.booleans())
def test_arbitrary_bytes_are_refused_in_one_sentence(tmp_path: Path, content: bytes, packed: bool) -> None:
    path = tmp_path / "x.tar.gz"
    path.write_bytes(gzip.compress(content) if packed else content)
    refusal(path)


def test_answers_may_still_arrive_while_they_are_saved(tmp_path: Path) -> None:
    """An interrupted run's threads are still writing down what they are told."""
    answers: dict[str, dict[str, Any]] = {name: {} for name in NAMES}
    stop = threading.Event()

    def ask() -> None:
        number = 0
        while not stop.is_set():
            answers["files"][f"read /{number % 500}"] = {"value": "x"}
            number += 1

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        for _ in range(5):
            save(answers, tmp_path / "node.tar.gz")
    finally:
        stop.set()
        thread.join()
    assert load(tmp_path / "node.tar.gz")

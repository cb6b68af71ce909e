"""A recording: the raw answers of every source in one archive, or as plain files in a folder.

An archive is a `.tar.gz` of plain files: `manifest.json` (format, tool, when it was taken, what was scrubbed, the
SHA-256 of each other member) and one `<source>.json` for each source, question → encoded answer. A recording comes
from somebody else's machine, so that reading one believes nothing: no member is ever unpacked to disk, and every
size, count and depth is bounded before memory is spent on it.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import json
import math
import os
import re
import stat
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any, Protocol

from nodecheck import __version__
from nodecheck.sources import NAMES
from nodecheck.sources.channel import Answers, Json
from nodecheck.writing import reason, write_whole

FORMAT = "nodecheck-recording/1"
MANIFEST = "manifest.json"
_GZIP = b"\x1f\x8b"

MAX_BYTES = 64 * 1024 * 1024
"""Of an archive, and of all that is in it: eight cards with a long kernel log make some 5 MB."""
MAX_VALUES = 2_000_000
"""Values in one member; a value takes some 100 bytes of memory."""
MAX_DEPTH = 64
"""Lists and objects inside one another; answers have about five."""
MAX_DIGITS = 40

_MEMBERS = (MANIFEST, *(f"{name}.json" for name in NAMES))
_LATER = ("workers.json", "amdsmi.json")
"""Members that recordings did not have from the beginning: there nothing of the kind was asked."""
_AGAIN = "take it again with `nodecheck capture`"


class RecordingError(Exception):
    """A recording that cannot be read or written; one sentence with what is wrong, where, and what to do."""


@dataclass(frozen=True)
class Recording:
    """What was recorded of a node."""

    answers: dict[str, dict[str, Json]]
    """Question → encoded answer, for each source's name."""
    taken_at: datetime
    tool_version: str


# Writing.


def members(
    answers: Answers,
    *,
    keep_identity: bool = False,
    scrub_serials: bool = False,
    hosts: Iterable[str] = (),
    users: Iterable[str] = (),
    taken_at: datetime | None = None,
) -> dict[str, bytes]:
    """The files of a recording by name, scrubbed: see `nodecheck.sources.scrub` for what the options leave or take.

    `taken_at` is now unless it is given. The same answers taken at the same time give the same bytes.
    """
    from nodecheck.sources.scrub import scrub  # a look in passing records nothing

    copied = {name: dict(answers.get(name, {})) for name in NAMES}
    scrubbed, replaced = scrub(
        copied, keep_identity=keep_identity, scrub_serials=scrub_serials, hosts=hosts, users=users
    )
    told = {"secrets": True, "identity": not keep_identity, "serials": scrub_serials, "replaced": replaced}
    return pack(scrubbed, taken_at or datetime.now(timezone.utc), told)


def pack(answers: Answers, taken_at: datetime, scrubbed: Mapping[str, Json]) -> dict[str, bytes]:
    """The files of a recording whose answers are scrubbed already; `scrubbed` says of what."""
    files = {f"{name}.json": _dump(answers.get(name, {})) for name in NAMES}
    manifest = {
        "format": FORMAT,
        "tool": {"name": "nodecheck", "version": __version__},
        "taken_at": taken_at.astimezone(timezone.utc).isoformat(),
        "scrubbed": scrubbed,
        "members": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
    }
    return {MANIFEST: _dump(manifest), **files}


def save(
    answers: Answers,
    path: Path,
    *,
    keep_identity: bool = False,
    scrub_serials: bool = False,
    hosts: Iterable[str] = (),
    users: Iterable[str] = (),
    taken_at: datetime | None = None,
) -> None:
    """Write an archive of `members`, whole or not at all, readable by its owner alone.

    Raises `RecordingError` where it cannot be written, or would be larger than what can be read back.
    """
    files = members(
        answers,
        keep_identity=keep_identity,
        scrub_serials=scrub_serials,
        hosts=hosts,
        users=users,
        taken_at=taken_at,
    )
    size = sum(map(len, files.values()))
    if size > MAX_BYTES:
        raise RecordingError(
            f"the recording would have {_mib(size)}, more than the {_mib(MAX_BYTES)} that can be read"
        )
    _write(path, _archive(files))


def _dump(value: Json) -> bytes:
    text = json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False, default=str)
    return f"{text}\n".encode("utf-8", "replace")


def _archive(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=buffer, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            entry.mode = 0o600
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def check_place(path: Path) -> None:
    """See whether a recording can be written to `path`, before it is made. Raises `RecordingError`."""
    try:
        if path.is_dir():
            raise RecordingError(
                f"{_shown(path)} is a folder: name a file in it, as {_shown(path / 'node.tar.gz')}"
            )
        if path.exists() and not path.is_file():
            raise RecordingError(f"{_shown(path)} is not a plain file and is left alone: name another")
        path.parent.stat()
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except (OSError, ValueError) as error:
        raise RecordingError(f"cannot write {_shown(path)}: {reason(error)}") from None


def _write(path: Path, content: bytes) -> None:
    check_place(path)
    try:
        write_whole(path, content)
    except (OSError, ValueError) as error:
        raise RecordingError(f"cannot write {_shown(path)}: {reason(error)}") from None


# Reading.


def is_recording(path: Path) -> bool:
    """Whether `path` looks like a recording, sound or not: a folder with a manifest, or something compressed."""
    try:
        if path.is_dir():
            return os.path.lexists(path / MANIFEST)
        with _open(path) as file:
            return file.read(2) == _GZIP
    except (OSError, ValueError):
        return False


def load(path: Path) -> Recording:
    """Read an archive, or a folder with the same files. Raises `RecordingError` for anything else."""
    try:
        kind = path.stat().st_mode
        if stat.S_ISDIR(kind):
            return _Reading(path).folder()
        if not stat.S_ISREG(kind):
            raise RecordingError(f"{_shown(path)} is not a file: a recording is a .tar.gz or a folder")
        with _open(path) as file:
            return _Reading(path).archive(file)
    except (OSError, ValueError) as error:
        # gzip's own errors are OSErrors too; `archive` has seen to them.
        raise RecordingError(f"cannot read {_shown(path)}: {reason(error)}") from None


class _Stream(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _Reading:
    """One recording being read, member by member."""

    def __init__(self, path: Path) -> None:
        self._label = _shown(path)
        self._path = path
        self._contents: dict[str, bytes] = {}
        self._manifest: dict[str, Any] | None = None

    def folder(self) -> Recording:
        """From plain files; others beside them do not matter."""
        if not os.path.lexists(self._path / MANIFEST):
            raise self._foreign(f"the folder has no {MANIFEST}")
        for name in _MEMBERS:
            if name in _LATER and not os.path.lexists(self._path / name):
                continue
            try:
                with _open(self._path / name, os.O_NOFOLLOW) as file:
                    content = file.read(MAX_BYTES + 1)
            except OSError as error:
                raise self._damaged(f"{name} cannot be read ({reason(error)})") from None
            self._take(name, content)
        return self._whole()

    def archive(self, file: IO[bytes]) -> Recording:
        """From a .tar.gz, in one pass."""
        size = os.fstat(file.fileno()).st_size
        if size > MAX_BYTES:
            raise self._foreign(f"it has {_mib(size)}, and no recording has more than {_mib(MAX_BYTES)}")
        if file.read(2) != _GZIP:
            raise self._foreign("it is no .tar.gz archive")
        file.seek(0)
        try:
            with gzip.GzipFile(fileobj=file, mode="rb") as stream:
                for name, content in self._entries(stream):
                    self._take(name, content)
        except EOFError:
            raise self._damaged("it is cut off") from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise self._damaged(f"it cannot be decompressed ({error})") from None
        return self._whole()

    def _entries(self, stream: _Stream) -> Iterator[tuple[str, bytes]]:
        """Names and contents of a tar archive that holds plain files alone.

        Not `tarfile`: what it makes of hostile extension headers takes time and memory without a bound.
        """
        left = MAX_BYTES
        while any(header := _exactly(stream, _BLOCK)):
            name, size = self._header(header)
            left -= size
            if left < 0:
                raise self._foreign(f"unpacked it has more than {_mib(MAX_BYTES)}, as no recording has")
            yield name, _exactly(stream, size)
            _exactly(stream, -size % _BLOCK)
        # To its very end, since only there stands the checksum of the whole; archives are padded with zeros.
        padding = 0
        while chunk := stream.read(_BLOCK):
            padding += len(chunk)
            if any(chunk) or padding > _MAX_PADDING:
                raise self._damaged("something follows after its end")

    def _header(self, header: bytes) -> tuple[str, int]:
        total = sum(header[:148]) + 8 * ord(" ") + sum(header[156:])
        if header[257:262] != b"ustar" or _octal(header[148:156]) != total:
            raise self._foreign("what it packs is no tar archive")
        name = header[:100].rstrip(b"\0").decode("utf-8", "replace").removeprefix("./")
        kind = header[156:157]
        if name not in _MEMBERS or any(header[345:500]) or kind not in (b"0", b"\0"):
            raise self._foreign(
                f"it holds “{_shown(name)}” (type {_shown(repr(kind)[1:])}), which no recording has"
            )
        if name in self._contents:
            raise self._damaged(f"it holds {name} twice")
        size = _octal(header[124:136])
        if size is None:
            raise self._damaged(f"the size of {name} is no number")
        return name, size

    def _take(self, name: str, content: bytes) -> None:
        if len(content) > MAX_BYTES:
            raise self._foreign(f"{name} has more than {_mib(MAX_BYTES)}")
        self._contents[name] = content
        if name == MANIFEST:
            # At once: a recording of a newer kind may hold what is strange to this one.
            self._manifest = self._read_manifest(content)

    def _read_manifest(self, content: bytes) -> dict[str, Any]:
        manifest = self._parse(MANIFEST, content)
        form = manifest.get("format")
        known = re.fullmatch(r"nodecheck-recording/([0-9]{1,9})", form) if isinstance(form, str) else None
        if known is None:
            raise self._foreign(f"its {MANIFEST} is another program's")
        if form != FORMAT:
            raise RecordingError(
                f"{self._label} was written by another nodecheck, in format {known[1]}; this one ({__version__}) reads "
                f"format {FORMAT.rpartition('/')[2]}: update nodecheck"
            )
        return manifest

    def _whole(self) -> Recording:
        """The recording, once everything is there and is what the manifest says."""
        if self._manifest is None:
            raise self._foreign(f"it has no {MANIFEST}")
        digests = self._manifest.get("members")
        if not isinstance(digests, dict):
            raise self._damaged(f"{MANIFEST} lists no members")
        for name in _MEMBERS[1:]:
            if name in _LATER and name not in self._contents and name not in digests:
                self._contents[name] = b"{}"
                continue
            if name not in self._contents:
                raise self._damaged(f"{name} is missing")
            if hashlib.sha256(self._contents[name]).hexdigest() != digests.get(name):
                raise self._damaged(f"{name} is not what it was when it was taken (its SHA-256 is another)")
        tool = self._manifest.get("tool")
        return Recording(
            answers={name: self._answers(f"{name}.json") for name in NAMES},
            taken_at=self._taken_at(self._manifest.get("taken_at")),
            tool_version=str(tool.get("version", ""))[:40] if isinstance(tool, dict) else "",
        )

    def _answers(self, name: str) -> dict[str, Json]:
        answers = self._parse(name, self._contents.pop(name))
        if not all(isinstance(stored, dict) for stored in answers.values()):
            raise self._damaged(f"{name} holds something that is no answer")
        return answers

    def _taken_at(self, stamp: Json) -> datetime:
        try:
            taken_at = datetime.fromisoformat(stamp)
            if taken_at.tzinfo is not None:
                return taken_at.astimezone(timezone.utc)
        except (TypeError, ValueError, OverflowError):
            pass
        raise self._damaged(f"{MANIFEST} does not say when it was taken")

    def _parse(self, name: str, content: bytes) -> dict[str, Any]:
        if content.count(b",") + content.count(b"[") + content.count(b"{") > MAX_VALUES:
            raise self._foreign(f"{name} holds more values than any recording has")
        try:
            value = json.loads(
                content.decode(), parse_int=_integer, parse_float=_number, parse_constant=_no_constant
            )
            _check(value)
        except RecursionError:
            raise self._damaged(f"{name} is nested too deeply") from None
        except ValueError as error:
            raise self._damaged(f"{name} is no JSON that a recording has ({_shown(str(error))})") from None
        if not isinstance(value, dict):
            raise self._damaged(f"{name} is no JSON object")
        return value

    def _damaged(self, what: str) -> RecordingError:
        return RecordingError(f"{self._label} is damaged: {what}; {_AGAIN}")

    def _foreign(self, what: str) -> RecordingError:
        return RecordingError(f"{self._label} is not a nodecheck recording: {what}")


_BLOCK = 512
_MAX_PADDING = 1024 * 1024


def _open(path: Path, flags: int = 0) -> IO[bytes]:
    """A plain file to read; a pipe of the same name would block for ever. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    file = os.fdopen(descriptor, "rb")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        file.close()
        raise OSError("not a plain file")
    return file


def _exactly(stream: _Stream, size: int) -> bytes:
    content = stream.read(size)
    if len(content) < size:
        raise EOFError
    return content


def _octal(digits: bytes) -> int | None:
    digits = digits.strip(b" \0")
    return int(digits, 8) if re.fullmatch(rb"[0-7]{1,12}", digits) else None


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _number(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError("a number without bound")
    return value


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _check(value: Json) -> None:
    """Raises ValueError for what would break whoever works with it: deep nesting, text that is no Unicode."""
    waiting = [(value, 1)]
    while waiting:
        item, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise ValueError("nested too deeply")
        if isinstance(item, dict):
            waiting += [(inner, depth + 1) for pair in item.items() for inner in pair]
        elif isinstance(item, list):
            waiting += [(inner, depth + 1) for inner in item]
        elif isinstance(item, str) and not item.isascii():
            item.encode()


def _shown(text: object) -> str:
    """Text of unknown origin on one line."""
    return "".join(character if character.isprintable() else "?" for character in str(text)[:200])


def _mib(size: int) -> str:
    return f"{size / 1024**2:.0f} MiB"

"""Stage `storage`: the disks behind folders, past the caches; a worker of any card runs it, and torch is not used.

One file in each folder, without a name from the beginning where the file system can do that, else unlinked as soon
as it is open: whatever happens, nothing is left. O_DIRECT keeps the page cache out; where the file system refuses
it, fdatasync ends each write and POSIX_FADV_DONTNEED empties the cache before each read, and `direct` says so.
"""

import errno
import mmap
import os
import random
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

NEEDS_TORCH = False
"""It may run in a worker that was never started."""

FILE_BYTES = {"standard": 256 * 2**20, "full": 4 * 2**30}
PATIENCE_SECONDS = {"standard": 0.5, "full": 10.0}
"""For each way of reading or writing in sequence: on a slow disk less of the file is used."""

WINDOW_SECONDS = {"standard": 0.05, "full": 0.5}
"""A value of random access."""

BLOCK_BYTES = 4 * 2**20
PAGE_BYTES = 4096
"""Of random access, and O_DIRECT's alignment."""

SEGMENTS = 8
"""A file is written and read in so many parts, a value each."""

SEVERAL = 4
RANDOM_SEVERAL = 8
WINDOWS = 4
SHARE_OF_FREE = 2
LEAST_BYTES = SEGMENTS * SEVERAL * 64 * 2**10

O_DIRECT = getattr(os, "O_DIRECT", 0)
O_TMPFILE = getattr(os, "O_TMPFILE", 0)
WITHOUT_TMPFILE = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)
"""What file systems and kernels answer that cannot make a file without a name; or there is no such folder, or no
O_DIRECT, which the next call then says again."""


class WrongData(Exception):
    """The disk returned other bytes than it was given: no trouble of one folder, but the end of the stage."""


def run(worker: Any, arguments: Dict[str, Any]) -> Dict[str, Any]:
    """Arguments: `folders`; `level` (`standard` 256 MiB, `full` 4 GiB; never more than half of what is free);
    `size_bytes` instead of the level's.

    Rows, by folder (`name`) and number of writers or readers (`ranks`): storage.sequential_write and _read (GB/s),
    storage.random_write and _read (IOPS, 4 KiB). `absent` says which folder could not be measured and why, with the
    error's number; a folder on the same file system as an earlier one stands there too. `folders` holds, for each,
    `direct`, `file_bytes` and `free_bytes`. Raises the first OSError where no folder could be measured.
    """
    level = arguments.get("level", "standard")
    rows: List[Dict[str, Any]] = []
    absent: List[Dict[str, Any]] = []
    folders: Dict[str, Dict[str, Any]] = {}
    seen: Dict[int, str] = {}
    first_error: Optional[OSError] = None
    names = [str(name) for name in arguments["folders"]]
    for number, folder in enumerate(names):
        try:
            device = os.stat(folder).st_dev
            if device in seen:
                why = "on the same file system as %s" % seen[device]
                absent.append({"measure": "storage", "name": folder, "why": why})
                continue
            seen[device] = folder
            wanted = int(arguments.get("size_bytes", FILE_BYTES[level]))
            with File(folder, wanted) as file:
                folders[folder] = {
                    "direct": file.direct,
                    "file_bytes": file.size,
                    "free_bytes": file.free,
                }
                rows += measured(worker, file, level, (number / len(names), 1 / len(names)))
        except OSError as error:
            first_error = first_error or error
            why = error.strerror or str(error)
            absent.append({"measure": "storage", "name": folder, "why": why, "code": error.errno})
    if first_error is not None and not rows:
        raise first_error
    return {"rows": rows, "checks": [], "absent": absent, "folders": folders}


class File:
    """A file that nobody else sees and that is gone once it is closed, or this process has ended."""

    def __init__(self, folder: str, wanted: int) -> None:
        """Raises OSError; ENOSPC also where half of what is free would be too small a file."""
        self.folder = folder
        room = os.statvfs(folder)
        self.free = room.f_bavail * room.f_frsize
        unit = SEGMENTS * SEVERAL * PAGE_BYTES
        self.size = min(wanted, self.free // SHARE_OF_FREE) // unit * unit
        if self.size < min(wanted, LEAST_BYTES) or not self.size:
            raise OSError(
                errno.ENOSPC, "only %d bytes are free, too few to measure with half of them" % self.free
            )
        self.block = min(BLOCK_BYTES, self.size // SEGMENTS // SEVERAL)
        self.written = 0
        """Bytes from the beginning that hold data."""
        page = mmap.mmap(-1, PAGE_BYTES)  # O_DIRECT wants memory on a page's boundary
        for flag in (O_DIRECT, 0) if O_DIRECT else (0,):
            self.descriptor = create(folder, flag)
            if self.descriptor < 0:
                continue
            self.direct = bool(flag)
            try:
                os.pwrite(self.descriptor, page, 0)
                return
            except OSError as error:
                os.close(self.descriptor)
                if error.errno != errno.EINVAL or not flag:
                    raise
        raise OSError(errno.EINVAL, "the file system takes no file")

    def __enter__(self) -> "File":
        return self

    def __exit__(self, *_: Any) -> None:
        os.close(self.descriptor)

    def forget(self) -> None:
        """Nothing of it stays in the page cache."""
        os.fdatasync(self.descriptor)
        if not self.direct:
            os.posix_fadvise(self.descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def write(self, buffer: Any, offset: int) -> None:
        count = os.pwrite(self.descriptor, buffer, offset)
        if count != len(buffer):
            raise OSError(
                errno.ENOSPC, "%d of %d bytes could be written at %d" % (count, len(buffer), offset)
            )

    def read(self, buffer: Any, offset: int) -> None:
        count = os.preadv(self.descriptor, [buffer], offset)
        if count != len(buffer):
            raise OSError(errno.EIO, "%d of %d bytes could be read at %d" % (count, len(buffer), offset))


def create(folder: str, flag: int) -> int:
    """A descriptor of a new file without a name; -1 where O_DIRECT, as `flag`, is refused. Raises OSError."""
    flags = os.O_RDWR | os.O_CLOEXEC | flag
    if O_TMPFILE:
        try:
            return os.open(folder, flags | O_TMPFILE, 0o600)
        except OSError as error:
            if error.errno not in WITHOUT_TMPFILE:
                raise
    path = os.path.join(folder, ".nodecheck-%s" % os.urandom(8).hex())
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        if error.errno == errno.EINVAL and flag:
            if os.path.lexists(path):  # some file systems refuse only once the file is there
                os.unlink(path)
            return -1
        raise
    os.unlink(path)
    return descriptor


def measured(worker: Any, file: File, level: str, share: Tuple[float, float]) -> List[Dict[str, Any]]:
    """All rows of one file; `share` is where it stands in the stage."""
    rows: List[Dict[str, Any]] = []
    patience, window = PATIENCE_SECONDS[level], WINDOW_SECONDS[level]
    sequence = [(writing, count) for count in (1, SEVERAL) for writing in (True, False)]
    for writing, count in sequence:
        name = "storage.sequential_%s" % ("write" if writing else "read")
        worker.step("%s %s ×%d" % (file.folder, name, count))
        values = sequential(file, writing, count, patience)
        rows.append(row(name, "GB/s", file.written, count, file.folder, values))
        said(worker, rows, share)
    for writing, count in [(writing, count) for count in (1, RANDOM_SEVERAL) for writing in (False, True)]:
        name = "storage.random_%s" % ("write" if writing else "read")
        worker.step("%s %s ×%d" % (file.folder, name, count))
        values = at_random(file, writing, count, window)
        rows.append(row(name, "IOPS", PAGE_BYTES, count, file.folder, values))
        said(worker, rows, share)
    return rows


def sequential(file: File, writing: bool, count: int, patience: float) -> List[float]:
    """GB/s of each part of the file, by `count` threads at once, each in its own piece of the part."""
    values: List[float] = []
    part = file.size // SEGMENTS
    buffers = [filled(file.block) for _ in range(count)]
    if writing:
        os.ftruncate(file.descriptor, 0)  # written anew each time, as a program's file is
        file.written = 0
    else:
        file.forget()
    began = time.perf_counter()
    for first in range(0, file.size if writing else file.written, part):
        piece = part // count

        def one(number: int, first: int = first, piece: int = piece) -> None:
            buffer, start = buffers[number], first + number * piece
            for offset in range(start, start + piece, file.block):
                if writing:
                    stamp(buffer, offset)
                    file.write(buffer, offset)
                else:
                    file.read(buffer, offset)
                    if not stamped(buffer, offset):
                        raise WrongData("other bytes were read at %d than were written" % offset)

        seconds = side_by_side(one, count, os.fdatasync if writing else None, file.descriptor)
        values.append(part / seconds / 1e9)
        if writing:
            file.written = first + part
        if time.perf_counter() - began > patience:
            break
    return values


def at_random(file: File, writing: bool, count: int, window: float) -> List[float]:
    """Operations a second in each of WINDOWS windows, by `count` threads at once."""
    values: List[float] = []
    pages = file.written // PAGE_BYTES
    places = random.Random(pages)  # noqa: S311 - places, not secrets
    if not file.direct:
        os.posix_fadvise(file.descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    for _ in range(WINDOWS):
        offsets = [[places.randrange(pages) * PAGE_BYTES for _ in range(1024)] for _ in range(count)]
        file.forget()
        done = [0] * count
        end = time.perf_counter() + window

        def one(number: int, offsets: Any = offsets, done: Any = done, end: float = end) -> None:
            buffer = filled(PAGE_BYTES)
            while True:
                offset = offsets[number][done[number] % 1024]
                if not writing:
                    file.read(buffer, offset)
                else:
                    file.write(buffer, offset)
                    if not file.direct:
                        os.fdatasync(file.descriptor)
                done[number] += 1
                if time.perf_counter() >= end:
                    return

        seconds = side_by_side(one, count, None, file.descriptor)
        values.append(sum(done) / seconds)
    return values


def side_by_side(
    function: Callable[[int], None], count: int, finish: Optional[Callable[[int], Any]], descriptor: int
) -> float:
    """Seconds that `count` threads took together, with `finish` at the end. Raises what the first of them raised."""
    errors: List[BaseException] = []

    def guarded(number: int) -> None:
        try:
            function(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(number,), daemon=True) for number in range(1, count)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    guarded(0)
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    if finish is not None:
        finish(descriptor)
    return time.perf_counter() - began


def filled(size: int) -> Any:
    """Memory on a page's boundary, of bytes that no disk can make smaller."""
    buffer = mmap.mmap(-1, size)
    buffer.write(os.urandom(size))
    return memoryview(buffer)


def stamp(buffer: Any, offset: int) -> None:
    """Where it belongs, at its beginning: no two blocks are equal, and one read from elsewhere is noticed."""
    buffer[:8] = offset.to_bytes(8, "little")


def stamped(buffer: Any, offset: int) -> bool:
    return bytes(buffer[:8]) == offset.to_bytes(8, "little")


def row(measure: str, unit: str, size: int, count: int, folder: str, values: List[float]) -> Dict[str, Any]:
    return {
        "measure": measure,
        "unit": unit,
        "size_bytes": size,
        "ranks": count,
        "name": folder,
        "values": values,
    }


def said(worker: Any, rows: List[Dict[str, Any]], share: Tuple[float, float]) -> None:
    last = rows[-1]
    figure = "%s ×%d %.3g %s" % (
        last["measure"].partition(".")[2].replace("_", " "),
        last["ranks"],
        sorted(last["values"])[len(last["values"]) // 2],
        last["unit"],
    )
    worker.progress(share[0] + share[1] * len(rows) / 8, figure)

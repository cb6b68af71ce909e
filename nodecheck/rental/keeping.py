"""The rental's end: when it comes, and what would be lost with the node.

Local disks are work disks: whatever lies on them goes with the node. From a day before the end each path that the
renter named is looked through, never read: its size, when its files last changed, and whether they were copied since.
That a copy is whole only the renter's own tools can tell; so their word is taken, in one of two forms:

- a marker, `.nodecheck-copied` in the folder (`NAME.nodecheck-copied` beside a file), made before the copy began and
  renamed when it had succeeded. Whatever changed after the marker's time counts as not copied.
- a command, `--copied-if`, in which `{path}` stands for the path: it has been copied where the command ends with 0 and
  prints nothing on stdout. `rclone check` and `rsync --dry-run --itemize-changes` do just that.
"""

from __future__ import annotations

import os
import shlex
import stat
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path

from nodecheck.facts import Absent, Why
from nodecheck.judge import Cause, Described, Finding, Owner, Subject, find
from nodecheck.judge.rule import Outcome, passed, unknown, warn
from nodecheck.probes.mounts import Mount, kind_of, mounts
from nodecheck.profile import NO_PROFILE
from nodecheck.rental import onchange
from nodecheck.rental.state import Terms
from nodecheck.report.text import brief, plural, size
from nodecheck.sources import Files, child
from nodecheck.sources.deadline import within

WARNED_BEFORE = timedelta(hours=24)
WALK_SECONDS = 5.0
"""For all paths together."""
COMMAND_SECONDS = 60.0

MARKER = ".nodecheck-copied"
PATH = "{path}"

_MAYBE_HERE = ("9p", "virtiofs", "fuse.")
"""Begin the names of file systems that speak to another place, which may be a disk of this very node."""

_DISKS = "local disks of the node"

ENDS = Described(
    id="rental.ends",
    title="The rental goes on for more than a day",
    reads="what was said with `--rental-ends` when the node was accepted",
    door="host",
    passes="the end is more than 24 hours away",
    warns="it is less than 24 hours away, or over",
    fails="",
    cause=Cause.misconfigured,
    owner=Owner.renter,
    required=False,
    meaning="With the rental everything goes that lies on the node's own disks.",
    next_step="Copy what you need to a place outside of the node, or extend the rental.",
    repeat="date --utc; df --human-readable",
)
UNSAVED = Described(
    id="rental.unsaved",
    title="What must be kept has been copied off the node",
    reads="names, sizes and times below each path of `--keep`; the marker, or the command of `--copied-if`",
    door="host",
    passes="nothing changed since it was copied, it is on network storage, or there is nothing in it",
    warns="it has not been copied since it changed, that cannot be told, or it is not there",
    fails="",
    cause=Cause.misconfigured,
    owner=Owner.renter,
    required=True,
    meaning="What lies on this node alone is lost with it.",
    next_step="Copy it to a place outside of the node.",
    repeat="find PATH -type f -cnewer PATH/.nodecheck-copied",
)
RULES = (ENDS, UNSAVED)


def terms(ends: str | None, keep: Sequence[Path], copied_if: str | None, now: datetime) -> Terms:
    """What the renter said, as it is kept. Raises ValueError with a sentence for what cannot be meant."""
    if ends is None:
        if keep or copied_if:
            raise ValueError(
                "--keep and --copied-if say what to save before the rental's end: add --rental-ends"
            )
        return Terms()
    ends_at = _time(ends)
    if ends_at <= now:
        raise ValueError(f"--rental-ends {ends!r} is over already: it is {now:%Y-%m-%dT%H:%MZ} now")
    if unkept := next((path for path in keep if not _is_text(path)), None):
        raise ValueError(f"--keep {str(unkept)!r} is no UTF-8 and cannot be kept: name a folder above it")
    if copied_if and not keep:
        raise ValueError("--copied-if asks whether the paths of --keep were copied: name them")
    return Terms(
        ends_at=ends_at,
        keep=tuple(dict.fromkeys(os.path.normpath(path.absolute()) for path in keep)),
        copied_if=() if copied_if is None else _command(copied_if),
    )


def _is_text(path: Path) -> bool:
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def missing(terms: Terms) -> tuple[str, ...]:
    """The paths to keep that are not there; what cannot be looked at may be."""
    return tuple(path for path in terms.keep if _missing(path, WALK_SECONDS / len(terms.keep)))


def _missing(path: str, seconds: float) -> bool:
    try:
        within(seconds, partial(os.lstat, path))
    except OSError as error:
        return isinstance(error, FileNotFoundError)
    return False


def _time(text: str) -> datetime:
    zoned = f"{text[:-1]}+00:00" if text.endswith(("Z", "z")) else text
    try:
        at = datetime.fromisoformat(zoned)
    except ValueError:
        raise ValueError(f"--rental-ends {text!r} is no time: write it as 2026-12-07T10:00Z") from None
    if at.tzinfo is None:
        raise ValueError(
            f"--rental-ends {text!r} does not say in which time zone: end it with Z for UTC, or with +01:00"
        )
    try:
        return at.astimezone(timezone.utc)
    except OverflowError:
        raise ValueError(f"--rental-ends {text!r} is no time of this world") from None


def _command(text: str) -> tuple[str, ...]:
    try:
        words = onchange.command(text)
    except ValueError as error:
        raise ValueError(f"--copied-if: {error}") from None
    short = "".join(word for word in words[1:] if word.startswith("-") and not word.startswith("--"))
    if Path(words[0]).name == "rsync" and "--itemize-changes" not in words and "i" not in short:
        raise ValueError("--copied-if: rsync says what is not copied only with --itemize-changes: add it")
    return words


def findings(terms: Terms, now: datetime, files: Files) -> tuple[Finding, ...]:
    """What is to be said of the rental's end at `now` (UTC); nothing where no end was named.

    Takes up to `WALK_SECONDS`, and `COMMAND_SECONDS` for each path that the renter's command is asked about.
    """
    ends_at = terms.ends_at
    if ends_at is None:
        return ()
    soon = now >= ends_at - WARNED_BEFORE
    asked = [(ENDS, partial(_ends, ends_at, now, terms.keep))]
    if soon and terms.keep:
        return tuple(find([*asked, (UNSAVED, partial(_unsaved, terms, files))], NO_PROFILE, {}))
    return tuple(find(asked, NO_PROFILE, {}))


def _ends(ends_at: datetime, now: datetime, keep: tuple[str, ...]) -> Iterator[Outcome]:
    # The same words at every check: what is left would be another text each time.
    told = f"{ends_at:%Y-%m-%d %H:%M} UTC"
    if now < ends_at - WARNED_BEFORE:
        yield passed(f"The rental ends on {told}.")
        return
    lost = "see rental.unsaved" if keep else "no path was named with --keep, so none was looked at"
    when = "ended" if now >= ends_at else "ends in less than 24 hours,"
    yield warn(f"The rental {when} on {told}. What lies on the {_DISKS} goes with it: {lost}.")


# What would be lost


@dataclass
class Contents:
    """What lies below a path; filled in while it is walked, so that what was seen by a deadline stands."""

    folder: bool = False
    files: int = 0
    bytes: int = 0
    changed_at: float = 0.0
    """When a file last changed, by its content or by coming there: a download keeps its old modification time."""
    last: str = ""
    """That file."""
    marked_at: float | None = None
    unread: int = 0
    """Folders that could not be read."""
    whole: bool = False
    """The walk came to its end."""


def _unsaved(terms: Terms, files: Files) -> Iterator[Outcome]:
    mounted = mounts(files)
    # What is mounted over another hides it.
    at = {} if isinstance(mounted, Absent) else {mount.place: mount for mount in mounted}
    for path in terms.keep:
        subject = Subject(kind="disk", key=path, label=path)
        yield _of_path(path, subject, at, terms.copied_if, WALK_SECONDS / len(terms.keep))


def _of_path(
    path: str, subject: Subject, at: Mapping[str, Mount], copied_if: tuple[str, ...], seconds: float
) -> Outcome:
    try:
        real = within(seconds, partial(os.path.realpath, path, strict=True))
    except FileNotFoundError:
        return warn(
            "There is no such path on this node.",
            subject=subject,
            next_step="See whether it was misspelt or moved, and name the right one when you accept the node anew.",
        )
    except OSError as error:
        why = Why.no_permission if isinstance(error, PermissionError) else Why.failed
        return unknown(subject, Absent(why=why, detail=f"{path}: {error.strerror}"))
    if isinstance(real, Absent):
        return unknown(subject, real)
    mount = _holding(real, at)
    if mount is not None and _elsewhere(mount):
        told = f"It is on network storage ({brief(f'{mount.filesystem}, {mount.device}', 200)}), not on the {_DISKS}."
        return passed(told, subject=subject)
    seen = Contents()
    apart = {place for place, other in at.items() if kind_of(other) is None or _elsewhere(other)}
    try:
        # It ends by itself, unless it is stuck on a dead disk.
        within(seconds + 0.5, partial(_walk, real, apart, seen, time.monotonic() + seconds))
    except OSError as error:
        return unknown(subject, Absent(why=Why.failed, detail=f"{path}: {error.strerror}"))
    words = {
        "subject": subject,
        "observed": seen.bytes,
        "unit": "bytes",
        "observed_from": "lstat of every file below",
        "next_step": _how_to_copy(path, seen.folder),
    }
    told = f"{_size(seen)} on {_where(mount)}"
    if seen.whole and not seen.unread and not seen.files:
        return passed("There is no file in it.", subject=subject)
    copied, how = _by_command(copied_if, path) if copied_if else _by_marker(seen)
    return passed(f"{told}; {how}.", **words) if copied else warn(f"{told}; {how}.", **words)


def _holding(path: str, at: Mapping[str, Mount]) -> Mount | None:
    """The mount that a path lies on."""
    above = [place for place in at if path == place or path.startswith(place.rstrip("/") + "/")]
    return at[max(above, key=len)] if above else None


def _elsewhere(mount: Mount) -> bool:
    """Whether it outlives the node for certain."""
    return kind_of(mount) == "network" and not mount.filesystem.startswith(_MAYBE_HERE)


def _walk(root: str, apart: Collection[str], seen: Contents, ends: float) -> None:
    """Look at every file below `root` but in the folders that are `apart`; links are not followed, no file is opened.

    Raises OSError where `root` itself cannot be looked at.
    """
    top = os.lstat(root)
    seen.folder = stat.S_ISDIR(top.st_mode)
    marker = os.path.join(root, MARKER) if seen.folder else root + MARKER  # noqa: PTH118  (see below)
    seen.marked_at = _time_of(marker)
    if not seen.folder:
        _count(seen, root, top)
    folders = [root] if seen.folder else []
    while folders:
        if not _look_into(folders, apart, marker, seen, ends):
            return
    seen.whole = True


def _look_into(folders: list[str], apart: Collection[str], marker: str, seen: Contents, ends: float) -> bool:
    """Count the files of the last folder, and put those in it in its place; False where the time is up."""
    try:
        # Texts and not Paths: there may be millions.
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if time.monotonic() > ends:
                    return False
                if entry.is_dir(follow_symlinks=False):
                    if entry.path not in apart:
                        folders.append(entry.path)
                elif entry.is_file(follow_symlinks=False) and entry.path != marker:
                    _count(seen, entry.path, _about(entry))
    except OSError:
        seen.unread += 1
    return True


def _about(entry: os.DirEntry[str]) -> os.stat_result | None:
    with suppress(FileNotFoundError):  # removed meanwhile
        return entry.stat(follow_symlinks=False)
    return None


def _count(seen: Contents, path: str, about: os.stat_result | None) -> None:
    if about is None:
        return
    seen.files += 1
    seen.bytes += about.st_size
    changed_at = max(about.st_mtime, about.st_ctime)
    if changed_at >= seen.changed_at:
        seen.changed_at, seen.last = changed_at, path


def _time_of(marker: str) -> float | None:
    try:
        return os.lstat(marker).st_mtime
    except OSError:
        return None


def _by_marker(seen: Contents) -> tuple[bool, str]:
    """Whether it has been copied, and how that is known."""
    last = (
        f"{brief(seen.last, 200)} last changed on {_day(seen.changed_at)}" if seen.files else "no file seen"
    )
    if seen.marked_at is None:
        return False, f"{last}, and it was never marked as copied"
    marked = f"it was marked as copied on {_day(seen.marked_at)}"
    if seen.changed_at >= seen.marked_at:
        return False, f"{last}, and {marked}"
    if not seen.whole:
        return False, f"{marked}, but not all of it could be looked through in {WALK_SECONDS:g} s"
    if seen.unread:
        return False, f"{marked}, but {plural(seen.unread, 'folder')} in it could not be read"
    return True, f"{last}, and {marked}"


def _by_command(copied_if: Iterable[str], path: str) -> tuple[bool, str]:
    argv = [word.replace(PATH, path) for word in copied_if]
    said = child.run(argv, deadline_seconds=COMMAND_SECONDS)
    name = brief(argv[0], 100)
    if isinstance(said, Absent):
        return False, f"--copied-if gave no answer ({brief(str(said), 200)})"
    if said.returncode == 0 and not said.stdout.strip():
        return True, f"{name} found nothing that is not copied"
    told = brief((said.stdout.strip() or said.stderr.strip())[:200], 200)
    return False, f"{name} says it is not copied (exit code {said.returncode}{f': {told}' if told else ''})"


def _size(seen: Contents) -> str:
    least = "" if seen.whole and not seen.unread else "at least "
    return f"{least}{size(seen.bytes)} in {least}{plural(seen.files, 'file')}"


def _where(mount: Mount | None) -> str:
    if mount is None:
        return "a file system that could not be told"
    words = {
        "local": "a local disk",
        "overlay": "the container's own layer",
        "memory": "memory, lost at the next reboot",
        "network": "a share that may be a disk of this node",
    }
    return f"{brief(mount.filesystem, 40)} ({words.get(kind_of(mount) or '', 'of an unknown kind')})"


def _day(at: float) -> str:
    try:
        return f"{datetime.fromtimestamp(at, timezone.utc):%Y-%m-%d %H:%M} UTC"
    except (OverflowError, ValueError, OSError):
        return "no day of this world"


def _how_to_copy(path: str, folder: bool) -> str:
    """A copy that ends in a marker older than whatever changed while it ran."""
    source, draft, marker = (
        (f"{path}/", f"{path}/.nodecheck-copying", f"{path}/{MARKER}")
        if folder
        else (path, f"{path}.nodecheck-copying", f"{path}{MARKER}")
    )
    draft, source, marker = map(shlex.quote, (draft, source, marker))
    return (
        f"Copy it, and mark that: `touch {draft} && rsync --archive {source} WHERE && mv {draft} {marker}`."
    )

"""Child processes with a deadline: started, read while they run, and left behind when they are stuck.

A process in uninterruptible sleep (a driver call on a dying card) survives SIGKILL, and whoever waits for it
waits for ever, as `subprocess.run(timeout=…)` does. So nothing here waits past the deadline.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Literal

from nodecheck.facts import Absent, Maybe, Why
from nodecheck.sources.deadline import within

LIMIT_BYTES = 4 * 1024 * 1024
"""How much of each of stdout and stderr is kept unless the caller says otherwise."""

Undecodable = Literal["replace", "surrogateescape"]

_CHUNK_BYTES = 64 * 1024
_LINGER_SECONDS = 0.2
"""How long to listen on after the child has ended, for output of its own children that hold the pipe open."""

_running: set[subprocess.Popen[bytes]] = set()
_running_lock = threading.Lock()


@dataclass(frozen=True)
class Output:
    """What a program that ran to its end printed."""

    returncode: int
    """Negative: the number of the signal that ended it."""
    stdout: str
    stderr: str
    seconds: float


@dataclass(frozen=True)
class Transcript:
    """What a program printed, whether or not it came to its end."""

    returncode: int | None
    """None where it was cut off."""
    stdout: str
    stderr: str
    seconds: float
    cut_off: str
    """Why it was cut off: empty where it ended by itself."""
    answers: str = ""
    """What came over the pipe of its own, where it was given one."""


def run(
    argv: Sequence[str],
    *,
    deadline_seconds: float,
    env: Mapping[str, str] | None = None,
    limit_bytes: int = LIMIT_BYTES,
    given: bytes = b"",
    undecodable: Undecodable = "replace",
) -> Maybe[Output]:
    """Run a program to its end and collect what it prints.

    `not_present` or `no_permission` where it could not be started, `timed_out` (with the end of its stderr)
    where it had not ended by the deadline. `env` replaces the whole environment. Never raises for what the
    program does.
    """
    said = collect(
        argv,
        deadline_seconds=deadline_seconds,
        env=env,
        limit_bytes=limit_bytes,
        given=given,
        undecodable=undecodable,
    )
    if isinstance(said, Absent):
        return said
    if said.returncode is None:
        last = said.stderr.strip()[-200:]
        return Absent(why=Why.timed_out, detail=said.cut_off + (f"; it said: {last}" if last else ""))
    return Output(said.returncode, said.stdout, said.stderr, said.seconds)


def collect(
    argv: Sequence[str],
    *,
    deadline_seconds: float,
    silence_seconds: float | None = None,
    env: Mapping[str, str] | None = None,
    limit_bytes: int = LIMIT_BYTES,
    answers: bool = False,
    given: bytes = b"",
    undecodable: Undecodable = "replace",
) -> Maybe[Transcript]:
    """Like `run`, and keeps what was printed before the child was cut off.

    The child gets a session and process group of its own, what is `given` (or nothing) on stdin, and no
    descriptors of ours. It is cut off at the deadline, or earlier after `silence_seconds` without a byte on either
    stream. Of each stream the last `limit_bytes` are kept, from a line's beginning where something had to go; bytes
    that are no UTF-8 are replaced, or kept as Python's surrogates.

    With `answers` the child gets a third pipe for what it has to say, apart from what libraries print; the
    descriptor's number is the last of its arguments.
    """
    began = time.monotonic()
    ends = began + deadline_seconds

    def start() -> tuple[subprocess.Popen[bytes], IO[bytes] | None]:
        if not answers:
            return _start(argv, env, given), None
        ours, theirs = os.pipe()
        pipe = open(ours, "rb", buffering=0)  # noqa: SIM115, PTH123  (a descriptor; closed by whoever gets it)
        try:
            return _start([*argv, str(theirs)], env, given, theirs), pipe
        except BaseException:
            pipe.close()
            raise
        finally:
            os.close(theirs)

    def too_late(started: tuple[subprocess.Popen[bytes], IO[bytes] | None]) -> None:
        _abandon(*started)

    try:
        # Popen returns only after the exec, which a dead network mount on PATH can hold up.
        started = within(deadline_seconds, start, late=too_late)
    except (FileNotFoundError, PermissionError) as error:
        # A folder on PATH that is closed to us is an EACCES too, though the program is nowhere to be seen.
        there = isinstance(error, PermissionError) and shutil.which(argv[0], mode=os.F_OK) is not None
        why = Why.no_permission if there else Why.not_present
        return Absent(why=why, detail=f"{argv[0]}: {os.strerror(errno.EACCES if there else errno.ENOENT)}")
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return Absent(why=Why.failed, detail=f"{argv[0]} could not be started: {error}")
    if isinstance(started, Absent):
        return started
    child, pipe = started
    assert child.stdout is not None and child.stderr is not None  # noqa: S101  (both are pipes, see above)

    with _running_lock:
        _running.add(child)
    out, err = _Tail(child.stdout, limit_bytes), _Tail(child.stderr, limit_bytes)
    said = _Tail(pipe, LIMIT_BYTES) if pipe else None
    try:
        tails = (out, err, said) if said else (out, err)
        cut_off = _listen(child, tails, ends, silence_seconds, deadline_seconds)
    finally:
        _abandon(child, pipe)
    return Transcript(
        returncode=None if cut_off else child.returncode,
        stdout=out.text(undecodable),
        stderr=err.text(undecodable),
        seconds=time.monotonic() - began,
        cut_off=cut_off,
        answers=said.text() if said else "",
    )


def _start(
    argv: Sequence[str], env: Mapping[str, str] | None, given: bytes, *inherited: int
) -> subprocess.Popen[bytes]:
    with _holding(given) as stdin:
        return subprocess.Popen(
            list(argv),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
            pass_fds=inherited,
            env=None if env is None else dict(env),
        )


@contextlib.contextmanager
def _holding(given: bytes) -> Iterator[IO[bytes] | int]:
    """A stdin with this in it. It lies in memory: a pipe would hold us up where the child does not read it."""
    if not given:
        yield subprocess.DEVNULL
        return
    with open(os.memfd_create("stdin"), "w+b") as file:  # noqa: PTH123  (a descriptor)
        file.write(given)
        file.seek(0)
        yield file


def end_all() -> None:
    """End every child that runs now (the user interrupted us); waits for none of them."""
    with _running_lock:
        for child in _running:
            end_group(child)


class _Tail:
    """The last bytes of a stream."""

    def __init__(self, stream: IO[bytes], limit_bytes: int) -> None:
        self.stream = stream
        self._limit = limit_bytes
        self._kept = bytearray()
        self._dropped = False

    def take(self) -> bool:
        """Read what is there now; False at the end of the stream."""
        chunk = os.read(self.stream.fileno(), _CHUNK_BYTES)
        self._kept += chunk
        # Trimmed in large steps, so that a flood costs no more than copying it twice.
        if len(self._kept) > 2 * self._limit + _CHUNK_BYTES:
            self._trim()
        return bool(chunk)

    def _trim(self) -> None:
        excess = len(self._kept) - self._limit
        if excess > 0:
            del self._kept[:excess]
            self._dropped = True

    def text(self, undecodable: Undecodable = "replace") -> str:
        self._trim()
        if self._dropped:
            del self._kept[: self._kept.find(b"\n") + 1]
        return self._kept.decode("utf-8", undecodable)


def _listen(
    child: subprocess.Popen[bytes],
    tails: tuple[_Tail, ...],
    ends: float,
    silence_seconds: float | None,
    deadline_seconds: float,
) -> str:
    """Read until the child has ended; the reason where it did not end in time."""
    heard = time.monotonic()
    last_call: float | None = None
    with selectors.DefaultSelector() as selector:
        for tail in tails:
            selector.register(tail.stream, selectors.EVENT_READ, tail)
        while True:
            now = time.monotonic()
            if last_call is None and has_ended(child):
                # What it started and left behind would hold the pipes open.
                end_group(child)
                last_call = now + _LINGER_SECONDS
            if last_call is not None:
                if not selector.get_map() or now >= last_call:
                    return ""
            elif now >= ends:
                return f"not ended after {deadline_seconds:g} s"
            elif silence_seconds is not None and now - heard >= silence_seconds:
                return f"silent for {silence_seconds:g} s"
            if not selector.get_map():
                time.sleep(0.002)  # both streams are closed: only time is left to wake us
                continue
            for key, _ in selector.select(timeout=0.02):
                heard = time.monotonic()
                if not key.data.take():
                    selector.unregister(key.fileobj)


def signal_name(number: int) -> str:
    """`SIGKILL`; most real-time signals have no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def has_ended(child: subprocess.Popen[bytes]) -> bool:
    """Whether the child is a zombie by now. It stays one, so that its number belongs to nobody else yet."""
    try:
        return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _abandon(child: subprocess.Popen[bytes], pipe: IO[bytes] | None = None) -> None:
    """End the child's group, close our ends of the pipes, leave the reaping to a thread nobody waits for."""
    with _running_lock:
        end_group(child)
        _running.discard(child)
    for stream in (child.stdout, child.stderr, pipe):
        if stream is not None:
            stream.close()
    if child.poll() is None:
        with contextlib.suppress(RuntimeError):  # no thread to be had; it stays a zombie until we end
            threading.Thread(target=child.wait, name="reaper", daemon=True).start()


def end_group(child: subprocess.Popen[bytes]) -> None:
    """Only for a child not yet reaped: the group's number is its pid, since it leads a session of its own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)

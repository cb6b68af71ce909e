"""A child process that stays: asked over one pipe, heard over another, its log kept, never waited for without limit."""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from nodecheck.facts import Absent
from nodecheck.sources.channel import Json
from nodecheck.sources.child import end_group, has_ended
from nodecheck.sources.deadline import beside, within

LOG_BYTES = 2 * 1024 * 1024
"""How much of the log's end is kept: NCCL's of eight ranks that tell everything has some hundred KiB."""

LINE_BYTES = 16 * 1024 * 1024
"""Of one answer; what says more in one line has lost its senses and is ended."""

_CHUNK_BYTES = 64 * 1024
_LOOK_SECONDS = 0.1
"""How often a silent child is looked after: one that left its pipes to children of its own ends without a word."""


class Log:
    """The end of what a child printed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept = bytearray()
        self.total = 0
        """Bytes so far: a mark to read on from."""

    def add(self, chunk: bytes) -> None:
        with self._lock:
            self._kept += chunk
            self.total += len(chunk)
            if len(self._kept) > 2 * LOG_BYTES:
                del self._kept[:-LOG_BYTES]

    def since(self, mark: int, limit_bytes: int = LOG_BYTES) -> str:
        """What was printed since `total` was `mark`, the last `limit_bytes` of it."""
        with self._lock:
            count = max(0, min(self.total - mark, limit_bytes, len(self._kept)))
            return self._kept[len(self._kept) - count :].decode("utf-8", "replace")


class Companion:
    """A child in a session of its own. The last two of its arguments are the descriptors of its pipes.

    Its thread starts it, hears it, sees it end and reaps it, and lives as long as it does: a child that has asked
    the kernel to be ended with its parent is ended with the thread that started it.
    """

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str] | None,
        heard: Callable[[dict[str, Json]], None],
        ended: Callable[[], None],
    ) -> None:
        """Returns at once. `heard` (one answer) and `ended` are called from the child's thread.

        Raises OSError where there are no pipes and RuntimeError where there is no thread to be had.
        """
        self._argv, self._env, self._heard, self._ended = list(argv), env, heard, ended
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._unwanted = False
        self._shared_memory: set[Path] = set()
        self.log = Log()
        self.gone = threading.Event()
        """Nothing runs any more, or nothing could be started."""
        self.returncode: int | None = None
        """Once it is gone; negative: the number of the signal that ended it; None: it could not be started."""
        self.failure = ""
        """Why it could not be started."""
        theirs, self._requests = os.pipe()
        try:
            threading.Thread(target=self._live, args=(theirs,), name="companion", daemon=True).start()
        except RuntimeError:
            os.close(theirs)
            os.close(self._requests)
            raise

    def ask(self, request: dict[str, Json]) -> None:
        """Send a request; one that is gone is no error here: `ended` tells."""
        with self._lock, contextlib.suppress(BrokenPipeError):
            if not self.gone.is_set():
                os.write(self._requests, json.dumps(request).encode() + b"\n")

    def signal(self, number: signal.Signals) -> None:
        with self._lock:
            if self._process is not None and not self.gone.is_set():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(self._process.pid, number)

    def kill(self) -> None:
        """End it and its children, from a thread of its own: the kernel may take its time over a sick process."""
        beside(self._kill)

    def _kill(self) -> None:
        with self._lock:
            self._unwanted = True
            process = self._process
        if process is None or self.gone.is_set():
            return
        # Its table of memory can be locked for good by what it hangs in.
        mapped = within(_LOOK_SECONDS, lambda: _shared_memory(process.pid))
        if not isinstance(mapped, Absent):
            self._shared_memory |= mapped
        with self._lock:
            if not self.gone.is_set():
                end_group(process)

    def _live(self, theirs: int) -> None:
        answers, log = -1, -1
        try:
            answers, their_answers = os.pipe()
            log, their_log = os.pipe()
            try:
                process = subprocess.Popen(
                    [*self._argv, str(theirs), str(their_answers)],
                    stdin=subprocess.DEVNULL,
                    stdout=their_log,
                    stderr=their_log,
                    pass_fds=(theirs, their_answers),
                    start_new_session=True,
                    env=None if self._env is None else dict(self._env),
                )
            finally:
                for descriptor in (their_answers, their_log):
                    os.close(descriptor)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self.failure = f"{self._argv[0]} could not be started: {error}"
        else:
            with self._lock:
                self._process = process
                if self._unwanted:
                    end_group(process)
            self._listen(process, answers, log)
        finally:
            os.close(theirs)
            with self._lock:
                if self._process is not None:
                    # A zombie until here, so that its number was nobody else's.
                    end_group(self._process)
                    self.returncode = self._process.wait()
                self.gone.set()
                os.close(self._requests)
            for descriptor in (answers, log):
                if descriptor >= 0:
                    os.close(descriptor)
            for path in self._shared_memory:
                with contextlib.suppress(OSError):
                    path.unlink()
            self._ended()

    def _listen(self, process: subprocess.Popen[bytes], answers: int, log: int) -> None:
        """Until it has ended and all that it said is read."""
        os.set_blocking(answers, False)
        os.set_blocking(log, False)
        rest = b""
        with selectors.DefaultSelector() as selector:
            selector.register(answers, selectors.EVENT_READ)
            selector.register(log, selectors.EVENT_READ)
            while True:
                ready = [key.fd for key, _ in selector.select(_LOOK_SECONDS)]
                over = has_ended(process)
                # The log first: what was printed before an answer is there when the answer is.
                if not self._read_log(log) and log in ready:
                    selector.unregister(log)
                if answers in ready or over:
                    chunk = _read(answers)
                    if chunk == b"" and answers in ready:
                        selector.unregister(answers)
                    *lines, rest = (rest + (chunk or b"")).split(b"\n")
                    self._read_log(log)
                    for line in lines:
                        self._hear(line)
                    if len(rest) > LINE_BYTES:
                        self.kill()
                    if chunk:
                        continue
                if over:
                    return

    def _read_log(self, log: int) -> bool:
        """Read what is there; False at the end of the log."""
        while chunk := _read(log):
            self.log.add(chunk)
        return chunk is None

    def _hear(self, line: bytes) -> None:
        with contextlib.suppress(ValueError, RecursionError):
            said = json.loads(line, parse_constant=lambda _: None)
            if isinstance(said, dict):
                self._heard(said)


def _read(descriptor: int) -> bytes | None:
    """What is there; empty at the end, None where nothing is there yet."""
    try:
        return os.read(descriptor, _CHUNK_BYTES)
    except BlockingIOError:
        return None


def _shared_memory(pid: int) -> set[Path]:
    """Shared memory with a name that the process has mapped: NCCL's, if it is ended while it sets itself up."""
    try:
        maps = Path(f"/proc/{pid}/maps").read_text(errors="replace")
    except OSError:
        return set()
    return {Path(name) for name in re.findall(r" (/dev/shm/nccl-\S+)$", maps, re.MULTILINE)}

"""Real children: well-behaved, flooding, deaf to signals, hanging, leaving children of their own behind."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import pytest

from nodecheck.facts import Absent, Why
from nodecheck.sources import child
from nodecheck.sources.child import Output, Transcript


def python(code: str) -> list[str]:
    return [sys.executable, "-S", "-c", code]


def gone(pid: int, within_seconds: float = 5.0) -> bool:
    """Whether the process is dead (a zombie counts: it runs no more) before the time is up."""
    ends = time.monotonic() + within_seconds
    while time.monotonic() < ends:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False


def test_a_program_that_ends_gives_both_streams_and_its_return_code() -> None:
    said = child.run(
        python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"), deadline_seconds=20
    )
    assert isinstance(said, Output)
    assert (said.returncode, said.stdout, said.stderr) == (3, "out\n", "err\n")
    assert 0 < said.seconds < 20


def test_the_child_has_no_stdin_a_group_of_its_own_and_the_given_environment() -> None:
    code = (
        "import os, sys; print(os.getpid() == os.getpgid(0) == os.getsid(0), repr(sys.stdin.read()),"
        " sorted(k for k in os.environ if k != 'LC_CTYPE'))"
    )
    said = child.run(python(code), deadline_seconds=20, env={"ONLY": "this"})
    assert isinstance(said, Output)
    assert said.stdout.strip() == "True '' ['ONLY']"


def test_bytes_that_are_no_utf8_are_replaced() -> None:
    said = child.run(python("import os; os.write(1, b'a\\xffb')"), deadline_seconds=20)
    assert isinstance(said, Output)
    assert said.stdout == "a�b"


def test_a_signal_is_a_negative_return_code() -> None:
    said = child.run(python("import os; os.kill(os.getpid(), 11)"), deadline_seconds=20)
    assert isinstance(said, Output)
    assert said.returncode == -11


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["no-such-program-anywhere"], Why.not_present),
        (["/proc/self/maps"], Why.no_permission),
        (["a\0b"], Why.failed),
    ],
)
def test_what_cannot_be_started_says_why(argv: list[str], why: Why) -> None:
    said = child.run(argv, deadline_seconds=20)
    assert isinstance(said, Absent)
    assert said.why is why


def test_a_child_deaf_to_sigterm_is_cut_off_at_the_deadline_and_ended() -> None:
    code = (
        "import os, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "print(os.getpid(), flush=True); print('stuck in a call', file=sys.stderr, flush=True);"
        "time.sleep(600)"
    )
    began = time.monotonic()
    said = child.collect(python(code), deadline_seconds=1.0)
    assert time.monotonic() - began < 3
    assert isinstance(said, Transcript)
    assert said.returncode is None
    assert "1 s" in said.cut_off
    assert gone(int(said.stdout))

    absent = child.run(python(code), deadline_seconds=0.5)
    assert isinstance(absent, Absent)
    assert absent.why is Why.timed_out
    assert "stuck in a call" in absent.detail


def test_the_children_of_a_stuck_child_are_ended_with_it() -> None:
    code = (
        "import subprocess, sys, time;"
        "p = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(600)']);"
        "print(p.pid, flush=True); time.sleep(600)"
    )
    said = child.collect(python(code), deadline_seconds=1.0)
    assert isinstance(said, Transcript)
    assert gone(int(said.stdout))


def test_a_grandchild_that_holds_the_pipe_does_not_hold_up_the_answer() -> None:
    code = (
        "import subprocess, sys;"
        "p = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(600)'],"
        " start_new_session={}); print(p.pid)"
    )
    for new_session in (False, True):
        began = time.monotonic()
        said = child.run(python(code.format(new_session)), deadline_seconds=30)
        assert isinstance(said, Output)
        assert time.monotonic() - began < 10
        grandchild = int(said.stdout)
        if new_session:  # out of our reach on purpose: it left the group
            os.kill(grandchild, 9)
        assert gone(grandchild)


def test_of_a_flood_the_end_is_kept_and_memory_stays_bounded() -> None:
    code = "import sys\nfor i in range(200000): print(i, 'x' * 40)\nprint('the last line')"
    said = child.run(python(code), deadline_seconds=60, limit_bytes=10_000)
    assert isinstance(said, Output)
    assert len(said.stdout) <= 10_000
    lines = said.stdout.splitlines()
    assert lines[-1] == "the last line"
    assert all(line.endswith("x" * 40) and line.split()[0].isdigit() for line in lines[:-1])


def test_an_endless_flood_ends_at_the_deadline() -> None:
    began = time.monotonic()
    said = child.collect(["yes"], deadline_seconds=0.5, limit_bytes=1000)
    assert time.monotonic() - began < 3
    assert isinstance(said, Transcript)
    assert said.returncode is None
    assert len(said.stdout) <= 1000


def test_silence_is_cut_off_before_the_deadline_and_keeps_what_was_said() -> None:
    code = "import time\nfor i in range(3): print(i, flush=True); time.sleep(0.1)\ntime.sleep(600)"
    began = time.monotonic()
    said = child.collect(python(code), deadline_seconds=60, silence_seconds=1.5)
    assert time.monotonic() - began < 20
    assert isinstance(said, Transcript)
    assert said.returncode is None
    assert said.stdout == "0\n1\n2\n"
    assert said.cut_off == "silent for 1.5 s"


def test_a_child_that_closes_its_streams_is_still_awaited_and_still_cut_off() -> None:
    said = child.run(
        python("import os, time; os.close(1); os.close(2); time.sleep(0.3)"), deadline_seconds=20
    )
    assert isinstance(said, Output)
    assert said.seconds >= 0.3
    cut = child.run(
        python("import os, time; os.close(1); os.close(2); time.sleep(600)"), deadline_seconds=0.5
    )
    assert isinstance(cut, Absent)


def test_an_interrupt_ends_every_running_child() -> None:
    answers: list[object] = []
    code = "import time; print('up', flush=True); time.sleep(600)"
    thread = threading.Thread(target=lambda: answers.append(child.run(python(code), deadline_seconds=60)))
    thread.start()
    ends = time.monotonic() + 10
    while not child._running and time.monotonic() < ends:
        time.sleep(0.01)
    child.end_all()
    thread.join(10)
    assert not thread.is_alive()
    assert isinstance(answers[0], Output)
    assert answers[0].returncode == -9


def test_no_descriptors_and_no_zombies_are_left_behind() -> None:
    child.run(python("pass"), deadline_seconds=20)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        child.run(python("pass"), deadline_seconds=20)
        child.run(python("import time; time.sleep(600)"), deadline_seconds=0.1)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    ends = time.monotonic() + 10
    while any(t.name == "reaper" for t in threading.enumerate()) and time.monotonic() < ends:
        time.sleep(0.01)
    assert not any(t.name == "reaper" for t in threading.enumerate())


def test_answers_come_over_a_pipe_of_their_own_whatever_else_is_printed() -> None:
    code = "import os, sys; print('noise'); os.write(int(sys.argv[-1]), b'said'); os.write(2, b'more noise')"
    said = child.collect([*python(code), "word"], deadline_seconds=20, answers=True)
    assert isinstance(said, Transcript)
    assert (said.answers, said.stdout, said.stderr) == ("said", "noise\n", "more noise")


def test_answers_given_before_the_cut_off_are_kept() -> None:
    code = "import os, sys, time; os.write(int(sys.argv[-1]), b'half'); time.sleep(60)"
    said = child.collect(python(code), deadline_seconds=0.5, answers=True)
    assert isinstance(said, Transcript)
    assert said.returncode is None
    assert said.answers == "half"


def test_no_descriptor_is_left_open_where_answers_were_wanted() -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = descriptors()
    for argv in (python("pass"), ["/no/such/program"], python("import time; time.sleep(60)")):
        child.collect(argv, deadline_seconds=0.3, answers=True)
    assert descriptors() == before


def test_signals_without_a_name_are_told_by_number() -> None:
    said = child.run(python("import os; os.kill(os.getpid(), 40)"), deadline_seconds=20)
    assert isinstance(said, Output) and said.returncode == -40
    assert (child.signal_name(40), child.signal_name(9)) == ("signal 40", "SIGKILL")

"""Programs that are told of a change: well-behaved, missing, failing, deaf, flooding."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from nodecheck.judge import Status
from nodecheck.rental import onchange
from nodecheck.rental.result import CheckResult
from tests.rental import checks

CHANGED = checks.check((checks.LOST_LINK,), (checks.change(checks.LOST_LINK),), Status.fail)


def python(code: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-S", "-c", code, *arguments)


def test_it_gets_the_check_on_stdin_and_its_arguments_as_they_are(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    words = python(
        "import json, os, sys; json.dump([sys.argv[1:], sys.stdin.read(), os.getpid() == os.getsid(0)],"
        " open(sys.argv[1], 'w')); print('not shown')",
        str(seen),
        "$HOME; rm -rf *",
    )
    assert onchange.tell(words, CHANGED) == ""
    arguments, document, leader = json.loads(seen.read_text())
    assert arguments[1] == "$HOME; rm -rf *"
    assert leader
    assert CheckResult.model_validate_json(document) == CHANGED


def test_it_is_not_started_where_nothing_changed(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    assert onchange.tell(("touch", str(seen)), checks.quiet()) == ""
    assert not seen.exists()


def test_its_end_is_told() -> None:
    failed = onchange.tell(
        python("import sys; print('no route\\x1b[2J', file=sys.stderr); sys.exit(7)"), CHANGED
    )
    assert failed == f"--on-change {sys.executable} ended with 7; it said: no route\\x1b[2J"
    killed = onchange.tell(python("import os; os.kill(os.getpid(), 9)"), CHANGED)
    assert killed == f"--on-change {sys.executable} was ended by signal 9"


@pytest.mark.parametrize("program", ["no-such-program-here", "/no/such/program", "/etc/passwd", "/"])
def test_what_cannot_be_started_is_told(program: str) -> None:
    assert onchange.tell((program,), CHANGED).startswith(f"--on-change could not be run: {program}")


@pytest.mark.parametrize(
    "code",
    [
        "import time; time.sleep(60)",
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)",
        "import sys\nwhile True: sys.stdout.write('x' * 65536)",
        "import os, time; os.close(0); os.close(1); os.close(2); time.sleep(60)",
    ],
)
def test_what_does_not_end_is_ended(code: str) -> None:
    began = time.monotonic()
    told = onchange.tell(python(code), CHANGED, deadline_seconds=0.5)
    assert time.monotonic() - began < 5
    assert "was cut off: not ended after 0.5 s" in told
    assert len(told) < 1000


def test_one_that_does_not_read_is_fine() -> None:
    large = checks.check(CHANGED.findings, CHANGED.changes, Status.fail, notes=("x" * 2_000_000,))
    assert onchange.tell(python("import os; os.close(0)"), large) == ""
    assert onchange.tell(python("import sys; assert len(sys.stdin.read()) > 2_000_000"), large) == ""


def test_a_command_in_one_option() -> None:
    assert onchange.command("mail -s 'node changed' me@example.org") == (
        "mail",
        "-s",
        "node changed",
        "me@example.org",
    )
    assert onchange.command("echo $HOME `id` | x > y") == ("echo", "$HOME", "`id`", "|", "x", ">", "y")


@pytest.mark.parametrize("text", ["", "  ", "mail 'x", "mail \\"])
def test_what_is_no_command_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no command: |it is empty"):
        onchange.command(text)

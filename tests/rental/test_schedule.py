"""Entries by the clock, in stand-ins of cron and systemd."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodecheck.rental.schedule import ScheduleError, by_hand, plan, rehearse
from nodecheck.rental.schedule.cron import BEGIN, END, Cron, block, lines_of, with_block
from nodecheck.rental.schedule.plan import Plan
from nodecheck.rental.schedule.systemd import Systemd
from tests.rental import clocks
from tests.rental.clocks import Machine


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    made.has("crontab", clocks.CRONTAB)
    for name, value in made.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(made.home)
    return made


def every(text_seconds: float, active: str | None = None, *options: str) -> Plan:
    return plan(text_seconds, active, options)


# The plan


@pytest.mark.parametrize("minutes", [1, 2, 5, 15, 30, 60, 120, 360, 1440])
def test_what_divides_an_hour_or_a_day_is_taken(minutes: int) -> None:
    assert every(minutes * 60).every_minutes == minutes


@pytest.mark.parametrize(
    ("seconds", "near"),
    [(7 * 60, "6m or 10m"), (30, "take 1m"), (90, "1m or 2m"), (5 * 3600, "4h or 6h"), (1e5, "take 24h")],
)
def test_what_does_not_is_refused_with_what_does(seconds: float, near: str) -> None:
    with pytest.raises(ScheduleError, match=near):
        every(seconds)


@pytest.mark.parametrize("text", ["4", "4:00", "24:00", "04:60", "04:00:00", "now", "٠٤:00", ""])
def test_what_is_no_time_of_day_is_refused(text: str) -> None:
    with pytest.raises(ScheduleError, match="04:00"):
        every(900, text)


# cron


def fires(line: str) -> set[int]:
    """The minutes of a day at which a line of a crontab fires."""
    fields = line.split()[:5]
    assert fields[2:] == ["*", "*", "*"]
    return {h * 60 + m for h in expanded(fields[1], 24) for m in expanded(fields[0], 60)}


def expanded(field: str, end: int) -> set[int]:
    if field == "*":
        return set(range(end))
    match = re.fullmatch(r"(\d+)(?:-(\d+)/(\d+))?", field)
    assert match, field
    first = int(match[1])
    assert first < end
    return set(range(first, int(match[2]) + 1, int(match[3]))) if match[2] else {first}


@given(
    st.sampled_from([n for n in range(1, 1441) if 60 % n == 0 or (n % 60 == 0 and 1440 % n == 0)]),
    st.integers(0, 1439),
)
@settings(deadline=None)
def test_it_fires_as_often_as_it_was_said(minutes: int, active: int) -> None:
    check, daily = lines_of(every(minutes * 60, f"{active // 60:02}:{active % 60:02}"))
    at = sorted(fires(check))
    assert len(at) == 1440 // minutes
    assert {b - a for a, b in pairwise(at)} <= {minutes}
    assert fires(daily) == {active}
    if minutes > 1:
        assert active % 60 not in {minute % 60 for minute in at} or minutes >= 60


def test_the_line_says_all_that_cron_does_not_know(machine: Machine) -> None:
    (line,) = lines_of(every(900))
    command = line.split(" ", 5)[5]
    words = shlex.split(command)
    assert words[0] == "env"
    assert words[1:5] == [
        f"PATH={machine.env['PATH']}",
        f"HOME={machine.home}",
        f"XDG_STATE_HOME={machine.env['XDG_STATE_HOME']}",
        "LD_LIBRARY_PATH=/usr/local/nvidia/lib64",
    ]
    assert Path(words[5]).is_absolute()
    assert words[6:] == ["-m", "nodecheck", "check"]


NASTY = ("--on-change", "notify 100% 'it''s' $HOME `id` \\% \"x\" ; | &", "--baseline", "a b/report.json", "")


def as_cron_runs(line: str) -> list[str]:
    """The arguments that cron's shell gives to the program in place of nodecheck."""
    command = re.sub(r"\\%", "%", line.split(" ", 5)[5])
    assert "%" not in re.sub(r"\\%", "", line)
    shown = re.sub(r" \S+ -m nodecheck check ", " printf '%s\\\\n' ", command)
    said = subprocess.run(["sh", "-c", shown], capture_output=True, text=True, check=True)
    return said.stdout.removesuffix("\n").split("\n")


def test_options_reach_the_check_as_they_were_given(machine: Machine) -> None:
    (line,) = lines_of(every(900, None, *NASTY))
    assert as_cron_runs(line) == list(NASTY)
    assert line.split(" ", 5)[5].startswith(f"cd {machine.home} && ")


@given(
    st.lists(
        st.text(
            st.characters(codec="utf-8", exclude_categories=("C", "Z"), include_characters=" "), max_size=20
        ),
        min_size=1,
        max_size=4,
    )
)
@settings(deadline=None, max_examples=25)
def test_any_option_reaches_the_check(options: list[str]) -> None:
    (line,) = lines_of(every(900, None, *options))
    assert as_cron_runs(line) == options


@pytest.mark.parametrize("option", ["a\nb", "\x1b[2J", "\udc80"])
def test_what_no_crontab_can_hold_is_refused(option: str) -> None:
    with pytest.raises(ScheduleError, match="no crontab can hold"):
        every(900, None, option)


def test_a_line_longer_than_cron_takes_is_refused(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", ":".join(f"/opt/folder-{i}/bin" for i in range(80)))
    with pytest.raises(ScheduleError, match="998 characters"):
        lines_of(every(900))


FOREIGN = st.lists(
    st.tuples(
        st.text(st.characters(exclude_characters="\n", exclude_categories=("Cs",)), max_size=20),
        st.sampled_from(["\n", "\r\n"]),
    ),
    max_size=6,
).map(lambda lines: "".join(text + end for text, end in lines))


@given(FOREIGN, st.booleans(), FOREIGN)
@settings(deadline=None)
def test_foreign_lines_stay_to_the_byte(before: str, whole: bool, after: str) -> None:
    crontab = before if whole else before.rstrip("\r\n")
    once = with_block(crontab, ("1 * * * * a",))
    assert with_block(once, ("1 * * * * a",)) == once
    assert block(once) == ("1 * * * * a",)
    assert with_block(once, ()) in (crontab, f"{crontab}\n")
    changed = with_block(once + after, ("2 * * * * b", "3 * * * * c"))
    assert changed == once.replace("1 * * * * a\n", "2 * * * * b\n3 * * * * c\n") + after
    assert with_block(changed, ()).removeprefix(with_block(once, ())) == after


@pytest.mark.parametrize(
    "crontab",
    [
        f"{BEGIN}\n1 * * * * a\n",
        f"1 * * * * a\n{END}\n",
        f"{BEGIN}\n{END}\n{BEGIN}\n{END}\n",
        f"{END}\n{BEGIN}\n",
    ],
)
def test_damaged_marks_are_left_to_their_owner(crontab: str) -> None:
    for lines in ((), ("1 * * * * b",)):
        with pytest.raises(ScheduleError, match="crontab -e"):
            with_block(crontab, lines)


def test_a_block_that_an_editor_turned_to_crlf_is_still_ours() -> None:
    crontab = with_block("", ("1 * * * * a",)).replace("\n", "\r\n")
    assert with_block(crontab, ()) == ""


def test_installing_twice_writes_once_and_removing_leaves_what_was_there(machine: Machine) -> None:
    original = b"MAILTO=me@example.org\r\n# caf\xe9 \xff\n*/5 * * * * backup 2>&1 >/dev/null % input\n"
    machine.table.write_bytes(original)
    with clocks.cron_daemon():
        assert Cron().trouble() == ""
    Cron().install(every(900))
    installed = machine.table.read_bytes()
    assert installed.startswith(original)
    assert len(Cron().entries()) == 1
    written = machine.table.stat().st_ino
    Cron().install(every(900))
    assert machine.table.stat().st_ino == written
    Cron().install(every(3600, "04:00"))
    assert len(Cron().entries()) == 2
    assert machine.table.read_bytes().startswith(original)
    assert Cron().remove()
    assert machine.table.read_bytes() == original
    assert not Cron().remove()


def test_what_cannot_be_read_is_not_taken_for_an_empty_crontab(machine: Machine) -> None:
    machine.table.write_text("0 1 * * * mine\n")
    machine.has(
        "crontab", clocks.CRONTAB.replace('cat "$table" ;;', "echo 'libpam.so: No such file' >&2; exit 1 ;;")
    )
    with pytest.raises(ScheduleError, match="crontab -l failed"):
        Cron().install(every(900))
    assert machine.table.read_text() == "0 1 * * * mine\n"
    busybox = "crontab: can't open 'root': No such file or directory"
    machine.has("crontab", f'#!/bin/sh\n[ "$1" = - ] && exit 1\necho "{busybox}" >&2\nexit 1\n')
    assert Cron().entries() == ()


def test_no_crontab_yet_is_an_empty_one(machine: Machine) -> None:
    assert Cron().entries() == ()
    Cron().install(every(900))
    assert machine.table.read_text().startswith(BEGIN)


def test_a_crontab_that_is_refused_is_told(machine: Machine) -> None:
    machine.has("crontab", clocks.NOT_ALLOWED)
    assert "are not allowed to use this program" in Cron().trouble()
    with pytest.raises(ScheduleError, match="are not allowed"):
        Cron().install(every(900))
    machine.has("crontab", "#!/bin/sh\n[ $1 = -l ] && exit 0\ncat >/dev/null\n")
    with pytest.raises(ScheduleError, match="does not show them"):
        Cron().install(every(900))
    machine.has("crontab", "#!/bin/sh\n[ $1 = -l ] && exit 0\necho 'disk full' >&2; exit 1\n")
    with pytest.raises(ScheduleError, match="disk full"):
        Cron().install(every(900))


def test_without_crontab_or_daemon_it_does_not_work(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodecheck.rental.schedule.cron.PROCESSES", machine.home)
    assert Cron().trouble() == "no cron daemon runs here"
    (machine.home / "17").mkdir()
    (machine.home / "17" / "comm").write_text("busybox\n")
    (machine.home / "17" / "cmdline").write_bytes(b"/bin/busybox\0crond\0-f\0")
    assert Cron().trouble() == ""
    (machine.programs / "crontab").unlink()
    if not any(os.access(f"{folder}/crontab", os.X_OK) for folder in ("/usr/bin", "/bin")):
        assert Cron().trouble() == "there is no crontab here"
        assert Cron().entries() == ()


# systemd


def unit(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def unquoted(value: str) -> list[str]:
    """Words of a unit file, as systemd.syntax(7) and systemd.service(5) say."""
    assert re.fullmatch(r'("(?:[^"\\]|\\["\\])*"(?: |$))+', value), value
    words = re.findall(r'"((?:[^"\\]|\\["\\])*)"', value)
    return [re.sub(r"\\(.)", r"\1", word).replace("%%", "%") for word in words]


def test_without_a_bus_it_does_not_work(machine: Machine) -> None:
    assert Systemd().trouble() == "systemctl --user show failed: Failed to connect to bus: No medium found"
    assert Systemd().entries() == ()
    assert not Systemd().remove()


def test_timers_are_written_enabled_and_taken_out(machine: Machine) -> None:
    machine.has("systemctl", clocks.SYSTEMCTL)
    foreign = machine.home / ".config" / "systemd" / "user" / "backup.timer"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("mine")
    assert Systemd().trouble() == ""
    note = Systemd().install(every(900, "04:00", *NASTY[:4]))
    assert "enable-linger" in note
    units = machine.units()
    assert set(units) == {
        "backup.timer", "nodecheck-active.service", "nodecheck-active.timer", "nodecheck-check.service",
        "nodecheck-check.timer",
    }  # fmt: skip
    service = unit(units["nodecheck-check.service"])
    (started,) = service["ExecStart"]
    words = [word.replace("$$", "$") for word in unquoted(started)]
    assert Path(words[0]).is_absolute()
    assert tuple(words[4:]) == NASTY[:4]
    assert [unquoted(value)[0].partition("=")[0] for value in service["Environment"]] == [
        "PATH", "HOME", "XDG_STATE_HOME", "LD_LIBRARY_PATH",
    ]  # fmt: skip
    assert service["WorkingDirectory"] == [str(machine.home)]
    assert unit(units["nodecheck-check.timer"])["OnUnitActiveSec"] == ["15min"]
    assert "RandomizedDelaySec" in unit(units["nodecheck-check.timer"])
    assert unit(units["nodecheck-active.timer"])["OnCalendar"] == ["*-*-* 04:00:00"]
    assert "--active" in units["nodecheck-active.service"]
    calls = machine.calls.read_text().splitlines()
    assert calls[1:] == [
        "--user daemon-reload",
        "--user enable nodecheck-check.timer nodecheck-active.timer",
        "--user restart nodecheck-check.timer nodecheck-active.timer",
    ]

    Systemd().install(every(3600))
    assert set(machine.units()) == {"backup.timer", "nodecheck-check.service", "nodecheck-check.timer"}
    (entry,) = Systemd().entries()
    assert entry == "nodecheck-check.timer: active, OnBootSec=1min, OnUnitActiveSec=60min"
    assert Systemd().remove()
    assert machine.units() == {"backup.timer": "mine"}


def test_one_who_lingers_is_not_told_to(machine: Machine) -> None:
    machine.has("systemctl", clocks.SYSTEMCTL)
    machine.has("loginctl", "#!/bin/sh\necho yes\n")
    assert "linger" not in Systemd().install(every(900))


def test_a_folder_that_cannot_be_written_is_told(machine: Machine) -> None:
    machine.has("systemctl", clocks.SYSTEMCTL)
    (machine.home / ".config").write_text("a file")
    with pytest.raises(ScheduleError, match="cannot write to"):
        Systemd().install(every(900))


# Before it is put anywhere


def test_it_is_started_once_as_it_will_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nodecheck"
    program.write_text(
        '#!/bin/sh\n[ -z "$SECRET" ] || exit 0\necho "No module named nodecheck" >&2\nexit 1\n'
    )
    program.chmod(0o755)
    monkeypatch.setattr("sys.argv", [str(program)])
    monkeypatch.setenv("SECRET", "not handed on")
    with pytest.raises(ScheduleError, match=r"would not start: .*/nodecheck says No module named nodecheck"):
        rehearse()
    program.write_text('#!/bin/sh\n[ "$*" = --version ]\n')
    rehearse()


# By hand


def test_what_is_to_be_entered_by_hand_is_shell_and_crontab(machine: Machine) -> None:
    text = by_hand(every(900, "04:00"))
    loop = text.splitlines()[-1]
    subprocess.run(["bash", "-n", "-c", loop], check=True)
    assert "while sleep 900; do env PATH=" in loop
    assert len([line for line in text.splitlines() if not line.startswith(("#", "("))]) == 2

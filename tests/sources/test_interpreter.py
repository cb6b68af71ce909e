"""Finding the renter's interpreter among real ones, and asking it in real processes."""

from __future__ import annotations

import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from nodecheck.facts import Absent, Why
from nodecheck.sources import interpreter
from nodecheck.sources.channel import Channel, Live, Recorded, Recorder
from nodecheck.sources.interpreter import Interpreter
from tests.fakes import cuda as fake

MARK = f"NODECHECK_TEST={uuid.uuid4()}"


def alive() -> list[str]:
    """Processes that carry our mark; a zombie has no environment any more."""
    found = []
    for process in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if MARK.encode() in process.read_bytes():
                found.append(process.parent.name)
    return found


@pytest.fixture(autouse=True)
def no_child_outlives_its_test() -> Iterator[None]:
    yield
    ends = time.monotonic() + 5
    while alive() and time.monotonic() < ends:
        time.sleep(0.05)
    assert alive() == []


def live(python: str | None = None, seconds: float = 30.0, **environment: str) -> Live:
    name, _, value = MARK.partition("=")
    return interpreter.live(
        python, deadline_seconds=seconds, environment={"PATH": "", name: value, **environment}
    )


def told(channel: Channel, question: str) -> dict[str, Any]:
    """An answer that is there."""
    answer = channel.ask(question)
    assert isinstance(answer, dict), answer
    return answer


def over_cuda(seconds: float = 30.0, **variables: str) -> Live:
    return live(sys.executable, seconds, **fake.environment(**variables))


def environment(folder: Path, torch: bool) -> Path:
    """An environment below `folder`, made as `python -m venv` makes them."""
    base = Path(sys.base_prefix) / "bin" / "python3"
    (folder / "bin").mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text(f"home = {base.parent}\ninclude-system-site-packages = false\n")
    for name in ("python", "python3"):
        (folder / "bin" / name).symlink_to(base)
    if torch:
        package = folder / "lib" / f"python3.{sys.version_info[1]}" / "site-packages" / "torch"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("raise ImportError('nobody asked to import this')\n")
    return folder


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bare_nodecheck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """nodecheck's own environment, without a torch."""
    own = environment(tmp_path / "nodecheck", torch=False)
    monkeypatch.setattr(sys, "executable", str(own / "bin" / "python"))
    return own


# Finding


def test_the_one_that_is_named_is_taken_with_or_without_torch(tmp_path: Path) -> None:
    other, named = environment(tmp_path / "a", torch=True), environment(tmp_path / "b", torch=False)
    chosen = told(live(str(named / "bin" / "python"), VIRTUAL_ENV=str(other)), "chosen")
    assert chosen == {
        "path": str(named / "bin" / "python"),
        "version": ".".join(map(str, sys.version_info[:3])),
        "chosen": "--python",
        "others": [],
    }


def test_a_name_is_looked_up_on_path(tmp_path: Path) -> None:
    env = environment(tmp_path / "a", torch=True)
    chosen = told(live("python3", PATH=str(env / "bin")), "chosen")
    assert chosen["path"] == str(env / "bin" / "python3")


@pytest.mark.parametrize(
    ("python", "why"),
    [("/no/such/python", Why.not_present), ("/bin/true", Why.failed), ("/etc", Why.not_present)],
)
def test_what_is_no_interpreter_is_absent_and_so_is_every_answer(python: str, why: Why) -> None:
    channel = live(python)
    for question in ("chosen", "describe", "context cpu"):
        answer = channel.ask(question)
        assert isinstance(answer, Absent)
        assert answer.why is why
        assert python in answer.detail


def test_the_active_environment_goes_before_path(tmp_path: Path, bare_nodecheck: Path) -> None:
    active, other = environment(tmp_path / "a", torch=True), environment(tmp_path / "b", torch=True)
    chosen = told(live(VIRTUAL_ENV=str(active), PATH=f"{other}/bin:{active}/bin"), "chosen")
    assert (chosen["path"], chosen["chosen"]) == (str(active / "bin" / "python"), "the active environment")
    assert chosen["others"] == [str(other / "bin" / "python3")]


def test_a_conda_environment_counts_as_active(tmp_path: Path, bare_nodecheck: Path) -> None:
    active = environment(tmp_path / "conda", torch=True)
    assert told(live(CONDA_PREFIX=str(active)), "chosen")["path"] == str(active / "bin" / "python")


def test_an_active_environment_without_torch_is_passed_over_and_named(
    tmp_path: Path, bare_nodecheck: Path
) -> None:
    active, other = environment(tmp_path / "a", torch=False), environment(tmp_path / "b", torch=True)
    chosen = told(live(VIRTUAL_ENV=str(active), PATH=f"{active}/bin:{other}/bin"), "chosen")
    assert chosen["path"] == str(other / "bin" / "python3")
    assert chosen["chosen"] == "the first on PATH that has torch (the active environment has none)"


def test_one_installation_under_several_names_is_one(tmp_path: Path, bare_nodecheck: Path) -> None:
    env = environment(tmp_path / "a", torch=True)
    (tmp_path / "link").symlink_to(env / "bin")
    chosen = told(live(PATH=f"{env}/bin:{tmp_path}/link"), "chosen")
    assert chosen["others"] == []


def test_without_any_torch_it_is_nodechecks_own(tmp_path: Path, bare_nodecheck: Path) -> None:
    env = environment(tmp_path / "a", torch=False)
    chosen = told(live(PATH=str(env / "bin")), "chosen")
    assert chosen["path"] == str(bare_nodecheck / "bin" / "python")
    assert "no interpreter was found that has torch" in chosen["chosen"]


def test_nothing_is_run_from_relative_folders_of_path(
    tmp_path: Path, bare_nodecheck: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tmp_path / "here" / "python3", f"touch {tmp_path}/was-run")
    monkeypatch.chdir(tmp_path / "here")
    live(PATH=f":.:{tmp_path}/none").ask("chosen")
    assert not (tmp_path / "was-run").exists()


def test_candidates_that_hang_or_talk_nonsense_are_passed_over(
    tmp_path: Path, bare_nodecheck: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interpreter, "FIND_SECONDS", 1.0)
    script(tmp_path / "1" / "python3", "exec sleep 600")
    script(tmp_path / "2" / "python3", 'echo \'{"item": "torch", "value": "/mine"}\' >&4; exit 3')
    good = environment(tmp_path / "3", torch=True)
    began = time.monotonic()
    chosen = told(live(PATH=f"{tmp_path}/1:{tmp_path}/2:{good}/bin"), "chosen")
    assert chosen["path"] == str(good / "bin" / "python3")
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("shape", ["{}", "[]", "7", "true"])
@pytest.mark.parametrize("item", ["python", "prefix", "torch"])
def test_a_candidate_that_answers_in_another_shape_is_passed_over(
    tmp_path: Path, bare_nodecheck: Path, item: str, shape: str
) -> None:
    said = {"python": '"3.12.1"', "prefix": '"/mine"', "torch": '"/mine/torch"'} | {item: shape}
    lines = "; ".join(
        f"""echo '{{"item": "{name}", "value": {value}}}' >/dev/fd/$4""" for name, value in said.items()
    )
    fake_python = script(tmp_path / "1" / "python3", lines)
    good = environment(tmp_path / "2", torch=True)
    assert told(live(PATH=f"{tmp_path}/1:{good}/bin"), "chosen")["path"] == str(good / "bin" / "python3")
    answer = live(str(fake_python)).ask("chosen")
    assert isinstance(answer, Absent)
    assert "another shape" in answer.detail


def test_it_is_looked_for_once_also_when_asked_from_several_threads(
    tmp_path: Path, bare_nodecheck: Path
) -> None:
    count = tmp_path / "count"
    python = Path(sys.base_prefix) / "bin" / "python3"
    script(
        tmp_path / "bin" / "python3", f'case "$*" in *" find "*) echo x >>{count};; esac; exec {python} "$@"'
    )
    channel = live(PATH=f"{tmp_path}/bin:/usr/bin:/bin", PYTHONPATH=str(fake.SITE))
    threads = [threading.Thread(target=channel.ask, args=("chosen",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count.read_text() == "x\n"


# Asking


def test_the_environment_is_the_renters_own() -> None:
    answer = told(over_cuda(), "describe")
    assert answer["items"]["version"] == "2.11.0+cu130"
    assert (answer["step"], answer["returncode"], answer["cut_off"]) == ("done", 0, "")
    assert 0 < answer["seconds"] < 30


def test_a_context_is_made_on_the_card_that_was_named() -> None:
    answer = told(over_cuda(FAKE_CUDA_CARDS="4", CUDA_VISIBLE_DEVICES="0"), f"context {fake.uuid(3)}")
    assert answer["items"]["device"]["uuid"] == fake.uuid(3)


def test_the_cpu_needs_no_cuda() -> None:
    answer = told(over_cuda(FAKE_CUDA_INIT="802"), "context cpu")
    assert answer["items"]["sum"]["got"] == 549755289600
    assert "init" not in answer["items"]


@pytest.mark.parametrize("question", ["", "context", "context ", "nonsense", "describe it", "context a\0b"])
def test_other_questions_have_no_answer(question: str) -> None:
    answer = over_cuda().ask(question)
    assert isinstance(answer, Absent)
    assert answer.why is Why.failed


def test_what_was_said_before_a_hang_is_kept_with_the_stack() -> None:
    answer = told(over_cuda(1.5, FAKE_TORCH="hangs"), "describe")
    assert answer["returncode"] is None
    assert "1.5 s" in answer["cut_off"]
    assert answer["items"]["init"]["code"] == 0
    assert "site/torch/__init__.py" in answer["log"]


def test_the_log_is_bounded() -> None:
    answer = told(over_cuda(FAKE_TORCH="prints"), "describe")
    assert 0 < len(answer["log"]) <= 2 * interpreter.LOG_BYTES
    assert answer["items"]["version"] == "2.11.0+cu130"


def test_a_recording_answers_as_the_machine_did() -> None:
    recorder = Recorder(over_cuda())
    questions = ("chosen", "describe", f"context {fake.uuid(0)}")
    said = [recorder.ask(question) for question in questions]
    replay = Recorded(recorder.answers)
    assert [replay.ask(question) for question in questions] == said
    assert isinstance(replay.ask("context GPU-other"), Absent)


@pytest.mark.parametrize("nonsense", [[], "text", 5, None, True])
def test_the_front_passes_on_objects_alone(nonsense: Any) -> None:
    front = Interpreter(Recorded({"describe": {"value": nonsense}}))
    answer = front.describe()
    assert isinstance(answer, Absent)
    assert answer.why is Why.failed

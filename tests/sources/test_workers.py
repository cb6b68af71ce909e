"""Real workers in real processes: they answer, err, hang, die, and are gone whatever happens to us."""

from __future__ import annotations

import json
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodecheck.facts import Absent, Why
from nodecheck.sources import crew, interpreter
from nodecheck.sources.channel import Live, Recorded, Recorder
from nodecheck.sources.crew import PATIENCE_SECONDS, Crew
from nodecheck.sources.deadline import beside
from nodecheck.sources.interpreter import Interpreter
from nodecheck.sources.workers import Replayed, Workers, end_all
from tests.fakes import crew as fake
from tests.fakes import cuda as made_up

TWO = ["cpu0", "cpu1"]


class Team:
    """Workers over a made-up torch (or the real one), and what they were heard to say."""

    def __init__(self, folder: Path, pythonpath: str | None) -> None:
        self.folder = folder
        self.progress: list[tuple[str, str, float, str]] = []
        self.crew = Crew(lambda *words: self.progress.append(words), fake.program(folder / "workers"))
        self.recorder = Recorder(Live(self.crew.answer))
        self.workers = Workers(self.recorder)
        self._variables = {} if pythonpath is None else {"PYTHONPATH": pythonpath}

    def start(self, cards: list[str], **arguments: Any) -> dict[str, Any]:
        variables = {**self._variables, **arguments.pop("environment", {})}
        return self.run("start", cards, **{"python": sys.executable, "environment": variables, **arguments})

    def run(self, stage: str, cards: list[str], **arguments: Any) -> dict[str, Any]:
        said = self.workers.run(stage, cards, {"deadline_seconds": 60, **arguments})
        assert not isinstance(said, Absent), said
        json.dumps(said, allow_nan=False)
        return said


@pytest.fixture
def team(tmp_path: Path) -> Iterator[Team]:
    """Over the made-up torch."""
    team = Team(tmp_path, fake.torch(tmp_path / "made up"))
    yield team
    team.crew.end()
    assert fake.all_gone(tmp_path, 2)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    """Two workers over the real torch, one after the other's test."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("real")
    team = Team(folder, None)
    said = team.start(TWO)
    assert said["answers"].keys() == set(TWO), said
    yield team
    team.crew.end()
    assert fake.all_gone(folder, 2)


# The real torch.


def test_two_ranks_join_and_sum_and_may_do_it_again(real: Team) -> None:
    each = {"cpu0": {"rank": 0}, "cpu1": {"rank": 1}}
    for _ in range(2):
        said = real.run("add", TWO, world=2, each=each)
        assert not said["errors"]
        for rank, card in enumerate(TWO):
            answer = said["answers"][card]
            assert (answer["rank"], answer["sum"]) == (rank, 3.0)
            assert len(answer["rows"][0]["values"]) == 5
            assert all(0 < seconds < 5 for seconds in answer["rows"][0]["values"])


def test_a_rank_that_dies_ends_the_others_soon_and_the_next_stage_has_new_ones(real: Team) -> None:
    each = {"cpu0": {"rank": 0}, "cpu1": {"rank": 1}}
    before = {c: a["pid"] for c, a in real.run("add", TWO, world=2, each=each)["answers"].items()}
    said = real.run("wait_for_all", TWO, world=2, each=each, die=1)
    assert said["seconds"] < 20
    assert not said["answers"]
    dead, other = said["errors"]["cpu1"], said["errors"]["cpu0"]
    assert (dead["type"], dead["signal"], dead["step"]) == ("died", "SIGSEGV", "barrier")
    assert "Segmentation fault" in dead["log"]  # faulthandler's word
    assert "stage_wait_for_all.py" in dead["log"]
    assert other["step"] == "barrier"  # gloo has noticed, or the crew has
    after = real.run("add", TWO, world=2, each=each)
    assert {answer["sum"] for answer in after["answers"].values()} == {3.0}
    assert not set(before.values()) & {answer["pid"] for answer in after["answers"].values()}


def test_a_rank_that_hangs_gives_the_stacks_of_every_rank_that_waits(real: Team) -> None:
    each = {"cpu0": {"rank": 0}, "cpu1": {"rank": 1}}
    said = real.run("wait_for_all", TWO, world=2, each=each, hang=0, deadline_seconds=6)
    assert 6 <= said["seconds"] < 11
    for card in TWO:
        error = said["errors"][card]
        assert (error["type"], error["timed_out"], error["step"]) == ("timed_out", True, "barrier")
        (stacks,) = error["stacks"]
        assert "stage_wait_for_all.py" in stacks
    assert not real.run("add", TWO, world=2, each=each)["errors"]


# Answers.


def test_a_stage_gets_its_arguments_and_each_card_its_own(team: Team) -> None:
    team.start(TWO)
    said = team.run("echo", TWO, size=4, each={"cpu1": {"peer": "cpu0"}})
    assert said["answers"]["cpu0"]["arguments"] == {"size": 4}
    assert said["answers"]["cpu1"]["arguments"] == {"size": 4, "peer": "cpu0"}
    assert said["answers"]["cpu1"]["cards"] == ["cpu1", "cpu0"]
    assert said["samples"] == {}


def test_a_group_is_told_where_to_meet(team: Team) -> None:
    team.start(TWO)
    said = team.run("echo", TWO, world=2, each={"cpu0": {"rank": 0}, "cpu1": {"rank": 1}})
    first, second = (said["answers"][card]["arguments"] for card in TWO)
    assert first["address"] == second["address"] == "127.0.0.1"
    assert 1024 <= first["port"] == second["port"] < 65536


def test_progress_the_log_and_variables(team: Team) -> None:
    team.start(["cpu0"])
    said = team.run("talk", ["cpu0"], log=True)["answers"]["cpu0"]
    assert said["log"] == "on stdout\non stderr\n"
    assert said["variable"] is None
    assert team.progress[-1] == ("talk", "cpu0", 1.0, "copy 4297 GB/s")
    assert "log" not in team.run("talk", ["cpu0"])["answers"]["cpu0"]
    again = team.run("talk", ["cpu0"], environment={"NODECHECK_TEST": "set"})["answers"]["cpu0"]
    assert again["variable"] == "set"
    assert again["pid"] != said["pid"]
    assert team.run("talk", ["cpu0"])["answers"]["cpu0"]["variable"] is None


def test_a_renter_s_own_environment_is_passed_on(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODECHECK_TEST", "the renter's")
    team.start(["cpu0"])
    assert team.run("talk", ["cpu0"])["answers"]["cpu0"]["variable"] == "the renter's"


def test_lines_of_another_shape_and_numbers_without_bound_do_no_harm(team: Team) -> None:
    team.start(["cpu0"])
    said = team.run("strange", ["cpu0"])
    assert said["answers"]["cpu0"]["rows"] == [{"values": [None, 1.0, None]}]


def test_cards_see_themselves_first_and_are_sampled(
    team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nvml").mkdir()
    (tmp_path / "nvml" / "pynvml.py").write_text(
        "NVML_CLOCK_SM = 1\nclass NVMLError(Exception): pass\n"
        "def nvmlInit(): pass\ndef nvmlDeviceGetHandleByUUID(uuid): return uuid\n"
        "def nvmlDeviceGetClockInfo(card, clock): return 1980\n"
        "def nvmlDeviceGetPowerUsage(card): return 650500\n"
        "def nvmlDeviceGetTemperature(card, sensor): raise NVMLError()\n"
        "def nvmlDeviceGetCurrentClocksThrottleReasons(card): return 4\n"
        "def nvmlDeviceGetCurrPcieLinkGeneration(card): return 5\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path / "nvml"))
    cards = ["GPU-a", "GPU-b", "GPU-b#2"]
    said = team.start(cards, each={"GPU-b#2": {"environment": {"NODECHECK_TEST": "second"}}})
    assert [said["answers"][card]["uuid"] for card in cards] == ["GPU-a", "GPU-b", "GPU-b"]
    told = team.run("echo", cards)["answers"]
    assert [told[card]["cards"][0] for card in cards] == cards
    assert [len(told[card]["cards"]) for card in cards] == [2, 2, 2]
    assert team.run("talk", cards)["answers"]["GPU-b#2"]["variable"] == "second"
    samples = team.run("nap", cards, seconds=0.5)["samples"]
    assert samples.keys() == set(cards)
    assert 3 <= len(samples["GPU-b"]) <= 8
    for seconds, *values in samples["GPU-b"]:
        assert 0 <= seconds < 1
        assert values == [1980, 650.5, None, 4, 5, None]


def test_a_card_without_a_uuid_or_an_address_is_not_loaded(team: Team) -> None:
    said = team.start(["card 1", "cpu0"])
    assert said["answers"].keys() == {"cpu0"}
    assert said["errors"]["card 1"]["type"] == "not_started"


# Starting.


@pytest.fixture
def cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Team]:
    """Over a made-up libcuda, and a torch that stands for a CUDA build."""
    if not shutil.which("cc"):
        pytest.skip("no C compiler here")
    for name, value in made_up.environment(FAKE_CUDA_CARDS="2").items():
        monkeypatch.setenv(name, value)
    team = Team(tmp_path, None)
    yield team
    team.crew.end()
    assert fake.all_gone(tmp_path, 2)


CARDS = [made_up.uuid(0), made_up.uuid(1)]


def test_a_worker_finds_of_its_card_what_a_process_of_its_own_does(cuda: Team) -> None:
    said = cuda.start(CARDS)
    renter = Interpreter(interpreter.live(sys.executable, environment=dict(os.environ)))
    for card in CARDS:
        context = said["answers"][card]["context"]
        alone = renter.context(card)
        assert not isinstance(alone, Absent)
        assert context["items"].keys() == alone["items"].keys()
        assert context["items"]["device"] == alone["items"]["device"]
        assert (context["errors"], context["step"]) == (alone["errors"], alone["step"]) == ({}, "done")


@pytest.mark.parametrize(
    ("fault", "step", "words"),
    [
        ({"FAKE_CUDA_INIT": "802"}, "init", "CUDA_ERROR_SYSTEM_NOT_READY"),
        ({"FAKE_CUDA_CONTEXT": "46"}, "context", "CUDA_ERROR_DEVICE_UNAVAILABLE: a text of the driver's"),
        ({"FAKE_TORCH": "kernel-209"}, "kernel", "AcceleratorError: CUDA error: no kernel image"),
        ({"FAKE_TORCH": "kernel-dies"}, "kernel", "SIGSEGV"),
        ({"FAKE_CUDA_INIT": "crash"}, "init", "SIGSEGV"),
    ],
)
def test_a_card_that_refuses_is_told_by_its_worker(
    cuda: Team, fault: dict[str, str], step: str, words: str
) -> None:
    said = cuda.start(CARDS, each={CARDS[1]: {"environment": fault}})
    assert said["answers"].keys() == {CARDS[0]}
    assert said["errors"][CARDS[1]]["step"] == step
    assert words in said["errors"][CARDS[1]]["message"]


def test_a_card_that_does_not_answer_is_given_up(cuda: Team) -> None:
    hang = {"FAKE_CUDA_CONTEXT": "hang"}
    said = cuda.start(CARDS, each={CARDS[1]: {"environment": hang}}, deadline_seconds=3)
    assert said["answers"].keys() == {CARDS[0]}
    assert (said["errors"][CARDS[1]]["type"], said["errors"][CARDS[1]]["step"]) == ("timed_out", "context")


def test_a_worker_on_another_card_is_none(cuda: Team, tmp_path: Path) -> None:
    program = tmp_path / "workers" / "stack.py"
    program.write_text(program.read_text() + "\ndashed = lambda raw: 'GPU-another'\n")
    said = cuda.start(CARDS[:1])
    assert "the driver handed out another card, GPU-another" in said["errors"][CARDS[0]]["message"]


@pytest.fixture
def rocm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Team]:
    """Over a made-up libamdhip64, and a torch that stands for a build for ROCm."""
    if not shutil.which("cc"):
        pytest.skip("no C compiler here")
    for name, value in made_up.rocm_environment(FAKE_HIP_CARDS="4").items():
        monkeypatch.setenv(name, value)
    team = Team(tmp_path, None)
    yield team
    team.crew.end()
    assert fake.all_gone(tmp_path, 2)


AMD_CARDS = [made_up.hip_uuid(3), made_up.hip_uuid(1)]


@pytest.mark.parametrize(
    "renters",
    [{}, {"HIP_VISIBLE_DEVICES": "2,3,0"}, {"CUDA_VISIBLE_DEVICES": "3"}, {"ROCR_VISIBLE_DEVICES": "0,3,1"}],
    ids=str,
)
def test_each_worker_has_its_own_card_of_amd_s(
    rocm: Team, monkeypatch: pytest.MonkeyPatch, renters: dict[str, str]
) -> None:
    """Whatever the renter shows to programs: HIP would number what that leaves."""
    for name, value in renters.items():
        monkeypatch.setenv(name, value)
    said = rocm.start(AMD_CARDS)
    assert not said["errors"]
    renter = Interpreter(interpreter.live(sys.executable, environment=dict(os.environ)))
    for card in AMD_CARDS:
        answer = said["answers"][card]
        assert (answer["uuid"], answer["name"]) == (card, "AMD Instinct MI300X")
        assert answer["context"]["items"]["device"]["uuid"] == card
        assert answer["context"]["step"] == "done"
        alone = renter.context(card)
        assert not isinstance(alone, Absent)
        assert alone["items"]["device"]["uuid"] == card
        assert alone["items"].keys() == answer["context"]["items"].keys()
    # The own card first, then the others.
    seen = rocm.run("echo", AMD_CARDS)["answers"]
    assert seen[AMD_CARDS[1]]["cards"] == AMD_CARDS[::-1]
    # They are not in this machine's sysfs.
    assert rocm.run("nap", AMD_CARDS, seconds=0.2)["samples"] == {card: [] for card in AMD_CARDS}


def test_each_worker_finds_its_own_card_of_amd_s_by_its_address(
    rocm: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_HIP_MUTE", "1")
    cards = ["0041:00:00.0", "0021:00:00.0"]
    said = rocm.start([*cards, "0051:00:00.0"])
    assert said["errors"]["0051:00:00.0"]["message"].endswith("HIP shows 0 devices at 0051:00:00.0, of 4")
    renter = Interpreter(interpreter.live(sys.executable, environment=dict(os.environ)))
    for card in cards:
        device = {"uuid": None, "pci_address": card}
        assert said["answers"][card]["context"]["items"]["device"] == device
        alone = renter.context(card)
        assert not isinstance(alone, Absent)
        assert alone["items"]["device"] == device
    # By their numbers, which are HIP's, each can name the others.
    seen = rocm.run("echo", cards)["answers"]
    assert seen[cards[0]]["cards"] == [f"00{number}1:00:00.0" for number in (1, 2, 3, 4)]


@pytest.mark.parametrize(
    ("fault", "step", "words"),
    [
        ({"FAKE_HIP_INIT": "100"}, "init", "hipErrorNoDevice: no ROCm-capable device"),
        ({"FAKE_HIP_CONTEXT": "999"}, "context", "hipErrorUnknown"),
        ({"FAKE_TORCH": "kernel-209"}, "kernel", "HIP error: invalid device function"),
        ({"FAKE_HIP": ""}, "init", "no build for ROCm"),
        ({"FAKE_TORCH": "hsa"}, "kernel", "SIGABRT"),
    ],
)
def test_a_card_of_amd_s_that_refuses_is_told_by_its_worker(
    rocm: Team, fault: dict[str, str], step: str, words: str
) -> None:
    said = rocm.start(AMD_CARDS, each={AMD_CARDS[1]: {"environment": fault}})
    assert said["answers"].keys() == {AMD_CARDS[0]}
    assert said["errors"][AMD_CARDS[1]]["step"] == step
    assert words in said["errors"][AMD_CARDS[1]]["message"]


def test_the_same_start_again_starts_nothing(team: Team) -> None:
    first = team.start(TWO)
    assert team.start(TWO) == first
    assert len(fake.running(team.folder)) == 2
    other = team.start(TWO[:1])
    assert other["answers"]["cpu0"]["pid"] != first["answers"]["cpu0"]["pid"]
    assert len(fake.running(team.folder)) == 1
    assert team.start(TWO)["answers"]["cpu0"]["pid"] not in {
        said["answers"]["cpu0"]["pid"] for said in (first, other)
    }
    team.run("end", [])
    assert team.start(TWO)["answers"]["cpu0"]["pid"] != first["answers"]["cpu0"]["pid"]


# Processes of their own.


def test_what_nccl_says_comes_from_a_process_of_its_own(tmp_path: Path) -> None:
    slow = "import time; time.sleep(1)\nimport os; print('imported')\n"
    team = Team(tmp_path, fake.torch(tmp_path / "made up", slow))
    cards, each = ["GPU-a", "GPU-b"], {"GPU-a": {"rank": 0}, "GPU-b": {"rank": 1}}
    measuring = {a["pid"] for a in team.start(cards)["answers"].values()}
    assert len(fake.running(tmp_path)) == 4  # they import at the same time
    first = team.run("transport", cards, world=2, each=each)
    told = first["answers"]["GPU-b"]
    assert (told["rank"], told["pid"] in measuring) == (1, False)
    assert told["log"] == "NCCL says INFO True\n"
    assert "TUNING" in told["subsystems"]
    again = team.run("transport", cards[1:], world=1, each={"GPU-b": {"rank": 0}})
    assert again["answers"]["GPU-b"]["pid"] == told["pid"]
    assert team.run("talk", cards)["answers"]["GPU-a"]["pid"] in measuring
    team.crew.end()
    assert fake.all_gone(tmp_path, 2)


def test_a_process_that_is_gone_is_had_again(team: Team) -> None:
    cards = ["GPU-a", "GPU-b"]
    each = {"GPU-a": {"rank": 0}, "GPU-b": {"rank": 1}}
    team.start(cards)
    hand = team.crew._hands["GPU-a", "transport"]
    hand.companion.kill()
    assert hand.companion.gone.wait(5)
    said = team.run("transport", cards, world=2, each=each)
    assert not said["errors"]
    assert not team.run("echo", cards)["errors"]


def test_a_worker_that_is_spent_has_answered_and_is_replaced(team: Team) -> None:
    team.start(TWO)
    each = {"cpu0": {"rank": 0}, "cpu1": {"rank": 1}}
    first = team.run("spend", TWO, world=2, each=each)
    assert not first["errors"]
    then = team.run("spend", ["cpu0"])
    assert then["answers"]["cpu0"]["pid"] not in {answer["pid"] for answer in first["answers"].values()}


def test_one_card_needs_no_process_for_a_group(team: Team) -> None:
    team.start(["GPU-a"])
    assert len(fake.running(team.folder)) == 1


def test_disks_are_measured_beside_a_stage_of_the_same_card(team: Team) -> None:
    pid = team.start(["cpu0"])["answers"]["cpu0"]["pid"]
    waiting = beside(lambda: team.run("storage", ["cpu0"], seconds=1.5))
    time.sleep(0.2)
    assert team.run("nap", ["cpu0"], seconds=0.2)["seconds"] < 1
    said = waiting.result(10)
    disk = said["answers"]["cpu0"]
    assert (disk["torch"], disk["pid"] == pid) == (False, False)
    assert said["samples"] == {}
    assert team.run("storage", ["cpu0"])["answers"]["cpu0"]["pid"] == disk["pid"]


# What goes wrong.


def test_a_worker_that_is_killed_names_signal_step_and_last_words(team: Team) -> None:
    team.start(["cpu0"])
    error = team.run("die", ["cpu0"], die=9)["errors"]["cpu0"]
    assert (error["type"], error["signal"], error["step"]) == ("died", "SIGKILL", "dying")
    assert "last words" in error["log"]
    assert team.run("echo", ["cpu0"])["answers"]


def test_once_a_rank_has_died_the_others_are_not_waited_for(team: Team) -> None:
    team.start(TWO)
    said = team.run("die", TWO, each={"cpu0": {"rank": 0}, "cpu1": {"rank": 1, "die": 9}})
    assert PATIENCE_SECONDS <= said["seconds"] < PATIENCE_SECONDS + 4
    assert said["errors"]["cpu0"]["type"] == "left_alone"
    assert "cpu1" in said["errors"]["cpu0"]["message"]
    assert "timed_out" not in said["errors"]["cpu0"]


def test_without_a_group_the_others_go_on(team: Team) -> None:
    team.start(TWO)
    said = team.run("nap", ["cpu0", "cpu1"], seconds=0.1, each={"cpu1": {"seconds": "no number"}})
    assert said["answers"].keys() == {"cpu0"}
    assert said["errors"]["cpu1"]["type"] == "TypeError"
    assert "stage_nap.py" in said["errors"]["cpu1"]["trace"]


def test_an_exception_ends_a_group_too(team: Team) -> None:
    team.start(TWO)
    said = team.run("err", TWO, each={"cpu0": {"rank": 0}, "cpu1": {"rank": 1, "err": False}})
    assert said["errors"]["cpu0"]["type"] == "MemoryError"
    assert said["errors"]["cpu1"]["type"] == "left_alone"
    assert team.run("echo", TWO)["answers"].keys() == set(TWO)


@pytest.mark.parametrize("stage", ["hang", "hold"])
def test_a_hang_is_given_up_at_the_deadline_and_says_where(team: Team, stage: str) -> None:
    team.start(TWO)
    said = team.run(stage, TWO, deadline_seconds=1, each={"cpu1": {"hang": False}})
    assert said["seconds"] < 5
    error = said["errors"]["cpu0"]
    assert (error["type"], error["timed_out"]) == ("timed_out", True)
    assert f"stage_{stage}.py" in error["stacks"][0]
    if stage == "hang":
        assert "where_it_hangs" in error["stacks"][0]
        assert said["answers"].keys() == {"cpu1"}
    assert team.run("echo", TWO)["answers"].keys() == set(TWO)


def test_shared_memory_of_a_worker_that_was_ended_is_removed(team: Team) -> None:
    path = Path(f"/dev/shm/nccl-{secrets.token_hex(6)}")
    team.start(["cpu0"])
    try:
        assert team.run("share", ["cpu0"], path=str(path), deadline_seconds=3)["errors"]
        until = time.monotonic() + 3  # the thread that reaps it removes it
        while path.exists() and time.monotonic() < until:
            time.sleep(0.02)
        assert not path.exists()
    finally:
        path.unlink(missing_ok=True)


def test_a_display_that_fails_costs_nothing(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_words: object) -> None:
        raise RuntimeError("no terminal")

    monkeypatch.setattr(team.crew, "_on_progress", fails)
    team.start(["cpu0"])
    assert team.run("talk", ["cpu0"])["answers"].keys() == {"cpu0"}


def test_a_torch_that_prints_does_not_disturb(tmp_path: Path) -> None:
    path = fake.torch(tmp_path / "made up", 'print(\'{"id": 1, "answer": {}}\' * 20000)\n')
    team = Team(tmp_path, path)
    said = team.start(["cpu0"])
    assert said["answers"]["cpu0"]["torch"] == "2.0.0"
    team.crew.end()


@pytest.mark.parametrize(
    ("before", "kind"),
    [
        ("raise ImportError('libcudart.so.12: cannot open')\n", "ImportError"),
        ("import os; os.kill(os.getpid(), 11)\n", "died"),
        ("import sys; sys.exit(3)\n", "SystemExit"),
        ("import os; os._exit(3)\n", "died"),
    ],
)
def test_a_torch_that_fails_is_tried_once(tmp_path: Path, before: str, kind: str) -> None:
    team = Team(tmp_path, fake.torch(tmp_path / "made up", before))
    said = team.start(["cpu0"])
    assert said["errors"]["cpu0"]["type"] == kind
    assert said["errors"]["cpu0"]["step"] == "import torch"
    again = team.run("echo", ["cpu0"])
    assert again["errors"]["cpu0"]["type"] == kind
    assert again["seconds"] < 0.1
    assert fake.all_gone(tmp_path, 2)


def test_a_torch_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    team = Team(tmp_path, fake.torch(tmp_path / "made up", "import time; time.sleep(60)\n"))
    said = team.start(["cpu0"], deadline_seconds=1)
    error = said["errors"]["cpu0"]
    assert (error["type"], error["step"]) == ("timed_out", "import torch")
    assert "torch/__init__.py" in error["stacks"][0]
    assert fake.all_gone(tmp_path, 2)


@pytest.mark.parametrize("python", ["/no/such/python", "/proc/self/maps", ""])
def test_an_interpreter_that_cannot_be_started(team: Team, python: str) -> None:
    said = team.start(["cpu0"], python=python)
    assert said["errors"]["cpu0"]["type"] == "not_started"
    assert said["errors"]["cpu0"]["message"]


def test_a_card_that_no_worker_was_started_for(team: Team) -> None:
    team.start(["cpu0"])
    said = team.run("echo", TWO, each={"cpu0": {"rank": 0}, "cpu1": {"rank": 1}})
    assert {error["type"] for error in said["errors"].values()} == {"not_started", "left_alone"}


@pytest.mark.parametrize(
    "question", ["", "echo", "echo {", 'echo {"cards": 3}', 'echo {"cards": ["cpu0"], "each": 3}']
)
def test_a_question_of_another_shape(team: Team, question: str) -> None:
    answer = team.crew.answer(question)
    assert isinstance(answer, Absent)
    assert answer.why is Why.failed


def test_a_flood_is_kept_within_bounds(tmp_path: Path) -> None:
    flood = "import os\nfor _ in range(300): os.write(1, b'x' * 65535 + b'\\n')\n"
    team = Team(tmp_path, fake.torch(tmp_path / "made up", flood))
    team.start(["cpu0"])
    hand = team.crew._hands["cpu0", ""]
    assert hand.companion.log.total > 19_000_000
    assert len(hand.companion.log._kept) <= 2 * 2**21
    team.crew.end()


# Recordings.


def test_a_recording_answers_as_the_workers_did(team: Team) -> None:
    first = team.start(TWO)
    second = team.run("echo", TWO, size=4)
    assert fake.running(team.folder)
    again = Workers(Recorded(json.loads(json.dumps(team.recorder.answers))))
    assert again.run("echo", TWO, {"size": 4, "deadline_seconds": 60}) == second
    assert first["answers"]["cpu0"]["binding"] == "as found"
    patient = Workers(Replayed(json.loads(json.dumps(team.recorder.answers))))
    assert patient.run("echo", TWO, {"size": 4, "deadline_seconds": 61}) == second
    unasked = again.run("echo", TWO, {"size": 5})
    assert isinstance(unasked, Absent)
    assert unasked.why is Why.not_asked


# Nothing outlives the run.

PARENT = """
import json, re, sys
from pathlib import Path
from nodecheck.sources.crew import Crew
from nodecheck.sources.workers import Workers
from nodecheck.sources.channel import Live
program, path, stage = sys.argv[1:4]
workers = Workers(Live(Crew(program=Path(program)).answer))
workers.run("start", ["cpu0", "cpu1"], {"python": sys.executable, "environment": {"PYTHONPATH": path}})
most = re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]
print("torch" in sys.modules, most, flush=True)
while True:
    workers.run(stage, ["cpu0", "cpu1"], {"each": {"cpu0": {"rank": 0}, "cpu1": {"rank": 1}}})
"""


def parent(folder: Path, stage: str) -> subprocess.Popen[str]:
    program = fake.program(folder / "workers")
    path = fake.torch(folder / "made up")
    return subprocess.Popen(
        [sys.executable, "-c", PARENT, str(program), path, stage],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"TMPDIR": str(temporary(folder))},  # other tests leave things where everybody does
        text=True,
    )


def temporary(folder: Path) -> Path:
    (folder / "tmp").mkdir(exist_ok=True)
    return folder / "tmp"


@pytest.mark.parametrize("stage", ["hang", "hold", "echo"])
def test_ctrl_c_ends_everything_within_two_seconds(tmp_path: Path, stage: str) -> None:
    with parent(tmp_path, stage) as process:
        try:
            assert process.stdout is not None
            torch, kilobytes = process.stdout.readline().split()
            time.sleep(0.5)
            process.send_signal(signal.SIGINT)
            gone = fake.all_gone(tmp_path, 2)
        finally:
            process.kill()
    assert gone
    assert torch == "False"
    assert int(kilobytes) < 100_000


@pytest.mark.parametrize("stage", ["hang", "hold", "echo", "err"])
def test_a_parent_that_is_killed_at_any_moment_leaves_nothing(tmp_path: Path, stage: str) -> None:
    moments = random.Random(stage)
    for k in range(4):
        folder = tmp_path / str(k)
        with parent(folder, stage) as process:
            time.sleep(moments.uniform(0.1, 1.2))
            process.kill()
        assert fake.all_gone(folder, 2)
        assert not list(temporary(folder).iterdir())
        assert not list(folder.rglob("__pycache__/stage_*"))


def test_end_all_ends_a_stage_that_another_thread_waits_for(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crew, "_crews", weakref.WeakSet([team.crew]))  # other tests' crews go on
    team.start(TWO)
    waiting = beside(lambda: team.run("hang", TWO))
    time.sleep(0.3)
    end_all()
    assert fake.all_gone(team.folder, 2)
    assert {error["signal"] for error in waiting.result(5)["errors"].values()} == {"SIGKILL"}
    assert {error["message"] for error in team.run("echo", TWO)["errors"].values()} == {"interrupted"}
    assert not fake.running(team.folder)

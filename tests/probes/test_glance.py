"""A look in passing: it sees what a whole one sees of the cards, and starts nothing that could disturb a job."""

from __future__ import annotations

import time
from pathlib import Path

from nodecheck.facts import NOT_ASKED, Absent, Maybe, Node, Stack, Why, known
from nodecheck.probes import Probing
from nodecheck.sources import Sources
from nodecheck.sources.channel import Answer, Channel
from tests.fakes import nvml
from tests.fakes.node import NCCL, SITE, FakeNode, healthy
from tests.fakes.tree import Ground
from tests.surveys import needs_compiler

pytestmark = needs_compiler


class Watched:
    """Passes questions on, and remembers them."""

    def __init__(self, inner: Channel) -> None:
        self.inner = inner
        self.asked: list[str] = []

    def ask(self, question: str) -> Answer:
        self.asked.append(question)
        return self.inner.ask(question)


def glance(node: FakeNode, ground: Ground, accepted: Maybe[Stack]) -> tuple[Node, dict[str, Watched]]:
    channels = {name: Watched(channel) for name, channel in node.channels(ground).items()}
    return Probing(Sources.over(dict(channels)), "quick").glance(accepted), channels


def test_it_sees_the_cards_and_asks_neither_interpreter_nor_workers(tmp_path: Path) -> None:
    node, ground = healthy("h200x8"), Ground(tmp_path / "node")
    whole = node.probe(ground)
    seen, channels = glance(node, ground, whole.stack)
    assert channels["interpreter"].asked == channels["workers"].asked == []
    assert set(channels["commands"].asked) <= {"dmesg", "journal"}
    assert channels["nvml"].asked == ["glance"]
    for before, now in zip(whole.known_cards, seen.known_cards, strict=True):
        for part in ("uuid", "memory", "power", "clocks", "pcie", "modes", "fabric", "links", "processes"):
            assert getattr(now, part) == getattr(before, part), part
        assert now.identity.inforom_valid == Absent(
            why=Why.not_asked, detail=f"nvmlDeviceValidateInforom({now.index})"
        )
    assert known(seen.kernel_log)
    assert known(whole.kernel_log)
    assert seen.kernel_log.events == whole.kernel_log.events


def test_the_driver_may_be_asked_ahead_and_is_not_asked_again(tmp_path: Path) -> None:
    node, ground = healthy("h200x4"), Ground(tmp_path / "node")
    channels = {name: Watched(channel) for name, channel in node.channels(ground).items()}
    probing = Probing(Sources.over(dict(channels)), "quick")
    probing.begin_glance()
    deadline = time.monotonic() + 20
    while not channels["nvml"].asked and time.monotonic() < deadline:
        time.sleep(0.01)
    assert channels["nvml"].asked == ["glance"]
    assert len(probing.glance(NOT_ASKED).known_cards) == 4
    assert channels["nvml"].asked == ["glance"]


def test_the_stack_is_read_from_files(tmp_path: Path) -> None:
    node, ground = healthy("h200x4"), Ground(tmp_path / "node")
    whole = node.probe(ground)
    seen, _ = glance(node, ground, whole.stack)
    assert known(seen.stack)
    assert known(whole.stack)
    assert known(seen.stack.torch)
    assert known(whole.stack.torch)
    assert seen.stack.torch.version == whole.stack.torch.version == "2.11.0+cu130"
    assert seen.stack.torch.cuda == "13.0"
    assert isinstance(seen.stack.torch.hip, Absent)
    assert seen.stack.nccl_libraries == whole.stack.nccl_libraries
    assert known(whole.stack.driver_libraries)
    assert len(whole.stack.driver_libraries) == 2
    assert seen.stack.driver_libraries == whole.stack.driver_libraries
    assert seen.stack.driver.version == whole.stack.driver.version


def test_another_torch_and_another_nccl_are_seen(tmp_path: Path) -> None:
    node, ground = healthy("h200x4"), Ground(tmp_path / "node")
    accepted = node.probe(ground).stack
    node.tree.files[f"{SITE}/torch/version.py"] = "__version__ = '2.12.0+cu130'\ncuda = '13.0'\n"
    node.tree.remove(f"{SITE}/nvidia_nccl_cu13-2.28.9.dist-info")
    node.tree.folders.add(f"{SITE}/nvidia_nccl_cu13-2.29.1.dist-info")
    seen, _ = glance(node, ground, accepted)
    assert known(seen.stack)
    assert known(seen.stack.torch)
    assert seen.stack.torch.version == "2.12.0+cu130"
    assert known(seen.stack.nccl_libraries)
    assert [(library.path, library.version) for library in seen.stack.nccl_libraries] == [(NCCL, "2.29.1")]


def test_a_torch_that_is_gone_or_was_never_seen_says_so(tmp_path: Path) -> None:
    node, ground = healthy("h200x4"), Ground(tmp_path / "node")
    accepted = node.probe(ground).stack
    node.tree.remove(f"{SITE}/torch")
    gone, _ = glance(node, ground, accepted)
    assert known(gone.stack)
    assert isinstance(gone.stack.torch, Absent)
    assert gone.stack.torch.why is Why.not_present
    never, _ = glance(node, ground, NOT_ASKED)
    assert known(never.stack)
    assert never.stack.torch == NOT_ASKED
    assert never.stack.nccl_libraries == NOT_ASKED
    assert known(never.stack.driver.version)


def test_a_card_that_hangs_takes_only_itself_along(tmp_path: Path) -> None:
    node, ground = healthy("h200x4"), Ground(tmp_path / "node")
    node.silence_seconds = 1.0
    node.nvml["nvmlDeviceGetPowerUsage 2"] = nvml.HANG
    seen, _ = glance(node, ground, NOT_ASKED)
    draws = [card.power.draw_watts for card in seen.known_cards]
    assert [known(draw) for draw in draws] == [True, True, False, True]
    assert isinstance(draws[2], Absent)
    assert draws[2].why is Why.timed_out


def test_a_driver_that_is_gone_is_no_crash(tmp_path: Path) -> None:
    node, ground = healthy("h200x4"), Ground(tmp_path / "node")
    node.nvml = {"nvmlInitWithFlags": nvml.code(999)}
    seen, _ = glance(node, ground, NOT_ASKED)
    assert isinstance(seen.cards, Absent)
    assert "NVML_ERROR_UNKNOWN" in seen.cards.detail
    assert known(seen.topology)
    assert known(seen.topology.device_files)
    assert len(seen.topology.device_files) == 4

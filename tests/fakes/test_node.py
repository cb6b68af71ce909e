"""The made-up node is read by the real sources, leaves nothing unasked, and can be recorded."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest

from nodecheck.facts import Absent, Fact, Node, Why
from nodecheck.measure import Measuring, start
from nodecheck.probes import Probing
from nodecheck.sources import Sources, recorders
from tests.fakes import nvml
from tests.fakes.node import healthy
from tests.fakes.tree import Ground, Kind, plant

pytestmark = pytest.mark.skipif(not nvml.compiler(), reason="no C compiler here")


def test_ground_holds_just_the_last_tree(tmp_path: Path) -> None:
    used, fresh = Ground(tmp_path / "used"), Ground(tmp_path / "fresh")
    first, second = plant("h200", 8), plant("l40s", 2, kind="container")
    second.files["/etc/nccl.conf"] = b"NCCL_DEBUG=WARN\n"
    for tree in (first, plant("gb200", 4), second):
        used.hold(tree)
    fresh.hold(second)
    assert _below(used.root) == _below(fresh.root)


def _below(root: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        found[name] = path.readlink() if path.is_symlink() else path.is_dir() or path.read_bytes()
    return found


@pytest.mark.parametrize("kind", get_args(Kind))
def test_a_recording_gives_the_same_facts(kind: Kind, tmp_path: Path) -> None:
    recording = recorders(healthy("h200x2", kind=kind).channels(Ground(tmp_path / "node")))
    live = _everything(Sources.over(dict(recording)))
    answers = {name: recorder.answers for name, recorder in recording.items()}
    again = _everything(Sources.recorded(answers)).model_copy(update={"taken_at": live.taken_at})
    assert again == live
    assert not list(_unasked(live))
    # The contexts were tried by the workers that measured, which were started once.
    assert not any(question.startswith("context") for question in answers["interpreter"])
    assert sum(question.startswith("start") for question in answers["workers"]) == 1


def _everything(sources: Sources) -> Node:
    node = Probing(sources, "standard").run(start=partial(start, sources.workers, force=False))
    return node.model_copy(update={"measurements": Measuring(sources.workers, node, "standard").run()})


def test_every_probe_ran(tmp_path: Path) -> None:
    node: Node = healthy("h200x2").probe(Ground(tmp_path / "node"))
    for stage in (node.host, node.cards, node.topology, node.stack, node.kernel_log):
        assert not isinstance(stage, Absent), stage


def _unasked(fact: Any, path: str = "node") -> Any:
    """Facts that no probe asked for, by their paths."""
    if isinstance(fact, Absent):
        if fact.why in (Why.not_asked, Why.timed_out):
            yield f"{path}: {fact}"
    elif isinstance(fact, Fact):
        for name in type(fact).model_fields:
            yield from _unasked(getattr(fact, name), f"{path}.{name}")
    elif isinstance(fact, tuple):
        for i, item in enumerate(fact):
            yield from _unasked(item, f"{path}.{i}")

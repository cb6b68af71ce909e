"""Real NCCL with several ranks on one card, on a node with a GPU: `python -m tests.ranks [RANKS …]` (or 2, 4, 8).

NCCL refuses two ranks on one card of one host. With NCCL_HOSTID set each rank is a host of its own, and NCCL goes over
sockets: slow, and right in every element. The node is judged as if its ranks were cards that NVLink joins: so the
findings of a node whose NCCL fell back to sockets are seen end to end. `SLOW=3` holds rank 3 back: its process has
to share one CPU with two busy ones.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from nodecheck.facts import Absent, Maybe, Node, known
from nodecheck.facts.topology import Pair
from nodecheck.judge import Status, judge
from nodecheck.measure import Measuring
from nodecheck.probes import Probing
from nodecheck.profile import load
from nodecheck.sources import Sources, live_channels
from nodecheck.sources.workers import Workers

MIB = 2**20
LARGEST = {2: 16 * MIB, 4: 16 * MIB, 8: MIB // 4}
DTYPES = {2: ("bfloat16", "float32"), 4: ("bfloat16", "float32"), 8: ("bfloat16",)}
OTHERS = ("all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "send_recv")
SLOW = os.environ.get("SLOW")


def runs(ranks: int) -> list[dict[str, Any]]:
    """Every collective, at sizes that sockets carry in seconds; all_reduce alone where a rank is slow."""
    largest = LARGEST[ranks]
    sizes = {
        "all_reduce": (8, 64 * 2**10, largest),
        **dict.fromkeys(() if SLOW else OTHERS, (2**10, largest)),
    }
    return [
        {"collective": name, "size_bytes": size, "dtype": dtype}
        for name, some in sizes.items()
        for size in some
        for dtype in DTYPES[ranks]
    ]


class Hosts(Workers):
    """Workers each of which is a host of its own to NCCL, asked for small collectives alone."""

    def __init__(self, inner: Workers, ranks: int) -> None:
        self._inner = inner
        self._ranks = ranks

    def run(self, stage: str, cards: Sequence[str], arguments: Mapping[str, Any]) -> Maybe[dict[str, Any]]:
        asked = dict(arguments)
        if stage == "start" and SLOW:
            asked["cpus"] = {**asked.get("cpus", {}), cards[int(SLOW)]: "1"}
        each = {card: dict(asked.get("each", {}).get(card, {})) for card in cards}
        for rank, card in enumerate(cards):
            each[card]["environment"] = {"NCCL_HOSTID": f"rank{rank}"}
        asked["each"] = each
        if stage == "collectives":
            asked["runs"] = asked.get("runs") or runs(self._ranks)
        if stage == "transport":
            asked["runs"] = [{"collective": "all_reduce", "size_bytes": 16 * MIB}]
        return self._inner.run(stage, cards, asked)


def crowd(node: Node, ranks: int) -> Node:
    """The node with its first card `ranks` times, each joined with each by NVLink."""
    first = node.known_cards[0]
    assert known(first.uuid) and not isinstance(node.stack, Absent) and not isinstance(node.topology, Absent)
    uuids = [first.uuid if rank == 0 else f"{first.uuid}#{rank + 1}" for rank in range(ranks)]
    cards = tuple(first.model_copy(update={"uuid": uuid, "index": i}) for i, uuid in enumerate(uuids))
    assert not isinstance(node.stack.contexts, Absent)
    test = node.stack.contexts[0]
    contexts = tuple(test.model_copy(update={"card": uuid}) for uuid in uuids)
    pairs = tuple(Pair(a=a, b=b, nvlinks=18) for i, a in enumerate(uuids) for b in uuids[i + 1 :])
    return node.model_copy(
        update={
            "cards": cards,
            "stack": node.stack.model_copy(update={"contexts": contexts}),
            "topology": node.topology.model_copy(update={"pairs": pairs}),
        }
    )


def main(counts: Sequence[int]) -> None:
    sources = Sources.over(live_channels())
    seen = Probing(sources, "standard").run()
    for ranks in counts:
        node = crowd(seen, ranks)
        measuring = Measuring(
            Hosts(sources.workers, ranks), node, "standard", stages=("collectives",), force=True
        )
        found = measuring.run()
        sources.workers.run("end", (), {})
        print(f"\n{ranks} ranks, {found.seconds:.1f} s")
        for run in found.stages:
            print(f"  {run.stage} {run.status} {len(run.cards)} ranks {run.seconds:.1f} s {run.detail[:300]}")
        for name in dict.fromkeys(check.check for check in found.checks):
            checks = [check for check in found.checks if check.check == name]
            compared, wrong = sum(c.compared for c in checks), sum(c.wrong for c in checks)
            print(f"  {name}: {compared:.3g} elements compared, {wrong} wrong")
        for figure in found.figures:
            if figure.measure.endswith("busbw") and figure.at.size_bytes == LARGEST[ranks]:
                at = f"{LARGEST[ranks] / MIB:g} MiB {figure.at.dtype}"
                print(f"  {figure.name}: {figure.measure} {at}: {figure.median:.3f} {figure.unit}")
        for transport in found.transports:
            print(f"  {transport.name}: {transport.library} {transport.paths} {transport.notes[:4]}")
        judged = judge(node.model_copy(update={"measurements": found}), load("h200x2"))
        for finding in judged.findings:
            if finding.id.startswith("measurements.") and finding.status in (Status.warn, Status.fail):
                subject = finding.subject.label
                print(f"  {finding.status.value} {finding.id} {subject}: {finding.detail[:400]}")


if __name__ == "__main__":
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    busy = 2 if SLOW else 0
    loops = [
        subprocess.Popen(["taskset", "-c", "1", sys.executable, "-c", "while True: pass"])
        for _ in range(busy)
    ]
    main([int(word) for word in sys.argv[1:]] or (2, 4, 8))
    for loop in loops:
        loop.kill()

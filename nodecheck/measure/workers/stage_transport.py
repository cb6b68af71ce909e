"""Stage `transport`: how NCCL (or RCCL) carries this group's data, in its own words.

NCCL reads NCCL_DEBUG once in a process, and with TUNING it writes a line a call, which would lie in the timed loops of
small messages. So this stage has a process of its own on each card, which NCCL is told to tell everything in
(`nodecheck/sources/crew.py`), with everything else as the renter has it. It runs each collective once, untimed. What it
prints is the answer; `nodecheck/measure/transport.py` reads it.
"""

import time
from typing import Any, Dict, Sequence

MIB, GIB = 2**20, 2**30

RUNS = (
    ("all_reduce", (MIB, 16 * MIB, 256 * MIB, GIB, 8 * GIB)),
    ("all_gather", (MIB, GIB, 8 * GIB)),
    ("reduce_scatter", (MIB, GIB, 8 * GIB)),
    ("broadcast", (GIB,)),
    ("reduce", (GIB,)),
    ("all_to_all", (GIB,)),
    ("send_recv", (GIB,)),
)

MARK = "nodecheck runs "
"""Before each announced call, in the log: NCCL up to 2.21 does not say which collective its algorithm is for, and
its own sizes are of one rank's share in some versions and of the whole in others."""

ANNOUNCED_SECONDS = 3.0
"""A call that would take longer is not announced: over sockets 8 GiB would take half a minute."""
ANNOUNCED_PACE_BYTES = 16 * MIB
"""The first calls open the connections, and say nothing about the pace."""


def run(worker: Any, arguments: Dict[str, Any]) -> Dict[str, Any]:
    """`arguments`: what `Worker.join` takes, and `group` and `runs` as stage `collectives` has them.

    Answers `backend` (`nccl`, also for RCCL, or `gloo`, which writes no log and is not run), `library` (`NCCL` or
    `RCCL`), `version`, as torch gives it, and `announced`, how many calls were made. Raises what torch raises.
    """
    answer = {"rows": [], "checks": [], "log": "", "backend": "gloo", "version": []}  # type: Dict[str, Any]
    if worker.backend == "cpu":
        return answer
    worker.step("join the group")
    collectives = worker.beside("stage_collectives")
    whole = arguments.get("group", "all") == "all"
    runs = arguments.get("runs") or [
        {"collective": collective, "size_bytes": size}
        for collective, sizes in (RUNS if whole else (("all_reduce", collectives.GROUP_SIZES),))
        for size in sizes
    ]
    group = collectives.Group(worker, arguments)
    made = announced(worker, group, list(collectives.asked({"runs": runs}, group.world)))
    library = "RCCL" if worker.backend == "hip" else "NCCL"
    version = list(worker.torch.cuda.nccl.version())
    answer.update(backend="nccl", library=library, version=version, announced=made)
    return answer


def announced(worker: Any, group: Any, runs: Sequence[Any]) -> int:
    """Each run once, its name in the log before it; left out is what does not fit or would take long."""
    collectives = worker.beside("stage_collectives")
    free = group.free_bytes()
    pace, made = 0.0, 0  # seconds a byte, by the fastest call
    for one in runs:
        size = one.size_bytes(group.world)
        if group.world < 2 or (free is not None and one.needed_bytes(group.world) > free):
            continue
        if pace * size > ANNOUNCED_SECONDS:
            continue
        worker.step(one.words(group.world))
        exchange = collectives.Exchange(group, one)
        exchange.input.zero_()
        group.align()
        group.synchronize()
        print("%s%s %d %s" % (MARK, one.collective, size, one.dtype), flush=True)
        began = time.perf_counter()
        exchange.launch()
        group.synchronize()
        took = group.agree(time.perf_counter() - began)
        if size >= ANNOUNCED_PACE_BYTES:
            pace = min(pace or took / size, took / size)
        made += 1
        del exchange
    return made

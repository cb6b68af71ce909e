"""Stage `transport`: how NCCL (or RCCL) carries this group's data, in its own words.

NCCL reads NCCL_DEBUG once in a process, and with TUNING it writes a line a call, which would lie in the timed loops of
small messages. So each rank starts a short-lived process of its own (`import torch` and a context: some seconds), in
which everything of the renter's environment stands but what NCCL says and where to; it runs each collective once,
untimed. Its log is the answer; `nodecheck/measure/transport.py` reads it.
"""

import json
import os
import subprocess
import sys
import time
from typing import Any, Dict, List

MIB, GIB = 2**20, 2**30

SUBSYSTEMS = "INIT,ENV,GRAPH,TUNING,NET,P2P,SHM"

RUNS = (
    ("all_reduce", (MIB, 16 * MIB, 256 * MIB, GIB, 8 * GIB)),
    ("all_gather", (MIB, GIB, 8 * GIB)),
    ("reduce_scatter", (MIB, GIB, 8 * GIB)),
    ("broadcast", (GIB,)),
    ("reduce", (GIB,)),
    ("all_to_all", (GIB,)),
    ("send_recv", (GIB,)),
)

MOST_CHARACTERS = 400_000
"""Of a log: with 8 ranks and 32 channels a rank writes some 100 KB."""
TAIL_CHARACTERS = 1500

SECONDS = 60.0
READ_BYTES = 65536
LOOK_SECONDS = 0.02

OWN = ("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE")


def run(worker: Any, arguments: Dict[str, Any]) -> Dict[str, Any]:
    """`arguments`: `rank`, `world`, `address`, `port` as for `Worker.join`; `timeout` (seconds, also of the whole) and
    `runs` as stage `collectives` has them. Answers `log` (empty for gloo, which writes none), `backend` (`nccl`, also
    for RCCL, or `gloo`) and `version`, as torch gives it.

    Raises RuntimeError with the end of the log where the run fails, and where it takes longer than `timeout`.
    """
    answer = {"rows": [], "checks": [], "log": "", "backend": "gloo", "version": []}  # type: Dict[str, Any]
    if worker.backend == "cpu":
        return answer
    worker.step("untimed collectives with NCCL's log")
    worker.torch.cuda.empty_cache()
    seconds = float(arguments.get("timeout", SECONDS))
    runs = arguments.get("runs") or [
        {"collective": collective, "size_bytes": size} for collective, sizes in RUNS for size in sizes
    ]
    asked = {"announce": True, "runs": runs, "timeout": seconds}
    log = logged(command(asked), environment(arguments), seconds)
    version = worker.torch.cuda.nccl.version()
    answer.update(log=shortened(log), backend="nccl", version=list(version))
    return answer


def command(asked: Dict[str, Any]) -> List[str]:
    """The worker as a rank that torchrun could have started, and that does not outlive this process."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "worker.py")
    program = (
        "import ctypes, runpy, sys\n"
        "ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)\n"  # PR_SET_PDEATHSIG, SIGKILL
        "sys.argv = sys.argv[1:]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    return [sys.executable, "-c", program, path, "--torchrun", "collectives", json.dumps(asked)]


def environment(arguments: Dict[str, Any]) -> Dict[str, str]:
    """The renter's, but for what NCCL says and where to."""
    kept = {name: value for name, value in os.environ.items() if name not in OWN}
    kept.update(
        NCCL_DEBUG="INFO",
        NCCL_DEBUG_SUBSYS=SUBSYSTEMS,
        # Not stdout: NCCL does not flush it, and a crash would lose its last words.
        NCCL_DEBUG_FILE="/proc/self/fd/2",
        RANK=str(arguments["rank"]),
        WORLD_SIZE=str(arguments["world"]),
        LOCAL_RANK="0",  # the own card is the first of CUDA_VISIBLE_DEVICES
        LOCAL_WORLD_SIZE="1",
        MASTER_ADDR=str(arguments["address"]),
        MASTER_PORT=str(arguments["port"]),
    )
    return kept


def logged(words: List[str], variables: Dict[str, str], seconds: float) -> str:
    """Everything a process wrote. Raises RuntimeError where it fails or takes too long; then it is killed, and not
    waited for: on a dying card it may never end."""
    reading, writing = os.pipe()
    try:
        process = subprocess.Popen(
            words, env=variables, stdin=subprocess.DEVNULL, stdout=writing, stderr=writing
        )
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    os.set_blocking(reading, False)
    written = []  # type: List[bytes]
    deadline = time.monotonic() + seconds
    ended = False
    try:
        while not ended and time.monotonic() < deadline:
            ended = process.poll() is not None  # asked first: what it wrote at last is still read
            written.extend(waiting(reading))
            if not ended:
                time.sleep(LOOK_SECONDS)
    finally:
        if not ended:
            process.kill()
        os.close(reading)
    log = b"".join(written).decode("utf-8", "replace")
    if not ended:
        raise RuntimeError("the untimed run took longer than %g s; its log ends: %s" % (seconds, tail(log)))
    if process.returncode != 0:
        raise RuntimeError(
            "the untimed run ended with %d; its log ends: %s" % (process.returncode, tail(log))
        )
    return log


def waiting(descriptor: int) -> List[bytes]:
    """What can be read without waiting."""
    blocks = []  # type: List[bytes]
    while True:
        try:
            block = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            return blocks
        if not block:
            return blocks
        blocks.append(block)


def tail(log: str) -> str:
    return log[-TAIL_CHARACTERS:]


def shortened(log: str) -> str:
    """Both ends of a long log: the start names versions and paths, the end the algorithms."""
    if len(log) <= MOST_CHARACTERS:
        return log
    return log[: MOST_CHARACTERS // 2] + "\n…\n" + log[-MOST_CHARACTERS // 2 :]

"""Real ranks in real processes, some of which misbehave: faults are put in from outside, the product has no way to."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nodecheck.measure

WORKERS = Path(nodecheck.measure.__file__).parent / "workers"

CHILD = """
import importlib.util, json, os, signal, sys, time

path, rank, stage, arguments, fault = sys.argv[1], int(sys.argv[2]), sys.argv[3], json.loads(sys.argv[4]), sys.argv[5]
spec = importlib.util.spec_from_file_location("worker_under_test", path)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
steps = []
worker = module.Worker(lambda line: steps.append(line["step"]) if "step" in line else None)
worker.start({"card": "cpu%d" % rank, "cards": ["cpu%d" % rank]})
worker.torch.set_num_threads(1)
stage_module = worker.beside("stage_" + stage)

real = stage_module.Exchange.launch
calls = [0]

def launch(self):
    calls[0] += 1
    if fault == "late" and self.run.collective == "send_recv":
        time.sleep(0.1)
    if fault == "killed" and calls[0] == 6:
        os.kill(os.getpid(), signal.SIGKILL)
    real(self)
    if fault == "corrupt" and self.run.collective == "all_reduce" and self.run.elements > 7:
        self.output[7] += 1
    if fault == "shifted" and self.run.collective == "all_gather":
        # One block of another rank came to lie one element too far.
        count, sender = self.run.elements, (rank + 1) % self.group.world
        block = self.output[sender * count : (sender + 1) * count]
        block.copy_(worker.torch.roll(block, 1))

if fault:
    stage_module.Exchange.launch = launch
try:
    answer = {"answer": worker.run(stage, arguments)}
except Exception as error:
    answer = {"error": type(error).__name__ + ": " + str(error)}
print("ANSWER " + json.dumps(dict(answer, steps=steps)), flush=True)
os._exit(0)
"""


@dataclass
class Rank:
    """How one rank ended."""

    code: int | None
    """None: it had to be killed after `seconds`."""
    answer: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    steps: list[str] = field(default_factory=list)
    output: str = ""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def run(
    stage: str,
    count: int,
    arguments: dict[str, Any],
    faults: dict[int, str] | None = None,
    seconds: float = 60,
) -> list[Rank]:
    port = free_port()
    processes = []
    for rank in range(count):
        asked = {
            "rank": rank,
            "world": count,
            "address": "127.0.0.1",
            "port": port,
            "timeout": 30,
            **arguments,
        }
        fault = (faults or {}).get(rank, "")
        words = [
            sys.executable,
            "-c",
            CHILD,
            str(WORKERS / "worker.py"),
            str(rank),
            stage,
            json.dumps(asked),
            fault,
        ]
        processes.append(
            subprocess.Popen(
                words,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "OMP_NUM_THREADS": "1"},
            )
        )
    ranks = []
    try:
        for process in processes:
            try:
                output, _ = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                ranks.append(Rank(None))
                continue
            ended = Rank(process.returncode, output=output)
            for line in output.splitlines():
                if line.startswith("ANSWER "):
                    told = json.loads(line.partition(" ")[2])
                    ended.answer, ended.error = told.get("answer", {}), told.get("error", "")
                    ended.steps = told["steps"]
            ranks.append(ended)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return ranks

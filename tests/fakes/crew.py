"""A worker with made-up stages, and a made-up torch that is there at once: what the crew is tested with."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from nodecheck.sources.crew import PROGRAM

TORCH = """
import os, sys, types

__version__ = "2.0.0"
version = types.SimpleNamespace(hip=None, cuda="12.8")
int64 = "int64"


class Tensor:
    def __init__(self, count):
        self.count = count

    def sum(self):
        return self

    def item(self):
        return self.count * (self.count - 1) // 2


def arange(count, dtype, device):
    return Tensor(count)


def device(*words):
    return words


cuda = types.SimpleNamespace(
    set_device=lambda index: None,
    synchronize=lambda *device: None,
    empty_cache=lambda: None,
    get_device_name=lambda index: "Made up",
    get_device_properties=lambda index: types.SimpleNamespace(
        uuid=os.environ["CUDA_VISIBLE_DEVICES"].split(",")[0][4:]
    ),
)
"""

STAGES = {
    "echo": """
    return {"rows": [], "arguments": arguments, "card": worker.card, "cards": worker.cards}
""",
    "talk": """
    import os
    worker.step("talking")
    print("on stdout")
    os.write(2, b"on stderr\\n")
    worker.progress(0.25, "a quarter")
    worker.progress(1.0, "copy 4297 GB/s")
    return {"rows": [], "variable": os.environ.get("NODECHECK_TEST"), "pid": os.getpid()}
""",
    "die": """
    import os, signal, time
    worker.step("dying")
    if arguments.get("die"):
        print("last words")
        os.kill(os.getpid(), arguments["die"])
    time.sleep(60)
""",
    "hang": """
    import time
    worker.step("hanging")
    def where_it_hangs():
        time.sleep(600)
    if arguments.get("hang", True):
        where_it_hangs()
    return {"rows": []}
""",
    "hold": """
    import ctypes
    worker.step("holding the interpreter's lock")
    ctypes.PyDLL(None).sleep(600)
""",
    "err": """
    if not arguments.get("err", True):
        import time
        time.sleep(60)
    raise MemoryError("no more of it")
""",
    "spend": """
    import os
    return {"pid": os.getpid(), "spent": "the card takes nothing more"}
""",
    "strange": """
    import os
    os.write(worker._say.__self__._descriptor, b'no json\\n[1]\\n{"id": 99, "answer": {}}\\n')
    return {"rows": [{"values": [float("nan"), 1.0, float("inf")]}]}
""",
    "add": """
    dist, rank, world = worker.join(arguments)
    tensor = worker.torch.full((1000,), float(rank + 1))
    seconds = worker.times(lambda: dist.all_reduce(tensor.clone()), 5, warmup=1)
    dist.all_reduce(tensor)
    return {"rows": [{"values": seconds}], "rank": rank, "sum": tensor[0].item(), "pid": __import__("os").getpid()}
""",
    "wait_for_all": """
    import os, signal, time
    dist, rank, world = worker.join(arguments)
    worker.step("barrier")
    if rank == arguments.get("hang"):
        time.sleep(600)
    if rank == arguments.get("die"):
        os.kill(os.getpid(), signal.SIGSEGV)
    dist.barrier()
    return {"rows": []}
""",
    "share": """
    import mmap, time
    with open(arguments["path"], "w+b") as file:
        file.truncate(4096)
        kept = mmap.mmap(file.fileno(), 4096)
    worker.step("shared")
    time.sleep(60)
""",
    "nap": """
    import time
    time.sleep(arguments["seconds"])
    return {"rows": []}
""",
    # Those of these names have processes of their own.
    "transport": """
    import os
    print("NCCL says", os.environ["NCCL_DEBUG"], worker.started["import_seconds"] < 0.1)
    return {"rows": [], "pid": os.getpid(), "subsystems": os.environ["NCCL_DEBUG_SUBSYS"], "rank": arguments["rank"]}
""",
    "storage": """
    import os, sys, time
    time.sleep(arguments.get("seconds", 0))
    return {"rows": [], "pid": os.getpid(), "torch": "torch" in sys.modules}


NEEDS_TORCH = False
""",
}


def program(folder: Path) -> Path:
    """A copy of the real worker in `folder`, with the stages above beside it."""
    folder.mkdir(parents=True)
    for name, body in STAGES.items():
        (folder / f"stage_{name}.py").write_text(f"def run(worker, arguments):{body}")
    shutil.copy(PROGRAM.with_name("stack.py"), folder)
    return Path(shutil.copy(PROGRAM, folder))


def torch(folder: Path, before: str = "") -> str:
    """PYTHONPATH of the made-up torch; `before` is what importing it does first."""
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "__init__.py").write_text(before + TORCH)
    return str(folder)


def running(folder: Path) -> list[int]:
    """Processes that were started with something in `folder`, zombies left out."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in words:
            found.append(int(entry.name))
    return found


def all_gone(folder: Path, within_seconds: float) -> bool:
    ends = time.monotonic() + within_seconds
    while left := running(folder):
        if time.monotonic() > ends:
            print(left)
            return False
        time.sleep(0.02)
    return True

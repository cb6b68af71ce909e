"""Runs in the renter's interpreter, one process a card: imports torch once, then runs one stage after another.

Stand-alone: Python >= 3.8, the standard library and torch (>= 2.0) alone. Started by its path as

    python worker.py REQUESTS_DESCRIPTOR ANSWERS_DESCRIPTOR

and, so that the ranks of several nodes can join one group, by torchrun as

    torchrun … worker.py --torchrun STAGE '{"argument": …}'

which prints rank 0's answer as one line of JSON. Over the descriptors go JSON lines, requests one way:

    {"id": 7, "stage": "hbm", "arguments": {…}}

and answers the other; the first stage of all is `start`, before which `import` may be asked for what takes longest:

    {"id": 7, "step": "copy"}                                        what is being done from here on
    {"id": 7, "progress": {"fraction": 0.4, "figure": "copy 4297 GB/s"}}
    {"id": 7, "answer": {"rows": […], "checks": […], …}}             the end, or
    {"id": 7, "error": {"type": …, "message": …, "code": …, "trace": …}}

stdout and stderr are the worker's log: torch, NCCL and the stacks (SIGUSR1 asks for them) write there. The worker
ends when its requests end, at once, whatever it is doing.

A stage is a file beside this one, `stage_<name>.py`, with `run(worker, arguments) -> dict`; see `Worker`.
"""

import sys

if __name__ == "__main__" and not getattr(sys.flags, "safe_path", False):
    # This script's folder: the renter's programs do not see it, so neither may the renter's torch.
    del sys.path[0]

import contextlib
import ctypes
import faulthandler
import gc
import importlib.util
import json
import os
import queue
import re
import signal
import threading
import time
import traceback
from datetime import timedelta
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

HERE = os.path.dirname(os.path.abspath(__file__))

AS_FOUND = "as found"
"""The binding of a worker that was left on the CPUs it found."""

PROGRESS_SECONDS = 0.1
"""Between two words of progress: the display needs no more, and the parent's CPU is the renter's."""

MESSAGE_CHARACTERS = 2000
TRACE_CHARACTERS = 4000
PR_SET_PDEATHSIG = 1
MOST_CPUS = 8192


class Worker:
    """What a stage works with."""

    def __init__(self, say: Callable[[Dict[str, Any]], None]) -> None:
        self._say = say
        self._modules = {}  # type: Dict[str, Any]
        self._said = 0.0
        self._joined = False
        self.torch = None  # type: Any
        """The renter's torch."""
        self.device = None  # type: Any
        """The own card or the CPU, a torch.device."""
        self.backend = ""
        """`cuda`, `hip` or `cpu`."""
        self.card = ""
        """The own card's key."""
        self.cards = []  # type: List[str]
        """The keys of all cards of the run, the own one first: a card's place is its index as a device."""
        self.started = {}  # type: Dict[str, Any]
        """What `start` answered: seconds of the import, of the context and of the first kernel, and the rest."""
        self._tried = {"items": {}, "errors": {}, "step": ""}  # type: Dict[str, Any]
        """How the card was tried, in the shape of `sources.interpreter`'s answers."""

    def step(self, name: str) -> None:
        """Say what is being done from here on: the last step is named where the worker dies or hangs."""
        self._say({"step": name})

    def progress(self, fraction: float, figure: str = "") -> None:
        """Say how much of the stage is done (0 … 1) and the last figure (`copy 4297 GB/s`), as often as wanted."""
        now = time.monotonic()
        if fraction >= 1 or now - self._said >= PROGRESS_SECONDS:
            self._said = now
            self._say({"progress": {"fraction": round(fraction, 4), "figure": figure}})

    def beside(self, name: str) -> Any:
        """The module in `<name>.py` beside this file, for what stages share."""
        if name not in self._modules:
            path = os.path.join(HERE, name + ".py")
            # Under a private name: the renter's modules and ours do not meet.
            spec = importlib.util.spec_from_file_location("_nodecheck_" + name, path)
            if spec is None or spec.loader is None:
                raise ImportError("no such file: " + path)
            module = importlib.util.module_from_spec(spec)
            wrote = sys.dont_write_bytecode
            sys.dont_write_bytecode = True  # nodecheck's folder is no place for another Python's files
            try:
                spec.loader.exec_module(module)
            finally:
                sys.dont_write_bytecode = wrote
            self._modules[name] = module
        return self._modules[name]

    def times(
        self, function: Callable[[], Any], repetitions: int, warmup: int = 3, pause_seconds: float = 0.0
    ) -> List[float]:
        """Seconds that each of `repetitions` calls took, after `warmup` calls that do not count.

        On a card a pair of events stands around each call, all queued back to back: waiting for the card between
        them made a 4 GiB copy on an H200 read 1.8 % low. With `pause_seconds` the card is waited for and rests
        after each call, so that its power limit does not lower the clock. On the CPU it is the wall clock.
        """
        for _ in range(warmup):
            function()
        self.synchronize()
        if self.backend == "cpu":
            seconds = []
            for _ in range(repetitions):
                began = time.perf_counter()
                function()
                seconds.append(time.perf_counter() - began)
                time.sleep(pause_seconds)
            return seconds
        event = self.torch.cuda.Event
        pairs = [(event(enable_timing=True), event(enable_timing=True)) for _ in range(repetitions)]
        for begin, end in pairs:
            begin.record()
            function()
            end.record()
            if pause_seconds > 0:
                end.synchronize()
                time.sleep(pause_seconds)
        self.synchronize()
        return [begin.elapsed_time(end) / 1000 for begin, end in pairs]

    def synchronize(self) -> None:
        """Wait until the own card has done everything it was given."""
        if self.backend != "cpu":
            self.torch.cuda.synchronize(self.device)

    def join(self, arguments: Dict[str, Any]) -> Tuple[Any, int, int]:
        """Join the group: torch.distributed, the own rank, and how many ranks there are.

        `arguments` holds `rank`, `world`, `address` and `port`, and may hold `backend` (else nccl for cards, gloo
        for CPUs) and `timeout` (seconds). Under torchrun rank, world and the way to the others are torchrun's.
        Once a stage is done the group is left by itself.
        """
        dist = self.torch.distributed
        backend = arguments.get("backend") or ("gloo" if self.backend == "cpu" else "nccl")
        # No device_id=: it hangs in torch 2.6.0 to 2.7.0.
        options = {"timeout": timedelta(seconds=float(arguments.get("timeout", 60)))}  # type: Dict[str, Any]
        if "rank" in arguments:
            address = str(arguments["address"])
            options.update(rank=int(arguments["rank"]), world_size=int(arguments["world"]))
            options["init_method"] = "tcp://%s:%d" % (address, int(arguments["port"]))
            if backend == "gloo" and address == "127.0.0.1":
                # Else gloo takes the address of the host's name, which a container often cannot resolve.
                os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        dist.init_process_group(backend, **options)
        self._joined = True
        return dist, dist.get_rank(), dist.get_world_size()

    def leave(self) -> None:
        """Leave the group, if one was joined."""
        if self._joined:
            self._joined = False
            self.torch.distributed.destroy_process_group()

    def load(self) -> Dict[str, Any]:
        """Import torch. Raises what the import raises."""
        self.step("import torch")
        began = time.perf_counter()
        import torch

        self.torch = torch
        return {"import_seconds": time.perf_counter() - began, "torch": str(torch.__version__)}

    def start(self, arguments: Dict[str, Any]) -> Dict[str, Any]:
        """Bind to CPUs, make a context, import torch and run the first kernel; `started` from here on.

        The card is tried exactly as by a process of its own (`stack.py context`), and `context` in the answer has the
        shape of that one's. Raises what the import raises, and RuntimeError where the card refuses.
        """
        self.card = str(arguments["card"])
        self.cards = [str(card) for card in arguments.get("cards", [self.card])]
        started = {"binding": bind(arguments.get("cpus")), "pid": os.getpid()}  # type: Dict[str, Any]
        started["python"] = "%d.%d.%d" % sys.version_info[:3]
        on_cpu = self.card.startswith("cpu")
        on_amd = of_amd(self.card)
        stack = self.beside("stack")
        answers = stack.Answers(self._take)
        create_seconds, index = 0.0, 0
        if not on_cpu and not on_amd:
            create_seconds, _ = self._make_context(lambda: 0 if stack.make_context(answers) else None)
        started.update(self.load())
        if on_amd:  # HIP's runtime comes with torch
            address = self.card.partition("#")[0] if by_address(self.card) else None
            create_seconds, index = self._make_context(lambda: stack.make_hip_context(answers, address))
            if address is not None:
                self.cards = stack.Hip().addresses()  # whose places are HIP's numbers
        torch = self.torch
        self.backend = "cpu" if on_cpu else ("hip" if getattr(torch.version, "hip", None) else "cuda")
        self.device = torch.device("cpu") if on_cpu else torch.device("cuda", index)
        if not on_cpu:
            self.step("context")
            began = time.perf_counter()
            torch.cuda.set_device(index)
            torch.cuda.synchronize()
            started["create_seconds"] = create_seconds + time.perf_counter() - began
            started["uuid"] = stack.torch_uuid(torch, torch.cuda.get_device_properties(index))
            started["name"] = torch.cuda.get_device_name(index)
        stack.add_up(answers, torch, self.device)
        if "sum" in self._tried["errors"]:
            raise RuntimeError(self._refusal())
        started["kernel_seconds"] = self._tried["items"]["kernel_seconds"]
        started["context"] = self._tried
        self.started = started
        return started

    def _make_context(self, make: Callable[[], Optional[int]]) -> Tuple[float, int]:
        """Seconds that it took, and what `make` returned. Raises RuntimeError where the card refuses, and where it is
        another one."""
        began = time.perf_counter()
        made = make()
        if made is None:
            raise RuntimeError(self._refusal())
        handed = self._tried["items"].get("device")
        # A card that tells HIP no UUID was found by it all the same, or there would be none.
        uuids = (None, self.card.partition("#")[0])
        if handed and self.card.startswith("GPU-") and handed["uuid"] not in uuids:
            raise RuntimeError("the driver handed out another card, %s" % handed["uuid"])
        return time.perf_counter() - began, made

    def _take(self, line: Dict[str, Any]) -> None:
        """A line of `stack.Answers`."""
        if "step" in line:
            self._tried["step"] = line["step"]
            self.step(line["step"])
        else:
            self._tried["items" if "value" in line else "errors"][line["item"]] = line.get(
                "value", line.get("error")
            )

    def _refusal(self) -> str:
        """What the card, or torch, said at the last step."""
        step = self._tried["step"]
        item = "sum" if step == "kernel" else step
        told = self._tried["errors"].get(item) or self._tried["items"].get(item) or {}
        return "%s: %s" % (told.get("name") or told.get("type"), told.get("message"))

    def run(self, stage: str, arguments: Dict[str, Any]) -> Dict[str, Any]:
        """One stage, from its file. A group that it joined is left, and memory that it used is given back.

        After an exception the group is not left: who leaves a group whose other ranks still wait may wait too.
        """
        module = self.beside("stage_" + stage)
        if not self.started and getattr(module, "NEEDS_TORCH", True):
            raise RuntimeError("the worker has not been started")
        try:
            answer = module.run(self, arguments)  # type: Dict[str, Any]
            self.leave()
            return answer
        finally:
            gc.collect()
            if self.backend in ("cuda", "hip"):
                self.torch.cuda.empty_cache()


def of_amd(card: str) -> bool:
    """Whether the key is the UUID of a card of AMD's: `GPU-` and sixteen digits, where NVIDIA's have five groups; or
    a PCI address, as those have it that have no UUID of their own."""
    return by_address(card) or re.match(r"GPU-[0-9a-f]{16}(#|$)", card) is not None


def by_address(card: str) -> bool:
    return re.match(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7](#|$)", card) is not None


def bind(cpus: Optional[str]) -> str:
    """Bind this process to the CPUs (`0-31,64-95`) of its card's NUMA node; what it is bound to now.

    `as found` where none are named or may be used, and where the renter has pinned something already: a process
    that could run on more CPUs than it does was put there by somebody.
    """
    if not cpus or not hasattr(os, "sched_setaffinity"):
        return AS_FOUND
    found = os.sched_getaffinity(0)
    os.sched_setaffinity(0, range(MOST_CPUS))  # the kernel leaves those that the cgroup allows
    wanted = numbers(cpus) & os.sched_getaffinity(0)
    if found != os.sched_getaffinity(0) or not wanted:
        os.sched_setaffinity(0, found)
        return AS_FOUND
    os.sched_setaffinity(0, wanted)
    return ranges(wanted)


def numbers(text: str) -> Set[int]:
    """`0-2,8` as numbers."""
    found = set()  # type: Set[int]
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def ranges(cpus: Set[int]) -> str:
    """Numbers as `0-2,8`."""
    parts = []  # type: List[List[int]]
    for number in sorted(cpus):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(a) if a == b else "%d-%d" % (a, b) for a, b in parts)


def described(error: BaseException) -> Dict[str, Any]:
    """An exception as data; `code` is the CUDA error's number where the exception carries one."""
    code = getattr(error, "error_code", None)
    return {
        "type": type(error).__name__,
        "message": str(error)[:MESSAGE_CHARACTERS],
        "code": code if type(code) is int else None,
        "trace": "".join(traceback.format_tb(error.__traceback__))[-TRACE_CHARACTERS:],
    }


class Answers:
    """The pipe to the parent."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self.request = 0
        """The request that is being worked on."""

    def say(self, line: Dict[str, Any]) -> None:
        rest = (json.dumps(dict(line, id=self.request), default=str) + "\n").encode("ascii")
        with self._lock:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]


def listen(descriptor: int, requests: "queue.Queue[Dict[str, Any]]") -> None:
    """Hand requests on; at their end the parent is gone or wants us gone, and nothing is worth waiting for."""
    try:
        with os.fdopen(descriptor, "rb") as lines:
            for line in lines:
                requests.put(json.loads(line.decode()))
    finally:
        os._exit(0)


def log_by_lines() -> None:
    """Lines of the log leave at once, so that a crash loses none: Python's, and those of C libraries (NCCL)."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    with contextlib.suppress(OSError, ValueError, AttributeError):  # another libc: its lines come in blocks
        libc = ctypes.CDLL(None)
        line_buffered = 1
        libc.setvbuf(ctypes.c_void_p.in_dll(libc, "stdout"), None, line_buffered, ctypes.c_size_t(0))


def serve(requests_descriptor: int, answers_descriptor: int) -> None:
    for descriptor in (requests_descriptor, answers_descriptor):
        os.set_inheritable(descriptor, False)
    answers = Answers(answers_descriptor)
    requests = queue.Queue()  # type: queue.Queue[Dict[str, Any]]
    threading.Thread(
        target=listen, args=(requests_descriptor, requests), name="requests", daemon=True
    ).start()
    worker = Worker(answers.say)
    while True:
        request = requests.get()
        answers.request = request["id"]
        try:
            arguments = request.get("arguments", {})
            stage = request["stage"]
            if stage == "import":
                answer = worker.load()
            else:
                answer = worker.start(arguments) if stage == "start" else worker.run(stage, arguments)
            end = {"answer": answer}  # type: Dict[str, Any]
            json.dumps(answer, default=str)  # what cannot be written is the stage's error
        except BaseException as error:  # whatever it is, the parent waits for an answer
            end = {"error": described(error)}
            traceback.print_exc()
            del error
        answers.say(end)
        del end


def torchrun(stage: str, text: str) -> None:
    """One stage as a rank of torchrun's; rank 0 prints its answer. Raises what the stage raises."""
    local, count = int(os.environ["LOCAL_RANK"]), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    # HIP reads both, and its own first.
    on_nvidia = os.path.exists("/dev/nvidiactl")
    variables = ("CUDA_VISIBLE_DEVICES",) if on_nvidia else ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
    named = next((os.environ[name] for name in variables if name in os.environ), None)
    visible = [str(i) for i in range(count)] if named is None else [name for name in named.split(",") if name]
    has_card = on_nvidia or os.path.exists("/dev/kfd")
    if has_card and local < len(visible) and visible[local] != "-1":
        own = visible.pop(local)
        cards = [own, *visible]
        os.environ.update(dict.fromkeys(variables, ",".join(cards)))
    else:
        cards = ["cpu%d" % local]
    worker = Worker(lambda _: None)
    worker.start({"card": cards[0], "cards": cards})
    answer = worker.run(stage, json.loads(text))
    if os.environ["RANK"] == "0":
        print(json.dumps(answer, default=str), flush=True)


def main() -> None:
    faulthandler.enable(file=2)
    if sys.argv[1] == "--torchrun":
        torchrun(*sys.argv[2:4])
        return
    # In this order: who hears from us may ask for stacks.
    faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)
    with contextlib.suppress(OSError, AttributeError):  # no Linux: the end of the requests does it
        # A parent that is killed takes us along even where our own threads cannot run.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    log_by_lines()
    serve(int(sys.argv[1]), int(sys.argv[2]))


if __name__ == "__main__":
    main()

"""Stage `gemm`: matrix products in each arithmetic that the card has, on random data.

TFLOP/s = 2 × m × n × k ÷ time. Short bursts with pauses: after some tens of milliseconds of products an H200 reaches
its power limit and lowers its clock, and the median of a longer run then says when that happened rather than what
the card can do. The bursts of all kinds take turns, round after round. `sustained` asks for the other figure, the
rate that the card holds at its power limit.
"""

import time
from typing import Any, Dict, List, Tuple

SQUARE, LARGE, DEEP = (4096, 4096, 4096), (8192, 8192, 8192), (2048, 2048, 13312)
"""Of five shapes tried on an H200, DEEP gave the most in bfloat16."""

SHAPES: Dict[str, Tuple[Tuple[int, int, int], ...]] = {
    "bfloat16": (SQUARE, LARGE, DEEP),
    "float16": (SQUARE, LARGE, DEEP),
    "float8": (SQUARE, LARGE, DEEP),
    "tfloat32": (SQUARE, LARGE, DEEP),
    # A LARGE product takes some 20 ms here, too long for a burst that the power limit does not see.
    "float32": (SQUARE, DEEP),
    "float64": (SQUARE, DEEP),
}

CPU_SHAPES = ((256, 256, 256), (128, 128, 832))
CPU_PATIENCE_SECONDS = 0.1
"""A CPU without the arithmetic emulates it: slower than this for one product, it is left out."""

ROUNDS = 3
BURST = 10
LEAST_BURST = 3
BURST_SECONDS = 0.015
CPU_BURST_SECONDS = 0.06
REST = 4
"""The pause after a burst, in lengths of the burst: on average the card then draws less than a third of what its
power limit allows, and what the limit remembers of a burst (it comes in after some 25 ms) is gone before the next."""

LONGEST_REST_SECONDS = 0.2
LONGEST_WINDOW_SECONDS = 1.0
"""A value of the sustained rate."""

SUSTAINED = ("bfloat16", LARGE)
CPU_SUSTAINED = ("float32", CPU_SHAPES[0])


def run(worker: Any, arguments: Dict[str, Any]) -> Dict[str, Any]:
    """Arguments: `only`, names of measures (`gemm.bfloat16`); `sustained_seconds`: instead of the bursts, one product
    for so long, a value a second.

    `absent` says which kinds there are not, and why. Raises what torch raises.
    """
    if arguments.get("sustained_seconds"):
        return sustained(worker, float(arguments["sustained_seconds"]))
    only = arguments.get("only")
    products: List[Any] = []
    absent: List[Dict[str, Any]] = []
    for kind, shapes in SHAPES.items():
        if only and "gemm." + kind not in only:
            continue
        worker.step("prepare " + kind)
        try:
            found = [
                made(worker, kind, shape) for shape in (CPU_SHAPES if worker.backend == "cpu" else shapes)
            ]
        except worker.beside("products").Unavailable as error:
            absent.append({"measure": "gemm." + kind, "why": str(error)})
            continue
        products += found
    values: List[List[float]] = [[] for _ in products]
    for number in range(ROUNDS):
        for index, (product, burst) in enumerate(products):
            worker.step("%s %s" % (product.kind, product.shape))
            with product.arithmetic():
                seconds = worker.times(product.run, burst, warmup=1 if worker.backend == "cpu" else 2)
            values[index] += [product.operations / each / 1e12 for each in seconds]
            if worker.backend != "cpu":
                time.sleep(min(LONGEST_REST_SECONDS, REST * sum(seconds)))
            worker.progress(
                (number + (index + 1) / len(products)) / ROUNDS,
                "%s %s %.3g TFLOP/s"
                % (product.kind, product.shape, sorted(values[index])[len(values[index]) // 2]),
            )
    rows = [row(product, got) for (product, _), got in zip(products, values)]
    return {"rows": rows, "checks": [], "absent": absent}


def made(worker: Any, kind: str, shape: Tuple[int, int, int]) -> Tuple[Any, int]:
    """A product, run for the first time, and how many of it make a burst."""
    products = worker.beside("products")
    on_cpu = worker.backend == "cpu"
    if on_cpu and kind == "tfloat32":
        raise products.Unavailable("TF32 is an arithmetic of cards")

    def random(rows: int, columns: int, _: int) -> Any:
        dtype = worker.torch.float64 if kind == "float64" else worker.torch.float32
        return worker.torch.randn(rows, columns, dtype=dtype, device=worker.device)

    product = products.Product(worker, kind, shape, random)
    with product.arithmetic():
        each = worker.times(product.run, 1, warmup=1)[0]
    if on_cpu and each > CPU_PATIENCE_SECONDS:
        raise products.Unavailable(
            "too slow on this CPU: %.2f s for one product of %s" % (each, product.shape)
        )
    fitting = int((CPU_BURST_SECONDS if on_cpu else BURST_SECONDS) / max(each, 1e-9))
    return product, max(LEAST_BURST, min(BURST, fitting))


def sustained(worker: Any, seconds: float) -> Dict[str, Any]:
    """One product without a pause for `seconds`; a value is the rate over about a second."""
    kind, shape = CPU_SUSTAINED if worker.backend == "cpu" else SUSTAINED
    worker.step("sustained " + kind)
    product, _ = made(worker, kind, shape)
    values: List[float] = []
    window = min(LONGEST_WINDOW_SECONDS, seconds / 3)
    with product.arithmetic():
        each = worker.times(product.run, 1, warmup=1)[0]
        length = window / 10  # the first, which only says how many make a window
        began = time.perf_counter()
        while True:
            count = max(1, int(length / each))

            def batch(count: int = count) -> None:
                for _ in range(count):
                    product.run()

            # Between one batch and the next the card waits for some microseconds.
            each = worker.times(batch, 1, warmup=0)[0] / count
            elapsed = time.perf_counter() - began
            rate = product.operations / each / 1e12
            worker.progress(min(1.0, elapsed / seconds), "%s sustained %.3g TFLOP/s" % (kind, rate))
            if length == window:
                values.append(rate)
                if elapsed >= seconds:
                    return {"rows": [dict(row(product, values), sustained=True)], "checks": []}
            length = window


def row(product: Any, values: List[float]) -> Dict[str, Any]:
    return {
        "measure": "gemm." + product.kind,
        "unit": "TFLOP/s",
        "dtype": product.dtype,
        "shape": product.shape,
        "values": values,
    }

"""Stage `agreement`: does the card give the same bits for the same product every time, and those of its siblings?

The factors come from a hash in integer arithmetic, so that every card has the same. Each product is repeated under
load and compared with its first result bit by bit, on the card. A checksum of the first result's bits goes to the
parent, which compares cards of one model: another model may rightly add in another order.
"""

import time
from typing import Any, Dict, Iterator, List, Tuple

LARGE, SMALL = (8192, 8192, 8192), (4096, 4096, 4096)
KINDS: Tuple[Tuple[str, Tuple[int, int, int]], ...] = (
    ("bfloat16", LARGE),
    ("float16", LARGE),
    ("float8", LARGE),
    ("float32", SMALL),
)
CPU_KINDS: Tuple[Tuple[str, Tuple[int, int, int]], ...] = (
    ("float32", (256, 256, 256)),
    ("float64", (256, 256, 256)),
)

LEAST_REPETITIONS = 50
SECONDS = {"standard": 0.3, "full": 10.0}
"""Each kind, at least; and at least LEAST_REPETITIONS."""

CPU_REPETITIONS = 5
CPU_SECONDS = 0.1
EXAMPLES = 5
ODD = 0x9E3779B97F4A7C15
OTHER_ODD = 0xBF58476D1CE4E5B9
ROWS_AT_ONCE = 512
"""Of a result, for its checksum: the integers of 64 bits take memory."""


def run(worker: Any, arguments: Dict[str, Any]) -> Dict[str, Any]:
    """Arguments: `level` (`standard` or `full`).

    Answers a check `agreement.self` for each kind (`compared` counts elements over all repetitions) and `digests`:
    `DTYPE SHAPE` to 16 hexadecimal digits, equal on siblings. `absent` says which kinds there are not.
    """
    products = worker.beside("products")
    on_cpu = worker.backend == "cpu"
    kinds = CPU_KINDS if on_cpu else KINDS
    seconds = CPU_SECONDS if on_cpu else SECONDS[arguments.get("level", "standard")]
    checks: List[Dict[str, Any]] = []
    absent: List[Dict[str, Any]] = []
    digests: Dict[str, str] = {}
    with deterministic(worker):
        for number, (kind, shape) in enumerate(kinds):
            worker.step("prepare " + kind)
            try:
                product = products.Product(worker, kind, shape, lambda *a: hashed(worker, *a))
            except products.Unavailable as error:
                absent.append({"measure": "agreement." + kind, "why": str(error)})
                continue
            worker.step("repeat %s %s" % (kind, product.shape))
            with product.arithmetic():
                check, digest = repeat(worker, product, seconds, (number / len(kinds), 1 / len(kinds)))
            checks.append(check)
            digests["%s %s" % (product.dtype, product.shape)] = digest
    return {"rows": [], "checks": checks, "digests": digests, "absent": absent}


class deterministic:
    """rocBLAS adds with atomics, in any order, unless torch asks for the same order each time; cuBLAS does not."""

    def __init__(self, worker: Any) -> None:
        self._torch = worker.torch if worker.backend == "hip" else None

    def __enter__(self) -> None:
        if self._torch is not None:
            self._before = self._torch.are_deterministic_algorithms_enabled()
            self._torch.use_deterministic_algorithms(True, warn_only=True)

    def __exit__(self, *_: Any) -> None:
        if self._torch is not None:
            self._torch.use_deterministic_algorithms(self._before)


def repeat(
    worker: Any, product: Any, seconds: float, share: Tuple[float, float]
) -> Tuple[Dict[str, Any], str]:
    """The check of one product, and the checksum of its first result; `share` is where it stands in the stage."""
    least = CPU_REPETITIONS if worker.backend == "cpu" else LEAST_REPETITIONS
    first = bits(worker, product.run()).clone()
    wrong = repetitions = 0
    examples: List[str] = []
    began = time.perf_counter()
    while True:
        again = bits(worker, product.run())
        differs = again != first
        # Waiting for the card here costs some 30 µs a product of 1 ms: it stays loaded.
        count = int(differs.sum().item())
        repetitions += 1
        if count:
            wrong += count
            where = differs.nonzero()[:EXAMPLES].tolist()
            for row, column in where[: EXAMPLES - len(examples)]:
                examples.append(
                    "repetition %d, row %d, column %d: expected 0x%x, read 0x%x"
                    % (repetitions, row, column, raw(first, row, column), raw(again, row, column))
                )
        elapsed = time.perf_counter() - began
        done = min(1.0, repetitions / least, elapsed / seconds)
        worker.progress(share[0] + share[1] * done, "%s ×%d, %d wrong" % (product.kind, repetitions, wrong))
        if done >= 1:
            break
    check = {
        "check": "agreement.self",
        "dtype": product.dtype,
        "shape": product.shape,
        "compared": repetitions * first.numel(),
        "wrong": wrong,
        "examples": examples,
    }
    return check, "%016x" % checksum(worker, first)


def bits(worker: Any, result: Any) -> Any:
    """A result's raw bits as integers: floats with equal values may differ in bits (-0.0), and a NaN equals none."""
    torch = worker.torch
    return result.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[result.element_size()])


def raw(integers: Any, row: int, column: int) -> int:
    return int(integers[row, column].item()) % (1 << 8 * int(integers.element_size()))


def checksum(worker: Any, integers: Any) -> int:
    """Sum over all elements of bits × an odd number of their own, mod 2^64: no single wrong bit can cancel out."""
    torch = worker.torch
    columns = integers.shape[1]
    total = torch.zeros((), dtype=torch.int64, device=worker.device)
    for start in range(0, integers.shape[0], ROWS_AT_ONCE):
        part = integers[start : start + ROWS_AT_ONCE].to(torch.int64)
        first = start * columns
        weights = torch.arange(first, first + part.numel(), dtype=torch.int64, device=worker.device)
        weights.mul_(signed(ODD)).bitwise_or_(1)
        total += (part.flatten() * weights).sum()
    return int(total.item()) % 2**64


def hashed(worker: Any, rows: int, columns: int, number: int) -> Any:
    """Numbers in [-1, 1) of 24 bits, float32, the same on every device: integers only, until the last step is exact."""
    torch = worker.torch
    parts = list(hashed_rows(worker, rows, columns, number))
    return torch.cat(parts)


def hashed_rows(worker: Any, rows: int, columns: int, number: int) -> Iterator[Any]:
    torch = worker.torch
    for start in range(0, rows, ROWS_AT_ONCE):
        count = min(ROWS_AT_ONCE, rows - start)
        first = (number * rows + start) * columns
        x = torch.arange(first, first + count * columns, dtype=torch.int64, device=worker.device)
        # The steps of splitmix64, but that >> keeps the sign.
        x.add_(1).mul_(signed(ODD))
        x.bitwise_xor_(x >> 30).mul_(signed(OTHER_ODD))
        x.bitwise_xor_(x >> 27)
        yield ((x >> 20) % 2**24 - 2**23).to(torch.float32).div_(2**23).view(count, columns)


def signed(number: int) -> int:
    """A number mod 2^64 as torch's int64 holds it."""
    return (number + 2**63) % 2**64 - 2**63

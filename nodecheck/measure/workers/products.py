"""Matrix products a × b in one arithmetic, into a buffer of their own; for the stages `gemm` and `agreement`."""

from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, Tuple

FLOAT8_CAPABILITY = (8, 9)
"""The first of NVIDIA's with products in 8 bits."""

COLUMNS = 64
"""Compared with float64 to tell float32 from TF32."""

TF32_ERROR = 1e-5
"""Of a product of random numbers, relative: float32 errs by about 1e-7, TF32 (10 bits of mantissa) by 3e-4."""


class Unavailable(Exception):
    """This card, or this torch, has no such product; the message says why."""


class Product:
    """One product, m × n × k, ready to run."""

    def __init__(
        self, worker: Any, kind: str, shape: Tuple[int, int, int], random: Callable[[int, int, int], Any]
    ) -> None:
        """`random(rows, columns, number)` gives the factors in float32, or in float64 for `float64`.

        Raises Unavailable, and what torch raises.
        """
        self.kind = kind
        self.shape = "%dx%dx%d" % shape
        self.operations = 2 * shape[0] * shape[1] * shape[2]
        self._torch = worker.torch
        m, n, k = shape
        if kind == "float8":
            self.dtype, self._function = float8(worker, random(m, k, 0), random(n, k, 1))
        else:
            torch = worker.torch
            self.dtype = kind
            dtype = torch.float32 if kind == "tfloat32" else getattr(torch, kind)
            a, b = random(m, k, 0).to(dtype), random(k, n, 1).to(dtype)
            result = torch.empty(m, n, dtype=dtype, device=worker.device)
            self._function = lambda: torch.mm(a, b, out=result)
            if kind in ("float32", "tfloat32"):
                self._confirm(a, b)

    def run(self) -> Any:
        """Queue it once; the result, in a buffer that the next run overwrites."""
        made = self._function()
        return made[0] if isinstance(made, tuple) else made

    @contextmanager
    def arithmetic(self) -> Iterator[None]:
        """The setting that this product's arithmetic needs; afterwards it is as it was."""
        settings: Tuple[Any, Any]
        matmul = self._torch.backends.cuda.matmul
        # torch 2.9 replaced the flag; the two must not be mixed.
        if hasattr(matmul, "fp32_precision"):
            name, settings = "fp32_precision", ("ieee", "tf32")
        else:
            name, settings = "allow_tf32", (False, True)
        before = getattr(matmul, name)
        setattr(matmul, name, settings[self.kind == "tfloat32"])
        try:
            yield
        finally:
            setattr(matmul, name, before)

    def _confirm(self, a: Any, b: Any) -> None:
        """Environment variables (NVIDIA_TF32_OVERRIDE) overrule torch's setting: the error shows what was done."""
        with self.arithmetic():
            result = self.run()
        columns = min(COLUMNS, b.shape[1])
        exact = a[:1].double() @ b[:, :columns].double()
        error = float(((result[:1, :columns].double() - exact).norm() / exact.norm()).item())
        if self.kind == "float32" and error > TF32_ERROR:
            raise Unavailable("float32 products are done in TF32 though torch was told not to")
        if self.kind == "tfloat32" and error <= TF32_ERROR:
            raise Unavailable("the library does these products in float32 though TF32 was allowed")


def float8(worker: Any, a: Any, transposed: Any) -> Tuple[str, Callable[[], Any]]:
    """(dtype, function) of a scaled product in 8 bits, result in bfloat16; `transposed` is b in columns.

    torch._scaled_mm is not public and has changed: scales optional or not, out= or not, a pair as its result.
    """
    torch = worker.torch
    if worker.backend == "cpu":
        raise Unavailable("the CPU has no products in 8 bits")
    if worker.backend == "cuda" and torch.cuda.get_device_capability(worker.device) < FLOAT8_CAPABILITY:
        raise Unavailable("the card has no products in 8 bits")
    if not hasattr(torch, "_scaled_mm"):
        raise Unavailable("this torch has no products in 8 bits")
    one = torch.ones((), dtype=torch.float32, device=worker.device)
    result = torch.empty(a.shape[0], transposed.shape[0], dtype=torch.bfloat16, device=worker.device)
    scales = {"scale_a": one, "scale_b": one}
    common: Dict[str, Any] = {"out_dtype": torch.bfloat16, "use_fast_accum": True}
    refused: List[str] = []
    for name in float8_types(worker):
        dtype = getattr(torch, name, None)
        if dtype is None:
            refused.append("this torch has no %s" % name)
            continue
        left, right = a.to(dtype), transposed.to(dtype).t()
        for options in (
            dict(common, out=result, **scales),
            dict(common, **scales),
            dict(scales, out_dtype=torch.bfloat16),
            common,
        ):
            function = scaled(torch, left, right, options)
            try:
                function()
                worker.synchronize()
            except (RuntimeError, TypeError, ValueError) as error:
                refused.append("torch._scaled_mm refused: %s" % str(error).split("\n", 1)[0][:200])
                continue
            return name, function
    raise Unavailable(refused[0])


def float8_types(worker: Any) -> Tuple[str, ...]:
    """The types that the card computes in, by torch's names: gfx94x (MI300) has one whose zero has no sign, all others
    that of the Open Compute Project. Both, where torch does not tell what the card is."""
    if worker.backend != "hip":
        return ("float8_e4m3fn",)
    arch = getattr(worker.torch.cuda.get_device_properties(worker.device), "gcnArchName", "")
    if not arch:
        return ("float8_e4m3fn", "float8_e4m3fnuz")
    return ("float8_e4m3fnuz",) if arch.startswith("gfx94") else ("float8_e4m3fn",)


def scaled(torch: Any, a: Any, b: Any, options: Dict[str, Any]) -> Callable[[], Any]:
    return lambda: torch._scaled_mm(a, b, **options)

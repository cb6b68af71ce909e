"""Stage `operators`: do the operators that training uses give the right numbers, forward and backward?

Each operator runs on the device in each type, and once more on the CPU in float64 from the same (already rounded)
inputs. The error of an element is held against the largest value of the whole reference: an element is wrong where it
is further off than TOLERANCE of that, or no number. Gradients are those of the sum of the output times a random tensor.
An operator that raises is wrong as a whole; one that this torch or this card does not have is named in `absent`.

Level `standard` runs what is ready at once: float32 and bfloat16, and no operator that is compiled or searched for at
its first use. Level `full` runs everything.
"""

import contextlib
import os
import shutil
import tempfile
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Tuple

TOLERANCE = {"float32": 2e-5, "bfloat16": 3e-2, "float16": 4e-3}
"""Of the reference's largest value: 2^-24, 2^-9 and 2^-12 for one rounding; sums over up to 512 products, and results
that are rounded between the steps of one operator, leave a factor of about ten."""
DTYPES = {
    "cuda": ("float32", "bfloat16", "float16"),
    "hip": ("float32", "bfloat16", "float16"),
    "cpu": ("float32",),
}
AT_ONCE = ("float32", "bfloat16")
"""The types of level `standard`: kernels in float16 are those in bfloat16 with another type put in."""
HALVES = ("bfloat16", "float16")
EXAMPLES = 3
SEED = 20261130
MOST_CHARACTERS = 300
UNAVAILABLE = (
    "No available kernel",
    "No viable backend",
    "not supported on this",
    "is not implemented for",
    "not implemented for '",
)
"""How torch says that there is no such kernel here, which is no wrong result."""


class Inputs:
    """Draws the inputs of one operator, the same ones in every type."""

    def __init__(self, torch: Any, dtype: Any) -> None:
        self.torch = torch
        self.dtype = dtype
        self._generator = torch.Generator().manual_seed(SEED)

    def normal(self, *shape: int) -> Any:
        """Normally distributed numbers that the type can hold; differentiable."""
        drawn = self.torch.randn(*shape, generator=self._generator, dtype=self.torch.float64)
        return drawn.to(self.dtype)

    def below(self, limit: int, *shape: int) -> Any:
        """Whole numbers in 0 … limit - 1."""
        return self.torch.randint(0, limit, shape, generator=self._generator)


class Operator(NamedTuple):
    name: str
    make: Callable[[Inputs], List[Any]]
    """The arguments of `call`; those in floating point are differentiated by."""
    call: Callable[..., Any]
    """`call(torch, *arguments)`."""
    dtypes: Tuple[str, ...] = ("float32", *HALVES)
    kernel: str = ""
    """Of scaled_dot_product_attention: the back end it has to take."""
    slow_on: Tuple[str, ...] = ()
    """Backends on which its first use takes a second or more: level `full` alone."""


def attention(kernel: str, dtypes: Tuple[str, ...], slow_on: Tuple[str, ...] = ()) -> Operator:
    return Operator(
        "attention_" + kernel.lower(),
        lambda draw: [draw.normal(2, 4, 64, 64) for _ in range(3)],
        lambda torch, q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True),
        dtypes,
        kernel,
        slow_on,
    )


OPERATORS = (
    Operator(
        "linear",
        lambda draw: [draw.normal(64, 256), draw.normal(128, 256), draw.normal(128)],
        lambda torch, x, weight, bias: torch.nn.functional.linear(x, weight, bias),
    ),
    Operator(
        "bmm",
        lambda draw: [draw.normal(4, 64, 96), draw.normal(4, 96, 48)],
        lambda torch, a, b: torch.bmm(a, b),
    ),
    attention("MATH", ("float32", *HALVES)),
    attention("EFFICIENT_ATTENTION", ("float32", *HALVES)),
    attention("FLASH_ATTENTION", HALVES),
    attention("CUDNN_ATTENTION", HALVES, slow_on=("cuda", "hip")),  # compiled at its first use
    Operator(
        "layer_norm",
        lambda draw: [draw.normal(32, 256), draw.normal(256), draw.normal(256)],
        lambda torch, x, weight, bias: torch.nn.functional.layer_norm(x, (256,), weight, bias),
    ),
    Operator(
        "softmax",
        lambda draw: [draw.normal(32, 512)],
        lambda torch, x: torch.softmax(x, -1),
    ),
    Operator(
        "gelu",
        lambda draw: [draw.normal(32, 512)],
        lambda torch, x: torch.nn.functional.gelu(x),
    ),
    Operator(
        "silu",
        lambda draw: [draw.normal(32, 512)],
        lambda torch, x: torch.nn.functional.silu(x),
    ),
    Operator(
        "cross_entropy",
        lambda draw: [draw.normal(64, 1000), draw.below(1000, 64)],
        lambda torch, x, target: torch.nn.functional.cross_entropy(x, target),
    ),
    Operator(
        "embedding",
        lambda draw: [draw.below(500, 8, 32), draw.normal(500, 64)],
        lambda torch, index, weight: torch.nn.functional.embedding(index, weight),
    ),
    Operator(
        "conv1d",
        lambda draw: [draw.normal(4, 16, 64), draw.normal(32, 16, 4)],
        lambda torch, x, weight: torch.nn.functional.conv1d(x, weight, padding=3),
        slow_on=("cuda", "hip"),  # cuDNN and MIOpen choose a way for each shape
    ),
    Operator(
        "conv2d",
        lambda draw: [draw.normal(2, 8, 24, 24), draw.normal(16, 8, 3, 3)],
        lambda torch, x, weight: torch.nn.functional.conv2d(x, weight, padding=1),
        slow_on=("hip",),  # MIOpen compiles it
    ),
    Operator(
        "gather",
        lambda draw: [draw.normal(32, 128), draw.below(128, 32, 64)],
        lambda torch, x, index: torch.gather(x, 1, index),
    ),
    Operator(
        "scatter_add",
        lambda draw: [draw.normal(32, 64), draw.below(64, 32, 128), draw.normal(32, 128)],
        lambda torch, x, index, source: torch.scatter_add(x, 1, index, source),
    ),
    Operator(
        "index_select",
        lambda draw: [draw.normal(128, 64), draw.below(128, 200)],
        lambda torch, x, index: torch.index_select(x, 0, index),
    ),
    Operator(
        "cumsum",
        lambda draw: [draw.normal(16, 64)],
        lambda torch, x: torch.cumsum(x, 1),
    ),
)

FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")


def run(worker: Any, arguments: Dict[str, Any]) -> Dict[str, Any]:
    """Arguments: `level`: at `full` slow operators, float16 and torch.compile of a small block are tried too.

    Answers a check `operators.<name>` for each operator and type, its outputs and gradients together; `absent` names
    what there is none of. `spent` says after which operator the card would take nothing more: the rest is not tried,
    and this process is of no more use.
    """
    torch = worker.torch
    full = arguments.get("level") == "full"
    checks: List[Dict[str, Any]] = []
    absent: List[Dict[str, Any]] = []
    answer: Dict[str, Any] = {"rows": [], "checks": checks, "absent": absent}
    wanted = [
        (operator, dtype)
        for operator in OPERATORS
        for dtype in DTYPES[worker.backend]
        if dtype in operator.dtypes
        and (full or (dtype in AT_ONCE and worker.backend not in operator.slow_on))
    ]
    with exact(torch), caches() if full else contextlib.nullcontext():
        for number, (operator, dtype) in enumerate(wanted):
            what = "%s in %s" % (operator.name, dtype)
            worker.step(what)
            if not one(worker, operator, dtype, checks, absent) and not alive(worker):
                answer["spent"] = "the card took nothing more after %s" % what
                return answer
            worker.progress((number + 1) / (len(wanted) + 2), operator.name)
        for name in FLOAT8:
            worker.step("cast to " + name)
            cast(worker, name, checks, absent)
        if full:
            worker.step("torch.compile")
            compiled(worker, checks, absent)
    return answer


def alive(worker: Any) -> bool:
    """Whether the card still computes: after some errors a context refuses all work."""
    try:
        return bool(worker.torch.ones(8, device=worker.device).sum().item() == 8)
    except Exception:
        return False


def one(
    worker: Any, operator: Operator, dtype: str, checks: List[Dict[str, Any]], absent: List[Dict[str, Any]]
) -> bool:
    """Take down the check of one operator in one type, or why there is none; False where it raised."""
    torch = worker.torch
    drawn = operator.make(Inputs(torch, getattr(torch, dtype)))
    reference = results(torch, operator.call, [wide(torch, x) for x in drawn])
    try:
        with kernel(torch, operator.kernel):
            made = results(torch, operator.call, [x.to(worker.device) for x in drawn])
        worker.synchronize()
    except Missing as error:
        absent.append({"measure": "operators." + operator.name, "dtype": dtype, "why": str(error)})
        return True
    except Exception as error:
        if any(words in str(error) for words in UNAVAILABLE):
            why = "there is no such kernel here"
            absent.append({"measure": "operators." + operator.name, "dtype": dtype, "why": why})
            return True
        told = "%s: %s" % (type(error).__name__, str(error).strip()[:MOST_CHARACTERS])
        checks.append(raised(operator.name, dtype, told))
        return False
    checks.append(compare(torch, operator.name, dtype, made, reference))
    return True


def results(torch: Any, call: Callable[..., Any], arguments: List[Any]) -> List[Tuple[str, Any]]:
    """The output, and the gradient of each argument in floating point."""
    arguments = [x.detach().requires_grad_(x.is_floating_point()) for x in arguments]
    output = call(torch, *arguments)
    generator = torch.Generator().manual_seed(SEED + 1)
    weight = (
        torch.randn(output.shape, generator=generator, dtype=torch.float64).to(output.dtype).to(output.device)
    )
    # As a sum, and not by backward(weight): for that torch imports a second's worth of symbolic mathematics.
    (output * weight).sum().backward()
    gradients = [("gradient %d" % i, x.grad) for i, x in enumerate(arguments) if x.is_floating_point()]
    return [("output", output.detach()), *gradients]


def wide(torch: Any, tensor: Any) -> Any:
    return tensor.to(torch.float64) if tensor.is_floating_point() else tensor


def compare(
    torch: Any, name: str, dtype: str, made: List[Tuple[str, Any]], reference: List[Tuple[str, Any]]
) -> Dict[str, Any]:
    compared = wrong = 0
    examples: List[str] = []
    for (part, here), (_, there) in zip(made, reference):
        here = here.to("cpu", torch.float64)
        limit = TOLERANCE[dtype] * max(float(there.abs().max()), 1e-30)
        off = ~((here - there).abs() <= limit)  # a NaN is wrong, too
        compared += here.numel()
        wrong += int(off.sum())
        for place in off.nonzero()[: EXAMPLES - len(examples)].tolist():
            index = tuple(place)
            examples.append(
                "%s %s: expected %.6g, got %.6g" % (part, place, float(there[index]), float(here[index]))
            )
    return {
        "check": "operators." + name,
        "dtype": dtype,
        "compared": compared,
        "wrong": wrong,
        "examples": examples,
    }


def raised(name: str, dtype: str, told: str) -> Dict[str, Any]:
    return {
        "check": "operators." + name,
        "dtype": dtype,
        "compared": 1,
        "wrong": 1,
        "examples": ["it raised " + told],
    }


def cast(worker: Any, name: str, checks: List[Dict[str, Any]], absent: List[Dict[str, Any]]) -> None:
    """Numbers to eight bits and back: the device has to round as the CPU does, bit by bit."""
    torch = worker.torch
    dtype = getattr(torch, name, None)
    if dtype is None:
        absent.append(
            {
                "measure": "operators.cast",
                "dtype": name,
                "why": "torch %s has no %s" % (torch.__version__, name),
            }
        )
        return
    numbers = Inputs(torch, torch.float32).normal(4096) * 4
    try:
        there = numbers.to(dtype).to(torch.float32)
        here = numbers.to(worker.device).to(dtype).to(torch.float32).cpu()
    except Exception as error:
        absent.append({"measure": "operators.cast", "dtype": name, "why": str(error)[:MOST_CHARACTERS]})
        return
    off = here != there
    examples = [
        "%.9g: expected %g, got %g" % (float(numbers[i]), float(there[i]), float(here[i]))
        for (i,) in off.nonzero()[:EXAMPLES].tolist()
    ]
    checks.append(
        {
            "check": "operators.cast",
            "dtype": name,
            "compared": here.numel(),
            "wrong": int(off.sum()),
            "examples": examples,
        }
    )


def block(torch: Any, x: Any, weight: Any, bias: Any) -> Any:
    """What a compiler fuses: a normalisation, a product, an activation and a residual."""
    functional = torch.nn.functional
    return x + functional.gelu(functional.linear(functional.layer_norm(x, (128,)), weight, bias))


def compiled(worker: Any, checks: List[Dict[str, Any]], absent: List[Dict[str, Any]]) -> None:
    torch = worker.torch
    if not hasattr(torch, "compile"):
        absent.append(
            {"measure": "operators.compile", "why": "torch %s has no torch.compile" % torch.__version__}
        )
        return
    operator = Operator(
        "compile",
        lambda draw: [draw.normal(32, 128), draw.normal(128, 128), draw.normal(128)],
        lambda _torch, *arguments: made(*arguments),
    )
    made = torch.compile(lambda x, weight, bias: block(torch, x, weight, bias), dynamic=False)
    drawn = operator.make(Inputs(torch, torch.float32))
    reference = results(torch, block, [wide(torch, x) for x in drawn])
    try:
        got = results(torch, operator.call, [x.to(worker.device) for x in drawn])
        worker.synchronize()
    except Exception as error:
        # An image without a compiler trains all the same.
        told = "%s: %s" % (type(error).__name__, str(error).strip()[:MOST_CHARACTERS])
        absent.append({"measure": "operators.compile", "dtype": "float32", "why": told})
        return
    checks.append(compare(torch, "compile", "float32", got, reference))


class Missing(Exception):
    """This torch has no such kernel to choose; the message says which."""


@contextlib.contextmanager
def kernel(torch: Any, name: str) -> Iterator[None]:
    """Let attention take this back end alone. Raises Missing where torch does not know it."""
    if not name:
        yield
        return
    attention_module = getattr(torch.nn, "attention", None)  # from torch 2.3 on
    if attention_module is not None and hasattr(attention_module, "sdpa_kernel"):
        if not hasattr(attention_module.SDPBackend, name):
            raise Missing("torch %s has no %s" % (torch.__version__, name))
        with attention_module.sdpa_kernel(getattr(attention_module.SDPBackend, name)):
            yield
        return
    flags = {
        "FLASH_ATTENTION": "enable_flash",
        "MATH": "enable_math",
        "EFFICIENT_ATTENTION": "enable_mem_efficient",
    }
    if name not in flags:
        raise Missing("torch %s has no %s" % (torch.__version__, name))
    with torch.backends.cuda.sdp_kernel(**{flag: flag == flags[name] for flag in flags.values()}):
        yield


@contextlib.contextmanager
def exact(torch: Any) -> Iterator[None]:
    """Convolutions and products in float32 as such, and not in TF32, which torch takes for convolutions."""
    cudnn, before = torch.backends.cudnn, torch.backends.cudnn.allow_tf32
    precision = torch.get_float32_matmul_precision()
    cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        cudnn.allow_tf32 = before
        torch.set_float32_matmul_precision(precision)


@contextlib.contextmanager
def caches() -> Iterator[None]:
    """What compiling leaves behind goes to a folder of its own, which does not outlive the stage."""
    names = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "MIOPEN_USER_DB_PATH", "MIOPEN_CUSTOM_CACHE_DIR")
    folder = tempfile.mkdtemp(prefix="nodecheck-compile-")
    variables = {name: os.path.join(folder, name) for name in names}
    variables["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # and no processes of its own
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        shutil.rmtree(folder, ignore_errors=True)

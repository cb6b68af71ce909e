"""Does anything in the environment hold NCCL, CUDA or PyTorch back?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from nodecheck.facts import Absent, known
from nodecheck.facts.stack import Library
from nodecheck.judge import software
from nodecheck.judge.finding import NODE, Cause, Owner
from nodecheck.judge.rule import OnAmd, Outcome, fail, passed, skipped, unknown, warn
from nodecheck.judge.rules.stack import Look, listed, none, stack_rule, torch_of, word

MIB = 1024**2


@stack_rule(
    "stack.nccl.version",
    "PyTorch has NCCL",
    reads="torch.cuda.nccl.version()",
    door="torch",
    passes="it is stated, or there is one card only",
    warns="torch is built without it, on a node of several cards",
    cause=Cause.misconfigured,
    owner=Owner.renter,
    meaning="Without NCCL (RCCL on AMD) cards can only work together through slower means.",
    next_step="Install a PyTorch built with NCCL.",
    repeat="python3 -c 'import torch; print(torch.cuda.nccl.version())'",
    on_amd=OnAmd(title="PyTorch has RCCL", next_step="Install a PyTorch built for ROCm, which brings RCCL."),
)
def nccl_version(look: Look) -> Iterator[Outcome]:
    torch = torch_of(look)
    if isinstance(torch, Outcome):
        yield torch
        return
    if none(torch.cuda) and none(torch.hip):
        yield skipped("This torch is built for the CPU alone; see stack.torch.gpu_build.")
        return
    seen = look.see("torch.nccl", "torch")
    if known(seen.value):
        yield passed(f"{_library(look)} {seen.value}.", observed=seen.value, observed_from=seen.source)
    elif not none(seen.value):
        yield unknown(NODE, seen.value, observed_from=seen.source)
    elif look.several_cards:
        yield warn(f"torch is built without {_library(look)}.", observed="none", observed_from=seen.source)
    else:
        yield passed(
            f"torch is built without {_library(look)}, which one card does not need.",
            observed="none",
            observed_from=seen.source,
        )


def _library(look: Look) -> str:
    return "RCCL" if look.profile.vendor == "amd" else "NCCL"


@stack_rule(
    "stack.nccl.shadowed",
    "PyTorch uses the NCCL it was built with",
    reads="the version of the NCCL library in torch's process beside the one torch was built with",
    door="torch",
    passes="they agree, or the wheel's own NCCL was upgraded; others within reach are stated",
    warns="another one is loaded by way of LD_LIBRARY_PATH, LD_PRELOAD or the linker's cache",
    cause=Cause.misconfigured,
    owner=Owner.renter,
    meaning="An older NCCL lacks what torch expects of it (NVLS, fixes for the card), and its figures are not "
    "those of the wheel you installed.",
    next_step="Take the other libnccl's folder out of LD_LIBRARY_PATH or LD_PRELOAD.",
    repeat="NCCL_DEBUG=VERSION torchrun --nproc-per-node=1 …; echo $LD_LIBRARY_PATH $LD_PRELOAD",
    on_amd=OnAmd(
        title="PyTorch uses the RCCL it was built with",
        next_step="Take the other librccl's folder out of LD_LIBRARY_PATH or LD_PRELOAD.",
    ),
)
def nccl_shadowed(look: Look) -> Iterator[Outcome]:
    torch = torch_of(look)
    if isinstance(torch, Outcome):
        yield torch
        return
    if none(torch.nccl):
        yield skipped(f"This torch is built without {_library(look)}.")
        return
    loaded, built = look.see("torch.nccl_loaded", "torch"), look.see("torch.nccl", "torch")
    others = _others(look, loaded.value)
    beside = f" Also within reach: {listed(others)}." if others else ""
    if none(loaded.value):
        yield passed(f"{_library(look)} is linked into torch.{beside}", observed_from=loaded.source)
        return
    version = loaded.value if isinstance(loaded.value, Absent) else loaded.value.version
    for value in (version, built.value):
        if isinstance(value, Absent):
            yield unknown(NODE, value, observed_from=loaded.source)
            return
    words: dict[str, Any] = {
        "observed": version,
        "expected": built.value,
        "observed_from": loaded.source,
        "expected_from": built.source,
    }
    path = loaded.value.path
    if version == built.value:
        yield passed(f"{_library(look)} {version} from {path}.{beside}", **words)
    elif "/nvidia/nccl/lib/" in path:
        yield passed(f"The wheel's NCCL is {version}, torch was built with {built.value}.{beside}", **words)
    else:
        said = f"torch was built with {_library(look)} {built.value} and runs with {version} from {path}."
        yield warn(said, **words)


def _others(look: Look, loaded: Any) -> list[Library]:
    libraries = look.stack.nccl_libraries
    path = loaded.path if isinstance(loaded, Library) else None
    return [lib for lib in (() if isinstance(libraries, Absent) else libraries) if lib.path != path]


@stack_rule(
    "stack.environment.nccl",
    "No variable holds NCCL back",
    reads="the environment, /etc/nccl.conf and ~/.nccl.conf",
    door="torch",
    passes="none of the variables that cost bandwidth on so many cards is set; the others are stated",
    warns="one is set that costs bandwidth on so many cards",
    cause=Cause.misconfigured,
    owner=Owner.renter,
    meaning="Left over from another machine or a recipe, these variables make healthy cards exchange data "
    "slowly; every measurement here carries their effect.",
    next_step="Unset what you did not mean to set, in the environment or in NCCL's files, and measure again.",
    repeat="env | grep NCCL_; cat /etc/nccl.conf ~/.nccl.conf",
    on_amd=OnAmd(title="No variable holds RCCL back", repeat="env | grep -E 'NCCL_|RCCL_'"),
)
def environment_nccl(look: Look) -> Iterator[Outcome]:
    seen, files = look.see("environment", "linux"), look.see("nccl_settings", "linux")
    for part in (seen, files):
        if isinstance(part.value, Absent):
            yield unknown(NODE, part.value, observed_from=part.source)
            return
    # The environment goes before the files.
    yield _variables(look, {**dict(files.value), **dict(seen.value)}, of_nccl=True, source=seen.source)


@stack_rule(
    "stack.environment.cuda",
    "No variable holds CUDA or PyTorch back",
    reads="the environment",
    door="torch",
    passes="none of the variables that cost speed is set",
    warns="one is set",
    cause=Cause.misconfigured,
    owner=Owner.renter,
    meaning="Made for debugging or for sharing a card, these variables slow programs down or keep a part of "
    "the card from them.",
    next_step="Unset what you did not mean to set.",
    repeat="env | grep -E 'CUDA|TORCH|TF32'",
    on_amd=OnAmd(
        title="No variable holds HIP or PyTorch back", repeat="env | grep -E 'HIP|HSA|ROC|AMD|GPU_|TORCH'"
    ),
)
def environment_cuda(look: Look) -> Iterator[Outcome]:
    seen = look.see("environment", "linux")
    if isinstance(seen.value, Absent):
        yield unknown(NODE, seen.value, observed_from=seen.source)
        return
    yield _variables(look, dict(seen.value), of_nccl=False, source=seen.source)


def _variables(look: Look, settings: dict[str, str], of_nccl: bool, source: str) -> Outcome:
    table = {
        name: variable
        for name, variable in software.variables().items()
        if (variable.from_cards > 1) is of_nccl and variable.of in (None, look.profile.vendor)
    }
    found = {
        name: value
        for name, value in sorted(settings.items())
        if name in table and value.strip() not in table[name].harmless
    }
    words: dict[str, Any] = {
        "observed": ", ".join(f"{name}={value}" for name, value in found.items()) or "none",
        "expected": "none",
        "observed_from": source,
        "expected_from": software.VARIABLES_SOURCE if of_nccl else "",
    }
    if not found:
        return passed("None is set.", **words)
    telling = {name: value for name, value in found.items() if table[name].from_cards <= look.card_count}
    if not telling:
        return passed(f"{words['observed']}: of no account on so few cards.", **words)
    return warn(
        " ".join(f"{name}={value}: {table[name].effect}." for name, value in telling.items()), **words
    )


@stack_rule(
    "stack.environment.preload",
    "Nothing stands between programs and the cards",
    for_cards=False,
    reads="LD_PRELOAD, /etc/ld.so.preload and known interceptors of CUDA in torch's process",
    door="torch",
    passes="nothing is preloaded, or only what does no harm to the cards",
    warns="a library of unknown purpose is preloaded, or one that can share a card out",
    fails="such a library is there, and its limits are below the whole card",
    cause=Cause.misconfigured,
    owner=Owner.renter,
    meaning="A preloaded library runs in every program before its own code, and may change what CUDA does.",
    next_step="Find out who preloads it; unset LD_PRELOAD if it is yours.",
    repeat="echo $LD_PRELOAD; cat /etc/ld.so.preload; env | grep CUDA_DEVICE_",
)
def environment_preload(look: Look) -> Iterator[Outcome]:
    seen = look.see("preloads", "linux")
    if isinstance(seen.value, Absent):
        yield unknown(NODE, seen.value, observed_from=seen.source)
        return
    words: dict[str, Any] = {
        "observed": ", ".join(library.path for library in seen.value) or "none",
        "expected": "none",
        "observed_from": seen.source,
    }
    sharing = [library for library in seen.value if _INTERCEPTOR.search(library.path)]
    strange = [
        library
        for library in seen.value
        if library not in sharing
        and not library.path.rpartition("/")[2].startswith(software.benign_preloads())
    ]
    limits = _share(look)
    if sharing:
        words |= {
            "cause": Cause.not_as_rented,
            "owner": Owner.provider,
            "next_step": "Ask the provider for the whole card, without a layer that shares it out.",
        }
    if sharing and limits:
        yield fail(f"{listed(sharing)} shares the card out: {limits}.", **words)
    elif sharing:
        yield warn(
            f"{listed(sharing)} can share the card out; no limit below the whole card is seen.", **words
        )
    elif strange:
        yield warn(f"Preloaded: {listed(strange)}.", **words)
    else:
        yield passed(f"{listed(seen.value) or 'Nothing'} is preloaded.", **words)


_INTERCEPTOR = re.compile(r"/?lib(vgpu|cuda-control|vcuda|nvshare|gemhook)\b")
_SHARE_OF_CARD = 0.95
"""A limit on memory from this share of the card on counts as the whole card."""


def _share(look: Look) -> str:
    """Limits below the whole card in HAMi's variables: memory in bytes (or k, m, g), multiprocessors in percent."""
    whole = look.profile.card.memory_mib * MIB if look.profile.card else None
    found = []
    for name, value in sorted(look.variables.items()):
        match = re.fullmatch(r"(\d+)([kmgKMG]?)", value.strip())
        if match is None:
            continue
        amount = int(match[1]) * 1024 ** " kmg".index(match[2].lower() or " ")
        if name.startswith("CUDA_DEVICE_MEMORY_LIMIT"):
            below = whole is not None and 0 < amount < _SHARE_OF_CARD * whole
        elif name.startswith(("CUDA_DEVICE_SM_LIMIT", "CUDA_DEVICE_CORE_LIMIT")):
            below = 0 < amount < 100
        else:
            continue
        if below:
            found.append(f"{name}={value}")
    return ", ".join(found)


@stack_rule(
    "stack.toolkit",
    "CUDA toolkits",
    of="nvidia",
    reads="/usr/local/cuda*, CUDA_HOME and nvcc",
    door="host",
    passes="always; what is installed is stated",
    cause=Cause.misconfigured,
    owner=Owner.renter,
    meaning="Only needed to compile: torch brings its own CUDA libraries.",
    next_step="Install the toolkit of torch's CUDA version if you compile extensions.",
    repeat="nvcc --version; ls -d /usr/local/cuda*",
)
def toolkit(look: Look) -> Iterator[Outcome]:
    seen = look.see("toolkits", "linux")
    if isinstance(seen.value, Absent):
        yield unknown(NODE, seen.value, observed_from=seen.source)
        return
    said = ", ".join(f"{word(toolkit.version)} in {toolkit.path}" for toolkit in seen.value)
    yield passed(f"{said or 'None is installed'}.", observed=said or "none", observed_from=seen.source)

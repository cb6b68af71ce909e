"""Are the packages beside torch built for these cards?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nodecheck.facts import Absent, Why, known
from nodecheck.facts.stack import Extension
from nodecheck.judge.finding import NODE, Cause, Owner
from nodecheck.judge.rule import Outcome, passed, skipped, unknown, warn
from nodecheck.judge.rules.stack import Look, stack_rule

_PLATFORMS = {"nvidia": "cuda", "amd": "hip"}
_WORDS = {"cuda": "CUDA", "hip": "ROCm"}


@stack_rule(
    "stack.extensions",
    "Packages with GPU code are built for these cards",
    reads="version and shared objects of flash-attn, apex, bitsandbytes, vllm, xformers, triton and their like in the "
    "renter's interpreter: the section in which a compiler puts kernels, and the vendor's runtime they are linked to; "
    "nothing is imported",
    door="torch",
    passes="each carries code for these cards, or none for any; versions are stated: they are one set with torch. "
    "Skipped where nobody looked",
    warns="one carries code for another vendor's cards alone",
    cause=Cause.misconfigured,
    owner=Owner.renter,
    meaning="The package cannot be imported here, or runs on the CPU: what uses it fails or falls back to something "
    "slower.",
    next_step="Install the package's build for these cards, or use an image in which torch and its extensions are "
    "tested together.",
    repeat="pip list | grep -iE 'torch|triton|flash|apex|bitsandbytes|vllm|xformers|deepspeed|transformer'",
)
def extensions(look: Look) -> Iterator[Outcome]:
    seen = look.see("extensions", "linux")
    if isinstance(seen.value, Absent) and seen.value.why is Why.not_asked:
        yield skipped("This run did not look for them.")
        return
    if isinstance(seen.value, Absent):
        yield unknown(NODE, seen.value, observed_from=seen.source)
        return
    own = _PLATFORMS[look.profile.vendor or "nvidia"]
    # torch itself is judged by stack.torch.gpu_build.
    foreign = [one for one in seen.value if one.name != "torch" and _is_foreign(one, own)]
    told = ", ".join(f"{one.name} {one.version}" for one in seen.value)
    words: dict[str, Any] = {"observed": told or "none", "observed_from": seen.source}
    if foreign:
        names = "; ".join(f"{one.name} {one.version} is built for {_platforms(one)}" for one in foreign)
        yield warn(f"{names}, and not for {_WORDS[own]}.", **words)
    else:
        yield passed(f"{told or 'There are none'}.", **words)


def _is_foreign(one: Extension, own: str) -> bool:
    return known(one.built_for) and bool(one.built_for) and own not in one.built_for


def _platforms(one: Extension) -> str:
    return " and ".join(_WORDS[platform] for platform in one.built_for) if known(one.built_for) else ""

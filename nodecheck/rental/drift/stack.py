"""Is the software the same? Read from files; no interpreter is started and no torch imported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nodecheck.facts import Absent, Maybe, Stack, known
from nodecheck.facts.stack import Library
from nodecheck.judge import Cause, Owner
from nodecheck.judge.finding import NODE
from nodecheck.judge.rule import Outcome, passed, skipped, unknown, warn
from nodecheck.rental.drift.cards import ANEW
from nodecheck.rental.drift.rule import NOTHING_BEFORE, Changed, Drift, drift_rule, node_drift


def _another(changed: Changed) -> Outcome:
    return warn(f"It was {changed.was} and is {changed.now}.")


node_drift(
    "drift.stack.driver",
    "The driver is the same",
    path="stack.driver.version",
    door="driver_proc",
    reads="version of the kernel driver (/proc/driver/nvidia/version, nvmlSystemGetDriverVersion)",
    passes="it is",
    warns="it is another version",
    cause=Cause.misconfigured,
    owner=Owner.provider,
    meaning="The node runs with a driver that it was not accepted with; figures and what torch can do may be others.",
    next_step=f"Ask the provider, or look for an unattended upgrade of yours. {ANEW}",
    repeat="cat /proc/driver/nvidia/version",
)(_another)

node_drift(
    "drift.stack.driver_library",
    "The driver's library is the same",
    path="stack.driver.library_version",
    door="nvml",
    source="nvml",
    reads="version of the driver's user-space library (nvmlSystemGetNVMLVersion)",
    passes="it is",
    warns="it is another version",
    cause=Cause.misconfigured,
    owner=Owner.provider,
    meaning="The library was exchanged under running programs; it has to fit the kernel's driver.",
    next_step="In a container, start it anew, so that it gets the libraries of the driver that is loaded.",
    repeat="nvidia-smi --version",
)(_another)

node_drift(
    "drift.stack.torch",
    "PyTorch is the same",
    path="stack.torch.version",
    door="host",
    source="torch",
    reads="`torch/version.py` in the folder that torch was imported from when the node was accepted",
    passes="it is",
    warns="it is another version",
    cause=Cause.misconfigured,
    owner=Owner.renter,
    meaning="The node was accepted with another PyTorch: what it can do on these cards was not seen.",
    next_step=f"If you updated it yourself, all is well. {ANEW}",
    repeat="python -c 'import torch; print(torch.__version__)'",
)(_another)


def _stacks(drift: Drift) -> tuple[Stack, Stack, dict[str, Any]] | Outcome:
    then = drift.reference
    if then is None:
        return skipped(NOTHING_BEFORE)
    if isinstance(then.stack, Absent):
        return skipped(f"It was not seen in {drift.witness(then)}.")
    if isinstance(drift.now.stack, Absent):
        return unknown(NODE, drift.now.stack)
    return then.stack, drift.now.stack, {"expected_from": drift.witness(then)}


@drift_rule(
    "drift.stack.libraries",
    "The driver's and NCCL's libraries are the same",
    reads="path and version of each library that programs could pick up when the node was accepted",
    door="host",
    passes="each is still there in its version",
    warns="one is gone, or another version lies in its place",
    cause=Cause.misconfigured,
    owner=Owner.renter,
    meaning="Programs pick up another library than the one that the node was accepted with.",
    next_step=f"If you updated it yourself, all is well. {ANEW}",
    repeat="ldconfig -p | grep -E 'nccl|rccl|libcuda|libnvidia-ml'; pip list | grep -i nccl",
)
def libraries(drift: Drift) -> Iterator[Outcome]:
    stacks = _stacks(drift)
    if isinstance(stacks, Outcome):
        yield stacks
        return
    was, now, words = stacks
    changed: list[str] = []
    looked = 0
    for before, after in (
        (was.nccl_libraries, now.nccl_libraries),
        (was.driver_libraries, now.driver_libraries),
    ):
        if isinstance(before, Absent):
            continue
        if isinstance(after, Absent):
            yield unknown(NODE, after, **words)
            return
        looked += len(before)
        changed += _changes(before, after)
    if changed:
        yield warn(f"{'; '.join(changed)}.", observed="; ".join(changed), expected="as they were", **words)
    elif looked:
        yield passed(f"{looked} libraries: as they were.", observed=looked, **words)
    else:
        yield skipped(f"None was seen in {words['expected_from']}.")


def _changes(before: tuple[Library, ...], after: tuple[Library, ...]) -> Iterator[str]:
    here = {library.path: library.version for library in after}
    for library in before:
        if library.path not in here:
            yield f"{library.path} is gone"
        elif _differ(library.version, here[library.path]):
            yield f"{library.path} was {library.version} and is {here[library.path]}"


def _differ(was: Maybe[str], now: Maybe[str]) -> bool:
    return known(was) and known(now) and was != now


@drift_rule(
    "drift.stack.toolkit",
    "The CUDA toolkits are the same",
    reads="path and version of each toolkit (/usr/local/cuda*, CUDA_HOME)",
    door="host",
    passes="each is still there in its version",
    warns="one is gone, or of another version",
    cause=Cause.misconfigured,
    owner=Owner.renter,
    meaning="Extensions that are built on this node are built with another compiler than before.",
    next_step=f"If you updated it yourself, all is well. {ANEW}",
    repeat="ls -d /usr/local/cuda*; nvcc --version",
)
def toolkit(drift: Drift) -> Iterator[Outcome]:
    stacks = _stacks(drift)
    if isinstance(stacks, Outcome):
        yield stacks
        return
    was, now, words = stacks
    if isinstance(was.toolkits, Absent) or not was.toolkits:
        yield skipped(f"None was seen in {words['expected_from']}.")
    elif isinstance(now.toolkits, Absent):
        yield unknown(NODE, now.toolkits, **words)
    else:
        # nvcc is not asked in passing: only what files tell both times can be compared.
        here = {kit.path: kit.version for kit in now.toolkits}
        gone = [
            kit.path for kit in was.toolkits if kit.path.startswith("/usr/local/") and kit.path not in here
        ]
        other = [
            f"{kit.path} was {kit.version} and is {here[kit.path]}"
            for kit in was.toolkits
            if kit.path in here and _differ(kit.version, here[kit.path])
        ]
        changed = [*(f"{path} is gone" for path in gone), *other]
        if changed:
            yield warn(
                f"{'; '.join(changed)}.", observed="; ".join(changed), expected="as they were", **words
            )
        else:
            yield passed("As they were.", observed=len(here), **words)

"""Can the renter's own PyTorch use every card, and does anything stand in its way?"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from nodecheck.facts import Absent, Card, Maybe, Node, Stack, Why, known
from nodecheck.facts.card import Vendor
from nodecheck.facts.stack import Library, Torch, TorchDevice
from nodecheck.judge.finding import NODE, Cause, Owner, Status
from nodecheck.judge.rule import (
    Observation,
    OnAmd,
    Outcome,
    fail,
    observe,
    of_card,
    passed,
    rule,
    skipped,
    unknown,
    warn,
)
from nodecheck.profile import Profile, StackSpec


@dataclass(frozen=True)
class Look:
    """What a rule on the stack is shown."""

    stack: Stack
    node: Node
    profile: Profile

    @property
    def spec(self) -> StackSpec | None:
        return self.profile.stack

    @property
    def torch_required(self) -> bool:
        return self.spec.torch_required if self.spec else self.profile.count > 0

    @property
    def card_count(self) -> int:
        return max(self.profile.count, len(self.node.known_cards))

    @property
    def several_cards(self) -> bool:
        return self.card_count > 1

    @property
    def variables(self) -> dict[str, str]:
        return {} if isinstance(self.stack.environment, Absent) else dict(self.stack.environment)

    @property
    def every_card_works(self) -> bool:
        """Whether a context and a kernel succeeded on every card: the best answer to what should not work."""
        tests = self.stack.contexts
        if isinstance(tests, Absent):
            return False
        working = {test.card for test in tests if test.ok is True}
        return bool(self.node.known_cards) and all(card.key in working for card in self.node.known_cards)

    def see(self, path: str, source: str) -> Observation:
        return observe(self.stack, path, source)


def stack_rule(
    id: str, title: str, *, for_cards: bool = True, of: Vendor | None = None, **words: Any
) -> Callable[[Callable[[Look], Iterable[Outcome]]], Callable[[Look], Iterable[Outcome]]]:
    """Register the decorated function as a rule on the stack.

    It is skipped where it is about cards (`for_cards`), or those of one vendor (`of`), and the profile has none.
    """

    def register(look: Callable[[Look], Iterable[Outcome]]) -> Callable[[Look], Iterable[Outcome]]:
        def judge(node: Node, profile: Profile) -> Iterator[Outcome]:
            if (for_cards or of) and profile.card is None:
                yield skipped(f"The profile {profile.name} has no cards.")
            elif of not in (None, profile.vendor):
                yield skipped("Not asked of another vendor's cards.")
            elif of and node.known_cards and all(card.vendor != of for card in node.known_cards):
                yield skipped("The node's cards are of another vendor; see cards.vendor.")
            elif isinstance(node.stack, Absent):
                yield unknown(NODE, node.stack)
            else:
                yield from look(Look(node.stack, node, profile))

        rule(id, title, **words)(judge)
        return look

    return register


def torch_of(look: Look) -> Torch | Outcome:
    """torch, or the outcome where there is none: what it leaves open is found by stack.torch.present."""
    torch = look.stack.torch
    if not isinstance(torch, Absent):
        return torch
    if torch.why is Why.not_present and not look.torch_required:
        return skipped(f"No torch is asked for by {look.profile.name}, and there is none.")
    return unknown(NODE, torch)


def numbers(version: str) -> tuple[int, ...]:
    """`580.159.04` → (580, 159, 4); what follows the numbers is left out."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def none(value: Any) -> bool:
    return isinstance(value, Absent) and value.why in (Why.not_present, Why.not_supported)


def listed(libraries: Iterable[Library]) -> str:
    return ", ".join(
        library.path if isinstance(library.version, Absent) else f"{library.path} ({library.version})"
        for library in libraries
    )


def word(value: str | Absent) -> str:
    return f"({value})" if isinstance(value, Absent) else value


@stack_rule(
    "stack.interpreter",
    "The renter's Python",
    for_cards=False,
    reads="--python, the active environment, the python3 and python on PATH that have torch, nodecheck's own",
    door="torch",
    passes="an interpreter was found; which one and why is stated",
    cause=Cause.misconfigured,
    owner=Owner.renter,
    meaning="What is said of torch holds for this interpreter.",
    next_step="Name the interpreter of your programs with --python.",
    repeat="which -a python3 python",
)
def interpreter(look: Look) -> Iterator[Outcome]:
    seen = look.see("interpreter", "linux")
    if isinstance(seen.value, Absent):
        yield unknown(NODE, seen.value, observed_from=seen.source)
        return
    others = look.stack.other_torches
    more = f" torch is also in {', '.join(others)}." if known(others) and others else ""
    yield passed(
        f"{seen.value.path}, Python {seen.value.version}: {seen.value.chosen}.{more}",
        observed=seen.value.path,
        observed_from=seen.source,
    )


@stack_rule(
    "stack.torch.present",
    "PyTorch can be imported",
    for_cards=False,
    reads="`import torch` in the renter's interpreter",
    door="torch",
    passes="it is imported; version and time are stated",
    warns="there is none although the profile asks for one; then no card could be put to work, and the verdict is "
    "INCOMPLETE: the node itself may be sound",
    fails="its import breaks",
    cause=Cause.misconfigured,
    owner=Owner.renter,
    required=True,
    meaning="Without PyTorch nothing can be said of whether your programs can use the cards.",
    next_step="Install PyTorch into this interpreter, or name the one that has it with --python.",
    repeat="python3 -c 'import torch; print(torch.__version__, torch.__file__)'",
)
def torch_present(look: Look) -> Iterator[Outcome]:
    torch = look.stack.torch
    source = look.see("torch", "torch").source
    where = look.stack.interpreter
    place = where.path if known(where) else "the interpreter"
    if not isinstance(torch, Absent):
        took = (
            "" if isinstance(torch.import_seconds, Absent) else f", imported in {torch.import_seconds:.1f} s"
        )
        yield passed(
            f"torch {word(torch.version)} in {word(torch.path)}{took}.",
            observed=word(torch.version),
            observed_from=source,
        )
        return
    if torch.why is Why.not_present and known(where):
        if look.torch_required:
            yield warn(f"There is no torch in {place}.", observed="none", observed_from=source)
        else:
            yield skipped(f"There is no torch in {place}, and {look.profile.name} asks for none.")
    elif torch.why is Why.failed and known(where):
        yield fail(
            f"Importing torch breaks in {place}: {torch.detail}.",
            observed="import fails",
            observed_from=source,
            next_step="Reinstall PyTorch, or install what the message says is missing.",
        )
    else:
        yield unknown(NODE, torch, observed_from=source)


@stack_rule(
    "stack.torch.gpu_build",
    "PyTorch is built for these cards",
    reads="torch.version.cuda and torch.version.hip",
    door="torch",
    passes="torch is built for the vendor's platform",
    fails="torch is built for the CPU alone, or for another vendor's cards",
    cause=Cause.misconfigured,
    owner=Owner.renter,
    meaning="This torch cannot use the cards, whatever state they are in.",
    next_step="Install the PyTorch build for the driver's CUDA version (pytorch.org, Get Started).",
    repeat="python3 -c 'import torch; print(torch.__version__, torch.version.cuda, torch.version.hip)'",
    on_amd=OnAmd(
        next_step="Install the PyTorch build for ROCm (pytorch.org, Get Started), or use an image made for ROCm."
    ),
)
def gpu_build(look: Look) -> Iterator[Outcome]:
    torch = torch_of(look)
    if isinstance(torch, Outcome):
        yield torch
        return
    wanted, other = ("cuda", "hip") if look.profile.vendor == "nvidia" else ("hip", "cuda")
    built, foreign = look.see(f"torch.{wanted}", "torch"), look.see(f"torch.{other}", "torch")
    words: dict[str, Any] = {"expected": f"built for {wanted.upper()}", "observed_from": built.source}
    if known(built.value):
        yield passed(
            f"Built with {wanted.upper()} {built.value}.", observed=f"{wanted.upper()} {built.value}", **words
        )
    elif not none(built.value):
        yield unknown(NODE, built.value, **words)
    elif known(foreign.value):
        yield fail(
            f"torch {word(torch.version)} is built with {other.upper()} {foreign.value}.",
            observed=f"{other.upper()} {foreign.value}",
            next_step="Run `pip uninstall -y torch`, then the pip command that pytorch.org (Get Started) gives for "
            f"{_platform(look)}.",
            **words,
        )
    else:
        yield fail(f"torch {word(torch.version)} is built for the CPU alone.", observed="CPU only", **words)


def _platform(look: Look) -> str:
    """What this node's torch is to be built for, as pytorch.org lets one choose it."""
    driver = look.stack.driver
    if look.profile.vendor == "amd":
        rocm = driver.rocm_version
        return f"ROCm {'.'.join(rocm.split('.')[:2])}" if known(rocm) else "ROCm"
    return f"CUDA {driver.cuda_version} or older" if known(driver.cuda_version) else "CUDA"


@stack_rule(
    "stack.torch.arch",
    "PyTorch holds code for the cards",
    of="nvidia",
    reads="torch's list of architectures and each card's compute capability",
    door="torch",
    passes="it holds machine code that the card runs: of the same major version, not newer in the minor one",
    warns="it holds only PTX, which the driver compiles at the first start; or none, and yet the kernel ran",
    fails="it holds neither machine code nor PTX for the card",
    cause=Cause.misconfigured,
    owner=Owner.renter,
    meaning="Without code for the card every kernel fails with CUDA error 209; with PTX alone the first start "
    "takes minutes and kernels are not tuned for the card.",
    next_step="Install a PyTorch whose torch.cuda.get_arch_list() names the card's architecture.",
    repeat="python3 -c 'import torch; print(torch.cuda.get_arch_list(), torch.cuda.get_device_capability())'",
)
def torch_arch(look: Look) -> Iterator[Outcome]:
    torch = torch_of(look)
    if isinstance(torch, Outcome):
        yield torch
        return
    if none(torch.cuda):
        yield skipped("This torch is not built for CUDA; see stack.torch.gpu_build.")
        return
    arches = look.see("torch.arch_list", "torch")
    if isinstance(arches.value, Absent):
        yield unknown(NODE, arches.value, observed_from=arches.source)
        return
    if isinstance(look.node.cards, Absent):
        yield unknown(NODE, look.node.cards)
        return
    if not look.node.cards:
        yield skipped("There is no card to look at; see cards.listed.")
    working = _working(look)
    for card in look.node.known_cards:
        yield _arch_of(card, torch, arches, card.key in working)


def _working(look: Look) -> frozenset[str]:
    tests = look.stack.contexts
    return (
        frozenset()
        if isinstance(tests, Absent)
        else frozenset(test.card for test in tests if test.ok is True)
    )


def _arch_of(card: Card, torch: Torch, arches: Observation, works: bool) -> Outcome:
    subject = of_card(card)
    capability = card.identity.compute_capability
    if isinstance(capability, Absent):
        devices = () if isinstance(torch.devices, Absent) else torch.devices
        capability = next((d.capability for d in devices if d.uuid == card.uuid), capability)
    words: dict[str, Any] = {
        "subject": subject,
        "observed": ", ".join(arches.value) or "none",
        "observed_from": arches.source,
        "expected_from": "CUDA binary and PTX compatibility, CUDA C++ Programming Guide (published, 12.9)",
    }
    if isinstance(capability, Absent):
        return unknown(subject, capability)
    if len(numbers(capability)) < 2:
        return unknown(subject, Absent(why=Why.failed, detail=f"a compute capability {capability[:20]!r}"))
    words["expected"] = f"code for {capability}"
    code, ptx = runs_on(capability, arches.value)
    if code:
        return passed(f"{', '.join(code)} runs on compute capability {capability}.", **words)
    if ptx:
        return warn(
            f"Only PTX ({', '.join(ptx)}) for compute capability {capability}: compiled at the first start.",
            **words,
        )
    if works:
        return warn(f"No code for compute capability {capability} is named, and yet a kernel ran.", **words)
    return fail(f"No code for compute capability {capability}.", **words)


def runs_on(capability: str, arches: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The entries of torch's list that run on a card as they are, and those that the driver can compile for it.

    Machine code (`sm_80`) runs on the same major version with an equal or higher minor one, PTX (`compute_80`) on
    every newer card. With the suffix `a` both are for exactly that card, with `f` for its family, the same major
    version (CUDA C++ Programming Guide, 12.9, sections on binary and PTX compatibility and family features).
    """
    card = numbers(capability)[:2]
    if len(card) < 2:
        return (), ()
    code: list[str] = []
    ptx: list[str] = []
    for arch in arches:
        match = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", arch)
        if match is None:
            continue
        made_for = (int(match[2]), int(match[3]))
        kind, suffix = match[1], match[4]
        same_major = made_for[0] == card[0] and made_for <= card
        if suffix == "a":
            fits = made_for == card
        elif kind == "sm" or suffix == "f":
            fits = same_major
        else:
            fits = made_for <= card
        if fits:
            (code if kind == "sm" else ptx).append(arch)
    return tuple(code), tuple(ptx)


@stack_rule(
    "stack.torch.cuda_minimum",
    "PyTorch's CUDA is new enough for the cards",
    of="nvidia",
    reads="torch.version.cuda",
    door="torch",
    passes="it is at least the profile's oldest CUDA",
    warns="it is older, and the profile's bound is derived or every card works all the same",
    fails="it is older",
    cause=Cause.misconfigured,
    owner=Owner.renter,
    meaning="Libraries built with an older CUDA have no code for the card, or none that uses it well.",
    next_step="Install a PyTorch built with a newer CUDA.",
    repeat="python3 -c 'import torch; print(torch.version.cuda)'",
)
def cuda_minimum(look: Look) -> Iterator[Outcome]:
    torch, spec = torch_of(look), look.spec
    if isinstance(torch, Outcome):
        yield torch
        return
    if spec is None or spec.cuda_min is None:
        yield skipped(f"The profile {look.profile.name} names no oldest CUDA.")
        return
    seen = look.see("torch.cuda", "torch")
    words: dict[str, Any] = {
        "expected": f"at least {spec.cuda_min}",
        "expected_from": spec.stated_by("cuda_min").witness,
        "observed_from": seen.source,
    }
    if none(seen.value):
        yield skipped("This torch is not built for CUDA; see stack.torch.gpu_build.")
    elif isinstance(seen.value, Absent):
        yield unknown(NODE, seen.value, **words)
    elif numbers(seen.value) >= numbers(spec.cuda_min):
        yield passed(f"CUDA {seen.value}.", observed=seen.value, **words)
    else:
        worse = warn if spec.stated_by("cuda_min").kind == "derived" or look.every_card_works else fail
        yield worse(f"torch was built with CUDA {seen.value}.", observed=seen.value, **words)


@stack_rule(
    "stack.torch.duplicates",
    "One PyTorch in the interpreter",
    for_cards=False,
    reads="every folder on the interpreter's sys.path that holds a torch",
    door="torch",
    passes="there is one",
    warns="there are several: which one is imported hangs on the order of the path",
    cause=Cause.misconfigured,
    owner=Owner.renter,
    meaning="pip, conda or a user folder put a second PyTorch beside the image's own; extensions built for one "
    "are loaded into the other.",
    next_step="Remove the one you do not mean (`pip uninstall torch` removes the first), or clear PYTHONPATH.",
    repeat="python3 -c 'import sys, os; print([p for p in sys.path if os.path.isfile(p + \"/torch/__init__.py\")])'",
)
def torch_duplicates(look: Look) -> Iterator[Outcome]:
    torch = torch_of(look)
    if isinstance(torch, Outcome):
        yield torch
        return
    seen = look.see("torch.folders", "torch")
    if isinstance(seen.value, Absent):
        yield unknown(NODE, seen.value, observed_from=seen.source)
    elif len(seen.value) > 1:
        yield warn(
            f"torch is in {' and in '.join(seen.value)}; the first is imported.",
            observed=len(seen.value),
            expected=1,
            observed_from=seen.source,
        )
    else:
        yield passed(
            f"torch is in {word(torch.path)} alone.", observed=1, expected=1, observed_from=seen.source
        )


@stack_rule(
    "stack.torch.devices",
    "PyTorch sees every card",
    reads="torch's devices beside the cards that the driver lists, joined on UUID",
    door="torch",
    passes="torch sees the cards that the driver hands out; another order than the bus's is stated",
    warns="variables of the environment hide some, or torch sees more than the driver lists",
    fails="torch sees fewer, and no variable explains it; or its count is another than that of the runtime below it",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="Programs get other cards than the driver lists: too few of them, or some that it does not answer for.",
    next_step="Look at stack.cuda_init and stack.context for the error; send both to the provider.",
    repeat="python3 -c 'import torch; print(torch.cuda.device_count())'; nvidia-smi -L; env | grep VISIBLE_DEVICES",
    on_amd=OnAmd(
        next_step="Look at cards.device_files and stack.context. Where a package `amdsmi` of the Python index lies "
        "beside torch, remove it: with a second libamd_smi torch counts no card (pytorch/pytorch#186516).",
        repeat="python3 -c 'import torch; print(torch.cuda.device_count())'; rocminfo | grep gfx; "
        "env | grep VISIBLE_DEVICES",
    ),
)
def torch_devices(look: Look) -> Iterator[Outcome]:
    torch = torch_of(look)
    if isinstance(torch, Outcome):
        yield torch
        return
    if none(torch.cuda) and none(torch.hip):
        yield skipped("This torch is built for the CPU alone; see stack.torch.gpu_build.")
        return
    cards, count = look.node.cards, look.see("torch.device_count", "torch")
    for value in (cards, count.value):
        if isinstance(value, Absent):
            yield unknown(NODE, value, observed_from=count.source)
            return
    usable = [card for card in look.node.known_cards if card.usable is not False]
    words: dict[str, Any] = {
        "observed": count.value,
        "expected": len(usable),
        "observed_from": count.source,
        "expected_from": "the cards that the driver hands out",
    }
    if any(card.modes.mig_enabled is True for card in usable):
        yield passed(f"torch sees {count.value} devices; with MIG they are slices, not cards.", **words)
        return
    order, seen = _joined(usable, () if isinstance(torch.devices, Absent) else torch.devices)
    missing = [
        card for card, mark in zip(usable, order, strict=True) if seen and known(mark) and mark not in seen
    ]
    if count.value == len(usable) and not missing:
        other = " in another order than on the bus" if seen and seen != order else ""
        yield passed(f"torch sees {count.value} of {len(usable)}{other}.", **words)
        return
    named = f" It does not see {', '.join(card.label for card in missing)}." if missing else ""
    said = f"torch sees {count.value} of {len(usable)}.{named}"
    hiding = {k: v for k, v in look.variables.items() if k in _HIDING}
    if count.value > len(usable):
        yield warn(f"torch sees {count.value} devices where the driver lists {len(usable)}.", **words)
    elif torch.runtime_count == len(usable) or (look.profile.vendor == "amd" and look.every_card_works):
        works = (
            f"The runtime below it counts {torch.runtime_count}"
            if torch.runtime_count == len(usable)
            else "Each works where a program sees it alone"
        )
        said = f"{said} {works}: it is torch that counts wrongly."
        yield fail(said, cause=Cause.misconfigured, owner=Owner.renter, **words)
    elif hiding:
        yield warn(
            f"{said} {', '.join(f'{k}={v}' for k, v in hiding.items())} is set.",
            cause=Cause.misconfigured,
            owner=Owner.renter,
            next_step=f"Unset {' and '.join(hiding)} and run this again.",
            **words,
        )
    else:
        yield fail(said, **words)


def _joined(cards: list[Card], devices: tuple[TorchDevice, ...]) -> tuple[list[Maybe[str]], list[str]]:
    """What the cards and torch's devices are joined on: UUIDs, or PCI addresses where torch writes UUIDs otherwise.

    ROCm's torch writes the characters of HIP's UUID as numbers.
    """
    uuids = [card.uuid for card in cards]
    seen = [device.uuid for device in devices if known(device.uuid)]
    addresses = [device.pci_address for device in devices if known(device.pci_address)]
    if addresses and cards and cards[0].vendor == "amd" and not set(seen) & {u for u in uuids if known(u)}:
        return [card.pci_address for card in cards], addresses
    return uuids, seen


_HIDING = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")


@stack_rule(
    "stack.rocm.arch",
    "PyTorch holds code for AMD's cards",
    of="amd",
    reads="torch's list of architectures and the target of each card (gfx942)",
    door="torch",
    passes="it names the card's target",
    warns="it does not, and yet the kernel ran: HSA_OVERRIDE_GFX_VERSION may be set",
    fails="it does not",
    cause=Cause.misconfigured,
    owner=Owner.renter,
    meaning="Without code for the card every kernel ends in `invalid device function`.",
    next_step="Install a PyTorch whose torch.cuda.get_arch_list() names the card's target.",
    repeat="python3 -c 'import torch; print(torch.cuda.get_arch_list(), "
    "torch.cuda.get_device_properties(0).gcnArchName)'",
)
def rocm_arch(look: Look) -> Iterator[Outcome]:
    torch = torch_of(look)
    if isinstance(torch, Outcome):
        yield torch
        return
    if none(torch.hip):
        yield skipped("This torch is not built for ROCm; see stack.torch.gpu_build.")
        return
    arches = look.see("torch.arch_list", "torch")
    for value in (arches.value, look.node.cards):
        if isinstance(value, Absent):
            yield unknown(NODE, value, observed_from=arches.source)
            return
    if not look.node.known_cards:
        yield skipped("There is no card to look at; see cards.listed.")
    working = _working(look)
    for card in look.node.known_cards:
        if card.vendor == "amd":
            yield _target_of(card, arches, card.key in working)


def _target_of(card: Card, arches: Observation, works: bool) -> Outcome:
    gfx = card.identity.gfx
    if isinstance(gfx, Absent):
        return unknown(of_card(card), gfx)
    words: dict[str, Any] = {
        "subject": of_card(card),
        "observed": ", ".join(arches.value) or "none",
        "observed_from": arches.source,
        "expected": gfx,
        "expected_from": "PyTorch's notes on HIP (published, 2.9): code is made for exactly one target",
    }
    if gfx in (arch.partition(":")[0] for arch in arches.value):
        return passed(f"It names {gfx}.", **words)
    if works:
        return warn(f"It does not name {gfx}, and yet a kernel ran.", **words)
    return fail(f"It does not name {gfx}.", **words)


@stack_rule(
    "stack.rocm.minimum",
    "PyTorch's ROCm is new enough for the cards",
    of="amd",
    reads="torch.version.hip, whose first two numbers are ROCm's",
    door="torch",
    passes="it is at least the profile's oldest ROCm",
    warns="it is older, and the profile's bound is derived or every card works all the same",
    fails="it is older",
    cause=Cause.misconfigured,
    owner=Owner.renter,
    meaning="Libraries of an older ROCm have no code for the card, or none that uses it well.",
    next_step="Install a PyTorch built for a newer ROCm.",
    repeat="python3 -c 'import torch; print(torch.version.hip)'",
)
def rocm_minimum(look: Look) -> Iterator[Outcome]:
    torch, spec = torch_of(look), look.spec
    if isinstance(torch, Outcome):
        yield torch
        return
    if spec is None or spec.rocm_min is None:
        yield skipped(f"The profile {look.profile.name} names no oldest ROCm.")
        return
    seen = look.see("torch.hip", "torch")
    words: dict[str, Any] = {
        "expected": f"at least {spec.rocm_min}",
        "expected_from": spec.stated_by("rocm_min").witness,
        "observed_from": seen.source,
    }
    if none(seen.value):
        yield skipped("This torch is not built for ROCm; see stack.torch.gpu_build.")
    elif isinstance(seen.value, Absent):
        yield unknown(NODE, seen.value, **words)
    elif numbers(seen.value)[:2] >= numbers(spec.rocm_min)[:2]:
        yield passed(f"HIP {seen.value}.", observed=seen.value, **words)
    else:
        worse = warn if spec.stated_by("rocm_min").kind == "derived" or look.every_card_works else fail
        yield worse(f"torch was built with HIP {seen.value}.", observed=seen.value, **words)


@stack_rule(
    "stack.rocm.match",
    "PyTorch and the installed ROCm are of one release",
    of="amd",
    reads="torch.version.hip, the ROCm of this machine or image, and where MIOpen, RCCL and HIP of torch's process lie",
    door="torch",
    passes="the first two numbers agree, or no ROCm is installed: torch brings its own; and its libraries come from "
    "one place",
    warns="they differ, or its libraries come from several places",
    cause=Cause.misconfigured,
    owner=Owner.renter,
    meaning="torch works with the ROCm that it brings, and tools, compilers and extensions with the one installed: "
    "extensions that are built here may fail, and mixed libraries crash or are slow.",
    next_step="Install a PyTorch made for the installed ROCm, or take ROCm's folder out of LD_LIBRARY_PATH.",
    repeat="python3 -c 'import torch; print(torch.version.hip)'; cat /opt/rocm*/.info/version; echo $LD_LIBRARY_PATH",
)
def rocm_match(look: Look) -> Iterator[Outcome]:
    torch = torch_of(look)
    if isinstance(torch, Outcome):
        yield torch
        return
    built, installed = look.see("torch.hip", "torch"), look.see("driver.rocm_version", "linux")
    if none(built.value):
        yield skipped("This torch is not built for ROCm; see stack.torch.gpu_build.")
        return
    if isinstance(built.value, Absent):
        yield unknown(NODE, built.value, observed_from=built.source)
        return
    words: dict[str, Any] = {"observed": built.value, "observed_from": built.source}
    folders = _rocm_folders(torch)
    if len(folders) > 1:
        yield warn(f"torch's process takes ROCm's libraries from {' and from '.join(folders)}.", **words)
    elif none(installed.value):
        yield passed(f"torch brings ROCm's libraries of HIP {built.value}; no ROCm is installed.", **words)
    elif isinstance(installed.value, Absent):
        yield unknown(NODE, installed.value, observed_from=installed.source)
    elif numbers(built.value)[:2] == numbers(installed.value)[:2]:
        yield passed(f"Both are {'.'.join(map(str, numbers(built.value)[:2]))}.", **words)
    else:
        yield warn(
            f"torch was built with HIP {built.value}, and ROCm {installed.value} is installed.",
            expected=installed.value,
            expected_from=installed.source,
            **words,
        )


def _rocm_folders(torch: Torch) -> list[str]:
    """Where those of ROCm's libraries lie that have to be of one release."""
    paths = () if isinstance(torch.libraries, Absent) else torch.libraries
    return sorted(
        {path.rpartition("/")[0] for path in paths if re.search(r"/lib(MIOpen|amdhip64|rccl)\.so", path)}
    )


_CORES_PER_SM = {"8.0": 64, "8.6": 128, "8.9": 128, "9.0": 128, "10.0": 128}
"""CUDA cores of a multiprocessor, by compute capability (CUDA C++ Programming Guide, 12.9)."""

_MEMORY_SLACK = 0.05
_FREE_SHARE, _FREE_SLACK_BYTES = 0.9, 2 * 1024**3
"""CUDA's free memory is NVML's less the context's own, some hundred MiB."""

_IDLE_BYTES = 1024**3
"""Below this a card is not in use by anybody, as far as its memory tells."""


@stack_rule(
    "stack.torch.cards",
    "Programs get the whole of each card",
    of="nvidia",
    reads="name, compute capability, memory and multiprocessors of each card as torch sees it, and the free memory "
    "in a context, beside what NVML says of the same card",
    door="torch",
    passes="they are the card's: memory within 5 % of NVML's total less what the driver reserves, "
    "multiprocessors that make up all cores, name and capability the same; at least 90 % of NVML's free memory, less "
    "2 GiB, is free in a context on a card that nobody else uses",
    fails="one of them is not: programs get a share of the card, or another card than NVML describes",
    cause=Cause.not_as_rented,
    owner=Owner.provider,
    meaning="Something between programs and the card hands out a part of it: HAMi and its like, a vGPU, limits of MPS.",
    next_step="Look at stack.preloads for a library that shares cards out; send both to the provider.",
    repeat="python3 -c 'import torch; print(torch.cuda.get_device_properties(0), torch.cuda.mem_get_info(0))'; "
    "nvidia-smi --query-gpu=name,uuid,compute_cap,memory.total,memory.reserved,memory.free --format=csv",
)
def torch_cards(look: Look) -> Iterator[Outcome]:
    torch = torch_of(look)
    if isinstance(torch, Outcome):
        yield torch
        return
    if none(torch.cuda):
        yield skipped("This torch is not built for CUDA; see stack.torch.gpu_build.")
        return
    if isinstance(look.node.cards, Absent):
        yield unknown(NODE, look.node.cards)
        return
    if not look.node.cards:
        yield skipped("There is no card to look at; see cards.listed.")
    seen = look.see("torch.devices", "torch")
    for card in look.node.known_cards:
        if card.usable is False:
            yield skipped("The card cannot be used; see cards.usable.", of_card(card))
        elif card.modes.mig_enabled is True:
            yield skipped("With MIG torch sees slices, not cards.", of_card(card))
        elif isinstance(seen.value, Absent):
            yield unknown(of_card(card), seen.value, observed_from=seen.source)
        else:
            yield _whole(look, card, seen)


def _whole(look: Look, card: Card, seen: Observation) -> Outcome:
    subject = of_card(card)
    device = next((d for d in seen.value if known(d.uuid) and d.uuid == card.uuid), None)
    if device is None:
        missing = Absent(why=Why.not_present, detail="torch names no device with this card's UUID")
        return unknown(subject, missing, observed_from=seen.source)
    wrong: list[str] = []
    unseen: list[Absent] = []
    for complaint in (
        _same("name", device.name, card.identity.name),
        _same("compute capability", device.capability, card.identity.compute_capability),
        _memory(device, card),
        _multiprocessors(device, card),
        _free(look, card),
    ):
        if isinstance(complaint, Absent):
            unseen.append(complaint)
        elif complaint:
            wrong.append(complaint)
    words: dict[str, Any] = {
        "subject": subject,
        "observed_from": seen.source,
        "expected": "what NVML says of the card",
        "expected_from": "NVML",
    }
    if wrong:
        return fail(f"{'; '.join(wrong)}.", observed="; ".join(wrong), **words)
    if unseen:
        return Outcome(Status.unknown, detail=f"Not seen: {str(unseen[0]).rstrip('.')}.", **words)
    return passed("torch sees the whole card.", observed="the whole card", **words)


def _same(what: str, seen: Maybe[str], told: Maybe[str]) -> str | Absent:
    """What is wrong in words; empty if nothing is. So for the other questions."""
    if isinstance(seen, Absent):
        return seen
    if isinstance(told, Absent):
        return told
    return "" if seen == told else f"torch sees the {what} {seen}, NVML {told}"


def _memory(device: TorchDevice, card: Card) -> str | Absent:
    seen, total, reserved = device.total_bytes, card.memory.total_bytes, card.memory.reserved_bytes
    if isinstance(seen, Absent):
        return seen
    if isinstance(total, Absent):
        return total
    usable = total if isinstance(reserved, Absent) else total - reserved
    if abs(seen - usable) <= _MEMORY_SLACK * usable:
        return ""
    return f"torch sees {_mib(seen)} of memory, NVML {_mib(usable)}"


def _multiprocessors(device: TorchDevice, card: Card) -> str | Absent:
    seen, cores, capability = device.multiprocessors, card.identity.cores, card.identity.compute_capability
    each = None if isinstance(capability, Absent) else _CORES_PER_SM.get(capability)
    if each is None or isinstance(cores, Absent):
        return ""
    if isinstance(seen, Absent):
        return seen
    if seen * each == cores:
        return ""
    return f"torch sees {seen} multiprocessors ({seen * each} cores), NVML {cores} cores"


def _free(look: Look, card: Card) -> str | Absent:
    tests = look.stack.contexts
    if isinstance(tests, Absent):
        return tests
    test = next((test for test in tests if test.card == card.key), None)
    if test is None:
        return Absent(why=Why.not_asked, detail="no context was made on this card")
    seen, told, used = test.free_bytes, card.memory.free_bytes, card.memory.used_bytes
    if isinstance(seen, Absent):
        return seen
    if isinstance(told, Absent):
        return told
    busy = (known(card.processes) and len(card.processes) > 0) or (known(used) and used > _IDLE_BYTES)
    if busy or seen >= _FREE_SHARE * told - _FREE_SLACK_BYTES:
        return ""
    return f"{_mib(seen)} are free in a context, {_mib(told)} by NVML"


def _mib(value: int) -> str:
    return f"{value // 1024**2} MiB"


@stack_rule(
    "stack.torch.cudnn",
    "One cuDNN in PyTorch's process",
    of="nvidia",
    reads="the cuDNN libraries in torch's process and torch.backends.cudnn.version()",
    door="torch",
    passes="all parts of cuDNN come from one folder",
    warns="they come from several, or torch refuses the cuDNN it finds",
    cause=Cause.misconfigured,
    owner=Owner.renter,
    meaning="cuDNN is several libraries of one version; parts of another, mostly the system's by way of "
    "LD_LIBRARY_PATH, fail at the first convolution or are slow.",
    next_step="Take the folder with the other cuDNN out of LD_LIBRARY_PATH.",
    repeat="python3 -c 'import torch; print(torch.backends.cudnn.version())'; echo $LD_LIBRARY_PATH",
)
def cudnn(look: Look) -> Iterator[Outcome]:
    torch = torch_of(look)
    if isinstance(torch, Outcome):
        yield torch
        return
    version, libraries = look.see("torch.cudnn", "torch"), look.see("torch.libraries", "torch")
    if none(version.value):
        yield skipped("This torch has no cuDNN.")
        return
    if isinstance(version.value, Absent) and version.value.why is Why.failed:
        yield warn(
            f"torch refuses its cuDNN: {version.value.detail}",
            observed="refused",
            observed_from=version.source,
        )
        return
    for seen in (version, libraries):
        if isinstance(seen.value, Absent):
            yield unknown(NODE, seen.value, observed_from=seen.source)
            return
    folders = sorted({path.rpartition("/")[0] for path in libraries.value if "/libcudnn" in path})
    words: dict[str, Any] = {
        "observed": ", ".join(folders) or "linked into torch",
        "observed_from": libraries.source,
    }
    if len(folders) > 1:
        yield warn(f"cuDNN {version.value} is loaded from {' and '.join(folders)}.", **words)
    else:
        yield passed(f"cuDNN {version.value}.", **words)

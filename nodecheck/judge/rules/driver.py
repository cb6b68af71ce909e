"""Does the driver serve the renter's software, and does every card run a kernel?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nodecheck.facts import Absent, Node, Why, known, or_none
from nodecheck.facts.stack import ContextTest, CudaError
from nodecheck.judge import software
from nodecheck.judge.finding import NODE, Cause, Owner, Status, Subject
from nodecheck.judge.rule import OnAmd, Outcome, fail, observe, of_card, passed, skipped, unknown, warn
from nodecheck.judge.rules.stack import Look, listed, none, numbers, stack_rule, torch_of

_CARD_STEPS = ("init", "context", "kernel", "done")
"""Steps of a context test in which only the driver and the card are at work; `done` is the process's own end."""


@stack_rule(
    "stack.driver.minimum",
    "The driver is new enough for the cards",
    of="nvidia",
    reads="the kernel driver's version",
    door="driver_proc",
    passes="it is at least the oldest driver that serves the profile's cards",
    warns="it is older, and the profile's bound is derived",
    fails="it is older, and the profile's bound is published or measured",
    cause=Cause.misconfigured,
    owner=Owner.provider,
    meaning="An older driver does not know the card wholly, or has faults that were mended since.",
    next_step="Ask the provider for a newer driver; it cannot be changed from inside a container.",
    repeat="cat /proc/driver/nvidia/version; nvidia-smi --query-gpu=driver_version --format=csv",
)
def driver_minimum(look: Look) -> Iterator[Outcome]:
    spec = look.spec
    if spec is None or spec.driver_min is None:
        yield skipped(f"The profile {look.profile.name} names no oldest driver.")
        return
    seen = look.see("driver.version", "linux")
    words: dict[str, Any] = {
        "expected": f"at least {spec.driver_min}",
        "expected_from": spec.stated_by("driver_min").witness,
        "observed_from": seen.source,
    }
    if isinstance(seen.value, Absent):
        yield unknown(NODE, seen.value, **words)
    elif numbers(seen.value) >= numbers(spec.driver_min):
        yield passed(f"Driver {seen.value}.", observed=seen.value, **words)
    else:
        worse = warn if spec.stated_by("driver_min").kind == "derived" else fail
        yield worse(f"Driver {seen.value} is older than {spec.driver_min}.", observed=seen.value, **words)


@stack_rule(
    "stack.driver.library_match",
    "Driver and libraries belong together",
    of="nvidia",
    reads="the kernel driver's version and that of libnvidia-ml; libcuda's versions within reach are stated",
    door="nvml",
    passes="the two are of one version",
    fails="they are of two versions, or NVML itself says so",
    cause=Cause.misconfigured,
    owner=Owner.provider,
    meaning="The driver was upgraded while the node or the container ran on: nothing new can be started on "
    "the cards, also where programs that run already go on.",
    next_step="Restart the container; if that does not mend it, ask the provider to restart the node.",
    repeat="cat /proc/driver/nvidia/version; nvidia-smi; ls -l $(ldconfig -p | grep -o '/.*libnvidia-ml.so.1')",
)
def library_match(look: Look) -> Iterator[Outcome]:
    driver = look.stack.driver
    kernel, library = look.see("driver.version", "linux"), look.see("driver.library_version", "nvml")
    words: dict[str, Any] = {"observed_from": library.source, "expected_from": kernel.source}
    if isinstance(library.value, Absent) and "LIB_RM_VERSION_MISMATCH" in library.value.detail:
        yield fail(
            f"NVML cannot talk to the driver: {library.value.detail}.",
            observed="NVML does not start",
            **words,
        )
        return
    for seen in (kernel, library):
        if isinstance(seen.value, Absent):
            yield unknown(NODE, seen.value, observed_from=seen.source)
            return
    words |= {"observed": library.value, "expected": kernel.value}
    if numbers(library.value) != numbers(kernel.value):
        yield fail(f"The kernel driver is {kernel.value}, its library {library.value}.", **words)
        return
    others = [
        found
        for found in (() if isinstance(look.stack.driver_libraries, Absent) else look.stack.driver_libraries)
        if known(found.version) and found.version != driver.version
    ]
    beside = f" Of other versions, within reach: {listed(others)}." if others else ""
    yield passed(f"Both are {kernel.value}.{beside}", **words)


@stack_rule(
    "stack.driver.fabric_manager",
    "The fabric manager is of the driver's version",
    of="nvidia",
    reads="the version of nv-fabricmanager where it is installed here, and the driver's",
    door="host",
    passes="the versions are equal, or every card works although another version is installed",
    warns="it runs here in another version, and every card works",
    fails="the versions differ and not every card works",
    cause=Cause.misconfigured,
    owner=Owner.provider,
    meaning="A fabric manager of another version than the driver does not start, and the cards then answer "
    "with CUDA error 802.",
    next_step="Ask the provider to install the fabric manager of the driver's version and to start it.",
    repeat="nv-fabricmanager --version; cat /proc/driver/nvidia/version",
)
def fabric_manager(look: Look) -> Iterator[Outcome]:
    if look.profile.links is None or not look.profile.links.fabric:
        yield skipped("These cards join no NVSwitch fabric.")
        return
    manager, driver = (
        observe(look.node, "host.fabric_manager_version", "linux"),
        look.see("driver.version", "linux").value,
    )
    for absent in (manager.value, driver):
        if isinstance(absent, Absent):
            yield unknown(NODE, absent, observed_from=manager.source)
            return
    words: dict[str, Any] = {
        "observed": manager.value,
        "expected": driver,
        "observed_from": manager.source,
        "expected_from": "the driver's version: NVIDIA Fabric Manager user guide (published, 2023-10)",
    }
    services = observe(look.node, "host.services", "linux").value
    runs = not isinstance(services, Absent) and any(name.startswith("nv-fabricmanag") for name in services)
    if numbers(manager.value) == numbers(driver):
        yield passed(f"Both are {driver}.", **words)
    elif not look.every_card_works:
        yield fail(f"Version {manager.value} is installed, the driver is {driver}.", **words)
    elif runs:
        yield warn(f"It runs in version {manager.value}, the driver is {driver}; every card works.", **words)
    else:
        yield passed(f"{manager.value} lies here unused; every card works with the host's own.", **words)


@stack_rule(
    "stack.driver.runtime",
    "The driver serves the CUDA that torch was built with",
    of="nvidia",
    reads="torch's CUDA version and the driver's (libcuda's, where a forward-compatibility package is loaded)",
    door="torch",
    passes="the driver's CUDA is as new, or of the same major version (minor-version compatibility)",
    warns="torch's CUDA has a newer major version, and yet every card works",
    fails="torch's CUDA has a newer major version",
    cause=Cause.misconfigured,
    owner=Owner.renter,
    meaning="A driver serves all CUDA versions up to its own, and newer minor ones of the same major version; "
    "a newer major version needs a newer driver or NVIDIA's forward-compatibility package.",
    next_step="Install a torch built for the driver's CUDA version, or ask the provider for a newer driver.",
    repeat="python3 -c 'import torch; print(torch.version.cuda)'; nvidia-smi | grep 'CUDA Version'",
)
def driver_runtime(look: Look) -> Iterator[Outcome]:
    torch = torch_of(look)
    if isinstance(torch, Outcome):
        yield torch
        return
    if none(torch.cuda):
        yield skipped("This torch is not built for CUDA; see stack.torch.gpu_build.")
        return
    driver = look.stack.driver
    # What programs load counts; NVML tells where libcuda could not be asked.
    path = "driver.libcuda_version" if known(driver.libcuda_version) else "driver.cuda_version"
    served, built = look.see(path, "torch"), look.see("torch.cuda", "torch")
    for seen in (built, served):
        if isinstance(seen.value, Absent):
            yield unknown(NODE, seen.value, observed_from=seen.source)
            return
    words: dict[str, Any] = {
        "observed": built.value,
        "expected": f"at most {served.value}",
        "observed_from": built.source,
        "expected_from": f"{served.source}; CUDA Compatibility guide (published, 2025-05)",
    }
    wanted, given = numbers(built.value), numbers(served.value)
    package = (
        f" libcuda comes from a forward-compatibility package; the driver's own CUDA is {driver.cuda_version}."
        if known(driver.cuda_version)
        and path.endswith("libcuda_version")
        and driver.cuda_version != served.value
        else ""
    )
    if wanted <= given:
        yield passed(
            f"torch was built with CUDA {built.value}, the driver serves {served.value}.{package}", **words
        )
    elif wanted[:1] == given[:1]:
        yield passed(
            f"torch was built with CUDA {built.value}, the driver serves {served.value}: minor-version "
            f"compatibility, in which PTX of the newer version cannot be compiled.{package}",
            **words,
        )
    else:
        worse = warn if look.every_card_works else fail
        yield worse(
            f"torch was built with CUDA {built.value}, the driver serves {served.value}.{package}", **words
        )


@stack_rule(
    "stack.driver.amdgpu",
    "The driver of AMD's cards is loaded",
    of="amd",
    reads="the kernel module amdgpu (/sys/module/amdgpu), and AMD's cards on the PCI bus",
    door="kfd",
    passes="it is loaded; its version, that of its package and ROCm's, which are three different ones, are stated",
    fails="it is not loaded, and the PCI bus shows cards of AMD's",
    cause=Cause.misconfigured,
    owner=Owner.provider,
    meaning="No program can use any card until it is loaded.",
    next_step="Ask the provider to load the driver (`modprobe amdgpu`, as root), and to find out in the kernel log "
    "why it was "
    "not: AMD's guide has it kept from loading at boot.",
    repeat="cat /sys/module/amdgpu/version; lsmod | grep amdgpu; lspci -nnk -d 1002:",
)
def amdgpu(look: Look) -> Iterator[Outcome]:
    driver = look.stack.driver
    loaded = look.see("driver.in_tree", "linux")
    topology = look.node.topology
    devices = topology if isinstance(topology, Absent) else topology.pci_devices
    on_bus = (
        0
        if isinstance(devices, Absent)
        else sum(d.kind == "card" and d.pci_id.startswith("1002:") for d in devices)
    )
    words: dict[str, Any] = {"observed_from": loaded.source}
    if isinstance(loaded.value, Absent):
        if loaded.value.why is Why.not_present and on_bus:
            said = f"The kernel module amdgpu is not loaded, and the PCI bus shows {on_bus} cards of AMD's."
            yield fail(said, observed="not loaded", **words)
        else:
            yield unknown(NODE, loaded.value, **words)
        return
    told = [
        f"{name} {version}"
        for name, version in (
            ("module", driver.version),
            ("package", driver.package_version),
            ("ROCm", driver.rocm_version),
        )
        if known(version)
    ]
    kind = "The kernel's own amdgpu is loaded" if loaded.value else "amdgpu is loaded"
    yield passed(f"{kind}{': ' if told else ''}{', '.join(told)}.", observed="loaded", **words)


@stack_rule(
    "stack.rocm.driver",
    "The driver serves torch's ROCm",
    of="amd",
    reads="the version of the kernel module amdgpu, the ROCm release it belongs to, and torch.version.hip",
    door="torch",
    passes="the two are at most two releases apart; or both are of the time from which AMD keeps them apart (a driver "
    "from 7.0 on serves ROCm from 6.3 on); or every card works all the same",
    warns="they are further apart, and not every card works",
    cause=Cause.misconfigured,
    owner=Owner.renter,
    meaning="AMD tries a driver with a few releases of ROCm alone; with others kernels fail or hang.",
    next_step="Install a PyTorch built for a ROCm nearer to the driver's, or ask the provider for a newer driver.",
    repeat="cat /sys/module/amdgpu/version; python3 -c 'import torch; print(torch.version.hip)'",
)
def rocm_driver(look: Look) -> Iterator[Outcome]:
    torch = torch_of(look)
    if isinstance(torch, Outcome):
        yield torch
        return
    module, built = look.see("driver.version", "linux"), look.see("torch.hip", "torch")
    if none(built.value):
        yield skipped("This torch is not built for ROCm; see stack.torch.gpu_build.")
        return
    if look.stack.driver.in_tree is True:
        yield skipped("amdgpu is the kernel's own: it belongs to no release of ROCm.")
        return
    for seen in (module, built):
        if isinstance(seen.value, Absent):
            yield unknown(NODE, seen.value, observed_from=seen.source)
            return
    known_releases = software.amdgpu_releases()
    releases = [rocm for _, rocm in known_releases]
    # A module between two of the table belongs to the newer one's time; one beyond it is newer than all.
    driver = next((rocm for least, rocm in known_releases if numbers(module.value)[:2] <= least), (99, 0))
    wanted = numbers(built.value)[:2]
    apart = abs(_place(driver, releases) - _place(wanted, releases))
    served = apart <= _RELEASES_APART or (driver >= _APART_FROM and wanted >= _SERVED_FROM)
    words: dict[str, Any] = {
        "observed": f"amdgpu {module.value}, HIP {built.value}",
        "observed_from": f"{module.source}; {built.source}",
        "expected": "at most two releases apart",
        "expected_from": "ROCm's user and kernel-space support matrix (published, 2026-06)",
    }
    said = f"The driver is amdgpu {module.value}, and torch was built with HIP {built.value}"
    if served:
        yield passed(f"{said}.", **words)
    elif look.every_card_works:
        yield passed(f"{said}: further apart than AMD tries them, and yet every card works.", **words)
    else:
        yield warn(f"{said}: {apart} releases apart.", **words)


_RELEASES_APART = 2
_APART_FROM, _SERVED_FROM = (7, 0), (6, 3)
"""From ROCm 7.0 on the driver has releases of its own, and serves every ROCm from this one on."""


def _place(release: tuple[int, ...], releases: list[tuple[int, int]]) -> int:
    """Its place among the releases; before the first, or behind the last."""
    return sum(one < release for one in releases)


@stack_rule(
    "stack.cuda_init",
    "CUDA starts",
    of="nvidia",
    reads="cuInit(0) of libcuda.so.1",
    door="libcuda",
    passes="it returns success",
    fails="it returns an error, does not return, or there is no libcuda.so.1",
    cause=Cause.misconfigured,
    owner=Owner.provider,
    meaning="No program can use any card until this is mended.",
    next_step="Send the provider this finding.",
    repeat="python3 -c 'import ctypes; print(ctypes.CDLL(\"libcuda.so.1\").cuInit(0))'",
)
def cuda_init(look: Look) -> Iterator[Outcome]:
    seen = look.see("cuda_init", "torch")
    words: dict[str, Any] = {"expected": 0, "observed_from": seen.source}
    if isinstance(seen.value, Absent):
        if seen.value.why is Why.not_present:
            said, step = _no_libcuda(look.node)
            yield fail(
                f"There is no libcuda.so.1: {said}.", observed="no libcuda.so.1", next_step=step, **words
            )
        elif seen.value.why is Why.timed_out and known(look.stack.interpreter):
            yield fail(
                f"cuInit did not return: {seen.value.detail}.",
                observed="no answer",
                cause=Cause.faulty,
                next_step="Ask the provider to look at the cards: one that does not answer holds up all.",
                **words,
            )
        else:
            yield unknown(NODE, seen.value, **words)
    elif seen.value.code == 0:
        yield passed("cuInit returns success.", observed=0, **words)
    else:
        yield _cuda_failure(look, seen.value, NODE, **words)


def _no_libcuda(node: Node) -> tuple[str, str]:
    """How libcuda comes to be missing, and what to do; in a container it is handed in from outside."""
    started = "the container was started without the driver's compute libraries"
    start = "start the container with `compute` among NVIDIA_DRIVER_CAPABILITIES"
    missing = "the driver's compute libraries are not installed"
    install = "install them, in the version of the driver that is loaded"
    container = or_none(node.host.container) if known(node.host) else None
    if container == "none":
        return missing, f"Have the provider {install}."
    if container is not None:
        return started, f"Have the provider {start}."
    return f"{missing}, or {started}", f"Have the provider {install}, or {start}."


def _rocm_failure(look: Look, error: CudaError, subject: Subject, **words: Any) -> Outcome:
    """The failure behind an error of HIP's or HSA's."""
    meaning = software.rocm_meaning(error.name)
    owner, step = meaning.owner, meaning.next_step
    said = f"{error.name}, {error.code} ({error.message or 'without a word'}). {meaning.meaning}"
    override = look.variables.get("HSA_OVERRIDE_GFX_VERSION")
    if override and meaning.cause is Cause.faulty:
        said += f" HSA_OVERRIDE_GFX_VERSION={override} makes it run code that was made for another card."
        owner, step = Owner.renter, "Unset HSA_OVERRIDE_GFX_VERSION and run this again."
    return fail(
        said,
        subject=subject,
        observed=error.name,
        expected_from=software.ROCM_SOURCE,
        cause=Cause.misconfigured if owner is Owner.renter else meaning.cause,
        owner=owner,
        next_step=step,
        **{k: v for k, v in words.items() if k != "expected_from"},
    )


def _cuda_failure(look: Look, error: CudaError, subject: Subject, **words: Any) -> Outcome:
    """The failure behind a CUDA error; what of the renter's own brings it about goes before the table."""
    meaning = software.cuda_meaning(error.code)
    cause, owner, step = meaning.cause, meaning.owner, meaning.next_step
    said = f"CUDA error {error.code}, {error.name} ({error.message}). {meaning.meaning}"
    visible = look.variables.get("CUDA_VISIBLE_DEVICES")
    if error.code == 100 and visible is not None:
        said = f"CUDA error 100, {error.name} ({error.message}): CUDA_VISIBLE_DEVICES={visible!r} leaves no card."
        owner, step = Owner.renter, "Unset CUDA_VISIBLE_DEVICES and run this again."
    elif error.code in (34, 803, 804):
        foreign = _foreign_libcuda(look)
        if foreign is not None:
            said += f" Programs here load {foreign}."
            owner = Owner.renter
            step = f"Take {foreign.rpartition('/')[0]} out of LD_LIBRARY_PATH (or ld.so.conf) and run this again."
    return fail(
        said,
        subject=subject,
        observed=error.code,
        expected_from=software.CUDA_SOURCE,
        cause=cause,
        owner=owner,
        next_step=step,
        **{k: v for k, v in words.items() if k != "expected_from"},
    )


def _foreign_libcuda(look: Look) -> str | None:
    """The libcuda in torch's process where it is not the driver's own."""
    libraries = look.stack.driver_libraries
    for library in () if isinstance(libraries, Absent) else libraries:
        if (
            library.origin == "loaded"
            and "/libcuda.so" in library.path
            and library.version != look.stack.driver.version
        ):
            return library.path
    return None


@stack_rule(
    "stack.context",
    "Every card runs a kernel",
    for_cards=False,
    reads="a context and a sum of 2^20 integers on each card, each in a process of its own",
    door="torch",
    passes="the sum is right; the times are stated",
    fails="CUDA refuses, the sum is wrong, the process crashes or hangs in the driver or on the card, also after it",
    cause=Cause.faulty,
    owner=Owner.provider,
    required=True,
    meaning="Your programs cannot use this card.",
    next_step="Look for an Xid of the card in the kernel log, and ask the provider to reset or replace it.",
    repeat="CUDA_VISIBLE_DEVICES=GPU-… python3 -c 'import torch; print(torch.arange(2**20, device=\"cuda\").sum())'",
    on_amd=OnAmd(
        next_step="Look in the kernel log for what amdgpu says of the card (kernel_log.amdgpu), and ask the "
        "provider to reset or replace it.",
        repeat="ROCR_VISIBLE_DEVICES=GPU-… python3 -c 'import torch; print(torch.arange(2**20, "
        'device="cuda").sum())\'',
    ),
)
def context(look: Look) -> Iterator[Outcome]:
    tests = look.stack.contexts
    if isinstance(tests, Absent):
        yield unknown(NODE, tests)
        return
    by_card = {test.card: test for test in tests}
    if look.profile.card is None and not look.node.known_cards:
        test = by_card.get("cpu")
        if test is None:
            yield unknown(NODE, Absent(why=Why.not_asked, detail="no test was made"))
        elif isinstance(test.ok, Absent) and isinstance(look.stack.torch, Absent) and not look.torch_required:
            yield skipped(f"No torch is asked for by {look.profile.name}, and there is none.")
        else:
            yield _tested(look, test, NODE)
        return
    if isinstance(look.node.cards, Absent):
        yield unknown(NODE, look.node.cards)
        return
    if not look.node.cards:
        yield unknown(NODE, Absent(why=Why.not_present, detail="no card to make a context on"))
    for card in look.node.known_cards:
        test = by_card.get(card.key)
        if test is None:
            yield unknown(of_card(card), Absent(why=Why.not_asked, detail="no test was made of this card"))
        else:
            yield _tested(look, test, of_card(card))


def _tested(look: Look, test: ContextTest, subject: Subject) -> Outcome:
    words: dict[str, Any] = {"subject": subject, "observed_from": observe(test, "ok", "torch").source}
    if known(test.error):
        of_rocm = test.error.name.startswith(("hip", "HIP", "HSA_"))
        return (_rocm_failure if of_rocm else _cuda_failure)(look, test.error, **words)
    if test.ok is True:
        times = [
            f"{what} {seconds:.2f} s"
            for what, seconds in (("context", test.context_seconds), ("first kernel", test.kernel_seconds))
            if known(seconds)
        ]
        return passed(
            f"The sum is right{': ' if times else ''}{', '.join(times)}.", observed="right", **words
        )
    if not isinstance(test.ok, Absent):
        return fail(
            "The sum of 2^20 integers came out wrong.",
            observed="wrong",
            expected="right",
            next_step="Stop using this card: it computes wrongly. Ask the provider to replace it.",
            **words,
        )
    on_card = test.step in _CARD_STEPS
    if on_card and test.ok.why is Why.timed_out:
        return fail(f"The card does not answer: {test.ok.detail}.", observed="hangs", **words)
    if on_card and known(test.signal):
        return fail(f"The process crashed: {test.ok.detail}.", observed=test.signal, **words)
    driver = (
        f" The driver itself made a context in {test.context_seconds:.2f} s."
        if known(test.context_seconds)
        else ""
    )
    return Outcome(Status.unknown, detail=f"Not seen: {test.ok}.{driver}", **words)

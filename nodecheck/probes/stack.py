"""Driver, libraries and PyTorch, and whether every card can be used."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Literal, TypeVar

from nodecheck.facts import NOT_ASKED, Absent, Card, Maybe, Stack, Why, known, or_none
from nodecheck.facts.stack import ContextTest, Driver, Interpreter, Library, Toolkit, Torch
from nodecheck.probes import interpreter as said_by
from nodecheck.probes.interpreter import Said
from nodecheck.sources import interpreter as renter
from nodecheck.sources.channel import Json
from nodecheck.sources.commands import Commands
from nodecheck.sources.deadline import beside
from nodecheck.sources.files import Files
from nodecheck.sources.nvml import Survey
from nodecheck.sources.process import Process
from nodecheck.sources.visible import by_address, of_amd

INTERCEPTORS = re.compile(r"/lib(vgpu|cuda-control|vcuda|nvshare|gemhook)\b")
"""Libraries that stand between programs and CUDA to share a card out: HAMi, vCUDA, nvshare, KubeShare."""

_IMAGE_VARIABLES = (
    "NVIDIA_PRODUCT_NAME", "NVIDIA_PYTORCH_VERSION", "NVIDIA_BUILD_ID", "PYTORCH_VERSION",
    "PYTORCH_BUILD_VERSION", "CUDA_VERSION", "NCCL_VERSION", "NV_CUDA_LIB_VERSION", "NV_LIBNCCL_PACKAGE",
    "NV_CUDNN_PACKAGE", "ROCM_VERSION", "container",
)  # fmt: skip
_IN_WHEEL = "/nvidia/"
"""The folder in site-packages that NVIDIA's wheels share."""
_IMAGE_FILES = ("/etc/os-release", "/etc/cloud/build.info")
_DRIVER_FILES = re.compile(r"lib(cuda|nvidia-ml)\.so")
_NCCL_FILES = re.compile(r"lib[nr]ccl\.so")
_RCCL_FILES = re.compile(r"librccl\.so")

T = TypeVar("T")


_UNVERSIONED = Absent(why=Why.not_present, detail="the file's name holds no version")

Start = Callable[[str, tuple[Card, ...]], Mapping[str, Json]]
"""Starts workers that are to stay, in the interpreter at this path, on those of the cards that may be loaded; what
each answered, by the card's key."""


def probe(
    survey: Maybe[Survey],
    files: Files,
    process: Process,
    commands: Commands,
    interpreter: renter.Interpreter,
    cards: Maybe[tuple[Card, ...]],
    start: Start | None = None,
) -> Stack:
    """The whole stack; the contexts of all cards are tried side by side with the questions to torch.

    With `start` workers try them, where they can, and what they say of a card is its test.
    """
    environment = process.environment()
    variables = or_none(environment) or {}
    chosen = interpreter.chosen()
    describing = beside(interpreter.describe)
    listing = beside(interpreter.extensions)
    tests = _start_contexts(interpreter, or_none(cards) or (), variables, describing, start)

    # While torch is being imported:
    toolkits = _toolkits(files, commands, variables)
    hints = _image_hints(files, variables)
    cache = commands.run("ldconfig")
    shared_settings = files.read("/etc/nccl.conf")
    preload_file = files.read("/etc/ld.so.preload")

    said = Said(describing.result())
    cached = "" if isinstance(cache, Absent) else cache.stdout
    reachable = [*_reachable(files, variables, cached, said), *_in_rocm(files)]
    return Stack(
        driver=_driver(survey, files, said),
        interpreter=chosen if isinstance(chosen, Absent) else _interpreter(chosen),
        torch=said_by.torch(said),
        extensions=said_by.extensions(Said(listing.result())),
        other_torches=chosen if isinstance(chosen, Absent) else said_by.texts(chosen.get("others")),
        cuda_init=said_by.cuda_init(said),
        contexts=tuple(
            said_by.context(card, test) if isinstance(test, Absent) else test.result() for card, test in tests
        ),
        nccl_libraries=_libraries(files, reachable, _NCCL_FILES) or _nothing(cache),
        driver_libraries=_libraries(files, reachable, _DRIVER_FILES) or _nothing(cache),
        preloads=environment
        if isinstance(environment, Absent)
        else _preloads(files, variables, preload_file, said),
        nccl_settings=_nccl_settings(shared_settings, said),
        toolkits=toolkits,
        environment=environment if isinstance(environment, Absent) else tuple(sorted(environment.items())),
        image_hints=hints,
    )


def glance(
    survey: Maybe[Survey], files: Files, process: Process, commands: Commands, accepted: Maybe[Stack]
) -> Stack:
    """What files tell of the stack that was seen before (`accepted`), without starting its interpreter.

    torch's version is read from its own `version.py`, which `torch.__version__` repeats; the version in the package's
    metadata lacks the build's tag. Libraries are those of before that are still there; NCCL's wheel, whose file is
    called the same in every version, has that of its metadata.
    """
    variables = or_none(process.environment()) or {}
    torch = accepted if isinstance(accepted, Absent) else accepted.torch
    folder = torch if isinstance(torch, Absent) else torch.path
    return Stack(
        driver=_driver(survey, files, Said(NOT_ASKED)),
        torch=folder if isinstance(folder, Absent) else _torch_in(files, folder),
        nccl_libraries=_still_there(files, accepted, lambda stack: stack.nccl_libraries),
        driver_libraries=_still_there(files, accepted, lambda stack: stack.driver_libraries),
        toolkits=_toolkits(files, commands, variables),
    )


def _torch_in(files: Files, folder: str) -> Maybe[Torch]:
    text = files.read(f"{folder}/version.py")
    if isinstance(text, Absent):
        return text

    def named(name: str) -> Maybe[str]:
        found = re.search(rf"^{name}(?:: [^=]+)? = (?:'([^'\n]*)'|None)$", text, re.MULTILINE)
        if found and found[1]:
            return found[1]
        return Absent(why=Why.not_present, detail=f"{folder}/version.py names no {name}")

    return Torch(version=named("__version__"), path=folder, cuda=named("cuda"), hip=named("hip"))


def _still_there(
    files: Files, accepted: Maybe[Stack], of: Callable[[Stack], Maybe[tuple[Library, ...]]]
) -> Maybe[tuple[Library, ...]]:
    before = accepted if isinstance(accepted, Absent) else of(accepted)
    if isinstance(before, Absent):
        return before
    found = []
    for library in before:
        name = library.path.rpartition("/")[2]
        names = files.list(library.path.rpartition("/")[0])
        if isinstance(names, Absent) and names.why is not Why.not_present:
            return names
        if known(names) and name in names:
            version = _wheel_version(files, library.path) if _IN_WHEEL in library.path else library.version
            found.append(library.model_copy(update={"version": version}))
    return tuple(found)


def _wheel_version(files: Files, path: str) -> Maybe[str]:
    """Of the wheel that holds `…/site-packages/nvidia/nccl/lib/libnccl.so.2`."""
    site, _, package = path.rpartition(_IN_WHEEL)
    names = files.list(site)
    if isinstance(names, Absent):
        return names
    wheel = re.compile(rf"nvidia_{re.escape(package.partition('/')[0])}(?:_cu\d+)?-(\d[\w.]*)\.dist-info")
    versions = [match[1] for name in names if (match := wheel.fullmatch(name))]
    return versions[0] if len(versions) == 1 else Absent(why=Why.not_present, detail=f"no metadata in {site}")


def _interpreter(chosen: dict[str, Json]) -> Interpreter:
    return Interpreter(**{name: str(chosen.get(name)) for name in ("path", "version", "chosen")})


def _start_contexts(
    interpreter: renter.Interpreter,
    cards: tuple[Card, ...],
    variables: Mapping[str, str],
    describing: Future[Maybe[dict[str, Json]]],
    start: Start | None,
) -> list[tuple[str, Future[ContextTest] | Absent]]:
    """A test for each card, started or set aside; one of the CPU where there is no card.

    A card that the renter's own variables hide is left alone.
    """
    if not cards:
        return [("cpu", beside(lambda: _alone(interpreter, "cpu")))]
    hiding = {
        uuid: [(name, variables[name]) for name in _hiding(uuid) if name in variables]
        for card in cards
        if known(uuid := card.uuid)
    }
    # Torch's own list takes as long as an import of torch: waited for only where something may be hidden.
    visible = _torch_uuids(Said(describing.result())) if any(hiding.values()) else ()

    def obstacle(card: Card) -> Absent | None:
        if isinstance(card.uuid, Absent):
            if card.vendor == "amd" and card.usable is True and by_address(card.key):
                return None
            return Absent(why=Why.not_asked, detail=f"its UUID is not known ({card.uuid})")
        reasons = (_hidden(card.uuid, len(cards), variable, visible) for variable in hiding[card.uuid])
        hidden = next((reason for reason in reasons if reason), None)
        return None if hidden is None else Absent(why=Why.not_asked, detail=hidden)

    obstacles = {card.key: obstacle(card) for card in cards}
    workers = _start_workers(interpreter, [card for card in cards if obstacles[card.key] is None], start)

    def test(key: str) -> Future[ContextTest] | Absent:
        return obstacles[key] or beside(lambda: _by_worker(workers, key) or _alone(interpreter, key))

    return [(card.key, test(card.key)) for card in cards]


def _start_workers(
    interpreter: renter.Interpreter, cards: list[Card], start: Start | None
) -> Future[Mapping[str, Json]] | None:
    chosen = interpreter.chosen()
    if start is None or not cards or isinstance(chosen, Absent):
        return None
    return beside(lambda: start(_interpreter(chosen).path, tuple(cards)))


def _by_worker(workers: Future[Mapping[str, Json]] | None, card: str) -> ContextTest | None:
    """What the card's worker found; None where it has no say.

    That is so where it did not start: it sees every card, and one of the others may be at fault.
    """
    answer = None if workers is None else workers.result().get(card)
    if not isinstance(answer, dict):
        return None
    test = said_by.context(card, Said.of_worker(answer.get("context")))
    return None if isinstance(test.ok, Absent) else test


def _alone(interpreter: renter.Interpreter, card: str) -> ContextTest:
    """By a process of its own, which sees this card alone."""
    return said_by.context(card, Said(interpreter.context(card)))


def _torch_uuids(said: Said) -> tuple[str, ...]:
    devices = said_by.devices(said)
    return () if isinstance(devices, Absent) else tuple(d.uuid for d in devices if known(d.uuid))


def _hiding(uuid: str) -> tuple[str, ...]:
    """The variables that hide this vendor's cards, the one first that is read first."""
    if of_amd(uuid):
        return ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
    return ("CUDA_VISIBLE_DEVICES",)


def _hidden(uuid: str, count: int, variable: tuple[str, str], visible: tuple[str, ...]) -> str | None:
    """Why the card counts as hidden by the variable (name, value); None where it is visible.

    `visible` are the UUIDs that torch sees. Where it sees none the variable alone must tell; its numbers are
    the runtime's, so they say something only where they name none of the `count` cards or all.
    """
    name, value = variable
    reason = f"{name}={value} hides it"
    if visible:
        return None if uuid in visible else reason
    numbers = set()
    for entry in (entry.strip() for entry in value.split(",")):
        if entry.isascii() and entry.isdecimal():
            numbers.add(entry)
        elif not entry.startswith(("GPU-", "MIG-")):
            break  # it is read no further than the first entry that is no device
        elif uuid.lower().startswith(entry.lower()):
            return None
    if numbers >= {str(number) for number in range(count)}:
        return None
    return f"{name}={value} may hide it" if numbers else reason


def _driver(survey: Maybe[Survey], files: Files, said: Said) -> Driver:
    text = files.read("/proc/driver/nvidia/version")
    version, module = _kernel_module(text)
    if isinstance(version, Absent):
        told = _told(survey, "nvmlSystemGetDriverVersion", str)
        version = told if known(told) else version
    return Driver(
        version=version,
        library_version=_library_version(_told(survey, "nvmlSystemGetNVMLVersion", str)),
        cuda_version=_cuda_version(_told(survey, "nvmlSystemGetCudaDriverVersion_v2", int)),
        libcuda_version=said.why_not("init")
        if said.error("init")
        else _cuda_version(said.get("libcuda_version", int)),
        module=module,
        branch=_branch(_told(survey, "nvmlSystemGetDriverBranch", dict)),
        confidential_computing=_confidential(_told(survey, "nvmlSystemGetConfComputeState", dict)),
    )


def _told(survey: Maybe[Survey], function: str, kind: type[T]) -> Maybe[T]:
    answer = survey if isinstance(survey, Absent) else survey.get(function)
    if answer == "":
        return Absent(why=Why.failed, detail=f"{function}: an empty answer")
    if isinstance(answer, (Absent, kind)):
        return answer
    return Absent(why=Why.failed, detail=f"{function}: an answer of another shape: {str(answer)[:80]}")


def _kernel_module(text: Maybe[str]) -> tuple[Maybe[str], Maybe[Literal["open", "proprietary"]]]:
    """Version and flavour from `NVRM version: NVIDIA UNIX [Open ]… Kernel Module [for …]  VERSION  …`."""
    if isinstance(text, Absent):
        return text, text
    line = next((line for line in text.splitlines() if line.startswith("NVRM version:")), "")
    found = re.search(r"Kernel Module\b.*?\s(\d+\.\d+(?:\.\d+)*)\s", line + " ")
    if found is None:
        nonsense = Absent(why=Why.failed, detail=f"/proc/driver/nvidia/version: {text[:80]!r}")
        return nonsense, nonsense
    return found[1], "open" if "Open Kernel Module" in line else "proprietary"


def _library_version(version: Maybe[str]) -> Maybe[str]:
    """NVML puts CUDA's major version before the driver's: `13.580.159.04`."""
    if isinstance(version, Absent):
        return version
    first, _, rest = version.partition(".")
    return rest if first.isdecimal() and int(first) < 100 and "." in rest else version


def _cuda_version(number: Maybe[int]) -> Maybe[str]:
    """1000 × major + 10 × minor."""
    return number if isinstance(number, Absent) else f"{number // 1000}.{number % 1000 // 10}"


def _branch(info: Maybe[dict[str, Json]]) -> Maybe[str]:
    if isinstance(info, Absent):
        return info
    return str(info.get("branch") or "") or Absent(why=Why.failed, detail="no branch in the answer")


def _confidential(state: Maybe[dict[str, Json]]) -> Maybe[bool]:
    if isinstance(state, Absent):
        return state
    feature = state.get("ccFeature")
    return (
        feature != 0 if type(feature) is int else Absent(why=Why.failed, detail="no ccFeature in the answer")
    )


_Place = tuple[str, Maybe[str], str]
"""Path, version where a package tells it, `Library.origin`."""


def _reachable(files: Files, variables: Mapping[str, str], cache: str, said: Said) -> Iterator[_Place]:
    """Libraries that programs may pick up, the ones that go first before the others.

    `cache` is the output of `ldconfig -p`.
    """
    for path in _loaded(said):
        yield path, _UNVERSIONED, "loaded"
    for path in _paths(variables.get("LD_PRELOAD", "")):
        yield path, _UNVERSIONED, "LD_PRELOAD"
    for folder in variables.get("LD_LIBRARY_PATH", "").split(":"):
        names = files.list(folder) if folder.startswith("/") else ()
        for name in names if known(names) else ():
            if _NCCL_FILES.match(name) or _DRIVER_FILES.match(name):
                yield f"{folder.rstrip('/')}/{name}", _UNVERSIONED, "LD_LIBRARY_PATH"
    wheels = said.get("nccl_wheels", list)
    for wheel in wheels if known(wheels) else ():
        if isinstance(wheel, dict) and wheel.get("path"):
            version = wheel.get("version")
            yield str(wheel["path"]), str(version) if version else _UNVERSIONED, "wheel"
    for line in cache.splitlines():
        _, arrow, path = line.rpartition(" => ")
        if arrow:
            yield path.strip(), _UNVERSIONED, "ld.so.cache"


def _in_rocm(files: Files) -> Iterator[_Place]:
    """RCCL of every ROCm installation; a build of torch for ROCm mostly brings its own."""
    for name in or_none(files.list("/opt")) or ():
        folder = f"/opt/{name}/lib"
        for library in (or_none(files.list(folder)) or ()) if name.startswith("rocm") else ():
            if _RCCL_FILES.match(library):
                yield f"{folder}/{library}", _UNVERSIONED, "ROCm"


def _preloads(
    files: Files, variables: Mapping[str, str], preload_file: Maybe[str], said: Said
) -> Maybe[tuple[Library, ...]]:
    if isinstance(preload_file, Absent) and preload_file.why is not Why.not_present:
        return preload_file
    places: list[_Place] = [
        (path, _UNVERSIONED, "LD_PRELOAD") for path in _paths(variables.get("LD_PRELOAD", ""))
    ]
    for line in (or_none(preload_file) or "").splitlines():
        places += [(path, _UNVERSIONED, "/etc/ld.so.preload") for path in _paths(line.partition("#")[0])]
    places += [(path, _UNVERSIONED, "loaded") for path in _loaded(said) if INTERCEPTORS.search(path)]
    return _libraries(files, places, re.compile(""))


def _loaded(said: Said) -> tuple[str, ...]:
    return or_none(said_by.texts(said.get("libraries", list))) or ()


def _paths(text: str) -> list[str]:
    return text.replace(":", " ").split()


def _libraries(files: Files, places: Iterable[_Place], wanted: re.Pattern[str]) -> tuple[Library, ...]:
    """Those whose file name begins like `wanted`, each file once, with the version its real name ends in."""
    found: dict[str, Library] = {}
    for path, version, origin in places:
        if not wanted.match(path.rpartition("/")[2]):
            continue
        real = (or_none(files.resolve(path)) if path.startswith("/") else None) or path
        named = re.search(r"\.so\.(\d+(?:\.\d+)+)$", real)
        if isinstance(version, Absent) and named:
            version = named[1]
        first = found.get(real)
        if first is None:
            found[real] = Library(path=real, version=version, origin=origin)
        elif isinstance(first.version, Absent):
            found[real] = first.model_copy(update={"version": version})
    return tuple(found.values())


def _nccl_settings(shared: Maybe[str], said: Said) -> Maybe[tuple[tuple[str, str], ...]]:
    """/etc/nccl.conf, and the user's own file, which goes before it."""
    if isinstance(shared, Absent) and shared.why is not Why.not_present:
        return shared
    settings = {}
    for line in (or_none(shared) or "").splitlines():
        name, equals, value = (part.strip() for part in line.partition("="))
        if equals and name.startswith("NCCL_"):
            settings[name] = value
    own = said.get("nccl_settings", list)
    if isinstance(own, Absent):
        return own
    settings.update({str(pair[0]): str(pair[1]) for pair in own if isinstance(pair, list) and len(pair) == 2})
    return tuple(sorted(settings.items()))


def _nothing(looked: Maybe[object]) -> Maybe[tuple[()]]:
    """Nothing was found: because there is nothing, or because the place to look was closed."""
    return looked if isinstance(looked, Absent) else ()


def _toolkits(files: Files, commands: Commands, variables: Mapping[str, str]) -> Maybe[tuple[Toolkit, ...]]:
    installed = files.list("/usr/local")
    folders = [
        f"/usr/local/{name}" for name in (installed if known(installed) else ()) if name.startswith("cuda")
    ]
    folders += [
        variables[name] for name in ("CUDA_HOME", "CUDA_PATH") if variables.get(name, "").startswith("/")
    ]
    found: dict[str, Toolkit] = {}
    for folder in folders:
        real = or_none(files.resolve(folder))
        if real is None or real in found:
            continue
        version = _toolkit_version(files, real)
        if not (isinstance(version, Absent) and version.why is Why.not_present):
            found[real] = Toolkit(path=real, version=version)
    compiler = commands.run("nvcc")
    if known(compiler):
        named = re.search(r"\bV(\d+\.\d+\.\d+)", compiler.stdout)
        found["nvcc"] = Toolkit(
            path="nvcc on PATH",
            version=named[1] if named else Absent(why=Why.failed, detail="nvcc --version gave none"),
        )
    return tuple(found.values()) or _nothing(installed)


def _toolkit_version(files: Files, folder: str) -> Maybe[str]:
    """From version.json (CUDA >= 11.1), version.txt, or the folder's name where it holds a compiler."""
    text = files.read(f"{folder}/version.json")
    if known(text):
        try:
            return str(json.loads(text)["cuda"]["version"])
        except (ValueError, KeyError, TypeError, RecursionError):
            return Absent(why=Why.failed, detail=f"{folder}/version.json: {text[:80]!r}")
    text = files.read(f"{folder}/version.txt")
    if isinstance(text, Absent):
        dated = re.search(r"cuda-(\d+\.\d+)$", folder)
        return dated[1] if dated and "nvcc" in (or_none(files.list(f"{folder}/bin")) or ()) else text
    named = re.search(r"CUDA Version (\d+(?:\.\d+)+)", text)
    return named[1] if named else Absent(why=Why.failed, detail=f"{folder}/version.txt: {text[:80]!r}")


def _image_hints(files: Files, variables: Mapping[str, str]) -> tuple[str, ...]:
    hints = [f"{name}={variables[name]}" for name in _IMAGE_VARIABLES if variables.get(name)]
    for path in _IMAGE_FILES:
        text = or_none(files.read(path)) or ""
        named = re.search(r'^(?:PRETTY_NAME|build_name|serial)\s*[=:]\s*"?([^"\n]*)', text, re.MULTILINE)
        if named:
            hints.append(f"{path}: {named[1].strip()}")
    if known(files.list("/opt/nvidia/entrypoint.d")):
        hints.append("/opt/nvidia/entrypoint.d: made from one of NVIDIA's images")
    return tuple(hints)

"""Names and addresses as they stand in texts, and which names a recording gives away."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from nodecheck.sources.channel import Answers, Json
from nodecheck.sources.secrets import REDACTED

# Addresses.

MAC = re.compile(r"(?<![0-9A-Fa-f:])(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}(?![0-9A-Fa-f:])")
LONG_MAC = re.compile(r"(?<![0-9A-Fa-f:])(?:[0-9A-Fa-f]{2}:){19}[0-9A-Fa-f]{2}(?![0-9A-Fa-f:])")
"""InfiniBand's hardware address, which ends in the port's GUID."""
MAC_OTHERWISE = re.compile(
    r"(?<![\w-])(?P<key>01-)?(?P<dashes>[0-9A-Fa-f]{2}(?:-[0-9A-Fa-f]{2}){5})(?![\w-])"
    r"|(?<![\w.-])(?=[\d.]*[A-Fa-f])(?P<dots>[0-9A-Fa-f]{4}(?:\.[0-9A-Fa-f]{4}){2})(?!\w|[.-]\w)"
)
"""With dashes (after the boot loader's `BOOTIF=01-` too), or in three groups, which without a letter are a version."""
MAC_IN_NAME = re.compile(r"\b(enx|wlx|wwx)([0-9a-f]{12})\b")
"""systemd names a network port after its MAC address where it knows nothing better."""
IPV4 = re.compile(r"(?<![\w.])(?<![A-Za-z_]-)(?:\d{1,3}\.){3}\d{1,3}(?!\w|\.\w|-[A-Za-z]|-\d+(?![\d.]))")
"""Four numbers that are not part of a longer version or of a file's name (`12.4.5.8-1`, `cuda-12.4.5.8`)."""
VERSION_BEFORE = re.compile(
    r"(?:==|\b(?:version|ver|release|rev|revision|driver|firmware|fw|vbios|bios|build|cudnn|cublas|nccl|cuda)"
    r"[\s:=_/-]{0,3})$",
    re.IGNORECASE,
)
VERSION_KEY = re.compile(r"version|driver|firmware|vbios|cudnn|nccl|cuda|build", re.IGNORECASE)
NOBODYS_V4 = tuple(ipaddress.IPv4Network(block) for block in ("0.0.0.0/8", "127.0.0.0/8", "255.0.0.0/8"))
"""The unspecified address, loopback, network masks."""
_DOCUMENTED_V4 = tuple(
    ipaddress.IPv4Network(block)
    for block in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "198.18.0.0/15")
)
"""Blocks that no network should use (RFC 5737, RFC 2544); pseudonyms are taken from them in this order."""
IPV6 = re.compile(r"(?<![\w:.])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?![\w:]|\.\d)")
IPV6_BLOCKS = tuple(
    ipaddress.IPv6Network(block)
    for block in ("2000::/3", "fc00::/7", "fe80::/10", "::ffff:0:0/96", "64:ff9b::/96")
)
"""Global, unique local, link-local and mapped addresses: what else has this form is likelier something other."""
GIVEN_V4 = ipaddress.IPv4Network("192.0.2.0/24")
GIVEN_V6 = ipaddress.IPv6Network("2001:db8::/112")
GIVEN_MAC = "020000"
"""What earlier scrubs gave as pseudonyms."""

# Names.

HOME = re.compile(
    r"(?P<key>/(?:homes?\d{0,2}|[Uu]sers)/|(?<![\w./-])/u/)(?P<value>[^/\s:;,\"'()\[\]{}<>|\\]+)"
)
USER_OPTION = re.compile(
    r"(?P<key>\b(?:user|username|login)=|\bacct=\"?|\b(?:[A-Z0-9]+_){0,4}(?:USER|USERNAME|LOGNAME)="
    r"|\bsession (?:opened|closed) for user |\b(?:Accepted|Failed) \w+ for (?:invalid user )?|\bInvalid user "
    r"|\buid=\d{1,10}\(|/crontabs/|\bssh -l |\bsudo -u )"
    r"(?P<value>[A-Za-z_][\w.-]*)"
)
USER_VARIABLE = re.compile(r"(?:[A-Z0-9]+_){0,4}(?:USER|USERNAME|LOGNAME)")
HOST_VARIABLE = re.compile(r"(?:[A-Z0-9]+_){0,4}(?:HOSTNAME|NODENAME|MASTER_ADDR|HOSTID|COMM_ID)")
HOST_VALUE = re.compile(r"(?P<host>[A-Za-z_][\w.-]*)(?P<port>:\d{1,5})?")
"""What stands in such a variable, if it is a name."""
LOGIN = re.compile(
    r"(?<![\w.+/@-])(?P<user>\[redacted\]|(?!(?:buildd|mockbuild|kbuild|abuild)@)[A-Za-z_][\w.-]{0,63})@"
    r"(?P<host>(?!(?:sha256|latest|main|master|tty\w*|v?\d[\w.]*|[0-9a-f]{7,40})(?![\w.-])|example\.org\b"
    r"|[\w.-]+\.(?:service|socket|target|mount|automount|slice|scope|timer|path|swap|device|so|py)\b)"
    r"[A-Za-z][\w.-]{0,252}(?<![.-])|(?=\d{1,3}(?:\.\d{1,3}){3}))"
)
"""`user@host`, as ssh has it; but who built a distribution's kernel, and where, is no secret."""
LUSTRE = re.compile(r"(?<![\w.-])(?P<host>[A-Za-z][\w.-]{0,252})@(?=(?:o2ib|tcp|gni|kfi|ptlf)\d*(?![\w.]))")
"""A server of Lustre by its name and network."""
LUSTRE_NETWORK = re.compile(r"(?:o2ib|tcp|gni|kfi|ptlf|lo)\d*")
CEPH_MOUNT = re.compile(r"(?<![\w.-])(?P<user>[\w-][\w.-]{0,63})@(?=(?:[0-9a-f-]{36})?\.[\w.-]{1,64}=/)")
"""`name@fsid.filesystem=/path`, the newer form of a mount's source."""
CEPH_ENTITY = re.compile(r"(?P<key>\b(?P<what>mon|mds|mgr|client)\.)(?P<value>[A-Za-z][\w-]*)")
INTERNAL = re.compile(
    r"(?:(?<![\w./@-])|(?<=://))(?:[A-Za-z0-9-]{1,63}\.){1,8}"
    r"(?:internal|local|lan|corp|intra|intranet|localdomain|home\.arpa)(?![\w(-]|\.\w)"
)
"""Names that only mean something inside somebody's network."""
EMAIL = re.compile(
    r"(?<![\w.+/-])(?P<user>[A-Za-z0-9][\w.+-]{0,63})@(?:[A-Za-z0-9-]{1,63}\.){1,8}"
    r"(?!(?:service|socket|target|mount|automount|slice|scope|timer|path|swap|device|so|py)\b)[A-Za-z]{2,24}\b(?![:=]/)"
)
ACCOUNT_OPTION = re.compile(r"(?P<key>[\s,](?P<what>name|domain)=)(?P<value>[^\s,]+)")
"""Whose account a Ceph or SMB mount uses; other file systems call other things by these words."""
WITH_ACCOUNTS = (" ceph ", " fuse.ceph ", " cifs ", " smb3 ", " smbfs ")
CLOUD_HOST = re.compile(r"\bip-\d{1,3}(?:-\d{1,3}){3}(?:\.[a-z0-9-]+)*")
"""AWS names a machine after its address."""
_HOST_SAID = re.compile(
    r"Hostname set to <([^<>\s]{1,253})>|\bhostname=([A-Za-z][\w.-]{0,252})"
    rf"|\b{HOST_VARIABLE.pattern}=([A-Za-z][\w.-]{{0,252}})"
    r"|://(?:[^/\s@]{1,256}@)?([A-Za-z][\w-]{1,62}):\d{1,5}(?!\d)"
    r"|\bserver ([A-Za-z][\w.-]{0,252}) (?:not responding|OK\b|error|timed out)"
)
_JOURNAL_HOST = re.compile(r"^\[ *\d+\.\d+\] ([\w.-]{1,253}) kernel: ", re.MULTILINE)
_MOUNT_SERVERS = re.compile(r"(?P<several>[^/\s=]{1,2000}):/|//(?:[^/\s@]{1,256}@)?(?P<one>[A-Za-z][\w.-]*)/")
"""Whose file system it is that a mount's source names: `filer:/export`, `mon1,mon2:6789:/`, `//nas/share`."""
PSEUDONYM = re.compile(r"(?:host|user|ip|mac)-\d+")
EARLIER = re.compile(r"(?<![\w.-])(?P<kind>host|user)-\d+(?![A-Za-z0-9]|\.slice)")
"""What an earlier scrub gave; but systemd's `user-0.slice` has a user's number in it."""
DOMAIN_TAIL = (
    r"(?:(?:\.[A-Za-z0-9-]+)*"
    r"\.(?!(?:log|json|txt|conf|so|py|sh|service|socket|mount|slice|scope)\b)[A-Za-z]{2,})?"
)
"""Further labels of a host's name, unless they are the ending of a file or unit."""
_IMAGES = (
    "root ubuntu debian centos rocky fedora almalinux admin administrator user users default guest nobody "
    "ec2-user azureuser opc nvidia jovyan coder runner vscode conda mambauser linuxbrew localhost git www-data "
    "postgres mysql slurm munge sshd daemon messagebus redacted"
)
NOBODY = frozenset(_IMAGES.split())
"""Names that images come with: they say nothing about anybody and stay."""
_WORDS = (
    "vm node host server worker master head login cluster machine gpu gpus cpu linux kernel container docker pod "
    "test dev prod lab data work home app apps run model models cache scratch shared share mnt opt usr lib bin var "
    "tmp local system systemd python python3 torch cuda nccl nvlink nvswitch pci pcie memory link fatal error xid "
    "sxid severity driver module device devices boot disk storage public private train training inference research "
    "project projects team staff student students demo main base env venv bash shell code src build service ip mac "
    "github gitlab bitbucket huggingface pypi docker nvcr ghcr quay example"
)
COMMON = NOBODY | frozenset(_WORDS.split())
"""Words that are replaced only where they clearly stand for a name (a home folder, the answer to `uname`)."""
PUBLIC = ("github.com", "gitlab.com", "bitbucket.org", "huggingface.co", "hf.co", "example.org")
"""Where everybody logs in."""
_WORD = re.compile(r"[a-z0-9-]+")
MAX_LEARNED = 300
"""Names of users, and of hosts, that are looked for everywhere.

Each is tried at each word of a log of megabytes. Of more, those that stand in the recording most often are looked
for; the others are replaced only where they clearly stand for a name.
"""


def most_used(names: Iterable[str]) -> list[str]:
    used = Counter(names)
    return sorted(used, key=lambda name: (-used[name], -len(name), name))[:MAX_LEARNED]


def telling(name: str, kept: frozenset[str]) -> bool:
    """Whether a name may be replaced wherever it stands as a word of its own."""
    return len(name) >= 3 and not name.isdigit() and name not in kept and not PSEUDONYM.fullmatch(name)


def any_of(words: Iterable[str]) -> str:
    return "|".join(re.escape(word) for word in sorted(words, key=lambda word: (-len(word), word)))


def _value(answers: Answers, source: str, question: str, key: str = "") -> str:
    """A text of the recording, or nothing."""
    stored = answers.get(source, {}).get(question)
    value = stored.get("value") if isinstance(stored, Mapping) else None
    if key:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, str) else ""


def strings(value: Json) -> Iterator[str]:
    """Every string in `value`, keys too."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            waiting += [*item.values(), *item.keys()]
        elif isinstance(item, (list, tuple)):
            waiting += item


def own_names(answers: Answers) -> tuple[str, ...]:
    return (
        _value(answers, "process", "uname", "node"),
        _value(answers, "files", "read /proc/sys/kernel/hostname").strip(),
        _value(answers, "files", "read /etc/hostname").strip(),
    )


def hosts(answers: Answers) -> Iterator[str]:
    """Names of this node, of the servers whose file systems it mounts, and of machines that somebody logs in to."""
    yield from own_names(answers)
    yield from _JOURNAL_HOST.findall(_value(answers, "commands", "journal", "stdout"))
    for line in _value(answers, "files", "read /proc/self/mounts").split("\n"):
        yield from _servers(line.partition(" ")[0])
    for key, text in keyed(answers):
        if key == "device":
            yield from _servers(text)
        elif HOST_VARIABLE.fullmatch(key) and (said := HOST_VALUE.fullmatch(text)):
            yield said["host"]
    for text in strings(answers):
        for named in _HOST_SAID.findall(text):
            yield from filter(None, named)
        if "@" in text:
            yield from (found["host"] for found in LUSTRE.finditer(text))
            for login in LOGIN.finditer(text):
                if not LUSTRE_NETWORK.fullmatch(login["host"]) and not login["host"].lower().endswith(PUBLIC):
                    yield login["host"]
        yield from (found[0] for found in INTERNAL.finditer(text))


def _servers(source: str) -> Iterator[str]:
    """The machines in a mount's source, by name; of Ceph, Lustre and NFS there may be several."""
    found = _MOUNT_SERVERS.match(source)
    if found is None:
        return
    names = [found["one"]] if found["one"] else re.split("[,:]", found["several"])
    for name in names:
        name = (
            name.rpartition("@")[2]
            if not LUSTRE_NETWORK.fullmatch(name.rpartition("@")[2])
            else name.partition("@")[0]
        )
        if re.fullmatch(r"[A-Za-z][\w.-]*[A-Za-z0-9]", name):
            yield name


def users(answers: Answers) -> Iterator[str]:
    """Whose home folders, whose names, and who logs in to where, stand anywhere."""
    for key, text in keyed(answers):
        if USER_VARIABLE.fullmatch(key):
            yield text
    for text in strings(answers):
        for pattern in (HOME, USER_OPTION):
            yield from (found["value"] for found in pattern.finditer(text))
        if "@" in text:
            yield from (found["user"] for found in CEPH_MOUNT.finditer(text))
            for login in LOGIN.finditer(text):
                if not LUSTRE_NETWORK.fullmatch(login["host"]) and login["user"] != REDACTED:
                    yield login["user"]


def keyed(value: Json, name: str = "") -> Iterator[tuple[str, str]]:
    """Every text with what it is the value of: a key, or the name in a pair; else what all of it is called."""
    waiting: list[tuple[str, Json]] = [(name, value)]
    while waiting:
        key, item = waiting.pop()
        if isinstance(item, str):
            yield key, item
        elif isinstance(item, Mapping):
            waiting += [
                (key if name in ("value", "detail") else str(name), inner) for name, inner in item.items()
            ]
        elif isinstance(item, (list, tuple)):
            if len(item) == 2 and all(isinstance(inner, str) for inner in item):
                waiting.append((item[0], item[1]))
            else:
                waiting += [(key, inner) for inner in item]


def vocabulary(answers: Answers) -> frozenset[str]:
    """Words that facts are made of here: a host called `h200` must not take the card's name with it."""
    files = answers.get("files", {})
    texts = [*strings(answers.get("nvml", {})), *strings(answers.get("amdsmi", {}))]
    texts += strings(answers.get("commands", {}).get("amd_smi_static"))
    texts += [question for question in files if re.match(r"\w+ /(?:proc|sys|dev|etc)/", question)]
    texts += [*strings(files.get("read /etc/os-release")), *strings(files.get("read /proc/cpuinfo"))]
    words = {word for text in texts for word in _WORD.findall(text.lower())}
    return frozenset(words | {part for word in words for part in word.split("-")})


def documented_v4(n: int) -> str:
    for block in _DOCUMENTED_V4:
        if n < block.num_addresses - 1:
            return str(block[n])
        n -= block.num_addresses - 2
    return REDACTED

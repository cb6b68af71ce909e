"""What must not leave the node is replaced in a recording: secrets always, names and addresses unless wanted.

The same name gets the same pseudonym everywhere, in answers and in questions, so that the probes read the same
facts from a scrubbed recording. What looks like a name and is none (PCI addresses, versions, paths of procfs and
sysfs, lists of CPUs) stays as it is.
"""

from __future__ import annotations

import ipaddress
import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from nodecheck.sources.channel import Json
from nodecheck.sources.process import ENVIRONMENT_NAMES, ENVIRONMENT_PREFIXES

Answers = Mapping[str, Mapping[str, Json]]
"""Question → encoded answer, for each source's name."""

Kind = Literal["secret", "host", "user", "ip", "ipv4", "ipv6", "mac", "uuid", "serial"]

REDACTED = "[redacted]"


def scrub(
    answers: Answers,
    *,
    keep_identity: bool = False,
    scrub_serials: bool = False,
    hosts: Iterable[str] = (),
    users: Iterable[str] = (),
) -> tuple[dict[str, dict[str, Json]], dict[Kind, int]]:
    """A scrubbed copy of a recording's answers, and how many different values of each kind were replaced.

    Secrets go in any case. `keep_identity` leaves host names, user names and network addresses;
    `scrub_serials` replaces UUIDs and serial numbers of cards too. `hosts` and `users` are names beyond those
    that the recording itself gives away.
    """
    scrubber = _Scrubber(keep_identity=keep_identity, scrub_serials=scrub_serials)
    scrubber.learn([answers], hosts, users)
    scrubbed = {
        source: {
            scrubber.text(question): scrubber.answer(source, question, answers[source][question])
            for question in sorted(answers[source])
        }
        for source in sorted(answers)
    }
    return scrubbed, scrubber.counts()


def without_secrets(facts: Json) -> Json:
    """Facts as JSON, the same but for secrets: names and addresses stay, since a report says which node it is of."""
    return _Scrubber(keep_identity=True, scrub_serials=False).document(facts)


@dataclass(frozen=True)
class Replaced:
    """One pseudonym, and how often it stands for what was replaced. `name` is empty for secrets, which have none."""

    kind: Kind
    name: str
    times: int


@dataclass(frozen=True)
class Part:
    """What one source gave: documents of ours, and raw answers, whose names are learned together."""

    node: str
    """Which node it is of: its own name is the same in all parts of it."""
    answers: Answers
    hosts: tuple[str, ...] = ()
    """Names of the node itself."""
    scrubbed: bool = False
    """Names and addresses in it are pseudonyms already, and mean what they mean in this part alone."""


class Redaction:
    """What goes out to others, of several nodes at once: secrets, names and addresses are replaced, alike everywhere.

    Addresses become words (`ip-3`, `mac-1`), since nobody is to parse them any more.
    """

    def __init__(
        self, parts: Sequence[Part], *, kept: Iterable[str] = (), scrub_serials: bool = False
    ) -> None:
        """`kept` are the words that facts and findings are made of: a name that is one of them goes only where it
        clearly stands for a name."""
        self._scrubber = _Scrubber(keep_identity=False, scrub_serials=scrub_serials, words=True)
        self._parts = tuple(parts)
        for part in self._parts:
            self._scrubber.own(part.node, (*part.hosts, *_own_names(part.answers)))
        hosts = [name for part in self._parts for name in part.hosts]
        self._scrubber.learn([part.answers for part in self._parts], hosts, (), kept)

    def document(self, part: int, value: Json) -> Json:
        """JSON of ours (facts, a report), whose keys are known to say nothing."""
        self._enter(part)
        return self._scrubber.document(value)

    def answers(self, part: int, source: str, answers: Mapping[str, Json]) -> dict[str, Json]:
        """Raw answers of a source, question → encoded answer."""
        self._enter(part)
        return {
            self._scrubber.text(question): self._scrubber.answer(source, question, answers[question])
            for question in sorted(answers)
        }

    def json(self, part: int, value: Json) -> Json:
        """Any other JSON; what a key calls a secret goes too."""
        self._enter(part)
        return self._scrubber.json(value)

    def text(self, part: int, text: str) -> str:
        self._enter(part)
        return self._scrubber.text(text, context="settings")

    def replaced(self) -> tuple[Replaced, ...]:
        """What stands for what was replaced, by kind; never what was replaced."""
        return self._scrubber.replaced()

    def _enter(self, part: int) -> None:
        self._scrubber.enter(f"{part}", self._parts[part].node, scrubbed=self._parts[part].scrubbed)


_SETTINGS = ("boot_command_line", "environment", "nccl_settings", "image_hints")
"""Facts that are settings: lines of `key=value`, and pairs of a name and its value."""


Context = Literal["prose", "settings", "mounts"]
"""What a text is: prose and logs; settings (environment, boot command line); mounts, whose options commas part."""


def _context(question: str) -> Context:
    if question == "read /proc/self/mounts":
        return "mounts"
    if question in ("environment", "read /proc/cmdline", "read /etc/nccl.conf") or question.endswith(
        "/environ"
    ):
        return "settings"
    return "prose"


# Secrets, by what they are called and by how they look.

_CALLED = (
    r"(?:passw(?:or)?d|passphrase|secret|token|credential|(?:api|access|private|account|auth|signing|encryption)[_-]?key"
    r"|connection[_-]?string|shared[_-]?access[_-]?signature|psk)s?(?:[_.-][\w.-]{0,40})?"
)
_SECRET_KEY = re.compile(rf"[\w.-]{{0,60}}{_CALLED}|(?:[\w.-]{{0,60}}[_.-])?(?:key|pass)", re.IGNORECASE)
_SECRET_VARIABLE = re.compile(rf"(?-i:(?=[A-Z][A-Z0-9_]*\Z))(?:{_SECRET_KEY.pattern})", re.IGNORECASE)
"""The name in a pair of a variable and its value."""
_SECRET_OPTION = re.compile(rf"--?[\w-]{{0,40}}?{_CALLED}", re.IGNORECASE)
"""An argument of a program whose next argument is the secret."""
_QUOTE = r"(?:\\{0,64}[\"']|&quot;|&#3[49];)"
"""As it stands in JSON, in JSON inside JSON, and in HTML."""
_KEY_BEFORE = (
    rf"(?P<key>(?<![\w.-])[\w.-]{{0,60}}?{_CALLED}{_QUOTE}?\s{{0,3}}[=:]\s{{0,3}}|(?<!\S){_SECRET_OPTION.pattern}\s+"
    r"|(?<![\w.-])(?:[\w.-]{0,60}[_.-])?(?:key|pass|sig|signature)="
    rf"|{_QUOTE}(?:pass|pw|sig){_QUOTE}\s{{0,3}}:\s{{0,3}})"
)
_VALUE = (
    r"(?P<value>\\{1,64}\"(?:(?!\\{1,64}\").){0,4096}\\{1,64}\"|\"(?:[^\"\\]|\\.)*\"|'[^']*'|&quot;.{0,4096}?&quot;"
    r"|[^\s\"'\\]+|[\\\"'].*)"
)
"""Quoted, or up to the next blank; the whole line where a quotation has no end."""
_QUOTED = re.compile(rf"({_QUOTE}).*\1\Z", re.DOTALL)
_ASSIGNED = re.compile(_KEY_BEFORE + _VALUE, re.IGNORECASE)
_ASSIGNED_OPTION = re.compile(_KEY_BEFORE + r"(?P<value>[^\s,]+)", re.IGNORECASE)
_AUTHORIZATION = re.compile(
    rf"(?P<key>\bauthorization{_QUOTE}?\s{{0,3}}[:=]\s{{0,3}}{_QUOTE}?(?:(?:bearer|basic|token|digest|negotiate)\s+)?"
    r"|\bbearer\s+)(?P<value>[^\s,;\"'\\]+)",
    re.IGNORECASE,
)
_AUTH_ENCODED = re.compile(
    rf"(?P<key>(?<![A-Za-z])(?:_?auth{_QUOTE}?\s{{0,3}}[:=]\s{{0,3}}{_QUOTE}?|Basic\s+(?=[A-Za-z+/]*[\d=])))"
    r"(?P<value>[A-Za-z0-9+/_-]{8,}={0,2})"
)
"""What `docker login` and npm store, and the header without its name: `user:password` in base64."""
_COOKIE = re.compile(
    rf"(?P<key>\b(?:set-)?cookie{_QUOTE}?\s{{0,3}}[:=]\s{{0,3}})(?P<value>.+)", re.IGNORECASE
)
_URL_CREDENTIALS = re.compile(
    r"(?P<key>\b[a-z][a-z0-9+.-]{1,20}://)"
    r"(?P<value>[^/\s\"'\\]{1,256}|[^/\s:@\"'\\]{1,64}:[^\s@\"'\\]{1,256})(?=@)",
    re.IGNORECASE,
)
_PASSWORD_SHORT = re.compile(
    r"(?P<key>(?<![\w.-])(?-i:(?!(?:OLD)?PWD=/))(?:[\w.-]{0,60}?pwd|(?:[\w.-]{0,60}[_.-])?pw)"
    rf"{_QUOTE}?\s{{0,3}}[=:]\s{{0,3}}{_QUOTE}?)(?P<value>[^\s\"'\\]+)",
    re.IGNORECASE,
)
"""But `PWD=/work` is the folder somebody is in."""
_PASSWORD_AFTER = re.compile(
    r"(?P<key>(?<![\w.-])[A-Z0-9_]{0,40}(?:PASSWORD|PASSWD)[ \t]{1,3})(?P<value>(?![=:\[])\S+)"
)
_NETRC = re.compile(r"(?P<key>\blogin\s+\S+\s+password\s+)(?P<value>\S+)", re.IGNORECASE)
_WANDB = re.compile(
    r"(?P<key>\bwandb\b.{0,80}?(?<![0-9a-f]))(?P<value>[0-9a-f]{40})(?![0-9a-f])", re.IGNORECASE
)
"""Its key looks like a commit: what is one only where it stands says so."""
_LOGIN_BEFORE_HOST = re.compile(
    r"(?P<key>(?<![\w:/])//|\biscsi:)(?P<value>[^/\s:@\"']{1,64}:[^/\s@\"']{1,256})(?=@)"
)
"""`//user:password@host` without a scheme, and dracut's `netroot=iscsi:user:password@host`."""
_OPTION_P = re.compile(
    r"(?P<key>(?<!\S)-p[ =])"
    r"(?P<value>(?![-/.~$[|;&<>]|\d+(?:[:,-]\d+)*(?![^\s,;.)])|(?:no:|h?\d+x?)?[\w.]*x\d+(?!\S))[^\s\"'\\]+)"
)
"""`-p VALUE`: a password, unless it is a number, a port, a path or, as nodecheck's own `-p`, a bundle's name."""
_OTHER_P = re.compile(
    r"\b(?:timedatectl|systemctl|loginctl|resolvectl|sysctl|ldconfig|nodecheck|mkdir|cp|tar|ps|ss|lsof|perl|screen|tmux"
    r"|install|pytest)(?:\s+[a-z-]+)?\s+\Z"
)
"""Programs whose `-p` is something else, right before it."""
_OPTION_P_JOINED = re.compile(
    r"(?P<key>\b(?:mysql\w*|mariadb\w*|sshpass|ipmitool|redis-cli|ldap\w*)\b.{0,400}?\s-[pPaw]\s?)(?P<value>[^\s-]\S*)"
)
"""Programs that take it without a blank, or by another letter."""
_OPTION_U = re.compile(
    rf"(?P<key>(?<!\S)(?:-u|-U|--user|--proxy-user)[ =]?{_QUOTE}?[^\s:@\"'\\]{{1,64}}:)"
    r"(?P<value>(?!\d+(?!\S))[^\s\"'\\]+)"
)
"""curl's `-u user:password`; but `-u 1000:1000` are numbers of a user and a group."""
_SUSPICIOUS = (
    "pass", "secret", "token", "credential", "key", "psk", "sig", "bearer", "auth", "basic", "cookie", "pw", "//",
    "iscsi:", "wandb", "-p", "-u", "--user", "--proxy-user", "connection", "ipmitool", "redis-cli", "ldap",
)  # fmt: skip
"""One of these stands in every line that the patterns above match; most lines of a log hold none."""
_KEY_BEGINS = re.compile(r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----")
_KEY_ENDS = re.compile(r"-----END [A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----")
_SHAPES = re.compile(
    "|".join(
        (
            rf"{_KEY_BEGINS.pattern}(?:.|\n)*?(?:{_KEY_ENDS.pattern}|\Z)",
            r"\beyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)*",  # JSON web token, signed or encrypted
            r"\b(?:AKIA|ASIA|AGPA|AIDA|AROA|ANPA|ABIA|ACCA)[A-Z0-9]{16}\b|\bLTAI[A-Za-z0-9]{12,26}\b",  # AWS, Alibaba
            r"\b(?:hf|gsk|r8|npm|dckr_pat|dckr_oat|github_pat|gh[pousr]|[sr]k_live|[sr]k_test|rpa|api_org|whsec"
            r"|wandb_v1|lin_api|glsa|glc|shp(?:at|ca|pa|ss)|pscale_(?:tkn|oauth|pw)|sntry[su])_\w{16,}",
            r"\b(?:ntn|secret)_(?=\w{0,60}\d)[A-Za-z0-9]{20,}",  # Notion, Lambda
            r"\b(?:nvapi|gl(?:pat|dt|rt|ptt|cbt|soat)|tskey|xox[abeoprs]|xapp|hv[sbr]|ya29|do[opr]_v1|xai|pplx|ATATT3)"
            r"[-_.=][\w.=-]{16,}",
            r"\bsk-(?=[\w-]{0,40}\d)[\w-]{16,}",  # OpenAI, Anthropic
            r"\bhooks\.slack\.com/(?:services|workflows|triggers)/[\w/-]+|\bSG\.[\w-]{16,}\.[\w-]{16,}",
            r"\bAIza[\w-]{30,}|\bGOCSPX-[\w-]{20,}|\b1//0[\w-]{30,}",  # Google
            r"\bpypi-[\w-]{40,}|\bdapi[0-9a-f]{32}\b|\bSK[0-9a-f]{32}\b|\bkey-[0-9a-f]{32}\b",  # PyPI, Databricks, …
            r"(?<![\w~.-])[\w~.-]{3}\dQ~[\w~.-]{31,34}|(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{86}==",  # Azure
            r"\bAQ[A-Za-z0-9+/]{36}==|\bAGE-SECRET-KEY-1[0-9A-Z]{20,}",  # Ceph, age
            r"\b\d{8,10}:AA[\w-]{32,}|\b[MNO][\w-]{23,25}\.[\w-]{6}\.[\w-]{27,}",  # Telegram, Discord
            r"\bdp\.(?:pt|st|ct|sa)\.\w{20,}|\b[\w-]{14}\.atlasv1\.[\w-]{30,}",  # Doppler, Terraform
        )
    )
)
_RANDOM = re.compile(r"(?<![\w./+-])[A-Za-z0-9+_-]{32,}={0,2}(?![\w./+-])")
_AWS_SECRET = re.compile(
    r"(?<![\w./+=-])(?=[A-Za-z0-9]{0,39}[+/])(?=(?:[^A-Z\s]*[A-Z]){5})(?=(?:[^a-z\s]*[a-z]){5})(?=\D{0,39}\d)"
    r"[A-Za-z0-9+/]{40}(?![\w./+=-])"
)
"""AWS's secret keys have no shape of their own but their length and signs."""


def _looks_random(word: str) -> bool:
    """Whether a long word among settings can only be a secret: capitals, small letters and digits mixed."""
    mixed = all(sum(map(test, word)) >= 3 for test in (str.isupper, str.islower, str.isdigit))
    return mixed and not _CARD_UUID.search(word)


# Addresses.

_MAC = re.compile(r"(?<![0-9A-Fa-f:])(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}(?![0-9A-Fa-f:])")
_LONG_MAC = re.compile(r"(?<![0-9A-Fa-f:])(?:[0-9A-Fa-f]{2}:){19}[0-9A-Fa-f]{2}(?![0-9A-Fa-f:])")
"""InfiniBand's hardware address, which ends in the port's GUID."""
_MAC_OTHERWISE = re.compile(
    r"(?<![\w-])(?P<key>01-)?(?P<dashes>[0-9A-Fa-f]{2}(?:-[0-9A-Fa-f]{2}){5})(?![\w-])"
    r"|(?<![\w.-])(?=[\d.]*[A-Fa-f])(?P<dots>[0-9A-Fa-f]{4}(?:\.[0-9A-Fa-f]{4}){2})(?!\w|[.-]\w)"
)
"""With dashes (after the boot loader's `BOOTIF=01-` too), or in three groups, which without a letter are a version."""
_MAC_IN_NAME = re.compile(r"\benx([0-9a-f]{12})\b")
"""systemd names a network port after its MAC address where it knows nothing better."""

_IPV4 = re.compile(r"(?<![\w.])(?<![A-Za-z_]-)(?:\d{1,3}\.){3}\d{1,3}(?!\w|\.\w|-[A-Za-z]|-\d+(?![\d.]))")
"""Four numbers that are not part of a longer version or of a file's name (`12.4.5.8-1`, `cuda-12.4.5.8`)."""
_VERSION_BEFORE = re.compile(
    r"(?:==|\b(?:version|ver|release|rev|revision|driver|firmware|fw|vbios|bios|build|cudnn|cublas|nccl|cuda)"
    r"[\s:=_/-]{0,3})$",
    re.IGNORECASE,
)
_VERSION_KEY = re.compile(r"version|driver|firmware|vbios|cudnn|nccl|cuda|build", re.IGNORECASE)
_NOBODYS_V4 = tuple(ipaddress.IPv4Network(block) for block in ("0.0.0.0/8", "127.0.0.0/8", "255.0.0.0/8"))
"""The unspecified address, loopback, network masks."""
_DOCUMENTED_V4 = tuple(
    ipaddress.IPv4Network(block)
    for block in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "198.18.0.0/15")
)
"""Blocks that no network should use (RFC 5737, RFC 2544); pseudonyms are taken from them in this order."""

_IPV6 = re.compile(r"(?<![\w:.])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?![\w:]|\.\d)")
_IPV6_BLOCKS = tuple(
    ipaddress.IPv6Network(block)
    for block in ("2000::/3", "fc00::/7", "fe80::/10", "::ffff:0:0/96", "64:ff9b::/96")
)
"""Global, unique local, link-local and mapped addresses: what else has this form is likelier something other."""
_GIVEN_V4 = ipaddress.IPv4Network("192.0.2.0/24")
_GIVEN_V6 = ipaddress.IPv6Network("2001:db8::/112")
_GIVEN_MAC = "020000"
"""What earlier scrubs gave as pseudonyms."""

# Names.

_HOME = re.compile(r"(?P<key>/(?:homes?|[Uu]sers)/|(?<![\w./-])/u/)(?P<value>[^/\s:;,\"'()\[\]{}<>|\\]+)")
_USER_OPTION = re.compile(
    r"(?P<key>\b(?:user|username|login)=|\bacct=\"?|\b(?:[A-Z0-9]+_){0,4}(?:USER|USERNAME|LOGNAME)="
    r"|\bsession (?:opened|closed) for user |\b(?:Accepted|Failed) \w+ for (?:invalid user )?)"
    r"(?P<value>[A-Za-z_][\w.-]*)"
)
_USER_VARIABLE = re.compile(r"(?:[A-Z0-9]+_){0,4}(?:USER|USERNAME|LOGNAME)")
_HOST_VARIABLE = re.compile(r"(?:[A-Z0-9]+_){0,4}(?:HOSTNAME|NODENAME|MASTER_ADDR)")
_LOGIN = re.compile(
    r"(?<![\w.+/@-])(?P<user>\[redacted\]|(?!(?:buildd|mockbuild|kbuild|abuild)@)[A-Za-z_][\w.-]{0,63})@"
    r"(?P<host>(?!(?:sha256|latest|main|master|tty\w*|v?\d[\w.]*|[0-9a-f]{7,40})(?![\w.-])|example\.org\b"
    r"|[\w.-]+\.(?:service|socket|target|mount|automount|slice|scope|timer|path|swap|device|so|py)\b)"
    r"[A-Za-z][\w.-]{0,252}(?<![.-])|(?=\d{1,3}(?:\.\d{1,3}){3}))"
)
"""`user@host`, as ssh has it; but who built a distribution's kernel, and where, is no secret."""
_LUSTRE = re.compile(r"(?<![\w.-])(?P<host>[A-Za-z][\w.-]{0,252})@(?=(?:o2ib|tcp|gni|kfi|ptlf)\d*(?![\w.]))")
"""A server of Lustre by its name and network."""
_LUSTRE_NETWORK = re.compile(r"(?:o2ib|tcp|gni|kfi|ptlf|lo)\d*")
_CEPH_MOUNT = re.compile(r"(?<![\w.-])(?P<user>[\w-][\w.-]{0,63})@(?=(?:[0-9a-f-]{36})?\.[\w.-]{1,64}=/)")
"""`name@fsid.filesystem=/path`, the newer form of a mount's source."""
_CEPH_ENTITY = re.compile(r"(?P<key>\b(?P<what>mon|mds|mgr|client)\.)(?P<value>[A-Za-z][\w-]*)")
_INTERNAL = re.compile(
    r"(?<![\w./@-])(?:[A-Za-z0-9-]{1,63}\.){1,8}"
    r"(?:internal|local|lan|corp|intra|intranet|localdomain|home\.arpa)(?![\w(-]|\.\w)"
)
"""Names that only mean something inside somebody's network."""
_EMAIL = re.compile(
    r"(?<![\w.+/-])(?P<user>[A-Za-z0-9][\w.+-]{0,63})@(?:[A-Za-z0-9-]{1,63}\.){1,8}"
    r"(?!(?:service|socket|target|mount|automount|slice|scope|timer|path|swap|device|so|py)\b)[A-Za-z]{2,24}\b(?![:=]/)"
)
_ACCOUNT_OPTION = re.compile(r"(?P<key>[\s,](?P<what>name|domain)=)(?P<value>[^\s,]+)")
"""Whose account a Ceph or SMB mount uses; other file systems call other things by these words."""
_WITH_ACCOUNTS = (" ceph ", " fuse.ceph ", " cifs ", " smb3 ", " smbfs ")
_CLOUD_HOST = re.compile(r"\bip-\d{1,3}(?:-\d{1,3}){3}(?:\.[a-z0-9-]+)*")
"""AWS names a machine after its address."""
_HOST_SAID = re.compile(
    r"Hostname set to <([^<>\s]{1,253})>|\b(?:hostname|HOSTNAME|NODENAME|MASTER_ADDR)=([A-Za-z][\w.-]{0,252})"
    r"|\bserver ([A-Za-z][\w.-]{0,252}) (?:not responding|OK\b|error|timed out)"
)
_JOURNAL_HOST = re.compile(r"^\[ *\d+\.\d+\] ([\w.-]{1,253}) kernel: ", re.MULTILINE)
_MOUNT_SERVERS = re.compile(r"(?P<several>[^/\s=]{1,2000}):/|//(?:[^/\s@]{1,256}@)?(?P<one>[A-Za-z][\w.-]*)/")
"""Whose file system it is that a mount's source names: `filer:/export`, `mon1,mon2:6789:/`, `//nas/share`."""
_PSEUDONYM = re.compile(r"(?:host|user|ip|mac)-\d+")
_EARLIER = re.compile(r"(?<![\w.-])(?P<kind>host|user)-\d+(?![A-Za-z0-9]|\.slice)")
"""What an earlier scrub gave; but systemd's `user-0.slice` has a user's number in it."""
_DOMAIN_TAIL = (
    r"(?:(?:\.[A-Za-z0-9-]+)*"
    r"\.(?!(?:log|json|txt|conf|so|py|sh|service|socket|mount|slice|scope)\b)[A-Za-z]{2,})?"
)
"""Further labels of a host's name, unless they are the ending of a file or unit."""

_IMAGES = (
    "root ubuntu debian centos rocky fedora almalinux admin administrator user users default guest nobody "
    "ec2-user azureuser opc nvidia jovyan coder runner vscode conda mambauser linuxbrew localhost git www-data "
    "postgres mysql slurm munge sshd daemon messagebus redacted"
)
_NOBODY = frozenset(_IMAGES.split())
"""Names that images come with: they say nothing about anybody and stay."""

_WORDS = (
    "vm node host server worker master head login cluster machine gpu gpus cpu linux kernel container docker pod "
    "test dev prod lab data work home app apps run model models cache scratch shared share mnt opt usr lib bin var "
    "tmp local system systemd python python3 torch cuda nccl nvlink nvswitch pci pcie memory link fatal error xid "
    "sxid severity driver module device devices boot disk storage public private train training inference research "
    "project projects team staff student students demo main base env venv bash shell code src build service ip mac "
    "github gitlab bitbucket huggingface pypi docker nvcr ghcr quay example"
)
_COMMON = _NOBODY | frozenset(_WORDS.split())
"""Words that are replaced only where they clearly stand for a name (a home folder, the answer to `uname`)."""

# The cards' own marks.

_CARD_UUID = re.compile(r"\b(?:GPU|MIG)-([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})")
_SERIAL_IN_JSON = re.compile(r'"[\w ]{0,40}serial[\w ]{0,40}"\s*:\s*"([A-Za-z0-9-]{5,64})"', re.IGNORECASE)
_OTHER_UUID_IN_JSON = re.compile(
    r'"uuid"\s*:\s*"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"', re.IGNORECASE
)
"""amd-smi's own form, until ROCm 7.13."""
_UNIQUE_ID = re.compile(
    r"\bGPU-(?P<uuid>[0-9a-f]{16})(?![0-9a-z-])|^(?:unique|hive)_id (?P<decimal>[0-9]{10,20})$"
    r'|"(?:asic_serial|unique id)"\s*:\s*"0x(?P<hexadecimal>[0-9a-f]{8,16})"',
    re.IGNORECASE | re.MULTILINE,
)
"""AMD's number of a card: as HIP writes it, as KFD does, and as the tools do. A hive has one of the same kind."""
_SERIAL_SAID = re.compile(r"(?i:serial ?number)(?: is|:)? {1,8}([A-Za-z0-9-]{5,40})")
_SERIAL_KEY = re.compile(r"serial", re.IGNORECASE)


class _Scrubber:
    def __init__(self, *, keep_identity: bool, scrub_serials: bool, words: bool = False) -> None:
        self._identity = not keep_identity
        self._serials = scrub_serials
        self._words = words
        """Whether addresses become words, not addresses."""
        self._given: dict[Kind, dict[str, str]] = {}
        """Original → pseudonym."""
        self._numbers: Counter[Kind] = Counter()
        """The last pseudonym of each kind; fewer than originals, since a node's own names share one."""
        self._used: Counter[tuple[Kind, str]] = Counter()
        self._secrets = 0
        self._names: re.Pattern[str] | None = None
        self._domains: re.Pattern[str] | None = None
        self._card_marks: re.Pattern[str] | None = None
        self._unique_ids: dict[str, str] = {}
        """AMD's unique ids in every form they are written in, small letters → the same form of the pseudonym."""
        self._versions: frozenset[str] = frozenset()
        self._own: dict[str, str] = {}
        """Node → the pseudonym of its own name."""
        self._own_earlier: dict[str, set[str]] = {}
        """Node → what earlier scrubs called it."""
        self._part = self._node = ""
        self._scrubbed = False

    def counts(self) -> dict[Kind, int]:
        counts: dict[Kind, int] = {kind: len(given) for kind, given in sorted(self._given.items())}
        return counts | ({"secret": self._secrets} if self._secrets else {})

    def replaced(self) -> tuple[Replaced, ...]:
        used = sorted(self._used.items(), key=lambda item: (item[0][0], len(item[0][1]), item[0][1]))
        secrets = (Replaced("secret", "", self._secrets),) if self._secrets else ()
        return (*secrets, *(Replaced(kind, name, times) for (kind, name), times in used))

    def own(self, node: str, names: Iterable[str]) -> None:
        """Whatever a node is called in different places is one name."""
        for name in names:
            short = name.lower().partition(".")[0].strip()
            if not short:
                continue
            earlier = _EARLIER.fullmatch(short) is not None
            if earlier:
                self._own_earlier.setdefault(node, set()).add(short)
            key = f"{node}\0own" if earlier else short
            if node in self._own:
                self._given["host"].setdefault(key, self._own[node])
            else:
                self._own[node] = self._pseudonym("host", key, lambda n: f"host-{n}")

    def enter(self, part: str, node: str, *, scrubbed: bool) -> None:
        """What follows is of this part: pseudonyms of an earlier scrub mean what they mean there."""
        self._part, self._node, self._scrubbed = part, node, scrubbed

    # Learning which names there are.

    def learn(
        self, answers: Sequence[Answers], hosts: Iterable[str], users: Iterable[str], kept: Iterable[str] = ()
    ) -> None:
        if self._identity:
            self._learn_names(answers, hosts, users, kept)
            self._versions = frozenset(
                text
                for every in answers
                for key, text in _keyed(every)
                if _VERSION_KEY.search(key) and _IPV4.fullmatch(text)
            )
        if self._serials:
            for every in answers:
                self._learn_cards(every)
        self._used.clear()

    def _learn_names(
        self, answers: Sequence[Answers], hosts: Iterable[str], users: Iterable[str], words: Iterable[str]
    ) -> None:
        kept = _COMMON.union(words or itertools.chain.from_iterable(map(_vocabulary, answers)))
        own = [name for every in answers for name in _own_names(every)]
        for name in own:
            self._host(name)  # the node itself is host-1
        met = _most_used(name.lower().strip(". \n") for every in answers for name in _hosts(every))
        full = {*met, *(name.lower().strip(". \n") for name in (*hosts, *own))} - {""}
        telling = {n for n in full | {name.partition(".")[0] for name in full} if _telling(n, kept)}
        found = _most_used(name for every in answers for name in _users(every))
        people = {name for name in (*users, *found) if _telling(name.lower(), kept)}
        parts = [f"(?i:(?P<host>{_any_of(telling)}){_DOMAIN_TAIL})"] if telling else []
        parts += [f"(?P<user>{_any_of(people)})"] if people else []
        if parts:
            self._names = re.compile(f"(?<![A-Za-z0-9])(?:{'|'.join(parts)})(?![A-Za-z0-9])")
        domains = {domain for name in full if "." in (domain := name.partition(".")[2])}
        if domains:
            labels = rf"(?<![\w.-])(?:[a-z0-9-]{{1,63}}\.)+(?:{_any_of(domains)})(?![\w-])"
            self._domains = re.compile(labels, re.IGNORECASE)

    def _learn_cards(self, answers: Answers) -> None:
        uuids: list[str] = []
        serials: list[str] = []
        unique: list[int] = []
        for questions in (answers[source] for source in sorted(answers)):
            for question in sorted(questions):
                for text in (question, *_strings(questions[question])):
                    uuids += _CARD_UUID.findall(text) + _OTHER_UUID_IN_JSON.findall(text)
                    serials += _SERIAL_SAID.findall(text) + _SERIAL_IN_JSON.findall(text)
                    unique += map(_unique_id, _UNIQUE_ID.finditer(text))
                serials += _called_serial(question, questions[question])
        for uuid in uuids:
            self._pseudonym("uuid", uuid.lower(), lambda n: f"00000000-0000-4000-8000-{n:012d}")
        for number in unique:
            alias = int(
                self._pseudonym("uuid", f"{number:016x}", lambda n: f"{_UNIQUE_ALIASES + n:016x}"), 16
            )
            self._unique_ids |= dict(zip(_forms(number), _forms(alias), strict=True))
        for serial in serials:
            if serial.lower() in self._unique_ids:
                continue
            if sum(map(str.isdigit, serial)) >= 3:
                self._pseudonym("serial", serial, partial(_same_shape, serial))
        marks = (*self._unique_ids, *self._given.get("uuid", ()), *self._given.get("serial", ()))
        if marks:
            self._card_marks = re.compile(
                f"(?<![A-Za-z0-9])(?:{_any_of(marks)})(?![A-Za-z0-9])", re.IGNORECASE
            )

    # Replacing them.

    def answer(self, source: str, question: str, stored: Json) -> Json:
        """An encoded answer, scrubbed."""
        if source == "files" and question.startswith("hex "):
            return stored
        context = _context(question)
        if not isinstance(stored, dict) or "value" not in stored:
            return self.json(stored, "", context)
        value = stored["value"]
        if question.endswith("/environ") and isinstance(value, str):
            value = _allowed(value)
        made = self.json({**stored, "value": value}, "", context)
        if self._identity and isinstance(made, dict):
            # The node's own name goes where it is the answer, even if it is a word like any other.
            if question == "uname" and isinstance(value, dict) and isinstance(value.get("node"), str):
                made["value"] = {**made["value"], "node": self._own_name(value["node"])}
            elif question.endswith("hostname") and isinstance(value, str):
                made["value"] = self._own_name(value.strip())
        return made

    def _own_name(self, name: str) -> str:
        return (
            _EARLIER.sub(self._earlier, name)
            if self._words and _EARLIER.fullmatch(name)
            else self._host(name)
        )

    def json(self, value: Json, key: str = "", context: Context = "prose") -> Json:
        """Somebody's JSON: a key may call its value a secret or a name."""
        if isinstance(value, str):
            if _SECRET_KEY.fullmatch(key):
                return self._redacted()
            return self._called(key, value) or self.text(value, key=key, context=context)
        if isinstance(value, Mapping):
            items = sorted((str(name), item) for name, item in value.items())
            return {self.text(name): self.json(item, name, context) for name, item in items}
        if isinstance(value, (list, tuple)):
            if len(value) == 2 and isinstance(value[0], str) and _SECRET_VARIABLE.fullmatch(value[0]):
                return [value[0], self.json(value[1], value[0], context)]
            return self._list(value, lambda item: self.json(item, key, context))
        if type(value) is int and (alias := self._unique_ids.get(str(value))):
            return int(alias)
        # JSON has no such numbers as NaN.
        return None if isinstance(value, float) and not math.isfinite(value) else value

    def document(self, value: Json, key: str = "", context: Context = "prose") -> Json:
        """JSON of ours (facts, a report): its keys are the model's, so that only settings have telling names."""
        if isinstance(value, str):
            # Nothing so short is a secret; it may be a name.
            return self.text(value, key=key, context=context) if self._identity or len(value) > 5 else value
        if isinstance(value, Mapping):
            made = {
                self.text(name): self.document(item, name, "settings" if name in _SETTINGS else context)
                for name, item in value.items()
            }
            if self._identity and key == "host" and isinstance(value.get("name"), str):
                made["name"] = self._own_name(value["name"])
            return made
        if isinstance(value, (list, tuple)):
            if context == "settings" and len(value) == 2 and all(isinstance(item, str) for item in value):
                name, setting = value
                if _SECRET_KEY.fullmatch(name):
                    return [name, self._redacted()]
                return [self.text(name), self._called(name, setting) or self.text(setting, context=context)]
            return self._list(value, lambda item: self.document(item, key, context))
        return value

    def _list(self, items: Sequence[Json], each: Callable[[Json], Json]) -> list[Json]:
        """Items one by one, but for what only shows over several: an option and its secret, the lines of a key."""
        made: list[Json] = []
        before: Json = None
        inside = False
        for item in items:
            begins = isinstance(item, str) and _KEY_BEGINS.search(item) is not None
            hidden = isinstance(item, str) and (inside or _takes_secret(before, item))
            made.append(self._redacted() if hidden else each(item))
            if isinstance(item, str):
                inside = (inside or begins) and _KEY_ENDS.search(item) is None
            before = item
        return made

    def _called(self, name: str, value: str) -> str | None:
        """The pseudonym for the value of a variable that holds a user or a host."""
        if not self._identity or not re.fullmatch(r"[A-Za-z_][\w.-]*", value):
            return None
        if _USER_VARIABLE.fullmatch(name):
            return self._user(value)
        return self._host(value) if _HOST_VARIABLE.fullmatch(name) else None

    def text(self, text: str, *, key: str = "", context: Context = "prose") -> str:
        """A string, scrubbed. `key` is what it is the value of."""
        # The lines of a key first: one by one they do not show what they are.
        text = _SHAPES.sub(self._secret, text)
        text = "\n".join(self._line(line, context) for line in text.split("\n"))
        text = _AWS_SECRET.sub(self._secret, text)
        if context == "settings":
            text = _RANDOM.sub(self._random, text)
        if self._card_marks:
            text = self._card_marks.sub(self._card_mark, text)
        return self._without_identity(text, key) if self._identity else text

    def _line(self, line: str, context: Context) -> str:
        lowered = line.lower()
        if any(word in lowered for word in _SUSPICIOUS):
            assigned = _ASSIGNED_OPTION if context == "mounts" else _ASSIGNED
            for pattern in (
                _COOKIE, _URL_CREDENTIALS, _LOGIN_BEFORE_HOST, _AUTHORIZATION, assigned, _AUTH_ENCODED,
                _PASSWORD_SHORT, _PASSWORD_AFTER, _NETRC, _WANDB, _OPTION_U, _OPTION_P_JOINED,
            ):  # fmt: skip
                line = pattern.sub(self._assigned, line)
            line = _OPTION_P.sub(self._option, line)
        if context == "mounts" and self._identity and any(word in line for word in _WITH_ACCOUNTS):
            line = _ACCOUNT_OPTION.sub(self._account, line)
        return line

    def _option(self, match: re.Match[str]) -> str:
        return (
            match[0]
            if _OTHER_P.search(match.string, max(0, match.start() - 80), match.start())
            else self._assigned(match)
        )

    def _redacted(self) -> str:
        self._secrets += 1
        return REDACTED

    def _random(self, word: re.Match[str]) -> str:
        return self._secret(word) if _looks_random(word[0]) else word[0]

    def _account(self, match: re.Match[str]) -> str:
        make = self._host if match["what"] == "domain" else self._user
        return match["key"] + make(match["value"])

    def _assigned(self, match: re.Match[str]) -> str:
        quote = _QUOTED.match(match["value"])
        bare = match["value"].strip("\\\"'")
        if bare in ("", "(null)") or bare.startswith(REDACTED[:-1]):
            return match[0]
        return match["key"] + (f"{quote[1]}{self._redacted()}{quote[1]}" if quote else self._redacted())

    def _secret(self, _: re.Match[str]) -> str:
        return self._redacted()

    def _card_mark(self, match: re.Match[str]) -> str:
        known = match[0].lower()
        uuid = self._unique_ids.get(known) or self._given.get("uuid", {}).get(known)
        return uuid or self._given.get("serial", {}).get(match[0], match[0])

    def _without_identity(self, text: str, key: str) -> str:
        if self._words:
            text = _EARLIER.sub(self._earlier, text)
        text = _LONG_MAC.sub(":".join(["00"] * 20), text)
        text = _MAC.sub(lambda match: self._mac(match[0]), text)
        text = _MAC_OTHERWISE.sub(self._mac_otherwise, text)
        text = _MAC_IN_NAME.sub(lambda match: "enx" + self._mac(match[1]).replace(":", ""), text)
        if "@" in text:
            text = _EMAIL.sub(lambda match: self._user(match["user"]) + "@example.org", text)
            text = _CEPH_MOUNT.sub(lambda match: self._user(match["user"]) + "@", text)
            text = _LUSTRE.sub(lambda match: self._host(match["host"]) + "@", text)
        text = _CLOUD_HOST.sub(lambda match: self._host(match[0]), text)
        text = _IPV6.sub(self._ipv6, text)
        if not (_VERSION_KEY.search(key) and _IPV4.fullmatch(text)):
            text = _IPV4.sub(self._ipv4, text)
        if "@" in text:
            text = _LOGIN.sub(self._login, text)
        if self._domains:
            text = self._domains.sub(lambda match: self._host(match[0]), text)
        text = _INTERNAL.sub(lambda match: self._host(match[0]), text)
        if "ceph" in text:
            text = _CEPH_ENTITY.sub(self._ceph, text)
        for pattern in (_HOME, _USER_OPTION):
            text = pattern.sub(lambda match: match["key"] + self._user(match["value"]), text)
        return self._names.sub(self._name, text) if self._names else text

    def _earlier(self, match: re.Match[str]) -> str:
        if match[0] in self._own_earlier.get(self._node, ()):
            own = self._own[self._node]
            self._used["host", own] += 1
            return own
        kind: Kind = "host" if match["kind"] == "host" else "user"
        return self._pseudonym(kind, f"{self._part}\0{match[0]}", lambda n: f"{kind}-{n}")

    def _login(self, match: re.Match[str]) -> str:
        user, host = match["user"], match["host"]
        if _LUSTRE_NETWORK.fullmatch(host):
            return match[0]
        made = user if user == REDACTED else self._user(user)
        public = host.lower().partition(".")[0] in _COMMON or ("." in host and host.lower().endswith(_PUBLIC))
        return f"{made}@{host if public or not host else self._host(host)}"

    def _ceph(self, match: re.Match[str]) -> str:
        make = self._user if match["what"] == "client" else self._host
        return match["key"] + make(match["value"])

    def _mac(self, address: str) -> str:
        digits = re.sub("[:.-]", "", address).lower()
        if len(set(digits)) == 1:
            return address
        if self._words:
            return self._pseudonym(
                "mac", self._scoped(digits, digits.startswith(_GIVEN_MAC)), lambda n: f"mac-{n}"
            )
        return self._pseudonym("mac", digits, lambda n: "02:00:00:" + n.to_bytes(3, "big").hex(":"))

    def _scoped(self, address: str, given: bool) -> str:
        """An address, or what an earlier scrub put in the place of one, which another scrub gave to something else."""
        return f"{self._part}\0{address}" if given and self._scrubbed else address

    def _mac_otherwise(self, match: re.Match[str]) -> str:
        """In the form it had."""
        digits = self._mac(match["dashes"] or match["dots"]).replace(":", "")
        if self._words:
            return (match["key"] or "") + digits
        if match["dots"]:
            return digits if "." in digits else ".".join(digits[i : i + 4] for i in (0, 4, 8))
        known = digits if "-" in digits else "-".join(digits[i : i + 2] for i in range(0, 12, 2))
        return (match["key"] or "") + known

    def _ipv6(self, match: re.Match[str]) -> str:
        try:
            address = ipaddress.IPv6Address(match[0])
        except ValueError:
            return match[0]
        if not any(address in block for block in _IPV6_BLOCKS):
            return match[0]
        if self._words:
            return self._pseudonym(
                "ip", self._scoped(str(address), address in _GIVEN_V6), lambda n: f"ip-{n}"
            )
        return self._pseudonym("ipv6", str(address), lambda n: f"2001:db8::{n:x}")

    def _ipv4(self, match: re.Match[str]) -> str:
        try:
            address = ipaddress.IPv4Address(match[0])
        except ValueError:
            return match[0]
        before = match.string[max(0, match.start() - 24) : match.start()]
        if any(address in block for block in _NOBODYS_V4) or _VERSION_BEFORE.search(before):
            return match[0]
        if self._words:
            if match[0] in self._versions:
                return match[0]
            return self._pseudonym(
                "ip", self._scoped(str(address), address in _GIVEN_V4), lambda n: f"ip-{n}"
            )
        return self._pseudonym("ipv4", str(address), _documented_v4)

    def _name(self, match: re.Match[str]) -> str:
        return self._host(match[0]) if match.groupdict().get("host") else self._user(match[0])

    def _host(self, name: str) -> str:
        """`gpu17` and `gpu17.example.com` are one host."""
        short = name.lower().partition(".")[0]
        if short in ("localhost", "") or _PSEUDONYM.fullmatch(short):
            return name
        return self._pseudonym("host", short, lambda n: f"host-{n}")

    def _user(self, name: str) -> str:
        if name.lower() in _NOBODY or _PSEUDONYM.fullmatch(name):
            return name
        return self._pseudonym("user", name, lambda n: f"user-{n}")

    def _pseudonym(self, kind: Kind, original: str, make: Callable[[int], str]) -> str:
        given = self._given.setdefault(kind, {})
        if original not in given:
            self._numbers[kind] += 1
            given[original] = make(self._numbers[kind])
        self._used[kind, given[original]] += 1
        return given[original]


MAX_LEARNED = 300
"""Names of users, and of hosts, that are looked for everywhere.

Each is tried at each word of a log of megabytes. Of more, those that stand in the recording most often are looked
for; the others are replaced only where they clearly stand for a name.
"""


def _most_used(names: Iterable[str]) -> list[str]:
    used = Counter(names)
    return sorted(used, key=lambda name: (-used[name], -len(name), name))[:MAX_LEARNED]


def _telling(name: str, kept: frozenset[str]) -> bool:
    """Whether a name may be replaced wherever it stands as a word of its own."""
    return len(name) >= 3 and not name.isdigit() and name not in kept and not _PSEUDONYM.fullmatch(name)


def _any_of(words: Iterable[str]) -> str:
    return "|".join(re.escape(word) for word in sorted(words, key=lambda word: (-len(word), word)))


def _value(answers: Answers, source: str, question: str, key: str = "") -> str:
    """A text of the recording, or nothing."""
    stored = answers.get(source, {}).get(question)
    value = stored.get("value") if isinstance(stored, Mapping) else None
    if key:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, str) else ""


def _strings(value: Json) -> Iterator[str]:
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


def _own_names(answers: Answers) -> tuple[str, ...]:
    return (
        _value(answers, "process", "uname", "node"),
        _value(answers, "files", "read /proc/sys/kernel/hostname").strip(),
        _value(answers, "files", "read /etc/hostname").strip(),
    )


def _hosts(answers: Answers) -> Iterator[str]:
    """Names of this node, of the servers whose file systems it mounts, and of machines that somebody logs in to."""
    yield from _own_names(answers)
    yield from _JOURNAL_HOST.findall(_value(answers, "commands", "journal", "stdout"))
    for line in _value(answers, "files", "read /proc/self/mounts").split("\n"):
        yield from _servers(line.partition(" ")[0])
    for key, text in _keyed(answers):
        if key == "device":
            yield from _servers(text)
        elif _HOST_VARIABLE.fullmatch(key):
            yield text
    for text in _strings(answers):
        for said in _HOST_SAID.findall(text):
            yield from filter(None, said)
        if "@" in text:
            yield from (found["host"] for found in _LUSTRE.finditer(text))
            for login in _LOGIN.finditer(text):
                if not _LUSTRE_NETWORK.fullmatch(login["host"]) and not login["host"].lower().endswith(
                    _PUBLIC
                ):
                    yield login["host"]
        yield from (found[0] for found in _INTERNAL.finditer(text))


def _servers(source: str) -> Iterator[str]:
    """The machines in a mount's source, by name; of Ceph, Lustre and NFS there may be several."""
    found = _MOUNT_SERVERS.match(source)
    if found is None:
        return
    names = [found["one"]] if found["one"] else re.split("[,:]", found["several"])
    for name in names:
        name = (
            name.rpartition("@")[2]
            if not _LUSTRE_NETWORK.fullmatch(name.rpartition("@")[2])
            else name.partition("@")[0]
        )
        if re.fullmatch(r"[A-Za-z][\w.-]*[A-Za-z0-9]", name):
            yield name


def _users(answers: Answers) -> Iterator[str]:
    """Whose home folders, whose names, and who logs in to where, stand anywhere."""
    for key, text in _keyed(answers):
        if _USER_VARIABLE.fullmatch(key):
            yield text
    for text in _strings(answers):
        for pattern in (_HOME, _USER_OPTION):
            yield from (found["value"] for found in pattern.finditer(text))
        if "@" in text:
            yield from (found["user"] for found in _CEPH_MOUNT.finditer(text))
            for login in _LOGIN.finditer(text):
                if not _LUSTRE_NETWORK.fullmatch(login["host"]) and login["user"] != REDACTED:
                    yield login["user"]


def _keyed(value: Json, name: str = "") -> Iterator[tuple[str, str]]:
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


def _takes_secret(before: Json, word: str) -> bool:
    """Whether `word`, after `before` in a list of arguments, is a secret."""
    if not isinstance(before, str) or word.startswith("-"):
        return False
    return _SECRET_OPTION.fullmatch(before) is not None or (
        before == "-p" and _OPTION_P.fullmatch(f"-p {word}") is not None
    )


_PUBLIC = ("github.com", "gitlab.com", "bitbucket.org", "huggingface.co", "hf.co", "example.org")
"""Where everybody logs in."""

_WORD = re.compile(r"[a-z0-9-]+")


def _vocabulary(answers: Answers) -> frozenset[str]:
    """Words that facts are made of here: a host called `h200` must not take the card's name with it."""
    files = answers.get("files", {})
    texts = [*_strings(answers.get("nvml", {})), *_strings(answers.get("amdsmi", {}))]
    texts += _strings(answers.get("commands", {}).get("amd_smi_static"))
    texts += [question for question in files if re.match(r"\w+ /(?:proc|sys|dev|etc)/", question)]
    texts += [*_strings(files.get("read /etc/os-release")), *_strings(files.get("read /proc/cpuinfo"))]
    words = {word for text in texts for word in _WORD.findall(text.lower())}
    return frozenset(words | {part for word in words for part in word.split("-")})


def _allowed(environ: str) -> str:
    """The variables of another process's environment that may be read at all."""
    kept = [
        variable
        for variable in environ.split("\0")
        if variable.startswith(ENVIRONMENT_PREFIXES) or variable.partition("=")[0] in ENVIRONMENT_NAMES
    ]
    return "\0".join(kept)


_UNIQUE_ALIASES = 0xA000_0000_0000_0000
"""Pseudonyms count from here, as long as an id is."""


def _unique_id(match: re.Match[str]) -> int:
    if match["decimal"]:
        return int(match["decimal"])
    return int(match["uuid"] or match["hexadecimal"], 16)


def _forms(number: int) -> tuple[str, ...]:
    """How KFD, HIP, amd-smi and rocm-smi write it."""
    return str(number), f"{number:016x}", f"0x{number:016x}", f"0x{number:x}"


def _called_serial(question: str, stored: Json) -> Iterator[str]:
    """Values that a question or a key calls a serial number."""
    for key, text in _keyed(stored, question):
        if _SERIAL_KEY.search(key) and re.fullmatch(r"\s*[\w-]{5,64}\s*", text):
            yield text.strip()


def _same_shape(serial: str, n: int) -> str:
    """Digits for digits and letters for letters, the number at the end."""
    blank = re.sub(r"[A-Za-z]", "X", re.sub(r"\d", "0", serial))
    number = str(n)
    for place in reversed([i for i, character in enumerate(blank) if character == "0"]):
        if not number:
            break
        blank = blank[:place] + number[-1] + blank[place + 1 :]
        number = number[:-1]
    return blank


def _documented_v4(n: int) -> str:
    for block in _DOCUMENTED_V4:
        if n < block.num_addresses - 1:
            return str(block[n])
        n -= block.num_addresses - 2
    return REDACTED

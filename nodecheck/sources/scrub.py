"""What must not leave the node is replaced in a recording: secrets always, names and addresses unless wanted.

The same name gets the same pseudonym everywhere, in answers and in questions, so that the probes read the same
facts from a scrubbed recording. What looks like a name and is none (PCI addresses, versions, paths of procfs and
sysfs, lists of CPUs) stays as it is.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Literal

from nodecheck.sources.channel import Json
from nodecheck.sources.process import ENVIRONMENT_NAMES, ENVIRONMENT_PREFIXES

Answers = Mapping[str, Mapping[str, Json]]
"""Question → encoded answer, for each source's name."""

Kind = Literal["secret", "host", "user", "ipv4", "ipv6", "mac", "uuid", "serial"]

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
    scrubber.learn(answers, hosts, users)
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
    return _without_secrets(facts, "prose", _Scrubber(keep_identity=True, scrub_serials=False))


def _without_secrets(value: Json, context: Context, scrubber: _Scrubber) -> Json:
    if isinstance(value, str):
        return scrubber.text(value, context=context) if len(value) > 5 else value
    if isinstance(value, Mapping):
        return {
            name: _without_secrets(item, "settings" if name in _SETTINGS else context, scrubber)
            for name, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        if context == "settings" and len(value) == 2 and isinstance(value[0], str):
            name, setting = value
            if _SECRET_KEY.fullmatch(name) and isinstance(setting, str):
                return [name, REDACTED]
        return [_without_secrets(item, context, scrubber) for item in value]
    return value


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
    r"(?:passw(?:or)?d|passphrase|secret|token|credential|api[_-]?key|access[_-]?key|private[_-]?key|psk)s?"
    r"(?:[_.-][\w.-]{0,40})?"
)
_SECRET_KEY = re.compile(rf"[\w.-]{{0,60}}{_CALLED}|(?:[\w.-]{{0,60}}[_.-])?(?:key|pass)", re.IGNORECASE)
_SECRET_VARIABLE = re.compile(rf"(?-i:(?=[A-Z][A-Z0-9_]*\Z))(?:{_SECRET_KEY.pattern})", re.IGNORECASE)
"""The name in a pair of a variable and its value."""
_KEY_BEFORE = (
    rf"(?P<key>(?<![\w.-])[\w.-]{{0,60}}?{_CALLED}[\"']?\s{{0,3}}[=:]\s{{0,3}}|--[\w-]{{0,40}}?{_CALLED}\s+"
    r"|(?<![\w.-])(?:[\w.-]{0,60}[_.-])?(?:key|pass|sig|signature)=)"
)
_ASSIGNED = re.compile(_KEY_BEFORE + r"(?P<value>\"[^\"]*\"|'[^']*'|[^\s\"']+)", re.IGNORECASE)
_ASSIGNED_OPTION = re.compile(_KEY_BEFORE + r"(?P<value>[^\s,]+)", re.IGNORECASE)
_AUTHORIZATION = re.compile(
    r"(?P<key>\bauthorization\s{0,3}[:=]\s{0,3}(?:(?:bearer|basic|token)\s+)?|\bbearer\s+)"
    r"(?P<value>[^\s,;\"']+)",
    re.IGNORECASE,
)
_URL_CREDENTIALS = re.compile(
    r"(?P<key>\b[a-z][a-z0-9+.-]{1,20}://)(?P<value>[^/\s\"']{1,256})(?=@)", re.IGNORECASE
)
_PASSWORD_SHORT = re.compile(
    r"(?P<key>(?<![\w.-])(?-i:(?!(?:OLD)?PWD=/))(?:[\w.-]{0,60}?pwd|(?:[\w.-]{0,60}[_.-])?pw)[\"']?\s{0,3}[=:]\s{0,3})"
    r"(?P<value>[^\s\"']+)",
    re.IGNORECASE,
)
"""But `PWD=/work` is the folder somebody is in."""
_PASSWORD_AFTER = re.compile(
    r"(?P<key>(?<![\w.-])[A-Z0-9_]{0,40}(?:PASSWORD|PASSWD)[ \t]{1,3})(?P<value>(?![=:\[])\S+)"
)
_LOGIN_BEFORE_HOST = re.compile(
    r"(?P<key>(?<![\w:/])//|\biscsi:)(?P<value>[^/\s:@\"']{1,64}:[^/\s@\"']{1,256})(?=@)"
)
"""`//user:password@host` without a scheme, and dracut's `netroot=iscsi:user:password@host`."""
_SUSPICIOUS = (
    "pass", "secret", "token", "credential", "key", "psk", "sig", "bearer", "authori", "pw", "//", "iscsi:",
)  # fmt: skip
"""One of these stands in every line that the patterns above match; most lines of a log hold none."""
_SHAPES = re.compile(
    "|".join(
        (
            r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?:.|\n)*?(?:-----END [A-Z ]{0,30}PRIVATE KEY-----|\Z)",
            r"\beyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?",  # JSON web token
            r"\b(?:AKIA|ASIA|AGPA|AIDA|AROA|ANPA)[A-Z0-9]{16}\b",  # AWS
            r"\b(?:hf|gsk|r8|npm|dckr_pat|dckr_oat|github_pat|gh[pousr]|[sr]k_live|[sr]k_test|rpa)_\w{16,}",
            r"\b(?:nvapi|glpat|tskey|xox[abeoprs]|hvs|ya29|dop_v1)[-_.][\w.-]{16,}",
            r"\bsk-(?=[\w-]{0,40}\d)[\w-]{16,}",  # OpenAI, Anthropic
            r"\bhooks\.slack\.com/(?:services|workflows|triggers)/[\w/-]+",
            r"\bAIza[\w-]{30,}|\bpypi-AgE[\w-]{16,}|\bdapi[0-9a-f]{32}\b",  # Google, PyPI, Databricks
        )
    )
)
_RANDOM = re.compile(r"(?<![\w./+-])[A-Za-z0-9+_-]{32,}={0,2}(?![\w./+-])")


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
_IPV6_BLOCKS = tuple(ipaddress.IPv6Network(block) for block in ("2000::/3", "fc00::/7", "fe80::/10"))
"""Global, unique local and link-local addresses: what else has this form is likelier something other."""

# Names.

_HOME = re.compile(r"(?P<key>/(?:homes?|[Uu]sers)/|(?<![\w./-])/u/)(?P<value>[^/\s:;,\"'()\[\]{}<>|\\]+)")
_USER_OPTION = re.compile(r"(?P<key>\b(?:user|username|login)=|\bacct=\"?)(?P<value>[A-Za-z_][\w.-]*)")
_EMAIL = re.compile(
    r"(?<![\w.+/-])(?P<user>[A-Za-z0-9][\w.+-]{0,63})@(?:[A-Za-z0-9-]{1,63}\.){1,8}"
    r"(?!(?:service|socket|target|mount|automount|slice|scope|timer|path|swap|device|so|py)\b)[A-Za-z]{2,24}\b(?!:/)"
)
_ACCOUNT_OPTION = re.compile(r"(?P<key>[\s,](?P<what>name|domain)=)(?P<value>[^\s,]+)")
"""Whose account a Ceph or SMB mount uses; other file systems call other things by these words."""
_WITH_ACCOUNTS = (" ceph ", " fuse.ceph ", " cifs ", " smb3 ", " smbfs ")
_CLOUD_HOST = re.compile(r"\bip-\d{1,3}(?:-\d{1,3}){3}(?:\.[a-z0-9-]+)*")
"""AWS names a machine after its address."""
_HOST_SAID = re.compile(r"Hostname set to <([^<>\s]{1,253})>|\bhostname=([\w.-]{1,253})")
_JOURNAL_HOST = re.compile(r"^\[ *\d+\.\d+\] ([\w.-]{1,253}) kernel: ", re.MULTILINE)
_MOUNT_SERVER = re.compile(r"^([A-Za-z][\w.-]*[A-Za-z0-9]):/|^//([A-Za-z][\w.-]*)/", re.MULTILINE)
_PSEUDONYM = re.compile(r"(?:host|user)-\d+")
_DOMAIN_TAIL = (
    r"(?:(?:\.[A-Za-z0-9-]+)*"
    r"\.(?!(?:log|json|txt|conf|so|py|sh|service|socket|mount|slice|scope)\b)[A-Za-z]{2,})?"
)
"""Further labels of a host's name, unless they are the ending of a file or unit."""

_IMAGES = (
    "root ubuntu debian centos rocky fedora almalinux admin administrator user users default guest nobody "
    "ec2-user azureuser opc nvidia jovyan coder runner vscode conda mambauser linuxbrew localhost"
)
_NOBODY = frozenset(_IMAGES.split())
"""Names that images come with: they say nothing about anybody and stay."""

_WORDS = (
    "vm node host server worker master head login cluster machine gpu gpus cpu linux kernel container docker pod "
    "test dev prod lab data work home app apps run model models cache scratch shared share mnt opt usr lib bin var "
    "tmp local system systemd python python3 torch cuda nccl nvlink nvswitch pci pcie memory link fatal error xid "
    "sxid severity driver module device devices boot disk storage public private train training inference research "
    "project projects team staff student students demo main base env venv bash shell code src build service"
)
_COMMON = _NOBODY | frozenset(_WORDS.split())
"""Words that are replaced only where they clearly stand for a name (a home folder, the answer to `uname`)."""

# The cards' own marks.

_CARD_UUID = re.compile(r"\b(?:GPU|MIG)-([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})")
_SERIAL_SAID = re.compile(r"(?i:serial ?number)(?: is|:)? {1,8}([A-Za-z0-9-]{5,40})")
_SERIAL_KEY = re.compile(r"serial", re.IGNORECASE)


class _Scrubber:
    def __init__(self, *, keep_identity: bool, scrub_serials: bool) -> None:
        self._identity = not keep_identity
        self._serials = scrub_serials
        self._given: dict[Kind, dict[str, str]] = {}
        """Original → pseudonym."""
        self._secrets = 0
        self._names: re.Pattern[str] | None = None
        self._domains: re.Pattern[str] | None = None
        self._card_marks: re.Pattern[str] | None = None

    def counts(self) -> dict[Kind, int]:
        counts: dict[Kind, int] = {kind: len(given) for kind, given in sorted(self._given.items())}
        return counts | ({"secret": self._secrets} if self._secrets else {})

    # Learning which names there are.

    def learn(self, answers: Answers, hosts: Iterable[str], users: Iterable[str]) -> None:
        if self._identity:
            self._learn_names(answers, hosts, users)
        if self._serials:
            self._learn_cards(answers)

    def _learn_names(self, answers: Answers, hosts: Iterable[str], users: Iterable[str]) -> None:
        kept = _COMMON | _vocabulary(answers)
        for name in _own_names(answers):
            self._host(name)  # the node itself is host-1
        met = _most_used(name.lower().strip(". \n") for name in _hosts(answers))
        full = {*met, *(name.lower().strip(". \n") for name in (*hosts, *_own_names(answers)))} - {""}
        telling = {n for n in full | {name.partition(".")[0] for name in full} if _telling(n, kept)}
        people = {name for name in (*users, *_most_used(_users(answers))) if _telling(name.lower(), kept)}
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
        for questions in (answers[source] for source in sorted(answers)):
            for question in sorted(questions):
                for text in (question, *_strings(questions[question])):
                    uuids += _CARD_UUID.findall(text)
                    serials += _SERIAL_SAID.findall(text)
                serials += _called_serial(question, questions[question])
        for uuid in uuids:
            self._pseudonym("uuid", uuid.lower(), lambda n: f"00000000-0000-4000-8000-{n:012d}")
        for serial in serials:
            if sum(map(str.isdigit, serial)) >= 3:
                self._pseudonym("serial", serial, partial(_same_shape, serial))
        marks = (*self._given.get("uuid", ()), *self._given.get("serial", ()))
        if marks:
            self._card_marks = re.compile(
                f"(?<![A-Za-z0-9])(?:{_any_of(marks)})(?![A-Za-z0-9])", re.IGNORECASE
            )

    # Replacing them.

    def answer(self, source: str, question: str, stored: Json) -> Json:
        """An encoded answer, scrubbed."""
        if source == "files" and question.startswith("hex "):
            return stored
        if isinstance(stored, dict):
            stored = (
                {**stored, "value": self._known_place(question, stored["value"])}
                if "value" in stored
                else stored
            )
        return self._json(stored, "", _context(question))

    def _known_place(self, question: str, value: Json) -> Json:
        """Answers of which it is known what they are."""
        if question.endswith("/environ") and isinstance(value, str):
            return _allowed(value)
        if not self._identity:
            return value
        # The node's own name goes where it is the answer, even if it is a word like any other.
        if question == "uname" and isinstance(value, dict) and isinstance(value.get("node"), str):
            return {**value, "node": self._host(value["node"])}
        if question.endswith("hostname") and isinstance(value, str):
            return self._host(value.strip())
        return value

    def _json(self, value: Json, key: str, context: Context) -> Json:
        if isinstance(value, str):
            if _SECRET_KEY.fullmatch(key):
                self._secrets += 1
                return REDACTED
            return self.text(value, key=key, context=context)
        if isinstance(value, Mapping):
            items = sorted((str(name), item) for name, item in value.items())
            return {self.text(name): self._json(item, name, context) for name, item in items}
        if isinstance(value, (list, tuple)):
            if len(value) == 2 and isinstance(value[0], str) and _SECRET_VARIABLE.fullmatch(value[0]):
                return [value[0], self._json(value[1], value[0], context)]
            return [self._json(item, key, context) for item in value]
        # JSON has no such numbers as NaN.
        return None if isinstance(value, float) and not math.isfinite(value) else value

    def text(self, text: str, *, key: str = "", context: Context = "prose") -> str:
        """A string, scrubbed. `key` is what it is the value of."""
        text = "\n".join(self._line(line, context) for line in text.split("\n"))
        text = _SHAPES.sub(self._secret, text)
        if context == "settings":
            text = _RANDOM.sub(lambda word: self._secret(word) if _looks_random(word[0]) else word[0], text)
        if self._card_marks:
            text = self._card_marks.sub(self._card_mark, text)
        return self._without_identity(text, key) if self._identity else text

    def _line(self, line: str, context: Context) -> str:
        lowered = line.lower()
        if any(word in lowered for word in _SUSPICIOUS):
            assigned = _ASSIGNED_OPTION if context == "mounts" else _ASSIGNED
            for pattern in (
                _URL_CREDENTIALS, _LOGIN_BEFORE_HOST, _AUTHORIZATION, assigned, _PASSWORD_SHORT, _PASSWORD_AFTER,
            ):  # fmt: skip
                line = pattern.sub(self._assigned, line)
        if context == "mounts" and self._identity and any(word in line for word in _WITH_ACCOUNTS):
            line = _ACCOUNT_OPTION.sub(self._account, line)
        return line

    def _account(self, match: re.Match[str]) -> str:
        make = self._host if match["what"] == "domain" else self._user
        return match["key"] + make(match["value"])

    def _assigned(self, match: re.Match[str]) -> str:
        if match["value"] in ("(null)", REDACTED):
            return match[0]
        self._secrets += 1
        return match["key"] + REDACTED

    def _secret(self, _: re.Match[str]) -> str:
        self._secrets += 1
        return REDACTED

    def _card_mark(self, match: re.Match[str]) -> str:
        uuid = self._given.get("uuid", {}).get(match[0].lower())
        return uuid or self._given.get("serial", {}).get(match[0], match[0])

    def _without_identity(self, text: str, key: str) -> str:
        text = _LONG_MAC.sub(":".join(["00"] * 20), text)
        text = _MAC.sub(lambda match: self._mac(match[0]), text)
        text = _MAC_OTHERWISE.sub(self._mac_otherwise, text)
        text = _MAC_IN_NAME.sub(lambda match: "enx" + self._mac(match[1]).replace(":", ""), text)
        if "@" in text:
            text = _EMAIL.sub(lambda match: self._user(match["user"]) + "@example.org", text)
        text = _CLOUD_HOST.sub(lambda match: self._host(match[0]), text)
        text = _IPV6.sub(self._ipv6, text)
        if not (_VERSION_KEY.search(key) and _IPV4.fullmatch(text)):
            text = _IPV4.sub(self._ipv4, text)
        if self._domains:
            text = self._domains.sub(lambda match: self._host(match[0]), text)
        for pattern in (_HOME, _USER_OPTION):
            text = pattern.sub(lambda match: match["key"] + self._user(match["value"]), text)
        return self._names.sub(self._name, text) if self._names else text

    def _mac(self, address: str) -> str:
        digits = re.sub("[:.-]", "", address).lower()
        if len(set(digits)) == 1:
            return address
        return self._pseudonym("mac", digits, lambda n: "02:00:00:" + n.to_bytes(3, "big").hex(":"))

    def _mac_otherwise(self, match: re.Match[str]) -> str:
        """In the form it had."""
        digits = self._mac(match["dashes"] or match["dots"]).replace(":", "")
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
        return self._pseudonym("ipv6", str(address), lambda n: f"2001:db8::{n:x}")

    def _ipv4(self, match: re.Match[str]) -> str:
        try:
            address = ipaddress.IPv4Address(match[0])
        except ValueError:
            return match[0]
        before = match.string[max(0, match.start() - 24) : match.start()]
        if any(address in block for block in _NOBODYS_V4) or _VERSION_BEFORE.search(before):
            return match[0]
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
            given[original] = make(len(given) + 1)
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
    """Names of this node, and of the servers whose file systems it mounts."""
    yield from _own_names(answers)
    yield from _JOURNAL_HOST.findall(_value(answers, "commands", "journal", "stdout"))
    for nfs, cifs in _MOUNT_SERVER.findall(_value(answers, "files", "read /proc/self/mounts")):
        yield nfs or cifs
    for text in _strings(answers):
        for said, set_to in _HOST_SAID.findall(text):
            yield said or set_to


def _users(answers: Answers) -> Iterator[str]:
    """Whose home folders, and whose names, stand anywhere."""
    for text in _strings(answers):
        for pattern in (_HOME, _USER_OPTION):
            yield from (found["value"] for found in pattern.finditer(text))


_WORD = re.compile(r"[a-z0-9-]+")


def _vocabulary(answers: Answers) -> frozenset[str]:
    """Words that facts are made of here: a host called `h200` must not take the card's name with it."""
    files = answers.get("files", {})
    texts = [*_strings(answers.get("nvml", {}))]
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


def _called_serial(question: str, stored: Json) -> Iterator[str]:
    """Values that a question or a key calls a serial number."""
    waiting: list[tuple[str, Json]] = [(question, stored)]
    while waiting:
        name, item = waiting.pop()
        if isinstance(item, Mapping):
            waiting += [
                (name if key in ("value", "detail") else str(key), inner) for key, inner in item.items()
            ]
        elif isinstance(item, str) and _SERIAL_KEY.search(name) and re.fullmatch(r"\s*[\w-]{5,64}\s*", item):
            yield item.strip()


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

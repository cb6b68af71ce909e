"""What must not leave the node is replaced in a recording: secrets always, names and addresses unless wanted.

The same name gets the same pseudonym everywhere, in answers and in questions, so that the probes read the same
facts from a scrubbed recording. What looks like a name and is none (PCI addresses, versions, paths of procfs and
sysfs, lists of CPUs) stays as it is.
"""

from __future__ import annotations

import ipaddress
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from nodecheck.sources import names
from nodecheck.sources.channel import Answers, Json
from nodecheck.sources.process import ENVIRONMENT_NAMES, ENVIRONMENT_PREFIXES
from nodecheck.sources.secrets import CARD_UUID, REDACTED, Context, Secrets

Kind = Literal["secret", "host", "user", "ip", "ipv4", "ipv6", "mac", "uuid", "serial"]


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
            self._scrubber.own(part.node, (*part.hosts, *names.own_names(part.answers)))
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


def _context(question: str) -> Context:
    if question == "read /proc/self/mounts":
        return "mounts"
    if question in ("environment", "read /proc/cmdline", "read /etc/nccl.conf") or question.endswith(
        "/environ"
    ):
        return "settings"
    return "prose"


# The cards' own marks.

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


class _Scrubber(Secrets):
    def __init__(self, *, keep_identity: bool, scrub_serials: bool, words: bool = False) -> None:
        super().__init__()
        self._identity = not keep_identity
        if self._identity:
            self.shortest = 0  # it may be a name
        self._serials = scrub_serials
        self._words = words
        """Whether addresses become words, not addresses."""
        self._given: dict[Kind, dict[str, str]] = {}
        """Original → pseudonym."""
        self._numbers: Counter[Kind] = Counter()
        """The last pseudonym of each kind; fewer than originals, since a node's own names share one."""
        self._used: Counter[tuple[Kind, str]] = Counter()
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
        return counts | ({"secret": self.secrets} if self.secrets else {})

    def replaced(self) -> tuple[Replaced, ...]:
        used = sorted(self._used.items(), key=lambda item: (item[0][0], len(item[0][1]), item[0][1]))
        secrets = (Replaced("secret", "", self.secrets),) if self.secrets else ()
        return (*secrets, *(Replaced(kind, name, times) for (kind, name), times in used))

    def own(self, node: str, called: Iterable[str]) -> None:
        """Whatever a node is called in different places is one name."""
        for name in called:
            short = name.lower().partition(".")[0].strip()
            if not short:
                continue
            earlier = names.EARLIER.fullmatch(short) is not None
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
                for key, text in names.keyed(every)
                if names.VERSION_KEY.search(key) and names.IPV4.fullmatch(text)
            )
        if self._serials:
            for every in answers:
                self._learn_cards(every)
        self._used.clear()

    def _learn_names(
        self, answers: Sequence[Answers], hosts: Iterable[str], users: Iterable[str], words: Iterable[str]
    ) -> None:
        kept = names.COMMON.union(words or itertools.chain.from_iterable(map(names.vocabulary, answers)))
        own = [name for every in answers for name in names.own_names(every)]
        for name in own:
            self._host(name)  # the node itself is host-1
        met = names.most_used(name.lower().strip(". \n") for every in answers for name in names.hosts(every))
        full = {*met, *(name.lower().strip(". \n") for name in (*hosts, *own))} - {""}
        telling = {n for n in full | {name.partition(".")[0] for name in full} if names.telling(n, kept)}
        found = names.most_used(name for every in answers for name in names.users(every))
        people = {name for name in (*users, *found) if names.telling(name.lower(), kept)}
        parts = [f"(?i:(?P<host>{names.any_of(telling)}){names.DOMAIN_TAIL})"] if telling else []
        parts += [f"(?P<user>{names.any_of(people)})"] if people else []
        if parts:
            self._names = re.compile(f"(?<![A-Za-z0-9])(?:{'|'.join(parts)})(?![A-Za-z0-9])")
        domains = {domain for name in full if "." in (domain := name.partition(".")[2])}
        if domains:
            labels = rf"(?<![\w.-])(?:[a-z0-9-]{{1,63}}\.)+(?:{names.any_of(domains)})(?![\w-])"
            self._domains = re.compile(labels, re.IGNORECASE)

    def _learn_cards(self, answers: Answers) -> None:
        uuids: list[str] = []
        serials: list[str] = []
        unique: list[int] = []
        for questions in (answers[source] for source in sorted(answers)):
            for question in sorted(questions):
                for text in (question, *names.strings(questions[question])):
                    uuids += CARD_UUID.findall(text) + _OTHER_UUID_IN_JSON.findall(text)
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
                f"(?<![A-Za-z0-9])(?:{names.any_of(marks)})(?![A-Za-z0-9])", re.IGNORECASE
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
            names.EARLIER.sub(self._earlier, name)
            if self._words and names.EARLIER.fullmatch(name)
            else self._host(name)
        )

    def json(self, value: Json, key: str = "", context: Context = "prose") -> Json:
        if type(value) is int and (alias := self._unique_ids.get(str(value))):
            return int(alias)
        return super().json(value, key, context)

    def document(self, value: Json, key: str = "", context: Context = "prose") -> Json:
        made = super().document(value, key, context)
        if self._identity and key == "host" and isinstance(value, Mapping) and isinstance(made, dict):
            name = value.get("name")
            return {**made, "name": self._own_name(name)} if isinstance(name, str) else made
        return made

    def called(self, name: str, value: str) -> str | None:
        """The pseudonym for the value of a variable that holds a user or a host."""
        said = names.HOST_VALUE.fullmatch(value) if self._identity else None
        if said is None:
            return None
        if names.USER_VARIABLE.fullmatch(name):
            return self._user(value)
        return (
            self._host(said["host"]) + (said["port"] or "") if names.HOST_VARIABLE.fullmatch(name) else None
        )

    def text(self, text: str, *, key: str = "", context: Context = "prose") -> str:
        text = super().text(text, key=key, context=context)
        if self._card_marks:
            text = self._card_marks.sub(self._card_mark, text)
        return self._without_identity(text, key) if self._identity else text

    def line(self, line: str, context: Context) -> str:
        line = super().line(line, context)
        if context == "mounts" and self._identity and any(word in line for word in names.WITH_ACCOUNTS):
            line = names.ACCOUNT_OPTION.sub(self._account, line)
        return line

    def _account(self, match: re.Match[str]) -> str:
        make = self._host if match["what"] == "domain" else self._user
        return match["key"] + make(match["value"])

    def _card_mark(self, match: re.Match[str]) -> str:
        known = match[0].lower()
        uuid = self._unique_ids.get(known) or self._given.get("uuid", {}).get(known)
        return uuid or self._given.get("serial", {}).get(match[0], match[0])

    def _without_identity(self, text: str, key: str) -> str:
        if self._words:
            text = names.EARLIER.sub(self._earlier, text)
        text = names.LONG_MAC.sub(":".join(["00"] * 20), text)
        text = names.MAC.sub(lambda match: self._mac(match[0]), text)
        text = names.MAC_OTHERWISE.sub(self._mac_otherwise, text)
        text = names.MAC_IN_NAME.sub(lambda match: match[1] + self._mac(match[2]).replace(":", ""), text)
        if "@" in text:
            text = names.EMAIL.sub(lambda match: self._user(match["user"]) + "@example.org", text)
            text = names.CEPH_MOUNT.sub(lambda match: self._user(match["user"]) + "@", text)
            text = names.LUSTRE.sub(lambda match: self._host(match["host"]) + "@", text)
        text = names.CLOUD_HOST.sub(lambda match: self._host(match[0]), text)
        text = names.IPV6.sub(self._ipv6, text)
        if not (names.VERSION_KEY.search(key) and names.IPV4.fullmatch(text)):
            text = names.IPV4.sub(self._ipv4, text)
        if "@" in text:
            text = names.LOGIN.sub(self._login, text)
        if self._domains:
            text = self._domains.sub(lambda match: self._host(match[0]), text)
        text = names.INTERNAL.sub(lambda match: self._host(match[0]), text)
        if "ceph" in text:
            text = names.CEPH_ENTITY.sub(self._ceph, text)
        for pattern in (names.HOME, names.USER_OPTION):
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
        if names.LUSTRE_NETWORK.fullmatch(host):
            return match[0]
        made = user if user == REDACTED else self._user(user)
        public = host.lower().partition(".")[0] in names.COMMON or (
            "." in host and host.lower().endswith(names.PUBLIC)
        )
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
                "mac", self._scoped(digits, digits.startswith(names.GIVEN_MAC)), lambda n: f"mac-{n}"
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
        if not any(address in block for block in names.IPV6_BLOCKS):
            return match[0]
        if self._words:
            return self._pseudonym(
                "ip", self._scoped(str(address), address in names.GIVEN_V6), lambda n: f"ip-{n}"
            )
        return self._pseudonym("ipv6", str(address), lambda n: f"2001:db8::{n:x}")

    def _ipv4(self, match: re.Match[str]) -> str:
        try:
            address = ipaddress.IPv4Address(match[0])
        except ValueError:
            return match[0]
        before = match.string[max(0, match.start() - 24) : match.start()]
        if any(address in block for block in names.NOBODYS_V4) or names.VERSION_BEFORE.search(before):
            return match[0]
        if self._words:
            if match[0] in self._versions:
                return match[0]
            return self._pseudonym(
                "ip", self._scoped(str(address), address in names.GIVEN_V4), lambda n: f"ip-{n}"
            )
        return self._pseudonym("ipv4", str(address), names.documented_v4)

    def _name(self, match: re.Match[str]) -> str:
        return self._host(match[0]) if match.groupdict().get("host") else self._user(match[0])

    def _host(self, name: str) -> str:
        """`gpu17` and `gpu17.example.com` are one host."""
        short = name.lower().partition(".")[0]
        if short in ("localhost", "") or names.PSEUDONYM.fullmatch(short):
            return name
        return self._pseudonym("host", short, lambda n: f"host-{n}")

    def _user(self, name: str) -> str:
        if name.lower() in names.NOBODY or names.PSEUDONYM.fullmatch(name):
            return name
        return self._pseudonym("user", name, lambda n: f"user-{n}")

    def _pseudonym(self, kind: Kind, original: str, make: Callable[[int], str]) -> str:
        given = self._given.setdefault(kind, {})
        if original not in given:
            self._numbers[kind] += 1
            given[original] = make(self._numbers[kind])
        self._used[kind, given[original]] += 1
        return given[original]


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
    for key, text in names.keyed(stored, question):
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

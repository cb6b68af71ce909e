"""Secrets in texts and in JSON, by what they are called and by how they look, and what stands in their place."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from nodecheck.sources.channel import Json

REDACTED = "[redacted]"

_SETTINGS = ("boot_command_line", "environment", "nccl_settings", "image_hints")
"""Facts that are settings: lines of `key=value`, and pairs of a name and its value."""

Context = Literal["prose", "settings", "mounts"]
"""What a text is: prose and logs; settings (environment, boot command line); mounts, whose options commas part."""

_CALLED = (
    r"(?:passw(?:or)?d|passphrase|passcode|secret|token|credential|creds"
    r"|(?:api|access|private|account|auth|signing|encryption|secret)[ _-]?key"
    r"|connection[_-]?string|shared[_-]?access[_-]?signature|psk)s?(?:[_.-][\w.-]{0,40})?"
)
_SECRET_KEY = re.compile(rf"[\w.-]{{0,60}}{_CALLED}|(?:[\w.-]{{0,60}}[_.-])?(?:key|pass)", re.IGNORECASE)
_SECRET_VARIABLE = re.compile(rf"(?-i:(?=[A-Z][A-Z0-9_]*\Z))(?:{_SECRET_KEY.pattern})", re.IGNORECASE)
"""The name in a pair of a variable and its value."""
_SECRET_OPTION = re.compile(
    rf"--?[\w.-]{{0,40}}?{_CALLED}|--(?:[\w.-]{{0,40}}-)?(?:pass|pw|pwd)", re.IGNORECASE
)
"""An argument of a program whose next argument is the secret."""
_QUOTE = r"(?:\\{0,64}[\"']|&quot;|&#3[49];)"
"""As it stands in JSON, in JSON inside JSON, and in HTML."""
_KEY_BEFORE = (
    rf"(?P<key>(?<![\w.-])[\w.-]{{0,60}}?{_CALLED}{_QUOTE}?[\])}}]?\s{{0,3}}[=:]\s{{0,3}}"
    rf"|(?<!\S)(?:{_SECRET_OPTION.pattern})\s+|<[\w.-]{{0,60}}?{_CALLED}>"
    r"|(?<![\w.-])(?:[\w.-]{0,60}[_.-])?(?:key|pass|sig|signature)="
    rf"|{_QUOTE}(?:pass|pw|sig){_QUOTE}\s{{0,3}}:\s{{0,3}})"
)
_VALUE = (
    r"(?P<value>\\{1,64}\"(?:(?!\\{1,64}\").){0,4096}\\{1,64}\"|\"(?:[^\"\\]|\\.)*\"|\$?'[^']*'|&quot;.{0,4096}?&quot;"
    r"|[^\s\"'\\]+|[\\\"'].*)"
)
"""Quoted, or up to the next blank; the whole line where a quotation has no end."""
_QUOTED = re.compile(rf"({_QUOTE}).*\1\Z", re.DOTALL)
_ASSIGNED = re.compile(_KEY_BEFORE + _VALUE, re.IGNORECASE)
_ASSIGNED_OPTION = re.compile(_KEY_BEFORE + r"(?P<value>[^\s,]+)", re.IGNORECASE)
_AUTHORIZATION = re.compile(
    rf"(?P<key>\bauthorization{_QUOTE}?\s{{0,3}}[:=]\s{{0,3}}{_QUOTE}?(?:(?:bearer|basic|token|digest|negotiate)\s+)?"
    r"|\bbearer\s+)(?P<value>(?:[A-Za-z][\w-]{1,30}[ \t]{1,3})?[^\s,;\"'\\]+)",
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
    r"(?P<key>(?<![\w.-])[A-Z0-9_]{0,40}(?:PASSWORD|PASSWD|_TOKEN|_SECRET|_API_KEY|_ACCESS_KEY)[ \t]{1,3}"
    r"|(?i:\b(?:password|passwd|passphrase|passcode)[ \t]{1,3}(?:is[ \t]{1,3})?"
    r"(?=[^\s=:]{0,60}\d)(?=[^\s=:]{0,60}[a-z]))"
    r"|\b-?pass(?:in|out)?[ \t]{1,3}pass:|\buser(?:name)?=[^\s,%]{1,64}%)"
    r"(?P<value>(?![=:\[])\S+)"
)
"""In words, and as openssl and SMB write it."""
_PASSWORD_PIPED = re.compile(
    r"(?P<key>\becho[ \t]+(?:-\w[ \t]+)?)(?P<value>[^|\n]{1,200}?)(?=\s{0,3}\|\s{0,3}sudo\b[^|]{0,60}\s-S\b)"
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
    rf"(?P<key>(?<!\S)(?:-u|-U|--user|--proxy-user)[ =]?{_QUOTE}?[^\s:%@\"'\\]{{1,64}}[:%])"
    r"(?P<value>(?!\d+(?!\S))[^\s\"'\\]+)"
)
"""curl's `-u user:password`; but `-u 1000:1000` are numbers of a user and a group."""
_SUSPICIOUS = (
    "pass", "secret", "token", "credential", "key", "psk", "sig", "bearer", "auth", "basic", "cookie", "pw", "//",
    "iscsi:", "wandb", "-p", "-u", "--user", "--proxy-user", "connection", "ipmitool", "redis-cli", "ldap", "creds",
    "user=", "username=", "sudo",
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
CARD_UUID = re.compile(r"\b(?:GPU|MIG)-([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})")
"""An NVIDIA card's: long and mixed, and no secret."""


def without_secrets(facts: Json) -> Json:
    """Facts as JSON, the same but for secrets: names and addresses stay, since a report says which node it is of."""
    return Secrets().document(facts)


class Secrets:
    """Replaces secrets, and counts them. What goes beside them is for a subclass to say."""

    shortest = 6
    """Characters of a text of ours that is looked at: nothing shorter is a secret."""

    def __init__(self) -> None:
        self.secrets = 0
        """How many were replaced."""

    def json(self, value: Json, key: str = "", context: Context = "prose") -> Json:
        """Somebody's JSON: a key may call its value a secret or a name."""
        if isinstance(value, str):
            if _SECRET_KEY.fullmatch(key):
                return self.redacted()
            return self.called(key, value) or self.text(value, key=key, context=context)
        if isinstance(value, Mapping):
            items = sorted((str(name), item) for name, item in value.items())
            return {self.text(name): self.json(item, name, context) for name, item in items}
        if isinstance(value, (list, tuple)):
            if len(value) == 2 and isinstance(value[0], str) and _SECRET_VARIABLE.fullmatch(value[0]):
                return [value[0], self.json(value[1], value[0], context)]
            return self._list(value, lambda item: self.json(item, key, context))
        # JSON has no such numbers as NaN.
        return None if isinstance(value, float) and not math.isfinite(value) else value

    def document(self, value: Json, key: str = "", context: Context = "prose") -> Json:
        """JSON of ours (facts, a report): its keys are the model's, so that only settings have telling names."""
        if isinstance(value, str):
            return value if len(value) < self.shortest else self.text(value, key=key, context=context)
        if isinstance(value, Mapping):
            return {
                self.text(name): self.document(item, name, "settings" if name in _SETTINGS else context)
                for name, item in value.items()
            }
        if isinstance(value, (list, tuple)):
            if context == "settings" and len(value) == 2 and all(isinstance(item, str) for item in value):
                name, setting = value
                if _SECRET_KEY.fullmatch(name):
                    return [name, self.redacted()]
                return [self.text(name), self.called(name, setting) or self.text(setting, context=context)]
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
            made.append(self.redacted() if hidden else each(item))
            if isinstance(item, str):
                inside = (inside or begins) and _KEY_ENDS.search(item) is None
            before = item
        return made

    def called(self, name: str, value: str) -> str | None:  # noqa: ARG002  (a subclass looks at them)
        """What stands in the place of a variable's value for what the variable is called."""
        return None

    def text(self, text: str, *, key: str = "", context: Context = "prose") -> str:  # noqa: ARG002  (as above)
        """A string, scrubbed. `key` is what it is the value of."""
        # The lines of a key first: one by one they do not show what they are.
        text = _SHAPES.sub(self._secret, text)
        text = "\n".join(self.line(line, context) for line in text.split("\n"))
        text = _AWS_SECRET.sub(self._secret, text)
        return _RANDOM.sub(self._random, text) if context == "settings" else text

    def line(self, line: str, context: Context) -> str:
        lowered = line.lower()
        if any(word in lowered for word in _SUSPICIOUS):
            assigned = _ASSIGNED_OPTION if context == "mounts" else _ASSIGNED
            for pattern in (
                _COOKIE, _URL_CREDENTIALS, _LOGIN_BEFORE_HOST, _AUTHORIZATION, assigned, _AUTH_ENCODED,
                _PASSWORD_SHORT, _PASSWORD_AFTER, _PASSWORD_PIPED, _NETRC, _WANDB, _OPTION_U, _OPTION_P_JOINED,
            ):  # fmt: skip
                line = pattern.sub(self._assigned, line)
            line = _OPTION_P.sub(self._option, line)
        return line

    def _option(self, match: re.Match[str]) -> str:
        return (
            match[0]
            if _OTHER_P.search(match.string, max(0, match.start() - 80), match.start())
            else self._assigned(match)
        )

    def redacted(self) -> str:
        self.secrets += 1
        return REDACTED

    def _random(self, word: re.Match[str]) -> str:
        return self._secret(word) if _looks_random(word[0]) else word[0]

    def _assigned(self, match: re.Match[str]) -> str:
        quote = _QUOTED.match(match["value"])
        bare = match["value"].strip("\\\"'")
        if bare in ("", "(null)") or bare.startswith(REDACTED[:-1]):
            return match[0]
        return match["key"] + (f"{quote[1]}{self.redacted()}{quote[1]}" if quote else self.redacted())

    def _secret(self, _: re.Match[str]) -> str:
        return self.redacted()


def _looks_random(word: str) -> bool:
    """Whether a long word among settings can only be a secret: capitals, small letters and digits mixed."""
    mixed = all(sum(map(test, word)) >= 3 for test in (str.isupper, str.islower, str.isdigit))
    return mixed and not CARD_UUID.search(word)


def _takes_secret(before: Json, word: str) -> bool:
    """Whether `word`, after `before` in a list of arguments, is a secret."""
    if not isinstance(before, str) or word.startswith("-"):
        return False
    return _SECRET_OPTION.fullmatch(before) is not None or (
        before == "-p" and _OPTION_P.fullmatch(f"-p {word}") is not None
    )

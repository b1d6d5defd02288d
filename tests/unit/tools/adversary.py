"""Random calls that try to evade rules. The kernel, shlex and other URL parsers say what each call would reach."""

from __future__ import annotations

import os
import random
import shlex
import unicodedata
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import httpx
import yarl

from bot.contracts.identity import ChatKey
from bot.contracts.messages import Taint
from bot.system import read_link
from bot.tools.permissions.patterns import Paths
from bot.tools.permissions.rules import Call, Decision, PolicyContext, Rules, Subject

NOON = PolicyContext(datetime(2026, 11, 20, 12, tzinfo=UTC))
MEMBER = Subject("slack", "U1", "member", ChatKey.parse("slack:chat:C1:thread:10"))
STRICT = {"deny": 0, "ask": 1, "allow": 2}
NAMES = ("open", "secret", "Secret", "vault", "café", "notes.txt", "key.pem", "a b", "秘密", "*", "x")
STEPS = (  # noqa: SIM905 - a list would take a page
    "..¦.¦¦open¦secret¦vault¦out¦way¦deep¦loop¦café¦key.pem¦notes.txt¦x¦秘密"
).split("¦")
WORDS = (  # noqa: SIM905 - a list would take a page
    "git status log rm -rf / x --oneline = A=1 git=1 ｇｉｔ e\u0301 #"
).split()
SIGNS = (  # noqa: SIM905 - a list would take a page
    " ¦ ¦ ¦ ¦;¦|¦&¦$(x)¦`x`¦\n¦\t¦'¦\"¦>¦<¦*¦?¦{a,b}¦\\¦~¦\u2028¦\0¦\r"
).split("¦")
_READING = frozenset({"read_file", "search_files"})
_OWN = ("memory", "schedule_create", "schedule_cancel")
HOSTS = (  # noqa: SIM905 - a list would take a page
    "docs.example.org evil.org docs.example.org.evil.org DOCS.example.org docs.example.org. 127.0.0.1 "
    "xn--e1afmkfd.org"
).split()
BITS = (  # noqa: SIM905 - a list would take a page
    "¦@¦:443¦:80¦:8080¦\\¦/¦//¦#¦?¦%2e%2e/¦../¦%61dmin¦admin¦docs/¦ ¦\t¦%00¦;¦。"
).split("¦")


def plant(root: Path) -> Path:
    """Create a project with a denied folder, an allowed folder, and links between them and out of the project."""
    project, outside = root / "project", root / "outside"
    for folder in (
        "open/deep",
        "secret/deep",
        "vault",
        "Secret",
        "café",
        unicodedata.normalize("NFD", "café"),
        "秘密",
    ):
        (project / folder).mkdir(parents=True, exist_ok=True)
    outside.mkdir()
    links = {
        "out": "../outside",
        "open/way": "../secret",
        "way": "open/way",
        "vault/in": "../secret/deep",
        "loop": "loop",
        "open/out": "/",
        "secret/x": "../open",
        "open/x": "deep/../../vault",
        "alias": str(project),
    }
    for name, target in links.items():
        (project / name).symlink_to(target)
    (root / "linked").symlink_to(project)
    return project


class Adversary:
    """Judges random calls by one set of rules, at random untrusted-text levels. `bypasses` has the wrong decisions."""

    def __init__(self, project: Path, rng: random.Random) -> None:
        self._project = project
        self._rng = rng
        self._root = os.path.realpath(project)
        self._secret, self._open = (f"{self._root}/{name}" for name in ("secret", "open"))
        self.rules = Rules(
            Paths(str(project), read_link),
            allow=(
                "read_file(open/)",
                "write_file(open/*.txt)",
                "run_shell(git *)",
                "web_fetch(https://docs.example.org/docs/*)",
                "edit_file",
                "@trusted:edit_file(open/)",
            ),
            deny=(
                "read_file(secret/)",
                "edit_file(*.pem)",
                "edit_file(秘密/)",
                "search_files(secret/)",
                "web_fetch(evil.org)",
                "web_fetch(docs.example.org/admin*)",
                "run_shell(rm *)",
            ),
        )
        self.bypasses: list[tuple[str, str, str]] = []
        self.decided = {"allow": 0, "ask": 0, "deny": 0}
        self.levels: Counter[tuple[str, str]] = Counter()

    def attack(self, times: int) -> None:
        for _ in range(times):
            tool = self._rng.choice(
                ("read_file", "write_file", "edit_file", "search_files", "run_shell", "web_fetch")
            )
            name, make = {"run_shell": ("command", self._command), "web_fetch": ("url", self._address)}.get(
                tool, ("path", self._path)
            )
            words = make()
            call = Call(tool, {name: words}, frozenset({"read"} if tool in _READING else {"write"}))
            level = self._rng.choice(list(Taint))
            decision = self._judged(call, level)
            self.decided[decision.outcome] += 1
            self.levels[level.name.lower(), decision.outcome] += 1
            wrong = {"run_shell": self._command_wrong, "web_fetch": self._address_wrong}.get(tool)
            judged = (
                wrong(words, decision.outcome)
                if wrong is not None
                else self._path_wrong(tool, words, decision.outcome)
            )
            if judged or self._level_wrong(call, level, decision):
                self.bypasses.append((tool, words, f"{level.name} {decision.outcome}"))
            own = Call(self._rng.choice(_OWN), {}, frozenset({"write"}))
            if self._own_wrong(own, level):
                self.bypasses.append((own.tool, "", level.name))

    def _judged(self, call: Call, level: Taint) -> Decision:
        return self.rules.judge(call, [MEMBER], PolicyContext(NOON.time, taint=level))

    def _level_wrong(self, call: Call, level: Taint, decision: Decision) -> bool:
        """Return True if untrusted text allowed something, or changed more than its level may change."""
        clean = self._judged(call, Taint.NONE)
        if STRICT[decision.outcome] > STRICT[clean.outcome] or decision.lasting > clean.lasting:
            return True
        if (decision.outcome == "deny") != (clean.outcome == "deny"):
            return True
        if level == Taint.WORKSPACE and clean.source == "rule":
            return decision != clean
        changes = level == Taint.FOREIGN and "write" in call.effects
        return changes and (
            decision.lasting or (decision.outcome == "allow" and "@trusted:" not in decision.rule)
        )

    def _own_wrong(self, call: Call, level: Taint) -> bool:
        """Return True if a call that concerns only the asker was neither allowed nor left to the asker to confirm."""
        decision = self._judged(call, level)
        if level == Taint.NONE:
            return decision.outcome != "allow"
        return decision.outcome != "ask" or not (decision.own and decision.granted)

    def _path(self) -> str:
        steps = self._rng.choices(STEPS, k=self._rng.randint(1, 7))
        begin = self._rng.choice(
            ("", "", "", "./", "/", self._root + "/", str(self._project.parent / "linked") + "/", "//")
        )
        words = begin + "/".join(steps) + self._rng.choice(("", "", "/", "/.", "\0", " "))
        return self._rng.choice(
            (
                str,
                str,
                str,
                str.upper,
                str.title,
                lambda one: unicodedata.normalize("NFD", one),
                lambda one: one.replace("e", "ｅ"),
            )
        )(words)

    def _path_wrong(self, tool: str, words: str, outcome: str) -> bool:
        if "\0" in words:
            return outcome == "allow"
        try:
            real = os.path.realpath(words if words.startswith("/") else f"{self._root}/{words}", strict=False)
        except OSError:
            return outcome == "allow"
        parts = unicodedata.normalize("NFKC", real[len(self._root) :]).casefold().split("/")
        inside = _within(real, self._root)
        if tool == "read_file":
            closed = _within(real, self._secret) or (inside and parts[1:2] == ["secret"])
            return closed and outcome != "deny"
        if tool == "search_files":
            return (_within(real, self._secret) or _within(self._secret, real)) and outcome != "deny"
        if tool == "edit_file":
            closed = parts[-1].endswith(".pem") or parts[1:2] == ["秘密"]
            return outcome == "allow" and (closed or not inside)
        held = real.rpartition("/")[0] == self._open and real.endswith(".txt")
        return outcome == "allow" and not held

    def _command(self) -> str:
        words = self._rng.choices(WORDS, k=self._rng.randint(1, 5))
        words[0] = self._rng.choice(("git", "git", "/bin/rm", *words))
        return "".join(
            word + self._rng.choice(SIGNS if self._rng.random() < 0.3 else (" ",)) for word in words
        )

    def _command_wrong(self, words: str, outcome: str) -> bool:
        if outcome != "allow":
            return False
        reader = shlex.shlex(words, posix=True, punctuation_chars=True)
        reader.whitespace_split = True
        try:
            read = list(reader)
        except ValueError:
            return True
        return (
            read != words.split()
            or read[0] != "git"
            or any(sign in words for sign in ";|&$`\n\"'<>*?{}\\~#\0")
        )

    def _address(self) -> str:
        host, rng = self._rng.choice(HOSTS), self._rng
        user = rng.choice(("", "", "docs.example.org@", "a:b@", "docs.example.org\\@", "docs.example.org#@"))
        path = "".join(rng.choices(BITS, k=rng.randint(0, 4)))
        return (
            rng.choice(("https://", "https://", "http://", "HTTPS://", "ftp://", "//", ""))
            + user
            + host
            + rng.choice(("", ":443", ":80", ":8443"))
            + "/"
            + rng.choice(("docs/", "admin", ""))
            + path
        )

    def _address_wrong(self, words: str, outcome: str) -> bool:
        read = []
        for parse in (yarl.URL, httpx.URL):
            try:
                url = parse(words)
                read.append(((url.host or "").rstrip(".").lower(), url.scheme, url.port, url.path))
            except (ValueError, httpx.InvalidURL):
                continue
        if outcome == "allow":
            return not read or any(
                host != "docs.example.org"
                or scheme != "https"
                or port not in {None, 443}
                or not path.startswith("/docs/")
                for host, scheme, port, path in read
            )
        return any(host == "evil.org" for host, *_ in read) and outcome != "deny"


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")

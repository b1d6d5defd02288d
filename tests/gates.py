"""Checks the project rules that no linter knows: `python -m tests.gates`.

With `shrink`, the command removes the exceptions that are no longer needed from `tests/exceptions.toml`.
"""

from __future__ import annotations

import ast
import contextlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

CODE = ("bot", "channels")
FAKES = "bot/testing/"
WAITS = {
    "bot/core/intake.py": 4,  # before a message is confirmed to the platform, or a new name to the person
    "bot/core/outbox.py": 2,  # before a message is sent, and before a live message is created
    "bot/core/loop.py": 1,  # before a tool call with effects
    # These read from the database file, so all events must be committed.
    "bot/core/exports.py": 1,
    "bot/core/runner.py": 1,
    "bot/core/event_log.py": 5,
    "bot/features/removal.py": 1,
}
"""Max number of waits for a commit of the log, by file. All other code treats an event as stored once the
event is appended.
"""

EXCEPTIONS = "tests/exceptions.toml"
"""File of exceptions: how many breaches of two rules each source file may have. The numbers may
only decrease.
"""

SPEAKERS = (
    *(
        f"bot/core/{name}.py"
        for name in ("access", "background", "intake", "outbox", "reply", "runner", "saying")
    ),
    "bot/errors.py",
    "bot/features/",
    "channels/",
)
"""Code that writes to people. The texts that people read belong in `bot/words`, in each language."""
FOR_THE_MODEL = ("bot/cli/replay.py", "bot/features/replay/", "bot/features/search/", "bot/features/jobs.py")
"""Features whose sentences are SQL or results of tools, not messages to people."""
SENTENCE = re.compile(
    r"\W{0,3}[A-Z][\w’']*(?:,? \S+){2}|\W{0,3}[A-Z][^\n]* \S+[.?!…]\)?$|\W{0,3}[A-Z][a-z’']+[.?!…]\)?$|[^\\]*[\u3400-\u9fff]{2}"
)
MARK = re.compile(r"\W*[\[(‹⟨（［](?=[^\n]*[A-Za-z]{3})[^\n\\+*|?^]*[\])›⟩）］]\W*")
"""Pattern of a remark in brackets that replaces text, for example `[removed]`."""
SHOWN = frozenset({"accessibility_label", "alt_text", "description", "label", "placeholder", "text", "title"})
"""Names of dictionary keys and of call arguments whose text a platform shows to people."""
BUTTONS = {"BotCommand": 1, "InlineKeyboardButton": 0}
"""Library classes whose texts people read, each with the position of the text among the arguments."""
SHOWN_BY_HTML = re.compile(r">([^<]*)<|\b(?:alt|aria-label|data-label|placeholder|title)=\"([^\"]*)\"")
SHOWN_BY_SCRIPT = re.compile(
    r"(?:\.(?:ariaLabel|placeholder|textContent|title) = |\b(?:button|append|prepend|replaceChildren)\()([\"'`])([^\"'`]*)\1"
    r"|([\"`])(\W{0,3}[A-Z][a-z’']+(?:[.?!…]| [^\"`\n]*))\3"
)
JINJA = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
LITERAL = re.compile(r"([\"'])((?:(?!\1).)*)\1")
WORDS = re.compile(r"^\W*[A-Z][a-z]|[A-Za-z] | [A-Za-z]|[\u3400-\u9fff]")
"""Pattern of a text in a template's expression that people read: a capital letter, or a space beside a letter."""
SHOWN_BY = {".html": SHOWN_BY_HTML, ".js": SHOWN_BY_SCRIPT}
OWN_NAME = "Shipmate"
UNHEARD = frozenset({"write", "tell", "begin", "end", "report_missing_right", "log_once"})
"""Names of functions whose texts go only to the log and to operators."""

TIMED = ("tests/bench/", "tests/browser/", "tests/corpus/", "tests/torture/")
"""Tests that measure durations, or that use `until` with another meaning. The short-timeout rule skips these tests."""
GUARDS = {"timeout": 0, "until": 1, "wait_for": 1}
"""Names of functions with a timeout, each with the position of the seconds among the arguments."""
LEAST = 60
"""Min timeout in seconds that a test may use. Timeouts under one second are allowed, because they check that
something does not happen.
"""

KNOWN_TO = {
    "Outbound": {"bot/contracts/channel.py", "bot/contracts/messages.py", "bot/core/outbox.py"},
}
"""Names that only the listed modules may use. Code that cannot name `Outbound` cannot call a channel's send,
edit, find or draft.
"""

# The patterns contain ~ so that this file itself passes; the search removes each ~ first.
FORBIDDEN = {
    r"py~pi\.org|python~hosted|npm~js\.(?:com|org)": "the host of a package registry",
    r"NotImplemented~Error": "unfinished code",
    r"\b(?:TO~DO|FIX~ME)\b": "unfinished work",
    r"#\s*fm~t:": "a switch of the formatter; let it wrap",
    r"(?<![\w.:/-])/(?:ro~ot|wo~rk|ho~me/[a-z]\w*|Us~ers/\w+)/[\w.]": "a path of one machine",
    r"(?m)^(?:<<~<<<<<|>>~>>>>>) ": "what a merge left",
}


def parsed(source: str) -> ast.Module:
    """Return the syntax tree of a module."""
    for _ in range(1_000):
        with contextlib.suppress(SystemError):
            return ast.parse(source)
    return ast.parse(source)


def main(root: Path, *, shrink: bool = False) -> int:
    if shrink:
        _shrink(root)
    findings = list(examine(root))
    for line in findings:
        print(line)
    print(f"gates: {len(findings)} findings" if findings else "gates: all rules hold")
    return bool(findings)


def examine(root: Path) -> Iterator[str]:
    """Yield every breach of a rule, as `path:line: rule`."""
    sentences, labels = dict[str, list[int]](), dict[str, list[int]]()
    for path in tracked(root):
        name = path.relative_to(root).as_posix()
        try:
            content = path.read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):
            continue  # an image, or a file that was just deleted
        yield from _words(name, content)
        if path.suffix == ".py" and name.startswith(CODE):
            tree = parsed(content)
            yield from _waits(name, tree)
            if name.startswith(SPEAKERS) and not name.startswith(FOR_THE_MODEL):
                sentences[name] = list(_sentences(tree))
                labels[name] = list(_labels(tree))
            if not name.startswith(FAKES):
                yield from _known(name, tree)
        elif path.suffix in SHOWN_BY and name.startswith("channels/"):
            labels[name] = list(_shown(SHOWN_BY[path.suffix], content))
        elif path.suffix == ".html" and name.startswith(CODE):
            labels[name] = list(_shown_by_template(content))
        elif path.suffix == ".py" and name.startswith("tests/") and not name.startswith(TIMED):
            yield from _short_guards(name, parsed(content))
    allowed = _exceptions(root)
    rule = "stands in code; put it into bot/words and `say` it"
    yield from _compared(sentences, "sentences", allowed, f"a sentence {rule}")
    yield from _compared(labels, "labels", allowed, f"a label {rule}")


def _exceptions(root: Path) -> Mapping[str, Any]:
    path = root / EXCEPTIONS
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _compared(
    found: Mapping[str, list[int]], section: str, exceptions: Mapping[str, Any], rule: str
) -> Iterator[str]:
    """Yield the breaches beyond the allowed number, and the exceptions that are no longer needed."""
    allowed = exceptions.get(section, {})
    for name in sorted({*found, *allowed}):
        lines, most = found.get(name, []), allowed.get(name, 0)
        for line in lines[most:]:
            yield f"{name}:{line}: {rule}"
        if len(lines) < most:
            told = f"{name} needs {len(lines)} exceptions in [{section}], not {most}"
            yield f"{EXCEPTIONS}: {told}: run python -m tests.gates shrink"


def tracked(root: Path) -> list[Path]:
    """Return the tracked and new files of the repository; outside a repository, all files of the folder."""
    git = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    done = subprocess.run(git, capture_output=True, text=True, check=False)
    if done.returncode:
        return sorted(path for path in root.rglob("*") if path.is_file())
    return [root / name for name in sorted(done.stdout.split("\0")) if name]


def _words(name: str, content: str) -> Iterator[str]:
    for pattern, meaning in FORBIDDEN.items():
        for match in re.finditer(pattern.replace("~", ""), content):
            line = content.count("\n", 0, match.start()) + 1
            yield f"{name}:{line}: {match.group()!r} is {meaning}"


def _waits(name: str, tree: ast.AST) -> Iterator[str]:
    waits = [
        one.lineno
        for one in ast.walk(tree)
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr == "committed"
    ]
    for line in waits[WAITS.get(name, 0) :]:
        yield f"{name}:{line}: a wait for the log; an event counts once it is appended"


def _known(name: str, tree: ast.Module) -> Iterator[str]:
    """Yield a breach for each use of a name that is reserved for other modules (`KNOWN_TO`)."""
    for node in ast.walk(tree) if name.startswith("bot/") else ():
        match node:
            case ast.Name(id=used) | ast.Attribute(attr=used) | ast.alias(name=used) if (
                used in KNOWN_TO and name not in KNOWN_TO[used]
            ):
                yield f"{name}:{node.lineno}: {used} is for {', '.join(sorted(KNOWN_TO[used]))} alone"


def _sentences(tree: ast.AST) -> Iterator[int]:
    """Yield the lines with a text that reads like a sentence to people."""
    apart = set[ast.AST]()
    for node in ast.walk(tree):
        silent = isinstance(node, ast.Raise) or (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        )
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            silent = node.func.attr in UNHEARD
        if silent:
            apart.update(ast.walk(node))
        if isinstance(node, ast.JoinedStr):
            apart.update(node.values)
    literals = [node for node in ast.walk(tree) if isinstance(node, (ast.Constant, ast.JoinedStr))]
    found = [node.lineno for node in literals if node not in apart and _is_sentence(_text(node))]
    yield from sorted(found)


def _is_sentence(words: str) -> bool:
    return SENTENCE.match(words) is not None or MARK.fullmatch(words) is not None


def _labels(tree: ast.AST) -> Iterator[int]:
    """Yield the lines with a text that a platform shows to people, even a single word such as a button label."""
    for node in ast.walk(tree):
        given = list[ast.expr | None]()
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            given = [value for key, value in pairs if isinstance(key, ast.Constant) and key.value in SHOWN]
        elif isinstance(node, ast.Call):
            given = [word.value for word in node.keywords if word.arg in SHOWN]
            name = ast.unparse(node.func).rpartition(".")[2]
            if name in BUTTONS:
                given += node.args[BUTTONS[name] :][:1]
        for value in given:
            if isinstance(value, (ast.Constant, ast.JoinedStr)) and any(map(str.isalpha, _text(value))):
                yield value.lineno


def _shown(pattern: re.Pattern[str], content: str) -> Iterator[int]:
    """Yield the lines of an HTML page or a script with a text that the page shows."""
    for match in pattern.finditer(content):
        words = re.sub(r"\$\{[^}]*\}", "", "".join(filter(None, match.groups())))
        if any(map(str.isalpha, words)) and words.strip(" ·") not in {OWN_NAME, "UTC"}:
            yield content.count("\n", 0, match.start()) + 1


def _shown_by_template(content: str) -> Iterator[int]:
    """Yield the lines of a template with a text that its page shows."""
    page = re.sub(r"<code>.*?</code>", "", content)
    for expression in JINJA.finditer(page):
        for literal in LITERAL.finditer(expression.group()):
            if WORDS.search(literal[2]):
                yield page.count("\n", 0, expression.start()) + 1
    yield from _shown(SHOWN_BY_HTML, JINJA.sub(lambda one: "\n" * one.group().count("\n"), page))


def _text(node: ast.Constant | ast.JoinedStr) -> str:
    """Return the text of a literal, with "…" for each inserted value; "" for a literal that is not a string."""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(one.value) if isinstance(one, ast.Constant) else "…" for one in node.values)
    return node.value if isinstance(node.value, str) else ""


def _short_guards(name: str, tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        given = node.args[GUARDS.get(node.func.attr, len(node.args)) :]
        seconds = given[0].value if given and isinstance(given[0], ast.Constant) else None
        if isinstance(seconds, int | float) and 1 <= seconds < LEAST:
            yield f"{name}:{node.lineno}: a guard of {seconds} s, which a busy machine passes; give it 90"


def _shrink(root: Path) -> None:
    """Lower the numbers in the exceptions file to the numbers needed now; comments are kept."""
    path = root / EXCEPTIONS
    content = path.read_text(encoding="utf-8")
    needs = re.compile(rf"{re.escape(EXCEPTIONS)}: (\S+) needs (\d+) exceptions in \[(\S+)\]")
    for name, count, section in (match.groups() for match in map(needs.match, examine(root)) if match):
        line = f'"{name}" = {count}\n' if int(count) else ""
        head, mark, rest = content.partition(f"[{section}]\n")
        rest = re.sub(rf'^"{re.escape(name)}" = \d+.*\n', line, rest, count=1, flags=re.MULTILINE)
        content = head + mark + rest
    path.write_text(content, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(Path(__file__).parents[1], shrink=sys.argv[1:] == ["shrink"]))

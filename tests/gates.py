"""House rules that no linter knows: `python -m tests.gates`."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

CODE = ("bot", "channels")
BROAD = {
    "bot/agent/runtime.py": 1,  # the turn
    "bot/app.py": 1,  # a channel
    "bot/schedule.py": 1,  # a background job
    "bot/tools/dispatch.py": 1,  # a tool
}
"""How often each file may catch every exception; everywhere else errors are caught by name."""

# With ~ in the words, so that this file passes; it is taken out before they are looked for.
FORBIDDEN = {
    r"py~pi\.org|python~hosted|npm~js\.(?:com|org)": "the host of a package registry",
    r"NotImplemented~Error": "unfinished code",
    r"\b(?:TO~DO|FIX~ME)\b": "unfinished work",
    r"(?<![\w.:/-])/(?:ro~ot|wo~rk|ho~me/[a-z]\w*|Us~ers/\w+)/[\w.]": "a path of one machine",
}


def main(root: Path) -> int:
    findings = list(examine(root))
    for line in findings:
        print(line)
    print(f"gates: {len(findings)} findings" if findings else "gates: all rules hold")
    return bool(findings)


def examine(root: Path) -> Iterator[str]:
    """Every breach, as `path:line: rule`."""
    for path in tracked(root):
        name = path.relative_to(root).as_posix()
        try:
            content = path.read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):
            continue  # a picture, or a file just removed
        yield from _words(name, content)
        if path.suffix == ".py" and name.startswith(CODE):
            yield from _broad(name, ast.parse(content))


def tracked(root: Path) -> list[Path]:
    """The files of the repository, or of the folder where there is none."""
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


def _broad(name: str, tree: ast.AST) -> Iterator[str]:
    places = [node for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler) and _catches_all(node)]
    for node in places[BROAD.get(name, 0) :]:
        yield f"{name}:{node.lineno}: catches every exception; catch errors by name"


def _catches_all(node: ast.ExceptHandler) -> bool:
    names = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
    broad = {"Exception", "BaseException"}
    return any(item is None or (isinstance(item, ast.Name) and item.id in broad) for item in names)


if __name__ == "__main__":
    sys.exit(main(Path(__file__).parents[1]))

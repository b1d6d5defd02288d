"""Documents name only existing modules, agree with the code, and are short."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bot.system import read_link
from bot.tools.permissions.patterns import Paths
from bot.tools.permissions.rules import Rules
from tests import reference

ROOT = Path(__file__).parents[2]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
NAMED = re.compile(r"`((?:[a-z_]+/)*[a-z_0-9]+\.py)\b")
SNIPPET = re.compile(r'^--8<-- "(.+)"$', re.MULTILINE)
MEMBER = re.compile(r"`([A-Z][A-Za-z]+)\.(?!md\b)([a-z_]\w*)")
OTHERS = {"brotli.py", "hatch_build.py", "sitecustomize.py"}
"""Names of files outside of these folders."""
OUTCOME = re.compile(r"\| (allow|ask|deny) (.*) \|")
README_WORDS, PAGE_WORDS = 900, 1_500
REFERENCES = {"ARCHITECTURE.md", "CHANGELOG.md", "commands.md", "logs.md", "settings.md"}
JQ = shutil.which("jq")


def test_every_module_and_test_that_a_document_names_is_there() -> None:
    there = [path.as_posix() for top in ("bot", "channels", "tests") for path in (ROOT / top).rglob("*.py")]
    missing = {
        f"{document.relative_to(ROOT)}: {name}"
        for document in DOCUMENTS
        for name in NAMED.findall(document.read_text("utf-8"))
        if name not in OTHERS and not any(path.endswith(f"/{name}") for path in there)
    }
    assert missing == set()


def test_every_member_of_a_class_that_a_document_names_is_there() -> None:
    named = {
        (one, name)
        for document in DOCUMENTS
        if document.name != "CHANGELOG.md"  # it names modules of the past
        for one, name in MEMBER.findall(document.read_text("utf-8"))
    }
    of = dict[str, str]()
    for path in (path for top in ("bot", "channels", "tests") for path in (ROOT / top).rglob("*.py")):
        words = path.read_text("utf-8")
        of |= {one: of.get(one, "") + words for one in re.findall(r"^class (\w+)", words, re.MULTILINE)}
    missing = {f"{one}.{name}" for one, name in named if not re.search(rf"\b{name}\b", of.get(one, ""))}
    assert missing == set()


def test_every_example_is_shown_on_a_page() -> None:
    examples = ROOT / "docs" / "examples"
    shown = {name for page in DOCUMENTS for name in SNIPPET.findall(page.read_text("utf-8"))}
    there = {one.relative_to(examples).as_posix() for one in examples.rglob("*") if one.is_file()}
    assert shown == {name for name in there if not name.endswith(("__init__.py", ".pyc")) or name in shown}


def test_pages_are_short() -> None:
    words = {one: len(re.findall(r"\S*[^\W\d_]\S*", one.read_text("utf-8"))) for one in DOCUMENTS}
    assert words[ROOT / "README.md"] < README_WORDS
    assert {one.name for one, many in words.items() if many > PAGE_WORDS} <= REFERENCES


@pytest.mark.parametrize("page", sorted(reference.pages()))
def test_the_pages_that_follow_from_the_code_are_current(page: str) -> None:
    assert (ROOT / page).read_text("utf-8") == reference.pages()[page], "run `make schema`"


def test_every_rule_that_the_permissions_page_shows_is_one() -> None:
    page = (ROOT / "docs" / "run" / "permissions.md").read_text("utf-8")
    block = page.partition("```json\n")[2].partition("```")[0]
    given: dict[str, list[str]] = json.loads(f"{{{block}}}")["permissions"]
    shown = OUTCOME.findall(page)
    assert len(shown) == 12
    for outcome, cell in shown:
        given[outcome] += re.findall(r"`([^`]+)`", cell)
    Rules(Paths("/project", read_link), **given)  # raises `RuleMalformed` if a rule is malformed


def _logged(root: Path) -> str:
    """Write a log of two days, one of them compressed. Return the date of the other day."""
    logs = root / ".ship" / "logs"
    logs.mkdir(parents=True)
    today = subprocess.check_output(["date", "-u", "+%F"], text=True).strip()
    common = {"timestamp": f"{today}T12:00:00Z", "level": "info", "message": "说了", "chatKey": "web:chat:1"}
    usage = {"inputTokens": 100, "cacheReadTokens": 700, "cacheWriteTokens": 200, "outputTokens": 50}
    lines: list[dict[str, Any]] = [
        {"kind": "llm_response", "details": {"costUsd": 0.25, "usage": usage}},
        {"kind": "tool_result", "details": {"tool": "grep"}, "duration": 12.5, "requestId": "01J"},
        {"kind": "delivery", "level": "error", "details": {"cause": "refused"}},
        {"kind": "turn_end", "details": {"status": "done"}, "duration": 800.0},
    ]
    text = "".join(json.dumps(common | line, ensure_ascii=False) + "\n" for line in lines)
    (logs / f"{today}.jsonl").write_text(text, encoding="utf-8")
    (logs / "2026-01-01.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    return today


@pytest.mark.skipif(JQ is None, reason="jq is not installed")
def test_the_recipes_for_jq_show_what_they_say(tmp_path: Path) -> None:
    (recipes,) = re.findall(
        r"```sh\n(.*?)```", (ROOT / "docs" / "logs.md").read_text(encoding="utf-8"), re.DOTALL
    )
    _logged(tmp_path)
    commands = [line for line in recipes.splitlines() if not line.startswith("#")]
    told = [
        subprocess.run(["bash", "-c", one], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        for one in commands
    ]
    wrong, cost, slow = told
    assert wrong.split("\t")[1:] == ["delivery", "说了", "refused\n"]
    assert json.loads(cost) == {"web:chat:1": 0.5}
    assert slow == "12.5\tgrep\t01J\n" * 2


def test_the_recipes_for_duckdb_show_what_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed")
    (recipes,) = re.findall(
        r"```sql\n(.*?)```", (ROOT / "docs" / "logs.md").read_text(encoding="utf-8"), re.DOTALL
    )
    today = _logged(tmp_path)
    monkeypatch.chdir(tmp_path)
    with duckdb.connect() as database:
        view, days, turns = (one for one in recipes.split(";") if one.strip())
        database.execute(view)
        ((day, usd, cached),) = database.execute(days).fetchall()
        ((quantiles,),) = database.execute(turns).fetchall()
    assert (day.isoformat(), usd, round(cached, 3), quantiles) == (today, 0.5, 0.7, [800.0, 800.0])


@pytest.mark.skipif(shutil.which("lnav") is None, reason="lnav is not installed")
def test_lnav_reads_the_log_by_our_format(tmp_path: Path) -> None:
    today = _logged(tmp_path)

    def lnav(*words: str) -> str:
        env = {**os.environ, "HOME": str(tmp_path)}
        return subprocess.check_output(["lnav", *words], cwd=tmp_path, env=env, text=True, timeout=60)

    lnav("-i", str(ROOT / "deploy" / "shipmate.lnav.json"))
    query = ";SELECT log_level, kind, duration FROM shipmate_log ORDER BY log_line"
    shown = lnav("-n", "-c", query, "-c", ":write-csv-to -", f".ship/logs/{today}.jsonl")
    assert shown.splitlines() == [
        "log_level,kind,duration",
        "info,llm_response,<NULL>",
        "info,tool_result,12.5",
        "error,delivery,<NULL>",
        "info,turn_end,800",
    ]

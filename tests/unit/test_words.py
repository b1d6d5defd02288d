"""The catalogues of sentences are complete in each language. The code uses only existing keys."""

from __future__ import annotations

import ast
import re
import shutil
import string
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bot import errors
from bot.app import terminal_language
from bot.words import (
    CATALOGUES,
    DEFAULT,
    best_language,
    is_traditional,
    language_of,
    names,
    paragraph,
    say,
    speaking,
)
from tests import gates

ROOT = Path(__file__).parents[2]
ENGLISH = CATALOGUES[DEFAULT]
UNSAID = re.compile(r"\b(?:JSON|token|ULID|traceback)\b", re.IGNORECASE)


def forms(sentence: object) -> list[str]:
    return [sentence] if isinstance(sentence, str) else list(dict(sentence).values())  # type: ignore[call-overload]


def fields(sentence: object) -> set[str]:
    parsed = [part for form in forms(sentence) for part in string.Formatter().parse(form)]
    return {name for _, name, _, _ in parsed if name} | (
        {"count"} if not isinstance(sentence, str) else set()
    )


@pytest.mark.parametrize("code", CATALOGUES)
def test_each_language_has_each_sentence_with_its_fields(code: str) -> None:
    catalogue = CATALOGUES[code]
    assert catalogue.keys() == ENGLISH.keys()
    assert [key for key in ENGLISH if fields(catalogue[key]) != fields(ENGLISH[key])] == []


@pytest.mark.parametrize("code", CATALOGUES)
def test_menus_and_descriptions_fit_their_platforms(code: str) -> None:
    with speaking(code):
        assert all(1 <= len(say(f"help.{name}")) <= 256 for name in names("help"))
        assert len(say("telegram.about")) <= 120
        assert len(say("telegram.description")) <= 512
        assert all(len(say(f"buttons.{name}")) <= 75 for name in names("buttons"))


def test_sentences_stand_behind_each_other_as_their_language_writes_them() -> None:
    assert paragraph("One.", "Two.") == "One. Two."
    with speaking("zh"):
        assert paragraph("一。", "二。") == "一。二。"


def said() -> Iterator[tuple[str, ast.Call]]:
    """Yield each call of `say` and `sentence` in the code, with its file."""
    for path in sorted((*(ROOT / "bot").rglob("*.py"), *(ROOT / "channels").rglob("*.py"))):
        source = path.read_text("utf-8")
        if re.search(r"^from bot\.words import (?:\([^)]*|.*)\b(?:say|sentence)\b", source, re.MULTILINE):
            for node in ast.walk(gates.parsed(source)):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Name)
                    and node.func.id in {"say", "sentence"}
                ):
                    yield path.relative_to(ROOT).as_posix(), node


def keys(argument: ast.expr) -> Iterator[str]:
    """Yield the keys that a call may use: one key, both keys of a condition, or all keys that match an f-string."""
    if isinstance(argument, ast.IfExp):
        yield from keys(argument.body)
        yield from keys(argument.orelse)
    elif isinstance(argument, ast.JoinedStr):
        parts = [
            re.escape(str(one.value)) if isinstance(one, ast.Constant) else ".+" for one in argument.values
        ]
        yield from (key for key in ENGLISH if re.fullmatch("".join(parts), key))
    elif isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        yield argument.value


def test_what_is_said_is_in_the_catalogues_with_the_values_that_it_needs() -> None:
    asked = list(said())
    assert len(asked) > 100
    wrong = list[str]()
    for name, call in asked:
        given = {word.arg for word in call.keywords}
        found = list(keys(call.args[0]))
        exact = not isinstance(call.args[0], ast.JoinedStr) and None not in given
        needed = set().union(*(fields(ENGLISH.get(key, "")) for key in found)) if exact else set()
        if not (set(found) <= ENGLISH.keys() and needed <= given) or not (
            found or isinstance(call.args[0], ast.Name)
        ):
            wrong.append(f"{name}:{call.lineno}: {found}")
    assert wrong == []


def test_no_catalogue_has_a_sentence_that_nobody_says() -> None:
    code = "\n".join(
        path.read_text("utf-8")
        for folder, kind in (("bot", "*.py"), ("channels", "*.py"), ("bot/dashboard/pages", "*.html"))
        for path in (ROOT / folder).rglob(kind)
    )
    known = {key for _, call in said() for key in keys(call.args[0])}
    known |= {key for key in ENGLISH if f'"{key}"' in code}
    # A key that is built from a variable: the name of a section and a dot before the variable.
    made = [
        re.compile(re.escape(head) + ".+")
        for head in re.findall(r'f"((?:approval|receipt|turn)\.\w+_|kinds\.|quoted\.)\{', code)
    ]
    # A template of the console joins names: `say("dashboard." ~ name)`.
    made += [re.compile(re.escape(head) + ".+") for head in re.findall(r'say\("([\w.]+)" ~ ', code)]
    known |= {key for key in ENGLISH if any(one.fullmatch(key) for one in made)}
    known |= {f"errors.{one.sentence}" for one in every_error(errors.ShipmateError)}
    assert sorted(ENGLISH.keys() - known) == []


def every_error(kind: type[errors.ShipmateError]) -> Iterator[type[errors.ShipmateError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from every_error(below)


def test_every_error_has_its_sentence_in_each_language() -> None:
    for code in CATALOGUES:
        assert {one.sentence for one in every_error(errors.ShipmateError)} <= {
            key.removeprefix("errors.") for key in CATALOGUES[code]
        }


@pytest.mark.parametrize("code", CATALOGUES)
def test_errors_speak_of_nothing_that_only_operators_know(code: str) -> None:
    with speaking(code):
        assert [name for name in names("errors") if UNSAID.search(say(f"errors.{name}"))] == []


@pytest.mark.parametrize("tag", ["zh", "zh-CN", "zh-Hans-HK", "zh-SG", "en-HK", "", None])
def test_tags_of_traditional_chinese_are_told_from_others(tag: str | None) -> None:
    assert all(map(is_traditional, ("zh-Hant", "zh_TW", "zh-hk", "ZH-Hant-HK", "zh-MO")))
    assert not is_traditional(tag)


@pytest.mark.parametrize(
    ("tag", "code"),
    [
        ("zh-hans", "zh"),
        ("zh_CN", "zh"),
        ("ZH", "zh"),
        ("en-US", "en"),
        ("de", None),
        ("", None),
        (None, None),
        ("../zh", None),
    ],
)
def test_tags_of_platforms_name_catalogues(tag: str | None, code: str | None) -> None:
    assert language_of(tag) == code


def test_what_the_model_is_told_of_an_error_is_english_whatever_is_spoken() -> None:
    with speaking("zh"):
        error = errors.StorageError("disk")
        assert "文件" in error.person
        assert error.for_model == "I can't read or write my files right now. Please try again later."


@pytest.mark.parametrize(
    ("accepted", "code"),
    [
        ("zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        ("en-GB, zh", "en"),
        ("fr;q=0.9, zh;q=0.2, en;q=0.3", "en"),
        ("zh;q=0, en;q=0.1", "en"),
        ("fr", "en"),
        ("*", "en"),
        ("zh;q=x", None),
        (" , ", None),
        ("", None),
    ],
)
def test_a_browser_names_its_languages_in_its_order(accepted: str, code: str | None) -> None:
    assert best_language(accepted) == code


@pytest.mark.parametrize(
    ("environment", "code"),
    [
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C"}, "en"),
        ({"LANG": "en_US.UTF-8", "LC_MESSAGES": "zh_TW"}, "zh"),
        ({"LC_ALL": "", "LANG": "zh"}, "zh"),
        ({}, "en"),
    ],
)
def test_a_terminal_names_its_language_by_its_locale(environment: dict[str, str], code: str) -> None:
    assert terminal_language(environment) == code


ASKED = re.compile(
    r"(?:dashboard|receipt|stats|sessions|operators|rights|whoami|jobs)\."
    r"|commands\.(?:compacted_figures|model_\w+|no_id|whoami_\w+)|approval\.(?:typed|which)|strangers\.question"
    r"|page\.(?:wants_)?token|web\.wrong_token"
)
"""Pattern of keys whose sentences may contain technical terms, because only operators or the asking person read them."""
HIDDEN = re.compile(
    r"\b(?:JSON|UTC|ULID|tokens?)\b|\{(?:id|key|request)\}|[0-9A-HJKMNP-TV-Z]{26}", re.IGNORECASE
)


@pytest.mark.parametrize("code", CATALOGUES)
def test_every_sentence_is_whole_with_its_values_and_hides_what_nobody_asked_for(code: str) -> None:
    wrong = list[str]()
    for key, told in CATALOGUES[code].items():
        for count, form in enumerate(forms(told), 1):
            parsed = [(name, spec) for _, name, spec, _ in string.Formatter().parse(form) if name]
            # A placeholder with a number format gets a number, any other a marked text.
            given: dict[str, Any] = {name: 7 if spec else f"<{name}>" for name, spec in parsed}
            if not isinstance(told, str):
                given["count"] = 1 if count == 1 and "one" in told else 2
            with speaking(code):
                words = say(key, **given)
            marks = [one for one in given.values() if isinstance(one, str)]
            if not words.strip() or not all(mark in words for mark in marks) or set("{}") & set(words):
                wrong.append(f"{key}: {words}")
            if not ASKED.match(key) and HIDDEN.search(form):
                wrong.append(f"{key}: {form}")
    assert wrong == []


SPEAKS = """
from bot.words import CATALOGUES, language_of, say, speaking
with speaking(language_of("fr-CA")):
    print(" ".join(CATALOGUES), say("language.name"), say("status.working", count=1), say("status.working", count=2))
    print(say("stop.nothing"))
"""


def test_a_third_language_is_one_file_and_what_it_lacks_is_english(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "bot/words", tmp_path / "bot/words")
    shutil.copy(ROOT / "bot/__init__.py", tmp_path / "bot")
    (tmp_path / "bot/words/fr.toml").write_text(
        '[language]\nname = "Français"\n[status]\nworking = { one = "Un message", other = "{count} messages" }\n',
        "utf-8",
    )
    done = subprocess.run(
        [sys.executable, "-c", SPEAKS],
        cwd=tmp_path,
        env={"PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        check=True,
    )
    assert done.stdout.decode() == f"en fr zh Français Un message 2 messages\n{say('stop.nothing')}\n"

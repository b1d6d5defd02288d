"""`shipmate export` and `shipmate erase` as they are typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bot.access_list import AccessList
from bot.contracts.identity import ChatKey
from bot.storage.file_names import encode
from bot.system import SystemClock, SystemDisk
from tests.unit.cli.conftest import Shipmate, process


@pytest.fixture
def lists(project: Path) -> AccessList:
    found = AccessList(project / ".ship" / "access.json", SystemDisk(), SystemClock())
    found.allow("telegram", "1")
    return found


def test_a_person_is_given_out_and_erased(shipmate: Shipmate, project: Path, lists: AccessList) -> None:
    given = shipmate("export", "telegram:1", "--dir", project)
    assert (given.code, given.lines) == (0, [{"from": "access.json", "value": "allow"}])
    done = shipmate("erase", "telegram:1", "--yes", "--dir", project)
    assert done.code == 0
    first, second = done.out.splitlines()
    assert first == "Removed all that was kept of telegram:1: 1 entry of the access list."
    assert second.startswith("Not touched: ship.json, files of the project, backups")
    assert shipmate("erase", "telegram:1", "-y", "--dir", project).out == "Nothing was kept of telegram:1.\n"
    given = shipmate("export", "telegram:1", "--dir", project)
    assert (given.code, given.out) == (0, "")
    assert "Nothing is kept of telegram:1." in given.err


def test_what_went_is_a_sentence_without_what_there_was_none_of(
    shipmate: Shipmate, project: Path, lists: AccessList
) -> None:
    key = ChatKey.parse("telegram:chat:1")
    line = {"v": 1, "ts": 1_700_000_000_000, "channel": "telegram", "chatId": "1", "chatKey": str(key)}
    said = [{**line, "userId": "1", "role": "user", "text": words} for words in ("one", "two")]
    chats = project / ".ship" / "chats"
    chats.mkdir()
    (chats / f"{encode(key)}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in said))
    out = shipmate("erase", "telegram:1", "--yes", "--dir", project).out.splitlines()
    assert out[0] == (
        "Removed all that was kept of telegram:1: 2 lines of the archive and 1 entry of the access list."
    )


def test_without_a_terminal_nothing_is_removed_unless_it_is_confirmed(
    project: Path, lists: AccessList
) -> None:
    done = process("erase", "telegram:1", "--dir", project)
    assert (done.code, done.out) == (2, "")
    assert "--yes" in done.err
    assert lists.lists_with("telegram", "1") == ["allow"]


def test_who_is_nobody_is_wrong_usage(shipmate: Shipmate, project: Path, tmp_path: Path) -> None:
    for person, why in (("1", "No person is named by"), ("fax:1", "no channel is called")):
        for name in ("erase", "export"):
            done = shipmate(name, person, "--dir", project)
            assert done.code == 2
            assert why in " ".join(done.err.replace("│", " ").split())
    (tmp_path / "empty").mkdir()
    done = shipmate("export", "telegram:1", "--dir", tmp_path / "empty")
    assert (done.code, "there is no .ship" in done.err) == (1, True)

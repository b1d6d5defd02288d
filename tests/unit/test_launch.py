"""The launcher of the installed package finds only `bot` and `channels` in its folder."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from bot import launch

REPO = str(Path(__file__).parents[2])


@pytest.fixture(autouse=True)
def _own_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(sys, "path", list(sys.path))


def test_it_finds_its_packages_and_nothing_else_in_a_folder() -> None:
    finder = launch.Finder(REPO)
    spec = finder.find_spec("bot")
    assert spec is not None
    assert spec.submodule_search_locations == [f"{REPO}/bot"]
    assert finder.find_spec("tests") is None


def test_what_others_have_put_under_its_names_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    planted, ours = ModuleType("channels.planted"), sys.modules["bot.launch"]
    planted.__file__ = "/elsewhere/channels/planted.py"
    monkeypatch.setitem(sys.modules, "channels.planted", planted)
    launch.prefer(REPO)
    assert "channels.planted" not in sys.modules
    assert sys.modules["bot.launch"] is ours
    first = sys.meta_path[0]
    assert isinstance(first, launch.Finder)
    assert first.folder == REPO


def test_a_folder_that_is_named_comes_after_all_others() -> None:
    launch.find("/a/source")
    last = sys.meta_path[-1]
    assert isinstance(last, launch.Finder)
    assert last.folder == "/a/source"


@pytest.mark.parametrize("first", ["", None])
def test_the_current_folder_is_no_place_to_import_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, first: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    sys.path.insert(0, str(tmp_path) if first is None else first)
    kept = sys.path[1:]
    launch.leave_folder()
    assert sys.path == kept
    launch.leave_folder()
    assert sys.path == kept

"""Each feature is a module. The gateway still works if any one feature is removed."""

from __future__ import annotations

import pkgutil
from pathlib import Path

import pytest

from bot.core import feature
from tests.blackbox.conftest import World

PROJECT = Path(__file__).parents[2]
FEATURES = sorted(one.name for one in pkgutil.iter_modules([str(PROJECT / "bot/features")]))


ALL = "all"
TAKEN = [ALL, *(pytest.param(name, marks=pytest.mark.torture) for name in FEATURES)]


def without(name: str, code: Path) -> None:
    """Create a folder of links to the project's code without this feature, or without any."""
    (code / "bot" / "features").mkdir(parents=True)
    (code / "channels").symlink_to(PROJECT / "channels")
    for folder in (Path("bot"), Path("bot/features")):
        for one in (PROJECT / folder).iterdir():
            gone = folder.name == "features" and one.stem != "__init__" and name in (one.stem, ALL)
            if one.name not in ("features", "__pycache__") and not gone:
                (code / folder / one.name).symlink_to(one)


@pytest.mark.parametrize("name", TAKEN)
async def test_a_message_is_answered_without_a_feature(world: World, tmp_path: Path, name: str) -> None:
    code = tmp_path / "code"
    without(name, code)
    world.model.answer("你好，你好。")
    world.process.env |= {"PYTHONPATH": str(code), "PYTHONSAFEPATH": "1"}
    world.process.fresh = True
    await world.start("telegram")
    world.telegram.say("hello")
    await world.heard("你好，你好。")
    assert await world.process.stop() == 0
    assert not [line for line in world.log() if line["level"] == "error"]


def test_each_module_of_features_is_one() -> None:
    assert len(feature.found()) == len(FEATURES)

"""Makes the corpus of this version anew: `python -m tests.corpus.make [NAME …]`."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from dataclasses import fields
from pathlib import Path

import pytest
from bot.journal import schema

from tests.corpus.scenes import SCENES, Scene
from tests.corpus.stage import in_lines, staged
from tests.torture.inside import quick_ends

JOURNALS = Path(__file__).parent / "journals"


async def make(name: str, scene: Scene, folder: Path) -> None:
    shutil.rmtree(folder / name, ignore_errors=True)
    with tempfile.TemporaryDirectory() as root:
        async with staged(Path(root), scene.settings) as stage:
            await scene.play(stage)
            stage.write(folder / name)
    (folder / name / "expected.json").write_text(expected(scene), encoding="utf-8")


def expected(scene: Scene) -> str:
    """What is kept of a scene besides what it left."""
    told = {field.name: getattr(scene, field.name) for field in fields(scene)}
    return in_lines({name: told[name] for name in told if name not in {"play", "settings"}}) + "\n"


def main(names: list[str]) -> None:
    folder = JOURNALS / str(schema.NEWEST)
    with pytest.MonkeyPatch.context() as patch:
        quick_ends(patch)
        for name in names or SCENES:
            asyncio.run(make(name, SCENES[name], folder))
            sys.stdout.write(f"{name}\n")


if __name__ == "__main__":
    main(sys.argv[1:])

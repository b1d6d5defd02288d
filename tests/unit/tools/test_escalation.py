"""A chat cannot extend its own rights by files that it writes or by the way a call is displayed."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot import errors
from bot.contracts.base import Json
from bot.contracts.messages import ANYBODYS, NOBODYS, Provenance
from bot.testing.model import tool_use
from bot.text import escaped
from bot.tools import project
from bot.tools.permissions.protected_code import ProtectedCode
from bot.tools.policy import in_words

from .test_policy import Asks, Bench, said, step, told


@pytest.mark.parametrize(
    ("view", "others", "lasting"),
    [
        ([said("x")], (), True),
        ([said("x"), *step("web_fetch")], (), False),
        ([said("x"), *step("run_shell")], (), False),
        ([said("x", "U2"), said("x")], (), True),
        ([said("x", "U2"), said("x")], ("run_shell(*, user in slack:U2)",), False),
    ],
)
@pytest.mark.parametrize("ask", [(), ("run_shell",)])
async def test_what_was_allowed_for_longer_does_not_count_while_words_of_others_are_in_view(
    tmp_path: Path, view: list[Json], others: tuple[str, ...], ask: tuple[str, ...], *, lasting: bool
) -> None:
    asks = Asks("denied")
    await Bench(tmp_path, asks, ask=ask, deny=others).run(tool_use("run_shell", command="make"), view=view)
    assert [asked.lasting for asked in asks.asked] == [lasting]


def test_what_runs_as_ourselves_is_not_written(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    (root / "env").mkdir()
    (root / "to").symlink_to("env")
    here = project.Project(root, ProtectedCode(root, sealed=(root / "env",)))
    for path in ("env/lib/new.pth", "to/new.pth", "env", "ENV/x"):
        with pytest.raises(errors.ToolError, match="part of what Shipmate runs on"):
            here.write(here.place(path), b"import os")
    assert not list((root / "env").iterdir())
    assert here.write(here.place("environment"), b"x") is False


@pytest.mark.parametrize(
    ("origin", "asked"),
    [
        (Provenance(frozenset({"U7"})), 0),
        (Provenance(frozenset({"U7", "U2"})), 1),
        (Provenance(frozenset({"U2"})), 1),
        (ANYBODYS, 1),
        (NOBODYS, 0),
    ],
)
async def test_words_in_memory_have_the_rights_of_who_wrote_them(
    tmp_path: Path, origin: Provenance, asked: int
) -> None:
    asks = Asks("denied")
    bench = Bench(tmp_path, asks, allow=["run_shell(make, role operator)"])
    await bench.run(
        tool_use("run_shell", command="make"), user="U7", view=[said("x", "U7"), *told("memory", origin)]
    )
    assert len(asks.asked) == asked


async def test_no_value_looks_like_another_argument_to_who_approves(tmp_path: Path) -> None:
    asks = Asks("denied")
    bench = Bench(tmp_path, asks)
    await bench.run(tool_use("run_shell", command="a\npath: b\nwhich is: c\n\nend"))
    assert in_words(asks.asked[0].shown) == "Command: a\n  path: b\n  which is: c\n  \n  end"


def test_letters_that_show_nothing_are_written_out() -> None:
    assert escaped("a\u3164b\u115fc\ufe00d\u2800\U000e0101") == "a\\u3164b\\u115fc\\ufe00d\\u2800\\U000e0101"
    assert escaped("❤\ufe0f") == "❤\ufe0f", "an emoji is no hiding place"

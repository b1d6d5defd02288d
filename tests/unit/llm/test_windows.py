"""The context window is learned from ship.json, the provider's list and its refusals, and survives a restart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot import errors
from bot.contracts.model import ModelFacts
from bot.llm.models import Budget, ContextWindows, Learned, LearnedFile
from bot.system import SystemDisk
from bot.testing.disk import Failure, FaultyDisk
from bot.testing.log import MemoryLog
from bot.testing.model import ScriptedModel

MODEL = "claude-sonnet-5-5"


def windows(**how: Any) -> ContextWindows:
    told: dict[str, Any] = {"model": MODEL, "learned": Learned(), "log": MemoryLog()}
    return ContextWindows(**(told | how))


def provider(window: int | None = None, output: int | None = None) -> ScriptedModel:
    model = ScriptedModel()
    model.known = ModelFacts(window, output)
    return model


async def test_nobody_knows_the_window_of_a_model_that_nobody_told_of() -> None:
    known = windows()
    assert (known.window(MODEL), known.max_output(MODEL), known.max_tokens(MODEL)) == (None, None, 8_192)
    assert await known.ask(provider(), MODEL) is None
    assert known.window(MODEL) is None


async def test_the_provider_is_asked_once_and_what_it_said_is_kept() -> None:
    model, learned, log = provider(1_000_000, 128_000), Learned(), MemoryLog()
    known = windows(learned=learned, log=log)
    for _ in range(3):
        assert await known.ask(model, MODEL) is None
    assert model.asked_of == [MODEL]
    assert (known.window(MODEL), known.max_output(MODEL)) == (1_000_000, 128_000)
    assert windows(learned=learned).window(MODEL) == 1_000_000
    assert [line.details["window"] for line in log.of("model")] == [1_000_000]


async def test_a_provider_that_did_not_answer_is_asked_again() -> None:
    class Away(ScriptedModel):
        async def facts(self, model: str) -> ModelFacts:
            raise errors.ModelUnreachable(f"no route for {model}")

    known = windows()
    with pytest.raises(errors.ModelUnreachable):
        await known.ask(Away(), MODEL)
    await known.ask(provider(5_000), MODEL)
    assert known.window(MODEL) == 5_000


async def test_ship_json_counts_more_than_the_list_and_for_its_own_model_only() -> None:
    known = windows(configured=64_000)
    assert known.window(MODEL) == 64_000
    said = await known.ask(provider(32_000), MODEL)
    assert known.window(MODEL) == 64_000
    assert said is not None
    assert said.startswith("llm.contextWindow: found 64000; the provider says 32000")
    await known.ask(provider(200_000), "claude-haiku-5-5")
    assert known.window("claude-haiku-5-5") == 200_000


async def test_a_larger_answer_than_the_model_gives_is_told_and_lowered() -> None:
    known = windows(tokens=200_000)
    said = await known.ask(provider(1_000_000, 128_000), MODEL)
    assert said is not None
    assert said.startswith("llm.maxTokens: found 200000; claude-sonnet-5-5 gives at most 128000")
    assert known.max_tokens(MODEL) == 128_000
    assert known.max_tokens("claude-haiku-5-5") == 200_000


async def test_a_refusal_teaches_the_window_and_the_longest_answer() -> None:
    learned, log = Learned(), MemoryLog()
    known = windows(learned=learned, log=log, configured=500_000, tokens=64_000)
    known.refused(MODEL, errors.ContextOverflow("too long", tokens=213_462, window=200_000))
    assert known.window(MODEL) == 200_000, "what the provider refuses does not fit, whatever ship.json says"
    known.refused(MODEL, errors.OutputOverflow("max_tokens", limit=32_000))
    assert known.max_tokens(MODEL) == 32_000
    assert (windows(learned=learned).window(MODEL), windows(learned=learned).max_output(MODEL)) == (
        200_000,
        32_000,
    )
    assert len(log.of("model")) == 2
    known.refused(MODEL, errors.ContextOverflow("too long", tokens=213_462, window=200_000))
    known.refused(MODEL, errors.ContextOverflow("too long"))
    known.refused(MODEL, errors.ContextOverflow("misread", window=7))
    assert known.window(MODEL) == 200_000
    assert len(log.of("model")) == 2


def test_a_call_that_fitted_disproves_a_smaller_window() -> None:
    known = windows()
    known.refused(MODEL, errors.ContextOverflow("too long", window=8_000))
    known.fitted(MODEL, 7_900)
    assert known.window(MODEL) == 8_000
    known.fitted(MODEL, 8_001)
    assert known.window(MODEL) is None


@settings(derandomize=True, deadline=None)
@given(st.integers(500, 2_000_000), st.integers(1, 1_000_000), st.integers(1, 10**6))
def test_in_any_window_there_is_room_for_a_prompt(window: int, max_tokens: int, soft: int) -> None:
    budget = Budget(window, max_tokens, soft)
    assert budget.hard is not None
    assert window // 4 <= budget.hard < window
    assert 0 < budget.limit <= soft


def opened(path: Path, provider: str = "anthropic", disk: FaultyDisk | None = None) -> LearnedFile:
    made = LearnedFile(path, provider, disk=disk or SystemDisk(), log=MemoryLog())
    made.load()
    return made


async def test_figures_are_kept_by_provider_and_model(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "models.json"
    learned = opened(path)
    learned.set("模型:7b", "window", 8_000)
    learned.set("模型:7b", "tokenRatio", 1.25)
    await learned.save()
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    again = opened(path)
    assert (again.get("模型:7b", "window"), again.get("模型:7b", "tokenRatio")) == (8_000, 1.25)
    assert again.get("another", "window") is None
    local = opened(path, "localhost:11434")
    assert local.get("模型:7b", "window") is None
    local.set("模型:7b", "window", 4_000)
    await local.save()
    assert opened(path).get("模型:7b", "window") == 8_000


async def test_what_is_forgotten_is_gone_and_what_is_known_is_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "models.json"
    learned = opened(path)
    await learned.save()
    assert not path.exists()
    learned.set("m", "window", 5_000)
    await learned.save()
    before = path.stat().st_ino
    learned.set("m", "window", 5_000)
    await learned.save()
    assert path.stat().st_ino == before
    learned.set("m", "window", None)
    await learned.save()
    assert opened(path).get("m", "window") is None
    assert "m" not in json.loads(path.read_text(encoding="utf-8"))["models"]


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b'{"v": 9, "models": {}}',
        b'{"v": 1, "models": {"anthropic m": {"window": "8000"}, "x": 3}}',
        b'{"v": 1, "models": {"anthropic m": {"window": -1}}}',
        b'{"v": 1, "models": {"anthropic m": {"window": 1e999}}}',
    ],
)
async def test_a_damaged_file_is_as_good_as_none_and_is_replaced(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "models.json"
    path.write_bytes(content)
    learned = opened(path)
    assert learned.get("m", "window") is None
    learned.set("m", "window", 9_000)
    await learned.save()
    assert opened(path).get("m", "window") == 9_000


async def test_what_a_full_disk_refuses_is_written_later(tmp_path: Path) -> None:
    disk = FaultyDisk(SystemDisk())
    disk.fail(Failure("replace"))
    learned = opened(tmp_path / "models.json", disk=disk)
    learned.set("m", "window", 9_000)
    await learned.save()
    assert opened(tmp_path / "models.json").get("m", "window") is None
    await learned.save()
    assert opened(tmp_path / "models.json").get("m", "window") == 9_000

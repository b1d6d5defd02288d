from __future__ import annotations

import random
import subprocess
import sys
from typing import Any

from bot.contracts.model import Model
from bot.llm.wrapper import build_model
from bot.system import SystemClock, UlidSource
from bot.testing import anthropic_script as script
from bot.testing.anthropic import KEY, AnthropicServer
from bot.testing.log import MemoryLog
from tests.unit.llm.asking import reply_of


def build(log: MemoryLog | None = None, **how: Any) -> Model:
    values: dict[str, Any] = {"provider": "demo", "api_key": None} | how
    return build_model(
        clock=SystemClock(), log=log or MemoryLog(), ids=UlidSource(), rng=random.Random(1), **values
    )


async def test_anthropic_is_logged_and_asked_again(server: AnthropicServer) -> None:
    log = MemoryLog()
    model = build(log, provider="anthropic", api_key=KEY, base_url=server.url, log_messages=False)
    await model.check()
    server.then(script.rate_limited(0))
    assert (await reply_of(model)).stop_reason == "end_turn"
    assert log.kinds == ["llm_request", "llm_response", "llm_retry", "llm_request", "llm_response"]
    assert "你好" not in log.text
    await model.close()


def test_only_the_client_imports_the_providers_library() -> None:
    program = (
        "import sys, bot.llm.demo, bot.llm.wrapper, bot.llm.classify; "
        "assert not {'anthropic', 'httpx2'} & set(sys.modules), 'heavy'"
    )
    subprocess.run([sys.executable, "-c", program], check=True)

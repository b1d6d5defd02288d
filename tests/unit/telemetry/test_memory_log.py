from __future__ import annotations

from bot.contracts.identity import ChatKey
from bot.testing.log import MemoryLog


def test_the_log_in_memory_can_be_asked() -> None:
    log = MemoryLog()
    log.write("inbound", "one", chat_key=ChatKey.parse("web:chat:1"), size=3)
    log.write("error", "two", level="error")
    assert log.kinds == ["inbound", "error"]
    assert [entry.details for entry in log.of("inbound")] == [{"size": 3}]
    assert [entry.message for entry in log.at("error")] == ["two"]

from __future__ import annotations

import logging

import pytest

from bot.telemetry import log as telemetry
from bot.testing.log import MemoryLog


def test_a_librarys_warnings_become_lines_and_its_chatter_does_not() -> None:
    log = MemoryLog()
    with telemetry.bridged(log):
        logging.getLogger("some.library").warning("retrying in %d s", 3)
        logging.getLogger("some.library").info("chatter")
        logging.getLogger("httpx").info("GET https://host/bot1:token/getMe")
    logging.getLogger("some.library").warning("afterwards")
    (entry,) = log.of("library")
    assert (entry.message, entry.level) == ("retrying in 3 s", "warn")
    assert entry.details["logger"] == "some.library"


def test_http_loggers_stay_silent_even_where_the_root_is_talkative(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with telemetry.bridged(MemoryLog()):
        for name in ("httpx", "httpx2", "httpcore.http11", "slack_sdk.socket_mode.aiohttp", "telegram.ext"):
            logging.getLogger(name).info("with a token")
    assert caplog.text == ""


def test_an_error_comes_with_its_place() -> None:
    log = MemoryLog()
    with telemetry.bridged(log):
        try:
            int("x")
        except ValueError:
            logging.getLogger("lib").exception("failed")
    (entry,) = log.at("error")
    assert entry.details["error"].startswith("ValueError: invalid literal")
    assert "test_an_error_comes_with_its_place" in entry.details["frames"][-1]


def test_with_message_logging_off_no_words_of_a_library_are_kept() -> None:
    log = MemoryLog()
    with telemetry.bridged(log, messages=False):
        try:
            raise ValueError("hello there 你好")
        except ValueError:
            logging.getLogger("slack_bolt").warning("Unhandled request: hello there 你好", exc_info=True)
    assert log.of("library")
    assert "hello" not in log.text
    assert "你好" not in log.text

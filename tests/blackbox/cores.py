"""The black-box tests that hold on the core with one log. `make test` runs them on it, `make torture` on the gateway too."""

from __future__ import annotations

ON_THE_LOG = frozenset(
    {
        "test_main_path::test_a_telegram_message_gets_its_answer_and_the_conversation_goes_on",
    }
)
"""Tests by module and name, without parameters."""

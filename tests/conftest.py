"""What holds for every test."""

import pytest

# What is imported and not collected: without this its bare asserts would say nothing.

pytest.register_assert_rewrite(
    "tests.contracts.channel_contract",
    "tests.contracts.console_rig",
    "tests.contracts.journal_contract",
    "tests.contracts.model_contract",
    "tests.contracts.web_rig",
)

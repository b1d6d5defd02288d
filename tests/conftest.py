"""What holds for every test."""

import pytest

REPEATED = (
    "tests.torture.",
    "tests.unit.agent.test_crash",
    "tests.unit.agent.test_epochs",
    "tests.unit.agent.test_fault_matrix",
    "tests.unit.agent.test_random",
    "tests.unit.bench.test_context",
    "tests.unit.gateway.test_outbox_kills",
    "tests.unit.history.test_archive_faults",
    "tests.unit.telegram.test_changes.test_no_change",
)
"""They and property tests go the same ways many times over. Others show that each line is run; here the tracer would only cost minutes."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        property_test = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
        if property_test or item.nodeid.replace("/", ".").replace(".py::", ".").startswith(REPEATED):
            item.add_marker(pytest.mark.no_cover)


# What is imported and not collected: without this its bare asserts would say nothing.

pytest.register_assert_rewrite(
    "tests.contracts.channel_contract",
    "tests.contracts.console_rig",
    "tests.contracts.journal_contract",
    "tests.contracts.model_contract",
    "tests.contracts.web_rig",
)

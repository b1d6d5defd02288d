"""The suites are imported, not collected: without this their bare asserts would say nothing."""

import pytest

pytest.register_assert_rewrite("tests.contracts.channel_contract")

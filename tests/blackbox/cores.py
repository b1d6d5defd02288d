"""The black-box tests that hold on the core with one log. `make test` runs them on it, `make torture` on the gateway too."""

from __future__ import annotations

ON_THE_LOG = frozenset(
    {
        "test_approvals::test_it_is_found_again_after_a_kill_and_only_an_operator_decides",
        "test_approvals::test_an_operator_elsewhere_sees_where_it_was_asked_and_each_copy_how_it_ended",
        "test_approvals::test_several_that_wait_are_named_with_what_each_of_them_shows",
        "test_approvals::test_what_is_denied_reaches_the_model_with_its_rule",
        "test_approvals::test_where_no_operator_can_be_asked_nobody_is_waited_for",
        "test_approvals::test_a_stop_ends_the_waiting",
        "test_approvals::test_rules_that_are_none_or_never_match_are_findings",
        "test_main_path::test_a_telegram_message_gets_its_answer_and_the_conversation_goes_on",
    }
)
"""Tests by module and name, without parameters."""

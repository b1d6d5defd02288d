"""The black-box tests that hold on the core with one log. `make test` runs them on it, `make torture` on the gateway too."""

from __future__ import annotations

ON_THE_LOG = frozenset(
    {
        "test_operators::test_in_a_channel_a_stranger_alone_learns_that_they_have_to_be_let_in_and_once",
        "test_operators::test_an_operator_lets_a_stranger_in_from_the_chat",
        "test_operators::test_a_stranger_reads_that_operators_were_asked_only_where_one_was",
        "test_operators::test_a_stranger_who_adds_it_asks_to_be_let_in_and_the_group_hears_nothing",
        "test_languages::test_notices_are_in_the_language_of_the_last_message",
        "test_languages::test_on_slack_the_locale_decides_until_somebody_chooses_and_that_outlives_a_kill",
        "test_languages::test_on_telegram_a_person_names_their_time_zone_and_that_outlives_a_kill",
        "test_languages::test_a_zone_is_found_by_its_offset_a_place_or_a_short_name_and_never_the_inverse",
        "test_languages::test_on_slack_the_zone_of_the_profile_counts_until_somebody_chooses",
        "test_languages::test_an_example_below_the_greeting_is_tapped_and_is_a_message_of_the_person",
        "test_languages::test_the_zone_of_a_terminal_is_that_of_its_machine",
        "test_operators::test_an_operator_lets_a_stranger_in_by_a_button_that_a_kill_leaves_whole",
        "test_operators::test_in_slack_too_every_operator_sees_how_it_ended",
        "test_operators::test_added_to_a_chat_it_says_once_how_it_is_spoken_to_over_a_kill_too",
        "test_approvals::test_it_is_found_again_after_a_kill_and_only_an_operator_decides",
        "test_approvals::test_an_operator_elsewhere_sees_where_it_was_asked_and_each_copy_how_it_ended",
        "test_approvals::test_several_that_wait_are_named_with_what_each_of_them_shows",
        "test_approvals::test_what_is_denied_reaches_the_model_with_its_rule",
        "test_approvals::test_where_no_operator_can_be_asked_nobody_is_waited_for",
        "test_approvals::test_a_stop_ends_the_waiting",
        "test_approvals::test_rules_that_are_none_or_never_match_are_findings",
        "test_early_ends::test_each_answer_comes_to_an_end_and_no_line_of_ours_is_kept",
        "test_fallback::test_a_refusal_is_answered_by_the_second_in_that_chat_alone",
        "test_fallback::test_what_cannot_be_a_second_is_a_finding_and_what_can_is_listed",
        "test_main_path::test_a_telegram_message_gets_its_answer_and_the_conversation_goes_on",
        "test_model_wire::test_a_bad_value_ends_the_start_with_the_line_that_mends_it",
        "test_model_wire::test_a_reply_that_is_all_thinking_gets_twice_the_room_once_and_then_it_is_told",
        "test_recall::test_older_messages_stand_before_the_newest_and_go_with_its_turn",
        "test_remembering::test_instructions_that_are_too_large_are_used_up_to_the_limit_and_everybody_hears_of_it",
        "test_remembering::test_people_hear_that_the_prompt_fills_a_small_window",
        "test_remembering::test_what_was_told_first_is_known_behind_the_cap_of_messages",
        "test_remembering::test_where_the_memory_fails_the_view_grows_to_twice_the_cap_and_operators_hear_of_the_cut",
        "test_restart::test_a_message_is_on_disk_before_slack_is_told_that_it_arrived",
        "test_restart::test_a_telegram_send_whose_answer_was_lost_is_repeated_and_says_so",
        "test_restart::test_after_a_kill_the_next_request_begins_with_the_same_bytes",
        "test_restart::test_what_was_sent_while_it_was_down_is_answered_and_each_thing_once",
        "test_small_window::test_a_window_of_3000_tokens_answers_hello_and_finds_its_tools",
        "test_small_window::test_the_demo_answers_in_a_window_of_3000_tokens",
    }
)
"""Tests by module and name, without parameters."""

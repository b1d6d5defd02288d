"""The black-box tests that hold on the core with one log. `make test` runs them on it, `make torture` on the gateway too."""

from __future__ import annotations

ON_THE_LOG = frozenset(
    {
        "test_forgetting::test_forget_as_a_reply_in_telegram",
        "test_forgetting::test_a_deletion_in_slack",
        "test_forgetting::test_a_note_that_a_later_turn_made_of_it_goes_too",
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
        "test_streaming::test_slack_streams_in_the_thread_of_a_direct_chat",
        "test_streaming::test_in_a_channel_of_slack_it_edits",
        "test_streaming::test_killed_in_the_middle_of_a_stream_the_answer_is_whole_and_one",
        "test_streaming::test_killed_before_it_is_known_where_a_stream_stands_the_answer_is_whole_and_one",
        "test_streaming::test_a_draft_has_a_stop_button",
        "test_streaming::test_a_stop_ends_it_with_a_mark_in_the_same_message",
        "test_streaming::test_a_model_that_breaks_off_for_good_leaves_a_mark",
        "test_streaming::test_no_part_of_a_secret_is_ever_shown",
        "test_quick_messages::test_a_fourth_line_waits_for_the_next_step_and_none_is_lost",
        "test_quick_messages::test_killed_between_the_lines_it_answers_all_of_them_once",
        "test_quick_messages::test_after_a_tool_with_effects_the_call_that_runs_is_left_alone",
        "test_live::test_an_outage_of_25_seconds_is_bridged_and_people_are_told",
        "test_live::test_in_a_group_of_telegram_words_come_every_few_seconds_without_typing",
        "test_main_path::test_a_telegram_message_gets_its_answer_and_the_conversation_goes_on",
    }
)
"""Tests by module and name, without parameters."""

"""The event types of Slack: handled, or known and ignored. An unknown type is ignored with a log line."""

from __future__ import annotations

from typing import Any

from bot.contracts.environment import Log

MOST_STRANGE = 100

HANDLED = frozenset({"agent_session_stopped", "app_mention", "message"})

# Joins, renames, reactions and the like are no business of a conversation; an app that is subscribed to
# more than the manifest asks for loses nothing by it.
IGNORED = frozenset(
    {
        "agent_session_title_changed",
        "app_context_changed",
        "app_home_opened",
        "app_rate_limited",
        "app_requested",
        "app_uninstalled",
        "assistant_thread_context_changed",
        "assistant_thread_started",
        "call_rejected",
        "channel_archive",
        "channel_created",
        "channel_deleted",
        "channel_history_changed",
        "channel_id_changed",
        "channel_left",
        "channel_rename",
        "channel_shared",
        "channel_unarchive",
        "channel_unshared",
        "dnd_updated",
        "dnd_updated_user",
        "email_domain_changed",
        "emoji_changed",
        "file_change",
        "file_comment_added",
        "file_comment_deleted",
        "file_comment_edited",
        "file_created",
        "file_deleted",
        "file_public",
        "file_shared",
        "file_unshared",
        "function_executed",
        "grid_migration_finished",
        "grid_migration_started",
        "group_archive",
        "group_close",
        "group_deleted",
        "group_history_changed",
        "group_left",
        "group_open",
        "group_rename",
        "group_unarchive",
        "im_close",
        "im_created",
        "im_history_changed",
        "im_open",
        "invite_requested",
        "link_shared",
        "member_joined_channel",
        "member_left_channel",
        "message_metadata_deleted",
        "message_metadata_posted",
        "message_metadata_updated",
        "pin_added",
        "pin_removed",
        "reaction_added",
        "reaction_removed",
        "scope_denied",
        "scope_granted",
        "shared_channel_invite_accepted",
        "shared_channel_invite_approved",
        "shared_channel_invite_declined",
        "shared_channel_invite_received",
        "star_added",
        "star_removed",
        "subteam_created",
        "subteam_members_changed",
        "subteam_self_added",
        "subteam_self_removed",
        "subteam_updated",
        "team_access_granted",
        "team_access_revoked",
        "team_domain_change",
        "team_join",
        "team_rename",
        "tokens_revoked",
        "user_change",
        "user_huddle_changed",
        "user_profile_changed",
        "user_resource_denied",
        "user_resource_granted",
        "user_resource_removed",
        "user_status_changed",
        "workflow_deleted",
        "workflow_published",
        "workflow_step_deleted",
        "workflow_step_execute",
        "workflow_unpublished",
    }
)

MESSAGES = frozenset({"file_share", "thread_broadcast", "me_message", "bot_message"})
"""Subtypes of `message` that are messages."""

CHANGES = frozenset({"message_changed", "message_deleted"})
"""Subtypes that tell of a change to another message."""

OTHER_SUBTYPES = frozenset(
    {
        "assistant_app_thread",
        "bot_add",
        "bot_disable",
        "bot_enable",
        "bot_remove",
        "channel_archive",
        "channel_canvas_updated",
        "channel_convert_to_private",
        "channel_convert_to_public",
        "channel_join",
        "channel_leave",
        "channel_name",
        "channel_posting_permissions",
        "channel_purpose",
        "channel_topic",
        "channel_unarchive",
        "document_mention",
        "ekm_access_denied",
        "file_comment",
        "file_mention",
        "group_archive",
        "group_join",
        "group_leave",
        "group_name",
        "group_purpose",
        "group_topic",
        "group_unarchive",
        "huddle_thread",
        "joiner_notification",
        "message_replied",
        "pinned_item",
        "reminder_add",
        "reminder_delete",
        "reply_broadcast",
        "sh_room_created",
        "tabbed_canvas_updated",
        "tombstone",
        "unpinned_item",
    }
)
"""Subtypes that nobody wrote to the bot: joins, topics, pins, and what Slack itself says."""

INTERACTIVE = frozenset(
    {
        "block_suggestion",
        "dialog_cancellation",
        "dialog_submission",
        "dialog_suggestion",
        "interactive_message",
        "message_action",
        "shortcut",
        "view_closed",
        "view_submission",
        "workflow_step_edit",
    }
)
"""Payloads of dialogs and the like, of which Shipmate shows none."""

COMMANDS = frozenset(
    {
        "start",
        "help",
        "new",
        "stop",
        "status",
        "stats",
        "history",
        "compact",
        "usage",
        "model",
        "jobs",
        "approve",
        "deny",
        "undo",
        "resume",
        "fork",
        "whoami",
        "receipt",
        "forget",
    }
)
"""In a channel, outside threads and without a mention, only `!` with one of these speaks to the bot."""


def is_unknown(kind: str, subtype: object = None) -> bool:
    """True for an event type that is neither handled nor knowingly ignored. It is ignored all the same."""
    if kind == "message" and isinstance(subtype, str):
        return subtype not in MESSAGES | CHANGES | OTHER_SUBTYPES
    return kind not in HANDLED | IGNORED


class UnexpectedEvent:
    """Writes one debug line for the first event of each unknown type."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._seen: set[str] = set()

    def log_once(self, kind: Any, subtype: Any = None) -> None:
        if not isinstance(kind, str) or not is_unknown(kind, subtype):
            return
        named = f"{kind} {subtype}" if isinstance(subtype, str) else kind
        if named not in self._seen and len(self._seen) < MOST_STRANGE:
            self._seen.add(named)
            self._log.write(
                "inbound", "Slack sent an event of an unknown type", level="debug", event=named[:80]
            )

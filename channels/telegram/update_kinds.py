"""The kinds of update: handled, or known and ignored. The bot asks Telegram for the handled ones only."""

from __future__ import annotations

STOPPED = "stopped_message_generation"
PRESSED = "callback_query"
HANDLED = ("message", "edited_message", PRESSED, STOPPED)
"""The kinds that the bot asks for."""

IGNORED = frozenset(
    {
        "business_connection",
        "business_message",
        "channel_post",
        "chat_boost",
        "chat_join_request",
        "chat_member",
        "chosen_inline_result",
        "deleted_business_messages",
        "edited_business_message",
        "edited_channel_post",
        "guest_message",
        "inline_query",
        "managed_bot",
        "message_reaction",
        "message_reaction_count",
        "my_chat_member",
        "poll",
        "poll_answer",
        "pre_checkout_query",
        "purchased_paid_media",
        "removed_chat_boost",
        "shipping_query",
    }
)

"""Conversations: in some direct chats each message outside a thread starts a conversation."""

from bot.core.feature import Feature, Hooks, Runtime
from bot.features.conversations.earlier import LogConversations


def _build(runtime: Runtime) -> Hooks:
    conversations = LogConversations(runtime)
    return Hooks(before_intake=conversations.found, before_turn=conversations.before)


FEATURE = Feature("conversations", _build)

"""Conversations: in some direct chats, each message outside a thread starts a new conversation."""

from bot.core.feature import Feature, Hooks, Runtime
from bot.features.conversations.service import Conversations


def _build(runtime: Runtime) -> Hooks:
    conversations = Conversations(runtime)
    return Hooks(before_intake=conversations.found, before_turn=conversations.before)


FEATURE = Feature("conversations", _build)

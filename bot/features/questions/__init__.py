"""Questions to people: approvals of tool calls and budgets, admissions of strangers, and questions of tools.

A question is an event of the asking chat. All messages of the question are outbox rows of that chat, even those sent to
other chats. The first verdict counts, and then each message shows the outcome.
"""

from bot.features.questions.approvals import FEATURE

__all__ = ["FEATURE"]

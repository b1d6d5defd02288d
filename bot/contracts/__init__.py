"""The nouns of Shipmate: the value types that travel between rooms and the protocols at which rooms meet.

Nothing here does anything. Times of day are integer milliseconds since the epoch (`ts`), durations are
float seconds; ids of platforms are always strings.
"""

from __future__ import annotations

from bot.contracts._channel import Channel, ChannelSettings, Intake, Manifest, Pace, Surroundings
from bot.contracts._model import Model, ModelReply, ModelRequest, TextDelta, ToolInputDelta, Usage
from bot.contracts._outside import Clock, Disk, Ids, Log, Redact
from bot.contracts._ports import (
    Agent,
    Archive,
    Effect,
    Journal,
    Reply,
    Skill,
    Skills,
    Tool,
    TurnOutcome,
    TurnRequest,
)
from bot.contracts._values import (
    ArchiveLine,
    Attachment,
    ChatType,
    Command,
    DeliveryRecord,
    Frozen,
    Health,
    HistoryPage,
    HistoryQuery,
    Inbound,
    Json,
    Level,
    LogLine,
    Message,
    Outbound,
    Quoted,
    Role,
    Sent,
)

__all__ = [
    "Agent",
    "Archive",
    "ArchiveLine",
    "Attachment",
    "Channel",
    "ChannelSettings",
    "ChatType",
    "Clock",
    "Command",
    "DeliveryRecord",
    "Disk",
    "Effect",
    "Frozen",
    "Health",
    "HistoryPage",
    "HistoryQuery",
    "Ids",
    "Inbound",
    "Intake",
    "Journal",
    "Json",
    "Level",
    "Log",
    "LogLine",
    "Manifest",
    "Message",
    "Model",
    "ModelReply",
    "ModelRequest",
    "Outbound",
    "Pace",
    "Quoted",
    "Redact",
    "Reply",
    "Role",
    "Sent",
    "Skill",
    "Skills",
    "Surroundings",
    "TextDelta",
    "Tool",
    "ToolInputDelta",
    "TurnOutcome",
    "TurnRequest",
    "Usage",
]

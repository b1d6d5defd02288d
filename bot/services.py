"""The environment of the process, and the services that all its parts use."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from bot import config
from bot.access_list import AccessList, Operators
from bot.contracts.channel import Channel, Manifest
from bot.contracts.environment import Clock, Disk, Ids
from bot.core.event_log import EventLog
from bot.core.fallback import Fallback
from bot.core.outbox import Leadership, SoleLeader
from bot.disk_reserve import DiskReserve
from bot.http_server import Connections
from bot.llm.windows import ContextWindows, LearnedFile
from bot.llm.wrapper import WatchedModel
from bot.storage.artifacts import ArtifactStore
from bot.storage.notes import NoteStore
from bot.system import SystemClock, SystemDisk, UlidSource
from bot.telemetry import JsonlLog, Redactor
from bot.tools.skills import SkillFolder
from bot.vetting import Vetting


@dataclass(frozen=True, slots=True)
class Environment:
    """Access to the outside world: clock, disk, ids and randomness. Tests can replace them, and can wrap the log and
    the channels.
    """

    clock: Clock = field(default_factory=SystemClock)
    disk: Disk = field(default_factory=SystemDisk)
    ids: Ids = field(default_factory=UlidSource)
    rng: random.Random = field(default_factory=random.SystemRandom)
    event_log: Callable[[EventLog], EventLog] = lambda made: made
    """Function that wraps the log that all parts use."""
    channel: Callable[[Channel], Channel] = lambda made: made
    """Function that wraps each channel."""
    pace: float = 1.0
    """Network seconds per second of `clock`; see `ChannelDeps.pace`."""
    leadership: Leadership = field(default_factory=SoleLeader)


@dataclass(frozen=True, slots=True)
class Services:
    """Services that all other parts use."""

    settings: config.Settings
    environment: Environment
    log: JsonlLog
    redact: Redactor
    manifests: Mapping[str, Manifest]
    artifacts: ArtifactStore
    memory_files: NoteStore
    model: WatchedModel
    learned: LearnedFile
    windows: ContextWindows
    lists: AccessList
    operators: Operators
    reserve: DiskReserve
    connections: Connections
    vetting: Vetting
    skills: SkillFolder
    fallbacks: Sequence[Fallback] = ()

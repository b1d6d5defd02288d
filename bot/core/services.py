"""Services that all parts of the process use: the environment, the settings, and stores that depend on nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bot import config
from bot.contracts.channel import Channel, Manifest
from bot.contracts.environment import Clock, Disk, Ids, Leadership, SoleLeader
from bot.core.access import AccessList, Operators
from bot.core.event_log import EventLog
from bot.storage.artifacts import ArtifactStore
from bot.storage.notes import NoteStore
from bot.system import SystemClock, SystemDisk, UlidSource
from bot.telemetry.log import JsonlLog
from bot.telemetry.redaction import Redactor
from bot.tools.file_guard import FileGuard
from bot.tools.skills import SkillFolder


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Access to the outside world. Tests replace parts of it, and wrap the event log and the channels."""

    clock: Clock = field(default_factory=SystemClock)
    disk: Disk = field(default_factory=SystemDisk)
    ids: Ids = field(default_factory=UlidSource)
    rng: random.Random = field(default_factory=random.SystemRandom)
    wrap_log: Callable[[EventLog], EventLog] = lambda made: made
    wrap_channel: Callable[[Channel], Channel] = lambda made: made
    pace: float = 1.0  # Network seconds per second of `clock`; see `ChannelDeps.pace`
    leadership: Leadership = field(default_factory=SoleLeader)


@dataclass(frozen=True, kw_only=True)
class Services(Environment):
    """The environment, the settings, and the services that the core and the features use."""

    settings: config.Settings
    log: JsonlLog
    boot: str  # Id of this run of the process
    redact: Redactor
    manifests: Mapping[str, Manifest]
    channels: Mapping[str, Channel]
    lists: AccessList
    operators: Operators
    artifacts: ArtifactStore
    notes: NoteStore  # Files of the `memory` tool
    guard: FileGuard
    skills: SkillFolder

"""Types of a permission check: the person, the call and the decision."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from bot.contracts.approvals import Reason
from bot.contracts.identity import ChatKey
from bot.contracts.provenance import Taint
from bot.contracts.tools import Effect

Role = Literal["operator", "member", "nobody"]
Outcome = Literal["allow", "ask", "deny"]
Source = Literal["rule", "default", "taint", "protected", "skill"]


@dataclass(frozen=True, slots=True)
class Subject:
    """A person in a chat. If no chat caused the turn, `user_id` and `channel` are None and the role is `nobody`."""

    channel: str | None
    user_id: str | None
    role: Role
    chat_key: ChatKey

    @property
    def name(self) -> str:
        """Return the person's name in the form used by `operators` and by rules."""
        return f"{self.channel}:{self.user_id}"


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call with its validated arguments and the tool's effects."""

    tool: str
    arguments: Mapping[str, Any]
    effects: frozenset[Effect]


@dataclass(frozen=True, slots=True)
class PolicyContext:
    """The state that rules may depend on. `taint` is the untrusted-text level of the model's context.
    `private` means that nobody else reads the chat.
    """

    time: datetime
    taint: Taint = Taint.NONE
    private: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision on a call. `rule` is the text of the deciding rule; "" if no rule decided. `granted`
    means that a rule allows the call to the asking person, who may therefore approve it alone. `lasting`
    means that an earlier lasting approval counts. `own` means that the call concerns only this person.
    `why` is the reason for asking. `trusted` means that the rule is marked `@trusted:`.
    """

    outcome: Outcome
    source: Source
    reason: str
    rule: str = ""
    granted: bool = False
    lasting: bool = True
    own: bool = False
    why: Reason = ""
    trusted: bool = False


def fingerprint(tool: str, arguments: Mapping[str, Any], directory: str, *definition: Any) -> str:
    """Return the hash for which an approval is valid. The hash covers the tool, the arguments, the folder
    and, if given, the tool's definition.
    """
    whole = json.dumps(
        [tool, arguments, directory, *definition], sort_keys=True, ensure_ascii=True, default=str
    )
    return hashlib.sha256(whole.encode()).hexdigest()

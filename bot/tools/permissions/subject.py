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
        """As `operators` and rules write it."""
        return f"{self.channel}:{self.user_id}"


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call with its validated arguments and the effects of its tool."""

    tool: str
    arguments: Mapping[str, Any]
    effects: frozenset[Effect]


@dataclass(frozen=True, slots=True)
class PolicyContext:
    """The state that rules may depend on. `taint` is the level of untrusted text in view; `private`: nobody else reads the chat."""

    time: datetime
    taint: Taint = Taint.NONE
    private: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """`rule` is the text of the rule that decided, "" if none did. `granted`: a rule allows this call to the person who asked, so they
    may approve it themselves. `lasting`: an earlier lasting approval counts. `own`: it concerns this person alone. `why` is the reason
    for asking. `trusted`: the rule that allows it is marked `@trusted:`.
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
    """The hash that an approval is bound to: tool, arguments, folder, and the tool's definition if given."""
    whole = json.dumps(
        [tool, arguments, directory, *definition], sort_keys=True, ensure_ascii=True, default=str
    )
    return hashlib.sha256(whole.encode()).hexdigest()

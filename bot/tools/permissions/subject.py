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
    """A person in a chat. Without a chat, `user_id` and `channel` are None and the role is `nobody`."""

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
    """A tool call with its validated arguments, and what its tool may do."""

    tool: str
    arguments: Mapping[str, Any]
    effects: frozenset[Effect]


@dataclass(frozen=True, slots=True)
class PolicyContext:
    """The state of the moment that rules may use. `taint` is the level of untrusted text in view, `private` says that
    only the person reads along.
    """

    time: datetime
    taint: Taint = Taint.NONE
    private: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """`rule` is the text of the rule that decided, "" where none did. `granted`: a rule gives this very call to the
    person who asked for it, so they may press the button themselves. `lasting`: an earlier lasting approval counts;
    not while foreign text is in view. `own`: it concerns this person alone. `why` names the reason for asking.
    `trusted`: the rule that allows it is marked.
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
    """The hash that an approval is bound to: it holds for exactly this tool, as it is defined where that is given, these
    arguments and this folder.
    """
    whole = json.dumps(
        [tool, arguments, directory, *definition], sort_keys=True, ensure_ascii=True, default=str
    )
    return hashlib.sha256(whole.encode()).hexdigest()

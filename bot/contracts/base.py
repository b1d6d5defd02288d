"""Base types of the contracts."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

Json = dict[str, Any]  # A JSON object
Message = Json  # Message of the Messages API: `{"role": "user" | "assistant", "content": [block, …]}`
ChatType = Literal["direct", "group"]
Role = Literal["user", "assistant"]
Level = Literal["debug", "info", "warn", "error", "action"]


class Frozen(BaseModel):
    """An immutable value, which is stored as JSON with camelCase keys."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True, extra="ignore")

"""The Bot API's checks of parameters, texts, entities and keyboards, as pure functions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bot.contracts.base import Json

TEXT_LIMIT = 4096
ENTITY_LIMIT = 100
PLAIN_STYLES = frozenset({"bold", "italic", "underline", "strikethrough", "spoiler"})
QUOTES = frozenset({"blockquote", "expandable_blockquote"})
VERBATIM = frozenset({"pre", "code"})
ENTITY_TYPES = (
    PLAIN_STYLES
    | QUOTES
    | VERBATIM
    | {"text_link", "text_mention", "custom_emoji", "mention", "hashtag", "cashtag", "bot_command", "url"}
    | {"email", "phone_number"}
)
SCOPES = frozenset({"default", "all_private_chats", "all_group_chats", "all_chat_administrators"})
"""Types of command menu scopes that do not name a chat."""
RIGHTS: Mapping[str, tuple[str, ...]] = {
    "restricted": ("is_member", "can_send_messages", "can_send_documents", "can_send_polls", "until_date"),
    "administrator": ("can_be_edited", "is_anonymous", "can_manage_chat", "can_delete_messages"),
}
"""For each status of a chat member, some of the fields that Telegram always includes."""
_FOUND = re.compile(
    r"(?P<bot_command>(?<![\w/<>@.])/[A-Za-z0-9_]{1,64}(?:@[A-Za-z0-9_]{3,32})?(?![\w/<>]))"
    r"|(?P<mention>(?<!\w)@[A-Za-z0-9_]{3,32}(?!\w))"
    r"|(?P<url>https?://[^\s<>]+)"
)

_INVISIBLE = re.compile(r"[\s\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2800\ufeff\ufffc]")


class Refused(Exception):
    """Raised to make a call fail with an error answer."""

    def __init__(self, code: int, description: str, **parameters: Any) -> None:
        super().__init__(description)
        self.code = code
        self.description = description
        self.parameters = parameters

    def body(self) -> Json:
        return error_body(self.code, self.description, **self.parameters)


def error_body(code: int, description: str, **parameters: Any) -> Json:
    body: Json = {"ok": False, "error_code": code, "description": description}
    if parameters:
        body["parameters"] = parameters
    return body


def bad(description: str) -> Refused:
    return Refused(400, f"Bad Request: {description}")


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that was sent with a call."""

    filename: str
    content_type: str
    data: bytes


class Args:
    """Parameters of one call. A call sent as JSON has native values; a call sent as a form has JSON in strings."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def has(self, name: str) -> bool:
        value = self._values.get(name)
        return value is not None and value != ""

    def text(self, name: str, default: str = "") -> str:
        value = self._values.get(name, default)
        return value if isinstance(value, str) else json.dumps(value)

    def integer(self, name: str, default: int = 0) -> int:
        value = self._values.get(name, default)
        if isinstance(value, bool):
            raise bad(f"{name} must be an integer")
        try:
            return int(value)
        except (TypeError, ValueError):
            raise bad(f"can't parse {name}: integer expected") from None

    def flag(self, name: str) -> bool:
        return str(self._values.get(name, "")).lower() in {"true", "1", "yes"}

    def value(self, name: str) -> Any:
        """Return the object or list in the parameter; None if the parameter was not sent."""
        value = self._values.get(name)
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value or "null")
        except ValueError:
            raise bad(f"can't parse {name} JSON object") from None

    def mapping(self, name: str) -> Json:
        value = self.value(name) or {}
        if not isinstance(value, dict):
            raise bad(f"can't parse {name}: object expected")
        return value

    def upload(self, name: str) -> Upload:
        """Return the file that was sent in the parameter."""
        value = self._values.get(name)
        attached = value.removeprefix("attach://") if isinstance(value, str) else ""
        found = self._values.get(attached, value)
        if not isinstance(found, Upload):
            raise bad(f"there is no {name} in the request")
        if not found.filename or re.search(r'["\\/\r\n]|%[0-9A-F]{2}', found.filename):
            raise bad("wrong file name")
        return found

    def items(self, name: str) -> list[Any]:
        value = self.value(name) or []
        if not isinstance(value, list):
            raise bad(f"can't parse {name}: array expected")
        return value


def units(text: str) -> int:
    """Return the length of the text in UTF-16 code units."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def detect(text: str) -> list[Json]:
    """Return the entities that Telegram detects in a person's text: commands, mentions and links."""
    return [
        {"type": match.lastgroup, "offset": units(text[: match.start()]), "length": units(match.group())}
        for match in _FOUND.finditer(text)
    ]


def checked_text(text: str, entities: Iterable[Any], limit: int = TEXT_LIMIT) -> tuple[str, list[Json]]:
    """Return the text and the entities as Telegram stores them: without white space at both ends. Raises `Refused`."""
    if re.search("[\ud800-\udfff]", text):
        raise bad("strings must be encoded in UTF-8")
    spans = checked_entities(text, entities)
    body = text.rstrip()
    lead = units(body) - units(body.lstrip())
    body = body.lstrip()
    if not _INVISIBLE.sub("", body):
        raise bad("message text is empty")
    if units(body) > limit:
        raise bad("message is too long")
    end = units(body)
    kept: list[Json] = []
    for span in spans:
        start = max(0, span["offset"] - lead)
        stop = min(end, span["offset"] + span["length"] - lead)
        if stop > start:
            kept.append({**span, "offset": start, "length": stop - start})
    return body, kept


def checked_entities(text: str, entities: Iterable[Any]) -> list[Json]:
    """Check the entities, and return the first 100 in text order. Telegram drops the rest."""
    spans = [_checked_entity(text, entity) for entity in entities]
    spans.sort(key=lambda span: (span["offset"], -span["length"]))
    del spans[ENTITY_LIMIT:]
    around: list[Json] = []
    for span in spans:
        around = [other for other in around if other["offset"] + other["length"] > span["offset"]]
        for other in around:
            _check_nesting(other, span)
        around.append(span)
    return spans


def _checked_entity(text: str, entity: Any) -> Json:
    if not isinstance(entity, dict) or entity.get("type") not in ENTITY_TYPES:
        raise bad("can't parse entities: unknown entity type")
    offset, length = entity.get("offset"), entity.get("length")
    if type(offset) is not int or type(length) is not int:
        raise bad("can't parse entities: offset and length must be integers")
    if offset < 0 or length <= 0 or offset + length > units(text):
        raise bad(f"can't parse entities: entity at {offset}+{length} is out of the text")
    raw = text.encode("utf-16-le")
    for at in (offset, offset + length):
        low = raw[at * 2 : at * 2 + 2]
        if low and 0xDC00 <= int.from_bytes(low, "little") <= 0xDFFF:
            raise bad("can't parse entities: entity begins or ends in the middle of a UTF-16 symbol")
    if entity["type"] == "text_link" and not re.match(
        r"(https?|tg|ton|mailto|tel)[:.]", entity.get("url") or ""
    ):
        raise bad("can't parse entities: unsupported URL")
    return entity


def _check_nesting(outer: Json, inner: Json) -> None:
    kinds = {outer["type"], inner["type"]}
    if inner["offset"] + inner["length"] > outer["offset"] + outer["length"]:
        raise bad("can't parse entities: entities overlap partially")
    if outer["type"] == inner["type"]:
        raise bad(f"can't parse entities: nested {outer['type']}")
    if kinds <= QUOTES:
        raise bad("can't parse entities: nested quotes")
    if kinds & QUOTES:
        return
    if kinds & VERBATIM or not kinds & PLAIN_STYLES:
        raise bad(f"can't parse entities: {inner['type']} inside {outer['type']}")


def checked_keyboard(markup: Json) -> Json:
    """Return the buttons below a message after checking them. Each button must have callback data."""
    if isinstance(keys := markup.get("keyboard"), list):
        if not all(
            isinstance(row, list) and all(str(key.get("text", "")).strip() for key in row) for row in keys
        ):
            raise bad("can't parse keyboard button")
        return markup
    rows = markup.get("inline_keyboard")
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise bad("can't parse reply keyboard markup JSON object")
    for button in (button for row in rows for button in row):
        if not isinstance(button, dict) or not str(button.get("text", "")).strip():
            raise bad("text buttons are unallowed in the inline keyboard")
        if not 1 <= len(str(button.get("callback_data", "")).encode()) <= 64:
            raise bad("BUTTON_DATA_INVALID")
    return markup

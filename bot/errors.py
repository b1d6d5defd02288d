"""All errors that Shipmate raises on purpose.

The text of an error is written for operators. `person` returns a sentence for people. This sentence is in the person's
language (`bot.words`) and has no ids, paths or secrets. If a start fails with `ConfigError`, `ChannelRefused` or
`ModelRefused`, the exit code is 78; if it fails with `Unavailable`, the exit code is 75.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from bot.words import DEFAULT, say, speaking, times


class ShipmateError(Exception):
    """Base class of all errors that Shipmate raises on purpose."""

    sentence: ClassVar[str] = "any"
    """Key of the sentence for people. The sentences are in the section `errors` of `bot/words`."""
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str | None = None, **facts: Any) -> None:
        """`facts` are values for the attributes that the class declares."""
        super().__init__(message or (self.__doc__ or "").strip().splitlines()[0])
        self.__dict__.update(facts)

    def __init_subclass__(cls, **facts: Any) -> None:
        """`facts` are values for the class attributes that a base class declares."""
        super().__init_subclass__()
        for name, value in facts.items():
            setattr(cls, name, value)

    @property
    def person(self) -> str:
        """Return the sentence for people, in the language of the running task."""
        return say(f"errors.{self.sentence}")

    @property
    def for_model(self) -> str:
        """Return the sentence for people in English. The language of a person must not change requests to the model."""
        with speaking(DEFAULT):
            return self.person


class TurnFailed(ShipmateError):
    """A turn failed. People get the sentence `key` of the section `turn` of `bot/words`, formatted with `values`."""

    def __init__(self, cause: str, key: str, **values: str) -> None:
        super().__init__(cause)
        self.key, self.values = key, values

    @property
    def person(self) -> str:
        return say(f"turn.{self.key}", **self.values)


class ConfigError(ShipmateError, exit_code=78):
    """The configuration in ship.json or the environment is invalid. `findings` has a line for each mistake."""

    def __init__(self, *findings: str) -> None:
        super().__init__("\n".join(findings))
        self.findings = findings


class Unavailable(ShipmateError, exit_code=75):
    """Another process uses the port, the `.ship` folder or the token."""


class NotFound(ShipmateError):
    """No file or record on disk has the requested name."""


class IdentityInvalid(ShipmateError, ValueError):
    """The text is not a valid chatKey, or not a valid reference to a person."""


class ChannelError(ShipmateError):
    """A channel failed."""


class ChannelRefused(ChannelError, exit_code=78):
    """The platform refuses the channel's token."""


class RightMissing(ChannelRefused):
    """The platform refuses one operation, because the bot lacks a permission."""


class ChannelUnreachable(ChannelError):
    """The platform cannot be reached now (network failure or status 5xx). The caller retries."""


class FileFailed(ChannelError):
    """An attachment was not downloaded. `why` is the reason for the model. `code` selects the reason for
    people (`files.why_…` in `bot/words`).
    """

    why = "it could not be fetched"
    code: ClassVar[str] = "failed"


class FileGone(FileFailed, why="it is not there any more", code="gone"):
    """The file does not exist, no longer exists, or is not visible to this bot."""


class FileForbidden(FileFailed, why="I have not been given the right to read files here", code="forbidden"):
    """The bot lacks the permission to read files."""


class FileTooLarge(FileFailed, why="it is too large", code="large"):
    """The file is larger than the caller accepts, or larger than the platform lets bots download."""


class FileUnreachable(FileFailed, why="it could not be fetched just now", code="unreachable"):
    """The download failed for a reason that may pass."""


class TranscriptionFailed(FileFailed, why="it could not be heard just now", code="unheard"):
    """A recording was not transcribed."""


class DeliveryFailed(ChannelError, sentence="undelivered"):
    """The message was not delivered. The outbox stores `code` as the reason."""

    code: ClassVar[str] = "failed"


class DeliveryThrottled(DeliveryFailed, code="throttled"):
    """The platform demands a wait of `retry_after` seconds. The message was certainly not sent. If
    `everywhere` is True, the limit applies to all chats; otherwise it applies only to this chat.
    """

    retry_after: float
    everywhere: bool = False


class DeliveryUncertain(DeliveryFailed, code="uncertain"):
    """The message may have reached the chat, but the platform's response was lost."""


class EditRefused(DeliveryFailed, code="edit refused"):
    """A message cannot be edited: its content would not change, or it is deleted or no longer editable."""


class FileRefused(DeliveryFailed, code="file refused"):
    """A file cannot be sent to a chat, and certainly was not sent. `forbidden`: the bot lacks a permission."""

    forbidden: bool = False


class FilesMissing(DeliveryFailed, code="file refused"):
    """A message was delivered without the files in `names`. The chat has been notified."""

    names: Sequence[str]


class DeliveryPartial(DeliveryFailed, sentence="partial", code="partial"):
    """Only the first `sent` of `parts` parts of a long message were delivered. The other parts were certainly not delivered."""

    sent: int
    parts: int


class DeliveryDeferred(DeliveryFailed, sentence="deferred", code="deferred"):
    """Sending is limited for `wait` seconds. The message stays in the outbox and is sent later."""

    wait: float


class TargetGone(DeliveryFailed, code="gone"):
    """The bot can no longer write to the chat, because the bot was blocked or removed, or the channel was archived."""


class ClaimUnfounded(DeliveryFailed, code="unfounded"):
    """The message was not sent, because its sentence `claim` says that something was done although no tool did it."""

    claim: str


class ModelError(ShipmateError, sentence="model"):
    """A model call failed. `status` is the HTTP status, `request_id` is the provider's id. `stop_reason`, `usage` (keys
    as in the log) and `cost_usd` are set if the provider reported them for an answer that had begun.
    """

    retryable = False
    status: int | None = None
    request_id: str | None = None
    stop_reason: str | None = None
    usage: dict[str, int] | None = None
    cost_usd: float | None = None


class ModelRefused(ModelError, sentence="model_refused", exit_code=78):
    """The provider refuses the API key, or denies the account access."""


class ModelUnknown(ModelError, sentence="model_unknown"):
    """The provider does not have this model, or does not give this account access to it."""


class ModelMisconfigured(ModelError, sentence="model_setup"):
    """`llm.baseUrl` is not an endpoint of the Messages API."""


class OneModel(ModelUnknown, sentence="one_model"):
    """Another model was requested, but the built-in demo model is the only model."""


class ContextOverflow(ModelError, sentence="overflow"):
    """The prompt does not fit into the model's context window. `tokens` (of the prompt) and `window` (of the model) are
    set if the provider reported them.
    """

    tokens: int | None = None
    window: int | None = None


class OutputOverflow(ContextOverflow):
    """The prompt and `max_tokens` together exceed the context window, or `max_tokens` alone exceeds the model's output
    `limit` (known only if the provider reports it). Retry with a smaller `max_tokens`.
    """

    limit: int | None = None


class RequestTooLarge(ContextOverflow):
    """The request has too many bytes for the provider."""


class RequestInvalid(ModelError, sentence="request_invalid"):
    """The provider rejects the request as malformed. `about_files` is True if the provider refuses files in the request, and
    `blind` is True if the model accepts no files at all. `place` is the block that the provider names, as (index of the
    message, index of the block).
    """

    about_files: bool = False
    blind: bool = False
    place: tuple[int, int] | None = None


class SystemRefused(RequestInvalid):
    """The model does not accept system messages in a conversation."""


class ThinkingUnbound(RequestInvalid):
    """A thinking block follows a message that has changed. Retry once without thinking blocks."""


class ProviderBusy(ModelError, retryable=True):
    """The provider cannot answer now. Retry after `retry_after` seconds, if the provider named a time."""

    retry_after: float | None = None


class RateLimited(ProviderBusy, sentence="busy"):
    """The provider received too many requests (status 429)."""


class Overloaded(ProviderBusy, sentence="overloaded"):
    """The provider is overloaded (status 5xx or 529)."""


class ProviderFailing(Overloaded, sentence="failing"):
    """The provider fails or is too slow (timeouts, and statuses 5xx except 503 and 529)."""


class SpendLimit(ModelError, sentence="spend_limit"):
    """A spending limit at the provider is reached (status 429 or 402). Waiting does not help."""


class BudgetSpent(ModelError, sentence="budget_spent"):
    """The daily budget of a chat or person is spent, and no operator allowed more. The next day begins at
    `until`, in epoch seconds.
    """

    until: float

    @property
    def person(self) -> str:
        return f"{super().person} {say('time.again', time=times.date(self.until))}"


class StreamBroken(ModelError, sentence="broken", retryable=True):
    """The answer was cut off, stalled or garbled. No part of the answer was executed."""


class ModelUnreachable(ModelError, sentence="unreachable", retryable=True):
    """The provider cannot be reached."""


class ToolError(ShipmateError):
    """A tool failed. The text tells the model what went wrong and what to do instead."""


class ToolInputInvalid(ToolError):
    """The arguments of a tool call do not match the tool's schema."""


class CommandFailed(ToolError, sentence="command"):
    """A command ended with a non-zero exit code; the code is negative if a signal ended the command. `limit` is the
    time limit in seconds, if the limit ended the command. `over` is the name of a resource if the command was stopped because
    it used too much of that resource.
    """

    status: int
    stdout: str
    stderr: str
    limit: float | None = None
    over: str | None = None


class NoReadableText(ShipmateError):
    """A file contains no readable text. `why` explains the reason to the model; `code` and `limit` select the sentence
    for people (`SeenFile`).
    """

    def __init__(self, why: str = "", code: str = "", limit: int = 0) -> None:
        super().__init__(why)
        self.why = why
        self.code = code
        self.limit = limit


class StorageError(ShipmateError, sentence="storage"):
    """The disk or the database refuses an operation."""


@contextlib.contextmanager
def as_storage_error(words: str, *kinds: type[Exception]) -> Iterator[None]:
    """Convert errors of these kinds (default: OSError) into a `StorageError` whose text begins with `words`."""
    caught = kinds or (OSError,)
    try:
        yield
    except caught as error:
        raise StorageError(f"{words}: {words_of(error)}") from None


def words_of(error: Exception) -> str:
    """Return an error's message in one line. Omit the other lines of a PostgreSQL error, because they may contain the data."""
    primary = getattr(getattr(error, "diag", None), "message_primary", None)
    return " ".join((primary or str(error)).split()) or type(error).__name__


def connection_reason(error: BaseException) -> str:
    """Return the reason why a connection failed, in the system's words. The text has no class names, addresses or tokens."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if (certificate := getattr(error, "certificate_error", None)) is not None:
        return f"its certificate does not hold: {getattr(certificate, 'verify_message', '')}".rstrip(": ")
    cause: Any = getattr(error, "os_error", error)
    if getattr(cause, "library", None):
        # An error of the TLS library is an OSError without a system error number, so the library's reason is used.
        return f"the TLS handshake failed: {str(cause.reason).replace('_', ' ').lower()}"
    if isinstance(cause, OSError):
        # The error's own text may contain addresses, so this function returns the system's text for the error number.
        number = cause.errno or 0
        return os.strerror(number) if number > 0 else cause.strerror or "no connection"
    return "the connection broke"


class TurnStopped(ShipmateError):
    """A person stopped the turn."""

"""Every error that Shipmate raises on purpose.

The text of an error is for operators. What people read is `person`: a sentence in their language (`bot.words`), without ids, paths
or secrets. `ConfigError`, `ChannelRefused` and `ModelRefused` end a start with 78, `Unavailable` with 75.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal, TypedDict, Unpack

from bot.words import DEFAULT, say, speaking, times

DeliveryCode = Literal[
    "failed",
    "throttled",
    "uncertain",
    "edit refused",
    "file refused",
    "partial",
    "deferred",
    "expired",
    "gone",
    "unfounded",
]
"""Why a message was not delivered, as the outbox stores it."""

FileCode = Literal[
    "blind",
    "failed",
    "forbidden",
    "gone",
    "large",
    "locked",
    "many",
    "memory",
    "old_office",
    "pages",
    "pictures",
    "secret",
    "silence",
    "size",
    "too_much",
    "unheard",
    "unseen",
    "unreachable",
]
"""Why an attachment was not read (`files.why_…` in `bot/words`)."""


class ShipmateError(Exception):
    """An error that Shipmate expects."""

    sentence: ClassVar[str] = "any"
    """Key of `person` in the section `errors` of `bot/words`."""
    exit_code = 1

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (self.__doc__ or "").strip().splitlines()[0])

    @property
    def person(self) -> str:
        """The sentence for people, in the language of the running task."""
        return say(f"errors.{self.sentence}")

    @property
    def for_model(self) -> str:
        """The same in English, so that requests to the model do not depend on the person's language."""
        with speaking(DEFAULT):
            return self.person


class ConfigError(ShipmateError):
    """Bad ship.json or environment. `findings` has a line for each mistake."""

    exit_code = 78

    def __init__(self, *findings: str) -> None:
        super().__init__("\n".join(findings))
        self.findings = findings


class Unavailable(ShipmateError):
    """A port, `.ship` or a token is in use by another process."""

    exit_code = 75


class NotFound(ShipmateError):
    """Nothing on disk has the requested name."""


class IdentityInvalid(ShipmateError, ValueError):
    """A text is no chatKey, or no reference to a person."""


class ChannelError(ShipmateError):
    """A channel failed."""


class ChannelRefused(ChannelError):
    """The platform refuses the token."""

    exit_code = 78


class RightMissing(ChannelRefused):
    """The platform refuses one operation for lack of a permission."""


class ChannelUnreachable(ChannelError):
    """The platform cannot be reached now (network, 5xx); the caller retries."""


class FileFailed(ChannelError):
    """An attachment was not downloaded. `why` is the reason for the model, `code` that for people."""

    why = "it could not be fetched"
    code: ClassVar[FileCode] = "failed"


class FileGone(FileFailed):
    """The file does not exist (any more), or not for this bot."""

    why = "it is not there any more"
    code = "gone"


class FileForbidden(FileFailed):
    """The bot lacks the permission to read files."""

    why = "I have not been given the right to read files here"
    code = "forbidden"


class FileTooLarge(FileFailed):
    """The file is larger than requested, or than the platform gives to bots."""

    why = "it is too large"
    code = "large"


class FileUnreachable(FileFailed):
    """The download failed for now."""

    why = "it could not be fetched just now"
    code = "unreachable"


class TranscriptionFailed(FileFailed):
    """A recording was not transcribed."""

    why = "it could not be heard just now"
    code = "unheard"


class DeliveryFailed(ChannelError):
    """The message was not delivered."""

    sentence = "undelivered"
    code: ClassVar[DeliveryCode] = "failed"


class DeliveryThrottled(DeliveryFailed):
    """The platform asks to wait `retry_after` seconds; certainly not sent. `everywhere`: the limit holds for all chats, not for this one only."""

    code = "throttled"

    def __init__(self, message: str | None = None, *, retry_after: float, everywhere: bool = False) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.everywhere = everywhere


class DeliveryUncertain(DeliveryFailed):
    """The message may or may not be in the chat: the response was lost."""

    code = "uncertain"


class EditRefused(DeliveryFailed):
    """A message cannot be edited (any more): it is unchanged or gone."""

    code = "edit refused"


class FileRefused(DeliveryFailed):
    """A file cannot be sent to a chat, and certainly was not. `forbidden`: the bot lacks a permission."""

    code = "file refused"

    def __init__(self, message: str | None = None, *, forbidden: bool = False) -> None:
        super().__init__(message)
        self.forbidden = forbidden


class FilesMissing(DeliveryFailed):
    """A message was delivered without the files of these `names`; the chat was told."""

    code = "file refused"

    def __init__(self, message: str | None = None, *, names: Sequence[str]) -> None:
        super().__init__(message)
        self.names = names


class DeliveryPartial(DeliveryFailed):
    """The first `sent` of `parts` of a long message were delivered, the others certainly not."""

    sentence = "partial"
    code = "partial"

    def __init__(self, message: str | None = None, *, sent: int, parts: int) -> None:
        super().__init__(message)
        self.sent = sent
        self.parts = parts


class DeliveryDeferred(DeliveryFailed):
    """Rate-limited for `wait` seconds: the message stays in the outbox and is sent later."""

    sentence = "deferred"
    code = "deferred"

    def __init__(self, message: str | None = None, *, wait: float) -> None:
        super().__init__(message)
        self.wait = wait


class TargetGone(DeliveryFailed):
    """The chat can no longer be written to: bot blocked or removed, channel archived."""

    code = "gone"


class ClaimUnfounded(DeliveryFailed):
    """Not sent: the sentence `claim` says that something was done which no tool did."""

    code = "unfounded"

    def __init__(self, claim: str) -> None:
        super().__init__()
        self.claim = claim


class _Where(TypedDict, total=False):
    status: int | None
    request_id: str | None


class _Prompt(_Where, total=False):
    tokens: int | None
    window: int | None


class ModelError(ShipmateError):
    """A model call failed. `status` is the HTTP status, `request_id` the provider's id. `stop_reason`, `usage` (keys as in the log)
    and `cost_usd` are set if an answer had begun and the provider told them.
    """

    sentence = "model"
    retryable = False

    def __init__(
        self, message: str | None = None, *, status: int | None = None, request_id: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.request_id = request_id
        self.stop_reason: str | None = None
        self.usage: dict[str, int] | None = None
        self.cost_usd: float | None = None

    def add_bill(self, stop_reason: str | None, usage: dict[str, int], cost_usd: float | None) -> None:
        """Set what the provider bills for an answer that had begun."""
        self.stop_reason, self.usage, self.cost_usd = stop_reason, usage, cost_usd

    def reword(self, message: str, request_id: str | None) -> None:
        """Replace the text, and set the provider's id if it is unknown."""
        self.args = (message,)
        self.request_id = self.request_id or request_id


class ModelRefused(ModelError):
    """The provider refuses the key, or the account may not pay."""

    sentence = "model_refused"
    exit_code = 78


class ModelUnknown(ModelError):
    """The provider has no such model, or not for this account."""

    sentence = "model_unknown"


class ModelMisconfigured(ModelError):
    """`llm.baseUrl` is no endpoint for messages."""

    sentence = "model_setup"


class OneModel(ModelUnknown):
    """The built-in demo model has no other models."""

    sentence = "one_model"


class ContextOverflow(ModelError):
    """The prompt does not fit the model's window. `tokens` and `window` are the provider's numbers, if given."""

    sentence = "overflow"

    def __init__(
        self,
        message: str | None = None,
        *,
        tokens: int | None = None,
        window: int | None = None,
        **where: Unpack[_Where],
    ) -> None:
        super().__init__(message, **where)
        self.tokens = tokens
        self.window = window


class OutputOverflow(ContextOverflow):
    """Prompt plus `max_tokens` do not fit, or `max_tokens` is above the model's `limit` (if told): retry with less."""

    def __init__(
        self, message: str | None = None, *, limit: int | None = None, **prompt: Unpack[_Prompt]
    ) -> None:
        super().__init__(message, **prompt)
        self.limit = limit


class RequestTooLarge(ContextOverflow):
    """The request has too many bytes."""


class RequestInvalid(ModelError):
    """The provider calls the request malformed. `about_files`: it refuses files of the request; `blind`: it accepts no files at all;
    `place`: index of the message and block that it names.
    """

    sentence = "request_invalid"

    def __init__(
        self,
        message: str | None = None,
        *,
        about_files: bool = False,
        blind: bool = False,
        place: tuple[int, int] | None = None,
        **where: Unpack[_Where],
    ) -> None:
        super().__init__(message, **where)
        self.about_files = about_files
        self.blind = blind
        self.place = place


class ThinkingUnbound(RequestInvalid):
    """A thinking block follows a changed message: retry once without thinking blocks."""


class SummaryRefused(RequestInvalid):
    """The provider refuses its own summary, or to summarise this conversation: use our summary."""


class ProviderBusy(ModelError):
    """The provider cannot answer now; retry after `retry_after` seconds, if told."""

    retryable = True

    def __init__(
        self, message: str | None = None, *, retry_after: float | None = None, **where: Unpack[_Where]
    ) -> None:
        super().__init__(message, **where)
        self.retry_after = retry_after


class RateLimited(ProviderBusy):
    """Too many requests (429)."""

    sentence = "busy"


class Overloaded(ProviderBusy):
    """The provider is overloaded (5xx, 529)."""

    sentence = "overloaded"


class ProviderFailing(Overloaded):
    """The provider fails or is too slow (5xx except 503 and 529, time-outs)."""

    sentence = "failing"


class SummaryUnavailable(Overloaded):
    """Only reading and writing the provider's own summaries fails."""


class SpendLimit(ModelError):
    """A spending limit is reached (429 or 402); waiting does not help."""

    sentence = "spend_limit"


class BudgetSpent(ModelError):
    """The daily budget of a chat or person is spent, and no operator allowed more."""

    sentence = "budget_spent"

    def __init__(self, message: str, until: float) -> None:
        """`until`: when the next day begins (epoch seconds)."""
        super().__init__(message)
        self.until = until

    @property
    def person(self) -> str:
        return f"{super().person} {say('time.again', time=times.date(self.until))}"


class StreamBroken(ModelError):
    """The answer was cut off, stalled or garbled; nothing of it was executed."""

    sentence = "broken"
    retryable = True


class ModelUnreachable(ModelError):
    """The provider cannot be reached."""

    sentence = "unreachable"
    retryable = True


class ToolError(ShipmateError):
    """A tool failed. The text tells the model what went wrong and what to do instead."""


class ToolInputInvalid(ToolError):
    """The arguments do not fit the tool's schema."""


class CommandFailed(ToolError):
    """A command ended with a non-zero exit code, negative for a signal. `limit`: it was stopped after so many seconds; `over`: it was
    stopped for using too much of this resource.
    """

    sentence = "command"

    def __init__(
        self,
        message: str | None = None,
        *,
        exit_code: int,
        stdout: str,
        stderr: str,
        limit: float | None = None,
        over: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = exit_code
        self.limit = limit
        self.over = over
        self.stdout = stdout
        self.stderr = stderr


class NoReadableText(ShipmateError):
    """A file contains no readable text. `why` tells the model more, `code` and `limit` people (`SeenFile`)."""

    def __init__(self, why: str = "", code: FileCode | Literal[""] = "", limit: int = 0) -> None:
        super().__init__(why)
        self.why = why
        self.code = code
        self.limit = limit


class StorageError(ShipmateError):
    """The disk or the database refuses."""

    sentence = "storage"


@contextlib.contextmanager
def as_storage_error(words: str, *kinds: type[Exception]) -> Iterator[None]:
    """Convert errors of these kinds (default: OSError) into a `StorageError` that begins with `words`."""
    caught = kinds or (OSError,)
    try:
        yield
    except caught as error:
        raise StorageError(f"{words}: {error}") from error


def connection_reason(error: BaseException) -> str:
    """Why a connection failed, in the system's words; without class names, addresses and tokens."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if (certificate := getattr(error, "certificate_error", None)) is not None:
        return f"its certificate does not hold: {getattr(certificate, 'verify_message', '')}".rstrip(": ")
    cause: Any = getattr(error, "os_error", error)
    if getattr(cause, "library", None):
        # An error of the TLS library is an OSError whose number is none of the system's.
        return f"the TLS handshake failed: {str(cause.reason).replace('_', ' ').lower()}"
    if isinstance(cause, OSError):
        # Libraries write addresses into the words of an error that has a number.
        number = cause.errno or 0
        return os.strerror(number) if number > 0 else cause.strerror or "no connection"
    return "the connection broke"


class TurnStopped(ShipmateError):
    """The person stopped the turn."""

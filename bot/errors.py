"""Every error that Shipmate raises on purpose, in one tree:

    ShipmateError
    ├── ConfigError                 bad ship.json or environment: exit 78
    ├── Unavailable                 a port, `.ship` or token is held elsewhere: exit 75
    ├── NotFound                    nothing on disk has the name that was asked for
    ├── IdentityInvalid             a text names no chat, or no person
    ├── ChannelError
    │   ├── ChannelRefused          the platform refuses the token: exit 78
    │   │   └── RightMissing        it refuses one thing, for which the bot has no right
    │   ├── ChannelUnreachable      network down or 5xx: waited for
    │   ├── FileFailed              a file that came with a message was not fetched
    │   │   ├── FileGone            it is not there, or not for this bot
    │   │   ├── FileForbidden       the bot has no right to read files
    │   │   ├── FileTooLarge        more bytes than were asked for, or than the platform gives
    │   │   └── FileUnreachable     not whole now; later it may be
    │   └── DeliveryFailed          a message did not reach the chat
    │       ├── DeliveryThrottled   surely not sent; try again after `retry_after`
    │       ├── DeliveryUncertain   may or may not have been sent
    │       ├── EditRefused         a message stands as it was: it cannot be changed, or is gone
    │       ├── FileRefused         a file cannot be sent to the chat
    │       ├── FilesMissing        delivered, but for files; the chat was told
    │       ├── DeliveryPartial     the first parts of a long message are in the chat, the others are not
    │       ├── DeliveryDeferred    not sent yet; it will be, once the platform allows it
    │       ├── TargetGone          the chat can no longer be written to
    │       └── ClaimUnfounded      not sent: it says that something was done which no tool did
    ├── ModelError
    │   ├── ModelRefused            the key is refused, or the account may not pay: exit 78 at start
    │   ├── ModelUnknown            the provider does not have the model, or not for this account
    │   │   └── OneModel            there is no other one
    │   ├── ContextOverflow         the prompt does not fit the model's window
    │   ├── OutputOverflow          prompt plus `max_tokens` do not fit: lower `max_tokens`
    │   ├── RequestTooLarge         the body has too many bytes
    │   ├── ModelMisconfigured      what llm.baseUrl leads to takes no messages
    │   ├── RequestInvalid          the provider calls the request malformed
    │   │   ├── ThinkingUnbound     a thinking block stands after a changed position
    │   │   └── SummaryRefused      a summary of the provider's own is not taken, or not made of this conversation
    │   ├── ProviderBusy            try again, after `retry_after` where it was given
    │   │   ├── RateLimited         429
    │   │   └── Overloaded          5xx, 529
    │   │       ├── ProviderFailing  5xx but 503 and 529, time-outs
    │   │       └── SummaryUnavailable  only what reads and writes the provider's own summaries
    │   ├── SpendLimit              a 429 or 402 that waiting does not mend
    │   ├── BudgetSpent             a budget of ours for the day, and no operator allowed more
    │   ├── StreamBroken            cut, stalled, ended early or garbled
    │   └── ModelUnreachable        no connection
    ├── ToolError                   a tool failed; its text is for the model
    │   ├── ToolInputInvalid
    │   └── CommandFailed           a command ended in another exit code than 0
    ├── NoReadableText              the bytes of a file hold no text that can be read
    ├── StorageError                the disk or the database refuses
    └── TurnStopped                 the person stopped the turn

Each carries its data as attributes; the text of an error is for the operator. What a person reads is
`person`, a plain sentence in their language (`bot.words`), without ids, paths or secrets.
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
"""Why a message was not delivered, as the outbox keeps it."""

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
"""Why a file of a message was not read: the end of the key of its sentence (`files.why_…`)."""


class ShipmateError(Exception):
    """Something that Shipmate foresaw went wrong."""

    sentence: ClassVar[str] = "any"
    """The name of what a person reads, in the section `errors` of each catalogue (`bot.words`)."""
    exit_code = 1

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (self.__doc__ or "").strip().splitlines()[0])

    @property
    def person(self) -> str:
        """The sentence for a person, in the language of the running task."""
        return say(f"errors.{self.sentence}")

    @property
    def for_model(self) -> str:
        """The same in English, whatever the person speaks: requests to the model stay as they are."""
        with speaking(DEFAULT):
            return self.person


class ConfigError(ShipmateError):
    """The configuration is wrong. `findings` holds one line each."""

    exit_code = 78

    def __init__(self, *findings: str) -> None:
        super().__init__("\n".join(findings))
        self.findings = findings


class Unavailable(ShipmateError):
    """Something that this process needs is held by another one."""

    exit_code = 75


class NotFound(ShipmateError):
    """Nothing on disk has the name that was asked for."""


class IdentityInvalid(ShipmateError, ValueError):
    """A text names no chat, or no person."""


class ChannelError(ShipmateError):
    """A channel failed."""


class ChannelRefused(ChannelError):
    """The platform refuses the token."""

    exit_code = 78


class RightMissing(ChannelRefused):
    """The platform refuses something for which the bot has no right."""


class ChannelUnreachable(ChannelError):
    """The platform cannot be reached now."""


class FileFailed(ChannelError):
    """A file that came with a message was not fetched. `why` is the reason as the model is told it, `code` its name."""

    why = "it could not be fetched"
    code: ClassVar[FileCode] = "failed"


class FileGone(FileFailed):
    """The platform has no such file (any more), or does not give it to this bot."""

    why = "it is not there any more"
    code = "gone"


class FileForbidden(FileFailed):
    """The bot has no right to read files."""

    why = "I have not been given the right to read files here"
    code = "forbidden"


class FileTooLarge(FileFailed):
    """The file has more bytes than were asked for, or than the platform gives to bots."""

    why = "it is too large"
    code = "large"


class FileUnreachable(FileFailed):
    """The file could not be fetched whole now; later it may be."""

    why = "it could not be fetched just now"
    code = "unreachable"


class TranscriptionFailed(FileFailed):
    """A recording was not written down."""

    why = "it could not be heard just now"
    code = "unheard"


class DeliveryFailed(ChannelError):
    """The message was not delivered."""

    sentence = "undelivered"
    code: ClassVar[DeliveryCode] = "failed"


class DeliveryThrottled(DeliveryFailed):
    """The platform asks to wait; the message was surely not sent. `retry_after` is in seconds; `everywhere` says
    that all chats have to wait, not this one alone.
    """

    code = "throttled"

    def __init__(self, message: str | None = None, *, retry_after: float, everywhere: bool = False) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.everywhere = everywhere


class DeliveryUncertain(DeliveryFailed):
    """The answer to a send was lost: the message may or may not be in the chat."""

    code = "uncertain"


class EditRefused(DeliveryFailed):
    """The platform does not let a message be changed (any more): it stands as it was, or is gone."""

    code = "edit refused"


class FileRefused(DeliveryFailed):
    """A file cannot be sent to a chat, and surely is not there. `forbidden`: for want of a right."""

    code = "file refused"

    def __init__(self, message: str | None = None, *, forbidden: bool = False) -> None:
        super().__init__(message)
        self.forbidden = forbidden


class FilesMissing(DeliveryFailed):
    """A message was delivered, and its chat was told that the files with these `names` cannot be had there."""

    code = "file refused"

    def __init__(self, message: str | None = None, *, names: Sequence[str]) -> None:
        super().__init__(message)
        self.names = names


class DeliveryPartial(DeliveryFailed):
    """Of a long message the first parts were delivered, and the next one surely was not."""

    sentence = "partial"
    code = "partial"

    def __init__(self, message: str | None = None, *, sent: int, parts: int) -> None:
        super().__init__(message)
        self.sent = sent
        self.parts = parts


class DeliveryDeferred(DeliveryFailed):
    """The platform asks to wait for long: the message is in the outbox and goes out by itself after that.

    `wait` is in seconds.
    """

    sentence = "deferred"
    code = "deferred"

    def __init__(self, message: str | None = None, *, wait: float) -> None:
        super().__init__(message)
        self.wait = wait


class TargetGone(DeliveryFailed):
    """The chat can no longer be written to: bot blocked or removed, channel archived."""

    code = "gone"


class ClaimUnfounded(DeliveryFailed):
    """A message was not sent, since it says that something was done which no tool did. `claim` is that sentence."""

    code = "unfounded"

    def __init__(self, claim: str) -> None:
        super().__init__()
        self.claim = claim


class _Where(TypedDict, total=False):
    """The answer that was a failure."""

    status: int | None
    request_id: str | None


class _Prompt(_Where, total=False):
    tokens: int | None
    window: int | None


class ModelError(ShipmateError):
    """The model call failed. `status` is the HTTP status, `request_id` the provider's id. `stop_reason`, `usage` (in the
    names of the log) and `cost_usd` tell of an answer that had begun; None where the provider has not said it.
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
        """The answer had begun: the provider bills what it had read and written by then."""
        self.stop_reason, self.usage, self.cost_usd = stop_reason, usage, cost_usd

    def reword(self, message: str, request_id: str | None) -> None:
        """Say it in these words, and name the provider's id where it is not known yet."""
        self.args = (message,)
        self.request_id = self.request_id or request_id


class ModelRefused(ModelError):
    """The provider refuses the key or the account."""

    sentence = "model_refused"
    exit_code = 78


class ModelUnknown(ModelError):
    """The provider does not have a model of this name, or not for this account."""

    sentence = "model_unknown"


class ModelMisconfigured(ModelError):
    """The address is no endpoint for messages: it answers nobody until the settings are mended."""

    sentence = "model_setup"


class OneModel(ModelUnknown):
    """The built-in demo model was asked for another one."""

    sentence = "one_model"


class ContextOverflow(ModelError):
    """The prompt does not fit. `tokens` and `window` are the provider's own numbers where it gave them."""

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
    """Prompt and `max_tokens` together do not fit, or the model gives no answers of that length: a smaller
    `max_tokens` mends it. `limit` is the most that the model gives, where the provider said so.
    """

    def __init__(
        self, message: str | None = None, *, limit: int | None = None, **prompt: Unpack[_Prompt]
    ) -> None:
        super().__init__(message, **prompt)
        self.limit = limit


class RequestTooLarge(ContextOverflow):
    """The request has too many bytes."""


class RequestInvalid(ModelError):
    """The provider calls the request malformed: asking again changes nothing. `about_files`: it is the files that it
    refuses, where there are some; `blind`: any file; `place`: the message and the block that it names.
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
    """A thinking block is bound to a conversation that has changed since: strip them all, try once more."""


class SummaryRefused(RequestInvalid):
    """The provider does not take a summary of its own back, or makes none of this conversation: words of ours do."""


class ProviderBusy(ModelError):
    """The provider cannot answer now but will later. `retry_after` is in seconds where it gave it."""

    retryable = True

    def __init__(
        self, message: str | None = None, *, retry_after: float | None = None, **where: Unpack[_Where]
    ) -> None:
        super().__init__(message, **where)
        self.retry_after = retry_after


class RateLimited(ProviderBusy):
    """Too many requests."""

    sentence = "busy"


class Overloaded(ProviderBusy):
    """The provider is overloaded or failing."""

    sentence = "overloaded"


class ProviderFailing(Overloaded):
    """The provider fails by an error of its own, or is too slow."""

    sentence = "failing"


class SummaryUnavailable(Overloaded):
    """The provider cannot read or write its own summaries now; without them it may well answer."""


class SpendLimit(ModelError):
    """A spending limit is reached; waiting does not help."""

    sentence = "spend_limit"


class BudgetSpent(ModelError):
    """The budget of a chat or person for a day is spent, and no operator has allowed more."""

    sentence = "budget_spent"

    def __init__(self, message: str, until: float) -> None:
        """`until` is when the next day's budget begins (epoch seconds)."""
        super().__init__(message)
        self.until = until

    @property
    def person(self) -> str:
        return f"{super().person} {say('time.again', time=times.date(self.until))}"


class StreamBroken(ModelError):
    """The answer was cut, stalled, ended early or could not be read; nothing of it was executed."""

    sentence = "broken"
    retryable = True


class ModelUnreachable(ModelError):
    """The provider cannot be reached."""

    sentence = "unreachable"
    retryable = True


class ToolError(ShipmateError):
    """A tool failed. The text is for the model: what went wrong and what to do instead."""


class ToolInputInvalid(ToolError):
    """The arguments do not fit the tool's schema."""


class CommandFailed(ToolError):
    """A command ended in another exit code than 0, or by a signal (then the code is negative). `limit` are the seconds
    after which it was stopped, `over` says what it had used too much of, where it was stopped for that.
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
    """These bytes hold no text that can be read. Where there is more to say, `why` says it to the model, and `code` with `limit`
    to people (`SeenFile`).
    """

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
    """Raise a `StorageError` with these words in the place of an error of these kinds, OSError where none is named."""
    caught = kinds or (OSError,)
    try:
        yield
    except caught as error:
        raise StorageError(f"{words}: {error}") from error


def connection_reason(error: BaseException) -> str:
    """The reason of a failed connection in the system's words, without names of classes, addresses and tokens."""
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

"""`TelegramChannel`: Telegram by long polling or a webhook, over python-telegram-bot."""

from __future__ import annotations

import asyncio
import contextlib
import re
import zlib
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence

from telegram import (
    BotCommand,
    BotCommandScope,
    BotCommandScopeAllGroupChats,
    BotCommandScopeChat,
    ChatMemberRestricted,
)
from telegram.error import BadRequest, ChatMigrated, EndPointNotFound, InvalidToken, TelegramError

from bot import errors, text
from bot.contracts.approvals import EXAMPLES, QuestionButtons
from bot.contracts.archive import ArchiveLine
from bot.contracts.base import Json, Level
from bot.contracts.channel import ChannelDeps, Health, Intake, Introduction, MembershipAnswer, ReadingLimits
from bot.contracts.environment import Log
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Attachment, Inbound, Quoted
from bot.contracts.outbound import Outbound, Sent
from bot.words import CATALOGUES, DEFAULT, names, paragraph, say, sentence, speaking
from channels import approval_buttons
from channels.telegram import address, bot_api, download, members, render
from channels.telegram.group_migrations import GroupMigrations
from channels.telegram.poll import UpdatePoller
from channels.telegram.settings import TelegramSettings
from channels.telegram.updates import ALBUM_WAIT, UpdateIntake
from channels.telegram.webhook import UpdateWebhook

LIMIT = 4096
"""UTF-16 code units in one message."""
ENTITIES = 100
CAPTION = 512
"""Characters below a file."""
TOLD = 200
"""UTF-16 code units of the answer to a press."""
GLANCE = 80
"""Characters that are read in passing."""
_ROWS = (
    ("once", "deny"),
    ("chat", "always"),
    ("each",),
    ("afresh",),
    ("admit", "later"),
    ("again",),
    ("renew",),
)
"""Buttons below a message, row by row."""
MEASURED = 32_768
"""Characters of a text whose parts are rendered to see whether they fit; longer texts are cut by length."""
SEEN = "👀"
"""The reaction to a message that has joined what is being answered."""
SIGNS = 6
"""Signs of work sent at once: fewer than there are connections, since messages must not wait behind them."""
GROUP_MENU = ("help", "new", "stop", "forget", "jobs", "listen", "language", "status", "approve", "deny")
"""The commands that the window of a group offers."""
MENU = tuple(name for name in names("help") if name not in {"allow", "block", "listen", "usage"})
"""Those of a private chat: all but those of operators and groups."""
OPERATORS_MENU = tuple(name for name in names("help") if name not in {"listen", "usage"})
"""Those of an operator's private chat."""
_LANGUAGES = {code: None if code == DEFAULT else code for code in CATALOGUES}
"""The languages and their codes for Telegram: what has none there is for all that have no text of their own."""
_OF_TEXT = frozenset({"text", "entities", "link_preview_options"})
UNKNOWN_METHOD = (EndPointNotFound, InvalidToken)
"""A service that does not know a method answers as it does to a wrong token."""
_TOKEN = re.compile(r"[0-9]+:[A-Za-z0-9_-]+")


class TelegramChannel:
    """`contracts.channel.Channel` of one bot. `patience` bounds each request, in seconds of the network's own time."""

    name = "telegram"
    addresses: tuple[str, ...] = ()
    largest_file = 50_000_000
    reading_limits = ReadingLimits()

    def __init__(self, settings: TelegramSettings, around: ChannelDeps, *, patience: float = 20.0) -> None:
        self._token = settings.bot_token or ""
        self._base_url = settings.base_url
        self._around = around
        self._patience = patience
        self._bot: bot_api.Bot | None = None
        self._intake: Intake | None = None
        self._verified = bot_api.VerifiedConnections(
            self._token, self._base_url, patience=patience, pace=around.pace
        )
        self._webhook = settings.webhook
        self._updates: UpdatePoller | UpdateWebhook | None = None
        self._frozen: dict[str, float] = {}
        self._migrations = GroupMigrations(around.home, around.disk, around.log)
        self._membership = members.GroupMembership(around.clock, self._migrations)
        self._failures = _FailureLog(around.log)
        self._signs = asyncio.Semaphore(SIGNS)
        self._drafts = True

    async def start(self, intake: Intake) -> None:
        if _TOKEN.fullmatch(self._token) is None:
            raise errors.ChannelRefused("the Telegram bot token is not of the form 123456:ABC…")
        self._intake = intake
        await self._migrations.load()
        bot = await asyncio.to_thread(
            bot_api.connect, self._token, self._base_url, self._patience, self._around.pace
        )
        async with contextlib.AsyncExitStack() as undo:
            undo.push_async_callback(bot.shutdown)
            with _connecting():
                await bot.initialize()
            await self._introduce(bot)
            self._bot, self._updates = bot, self._source(bot, intake)
            with _connecting():
                await self._updates.start()
            undo.pop_all()

    def _source(self, bot: bot_api.Bot, intake: Intake) -> UpdatePoller | UpdateWebhook:
        """The webhook or the poller, not started, from which updates come."""
        # Of an album by webhook, each item comes once the one before it was confirmed.
        wait = ALBUM_WAIT if self._webhook is None else 0.0
        updates = UpdateIntake(bot, intake, self._around, migrations=self._migrations, album_wait=wait)
        if self._webhook is not None:
            return UpdateWebhook(bot, updates, self._around, self._webhook)
        return UpdatePoller(bot, updates, self._around, patience=self._patience)

    async def pause(self) -> None:
        if self._updates is not None:
            await self._updates.stop()

    async def stop(self) -> None:
        await self.pause()
        bot, self._bot = self._bot, None
        if bot is not None:
            await bot.shutdown()

    def health(self) -> Health:
        if self._updates is None:
            return Health(connected=False, detail="not started")
        return self._updates.health()

    async def heal(self) -> None:
        if self._updates is not None:
            await self._updates.renew()

    async def context(self, inbound: Inbound) -> tuple[Quoted, ...]:  # noqa: ARG002
        """Nothing: Telegram has no way for a bot to read what was said before."""
        return ()

    async def chats_of(self, user_id: str, chat_keys: Sequence[ChatKey], *, direct: bool) -> MembershipAnswer:
        """As `contracts.channel.KnowsMembers`."""
        if self._bot is None:
            raise errors.ChannelUnreachable("Telegram is not connected")
        return await self._membership.chats_of(self._bot, user_id, chat_keys, direct=direct)

    def fetch(self, attachment: Attachment, *, most: int) -> AsyncGenerator[bytes]:
        """As `contracts.channel.Files`."""
        if self._bot is None:
            raise errors.FileUnreachable("Telegram is not connected")
        return download.fetch(self._bot, attachment, most=most)

    def permalink(self, line: ArchiveLine) -> str | None:
        """As `contracts.channel.KnowsLinks`."""
        return members.permalink(line)

    async def introduce(self, inbound: Inbound) -> Introduction:
        """As `contracts.channel.Introduces`."""
        bot = self._bot
        if bot is None or len(self.same_chat(inbound.chat_id)) > 1:
            return Introduction()  # a supergroup goes on as the group that it was
        name, hears, why = bot.username, bool(bot.can_read_all_group_messages), None
        try:
            me = await bot.get_chat_member(_chat(inbound.target), bot.id)
            hears = hears or me.status == "administrator"
            if isinstance(me, ChatMemberRestricted) and not me.can_send_messages:
                why = sentence("operators.mute_there")
        except (TelegramError, *bot_api.GARBLED) as exc:
            self._failures.write("channel", "Telegram does not say what the bot may do in a group", exc)
        words = paragraph(say("telegram.hello", name=name), *([] if hears else [say("telegram.deaf")]))
        return Introduction("" if why else words, why)

    def same_chat(self, chat_id: str) -> frozenset[str]:
        """As `contracts.channel.KnowsChatMigrations`."""
        return self._migrations.same(chat_id)

    # -- going out -------------------------------------------------------------------------------------------

    def split(self, markdown: str) -> list[str]:
        size = _size if len(markdown) <= MEASURED else text.utf16_len
        return text.split(render.sendable(markdown), LIMIT, size)

    async def send(self, message: Outbound) -> Sent:
        bot = self._connected()
        if message.repeat_of is None:
            return await self._sent(bot, message)
        try:
            async with self._verified.open_verified() as verified:
                return await self._sent(verified, message)
        except TelegramError as exc:
            raise self._undelivered(exc, message.target) from None

    async def _sent(self, bot: bot_api.Bot, message: Outbound) -> Sent:
        if "press" in message.target:
            return await self._answer_press(bot, message)
        shown, place = _shown(message), self._migrations.place(message.target)
        failure = self._undelivered if message.file is None else self._file_undelivered
        # Three refusals, each of which says surely that nothing was sent, are answered by asking for less, once.
        while True:
            try:
                return await self._post(bot, place, shown, message)
            except ChatMigrated as exc:
                # Surely not sent. Telegram may say so here before it does in an update.
                if self._migrations.now(place["chat_id"]) != place["chat_id"] or not await self._moved(
                    place, exc
                ):
                    raise failure(exc, place) from None
                place = self._migrations.place(place)
            except TelegramError as exc:
                if bot_api.lacks_topic(exc) and "message_thread_id" in place:
                    del place["message_thread_id"]
                elif _is_malformed(exc, shown):
                    shown = render.without_markup(message.text)
                else:
                    raise failure(exc, place) from None
            except bot_api.GARBLED as exc:
                raise errors.DeliveryUncertain(
                    f"Telegram's answer makes no sense ({bot_api.said(exc)})"
                ) from None

    async def edit(self, message: Outbound, message_id: str) -> None:
        """As `contracts.channel.Edits`."""
        bot, shown = self._connected(), _shown(message)
        place, number = self._own(message, message_id)
        while True:
            try:
                keyboard = {"reply_markup": _keyboard(message.buttons, message.language)}
                await bot.change(_content(place, shown) | keyboard | {"message_id": number})
            except TelegramError as exc:
                if "message is not modified" in exc.message.lower():
                    return
                if not _is_malformed(exc, shown):
                    raise self._unchanged(exc, message.target) from None
                shown = render.without_markup(message.text)
            except bot_api.GARBLED as exc:
                raise errors.DeliveryUncertain(
                    f"Telegram's answer makes no sense ({bot_api.said(exc)})"
                ) from None
            else:
                return

    async def delete(self, message: Outbound, message_id: str) -> None:
        """As `contracts.channel.Edits`."""
        place, number = self._own(message, message_id)
        try:
            await self._connected().remove(_chat(place), number)
        except TelegramError as exc:
            raise self._unchanged(exc, message.target) from None

    def _own(self, message: Outbound, message_id: str) -> tuple[dict[str, str], int]:
        """The place and number of a message of the bot's that can be changed."""
        place, number = self._migrations.place(message.target), message_id.rpartition("/")[2]
        if not number.isdecimal():
            raise errors.EditRefused("this is no message of Telegram's")
        if self._migrations.named(place["chat_id"], number) != message_id:
            raise errors.EditRefused("this is a message of a group that is a supergroup now")
        return place, int(number)

    async def draft(self, message: Outbound) -> bool:
        """As `contracts.channel.Drafts`: in private chats, with a stop button."""
        bot, place = self._connected(), message.target
        if not self._drafts or _chat(place) < 0:
            return False
        shown = _shown(message)
        content = {
            name: one for name, one in _content(place, shown).items() if name != "link_preview_options"
        }
        content |= {
            "draft_id": 1 + zlib.crc32(message.request_id.encode()),
            "message_thread_id": _thread(place),
            "can_stop": True,
        }
        try:
            await bot.draft(content)
        except bot_api.GARBLED as exc:
            raise errors.DeliveryUncertain(
                f"Telegram's answer makes no sense ({bot_api.said(exc)})"
            ) from None
        except TelegramError as exc:
            failure = self._undelivered(exc, place)
            if isinstance(failure, (errors.DeliveryThrottled, errors.DeliveryUncertain)):
                raise failure from None
            # A service that does not know the method; other refusals may concern these words, which a message shows too.
            self._drafts = not isinstance(exc, UNKNOWN_METHOD)
            self._failures.write("delivery", "Telegram does not take a draft", exc)
            return False
        return True

    async def find(self, message: Outbound) -> Sent | None:
        raise errors.DeliveryUncertain(f"Telegram cannot say whether {message.id} arrived")

    async def indicate(self, target: Mapping[str, str], *, working: bool) -> None:
        """Show `typing`, which ends by itself after five seconds or with the next message."""
        target = self._migrations.place(target)
        if not working or self._is_frozen(target["chat_id"]):
            return
        bot = self._connected()
        try:
            async with self._signs:
                await bot.show_typing(_chat(target), _thread(target))
        except TelegramError as exc:
            raise self._undelivered(exc, target) from None

    async def react(self, target: Mapping[str, str], message_id: str) -> None:
        """As `contracts.channel.Reacts`."""
        place, number = self._migrations.place(target), message_id.rpartition("/")[2]
        gone = not number.isdecimal() or self._migrations.named(place["chat_id"], number) != message_id
        if gone or self._is_frozen(place["chat_id"]):
            return
        bot = self._connected()
        try:
            async with self._signs:
                await bot.react(SEEN, _chat(place), int(number))
        except TelegramError as exc:
            raise self._undelivered(exc, place) from None

    async def _post(
        self,
        bot: bot_api.Bot,
        place: Mapping[str, str],
        shown: render.Rendered,
        message: Outbound,
    ) -> Sent:
        content = _content(place, shown) | {
            "message_thread_id": _thread(place),
            "reply_markup": _keyboard(message.buttons, message.language)
            or _examples(message.buttons, message.language),
        }
        if message.kind == "progress":
            content["disable_notification"] = True  # the answer makes the sound
        if (answered := place.get("reply_to", "")).isdecimal():
            content["reply_parameters"] = {"message_id": int(answered), "allow_sending_without_reply": True}
        if message.file is None:
            number = await bot.say(content)
        else:
            content = {name: one for name, one in content.items() if name not in _OF_TEXT}
            content |= {"caption": shown.text or None, "caption_entities": None}
            number = await bot.send_file(content, message.file)
        return Sent(self._migrations.named(place["chat_id"], str(number)))

    async def _moved(self, place: Mapping[str, str], exc: ChatMigrated) -> bool:
        """True if the new id of a group is on disk. Raises `errors.DeliveryThrottled` where the disk refuses, so that
        it is tried again.
        """
        try:
            return await self._migrations.learn(_chat(place), exc.new_chat_id)
        except errors.StorageError as error:
            raise errors.DeliveryThrottled(str(error), retry_after=1.0) from None

    async def _answer_press(self, bot: bot_api.Bot, message: Outbound) -> Sent:
        """Answer the person who pressed a button; no other person sees it."""
        if not text.visible(message.text):
            raise errors.DeliveryFailed("an answer to a button needs a text")
        words, *_ = text.split(render.without_markup(message.text).text, TOLD, text.utf16_len)
        try:
            # What is short passes over the chat; a window that has to be closed is for what takes longer to read.
            alert = len(words) > GLANCE
            await bot.answer_callback_query(message.target["press"], words, show_alert=alert)
        except TelegramError as exc:
            raise self._undelivered(exc, message.target) from None
        return Sent(f"press:{message.target['press']}")

    def _connected(self) -> bot_api.Bot:
        if self._bot is None:
            raise errors.DeliveryFailed("the Telegram channel is not running")
        return self._bot

    def _undelivered(self, exc: TelegramError, target: Mapping[str, str]) -> errors.DeliveryFailed:
        """The failure for the gateway. After a flood wait, signs of work stay off: they would prolong it."""
        failure = bot_api.delivery_error(exc)
        if bot_api.lacks_right(exc) and self._intake is not None:
            chat = target["chat_id"]
            self._intake.report_missing_right(
                self.name,
                f"write in {chat}",
                sentence("operators.mute_telegram", chat=address.encode(target)),
            )
        if isinstance(exc, bot_api.TooManyRequests):
            now = self._around.clock.monotonic()
            self._frozen = {chat: until for chat, until in self._frozen.items() if until > now}
            self._frozen[target["chat_id"]] = now + exc.wait
        return failure

    def _file_undelivered(self, exc: TelegramError, target: Mapping[str, str]) -> errors.DeliveryFailed:
        """The failure of a file: the rest of its message may be taken."""
        if bot_api.lacks_right(exc):
            if self._intake is not None:
                chat = target["chat_id"]
                self._intake.report_missing_right(
                    self.name,
                    f"send files in {chat}",
                    sentence("operators.fileless_telegram", chat=address.encode(target)),
                )
            return errors.FileRefused(f"Telegram: {exc}", forbidden=True)
        failure = self._undelivered(exc, target)
        return errors.FileRefused(str(failure)) if type(failure) is errors.DeliveryFailed else failure

    def _unchanged(self, exc: TelegramError, target: Mapping[str, str]) -> errors.DeliveryFailed:
        failure = self._undelivered(exc, target)
        return errors.EditRefused(str(failure)) if type(failure) is errors.DeliveryFailed else failure

    def _is_frozen(self, chat_id: str) -> bool:
        return self._frozen.get(chat_id, 0.0) > self._around.clock.monotonic()

    async def _introduce(self, bot: bot_api.Bot) -> None:
        """Give the bot its menus and descriptions in each language; it works without them."""
        for code, told in _LANGUAGES.items():
            with speaking(code):
                about, description = say("telegram.about"), say("telegram.description")
            try:
                await bot.set_my_commands(_commands(MENU, code), language_code=told)
                together = BotCommandScopeAllGroupChats()
                await bot.set_my_commands(_commands(GROUP_MENU, code), scope=together, language_code=told)
                await bot.set_my_short_description(about, language_code=told)
                await bot.set_my_description(description, language_code=told)
            except TelegramError as exc:
                self._failures.write("channel", "Telegram did not take a menu or description", exc)
                return
        for operator in sorted(self._around.operators):
            if operator.channel == self.name:
                await self._offer_operators_menu(bot, int(operator.user_id))

    async def _offer_operators_menu(self, bot: bot_api.Bot, user: int) -> None:
        """Put the commands of operators into the menu of one. Telegram refuses it for who has never written to the bot."""
        scope: BotCommandScope = BotCommandScopeChat(user)
        try:
            for code, told in _LANGUAGES.items():
                await bot.set_my_commands(_commands(OPERATORS_MENU, code), scope=scope, language_code=told)
        except TelegramError as exc:
            self._failures.write(
                "channel", "Telegram did not take the menu of an operator", exc, level="debug"
            )


class _FailureLog:
    """The log of calls that failed, with what Telegram said."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def write(self, kind: str, what: str, exc: BaseException, level: Level = "warn") -> None:
        self._log.write(kind, f"{what} ({bot_api.said(exc)})", level=level, channel="telegram")


@contextlib.contextmanager
def _connecting() -> Iterator[None]:
    """Raise what Telegram says to a start as an error of the channel."""
    try:
        yield
    except InvalidToken:
        raise errors.ChannelRefused("Telegram refuses the bot token") from None
    except (TelegramError, *bot_api.GARBLED) as exc:
        raise errors.ChannelUnreachable(bot_api.said(exc)) from None


def _commands(menu: Sequence[str], code: str) -> list[BotCommand]:
    with speaking(code):
        return [BotCommand(name, say(f"help.{name}")) for name in menu]


def _size(part: str) -> int:
    """Of a part, the length of its Markdown or of what it shows, whichever is longer; over `LIMIT` with too many entities."""
    length = text.utf16_len(part)
    if length > LIMIT:
        return length
    shown = render.render(part)
    excess = len(shown.entities) - ENTITIES
    return max(length, text.utf16_len(shown.text), LIMIT + excess if excess > 0 else 0)


def _shown(message: Outbound) -> render.Rendered:
    """A message as people see it; of a file its caption. Raises `errors.DeliveryFailed` where there is nothing to see, or nowhere."""
    if message.file is not None:
        return render.Rendered(text.head(message.text.strip(), CAPTION), ())
    shown = render.render(message.text, goes_on=message.goes_on)
    if text.utf16_len(shown.text) > LIMIT:
        shown = render.without_markup(message.text)
    if not text.visible(shown.text) or not address.valid_id(message.target.get("chat_id", "")):
        raise errors.DeliveryFailed("a message to Telegram needs a text and the number of a chat")
    return shown


def _is_malformed(exc: TelegramError, shown: render.Rendered) -> bool:
    """True where Telegram has refused the entities of a message."""
    return isinstance(exc, BadRequest) and "entit" in exc.message.lower() and bool(shown.entities)


def _content(place: Mapping[str, str], shown: render.Rendered) -> Json:
    """The chat and the words of a message, in the names of the Bot API."""
    entities = [
        {"type": entity.type, "offset": entity.offset, "length": entity.length}
        | ({"url": entity.url} if entity.url is not None else {})
        | ({"language": entity.language} if entity.language is not None else {})
        for entity in shown.entities[:ENTITIES]
    ]
    return {
        "chat_id": _chat(place),
        "text": shown.text,
        "entities": entities or None,
        "link_preview_options": {"is_disabled": True},
    }


def _keyboard(buttons: QuestionButtons | None, language: str) -> Json | None:
    """The buttons of a message that asks for an approval; None where it does not."""
    offered = approval_buttons.offered(buttons, language)
    rows = [
        [{"text": offered[one][0], "callback_data": offered[one][1]} for one in row if one in offered]
        for row in _ROWS
    ]
    return {"inline_keyboard": [row for row in rows if row]} if offered else None


def _examples(buttons: QuestionButtons | None, language: str) -> Json | None:
    """Keys in the place of the keyboard, until one of them is tapped: its words are then a message of the person."""
    shown = [one for one in EXAMPLES if buttons is not None and one in buttons.choices]
    with speaking(language):
        rows = [[{"text": say(f"start.{one}")}] for one in shown]
    return {"keyboard": rows, "one_time_keyboard": True, "resize_keyboard": True} if rows else None


def _chat(target: Mapping[str, str]) -> int:
    return int(target["chat_id"])


def _thread(target: Mapping[str, str]) -> int | None:
    thread = target.get("message_thread_id")
    return int(thread) if thread else None

"""Implements the Telegram channel: receives updates by long polling or a webhook, and calls the Bot API."""

from __future__ import annotations

import asyncio
import contextlib
import re
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from functools import partial

from telegram.error import BadRequest, ChatMigrated, EndPointNotFound, InvalidToken, TelegramError

from bot import errors, text
from bot.contracts.approvals import EXAMPLES
from bot.contracts.base import Json
from bot.contracts.channel import (
    Channel,
    ChannelDeps,
    Health,
    Intake,
    Introduction,
    MembershipAnswer,
    ReadingLimits,
)
from bot.contracts.identity import ChatKey
from bot.contracts.messages import ArchiveLine, Attachment, Inbound, Outbound, Quoted, Sent
from bot.words import CATALOGUES, DEFAULT, names, paragraph, say, sentence, speaking
from channels import approval_buttons
from channels.telegram import bot_api, render
from channels.telegram.inbound import is_inside
from channels.telegram.manifest import TelegramSettings, encode, valid_id
from channels.telegram.updates import GroupMigrations, UpdatePoller, UpdateWebhook

LIMIT = 4096  # Max UTF-16 code units of a message
ENTITIES = 100  # Max entities (formatted spans) of a message
CAPTION = 512  # Max characters of the caption below a file
PRESS_ANSWER = 200  # Max UTF-16 code units of the answer to a button press
GLANCE = 80
"""Max characters of the answer to a button press if Telegram shows it only for a moment. A longer answer opens a window."""
_ROWS = (
    ("once", "deny"),
    ("chat", "always"),
    ("each",),
    ("afresh",),
    ("admit", "later"),
    ("again",),
    ("renew",),
)
"""Rows of buttons below a message. Each button is named by its choice."""
MEASURED = 32_768
"""Up to this many characters, a text is split by the rendered sizes of its parts. A longer text is split by its own length,
because rendering would take too long.
"""
SEEN = "👀"  # Reaction that marks a message as received
SIGNS = 6
"""Max concurrent calls that show activity, such as `typing`. The number is below `CONNECTIONS`, so that messages find a
free connection.
"""
PROOFS = 8  # Max concurrent new connections for messages that are sent again; each connection is tested first
PROOF_SECONDS = 10.0  # Timeout in seconds for `getMe` on a new connection
GROUP_MENU = ("help", "new", "stop", "forget", "jobs", "listen", "language", "status", "approve", "deny")
"""Commands in the menu of groups."""
MENU = tuple(name for name in names("help") if name not in {"allow", "block", "listen", "usage"})
"""Commands in the menu of private chats: all except those for operators and for groups."""
OPERATORS_MENU = tuple(name for name in names("help") if name not in {"listen", "usage"})
"""Commands in the menu of operators' private chats."""
_LANGUAGES = {code: None if code == DEFAULT else code for code in CATALOGUES}
"""Telegram's language code of each catalogue. For the default catalogue the code is None: Telegram uses it for all other languages."""
UNKNOWN_METHOD = (EndPointNotFound, InvalidToken)
"""Exceptions for a method that the server does not know. Older servers report such a method as a wrong token."""
MOST_GROUPS = 200
"""Max groups in which one search looks up a person, because each group takes a request. The first groups have priority."""
_AT_ONCE = 20  # Max concurrent requests in one search
_SUPERGROUP = "-100"
_TOKEN = re.compile(r"[0-9]+:[A-Za-z0-9_-]+")


class TelegramChannel(Channel):
    """Implements `contracts.channel.Channel` for one bot. `patience` is the timeout in seconds of a request."""

    name = "telegram"
    addresses: tuple[str, ...] = ()
    largest_file = 50_000_000
    reading_limits = ReadingLimits()

    def __init__(self, settings: TelegramSettings, around: ChannelDeps, *, patience: float = 20.0) -> None:
        self._token = settings.bot_token or ""
        self._webhook = settings.webhook
        self._around, self._log = around, around.log
        self._patience = patience
        self._bot: bot_api.Bot | None = None
        self._intake: Intake | None = None
        self._make_bot = partial(bot_api.connect, self._token, settings.base_url, patience, around.pace)
        self._proofs = asyncio.Semaphore(PROOFS)
        self._updates: UpdatePoller | UpdateWebhook | None = None
        self._frozen: dict[str, float] = {}
        """Time (monotonic seconds) until which Telegram forbids calls for a chat, by chat id."""
        self._migrations = GroupMigrations(around.home, around.disk, around.log)
        self._signs = asyncio.Semaphore(SIGNS)
        self._drafts = True

    async def start(self, intake: Intake) -> None:
        if _TOKEN.fullmatch(self._token) is None:
            raise errors.ChannelRefused("the Telegram bot token is not of the form 123456:ABC…")
        self._intake = intake
        await asyncio.to_thread(self._migrations.load)
        bot = await asyncio.to_thread(self._make_bot)
        async with contextlib.AsyncExitStack() as undo:
            undo.push_async_callback(bot.shutdown)
            with _connecting():
                await bot.initialize()
            await self._set_menus(bot)
            self._bot, parts = bot, (bot, intake, self._around, self._migrations)
            if self._webhook is not None:
                self._updates = UpdateWebhook(*parts, self._webhook)
            else:
                self._updates = UpdatePoller(*parts, self._patience)
            with _connecting():
                await self._updates.start()
            undo.pop_all()

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
        return ()  # a Telegram bot cannot read earlier messages

    async def chats_of(self, user_id: str, chat_keys: Sequence[ChatKey], *, direct: bool) -> MembershipAnswer:
        """Return the chats that the person is a member of. Private chats need no request, because their id is the person's id."""
        if self._bot is None:
            raise errors.ChannelUnreachable("Telegram is not connected")
        chats = {key: self._migrations.now(key.chat_id) for key in chat_keys if key.channel == self.name}
        groups = [chat for chat in dict.fromkeys(chats.values()) if chat.startswith("-")]
        slots = asyncio.Semaphore(_AT_ONCE)
        answers = await asyncio.gather(
            *(self._has_member(self._bot, chat, user_id, slots) for chat in groups[:MOST_GROUPS])
        )
        inside = dict(zip(groups, answers, strict=False))
        if groups and not any(answer is not None for answer in answers):
            raise errors.ChannelUnreachable("Telegram does not say who is in a group")
        return MembershipAnswer(
            [key for key, chat in chats.items() if (direct and chat == user_id) or inside.get(chat)],
            [key for key, chat in chats.items() if chat in groups and inside.get(chat) is None],
        )

    async def _has_member(
        self, bot: bot_api.Bot, chat: str, user_id: str, slots: asyncio.Semaphore
    ) -> bool | None:
        """Return True if the person is in the group; None if Telegram does not answer, or if the group has got a new id."""
        async with slots:
            try:
                member = await bot.call_object("getChatMember", {"chat_id": chat, "user_id": user_id})
            except ChatMigrated as exc:
                with contextlib.suppress(errors.StorageError):
                    await self._migrations.learn(int(chat), exc.new_chat_id)
                return None
            except bot_api.UNANSWERED:
                return None
            except TelegramError:
                return False
            return is_inside(member)

    def fetch(self, attachment: Attachment, *, most: int) -> AsyncGenerator[bytes]:
        if self._bot is None:
            raise errors.FileUnreachable("Telegram is not connected")
        return self._bot.fetch(attachment, most=most)

    def permalink(self, line: ArchiveLine) -> str | None:
        """Return the URL of an archived message. Return None outside supergroups, because only their messages have URLs."""
        # If the supergroup was once a group, a message's id is `<supergroup's id>/<number>`.
        chat, _, number = (line.message_id or "").rpartition("/")
        chat = chat or line.chat_key.chat_id
        if line.chat_key.channel != self.name or not chat.startswith(_SUPERGROUP) or not number.isdecimal():
            return None
        return f"https://t.me/c/{chat.removeprefix(_SUPERGROUP)}/{number}"

    def same_chat(self, chat_id: str) -> frozenset[str]:
        return self._migrations.same(chat_id)

    async def introduce(self, inbound: Inbound) -> Introduction:
        bot = self._bot
        if bot is None or len(self.same_chat(inbound.chat_id)) > 1:
            return Introduction()  # a new supergroup, which continues the conversation of its group
        hears, hindrance = bool(bot.can_read_all_group_messages), None
        try:
            fields = {"chat_id": inbound.target["chat_id"], "user_id": bot.id}
            me = await bot.call_object("getChatMember", fields)
            hears = hears or me.get("status") == "administrator"
            if me.get("status") == "restricted" and not me.get("can_send_messages"):
                hindrance = sentence("operators.mute_there")
        except TelegramError as exc:
            reason = bot_api.said(exc)
            self._log.write(
                "channel", "Telegram does not say what the bot may do in a group", level="warn", error=reason
            )
        words = say("telegram.hello", name=bot.username)
        if not hears:
            words = paragraph(words, say("telegram.deaf"))
        return Introduction("" if hindrance else words, hindrance)

    # -- outbound --------------------------------------------------------------------------------------------

    def split(self, markdown: str) -> list[str]:
        size = _size if len(markdown) <= MEASURED else text.utf16_len
        return text.split(render.sendable(markdown), LIMIT, size)

    @contextlib.contextmanager
    def _delivering(
        self, target: Mapping[str, str], refused: type[errors.DeliveryFailed] = errors.DeliveryFailed
    ) -> Iterator[bot_api.Bot]:
        """Yield the bot, and convert errors inside the block to errors of the gateway. If Telegram refuses only this
        message, raise `refused`. Report a missing right to operators.
        """
        if self._bot is None or self._intake is None:
            raise errors.DeliveryFailed("the Telegram channel is not running")
        try:
            yield self._bot
        except TelegramError as exc:
            failure = bot_api.delivery_error(exc)
            if bot_api.refused_for(exc, *bot_api.NO_RIGHT):
                of_file = refused is errors.FileRefused
                words = "operators.fileless_telegram" if of_file else "operators.mute_telegram"
                right = f"{'send files' if of_file else 'write'} in {target['chat_id']}"
                self._intake.report_missing_right(self.name, right, sentence(words, chat=encode(target)))
                if of_file:
                    failure = errors.FileRefused(f"Telegram: {exc}", forbidden=True)
            elif isinstance(exc, bot_api.TooManyRequests):
                now = self._around.clock.monotonic()
                self._frozen = {chat: until for chat, until in self._frozen.items() if until > now}
                self._frozen[target["chat_id"]] = now + exc.wait
            elif type(failure) is errors.DeliveryFailed:
                failure = refused(str(failure))
            raise failure from None

    async def send(self, message: Outbound) -> Sent:
        refused = errors.DeliveryFailed if message.file is None else errors.FileRefused
        with self._delivering(message.target, refused) as bot:
            if message.repeat_of is None:
                return await self._send(bot, message)
            async with self._verified() as verified:
                return await self._send(verified, message)

    @contextlib.asynccontextmanager
    async def _verified(self) -> AsyncIterator[bot_api.Bot]:
        """Yield a bot with a new connection that has passed a test (`getMe`). A message that is sent again needs such a
        connection. If the test fails, raise `RequestNotSent` or another `TelegramError`.
        """
        async with contextlib.AsyncExitStack() as held:
            try:
                # The limit includes the wait for a place. Otherwise the outbox would take a long wait for an unknown outcome.
                async with asyncio.timeout(PROOF_SECONDS * self._around.pace):
                    await held.enter_async_context(self._proofs)
                    bot = self._make_bot(connections=1)
                    held.push_async_callback(bot.shutdown)
                    await bot.initialize()
            except (bot_api.RequestNotSent, bot_api.OutcomeUnknown, TimeoutError, *bot_api.GARBLED):
                raise bot_api.RequestNotSent("a new connection does not answer") from None
            yield bot

    async def _send(self, bot: bot_api.Bot, message: Outbound) -> Sent:
        if "press" in message.target:
            return await self._answer_press(bot, message)
        shown, place = _shown(message), self._migrations.place(message.target)
        # Telegram sends nothing if the group has migrated, the topic is closed or the formatting is invalid. After each of these
        # refusals, remove the cause and send again.
        while True:
            try:
                return await self._post(bot, place, shown, message)
            except ChatMigrated as exc:
                if self._migrations.now(place["chat_id"]) != place["chat_id"]:
                    raise
                try:
                    if not await self._migrations.learn(int(place["chat_id"]), exc.new_chat_id):
                        raise
                except errors.StorageError as error:
                    raise errors.DeliveryThrottled(str(error), retry_after=1.0) from None
                place = self._migrations.place(place)
            except TelegramError as exc:
                if bot_api.refused_for(exc, *bot_api.NO_TOPIC) and "message_thread_id" in place:
                    del place["message_thread_id"]
                elif _is_malformed(exc, shown):
                    shown = render.without_markup(message.text)
                else:
                    raise

    async def _post(
        self, bot: bot_api.Bot, place: Mapping[str, str], shown: render.Rendered, message: Outbound
    ) -> Sent:
        fields = _where(place) | {"reply_markup": _keyboard(message) or _examples(message)}
        if message.kind == "progress":
            fields["disable_notification"] = True  # notify people with a sound only about the answer
        if (answered := place.get("reply_to", "")).isdecimal():
            fields["reply_parameters"] = {"message_id": int(answered), "allow_sending_without_reply": True}
        content = _words(shown) if message.file is None else {"caption": shown.text or None}
        number = await bot.send(fields | content, message.file)
        return Sent(self._migrations.named(place["chat_id"], str(number)))

    async def _answer_press(self, bot: bot_api.Bot, message: Outbound) -> Sent:
        if not text.visible(message.text):
            raise errors.DeliveryFailed("an answer to a button needs a text")
        press = message.target["press"]
        words, *_ = text.split(render.without_markup(message.text).text, PRESS_ANSWER, text.utf16_len)
        fields = {"callback_query_id": press, "text": words, "show_alert": len(words) > GLANCE}
        await bot.call("answerCallbackQuery", fields)
        return Sent(f"press:{press}")

    async def edit(self, message: Outbound, message_id: str) -> None:
        with self._delivering(message.target, errors.EditRefused) as bot:
            shown, fields = _shown(message), self._own(message.target, message_id)
            fields["reply_markup"] = _keyboard(message)
            try:
                await bot.call("editMessageText", fields | _words(shown))
            except TelegramError as exc:
                if _is_malformed(exc, shown):
                    await bot.call("editMessageText", fields | _words(render.without_markup(message.text)))
                elif not bot_api.refused_for(exc, "message is not modified"):
                    raise

    async def delete(self, message: Outbound, message_id: str) -> None:
        with self._delivering(message.target, errors.EditRefused) as bot:
            await bot.call("deleteMessage", self._own(message.target, message_id))

    def _own(self, target: Mapping[str, str], message_id: str) -> Json:
        """Return the fields that name a message. Raises `errors.EditRefused` if its id is invalid or from before the group
        became a supergroup.
        """
        chat, number = self._migrations.place(target)["chat_id"], message_id.rpartition("/")[2]
        if not number.isdecimal() or self._migrations.named(chat, number) != message_id:
            raise errors.EditRefused(
                "this is no message of this chat, or one from before it became a supergroup"
            )
        return {"chat_id": int(chat), "message_id": int(number)}

    async def draft(self, message: Outbound) -> bool:
        """Show a draft with a stop button. Return False if Telegram refuses the draft, or if the chat is not private."""
        place = message.target
        if not self._drafts or place["chat_id"].startswith("-"):
            return False
        shown = _words(_shown(message))
        number = 1 + zlib.crc32(message.request_id.encode())
        content = {"text": shown["text"], "entities": shown["entities"]}
        fields = _where(place) | content | {"draft_id": number, "can_stop": True}
        with self._delivering(place) as bot:
            try:
                await bot.call("sendMessageDraft", fields)
            except bot_api.UNANSWERED:
                raise
            except TelegramError as exc:
                # Stop sending drafts if the server does not know the method. Any other refusal concerns only this draft.
                self._drafts = not isinstance(exc, UNKNOWN_METHOD)
                reason = bot_api.said(exc)
                self._log.write("delivery", f"Telegram does not take a draft ({reason})", level="warn")
                return False
        return True

    async def find(self, message: Outbound) -> Sent | None:
        raise errors.DeliveryUncertain(f"Telegram cannot say whether {message.id} arrived")

    async def indicate(self, target: Mapping[str, str], *, working: bool) -> None:
        """Show `typing`. Telegram clears this status after five seconds or at the next message."""
        if working:
            await self._sign("sendChatAction", _where(self._migrations.place(target)) | {"action": "typing"})

    async def react(self, target: Mapping[str, str], message_id: str) -> None:
        with contextlib.suppress(errors.EditRefused):
            fields = self._own(target, message_id) | {"reaction": [{"type": "emoji", "emoji": SEEN}]}
            await self._sign("setMessageReaction", fields)

    async def _sign(self, method: str, fields: Json) -> None:
        """Call a method that shows activity. Do nothing while Telegram forbids calls for the chat, because more calls would
        prolong the ban.
        """
        chat = str(fields["chat_id"])
        if self._frozen.get(chat, 0.0) <= self._around.clock.monotonic():
            with self._delivering({"chat_id": chat}) as bot:
                async with self._signs:
                    await bot.call(method, fields)

    # -- menus -----------------------------------------------------------------------------------------------

    async def _set_menus(self, bot: bot_api.Bot) -> None:
        """Set the bot's menus and descriptions in each language. Failures are only logged, because the bot works without them."""
        groups, operators = {"type": "all_group_chats"}, sorted(self._around.operators)
        try:
            for code, told in _LANGUAGES.items():
                with speaking(code):
                    about, description = say("telegram.about"), say("telegram.description")
                await bot.call("setMyCommands", _menu(MENU, code))
                await bot.call("setMyCommands", _menu(GROUP_MENU, code) | {"scope": groups})
                await bot.call("setMyShortDescription", {"short_description": about, "language_code": told})
                await bot.call("setMyDescription", {"description": description, "language_code": told})
        except TelegramError as exc:
            reason = bot_api.said(exc)
            self._log.write(
                "channel", "Telegram did not take a menu or description", level="warn", error=reason
            )
            return
        for number in [one.user_id for one in operators if one.channel == self.name]:
            scope = {"type": "chat", "chat_id": int(number)}
            # Telegram refuses a menu for a person who has never written to the bot.
            with contextlib.suppress(TelegramError):
                for code in _LANGUAGES:
                    await bot.call("setMyCommands", _menu(OPERATORS_MENU, code) | {"scope": scope})


@contextlib.contextmanager
def _connecting() -> Iterator[None]:
    try:
        yield
    except InvalidToken:
        raise errors.ChannelRefused("Telegram refuses the bot token") from None
    except (TelegramError, *bot_api.GARBLED) as exc:
        raise errors.ChannelUnreachable(bot_api.said(exc)) from None


def _menu(menu: Sequence[str], code: str) -> Json:
    with speaking(code):
        commands = [{"command": name, "description": say(f"help.{name}")} for name in menu]
    return {"commands": commands, "language_code": _LANGUAGES[code]}


def _size(part: str) -> int:
    """Return the length of the Markdown or of the rendered text, whichever is larger. If the part has too many entities,
    return more than `LIMIT`.
    """
    length = text.utf16_len(part)
    if length > LIMIT:
        return length
    shown = render.render(part)
    excess = len(shown.entities) - ENTITIES
    return max(length, text.utf16_len(shown.text), LIMIT + excess if excess > 0 else 0)


def _shown(message: Outbound) -> render.Rendered:
    """Return a message's rendered text or a file's caption. Raises `errors.DeliveryFailed` for an empty text or invalid chat."""
    if message.file is not None:
        return render.Rendered(text.head(message.text.strip(), CAPTION), ())
    shown = render.render(message.text, goes_on=message.goes_on)
    if text.utf16_len(shown.text) > LIMIT:
        shown = render.without_markup(message.text)
    if not text.visible(shown.text) or not valid_id(message.target.get("chat_id", "")):
        raise errors.DeliveryFailed("a message to Telegram needs a text and the number of a chat")
    return shown


def _is_malformed(exc: TelegramError, shown: render.Rendered) -> bool:
    return isinstance(exc, BadRequest) and "entit" in exc.message.lower() and bool(shown.entities)


def _words(shown: render.Rendered) -> Json:
    entities = [
        {"type": entity.type, "offset": entity.offset, "length": entity.length}
        | ({"url": entity.url} if entity.url is not None else {})
        | ({"language": entity.language} if entity.language is not None else {})
        for entity in shown.entities[:ENTITIES]
    ]
    return {"text": shown.text, "entities": entities or None, "link_preview_options": {"is_disabled": True}}


def _keyboard(message: Outbound) -> Json | None:
    if message.buttons is None:
        return None
    offered = approval_buttons.offered(message.buttons, message.language)
    rows = [
        [{"text": offered[one][0], "callback_data": offered[one][1]} for one in row if one in offered]
        for row in _ROWS
    ]
    return {"inline_keyboard": [row for row in rows if row]} if offered else None


def _examples(message: Outbound) -> Json | None:
    """Return a one-time keyboard of example messages. If a person taps an example, Telegram sends it as the person's message."""
    if message.buttons is None:
        return None
    with speaking(message.language):
        rows = [[{"text": say(f"start.{one}")}] for one in EXAMPLES if one in message.buttons.choices]
    return {"keyboard": rows, "one_time_keyboard": True, "resize_keyboard": True} if rows else None


def _where(place: Mapping[str, str]) -> Json:
    thread = place.get("message_thread_id")
    return {"chat_id": int(place["chat_id"]), "message_thread_id": int(thread) if thread else None}

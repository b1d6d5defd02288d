"""Examines Telegram's token: whose it is, and whether something else takes its messages."""

from __future__ import annotations

from bot import errors
from bot.contracts.examination import Examination, Finding
from channels.examination import ApiAnswer, ask
from channels.telegram.settings import TelegramSettings


async def examine(settings: TelegramSettings) -> Examination:
    """Ask Telegram whose token it is. No update is fetched: that would take it from a running gateway."""
    root = f"{settings.base_url}/bot{settings.bot_token}"
    try:
        me = await ask(f"{root}/getMe")
        if me.status == 429:
            raise errors.ChannelUnreachable("it asks to wait")
        if me.body.get("ok") is not True:
            said = str(me.body.get("description"))[:80]
            remedy = "copy it again from @BotFather, or make a new one there with /token"
            return Examination(
                (Finding("telegram botToken", "wrong", f"Telegram refuses it: {said}", remedy),), me.time
            )
        hook = (await ask(f"{root}/getWebhookInfo")).body.get("result")
    except errors.ChannelUnreachable as error:
        remedy = "see whether this machine reaches it, then try again"
        return Examination(
            (Finding("telegram", "later", f"{settings.base_url} does not answer: {error}", remedy),)
        )
    bot = me.body.get("result")
    bot = bot if isinstance(bot, dict) else {}
    hears = (
        "hears everything in groups"
        if bot.get("can_read_all_group_messages")
        else "hears mentions, replies and commands in groups"
    )
    findings = [Finding("telegram botToken", "ok", f"@{bot.get('username')}, {hears}")]
    if isinstance(hook, dict) and hook.get("url"):
        found = "messages go to a webhook of another program, which `shipmate run` removes"
        findings.append(Finding("telegram webhook", "warn", found, "stop that program, or use another bot"))
    return Examination(tuple(findings), me.time)


async def invite(settings: TelegramSettings, code: str) -> str:
    """As `contracts.examination.Claim.invite`."""
    me = await _asked(settings, "getMe")
    bot = me.body.get("result")
    name = bot.get("username") if isinstance(bot, dict) else None
    return f"Open https://t.me/{name}?start={code} and press Start, or send the bot: {code}"


async def look(settings: TelegramSettings, code: str) -> str | None:
    """As `contracts.examination.Claim.look`. Without an offset nothing is confirmed, so nothing is lost."""
    found = (await _asked(settings, "getUpdates?timeout=3")).body.get("result")
    for update in found if isinstance(found, list) else ():
        message = update.get("message") if isinstance(update, dict) else None
        if isinstance(message, dict) and message.get("text") in {code, f"/start {code}"}:
            sender, chat = message.get("from"), message.get("chat")
            if isinstance(sender, dict) and isinstance(chat, dict) and chat.get("type") == "private":
                return str(sender.get("id"))
    return None


async def _asked(settings: TelegramSettings, method: str) -> ApiAnswer:
    answer = await ask(f"{settings.base_url}/bot{settings.bot_token}/{method}")
    if answer.body.get("ok") is not True:
        raise errors.ChannelRefused(f"Telegram says: {str(answer.body.get('description'))[:80]}")
    return answer

"""Examines Telegram's token: whose it is, and whether something else takes its messages."""

from __future__ import annotations

from bot import errors
from bot.contracts.examination import Examination, Finding
from channels.examination import ask
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

"""Checks Telegram's token for `shipmate doctor`: the bot, its rights in groups, and other programs that read its updates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bot import errors
from bot.contracts.channel import Examination, Finding
from channels.http_api import ApiAnswer, ask, unreachable
from channels.telegram.manifest import TelegramSettings

MOST_GROUPS = 20  # Max groups in which the bot's rights are checked


async def examine(settings: TelegramSettings) -> Examination:
    """Check the token. No updates are fetched, because a running gateway would then miss them."""
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
        bot = _object(me.body.get("result"))
        groups = [one for one in settings.allow if one.startswith("-")][:MOST_GROUPS]
        about = [{"chat_id": group, "user_id": str(bot.get("id"))} for group in groups]
        places = [await ask(f"{root}/getChatMember", form=one) for one in about]
    except errors.ChannelUnreachable as error:
        return unreachable("telegram", settings.base_url, error)
    findings = [Finding("telegram botToken", "ok", f"@{bot.get('username')}"), *_of_groups(bot)]
    findings += [one for group, place in zip(groups, places, strict=True) for one in _of_group(group, place)]
    own = settings.webhook.url if settings.webhook is not None else None
    if own is not None:
        findings.append(_of_webhook(own, _object(hook)))
    elif isinstance(hook, dict) and hook.get("url"):
        found = "messages go to a webhook of another program, which `shipmate run` removes"
        findings.append(Finding("telegram webhook", "warn", found, "stop that program, or use another bot"))
    findings.append(Finding("telegram link", "ok", f"https://t.me/{bot.get('username')}"))
    return Examination(tuple(findings), me.time)


def _of_webhook(own: str, hook: Mapping[str, Any]) -> Finding:
    part, said = "telegram webhook", str(hook.get("last_error_message", ""))[:200]
    if hook.get("url") not in {own, "", None}:
        found = "messages go to a webhook of another program, whose place `shipmate run` takes"
        return Finding(part, "warn", found, "stop that program, or use another bot")
    if hook.get("pending_update_count") and said:
        remedy = "see that the load balancer passes requests on, while `shipmate run` runs"
        return Finding(part, "warn", f"posts wait that did not arrive at {own}: {said}", remedy)
    return Finding(part, "ok", f"nothing waits for {own}")


def _of_groups(bot: Mapping[str, Any]) -> tuple[Finding, ...]:
    if bot.get("can_join_groups") is False:
        remedy = "allow it at @BotFather with /setjoingroups"
        return (Finding("telegram groups", "warn", "the bot may not be added to groups", remedy),)
    if bot.get("can_read_all_group_messages"):
        return (Finding("telegram privacy mode", "ok", "off: in groups the bot sees all that is said"),)
    found = "on: in groups the bot sees mentions, replies and commands alone, unless it is an administrator"
    remedy = (
        "to have it see all, turn it off at @BotFather with /setprivacy, then take the bot out of each group and "
        "add it again"
    )
    return (Finding("telegram privacy mode", "ok", found, remedy),)


def _of_group(group: str, answer: ApiAnswer) -> tuple[Finding, ...]:
    part, member = f"telegram group {group}", _object(answer.body.get("result"))
    if answer.status in {400, 403} or member.get("status") in {"left", "kicked"}:
        return (Finding(part, "warn", "the bot is not in it", "add the bot to the group"),)
    if member.get("status") == "restricted" and not member.get("can_send_messages"):
        remedy = "give it the right to send messages there"
        return (Finding(part, "wrong", "the bot may not write there", remedy),)
    return ()


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


async def invite(settings: TelegramSettings, code: str) -> str:
    """Implement `contracts.channel.Claim.invite`: say how a person sends the code to the bot."""
    name = _object((await _asked(settings, "getMe")).body.get("result")).get("username")
    return f"Open https://t.me/{name}?start={code} and press Start, or send the bot: {code}"


async def look(settings: TelegramSettings, code: str) -> str | None:
    """Implement `contracts.channel.Claim.look`: return the person who sent the code. Request updates without an offset,
    because an offset would confirm updates.
    """
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

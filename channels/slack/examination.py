"""Checks Slack's tokens for `shipmate doctor`: which bot and app they belong to, whether these are the same
app, and which scopes the app lacks.
"""

from __future__ import annotations

import re

from bot import errors
from bot.contracts.channel import Webhook
from bot.contracts.examination import Examination, Finding
from bot.words import say
from channels.examination import ApiAnswer, ask
from channels.slack.app_manifest import SCOPES
from channels.slack.settings import SlackSettings

MOST_PEOPLE = 20
"""Max user ids of the allow list that are checked."""
APP_SCOPE = "connections:write"
_PASSING = frozenset({"fatal_error", "internal_error", "ratelimited", "service_unavailable"})
_NO_AGENT = frozenset({"access_denied", "not_allowed", "not_authorized", "unknown_method"})
"""Error codes for an app that is no agent. An app that is an agent gets another error: the conversation does
not exist.
"""
_NOWHERE = {"channel_id": "C00000000", "thread_ts": "0.000000", "status": "active"}
_PAGES = "of your app at https://api.slack.com/apps"
_INSTALL = "then install the app again"
_APP_OF_TOKEN = re.compile(r"xapp-\d+-(A[A-Z0-9]+)-")


async def examine(settings: SlackSettings) -> Examination:
    """Ask Slack about its tokens. Opens no socket and posts nothing."""
    root = settings.base_url.rstrip("/")
    bot_token, app_token = settings.bot_token or "", settings.app_token or ""
    if bot_token.startswith("xapp-") and "xoxb-" in app_token:
        remedy = "exchange them: SLACK_BOT_TOKEN is the one that begins with xoxb, SLACK_APP_TOKEN with xapp"
        return Examination((Finding("slack tokens", "wrong", "botToken and appToken are swapped", remedy),))
    try:
        bot = await ask(f"{root}/auth.test", token=bot_token)
        findings = _of_bot_token(bot)
        if settings.webhook is None:
            app = await ask(f"{root}/apps.connections.open", token=app_token)
            findings += (_of_app_token(app),)
        else:
            findings += (_of_webhook(settings.webhook),)
        if all(one.verdict == "ok" for one in findings if one.part.endswith("Token")):
            about = {"bot": str(bot.body["bot_id"])}
            made = (await ask(f"{root}/bots.info", token=bot_token, form=about)).body.get("bot")
            agent = await ask(f"{root}/agents.sessions.setStatus", token=bot_token, form=_NOWHERE)
            people = [one for one in settings.allow if one.startswith(("U", "W"))][:MOST_PEOPLE]
            about_people = [
                await ask(f"{root}/users.info", token=bot_token, form={"user": one}) for one in people
            ]
            findings += (*_of_agent(agent), *_of_app(bot, made, app_token))
            findings += tuple(
                found
                for one, answer in zip(people, about_people, strict=True)
                for found in _of_person(one, answer)
            )
    except errors.ChannelUnreachable as error:
        remedy = "see whether this machine reaches it, then try again"
        return Examination(
            (Finding("slack", "later", f"{settings.base_url} does not answer: {error}", remedy),)
        )
    return Examination(findings, bot.time)


def _of_bot_token(answer: ApiAnswer) -> tuple[Finding, ...]:
    part, page = "slack botToken", f'"OAuth & Permissions" {_PAGES}'
    if not answer.body.get("ok"):
        return (_refused(part, answer, f"take the Bot User OAuth Token (xoxb-…) from {page}"),)
    if not answer.body.get("bot_id"):
        return (
            Finding(
                part, "wrong", "it is not the token of a bot", f"take the Bot User OAuth Token from {page}"
            ),
        )
    found = Finding(part, "ok", f"{answer.body.get('user')} in the workspace {answer.body.get('team')}")
    given = answer.headers.get("X-OAuth-Scopes")
    if given is None:
        return (found, Finding("slack scopes", "warn", "Slack does not say which there are", "try again"))
    missing = sorted({*SCOPES} - {scope.strip() for scope in given.split(",")})
    if missing:
        lacks = ", ".join(f"{scope} (to {say(f'rights.{scope}')})" for scope in missing)
        remedy = f"add them in {page}, {_INSTALL}"
        return (found, Finding("slack scopes", "wrong", f"missing: {lacks}", remedy))
    return (found, Finding("slack scopes", "ok", f"all {len(SCOPES)}"))


def _of_app_token(answer: ApiAnswer) -> Finding:
    part, page = "slack appToken", f'"Basic Information", "App-Level Tokens" {_PAGES}'
    if answer.body.get("ok"):
        return Finding(part, "ok", "opens sockets")
    if answer.body.get("error") == "missing_scope":
        return Finding(part, "wrong", f"it lacks the scope {APP_SCOPE}", f"make one that has it in {page}")
    return _refused(part, answer, f"take one (xapp-…) with {APP_SCOPE} from {page}")


def _of_webhook(webhook: Webhook) -> Finding:
    where = f'"Event Subscriptions", "Interactivity & Shortcuts" and "Slash Commands" {_PAGES}'
    return Finding("slack webhook", "ok", f"not asked: see that {webhook.url} stands in {where}")


def _of_agent(answer: ApiAnswer) -> tuple[Finding, ...]:
    if answer.body.get("error") not in _NO_AGENT:
        return ()
    remedy = f'paste the manifest that `shipmate init` prints at "App Manifest" {_PAGES}, {_INSTALL}'
    return (
        Finding(
            "slack agent view",
            "warn",
            "the app is no agent: Slack shows no stop button and no titles",
            remedy,
        ),
    )


def _of_app(bot: ApiAnswer, made: object, app_token: str) -> tuple[Finding, ...]:
    """Return the link to the app, or an error if the two tokens belong to different apps."""
    known = made.get("app_id") if isinstance(made, dict) else None
    named = _APP_OF_TOKEN.match(app_token)
    if known is not None and named is not None and named[1] != known:
        found = f"it belongs to another app ({named[1]}) than botToken ({known})"
        remedy = f'take one of the same app from "Basic Information", "App-Level Tokens" {_PAGES}'
        return (Finding("slack appToken", "wrong", found, remedy),)
    app = known or (named[1] if named is not None else None)
    if app is None:
        return ()
    return (
        Finding(
            "slack link", "ok", f"https://slack.com/app_redirect?app={app}&team={bot.body.get('team_id')}"
        ),
    )


def _of_person(person: str, answer: ApiAnswer) -> tuple[Finding, ...]:
    """Return findings about a person whom the settings allow to talk to the bot."""
    part, user = f"slack person {person}", answer.body.get("user")
    if answer.body.get("error") in {"user_not_found", "user_not_visible"}:
        remedy = "copy the member ID from their profile in Slack, and mend operators or channels.slack.allow"
        return (Finding(part, "wrong", "nobody has this id in the workspace", remedy),)
    if isinstance(user, dict) and user.get("deleted"):
        remedy = "take them out of operators and channels.slack.allow"
        return (Finding(part, "warn", "their account is deactivated", remedy),)
    return ()


def _refused(part: str, answer: ApiAnswer, remedy: str) -> Finding:
    error = str(answer.body.get("error"))[:80]
    if error in _PASSING or answer.status == 429:
        return Finding(part, "later", f"Slack answers {error}", "try again in a minute")
    if error == "not_allowed_token_type":
        error += ": it is a token of another kind"
    return Finding(part, "wrong", f"Slack refuses it: {error}", remedy)

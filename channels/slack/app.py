"""Creates the manifest of the Slack app for `shipmate init`, and checks the app's tokens for `shipmate doctor`."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from bot import errors
from bot.contracts.approvals import EXAMPLES
from bot.contracts.channel import Examination, Finding
from bot.words import say
from channels.http_api import ApiAnswer, ask, unreachable
from channels.slack.manifest import SlackSettings

_MANIFEST = Path(__file__).with_suffix(".toml").read_text("utf-8")
SCOPES: list[str] = tomllib.loads(_MANIFEST)["oauth_config"]["scopes"]["bot"]
"""OAuth scopes that Shipmate uses."""
MOST_PEOPLE = 20  # Max people of the allow list whom one check looks up in Slack
APP_SCOPE = "connections:write"
_PASSING = frozenset({"fatal_error", "internal_error", "ratelimited", "service_unavailable"})
NO_AGENT = frozenset({"access_denied", "not_allowed", "not_authorized", "unknown_method"})
"""Error codes with which Slack answers the test call if the app is no agent. For an agent, Slack answers with another code."""
_NOWHERE = {"channel_id": "C00000000", "thread_ts": "0.000000", "status": "active"}
_PAGES = "of your app at https://api.slack.com/apps"
_BOT_TOKENS = f'"OAuth & Permissions" {_PAGES}'
_APP_TOKENS = f'"Basic Information", "App-Level Tokens" {_PAGES}'
_INSTALL = "then install the app again"
_APP_OF_TOKEN = re.compile(r"xapp-\d+-(A[A-Z0-9]+)-")


def app_manifest(name: str, posts_to: str | None = None) -> dict[str, Any]:
    """Return a manifest for an app with this name and the scopes that Shipmate uses. The app posts events to the address
    `posts_to`; None means Socket Mode.

    A manifest cannot create the app token (scope `connections:write`), so the operator creates this token by hand.
    """
    made = tomllib.loads(_MANIFEST)
    features, settings = made["features"], made["settings"]
    made["display_information"]["name"] = features["bot_user"]["display_name"] = name[:35] or "Shipmate"
    # If a person taps a suggested prompt, Slack sends the prompt as the person's message.
    starts = [say(f"start.{one}") for one in EXAMPLES]
    features["agent_view"]["suggested_prompts"] = [{"title": words, "message": words} for words in starts]
    settings["socket_mode_enabled"] = posts_to is None
    if posts_to is not None:
        features["slash_commands"][0]["url"] = posts_to
        settings["interactivity"]["request_url"] = posts_to
        settings["event_subscriptions"]["request_url"] = posts_to
    return made


async def examine(settings: SlackSettings) -> Examination:
    """Check the tokens. Report the bot and app that the tokens belong to, and missing scopes. Opens no socket and posts nothing."""
    root = settings.base_url.rstrip("/")
    bot_token, app_token = settings.bot_token or "", settings.app_token or ""
    if bot_token.startswith("xapp-") and "xoxb-" in app_token:
        remedy = "exchange them: SLACK_BOT_TOKEN is the one that begins with xoxb, SLACK_APP_TOKEN with xapp"
        return Examination((Finding("slack tokens", "wrong", "botToken and appToken are swapped", remedy),))
    try:
        bot = await ask(f"{root}/auth.test", token=bot_token)
        findings = _of_bot_token(bot)
        if settings.webhook is None:
            findings.append(_of_app_token(await ask(f"{root}/apps.connections.open", token=app_token)))
        else:
            where = f'"Event Subscriptions", "Interactivity & Shortcuts" and "Slash Commands" {_PAGES}'
            found = f"not asked: see that {settings.webhook.url} stands in {where}"
            findings.append(Finding("slack webhook", "ok", found))
        if all(one.verdict == "ok" for one in findings if one.part.endswith("Token")):
            form = {"bot": str(bot.body["bot_id"])}
            made = (await ask(f"{root}/bots.info", token=bot_token, form=form)).body.get("bot")
            agent = await ask(f"{root}/agents.sessions.setStatus", token=bot_token, form=_NOWHERE)
            if agent.body.get("error") in NO_AGENT:
                found = "the app is no agent: Slack shows no stop button and no titles"
                remedy = (
                    f'paste the manifest that `shipmate init` prints at "App Manifest" {_PAGES}, {_INSTALL}'
                )
                findings.append(Finding("slack agent view", "warn", found, remedy))
            findings += _of_app(bot, made, app_token)
            for person in [one for one in settings.allow if one.startswith(("U", "W"))][:MOST_PEOPLE]:
                answer = await ask(f"{root}/users.info", token=bot_token, form={"user": person})
                findings += _of_person(person, answer)
    except errors.ChannelUnreachable as error:
        return unreachable("slack", settings.base_url, error)
    return Examination(tuple(findings), bot.time)


def _of_bot_token(answer: ApiAnswer) -> list[Finding]:
    part = "slack botToken"
    if not answer.body.get("ok"):
        return [_refused(part, answer, f"take the Bot User OAuth Token (xoxb-…) from {_BOT_TOKENS}")]
    if not answer.body.get("bot_id"):
        remedy = f"take the Bot User OAuth Token from {_BOT_TOKENS}"
        return [Finding(part, "wrong", "it is not the token of a bot", remedy)]
    found = Finding(part, "ok", f"{answer.body.get('user')} in the workspace {answer.body.get('team')}")
    given = answer.headers.get("X-OAuth-Scopes")
    if given is None:
        return [found, Finding("slack scopes", "warn", "Slack does not say which there are", "try again")]
    missing = sorted({*SCOPES} - {scope.strip() for scope in given.split(",")})
    if not missing:
        return [found, Finding("slack scopes", "ok", f"all {len(SCOPES)}")]
    lacks = ", ".join(f"{scope} (to {say(f'rights.{scope}')})" for scope in missing)
    return [
        found,
        Finding("slack scopes", "wrong", f"missing: {lacks}", f"add them in {_BOT_TOKENS}, {_INSTALL}"),
    ]


def _of_app_token(answer: ApiAnswer) -> Finding:
    part = "slack appToken"
    if answer.body.get("ok"):
        return Finding(part, "ok", "opens sockets")
    if answer.body.get("error") == "missing_scope":
        remedy = f"make one that has it in {_APP_TOKENS}"
        return Finding(part, "wrong", f"it lacks the scope {APP_SCOPE}", remedy)
    return _refused(part, answer, f"take one (xapp-…) with {APP_SCOPE} from {_APP_TOKENS}")


def _of_app(bot: ApiAnswer, made: object, app_token: str) -> list[Finding]:
    """Return a finding with a link that opens the app in Slack. If the two tokens belong to different apps, return an error."""
    known = made.get("app_id") if isinstance(made, dict) else None
    named = _APP_OF_TOKEN.match(app_token)
    if known is not None and named is not None and named[1] != known:
        found = f"it belongs to another app ({named[1]}) than botToken ({known})"
        return [Finding("slack appToken", "wrong", found, f"take one of the same app from {_APP_TOKENS}")]
    app = known or (named[1] if named is not None else None)
    link = f"https://slack.com/app_redirect?app={app}&team={bot.body.get('team_id')}"
    return [Finding("slack link", "ok", link)] if app is not None else []


def _of_person(person: str, answer: ApiAnswer) -> list[Finding]:
    part, user = f"slack person {person}", answer.body.get("user")
    if answer.body.get("error") in {"user_not_found", "user_not_visible"}:
        remedy = "copy the member ID from their profile in Slack, and mend operators or channels.slack.allow"
        return [Finding(part, "wrong", "nobody has this id in the workspace", remedy)]
    if isinstance(user, dict) and user.get("deleted"):
        remedy = "take them out of operators and channels.slack.allow"
        return [Finding(part, "warn", "their account is deactivated", remedy)]
    return []


def _refused(part: str, answer: ApiAnswer, remedy: str) -> Finding:
    error = str(answer.body.get("error"))[:80]
    if error in _PASSING or answer.status == 429:
        return Finding(part, "later", f"Slack answers {error}", "try again in a minute")
    if error == "not_allowed_token_type":
        error += ": it is a token of another kind"
    return Finding(part, "wrong", f"Slack refuses it: {error}", remedy)

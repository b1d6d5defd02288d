"""Examines Slack's tokens: whose they are, and which scopes they lack."""

from __future__ import annotations

from bot import errors
from bot.contracts.examination import Examination, Finding
from channels.examination import ApiAnswer, ask
from channels.slack.app_manifest import SCOPES
from channels.slack.settings import SlackSettings

APP_SCOPE = "connections:write"
_PASSING = frozenset({"fatal_error", "internal_error", "ratelimited", "service_unavailable"})
_PAGES = "of your app at https://api.slack.com/apps"


async def examine(settings: SlackSettings) -> Examination:
    """Ask Slack with both tokens. No socket is opened and nothing is posted."""
    root = settings.base_url.rstrip("/")
    try:
        bot = await ask(f"{root}/auth.test", token=settings.bot_token or "")
        app = await ask(f"{root}/apps.connections.open", token=settings.app_token or "")
    except errors.ChannelUnreachable as error:
        remedy = "see whether this machine reaches it, then try again"
        return Examination(
            (Finding("slack", "later", f"{settings.base_url} does not answer: {error}", remedy),)
        )
    return Examination((*_of_bot_token(bot), _of_app_token(app)), bot.time)


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
        remedy = f"add them in {page}, then install the app again"
        return (found, Finding("slack scopes", "wrong", f"missing: {', '.join(missing)}", remedy))
    return (found, Finding("slack scopes", "ok", f"all {len(SCOPES)}"))


def _of_app_token(answer: ApiAnswer) -> Finding:
    part, page = "slack appToken", f'"Basic Information", "App-Level Tokens" {_PAGES}'
    if answer.body.get("ok"):
        return Finding(part, "ok", "opens sockets")
    if answer.body.get("error") == "missing_scope":
        return Finding(part, "wrong", f"it lacks the scope {APP_SCOPE}", f"make one that has it in {page}")
    return _refused(part, answer, f"take one (xapp-…) with {APP_SCOPE} from {page}")


def _refused(part: str, answer: ApiAnswer, remedy: str) -> Finding:
    error = str(answer.body.get("error"))[:80]
    if error in _PASSING or answer.status == 429:
        return Finding(part, "later", f"Slack answers {error}", "try again in a minute")
    if error == "not_allowed_token_type":
        error += ": it is a token of another kind; see whether botToken and appToken are swapped"
    return Finding(part, "wrong", f"Slack refuses it: {error}", remedy)

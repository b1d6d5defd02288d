"""The console's page “Waiting”, on which operators decide about open items. Only this page has forms."""

from __future__ import annotations

import hmac
import secrets
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from bot import errors, text
from bot.contracts.waiting import KINDS, Act, OpenLoop
from bot.words import say

PATH = "/waiting"
COOKIE = "shipmate-console"
"""Name of the cookie that distinguishes visitors. It gives no rights."""
MOST_SAID = 50
"""Max results of decisions that are kept until a page shows them."""
_NAME = web.RequestKey("visitor", str)
Page = Callable[[web.Request], Awaitable[web.Response]]


class WaitingPage:
    """Shows open items and carries out decisions. A decision is sent as a form with a token that the page gave to
    this visitor. After a decision the browser is redirected, so that a reload does not repeat the decision.
    """

    def __init__(
        self,
        waiting: Callable[[], Awaitable[list[OpenLoop]]],
        decide: Callable[[OpenLoop, Act], Awaitable[str]],
    ) -> None:
        self._waiting = waiting
        self._decide = decide
        self._key = secrets.token_bytes(32)
        self._said: OrderedDict[str, str] = OrderedDict()
        """Results of decisions, kept until a page shows them; the key is a random name."""

    async def find(self, request: web.Request) -> dict[str, Any]:
        """Return the values that the page shows: the open items of one kind, or all."""
        loops = await self._waiting()
        kind = request.query.get("kind", "")
        shown = [one for one in loops if kind not in KINDS or one.kind == kind]
        counts = Counter(one.kind for one in loops)
        return {
            "kind": kind if kind in KINDS else "",
            "kinds": [(one, counts[one]) for one in KINDS if counts[one] or one == kind],
            "all": len(loops),
            "loops": shown,
            "said": self._said.pop(request.query.get("said", ""), ""),
            "token": self._token(request[_NAME]),
        }

    async def shown(self, page: Page, request: web.Request) -> web.Response:
        """Return the page. A visitor without a cookie gets one."""
        new = not request.cookies.get(COOKIE)
        request[_NAME] = secrets.token_urlsafe(16) if new else request.cookies[COOKIE]
        response = await page(request)
        if new:
            response.set_cookie(COOKIE, request[_NAME], path=PATH, httponly=True, samesite="Strict")
        return response

    async def decided(self, request: web.Request) -> web.Response:
        """Carry out a decision and redirect to the page. Raises `HTTPForbidden` if the form lacks this visitor's token."""
        form = {name: value for name, value in (await request.post()).items() if isinstance(value, str)}
        visitor = request.cookies.get(COOKIE, "")
        if not visitor or not hmac.compare_digest(
            form.get("token", "").encode(), self._token(visitor).encode()
        ):
            raise web.HTTPForbidden(reason=say("dashboard.stale_form"))
        wanted = (form.get("kind"), form.get("id"))
        loop = next((one for one in await self._waiting() if (one.kind, one.id) == wanted), None)
        act = next((one for one in loop.acts if one == form.get("act")), None) if loop is not None else None
        said = say("waiting.unknown")
        if loop is not None and act is not None:
            try:
                said = await self._decide(loop, act)
                # If the item is unchanged, the command's answer says why. Otherwise the page says what was done.
                if loop not in await self._waiting():
                    said = _done(loop, act)
            except errors.StorageError as failure:
                said = failure.person
        name = secrets.token_urlsafe(9)
        self._said[name] = said
        while len(self._said) > MOST_SAID:
            self._said.popitem(last=False)
        query = urlencode({"kind": form.get("only", ""), "page": form.get("page", ""), "said": name})
        return web.Response(status=303, headers={"Location": f"{PATH}?{query}"})

    def _token(self, visitor: str) -> str:
        return hmac.new(self._key, visitor.encode("utf-8", "surrogateescape"), "sha256").hexdigest()


def _done(loop: OpenLoop, act: Act) -> str:
    """Return a sentence about the decision. It names the person, call, job or promise that was decided about."""
    what = loop.name or str(loop.person) if loop.kind == "person" else loop.what.replace("`", "")
    return say(f"dashboard.did_{act}", what=text.preview(what, 120))

"""The pages of the console: their content, and texts of people that must not become markup."""

from __future__ import annotations

import asyncio
import html
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
import pytest

from bot.contracts.approvals import OpenLoop
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.messages import ArchiveLine
from bot.dashboard.console import POLICY, ROWS, ActiveChat, Console
from bot.dashboard.server import Dashboard
from bot.features.search import Search
from bot.system import SystemClock, UlidSource, ulid_time
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog
from bot.tools.context import ChatQuery, ListedChats
from bot.words import CATALOGUES, say
from tests import usage_rows
from tests.talk import Talk
from tests.unit.dashboard import pages

KEY = ChatKey("telegram", "1")
PATHS = ["/", "/conversations", "/costs", "/errors", "/waiting", "/configuration"]
EVIL = "<script>alert(1)</script> \"'&amp; \u202eevil\x1b[31m 👩‍👩‍👧"
SAFE = "<script>alert(1)</script> \"'&amp; evil 👩‍👩‍👧"

Show = Callable[..., Awaitable[str]]


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as made:
        yield made


@pytest.fixture
async def show(session: aiohttp.ClientSession) -> AsyncIterator[Show]:
    """A function that requests a page of a console, checks the status, and returns the HTML."""
    opened: list[Dashboard] = []

    async def ask(console: Console, path: str, status: int = 200) -> str:
        dashboard = pages.dashboard(pages=console)
        await dashboard.start()
        opened.append(dashboard)
        while True:
            async with session.get(f"{dashboard.address}{path}") as answer:
                page = await answer.text()
            assert answer.status == status, page
            # On a busy machine, counting the log's lines may take longer than the page waits.
            if say("dashboard.counting") not in page:
                return page

    yield ask
    for dashboard in opened:
        await dashboard.stop()


def asking(name: str) -> OpenLoop:
    """Return the open item of a person who asks for access."""
    who = UserRef("telegram", "9")
    return OpenLoop("person", str(who), None, name, 1.0, who, name, acts=("admit", "block"))


def logged(home: Path, *lines: dict[str, Any], at: float | None = None) -> None:
    """Write log lines with the time `at`; the default is now."""
    now = SystemClock().now() if at is None else at
    stamp = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    (home / "logs").mkdir(exist_ok=True)
    made = [
        {"timestamp": stamp, "level": "info", "kind": "error", "message": "", "details": {}, **one}
        for one in lines
    ]
    with (home / "logs" / f"{stamp[:10]}.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(one, ensure_ascii=False) + "\n" for one in made)


def said(text: str, ts: int, **more: Any) -> ArchiveLine:
    fields = {"channel": "telegram", "chat_id": "1", "chat_key": KEY, "role": "user", "user_id": "1"} | more
    return ArchiveLine(ts=ts, text=text, **fields)


def words(page: str) -> str:
    """Return the text of a page without tags and entities."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())


async def test_pages_of_nothing_say_so_and_load_nothing_from_elsewhere(
    tmp_path: Path, session: aiohttp.ClientSession
) -> None:
    dashboard = pages.dashboard(pages=pages.console(tmp_path))
    await dashboard.start()
    for path in PATHS:
        async with session.get(dashboard.address + path) as answer:
            assert answer.status == 200
            assert answer.headers["Content-Security-Policy"] == POLICY
            page = await answer.text()
        assert "<script" not in page
        assert "style=" not in page
        named = set(re.findall(r'(?:src|href)="([^"]*)"', page))
        assert all(re.match(r"[/?#]", one) for one in named), named
    for path, kind in (("/style.css", "text/css"), ("/icon.svg", "image/svg+xml")):
        async with session.get(dashboard.address + path) as answer:
            assert (answer.status, answer.content_type) == (200, kind)
    await dashboard.stop()


async def test_now_shows_what_runs_which_part_is_in_trouble_and_who_waits(tmp_path: Path, show: Show) -> None:
    ran = ActiveChat("telegram:chat:1", "running", 2, "01J", SystemClock().now() - 90)
    asks = ActiveChat("telegram:chat:0", "suspended", 0)
    call = OpenLoop("approval", "A", KEY, "Run it", 1.0, acts=("once", "deny"))
    job = OpenLoop("job", "J", KEY, "Look", 1.0, acts=("pause",))
    active = [ran, asks, *(ActiveChat(f"telegram:chat:{n}", "queued", 1) for n in range(2, ROWS + 12))]
    console = pages.console(tmp_path, active=active, waiting=[asking("Ann"), call, job])
    page = await show(console, "/")
    told = words(page)
    assert "telegram:chat:1 Running 1 min ago 2 Trace" in told
    assert "and 12 more" in told
    assert "1 person is waiting for access 1 call is waiting for approval" in told
    assert '<a href="/waiting?kind=approval">1 call' in page
    assert '<a href="/waiting">Waiting for a person</a>' in page
    assert "Healthy" in told
    assert "slack Working 2 s ago" in told
    assert 'href="/turns/01J"' in page
    assert '<meta http-equiv="refresh" content="5">' in page
    assert "http-equiv" not in await show(console, "/?still")
    assert "Waiting 2 Configuration" in words(await show(console, "/costs"))


@pytest.fixture
async def talk(tmp_path: Path) -> AsyncIterator[tuple[Talk, Search]]:
    """A conversation, and the search in its archive."""
    talk = Talk()
    search = Search(tmp_path / "index.db", talk.log, clock=SystemClock(), log=MemoryLog())
    search.exporter.start()
    yield talk, search
    await search.exporter.close()


async def test_conversations_are_listed_with_names_and_first_words_searched_filtered_and_paged(
    tmp_path: Path, show: Show, talk: tuple[Talk, Search]
) -> None:
    spoken, search = talk
    for n in range(ROWS + 3):
        key = ChatKey("telegram", "1", f"topic-{n}")
        line = said(f"question {n} of many", 1_000 * (n + 1), chat_key=key, meta={"username": "Ann"})
        spoken.say(line)
    slack = ChatKey("slack", "C7")
    spoken.say(said(EVIL, 500, channel="slack", chat_key=slack, meta={"username": "渡辺"}, message_id="m"))
    spoken.say(said("明天的天气预报怎么样", 600, channel="slack", chat_key=slack, meta={"username": "Bob"}))
    spoken.say(said("It will rain in Oslo.", 700, channel="slack", chat_key=slack, role="assistant"))
    now = SystemClock().now()
    failed = [(str(slack), "received", now, {}), (str(slack), "turn_ended", now, {"end": "failed"})]
    usage_rows.write(tmp_path, failed)
    active = [ActiveChat("telegram:chat:1:thread:topic-7", "running", 0)]
    named = {f"telegram:chat:1:thread:topic-{n}": f"Plan {n}" for n in (8, 52)}
    console = pages.console(tmp_path, recalls=search, active=active, titles=named)

    async def rows(query: str) -> list[str]:
        page = await show(console, f"/conversations?{query}")
        return [words(one) for one in re.findall(r'<th scope="row">(.*?)</th>', page, re.DOTALL)]

    first, second = [await rows(f"page={page}") for page in (1, 2)]
    assert [len(first), len(second)] == [ROWS, 4]
    assert first[0] == "Plan 52 Ann telegram:chat:1:thread:topic-52"
    assert first[1] == "question 51 of many Ann telegram:chat:1:thread:topic-51"
    assert second[3] == f"{SAFE} Bob, 渡辺 slack:chat:C7"
    for query, found in (
        ("channel=slack", second[3:]),
        ("state=failed", second[3:]),
        ("state=working", [f"question 7 of many Ann {active[0].chat_key}"]),
        ("q=%E6%B8%A1", second[3:]),  # the parameter is a part of a name
        ("q=bOB", second[3:]),
        ("q=c7", second[3:]),
        ("q=topic-7+QUESTION", [f"question 7 of many Ann {active[0].chat_key}"]),
        ("q=question&channel=slack", []),
        ("q=rains+oslo", [f"{SAFE} It will rain in Oslo. Bob, 渡辺 slack:chat:C7"]),
        ("q=%E5%A4%A9%E6%B0%94", [f"{SAFE} 明天的天气预报怎么样 Bob, 渡辺 slack:chat:C7"]),
        ("q=plan+8", ["Plan 8 Ann telegram:chat:1:thread:topic-8"]),
        ("q=nowhere", []),
    ):
        assert await rows(query) == found, query
    assert 'href="?q=many&amp;channel=telegram&amp;page=2"' in await show(
        console, "/conversations?q=many&channel=telegram"
    )
    spoken.say(said("", 800, channel="slack", chat_key=slack, message_id="m", meta={"deleted": True}))
    assert await rows("q=c7") == ["明天的天气预报怎么样 Bob slack:chat:C7"]
    live = await show(console, "/conversations?channel=slack&live=1")
    assert '<meta http-equiv="refresh" content="5">' in live
    assert "<form" not in live  # a refresh would delete text that the operator types
    assert 'href="?channel=slack"' in live
    within = await show(console, "/conversations/slack:chat:C7?q=Oslo")
    assert "best match first" in words(within)
    assert within.index('href="?before=700"') < within.index("It will rain in Oslo.")
    assert within.index("It will rain in Oslo.") < within.index("明天")
    assert "missing" in await show(pages.console(tmp_path), "/conversations")


async def test_older_messages_of_a_chat_come_page_by_page_and_each_once(tmp_path: Path, show: Show) -> None:
    archive = pages.archive(tmp_path)
    for n in range(3 * ROWS):
        # Several messages have the same millisecond, also at the end of a page.
        await archive.append(said(f"message {n};", 1_000 + n // 60, meta={"requestId": f"R{n}"}))
    console = pages.console(tmp_path, said=archive)
    path, found = "/conversations/telegram:chat:1", list[str]()
    page = await show(console, path)
    assert 'href="/turns/R149"' in page
    while older := re.search(r'rel="prev" href="([^"]+)"', page):
        found = re.findall(r"message \d+;", page) + found
        page = await show(console, path + html.unescape(older[1]))
    found = re.findall(r"message \d+;", page) + found
    assert found == [f"message {n};" for n in range(3 * ROWS)]


async def test_words_of_others_are_no_markup_and_turn_no_line_around(tmp_path: Path, show: Show) -> None:
    archive = pages.archive(tmp_path)
    await archive.append(said(f"{EVIL}\nsecond line", 1_000, meta={"username": EVIL}))
    await archive.append(said("y" * 5_000, 2_000, role="assistant", user_id="bot"))
    logged(tmp_path, {"level": "error", "message": EVIL, "details": {"cause": EVIL}})
    console = pages.console(
        tmp_path,
        said=archive,
        waiting=[asking(EVIL)],
        settings={"prompt.append": json.dumps(EVIL), "llm.apiKey": "[hidden]"},
    )
    told = [await show(console, path) for path in ("/conversations/telegram:chat:1", "/errors", "/waiting")]
    for page in told:
        assert "<script" not in page
        assert not {"\u202e", "\x1b"} & set(page)
        assert SAFE in words(page)
    assert "… (1,000 more characters)" in told[0]
    assert 'name="id" value="telegram:9"' in told[2]
    page = await show(console, "/configuration")
    assert "<script" not in page
    assert "[hidden]" in page
    evil = urlencode(dict.fromkeys(("q", "channel", "state", "kind", "level", "days", "by"), EVIL))
    for path in ("/conversations", "/conversations/telegram:chat:1", "/costs", "/costs?by=person", "/errors"):
        page = await show(console, f"{path}{'&' if '?' in path else '?'}{evil}")
        assert "<script" not in page, path
        assert not {"\u202e", "\x1b"} & set(page), path


async def test_costs_are_grouped_and_add_up(tmp_path: Path, show: Show, talk: tuple[Talk, Search]) -> None:
    now = SystemClock().now()
    read: dict[str, Any] = {"usage": {"inputTokens": 1_000, "cacheReadTokens": 3_000}}
    rows = [
        usage_rows.used("telegram:chat:1", now, "telegram:1", 1.5, **read),
        usage_rows.used("telegram:chat:2", now, EVIL, 0.25, **read),
        usage_rows.used("x", now, "telegram:1", **read),
        usage_rows.used("telegram:chat:1", now - 20 * 86_400, "telegram:1", 4.0, **read),
    ]
    usage_rows.write(tmp_path, rows)
    console = pages.console(tmp_path, recalls=talk[1])
    week, month = [words(await show(console, f"/costs?by=chat&days={days}")) for days in ("7", "30")]
    assert "Cost $1.75 1 call of unknown price" in week
    assert "telegram:chat:1 $1.50 $1.50 0 4,000 75% 50 telegram:chat:2 $0.2500" in week
    assert "Cost $5.75" in month
    said = {
        "ts": 1,
        "channel": "telegram",
        "chatId": "1",
        "chatKey": "telegram:chat:1",
        "role": "user",
        "text": "hi",
    }
    chats = tmp_path / "chats"
    chats.mkdir(exist_ok=True)
    lines = [said | {"userId": who, "meta": {"username": name}} for who, name in (("1", "Ann"), ("2", "Bob"))]
    (chats / "telegram%3Achat%3A1.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    for one in lines:
        talk[0].say(ArchiveLine.model_validate(one))
    people = words(await show(console, "/costs?by=person"))
    assert SAFE in people
    assert "Ann telegram:1 $1.50" in people
    for query, found in (
        ("by=model&channel=telegram", ["m"]),
        ("by=person&channel=slack", []),
    ):
        shown = re.findall(
            r'<th scope="row">\s*(?:<a [^>]*>)?<bdi dir="auto">(.*?)</bdi>',
            await show(console, f"/costs?{query}"),
        )
        assert shown == found, query
    assert "m $1.75" in words(await show(console, "/costs?by=model&days=never"))
    today = datetime.fromtimestamp(SystemClock().now(), UTC).date().isoformat()
    assert f"{today} $1.75" in words(await show(console, "/costs?days=all"))


async def test_costs_of_a_day_end_with_that_day(tmp_path: Path, show: Show) -> None:
    noon = datetime(2026, 11, 29, 12, tzinfo=UTC).timestamp()
    rows = [
        usage_rows.used("telegram:chat:1", noon - days * 86_400 + more, f"telegram:{who}", cost)
        for days, more, who, cost in (
            (0, -43_200, 1, 1.0),
            (1, 43_199, 1, 2.0),
            (1, -43_200, 2, 3.0),
            (2, 43_199, 3, 8.0),
        )
    ]
    usage_rows.write(tmp_path, rows)
    console = pages.console(tmp_path, clock=FakeClock(noon))
    page = await show(console, "/costs")
    assert 'href="?day=2026-11-28&amp;by=person"' in page
    assert "24 hours 7 days" in words(page)
    for query in ("day=2026-11-28", "days=2026-11-28"):
        told = words(await show(console, f"/costs?by=person&{query}"))
        assert "Cost $5.00" in told, query
        assert re.search(r"telegram:2 \$3\.00 .*telegram:1 \$2\.00", told), query
        assert "telegram:3" not in told
    assert "Costs 2026-11-28 UTC" in words(await show(console, "/costs?day=2026-11-28"))


async def test_errors_are_counted_by_cause_whatever_ids_and_numbers_are_in_them(
    tmp_path: Path, show: Show
) -> None:
    now = SystemClock().now()
    logged(tmp_path, {"level": "error", "message": "long ago"}, at=now - 9 * 86_400)
    for n in range(3):
        failed = {"level": "error", "kind": "delivery", "message": f"refused after {n} s", "chatKey": f"c{n}"}
        logged(tmp_path, failed, {"level": "warn", "message": "slow"}, {"message": "fine"}, at=now - 60 + n)
    logged(tmp_path, {"level": "error", "message": "the disk is full", "requestId": "01J"})
    console = pages.console(tmp_path)
    page = await show(console, "/errors")
    told = words(page)
    assert re.search(r"the disk is full 1 0 \d s ago", told)
    assert re.search(r"(delivery refused after \d s .*){4}3 3 [56]\d s ago", told)
    assert page.index("refused after 1 s") < page.index("refused after 0 s")
    assert 'href="/turns/01J"' in page
    assert 'href="/conversations/c2"' in page
    assert "slow" not in told
    assert "long ago" not in told
    assert "error slow" in words(await show(console, "/errors?level=warn"))
    assert "long ago" in words(await show(console, "/errors?days=all"))


async def test_causes_of_the_whole_log_are_shown_page_by_page_however_long_ago(
    tmp_path: Path, show: Show
) -> None:
    letters = str.maketrans("0123456789", "ghijklmnop")
    for n in range(ROWS + 9):
        failed = {"level": "error", "message": f"broken {str(n).translate(letters)}"}
        logged(tmp_path, *[failed] * (n + 1), at=n * 86_400.0)
    console = pages.console(tmp_path)
    told = words(await show(console, "/errors?days=all"))
    assert "broken lo 59" in told  # line 58 is the newest
    assert "broken g 1" not in told
    page = await show(console, "/errors?days=all&page=2")
    assert page.count('class="error"') == 9
    assert 'title="1 Jan 1970, 00:00:00 UTC"' in page


async def test_pages_speak_the_language_of_the_browser(
    tmp_path: Path, session: aiohttp.ClientSession, talk: tuple[Talk, Search]
) -> None:
    spoken, search = talk
    spoken.say(said("你好", 1_000))
    logged(tmp_path, {"level": "error", "message": "坏了"})
    waiting = [asking("安")]
    active = [ActiveChat("telegram:chat:1", "suspended", 1, "01J", SystemClock().now() - 90)]
    console = pages.console(tmp_path, recalls=search, waiting=waiting, active=active)
    dashboard = pages.dashboard(pages=console)
    await dashboard.start()
    english = {
        one
        for key, one in CATALOGUES["en"].items()
        if key.startswith("dashboard.") and isinstance(one, str) and len(one) > 3 and "{" not in one
    } - {one for one in CATALOGUES["zh"].values() if isinstance(one, str)}
    for path in [*PATHS, "/conversations?q=x", "/costs?by=person", "/errors?days=all"]:
        for language, lang in (("zh-CN,zh;q=0.9,en;q=0.8", "zh"), ("fr", "en")):
            async with session.get(dashboard.address + path, headers={"Accept-Language": language}) as answer:
                page = await answer.text()
            assert f'<html lang="{lang}">' in page, path
            shown = [one for one in english if re.search(rf"(?<!\w){re.escape(one)}(?!\w)", words(page))]
            assert (shown == []) == (lang == "zh"), (path, shown)
    async with session.get(dashboard.address, headers={"Accept-Language": "zh"}) as answer:
        assert "telegram:chat:1 等待有人确认 1 分钟前 1 跟踪" in words(await answer.text())
    await dashboard.stop()


@pytest.mark.parametrize(
    "path",
    ["/conversations/telegram:chat:404", "/conversations/no-key", "/turns/no-ulid", f"/turns/{'0' * 26}"],
)
async def test_what_is_not_there_is_told(tmp_path: Path, show: Show, path: str) -> None:
    assert "There is no such page, chat or turn." in await show(pages.console(tmp_path), path, 404)


@pytest.mark.parametrize("query", ["page=0", "page=-1", "page=x", "page=99999999999", "page=٣", "page=7"])
async def test_a_number_that_is_none_is_the_first_page_and_one_too_high_is_empty(
    tmp_path: Path, show: Show, query: str
) -> None:
    logged(tmp_path, {"level": "error", "message": "broken"})
    told = words(await show(pages.console(tmp_path), f"/errors?{query}"))
    assert ("broken" in told) == (query != "page=7")


async def test_sums_that_cannot_be_read_are_told_without_a_path(tmp_path: Path, show: Show) -> None:
    (tmp_path / "shipmate.db").write_bytes(b"none" * 2_000)
    told = words(await show(pages.console(tmp_path), "/costs", 503))
    assert "the sums of usage cannot be read" in told
    assert str(tmp_path) not in told


async def test_another_sites_page_gets_nothing_and_a_link_there_works(
    tmp_path: Path, session: aiohttp.ClientSession
) -> None:
    dashboard = pages.dashboard(pages=pages.console(tmp_path))
    await dashboard.start()
    for site, goes_to, status in (
        ("cross-site", "image", 403),
        ("cross-site", "iframe", 403),
        ("same-site", "script", 403),
        ("cross-site", "document", 200),
        ("same-origin", "style", 200),
    ):
        headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Dest": goes_to}
        async with session.get(f"{dashboard.address}/", headers=headers) as answer:
            assert answer.status == status
            assert answer.headers.get("X-Frame-Options", "") == ""
    await dashboard.stop()


async def test_pages_that_are_asked_for_together_are_made_one_after_another(
    tmp_path: Path, session: aiohttp.ClientSession
) -> None:
    at_once, most = 0, 0

    class Watched:
        async def listed(self, query: ChatQuery) -> ListedChats:
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            await asyncio.sleep(0)
            at_once -= 1
            return ListedChats([], 0, [query.channel])

    watched: Any = Watched()
    dashboard = pages.dashboard(pages=pages.console(tmp_path, recalls=watched))
    await dashboard.start()

    async def ask() -> int:
        async with session.get(f"{dashboard.address}/conversations") as answer:
            return answer.status

    assert await asyncio.gather(*(ask() for _ in range(10))) == [200] * 10
    assert most == 1
    await dashboard.stop()


async def test_a_turn_is_shown_as_what_was_said_and_its_steps(tmp_path: Path, show: Show) -> None:
    request = UlidSource().ulid()
    begun = ulid_time(request)
    inbound = {"channel": "telegram", "user_id": "1", "text": f"{EVIL} 天気は？"}
    usage_rows.write(
        tmp_path,
        [(str(KEY), "received", begun, {"inbound": inbound}), (str(KEY), "queued", begun, {"text": "晴れ"})],
        turn=request,
    )

    def step(kind: str, ms: float, level: str = "info", took: float | None = None, **details: Any) -> None:
        line = {"kind": kind, "level": level, "requestId": request, "chatKey": str(KEY), "details": details}
        logged(tmp_path, line | ({} if took is None else {"duration": took}), at=begun + ms / 1000)

    usage = {"inputTokens": 10, "outputTokens": 5, "cacheReadTokens": 0, "cacheWriteTokens": 0}
    step("turn_start", 500)
    step("llm_request", 600, callId="c1", model="m")
    step("llm_response", 700, "error", 100.0, callId="c1", model="m", error="Overloaded")
    step("llm_retry", 700, "warn", error="Overloaded", waitMs=1_300)
    step("tool_call", 2_000, toolUseId="t1", tool="task", input='{"prompt": "count"}')
    step("task", 2_000, toolUseId="t1", task="T")
    step("tool_call", 2_100, toolUseId="t2", tool="run", input='{"command": "wc"}', task="T")
    step("tool_result", 2_150, "warn", 50.0, toolUseId="t2", tool="run", failure="exit 1", task="T")
    step("llm_response", 2_350, took=200.0, callId="c2", model="n", usage=usage, costUsd=0.25, task="T")
    step("tool_result", 2_400, took=400.0, toolUseId="t1", tool="task")
    step("approval", 2_500, approval="q", tool="write")
    step("approval", 2_600, "warn", approval="q", tool="write")
    step("approval", 4_500, approval="q", decision="approved", by="telegram:9")
    step("delivery", 4_600, took=40.0, state="sent")
    step("answer_shown", 4_600, waitedMs=4_600, queueMs=500, modelMs=1_400, approvalMs=2_000)
    step("tool_call", 4_700, toolUseId="t3", tool="slow")
    archive = pages.archive(tmp_path)
    await archive.append(said("天気は？", 1, meta={"username": "Ann"}))
    page = await show(pages.console(tmp_path, said=archive), f"/turns/{request}")
    assert '<bdi dir="auto">Ann</bdi></a> <span class="soft id">telegram:chat:1</span>' in page
    assert "The turn failed" not in page
    assert 'style="' not in page
    shown = words(page)
    assert SAFE in shown
    assert "Answer 晴れ" in shown
    assert "Waited 4,600 ms Queue 500 ms 11% Approval 2,000 ms 43% Model 1,400 ms 30%" in shown
    steps = [
        "Queue 0 ms 500 ms",
        "Model model=m error=Overloaded 600 ms 100 ms",
        "Model error=Overloaded waitMs=1300 700 ms 1,300 ms",
        "task task=T 2,000 ms",
        'Tools tool=run task=T {"command": "wc"} 2,100 ms 50 ms',
        "Model model=n task=T 2,150 ms 200 ms $0.2500",
        'Tools tool=task {"prompt": "count"} 2,000 ms 400 ms',
        "Approval tool=write 2,500 ms",
        "Approval tool=write 2,600 ms",
        "Approval 2,500 ms 2,000 ms",
        "Delivery 4,560 ms 40 ms",
        "answer_shown 4,600 ms",
        "Tools tool=slow 4,700 ms no end yet",
    ]
    assert " ".join(steps) in shown
    assert 'aria-label="starts at 700 ms, takes 1,300 ms"' in page
    step("turn_end", 18_800, "error", 18_800.0, status="failed", cause=f"LlmRefused: {EVIL}")
    console = pages.console(tmp_path, titles={str(KEY): "Weather"})
    shown = words(await show(console, f"/turns/{request}"))
    assert "Weather telegram:chat:1" in shown
    assert f"The turn failed LlmRefused: {SAFE}" in shown


async def test_slow_turns_are_listed_by_the_longest_wait_of_a_period(tmp_path: Path, show: Show) -> None:
    now = SystemClock().now()

    def waited(words: str, ms: int, at: float, **parts: int) -> list[usage_rows.Row]:
        inbound = {"channel": "telegram", "user_id": "1", "text": words}
        shown = {"ms": ms, "rounded": ms, "parts": parts}
        return [(str(KEY), "received", at, {"inbound": inbound}), (str(KEY), "waited", at, shown)]

    rows = [
        *waited("quick", 300, now, model=200),
        *waited("queued", 90_000, now, queue=80_000, model=9_000, tools=900),
        *waited(EVIL, 4_000, now, tools=3_000, model=1_000),
        *waited("long ago", 500_000, now - 8 * 86_400, delivery=400_000),
    ]
    usage_rows.write(tmp_path, rows)
    console = pages.console(tmp_path)
    week, ever = [words(await show(console, f"/slow?days={days}")) for days in ("7", "all")]
    assert re.search(r"queued telegram:1 .{,9} ago 90.0 s 10% .*<script>.* 4,000 ms 25% quick", week)
    assert "long ago" not in week
    assert re.search("long ago .* 500.0 s 0% queued", ever)


@pytest.mark.parametrize(("span", "periods"), [("day", 24), ("month", 30)])
async def test_charts_of_a_day_and_a_month_have_a_title_for_each_point_and_a_table(
    tmp_path: Path, show: Show, span: str, periods: int
) -> None:
    now = SystemClock().now()
    before = now - 3_600 * (2 if span == "day" else 48)
    chat = "telegram:chat:1"
    usage_rows.write(
        tmp_path,
        [
            usage_rows.used(chat, now, cost=1.5),
            usage_rows.used(chat, before, cost=0.25, error="Overloaded"),
            *[
                (chat, "waited", now, {"ms": ms, "rounded": ms, "parts": {"model": ms // 2}})
                for ms in (900, 2_000)
            ],
            (chat, "waited", before, {"ms": 30_000, "rounded": 30_000}),
        ],
    )
    page = await show(pages.console(tmp_path), f"/charts?span={span}")
    assert "style=" not in page
    assert "<script" not in page
    assert page.count('role="img"') == 4, "there were no turns, and no failed ones"
    titles = [" ".join(one.split()) for one in re.findall("<title>([^<]*: [^<]*)</title>", page)]
    assert [one.rpartition(": ")[2] for one in titles] == [
        *("$0.2500", "$1.50", "30.0 s", "900 ms", "30.0 s", "2,000 ms", "1")
    ]
    table = words(page).partition("Values as a table")[2]
    assert "UTC" in words(page)
    assert table.count(" 0 0 $0.00 0") == periods - 2
    assert "0 0 $1.50 900 ms 2,000 ms 0" in table
    assert "0 0 $0.2500 30.0 s 30.0 s 1" in table

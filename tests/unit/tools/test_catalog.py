"""`tool_search` ranks tools and returns definitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from bot.contracts.identity import ChatKey
from bot.contracts.messages import ANYBODYS
from bot.contracts.tools import FoundTools, Tool, ToolCall
from bot.telemetry.redaction import Redactor
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog
from bot.tools.builtin import BuiltinTool, ToolPorts
from bot.tools.builtin.tool_search import AT_ONCE, rank_offers, tool_search
from bot.tools.context import ToolExecutionContext, tool_scope
from bot.tools.dispatch import Dispatcher, Registry, ToolOffer


def offer(server: str, title: str, words: str, *fields: str) -> ToolOffer:
    name = f"mcp__{server}__{title}"
    schema = {"type": "object", "properties": {field: {"type": "string"} for field in fields}}
    return ToolOffer({"name": name, "description": words, "input_schema": schema}, title, words)


OFFERS = [
    offer("git", "create_issue", "Open a new issue in a repository.", "title", "labels"),
    offer("git", "listPullRequests", "All pull requests of a repository."),
    offer("mail", "send_message", "Send an e-mail to somebody.", "recipient", "subject"),
    offer("weather", "forecast", "The weather of the next days at a place.", "city"),
    offer("wetter", "vorhersage", "Das Wetter der nächsten Tage für Städte."),
    offer("tianqi", "query", "查询某个城市的天气预报"),
    offer("tenki", "yohou", "指定した都市の天気予報を調べる"),
    offer("kr", "nalssi", "도시의 날씨를 알려줍니다"),
    offer("th", "akat", "พยากรณ์อากาศของเมือง"),
    offer("ru", "pogoda", "Прогноз погоды для города"),
]


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("create an issue", "mcp__git__create_issue"),
        ("issues", "mcp__git__create_issue"),
        ("pull requests", "mcp__git__listPullRequests"),
        ("PULL request LIST", "mcp__git__listPullRequests"),
        ("write an email to a recipient", "mcp__mail__send_message"),
        ("forecast for my city", "mcp__weather__forecast"),
        ("Wetter in der Stadt", "mcp__wetter__vorhersage"),
        ("城市天气", "mcp__tianqi__query"),
        ("都市の天気を調べる", "mcp__tenki__yohou"),
        ("날씨 알려줘", "mcp__kr__nalssi"),
        ("อากาศ", "mcp__th__akat"),
        ("погода город", "mcp__ru__pogoda"),
        ("use mcp__mail__send_message, please", "mcp__mail__send_message"),
        ("`forecast` issue repository", "mcp__weather__forecast"),
    ],
)
def test_the_best_stands_first(query: str, best: str) -> None:
    assert rank_offers(query, OFFERS, 3)[0].name == best


@pytest.mark.parametrize("query", ["zebra", "🦓🦓", "…", "x", "鯨"])
def test_what_shares_no_word_is_left_out(query: str) -> None:
    assert rank_offers(query, OFFERS, 3) == []


@pytest.fixture(autouse=True)
def turn() -> Iterator[None]:
    with tool_scope(ToolExecutionContext(ChatKey("web", "1"), "R", None, None, None)):
        yield


class Shelf:
    """A catalog with fixed tools."""

    def __init__(self, offers: Sequence[ToolOffer], sources: Mapping[str, str]) -> None:
        self._offers, self._sources = offers, sources

    def get(self, name: str) -> Tool | None:
        return None

    def offers(self) -> Sequence[ToolOffer]:
        return self._offers

    def sources(self) -> Mapping[str, str]:
        return self._sources


def search(offers: Sequence[ToolOffer], sources: Mapping[str, str]) -> BuiltinTool:
    return tool_search(cast("ToolPorts", SimpleNamespace(catalog=Shelf(offers, sources))))


async def test_a_search_gives_definitions_and_few_at_once() -> None:
    many = [offer("s", f"read_{number}", "Read it.") for number in range(20)]
    found = await search(many, {"s": "ready"}).run(tool_search.input.model_validate({"query": "read"}))
    assert isinstance(found, FoundTools)
    assert len(found.definitions) == AT_ONCE
    assert found.definitions[0] == many[0].definition


async def test_where_nothing_fits_the_model_hears_what_there_is() -> None:
    tool = search(OFFERS, {"git": "ready, 2 tools", "mail": "not running"})
    assert tool.description == "Find more tools to call, of the MCP servers: git, mail."
    said = await tool.run(tool_search.input.model_validate({"query": "zebra"}))
    assert isinstance(said, str)
    assert "mcp__git__create_issue" in said
    assert "mail: not running" in said
    assert (
        await search([], {}).run(tool_search.input.model_validate({"query": "zebra"}))
        == "There are no more tools."
    )


async def test_what_a_server_says_of_its_tools_is_foreign() -> None:
    told = offer("git", "leak", "Closes an issue of hunter2%2Dhunter2.")
    tools = Registry([search([*OFFERS, told], {"git": "ready"})])
    redact = Redactor(["hunter2-hunter2"])
    dispatcher = Dispatcher(tools, clock=FakeClock(), log=MemoryLog(), redact=redact)
    (result,) = await dispatcher.run([ToolCall("c", "tool_search", {"query": "issue"})])
    assert result.origin == ANYBODYS
    found = {one["tool_name"]: one["definition"]["description"] for one in result.block["content"]}
    assert found["mcp__git__create_issue"] == "Open a new issue in a repository."
    assert found["mcp__git__leak"] == "[redacted]"

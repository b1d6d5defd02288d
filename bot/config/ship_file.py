"""Models of ship.json. The settings of a channel are a model of its manifest.

The docstrings of fields make docs/settings.md (`make schema`).
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, create_model
from pydantic.alias_generators import to_camel

from bot import errors
from bot.contracts.identity import ChatKey
from bot.words.times import zone

Effort = Literal["low", "medium", "high"]
Thinking = Literal["adaptive", "between_tools", "off"]
Purpose = Literal["memory", "compaction", "title", "task", "overheard"]

_SERVER = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,30}[A-Za-z0-9])?")


def _address(value: str) -> str:
    try:
        parts = urlsplit(value)
        sound = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        sound = False
    if not sound:
        raise ValueError("expected an address such as https://example.org/; write it in full")
    return value


def _model_address(value: str) -> str:
    found = re.search(r"/v1(?:/messages)?/*$", value)
    if found is not None:
        raise ValueError(f"expected the address before /v1/messages; write it without {found[0].rstrip('/')}")
    return value


def _zone(value: str) -> str:
    try:
        zone(value)
    except ValueError:
        raise ValueError(
            'expected a name of the tz database such as "Europe/Berlin"; '
            "use one of /usr/share/zoneinfo; if that is missing, install the system's tzdata"
        ) from None
    return value


def _title(value: str) -> str:
    if not value.strip() or not value.isprintable():
        raise ValueError("expected one line of text; write a short name")
    return value


def _chat(value: str) -> str:
    if value != "*":
        try:
            ChatKey.parse(value)
        except errors.IdentityInvalid:
            raise ValueError('expected a chatKey, as `shipmate chats` shows it, or "*"') from None
    return value


Port = Annotated[int, Field(ge=0, le=65_535)]
Address = Annotated[str, AfterValidator(_address)]
ModelAddress = Annotated[Address, AfterValidator(_model_address)]
Share = Annotated[float, Field(gt=0)]


class StrictModel(BaseModel):
    """Base of the models of ship.json. A docstring below a field is its description in the schema."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, frozen=True, strict=True)


Dollars = Annotated[float, Field(ge=0, le=100_000)]


class ModelPrice(StrictModel):
    """US dollars per million tokens of a model."""

    input: Dollars
    """Input tokens."""
    output: Dollars
    """Output tokens."""
    cache_read: Dollars | None = None
    """Tokens read from the cache. null: the input price."""
    cache_write: Dollars | None = None
    """Tokens written to the cache for five minutes. null: 1.25 × the input price."""
    cache_write_hour: Dollars | None = None
    """Tokens written to the cache for an hour. null: 2 × the input price."""


class ModelUse(StrictModel):
    """The model for one purpose, and how it answers. Default: as in the chat."""

    model: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """Name of the model."""
    effort: Effort | None = None
    """As `llm.effort`."""
    thinking: Thinking | None = None
    """As `llm.thinking`."""


class Fallback(StrictModel):
    """A model that is asked if those before it fail: another model of the same provider, or one at another address."""

    provider: Literal["anthropic"] | None = None
    """`anthropic`: its own address. Default: `baseUrl`."""
    model: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """Name of the model there. Default: the model that was asked for."""
    base_url: ModelAddress | None = None
    """Address of the provider. Default: that of `llm`."""
    api_key: Annotated[str | None, Field(repr=False)] = None
    """API key for that address. Default: that of `llm`, which is never sent to another address."""

    def address(self, first: str | None) -> str | None:
        """Its address, if the first model is at `first`. None: the provider's own."""
        return self.base_url or (None if self.provider else first)


class Llm(StrictModel):
    """The language model."""

    provider: Literal["anthropic", "demo"] | None = None
    """Provider of the model. Default: `anthropic` if a key is set, else `demo`."""
    model: Annotated[str, Field(min_length=1, max_length=200)] = "claude-sonnet-5-5"
    """Model of the chats that have not chosen one with `/model`."""
    api_key: Annotated[str | None, Field(repr=False)] = None
    """API key of the provider. Default: `${ANTHROPIC_API_KEY}`."""
    base_url: ModelAddress | None = None
    """Address of the provider, or of a compatible endpoint. Default: the provider's own."""
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] = 8192
    """Max tokens of an answer."""
    context_window: Annotated[int, Field(ge=1_000, le=100_000_000)] | None = None
    """Context window in tokens. null: as the provider lists it for the model."""
    fast_model: Annotated[str, Field(min_length=1, max_length=200)] = "claude-haiku-5-5"
    """Model that combines the results of several tasks."""
    effort: Effort = "medium"
    """Effort of the model for an answer, if it supports efforts. `/effort` sets it for one chat."""
    thinking: Thinking = "adaptive"
    """`adaptive`: the model thinks as much as it needs. `between_tools`: it only comments between tool calls. `off`: as little as it allows."""
    purposes: dict[Purpose, ModelUse] = {}
    """Model, effort and thinking for purposes other than answers to people: `memory` (notes), `compaction` (summaries of
    conversations), `task` (subagents), `overheard` (messages not addressed to the bot). `title` has no effect: titles need no model.
    """
    prices: dict[Annotated[str, Field(min_length=1, max_length=200)], ModelPrice] = {}
    """Prices by model. They override the built-in ones, which `shipmate check` lists with their date."""
    retry_seconds: Annotated[float, Field(ge=0, le=3_600)] = 30
    """Seconds within which a request is retried while the provider is overloaded, failing or unreachable. 0: no retries."""
    fallback: tuple[Fallback, ...] = ()
    """Models that are asked in turn if the first is overloaded for five seconds, refuses or is unreachable. The first is asked again after
    five minutes.
    """
    provider_fallbacks: bool = False
    """Let the provider answer with another of its models if this one refuses."""
    log_messages: bool = True
    """Log the words of people and of the model."""


class Idle(StrictModel):
    """Compaction of idle chats."""

    enabled: bool = True
    """Compact an idle chat shortly before the provider's cache expires."""
    above_tokens: Annotated[int, Field(ge=0)] = 8_000
    """Min tokens of the last request."""


class Compaction(StrictModel):
    """Replacement of the older part of a conversation by a summary or by the notes about the chat."""

    enabled: bool = True
    """false: compact and take notes only on request."""
    soft_tokens: Annotated[int, Field(ge=1)] = 40_000
    """Tokens of a request above which the older part of the conversation is replaced by a summary."""
    keep_tokens: Annotated[int, Field(ge=0)] = 10_000
    """Tokens of the newest messages, which are never replaced."""
    idle: Idle = Idle()
    """Compaction of idle chats."""
    provider: Literal["auto", "never"] = "auto"
    """`auto`: the provider summarises if the model supports it. Otherwise the model is asked with a built-in prompt."""


class Context(StrictModel):
    """The part of a conversation that the model sees."""

    max_messages: Annotated[int, Field(ge=2, le=100_000)] = 60
    """Max messages of one chat in the model's context."""
    max_injected_messages: Annotated[int, Field(ge=0, le=10_000)] = 120
    """Max older messages that one turn may load into the context."""
    mask_threshold_tokens: Annotated[int, Field(ge=0)] = 8_000
    """Tokens of context above which old tool results are masked if the provider's cache is cold (five minutes after the last request)
    and masking hides at least 2,000 tokens, or if the cache is rewritten anyway. Above three times this value results are also masked
    while the cache is warm, if that hides half of the context.
    """
    keep_recent_observations: Annotated[int, Field(ge=3, le=1_000)] = 4
    """Number of the newest tool results, which are never masked."""
    compaction: Compaction = Compaction()
    """Replacement of the older part of a conversation by a summary or by the notes about the chat."""


class Prompt(StrictModel):
    """Instructions for the model: a text, or the path of a `.md` or `.txt` file in the project."""

    custom: Annotated[str, Field(min_length=1, max_length=100_000)] | None = None
    """Replaces the built-in rules."""
    append: Annotated[str, Field(min_length=1, max_length=100_000)] | None = None
    """Appended to the system prompt."""

    def sources(self, root: Path) -> dict[str, str | Path]:
        """The text or the file of each key; "" if it is not set."""
        found: dict[str, str | Path] = {}
        for name, value in (("custom", self.custom or ""), ("append", self.append or "")):
            is_file = "\n" not in value and value.endswith((".md", ".txt"))
            found[name] = root / value if is_file else value
        return found


class History(StrictModel):
    """The archive of messages (`.ship/chats/`)."""

    archive_after_lines: Annotated[int, Field(ge=2, le=10_000_000)] = 1_000
    """Lines of a chat's archive above which the older half moves to another file."""
    keep_days: dict[Annotated[str, AfterValidator(_chat)], Annotated[int, Field(ge=1, le=36_500)]] = {}
    """Days after which the data of a chat is deleted: its archive and search index, the model's context and actions, recorded requests,
    files of the web page. By chatKey (threads and topics included), or `"*"` for all other chats. Chats without an entry are kept.
    """

    def days(self, chat: ChatKey) -> int | None:
        """Days for which a chat is kept. None: for ever."""
        named = (self.keep_days.get(str(key)) for key in (chat, chat.chat))
        return next((days for days in named if days is not None), self.keep_days.get("*"))


class Queue(StrictModel):
    """Messages that arrive while a turn of their chat runs."""

    mode: Literal["steer", "followup", "collect", "interrupt"] = "steer"
    """`steer`: a message joins the question and the model is asked again, if nothing of the answer was shown and no tool with effects has
    run, at most twice a turn; later messages join the running turn at its next step. `followup`: each gets its own turn afterwards.
    `collect`: all get one turn afterwards. `interrupt`: the running turn ends and a new one starts.
    """
    max_concurrent_turns: Annotated[int, Field(ge=1, le=100_000)] = 1_024
    """Max turns that run at the same time, in all chats."""
    debounce_ms: Annotated[int, Field(ge=0, le=60_000)] = 0
    """Milliseconds for which a turn waits for further messages of the same person before it starts."""


class Delivery(StrictModel):
    """Sending of messages to the platforms."""

    limits: bool = True
    """Respect the platforms' rate limits. false: only for tests against your own servers."""
    max_file_mb: int = Field(default=20, ge=1, le=50)
    """Max size of a sent file in megabytes. The platform's own limit applies too."""
    long_as_files: bool = True
    """In Slack and Telegram, send code of more than 60 lines and wide tables as files next to the answer."""


class Permissions(StrictModel):
    """Rules such as `run_shell(git status)`. `deny` overrides `ask`, `ask` overrides `allow`."""

    allow: tuple[str, ...] = ()
    """Tool calls that need no approval."""
    ask: tuple[str, ...] = ()
    """Tool calls that a person has to approve."""
    deny: tuple[str, ...] = ()
    """Tool calls that are refused."""


class ShellLimits(StrictModel):
    """Limits of one command. null: the machine's own."""

    memory_mb: Annotated[int, Field(ge=16)] | None = 4_096
    """Memory of each of its processes in MB."""
    processes: Annotated[int, Field(ge=4)] | None = 512
    """Concurrent processes, including those of root."""
    file_mb: Annotated[int, Field(ge=1)] | None = 1_024
    """Size of each file that it writes, in MB."""
    cpu_seconds: Annotated[int, Field(ge=1)] | None = 600
    """CPU seconds of each of its processes."""
    disk_mb: Annotated[int, Field(ge=1)] | None = 4_096
    """Total MB that it writes. Never more than half of the free space of the project's disk."""
    tmp_mb: Annotated[int, Field(ge=1)] | None = 512
    """Size of its `/tmp` in MB, and of its shared memory. Both are in memory and deleted when it ends."""


class WebSearch(StrictModel):
    """The search engine of `web_search`."""

    kind: Literal["auto", "off", "searxng", "brave"] = "auto"
    """`auto`: the model provider's own, if there is one. `off`: no search. Otherwise the engine of this name."""
    base_url: Address | None = None
    """Address of SearXNG, which must have JSON enabled; for Brave, an address other than its own."""
    api_key: str | None = None
    """API key of Brave."""


class Tools(StrictModel):
    """Tools that need an external service."""

    web_search: Annotated[
        WebSearch,
        BeforeValidator(
            lambda value: {"kind": value} if isinstance(value, str) else value,
            json_schema_input_type=Literal["auto", "off"] | WebSearch,
        ),
    ] = WebSearch()
    """`auto`, `off`, or an engine of your own."""


class Shell(StrictModel):
    """Commands that the model runs (`run_shell`)."""

    isolation: Literal["required", "off"] = "required"
    """`required`: commands run only inside a sandbox (bubblewrap). `off`: commands run unsandboxed with the rights of Shipmate's user."""
    network: bool = False
    """Give commands network access."""
    limits: ShellLimits = ShellLimits()
    """Limits of one command."""


class PerTurn(StrictModel):
    """Limits of all tasks of one turn together."""

    max_tokens: Annotated[int, Field(ge=1_000)] = 2_000_000
    """Input and output tokens."""
    max_usd: Share | None = 5.0
    """US dollars."""


class Subagents(StrictModel):
    """Limits of the model's tasks (subagents). null: no limit."""

    max_model_calls: Annotated[int, Field(ge=1, le=1_000)] = 30
    """Calls of the model per task."""
    max_tokens: Annotated[int, Field(ge=1_000)] = 500_000
    """Input and output tokens per task, cached ones included."""
    max_usd: Share | None = 1.0
    """US dollars per task."""
    max_seconds: Annotated[int, Field(ge=1, le=86_400)] = 900
    """Seconds per task, without the time spent waiting for people."""
    max_concurrent: Annotated[int, Field(ge=1, le=1_000)] = 20
    """Concurrent tasks of one turn."""
    per_turn: PerTurn = PerTurn()
    """Limits of all tasks of one turn together."""


class Skills(StrictModel):
    """Skills: folders with a `SKILL.md`, which the model loads when it needs them."""

    paths: tuple[str, ...] = ()
    """Folders that contain skills, in addition to `.claude/skills`."""


def _server_name(value: str) -> str:
    if not _SERVER.fullmatch(value) or "__" in value:
        raise ValueError(
            "expected at most 32 of A-Z, a-z, 0-9, _ and -, a letter or digit at both ends, no __; rename it"
        )
    return value


class McpServer(StrictModel):
    """An MCP server: a program (`command`) or an address (`url`)."""

    type: Literal["stdio", "http"] | None = None
    """Default: `stdio` with a `command`, `http` with a `url`."""
    command: Annotated[str, Field(min_length=1)] | None = None
    """The program."""
    args: tuple[str, ...] = ()
    """Arguments of the program. `.`, `./…` and `../…` are relative to the project's folder."""
    env: dict[str, str] = {}
    """Environment variables of the program, in addition to `PATH`, `HOME` and the like. It gets no others of Shipmate's."""
    url: Address | None = None
    """Address of the server."""
    headers: dict[str, str] = {}
    """Headers of each request. `${NAME}` is replaced from the environment."""
    enabled: bool = True
    """false: the server is not started."""
    timeout_ms: Annotated[int, Field(ge=100, le=3_600_000)] = 60_000
    """Timeout of one call in milliseconds."""


class Mcp(StrictModel):
    """Servers of the Model Context Protocol (MCP)."""

    servers: dict[Annotated[str, AfterValidator(_server_name)], McpServer] = {}
    """Servers by name. Their tools are called `mcp__<name>__<tool>`."""


class Budgets(StrictModel):
    """Max cost per day (UTC). Operators are warned at 80 %. When a budget is spent, they are asked whether to continue. null: no limit."""

    per_chat_usd_per_day: Share | None = None
    """US dollars per chat and day, threads included."""
    per_user_usd_per_day: Share | None = None
    """US dollars per person and day, in all chats."""

    @property
    def limits(self) -> dict[Literal["chat", "person"], float]:
        """The limits that are set."""
        found: dict[Literal["chat", "person"], float] = {}
        if self.per_chat_usd_per_day is not None:
            found["chat"] = self.per_chat_usd_per_day
        if self.per_user_usd_per_day is not None:
            found["person"] = self.per_user_usd_per_day
        return found


class Log(StrictModel):
    """The operator's log."""

    keep_days: Annotated[int, Field(ge=1, le=36_500)] = 30
    """Days after which a log file is deleted."""
    max_mb: Annotated[int, Field(ge=1, le=16_777_216)] = 1_000
    """Max megabytes on disk; past days are compressed. Above it the oldest files are deleted."""


class Schedule(StrictModel):
    """Jobs that people ask for, such as “every weekday at 8:30”."""

    timezone: Annotated[str, Field(min_length=1, max_length=100), AfterValidator(_zone)] = "UTC"
    """Time zone (a name of the tz database) of people who have set none and whose platform reports none."""
    max_per_chat: Annotated[int, Field(ge=0, le=1_000)] = 20
    """Max jobs per chat, threads included."""
    min_minutes: Annotated[int, Field(ge=1, le=10_080)] = 5
    """Min minutes between two runs of a job."""
    grace_minutes: Annotated[int, Field(ge=0, le=10_080)] = 120
    """Max minutes by which a job may run late. After that the run is skipped and the chat is told."""


class Dashboard(StrictModel):
    """The server of `/healthz`, `/readyz`, `/metrics` and the operators' console."""

    enabled: bool = True
    """false: no server."""
    host: str = "127.0.0.1"
    """Address to listen on. Any but loopback requires a `token`."""
    port: Port = 3001
    """Port; 0 chooses a free one."""
    token: str | None = None
    """Token (`Authorization: Bearer …`) for the metrics and for the details of failures."""


class Transcription(StrictModel):
    """Endpoint that transcribes voice notes, compatible with OpenAI's transcriptions."""

    base_url: Address | None = None
    """Address before `/audio/transcriptions`, such as `https://api.openai.com/v1`. Default: voice notes are not transcribed."""
    api_key: str | None = None
    """API key of the endpoint, if it needs one."""
    model: str = "whisper-1"
    """Model of the endpoint."""


class Files(StrictModel):
    """Files that people send. Text files, office files and PDFs are read."""

    max_bytes: Annotated[int, Field(ge=1, le=10_000_000)] = 1_000_000
    """Max bytes of text in one file. A larger text file is not read; of an office file the beginning is."""
    max_packed_bytes: Annotated[int, Field(ge=1, le=20_000_000)] = 5_000_000
    """Max bytes of an office file or PDF; a larger one is not read."""
    pictures: bool = True
    """Show pictures to the model. false: for models without vision."""
    pdf_pages: Annotated[int, Field(ge=0, le=100)] = 20
    """Max pages of a PDF that is shown to the model as it is; of a longer one it gets only the text."""
    per_message: Annotated[int, Field(ge=0, le=50)] = 5
    """Max files of one message that are read."""
    transcription: Transcription = Transcription()
    """Endpoint that transcribes voice notes."""


class Memory(StrictModel):
    """Memory of the process."""

    limit_mb: Annotated[int, Field(ge=128, le=16_777_216)] = 1_024
    """Megabytes of memory. Close to the limit caches are emptied; above it files are refused."""


POSTGRESQL_BEFORE = "dbos"
"""The former name of the engine `postgresql`, still accepted."""


def _engine(value: object) -> object:
    return "postgresql" if value == POSTGRESQL_BEFORE else value


class Engine(StrictModel):
    """The database of the chats."""

    kind: Annotated[Literal["embedded", "postgresql"], BeforeValidator(_engine)] = "embedded"
    """`embedded`: a file in `.ship`. `postgresql`: a database; needs `pip install 'psycopg[binary]>=3.3,<4'`."""
    database_url: str | None = None
    """Address of the database, such as `postgresql://user:password@host/shipmate`. Use a variable: it contains a password."""


class ShipFile(StrictModel):
    """The settings of one Shipmate."""

    schema_: Annotated[str, Field(alias="$schema")] = "./.ship/schema/ship.schema.json"
    """Schema for editors."""
    name: Annotated[str, Field(max_length=80), AfterValidator(_title)] = "shipmate"
    """Name by which the bot calls itself."""
    llm: Llm = Llm()
    """The language model."""
    operators: tuple[str, ...] = ()
    """Ids of the operators, who may approve tool calls and use operators' commands: `telegram:123`, `slack:U…`."""
    context: Context = Context()
    """The part of a conversation that the model sees."""
    prompt: Prompt = Prompt()
    """Instructions for the model."""
    history: History = History()
    """The archive of messages."""
    queue: Queue = Queue()
    """Messages that arrive while a turn of their chat runs."""
    delivery: Delivery = Delivery()
    """Sending of messages to the platforms."""
    permissions: Permissions = Permissions()
    """Rules for tool calls."""
    tools: Tools = Tools()
    """Tools that need an external service."""
    shell: Shell = Shell()
    """Commands that the model runs (`run_shell`)."""
    subagents: Subagents = Subagents()
    """Limits of the model's tasks (subagents)."""
    skills: Skills = Skills()
    """Skills: folders with a `SKILL.md`."""
    mcp: Mcp = Mcp()
    """Servers of the Model Context Protocol (MCP)."""
    budgets: Budgets = Budgets()
    """Max cost per day."""
    log: Log = Log()
    """The operator's log."""
    schedule: Schedule = Schedule()
    """Jobs that people ask for."""
    dashboard: Dashboard = Dashboard()
    """The server of `/healthz`, `/readyz`, `/metrics` and the operators' console."""
    files: Files = Files()
    """Files that people send."""
    memory: Memory = Memory()
    """Memory of the process."""
    engine: Engine = Engine()
    """The database of the chats."""


CHANNELS = (
    "The places where people talk to the bot. By default a channel takes its tokens from the environment."
)


@functools.lru_cache(maxsize=8)  # to make one takes longer than to read a file by it
def with_channels(sections: tuple[tuple[str, type[BaseModel]], ...]) -> type[ShipFile]:
    """Build the model of a ship.json with these channels."""
    fields: dict[str, Any] = {name: (settings, Field(alias=name)) for name, settings in sections}
    channels = create_model("Channels", __base__=StrictModel, **fields)
    return create_model(
        "Ship", __base__=ShipFile, channels=(channels, Field(alias="channels", description=CHANNELS))
    )

"""Models of the sections of ship.json. The settings of a channel are defined in the channel's manifest.

`make schema` writes the docstrings of fields into docs/settings.md.
"""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    create_model,
    model_validator,
)
from pydantic.alias_generators import to_camel

from bot import errors
from bot.contracts.channel import Manifest
from bot.contracts.identity import ChatKey
from bot.words.times import zone

_SERVER = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,30}[A-Za-z0-9])?")

# ------------------------------------------------------------ values. Each validator returns the value, or raises ValueError


def _address(value: str) -> str:
    try:
        parts = urlsplit(value)
        sound = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        sound = False
    if not sound:
        raise ValueError("expected an address such as https://example.org/; write it in full")
    return value


def _time_zone(value: str) -> str:
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


def _chat_key(value: str) -> str:
    if value != "*":
        try:
            ChatKey.parse(value)
        except errors.IdentityInvalid:
            raise ValueError('expected a chatKey, as `shipmate chats` shows it, or "*"') from None
    return value


def _server_name(value: str) -> str:
    if not _SERVER.fullmatch(value) or "__" in value:
        raise ValueError(
            "expected at most 32 of A-Z, a-z, 0-9, _ and -, a letter or digit at both ends, no __; rename it"
        )
    return value


def credential(value: str) -> str:
    """Return the token. Raises ValueError if an HTTP header cannot contain it."""
    if not value.isascii() or not value.isprintable() or " " in value:
        raise ValueError("expected a token without white space and odd characters; copy it again")
    return value


def _must_be_installed(module: str, package: str) -> None:
    """Raise ValueError if an optional library is missing."""
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:  # a package that contains the module is missing
        found = None
    if found is None:
        raise ValueError(f"expected its library; run `pip install '{package}'`")


def wrong_id(entry: str, manifest: Manifest) -> str:
    """Return the reason why a platform's id of a person or channel is not accepted; "" if the id is accepted."""
    if "@" in entry or not manifest.valid_id(entry):
        return (
            f"expected a stable id of {manifest.name}; names can be changed by anyone, so only stable ids count; "
            "`shipmate pending` lists who asked"
        )
    if entry in manifest.never_admit:
        return "expected the id of one person or channel; this one stands for many people: remove it"
    return ""


def wrong_operator(entry: str, manifests: Mapping[str, Manifest]) -> str:
    """Return the reason why the name of an operator (`channel:ID`) is not accepted; "" if the name is accepted."""
    name, colon, person = entry.partition(":")
    if not colon or name not in manifests:
        known = ", ".join(sorted(manifests))
        return f"expected channel:ID with one of {known}; write it as in telegram:123456789"
    return wrong_id(person, manifests[name])


# ------------------------------------------------------------ sections

Effort = Literal["low", "medium", "high"]
Thinking = Literal["adaptive", "between_tools", "off"]
Purpose = Literal["memory", "compaction", "title", "task", "overheard"]
Port = Annotated[int, Field(ge=0, le=65_535)]
Address = Annotated[str, AfterValidator(_address)]
ModelAddress = Annotated[Address, AfterValidator(lambda value: re.sub(r"/v1(?:/messages)?/*$", "", value))]
"""Address of a model's provider, without `/v1/messages`, which the provider's library adds."""
ModelName = Annotated[str, Field(min_length=1, max_length=200)]
Credential = Annotated[str, AfterValidator(credential)]
Share = Annotated[float, Field(gt=0)]
Dollars = Annotated[float, Field(ge=0, le=100_000)]


class StrictModel(BaseModel):
    """Base class of all models of ship.json. The schema describes each field with the docstring below that field."""

    model_config = ConfigDict(
        extra="forbid", alias_generator=to_camel, validate_by_name=True, frozen=True, strict=True
    )


class ModelPrice(StrictModel):
    """Prices of a model in US dollars per million tokens."""

    input: Dollars
    """Price of input tokens."""
    output: Dollars
    """Price of output tokens."""
    cache_read: Dollars | None = None
    """Price of tokens read from the cache. null: the input price."""
    cache_write: Dollars | None = None
    """Price of tokens written to the cache for five minutes. null: 1.25 × the input price."""
    cache_write_hour: Dollars | None = None
    """Price of tokens written to the cache for an hour. null: 2 × the input price."""


class ModelUse(StrictModel):
    """Model, effort and thinking for one purpose. Each default is the value that the chat uses."""

    model: ModelName | None = None
    """Name of the model."""
    effort: Effort | None = None
    """Effort of the model, with the same values as `llm.effort`."""
    thinking: Thinking | None = None
    """Thinking of the model, with the same values as `llm.thinking`."""


class Fallback(StrictModel):
    """A model that is asked if all models before it have failed: another model of the same provider, or one at another address."""

    provider: Literal["anthropic"] | None = None
    """`anthropic`: ask this model at Anthropic's address. Default: ask the model at the address in `baseUrl`."""
    model: ModelName | None = None
    """Name of the model at that address. Default: the name of the model that failed first."""
    base_url: ModelAddress | None = None
    """Address of the provider. Default: the address of `llm`."""
    api_key: Annotated[Credential | None, Field(repr=False)] = None
    """API key for that address. Default: the key of `llm`, which is never sent to another address."""

    def address(self, first: str | None) -> str | None:
        """Return the address of this model's provider; None means the provider's default address. `first` is the
        address of the first model.
        """
        return self.base_url or (None if self.provider else first)


class Llm(StrictModel):
    """The language model."""

    provider: Literal["anthropic", "demo"] | None = None
    """Provider of the model. Default: `anthropic` if a key is set, else `demo`."""
    model: ModelName = "claude-sonnet-5-5"
    """Model of all chats that have not chosen a model with `/model`."""
    api_key: Annotated[Credential | None, Field(repr=False)] = None
    """API key of the provider. Default: `${ANTHROPIC_API_KEY}`."""
    base_url: ModelAddress | None = None
    """Address of the provider, or of a compatible endpoint. Default: the provider's default address."""
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] = 8192
    """Max tokens of an answer."""
    context_window: Annotated[int, Field(ge=1_000, le=100_000_000)] | None = None
    """Context window in tokens. null: the provider's value for the model."""
    fast_model: ModelName = "claude-haiku-5-5"
    """Model that combines the results of several tasks."""
    effort: Effort = "medium"
    """Effort of the model for an answer, if the model supports this setting. `/effort` sets the effort of one chat."""
    thinking: Thinking = "adaptive"
    """`adaptive`: the model thinks as much as it needs. `between_tools`: the model only comments between
    tool calls. `off`: the model thinks as little as the provider allows.
    """
    purposes: dict[Purpose, ModelUse] = {}
    """Model, effort and thinking for purposes other than answers: `memory` (notes), `compaction` (summaries of conversations),
    `task` (subagents), `overheard` (messages not addressed to the bot). `title` has no effect. Titles need no model.
    """
    prices: dict[ModelName, ModelPrice] = {}
    """Prices by model. These prices override the built-in prices, which `shipmate check` lists with their date."""
    retry_seconds: Annotated[float, Field(ge=0, le=3_600)] = 30
    """Seconds for which a request is retried while the provider is overloaded, failing or unreachable. 0: no retries."""
    fallback: tuple[Fallback, ...] = ()
    """Models that are asked one after another if the first model is overloaded for 5 seconds, refuses the request or is
    unreachable. The first model is asked again after five minutes.
    """
    provider_fallbacks: bool = False
    """Allow the provider to answer with another of its models if the chosen model refuses to answer."""
    log_messages: bool = True
    """Log the text of people's messages and of the model's answers."""


class Idle(StrictModel):
    """Compaction of idle chats."""

    enabled: bool = True
    """Compact a chat in which nobody writes, shortly before the provider's cache of this chat expires."""
    above_tokens: Annotated[int, Field(ge=0)] = 8_000
    """Min tokens of the chat's last request. A chat with fewer tokens is not compacted while idle."""


class Compaction(StrictModel):
    """Compaction: a summary, or the notes about the chat, replaces the older part of a conversation."""

    enabled: bool = True
    """Compact conversations and take notes automatically. false: only when a person asks for it."""
    soft_tokens: Annotated[int, Field(ge=1)] = 40_000
    """Max tokens of a request. Above this number, a summary replaces the older part of the conversation."""
    keep_tokens: Annotated[int, Field(ge=0)] = 10_000
    """The newest messages, up to this number of tokens, are always kept unchanged."""
    idle: Idle = Idle()


class Context(StrictModel):
    """The part of a conversation that is sent to the model."""

    max_messages: Annotated[int, Field(ge=2, le=100_000)] = 60
    """Max messages of one chat in the model's context. The chat's memory replaces older messages."""
    max_injected_messages: Annotated[int, Field(ge=0, le=10_000)] = 120
    """Max older messages that one turn may load into the model's context."""
    mask_threshold_tokens: Annotated[int, Field(ge=0)] = 8_000
    """Min tokens of the context before old tool results are masked (replaced by a note). They are masked if the
    provider's cache has expired (five minutes after the last request) and masking saves at least 2,000 tokens, or if
    the cache is rewritten anyway. Above three times this value, they are also masked while the cache is valid, if that
    saves half of the context.
    """
    keep_recent_observations: Annotated[int, Field(ge=3, le=1_000)] = 4
    """Number of the newest tool results that are never masked."""
    compaction: Compaction = Compaction()


def _is_file(value: str) -> bool:
    return "\n" not in value and value.endswith((".md", ".txt"))


def _instructions(value: str | None, info: ValidationInfo) -> str | None:
    if value and _is_file(value) and info.context and not (info.context["root"] / value).is_file():
        raise ValueError("expected a file in the project, or a text; write it, or the text itself")
    return value


Instructions = Annotated[
    Annotated[str, Field(min_length=1, max_length=100_000)] | None, AfterValidator(_instructions)
]


class Prompt(StrictModel):
    """Instructions for the model. Each value is a text, or the path of a `.md` or `.txt` file in the project."""

    custom: Instructions = None
    """Instructions that replace the built-in rules."""
    append: Instructions = None
    """Instructions that are appended to the system prompt."""

    def sources(self, root: Path) -> dict[str, str | Path]:
        """Return the text or the file for each key; "" if the key is not set."""
        values = {"custom": self.custom or "", "append": self.append or ""}
        return {name: root / value if _is_file(value) else value for name, value in values.items()}


class History(StrictModel):
    """The archive of messages (`.ship/chats/`)."""

    archive_after_lines: Annotated[int, Field(ge=2, le=10_000_000)] = 1_000
    """Max lines in the newest file of a chat's archive. Above this number, the older half of the lines moves to another file."""
    keep_days: dict[Annotated[str, AfterValidator(_chat_key)], Annotated[int, Field(ge=1, le=36_500)]] = {}
    """Days after which a chat's data is deleted: its archive and search index, the model's context and actions,
    recorded requests, files of the web page. The keys are chatKeys (threads and topics included), or `"*"` for all
    other chats. A chat without an entry is kept forever.
    """

    def days(self, chat: ChatKey) -> int | None:
        """Return the number of days for which a chat is kept; None if it is kept forever."""
        named = (self.keep_days.get(str(key)) for key in (chat, chat.chat))
        return next((days for days in named if days is not None), self.keep_days.get("*"))


class Queue(StrictModel):
    """Handling of messages that arrive while the bot is answering in the same chat."""

    mode: Literal["steer", "followup", "collect", "interrupt"] = "steer"
    """`steer`: as long as no part of the answer was shown and no tool with effects has run, a new message makes Shipmate ask
    the model again, at most twice a turn. Otherwise the message joins the running turn at its next step. `followup`: each
    message gets its own turn afterwards. `collect`: all messages get one turn together afterwards. `interrupt`: the
    running turn ends and a new turn starts.
    """
    max_concurrent_turns: Annotated[int, Field(ge=1, le=100_000)] = 1_024
    """Max turns that run at the same time, over all chats."""
    debounce_ms: Annotated[int, Field(ge=0, le=60_000)] = 0
    """Milliseconds for which a turn waits for further messages of the same person before it starts."""


class Delivery(StrictModel):
    """Sending of messages to the platforms."""

    limits: bool = True
    """Respect the platforms' rate limits. Use false only for tests against your own servers."""
    max_file_mb: int = Field(default=20, ge=1, le=50)
    """Max size in megabytes of a file that the bot sends. The platform's own limit applies too."""
    long_as_files: bool = True
    """In Slack and Telegram, send code of more than 60 lines, and wide tables, as files next to the answer."""


class Permissions(StrictModel):
    """Rules for tool calls, such as `run_shell(git status)`. `deny` overrides `ask`, and `ask` overrides `allow`."""

    allow: tuple[str, ...] = ()
    """Tool calls that need no approval."""
    ask: tuple[str, ...] = ()
    """Tool calls that a person has to approve."""
    deny: tuple[str, ...] = ()
    """Tool calls that are refused."""


class ShellLimits(StrictModel):
    """Limits of one command. null: the limit of the machine."""

    memory_mb: Annotated[int, Field(ge=16)] | None = 4_096
    """Max memory in MB of each process of the command."""
    processes: Annotated[int, Field(ge=4)] | None = 512
    """Max processes that run at the same time. Processes of root count too."""
    file_mb: Annotated[int, Field(ge=1)] | None = 1_024
    """Max size in MB of each file that the command writes."""
    cpu_seconds: Annotated[int, Field(ge=1)] | None = 600
    """Max CPU seconds of each process of the command."""
    disk_mb: Annotated[int, Field(ge=1)] | None = 4_096
    """Max MB that the command writes in total. The command also never gets more than half of the free disk space."""
    tmp_mb: Annotated[int, Field(ge=1)] | None = 512
    """Max size in MB of the command's `/tmp`, and of its shared memory. `/tmp` and shared memory are kept in memory and end with the command."""


class WebSearch(StrictModel):
    """The search engine of `web_search`."""

    kind: Literal["auto", "off", "searxng", "brave"] = "auto"
    """`auto`: the search of the model's provider, if it offers one. `off`: no search. `searxng`, `brave`: that engine."""
    base_url: Address | None = None
    """Address of SearXNG, whose JSON output must be enabled. For Brave: an address to use instead of the default."""
    api_key: str | None = None
    """API key for Brave."""

    @model_validator(mode="after")
    def _can_search(self) -> Self:
        if (self.kind == "searxng" and not self.base_url) or (self.kind == "brave" and not self.api_key):
            raise ValueError("expected a baseUrl for searxng, or an apiKey for brave; set it")
        return self


class Tools(StrictModel):
    """Tools that need an external service."""

    web_search: Annotated[
        WebSearch,
        BeforeValidator(
            lambda value: {"kind": value} if isinstance(value, str) else value,
            json_schema_input_type=Literal["auto", "off"] | WebSearch,
        ),
    ] = WebSearch()
    """Search engine of `web_search`: `auto`, `off`, or an engine of your own."""


class Shell(StrictModel):
    """Commands that the model runs (`run_shell`)."""

    isolation: Literal["required", "off"] = "required"
    """`required`: commands run only in a sandbox (bubblewrap). `off`: commands have the rights of Shipmate's user."""
    network: bool = False
    """Allow commands to use the network."""
    limits: ShellLimits = ShellLimits()


class PerTurn(StrictModel):
    """Limits of all tasks of one turn together."""

    max_tokens: Annotated[int, Field(ge=1_000)] = 2_000_000
    """Max input and output tokens of all tasks of one turn."""
    max_usd: Share | None = 5.0
    """Max cost in US dollars of all tasks of one turn."""


class Subagents(StrictModel):
    """Limits of the model's tasks (subagents). null: no limit."""

    max_model_calls: Annotated[int, Field(ge=1, le=1_000)] = 30
    """Max model calls per task."""
    max_tokens: Annotated[int, Field(ge=1_000)] = 500_000
    """Max input and output tokens per task, including cached tokens."""
    max_usd: Share | None = 1.0
    """Max cost in US dollars per task."""
    max_seconds: Annotated[int, Field(ge=1, le=86_400)] = 900
    """Max seconds per task, without the time spent waiting for people."""
    max_concurrent: Annotated[int, Field(ge=1, le=1_000)] = 20
    """Max tasks of one turn that run at the same time."""
    per_turn: PerTurn = PerTurn()


class Skills(StrictModel):
    """Skills: folders with instructions in a `SKILL.md`. The model loads a skill when it needs the instructions."""

    paths: tuple[str, ...] = ()
    """Folders that contain skills, in addition to `.claude/skills`."""


class McpServer(StrictModel):
    """An MCP server: either a program that Shipmate starts (`command`) or an address (`url`)."""

    type: Literal["stdio", "http"] | None = None
    """Type of the connection. Default: `stdio` with a `command`, `http` with a `url`."""
    command: Annotated[str, Field(min_length=1)] | None = None
    """Program that is started as the server."""
    args: tuple[str, ...] = ()
    """Arguments of the program. `.`, `./…` and `../…` are relative to the project's folder."""
    env: dict[str, str] = {}
    """Environment variables of the program. The program also gets `PATH`, `HOME` and similar variables, but no others."""
    url: Address | None = None
    """Address of the server."""
    headers: dict[str, str] = {}
    """Headers of each request to the server. `${NAME}` is replaced by the environment variable NAME."""
    enabled: bool = True
    """Use this server."""
    timeout_ms: Annotated[int, Field(ge=100, le=3_600_000)] = 60_000
    """Timeout of one call in milliseconds."""

    @model_validator(mode="after")
    def _is_one_way(self) -> Self:
        program = self.type == "stdio" or (self.type is None and self.url is None)
        if self.enabled and (bool(self.command) != program or bool(self.url) == program):
            alone = {"stdio": "command", "http": "url", None: "command or url"}[self.type]
            raise ValueError(f"expected {alone} alone; set command for a program, url for an address")
        return self


class Mcp(StrictModel):
    """Servers of the Model Context Protocol (MCP)."""

    servers: dict[Annotated[str, AfterValidator(_server_name)], McpServer] = {}
    """MCP servers by name. The tools of a server are called `mcp__<name>__<tool>`."""


class Budgets(StrictModel):
    """Max cost per day (UTC); null: no limit. At 80 % operators are warned, at 100 % they are asked whether to continue."""

    per_chat_usd_per_day: Share | None = None
    """Max US dollars per chat and day, threads included."""
    per_user_usd_per_day: Share | None = None
    """Max US dollars per person and day, in all chats."""

    @property
    def limits(self) -> dict[Literal["chat", "person"], float]:
        """Return the limits that are set."""
        both = {"chat": self.per_chat_usd_per_day, "person": self.per_user_usd_per_day}
        return {name: limit for name, limit in both.items() if limit is not None}  # type: ignore[misc]  # the names


class Log(StrictModel):
    """The operator's log."""

    keep_days: Annotated[int, Field(ge=1, le=36_500)] = 30
    """Days after which a log file is deleted."""
    max_mb: Annotated[int, Field(ge=1, le=16_777_216)] = 1_000
    """Max megabytes of the log on disk. Above this size, the oldest files are deleted. Files of past days are compressed."""


def _otel(enabled: bool) -> bool:  # noqa: FBT001 - pydantic passes the value by position
    if enabled:
        _must_be_installed(
            "opentelemetry.exporter.otlp.proto.http", "opentelemetry-exporter-otlp-proto-http>=1.45,<2"
        )
    return enabled


class OpenTelemetry(StrictModel):
    """Export of spans to an OpenTelemetry collector."""

    enabled: Annotated[bool, AfterValidator(_otel)] = False
    """Export a span for each turn, model call, tool call, task and delivery, without texts. Needs `pip install
    'opentelemetry-exporter-otlp-proto-http>=1.45,<2'`.
    """
    endpoint: Address | None = None
    """Address of the collector (OTLP over HTTP), without `/v1/traces`. Default: `OTEL_EXPORTER_OTLP_ENDPOINT`."""


class Telemetry(StrictModel):
    """Exports of traces to monitoring systems."""

    otel: OpenTelemetry = OpenTelemetry()


class Schedule(StrictModel):
    """Jobs that people ask for, such as “every weekday at 8:30”."""

    timezone: Annotated[str, Field(min_length=1, max_length=100), AfterValidator(_time_zone)] = "UTC"
    """Time zone (a name of the tz database) of people who have set none and whose platform reports none."""
    max_per_chat: Annotated[int, Field(ge=0, le=1_000)] = 20
    """Max jobs per chat, threads included."""
    min_minutes: Annotated[int, Field(ge=1, le=10_080)] = 5
    """Min minutes between two runs of a job."""
    grace_minutes: Annotated[int, Field(ge=0, le=10_080)] = 120
    """Max minutes by which a run of a job may be late. A later run is skipped, and a message in the chat says so."""


class Dashboard(StrictModel):
    """The server of `/healthz`, `/readyz`, `/metrics` and the operators' console."""

    enabled: bool = True
    """Run this server."""
    host: str = "127.0.0.1"
    """Address to listen on. Any address other than loopback requires a `token`."""
    port: Port = 3001
    """Port to listen on; 0 chooses a free port."""
    token: str | None = None
    """Token for the metrics and for the details of failures. Requests send it as `Authorization: Bearer …`."""


class Transcription(StrictModel):
    """Endpoint that transcribes voice notes. It must be compatible with OpenAI's transcription API."""

    base_url: Address | None = None
    """Address without `/audio/transcriptions`, such as `https://api.openai.com/v1`. Default: no transcription."""
    api_key: str | None = None
    """API key of the endpoint, if the endpoint needs a key."""
    model: str = "whisper-1"
    """Name of the endpoint's model."""


class Files(StrictModel):
    """Files that people send. Text files, office files and PDFs are read."""

    max_bytes: Annotated[int, Field(ge=1, le=10_000_000)] = 1_000_000
    """Max bytes of text in one file. A larger text file is not read. Of a larger office file, only the beginning is read."""
    max_packed_bytes: Annotated[int, Field(ge=1, le=20_000_000)] = 5_000_000
    """Max bytes of an office file or PDF. A larger file is not read."""
    pictures: bool = True
    """Let the model see pictures. Use false for a model that cannot see pictures."""
    pdf_pages: Annotated[int, Field(ge=0, le=100)] = 20
    """Max pages of a PDF that is sent to the model. Of a longer PDF, the model gets only the text."""
    per_message: Annotated[int, Field(ge=0, le=50)] = 5
    """Max files that are read from one message."""
    transcription: Transcription = Transcription()


class Memory(StrictModel):
    """Limits of the process's memory."""

    limit_mb: Annotated[int, Field(ge=128, le=16_777_216)] = 1_024
    """Max megabytes of memory. Close to the limit, Shipmate frees memory. Above the limit, Shipmate refuses files."""


class Engine(StrictModel):
    """Database that stores the chats."""

    kind: Literal["embedded", "postgresql"] = "embedded"
    """`embedded`: a file in `.ship`. `postgresql`: a server; needs `pip install 'psycopg[binary]>=3.3,<4'`."""
    database_url: str | None = None
    """Address such as `postgresql://user:password@host/shipmate`. Use a variable, because the address contains a password."""

    @model_validator(mode="after")
    def _has_its_database(self) -> Self:
        if self.kind == "embedded" and self.database_url is not None:
            raise ValueError('expected no databaseUrl for "embedded"; remove it, or set kind to "postgresql"')
        if self.kind == "postgresql":
            _must_be_installed("psycopg", "psycopg[binary]>=3.3,<4")
            if not (self.database_url or "").startswith(("postgresql://", "postgres://")):
                raise ValueError(
                    "expected a databaseUrl such as postgresql://user:password@host/shipmate; "
                    "set it to ${DATABASE_URL}, and that in the environment or in .env"
                )
        return self


def _operator(entry: str, info: ValidationInfo) -> str:
    if info.context and (wrong := wrong_operator(entry, info.context["manifests"])):
        raise ValueError(wrong)
    return entry


class ShipFile(StrictModel):
    """All settings of one Shipmate installation."""

    schema_: Annotated[str, Field(alias="$schema")] = "./.ship/schema/ship.schema.json"
    """Path of the JSON Schema that editors use."""
    name: Annotated[str, Field(max_length=80), AfterValidator(_title)] = "shipmate"
    """Name that the bot uses for itself."""
    llm: Llm = Llm()
    operators: tuple[Annotated[str, AfterValidator(_operator)], ...] = ()
    """Ids of the operators, who may approve tool calls and use operators' commands: `telegram:123`, `slack:U…`."""
    context: Context = Context()
    prompt: Prompt = Prompt()
    history: History = History()
    queue: Queue = Queue()
    delivery: Delivery = Delivery()
    permissions: Permissions = Permissions()
    tools: Tools = Tools()
    shell: Shell = Shell()
    subagents: Subagents = Subagents()
    skills: Skills = Skills()
    mcp: Mcp = Mcp()
    budgets: Budgets = Budgets()
    log: Log = Log()
    telemetry: Telemetry = Telemetry()
    schedule: Schedule = Schedule()
    dashboard: Dashboard = Dashboard()
    files: Files = Files()
    memory: Memory = Memory()
    engine: Engine = Engine()


CHANNELS = (
    "The places where people talk to the bot. By default a channel takes its tokens from the environment."
)


@functools.lru_cache(maxsize=8)  # cached, because building a model takes longer than validating a file
def with_channels(sections: tuple[tuple[str, type[BaseModel]], ...]) -> type[ShipFile]:
    """Return the model of ship.json for these channels."""
    fields: dict[str, Any] = {name: (settings, Field(alias=name)) for name, settings in sections}
    channels = create_model("Channels", __base__=StrictModel, **fields)
    return create_model(
        "Ship", __base__=ShipFile, channels=(channels, Field(alias="channels", description=CHANNELS))
    )

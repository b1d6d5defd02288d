"""Models of ship.json without its channels, whose settings models come from their manifests."""

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
Share = Annotated[float, Field(gt=0)]


class StrictModel(BaseModel):
    """Base of the models of ship.json. The words below each of their fields describe it in the schema."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, frozen=True, strict=True)


Dollars = Annotated[float, Field(ge=0, le=100_000)]


class ModelPrice(StrictModel):
    """US dollars for a million tokens of a model."""

    input: Dollars
    """Tokens read."""
    output: Dollars
    """Tokens written."""
    cache_read: Dollars | None = None
    """Tokens read from the cache; null: as those read."""
    cache_write: Dollars | None = None
    """Tokens written to the cache; null: 1.25 times those read."""
    cache_write_hour: Dollars | None = None
    """Tokens written to it for an hour; null: twice those read."""


class ModelUse(StrictModel):
    """The model for one purpose, and how it answers. Absent: as in the chat."""

    model: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """The model's name."""
    effort: Effort | None = None
    """As `llm.effort`."""
    thinking: Thinking | None = None
    """As `llm.thinking`."""


class Fallback(StrictModel):
    """A model that answers where those before it do not: another one of the same provider, or at another address."""

    provider: Literal["anthropic"] | None = None
    """`anthropic`: at its own address. Absent: at `baseUrl`."""
    model: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """Its name there. Absent: the model that was asked."""
    base_url: Address | None = None
    """Address of its provider. Absent or null: that of `llm`."""
    api_key: str | None = None
    """The key of that address. Absent: that of `llm`, which goes to no other address."""

    def address(self, first: str | None) -> str | None:
        """Its address, where the first model is at this one; None is the provider's own."""
        return self.base_url or (None if self.provider else first)


class Llm(StrictModel):
    """The language model."""

    provider: Literal["anthropic", "demo"] | None = None
    """The provider of the model. Absent: `anthropic` where a key is set, else `demo`."""
    model: Annotated[str, Field(min_length=1, max_length=200)] = "claude-sonnet-5-5"
    """The model of every chat that has not chosen another one with `/model`."""
    api_key: str | None = None
    """The provider's key. Absent: `${ANTHROPIC_API_KEY}`."""
    base_url: Address | None = None
    """Address of the provider. Absent or null: its own."""
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] = 8192
    """Most tokens of one answer."""
    context_window: Annotated[int, Field(ge=1_000, le=100_000_000)] | None = None
    """Tokens that fit into one request; null: known for the model."""
    fast_model: Annotated[str, Field(min_length=1, max_length=200)] = "claude-haiku-5-5"
    """The model that brings the results of several tasks together."""
    effort: Effort = "medium"
    """Effort of the model for an answer, where it knows of efforts; `/effort` sets it for one chat."""
    thinking: Thinking = "adaptive"
    """`adaptive`: the model thinks as much as it needs. `between_tools`: it only notes what it does. `off`: as little as it allows."""
    purposes: dict[Purpose, ModelUse] = {}
    """Another model, effort or thinking for what is not an answer to a person: keeping the `memory`, the `compaction` of a
    conversation, a `task`, what is `overheard`. A `title` is made of the person's words, without a model."""
    prices: dict[Annotated[str, Field(min_length=1, max_length=200)], ModelPrice] = {}
    """Prices by model, before those that are built in (`shipmate check` says which models have one, and of which day)."""
    retry_seconds: Annotated[float, Field(ge=0, le=3_600)] = 30
    """Seconds for which a request is repeated while the provider is overloaded, failing or cut off; 0: never."""
    fallback: tuple[Fallback, ...] = ()
    """Models that are asked in turn where the first is overloaded for five seconds, refuses or is gone; the first again after five minutes."""
    provider_fallbacks: bool = False
    """Let the provider answer with another of its models where this one refuses."""
    log_messages: bool = True
    """Write words of people and of the model to log lines."""


class Idle(StrictModel):
    """Compaction of a chat that has gone quiet."""

    enabled: bool = True
    """Compact a chat that goes quiet shortly before the provider's cache forgets it."""
    above_tokens: Annotated[int, Field(ge=0)] = 8_000
    """Only where the last request had more tokens than this."""


class Compaction(StrictModel):
    """A summary or the memory takes the place of the older part of a conversation."""

    enabled: bool = True
    """False: compact and remember only on request."""
    soft_tokens: Annotated[int, Field(ge=1)] = 40_000
    """Tokens of a request above which the older part of the history gives way to a summary."""
    keep_tokens: Annotated[int, Field(ge=0)] = 10_000
    """Tokens of it that stay as they are."""
    idle: Idle = Idle()
    """Compaction of a chat that has gone quiet."""
    provider: Literal["auto", "never"] = "auto"
    """`auto`: the provider summarises where the model can; else the model is asked with a prompt of ours."""


class Context(StrictModel):
    """The part of a conversation that the model is shown."""

    max_messages: Annotated[int, Field(ge=2, le=100_000)] = 60
    """Messages of the model's API that one chat keeps in view."""
    max_injected_messages: Annotated[int, Field(ge=0, le=10_000)] = 120
    """Older messages that one turn may bring back into view."""
    mask_threshold_tokens: Annotated[int, Field(ge=0)] = 8_000
    """Above this many tokens in view old tool results are masked: where the provider's cache is cold (five minutes after the
    last request) once that hides 2,000 tokens, or is rewritten anyway; above three times as many also while it is warm,
    once that hides half of what is in view.
    """
    keep_recent_observations: Annotated[int, Field(ge=3, le=1_000)] = 4
    """So many of the newest tool results are never masked."""
    compaction: Compaction = Compaction()
    """A summary or the memory takes the place of the older part of a conversation."""


class Prompt(StrictModel):
    """Instructions for the model. Each is a text, or the path of a file in the project, which ends in `.md` or `.txt`."""

    custom: Annotated[str, Field(min_length=1, max_length=100_000)] | None = None
    """Takes the place of the built-in rules."""
    append: Annotated[str, Field(min_length=1, max_length=100_000)] | None = None
    """Comes after everything else in the system prompt."""

    def sources(self, root: Path) -> dict[str, str | Path]:
        """The text or the file of each key; "" where it is not set."""
        found: dict[str, str | Path] = {}
        for name, value in (("custom", self.custom or ""), ("append", self.append or "")):
            is_file = "\n" not in value and value.endswith((".md", ".txt"))
            found[name] = root / value if is_file else value
        return found


class History(StrictModel):
    """The archive of what was said (`.ship/chats/`)."""

    archive_after_lines: Annotated[int, Field(ge=2, le=10_000_000)] = 1_000
    """Above so many lines the older half of a chat's archive moves to a file of its own."""
    keep_days: dict[Annotated[str, AfterValidator(_chat)], Annotated[int, Field(ge=1, le=36_500)]] = {}
    """Days after which what was said goes, by chatKey (threads and topics included) or `"*"` for all chats that are not named:
    lines of the archive and of the search index, what the model was told and did, recorded requests, files of the web page. Chats that
    are not named stay.
    """

    def days(self, chat: ChatKey) -> int | None:
        """Days for which a chat is kept; None without end."""
        named = (self.keep_days.get(str(key)) for key in (chat, chat.chat))
        return next((days for days in named if days is not None), self.keep_days.get("*"))


class Queue(StrictModel):
    """Messages that come while a turn of their chat runs."""

    mode: Literal["steer", "followup", "collect", "interrupt"] = "steer"
    """`steer`: they are part of the question while nothing of the answer was shown and no tool with effects has run, twice a
    turn at most; after that the running turn takes them up at its next step. `followup`: each gets a turn of its own afterwards. `collect`:
    they get one turn together afterwards. `interrupt`: the running turn ends, and they begin the next.
    """
    max_concurrent_turns: Annotated[int, Field(ge=1, le=100_000)] = 1_024
    """Turns that run at the same time, over all chats."""
    debounce_ms: Annotated[int, Field(ge=0, le=60_000)] = 0
    """So long a turn waits for further messages of the same person before it begins; 0 begins at once."""


class Delivery(StrictModel):
    """Messages on their way to the platforms."""

    limits: bool = True
    """Keep to the rate limits of the platforms. False is for tests against servers of one's own only."""
    max_file_mb: int = Field(default=20, ge=1, le=50)
    """The largest file that is sent, in megabytes; the least of this and of what the platform takes counts."""
    long_as_files: bool = True
    """In Slack and Telegram, send code of more than 60 lines and tables that are too wide to read as files beside the answer."""


class Permissions(StrictModel):
    """Rules such as `run_shell(git status)`; deny goes before ask, ask before allow."""

    allow: tuple[str, ...] = ()
    """Calls that need no approval."""
    ask: tuple[str, ...] = ()
    """Calls that a person has to approve."""
    deny: tuple[str, ...] = ()
    """Calls that are refused."""


class ShellLimits(StrictModel):
    """Limits of one command. Null: the machine's own."""

    memory_mb: Annotated[int, Field(ge=16)] | None = 4_096
    """Memory of each of its processes, in MB."""
    processes: Annotated[int, Field(ge=4)] | None = 512
    """Processes at the same time, those of root counted too."""
    file_mb: Annotated[int, Field(ge=1)] | None = 1_024
    """Size of each file that it writes, in MB."""
    cpu_seconds: Annotated[int, Field(ge=1)] | None = 600
    """Processor time of each of its processes."""
    disk_mb: Annotated[int, Field(ge=1)] | None = 4_096
    """All that it writes, in MB; never more than half of what was free on the project's disk."""
    tmp_mb: Annotated[int, Field(ge=1)] | None = 512
    """Its `/tmp`, in MB, and as much shared memory; both are in memory, and gone when it ends."""


class WebSearch(StrictModel):
    """The engine that `web_search` asks."""

    kind: Literal["auto", "off", "searxng", "brave"] = "auto"
    """`auto`: the model provider's own, where there is one; `off`: no search; else an engine of this kind."""
    base_url: Address | None = None
    """The address of SearXNG, which has to give JSON; of Brave, another one than its own."""
    api_key: str | None = None
    """Brave's key."""


class Tools(StrictModel):
    """Tools that need a service."""

    web_search: Annotated[
        WebSearch,
        BeforeValidator(
            lambda value: {"kind": value} if isinstance(value, str) else value,
            json_schema_input_type=Literal["auto", "off"] | WebSearch,
        ),
    ] = WebSearch()
    """`auto`, `off`, or an engine of one's own."""


class Shell(StrictModel):
    """Commands that the model runs (`run_shell`)."""

    isolation: Literal["required", "off"] = "required"
    """`required`: commands run only in a sandbox (bubblewrap). `off`: commands run unsandboxed, with the rights of the gateway's user."""
    network: bool = False
    """Give commands the network of this machine."""
    limits: ShellLimits = ShellLimits()
    """Limits of one command."""


class PerTurn(StrictModel):
    """Limits of all tasks of one turn together."""

    max_tokens: Annotated[int, Field(ge=1_000)] = 2_000_000
    """Tokens read and written."""
    max_usd: Share | None = 5.0
    """US dollars."""


class Subagents(StrictModel):
    """Limits of one task of the model, and of all tasks of a turn together. Null: without limit."""

    max_model_calls: Annotated[int, Field(ge=1, le=1_000)] = 30
    """Calls of the model in one task."""
    max_tokens: Annotated[int, Field(ge=1_000)] = 500_000
    """Tokens of one task, read and written, also from the provider's cache."""
    max_usd: Share | None = 1.0
    """US dollars of one task."""
    max_seconds: Annotated[int, Field(ge=1, le=86_400)] = 900
    """Seconds of one task, without those spent waiting for people."""
    max_concurrent: Annotated[int, Field(ge=1, le=1_000)] = 20
    """Tasks of a turn that work side by side."""
    per_turn: PerTurn = PerTurn()
    """Limits of all tasks of one turn together."""


class Skills(StrictModel):
    """Folders with a `SKILL.md`, which the model loads when it needs them."""

    paths: tuple[str, ...] = ()
    """Folders that hold skills, beside `.claude/skills`."""


def _server_name(value: str) -> str:
    if not _SERVER.fullmatch(value) or "__" in value:
        raise ValueError(
            "expected at most 32 of A-Z, a-z, 0-9, _ and -, a letter or digit at both ends, no __; rename it"
        )
    return value


class McpServer(StrictModel):
    """A server of the Model Context Protocol: a program (`command`), or an address (`url`)."""

    type: Literal["stdio", "http"] | None = None
    """Absent: `stdio` with a `command`, `http` with a `url`."""
    command: Annotated[str, Field(min_length=1)] | None = None
    """The program that is the server."""
    args: tuple[str, ...] = ()
    """Its arguments; `.` and those that begin with `./` or `../` count from the project's folder."""
    env: dict[str, str] = {}
    """Its environment, beside `PATH`, `HOME` and the like; it gets nothing else of Shipmate's."""
    url: Address | None = None
    """The address of the server."""
    headers: dict[str, str] = {}
    """Headers of each request to it; `${NAME}` takes a value from the environment."""
    enabled: bool = True
    """False: it is not started."""
    timeout_ms: Annotated[int, Field(ge=100, le=3_600_000)] = 60_000
    """The time for one call."""


class Mcp(StrictModel):
    """Servers of the Model Context Protocol."""

    servers: dict[Annotated[str, AfterValidator(_server_name)], McpServer] = {}
    """Each by a name of yours; its tools are called `mcp__<name>__<tool>`."""


class Budgets(StrictModel):
    """Limits of the cost of a day, which begins at 00:00 UTC. At four fifths of one operators are told; once it is spent, they are
    asked whether it goes on. Null: without limit.
    """

    per_chat_usd_per_day: Share | None = None
    """US dollars that one chat may cost a day, with its threads."""
    per_user_usd_per_day: Share | None = None
    """US dollars that one person may cost a day, in all chats."""

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
    """Days after which a file of the log is removed."""
    max_mb: Annotated[int, Field(ge=1, le=16_777_216)] = 1_000
    """Megabytes on the disk, past days compressed; over it the oldest files go."""


class Schedule(StrictModel):
    """Jobs that people ask for: “every weekday at 8:30”."""

    timezone: Annotated[str, Field(min_length=1, max_length=100)] = "UTC"
    """A name of the tz database, for people of whom neither the platform nor they themselves say another."""
    max_per_chat: Annotated[int, Field(ge=0, le=1_000)] = 20
    """Jobs that one chat may have, threads included."""
    min_minutes: Annotated[int, Field(ge=1, le=10_080)] = 5
    """Least minutes between two times of a job."""
    grace_minutes: Annotated[int, Field(ge=0, le=10_080)] = 120
    """Minutes by which a job that could not run in time may be late; what is later is skipped, and the chat told."""


class Dashboard(StrictModel):
    """The address of `/healthz`, `/readyz` and `/metrics`."""

    enabled: bool = True
    """False: nothing listens there."""
    host: str = "127.0.0.1"
    """An address that others can reach demands a `token`."""
    port: Port = 3001
    """0 takes a free one."""
    token: str | None = None
    """Whoever has it (`Authorization: Bearer …`) sees why something is not well, and the metrics."""


class Transcription(StrictModel):
    """An endpoint in the form of OpenAI's transcriptions writes down voice notes."""

    base_url: Address | None = None
    """The address before `/audio/transcriptions`, such as `https://api.openai.com/v1`. Absent or null: voice notes are not heard."""
    api_key: str | None = None
    """The endpoint's key, where it wants one."""
    model: str = "whisper-1"
    """Its model."""


class Files(StrictModel):
    """Files that people send; those that hold text are read."""

    max_bytes: Annotated[int, Field(ge=1, le=10_000_000)] = 1_000_000
    """Bytes of text in one file. A larger text file is not read; of an office file as much is."""
    max_packed_bytes: Annotated[int, Field(ge=1, le=20_000_000)] = 5_000_000
    """Bytes of one office file or PDF; a larger one is not read."""
    pictures: bool = True
    """Show pictures to the model. Turn it off where the model cannot see any."""
    pdf_pages: Annotated[int, Field(ge=0, le=100)] = 20
    """Pages of a PDF that the model is shown as it is; of a longer one it gets the text alone. With 0 none is shown."""
    per_message: Annotated[int, Field(ge=0, le=50)] = 5
    """Files of one message, the first ones; with 0 none is read."""
    transcription: Transcription = Transcription()
    """The endpoint that writes down voice notes."""


class Memory(StrictModel):
    """The memory of the process."""

    limit_mb: Annotated[int, Field(ge=128, le=16_777_216)] = 1_024
    """Megabytes of memory the process should stay under: close to it caches go, above it files are refused."""


POSTGRESQL_BEFORE = "dbos"
"""The older name of `postgresql` as an engine: ship.json files of then are read."""


def _engine(value: object) -> object:
    return "postgresql" if value == POSTGRESQL_BEFORE else value


class Engine(StrictModel):
    """The database that has the log of the chats."""

    kind: Annotated[Literal["embedded", "postgresql"], BeforeValidator(_engine)] = "embedded"
    """`embedded` is a file in `.ship`; `postgresql` is a database, which needs `pip install 'psycopg[binary]>=3.3,<4'`."""
    database_url: str | None = None
    """The address of the database, such as `postgresql://user:password@host/shipmate`. Take it from a variable."""


class ShipFile(StrictModel):
    """The settings of one Shipmate."""

    schema_: Annotated[str, Field(alias="$schema")] = "./.ship/schema/ship.schema.json"
    """The schema for editors."""
    name: Annotated[str, Field(max_length=80), AfterValidator(_title)] = "shipmate"
    """The name by which the bot speaks of itself."""
    llm: Llm = Llm()
    """The language model."""
    operators: tuple[str, ...] = ()
    """Ids of people who may approve and use operators' commands: `telegram:123`, `slack:U…`."""
    context: Context = Context()
    """The part of a conversation that the model is shown."""
    prompt: Prompt = Prompt()
    """Instructions for the model."""
    history: History = History()
    """The archive of what was said."""
    queue: Queue = Queue()
    """Messages that come while a turn of their chat runs."""
    delivery: Delivery = Delivery()
    """Messages on their way to the platforms."""
    permissions: Permissions = Permissions()
    """Rules for calls of tools."""
    tools: Tools = Tools()
    """Tools that need a service."""
    shell: Shell = Shell()
    """Commands that the model runs."""
    subagents: Subagents = Subagents()
    """Limits of the tasks that the model gives pieces of work to."""
    skills: Skills = Skills()
    """Folders with a `SKILL.md`."""
    mcp: Mcp = Mcp()
    """Servers of the Model Context Protocol."""
    budgets: Budgets = Budgets()
    """Limits of the cost of a day."""
    log: Log = Log()
    """The operator's log."""
    schedule: Schedule = Schedule()
    """Jobs that people ask for."""
    dashboard: Dashboard = Dashboard()
    """The address of `/healthz`, `/readyz` and `/metrics`."""
    files: Files = Files()
    """Files that people send."""
    memory: Memory = Memory()
    """The memory of the process."""
    engine: Engine = Engine()
    """The database that has the log of the chats."""


CHANNELS = (
    "Where people talk to it. A channel whose settings are left out takes its tokens from the environment."
)


@functools.lru_cache(maxsize=8)  # to make one takes longer than to read a file by it
def with_channels(sections: tuple[tuple[str, type[BaseModel]], ...]) -> type[ShipFile]:
    """The model of a whole ship.json, with the settings of these channels."""
    fields: dict[str, Any] = {name: (settings, Field(alias=name)) for name, settings in sections}
    channels = create_model("Channels", __base__=StrictModel, **fields)
    return create_model(
        "Ship", __base__=ShipFile, channels=(channels, Field(alias="channels", description=CHANNELS))
    )

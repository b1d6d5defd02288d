"""Models of ship.json without its channels, whose settings models come from their manifests."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

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


Port = Annotated[int, Field(ge=0, le=65_535)]
Address = Annotated[str, AfterValidator(_address)]
Share = Annotated[float, Field(gt=0)]


class StrictModel(BaseModel):
    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, frozen=True, strict=True)


class Llm(StrictModel):
    provider: Literal["anthropic", "demo", "bedrock", "vertex"] | None = None
    """Absent: `anthropic` where a key is set, else `demo`."""
    model: Annotated[str, Field(min_length=1, max_length=200)] = "claude-sonnet-5-5"
    api_key: str | None = None
    """Absent: `${ANTHROPIC_API_KEY}`."""
    base_url: Address | None = None
    """Absent or null: the provider's own."""
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] = 8192
    """Most tokens of one answer."""
    context_window: Annotated[int, Field(ge=1_000, le=100_000_000)] | None = None
    """Tokens that fit into one request; null: known for the model."""
    fast_model: Annotated[str, Field(min_length=1, max_length=200)] = "claude-haiku-5-5"
    log_messages: bool = True
    """Write words of people and of the model to log lines."""


class Idle(StrictModel):
    enabled: bool = True
    """Compact a chat that goes quiet shortly before the provider's cache forgets it."""
    above_tokens: Annotated[int, Field(ge=0)] = 12_000


class Compaction(StrictModel):
    enabled: bool = True
    """False: compact and remember only on request."""
    soft_tokens: Annotated[int, Field(ge=1)] = 40_000
    """Tokens of a request above which the older part of the history gives way to a summary."""
    keep_tokens: Annotated[int, Field(ge=0)] = 4_000
    """Tokens of it that stay as they are."""
    idle: Idle = Idle()
    provider: Literal["auto", "never"] = "auto"
    """`auto`: the provider summarises where the model can; else the model is asked with a prompt of ours."""


class Context(StrictModel):
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


class Prompt(StrictModel):
    """Each is a text, or the path of a file in the project, which ends in `.md` or `.txt`."""

    custom: Annotated[str, Field(min_length=1, max_length=100_000)] | None = None
    """Stands in the place of the built-in rules."""
    append: Annotated[str, Field(min_length=1, max_length=100_000)] | None = None
    """Goes last."""

    def sources(self, root: Path) -> dict[str, str | Path]:
        """The text or the file of each key; "" where it is not set."""
        found: dict[str, str | Path] = {}
        for name, value in (("custom", self.custom or ""), ("append", self.append or "")):
            is_file = "\n" not in value and value.endswith((".md", ".txt"))
            found[name] = root / value if is_file else value
        return found


class History(StrictModel):
    archive_after_lines: Annotated[int, Field(ge=2, le=10_000_000)] = 1_000
    """Over this the older half of a chat's archive moves to a file of its own."""


class Queue(StrictModel):
    mode: Literal["steer", "followup", "collect", "interrupt"] = "steer"
    max_concurrent_turns: Annotated[int, Field(ge=1, le=100_000)] = 1_024
    debounce_ms: Annotated[int, Field(ge=0, le=60_000)] = 0


class Delivery(StrictModel):
    limits: bool = True
    """False turns the outgoing rate budgets off: for loopback tests and benches only."""


class Permissions(StrictModel):
    """Rules such as `run_shell(git status)`; deny goes before ask, ask before allow."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class ShellLimits(StrictModel):
    """Limits of one command. Null: the machine's own."""

    memory_mb: Annotated[int, Field(ge=16)] | None = 4_096
    """Of each of its processes."""
    processes: Annotated[int, Field(ge=4)] | None = 512
    """Of all its processes together, root's too."""
    file_mb: Annotated[int, Field(ge=1)] | None = 1_024
    """Of each file that it writes."""
    cpu_seconds: Annotated[int, Field(ge=1)] | None = 600
    """Of each of its processes."""
    disk_mb: Annotated[int, Field(ge=1)] | None = 4_096
    """Of all that it writes, and never more than half of what was free on the project's disk."""
    tmp_mb: Annotated[int, Field(ge=1)] | None = 512
    """Of its `/tmp`, which is in memory and gone when it ends, and as much of its shared memory."""


class Shell(StrictModel):
    isolation: Literal["required", "off"] = "required"
    """Commands run only where bubblewrap, or name spaces and Landlock, stand around them; `off`: as they are, with all that
    Shipmate's user may do.
    """
    network: bool = False
    """Give commands the network of this machine."""
    limits: ShellLimits = ShellLimits()


class PerTurn(StrictModel):
    max_tokens: Annotated[int, Field(ge=1_000)] = 2_000_000
    max_usd: Share | None = 5.0


class Subagents(StrictModel):
    """Limits of one task of the model, and of all tasks of a turn together. Null: without limit."""

    max_model_calls: Annotated[int, Field(ge=1, le=1_000)] = 30
    max_tokens: Annotated[int, Field(ge=1_000)] = 500_000
    """Read and written, also from the provider's cache."""
    max_usd: Share | None = 1.0
    max_seconds: Annotated[int, Field(ge=1, le=86_400)] = 900
    """Without the time spent waiting for people."""
    max_concurrent: Annotated[int, Field(ge=1, le=1_000)] = 20
    """Tasks of a turn that work side by side."""
    per_turn: PerTurn = PerTurn()


class Skills(StrictModel):
    paths: tuple[str, ...] = ()
    """Folders with skills, beside `.claude/skills`."""


def _server_name(value: str) -> str:
    if not _SERVER.fullmatch(value) or "__" in value:
        raise ValueError(
            "expected at most 32 of A-Z, a-z, 0-9, _ and -, a letter or digit at both ends, no __; rename it"
        )
    return value


class McpServer(StrictModel):
    """A server of the Model Context Protocol: a program (`command`), or an address (`url`)."""

    type: Literal["stdio", "http"] | None = None
    """Follows from the rest."""
    command: Annotated[str, Field(min_length=1)] | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    """Its environment, beside PATH, HOME and the like: nothing else of ours."""
    url: Address | None = None
    headers: dict[str, str] = {}
    enabled: bool = True
    timeout_ms: Annotated[int, Field(ge=100, le=3_600_000)] = 60_000
    """For one call."""


class Mcp(StrictModel):
    servers: dict[Annotated[str, AfterValidator(_server_name)], McpServer] = {}
    """By name; their tools are called `mcp__<name>__<tool>`."""


class Budgets(StrictModel):
    per_chat_usd_per_day: Share | None = None
    per_user_usd_per_day: Share | None = None


class Schedule(StrictModel):
    timezone: Annotated[str, Field(min_length=1, max_length=100)] = "UTC"
    """Of the tz database: where neither the platform nor the person says another."""
    max_per_chat: Annotated[int, Field(ge=0, le=1_000)] = 20
    """Jobs that one chat may have, threads included."""
    min_minutes: Annotated[int, Field(ge=1, le=10_080)] = 5
    """Between two times of a job."""
    grace_minutes: Annotated[int, Field(ge=0, le=10_080)] = 120
    """So late a job still runs, once, where it could not in time; later it is skipped, and the chat told."""


class Dashboard(StrictModel):
    enabled: bool = True
    host: str = "127.0.0.1"
    port: Port = 3001
    token: str | None = None


class Files(StrictModel):
    """Files that people send: what of them holds text is read."""

    max_bytes: Annotated[int, Field(ge=1, le=10_000_000)] = 1_000_000
    """Of one file; a larger one is not read."""
    per_message: Annotated[int, Field(ge=0, le=50)] = 5
    """The first so many files of a message; with 0 none is read."""


class Memory(StrictModel):
    limit_mb: Annotated[int, Field(ge=128, le=16_777_216)] = 1_024
    """Megabytes of memory the process should stay under: close to it caches go, above it files are refused."""


class Engine(StrictModel):
    kind: Literal["embedded", "dbos"] = "embedded"
    database_url: str | None = None


class ShipFile(StrictModel):
    schema_: Annotated[str, Field(alias="$schema")] = "./.ship/schema/ship.schema.json"
    name: Annotated[str, Field(max_length=80), AfterValidator(_title)] = "shipmate"
    llm: Llm = Llm()
    operators: tuple[str, ...] = ()
    """Ids of people who may approve and use operators' commands: `telegram:123`, `slack:U…`."""
    context: Context = Context()
    prompt: Prompt = Prompt()
    history: History = History()
    queue: Queue = Queue()
    delivery: Delivery = Delivery()
    permissions: Permissions = Permissions()
    shell: Shell = Shell()
    subagents: Subagents = Subagents()
    skills: Skills = Skills()
    mcp: Mcp = Mcp()
    budgets: Budgets = Budgets()
    schedule: Schedule = Schedule()
    dashboard: Dashboard = Dashboard()
    files: Files = Files()
    memory: Memory = Memory()
    engine: Engine = Engine()


NOT_BUILT = (
    "budgets",
    "engine",
)
"""Keys of features to come: their defaults are accepted, anything else is a finding."""
PROVIDERS_NOT_BUILT = frozenset({"bedrock", "vertex"})

"""Table of the kinds of log lines and their details. `docs/logs.md` and the schema of a line are made from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bot.contracts.base import Json

COMMON = {
    "task": "string: the subagent at work, by the id of its task",
    "leftOut": "string: the size of details that were too large for a line",
}
"""Details that a line of any kind may have."""


TEXTS = frozenset({"messages", "payload", "input", "result", "stopDetails"})
"""Details that hold what people, the model and tools said; where they are numbers they do not."""


@dataclass(frozen=True, slots=True)
class LogKind:
    """One kind of line. `details` maps a name to its JSON types (`number|null`) and, behind a colon, its meaning."""

    meaning: str
    details: dict[str, str] = field(default_factory=dict)

    def types(self, name: str) -> list[str] | None:
        """JSON types of a detail; None where the kind has no such detail."""
        told = self.details.get(name) or COMMON.get(name)
        return None if told is None else told.partition(":")[0].split("|")


_CAUSE = "string: the error, in its own words"
_ERROR = "string: the type of the error"
_FILE = "string: its name"
_CHANNEL = "string: the channel's name"
_CALL = "string: the id of the model's call"
_TOOL = "string: the tool's name"
_TOOL_USE = "string: the id that the model gave the call"
_PURPOSE = "string: `turn`, `subagent`, `compaction`, `memory`, `check`, …"
_PERSON = "string: who caused it, as `channel:id`"
_USAGE = "object|null: `inputTokens`, `outputTokens`, `cacheReadTokens`, `cacheWriteTokens`"
_MESSAGES = "integer: messages in the conversation"
_VIEW = {
    "reason": "string: why",
    "messagesBefore": _MESSAGES,
    "messagesAfter": _MESSAGES,
    "masked": "integer: tool results that were hidden",
    "how": "string: by which way the summary was made",
    "tokensBefore": "integer: estimated",
    "tokensAfter": "integer: estimated",
}

KINDS: Mapping[str, LogKind] = {
    "start": LogKind(
        "The process begins.",
        {
            "version": "string: of Shipmate",
            "python": "string: its version",
            "pid": "integer: of the process",
            "channels": "array: names of those that are on",
            "configuration": "string: hash of ship.json with the environment's values and without secrets",
            "lastRun": "string: how the last one ended: `ended` by itself, `killed`; `none` where there was none",
            "findings": "array: what in the configuration deserves a look",
        },
    ),
    "ready": LogKind("Every channel is connected.", {"channels": "array: their names"}),
    "reload": LogKind(
        "SIGHUP came: the configuration was read again, and new turns have it, or the one before holds.",
        {
            "changed": "array: keys of ship.json that new turns have another value of",
            "restart": "array: keys that need a restart",
            "findings": "array: what is wrong with the configuration",
            "configuration": "string: its hash, as in `start`",
        },
    ),
    "stop": LogKind(
        "The process stops, or a turn is stopped. The last line of a run has `ended`.",
        {
            "cause": _CAUSE,
            "ended": "string: `stopped`, or `failed` where an error ended the run",
        },
    ),
    "inbound": LogKind(
        "Something came in: a message, edit, deletion, command or press of a button.",
        {
            "channel": _CHANNEL,
            "userId": "string: who wrote it",
            "messageId": "string: the platform's",
            "addressed": "string|boolean: why it is for the bot",
            "command": "string: its name",
            "length": "integer: characters",
            "attachments": "integer: files",
            "brought": "integer: earlier messages that came with it",
            "user": "string: whose name is not known",
            "event": "string: the platform's type of it",
            "reason": "string: why it cannot be read",
            "error": _ERROR,
            "cause": _CAUSE,
        },
    ),
    "denied": LogKind(
        "Somebody was refused.",
        {
            "channel": _CHANNEL,
            "userId": "string: who",
            "reason": "string: by which rule",
            "cause": _CAUSE,
        },
    ),
    "turn_start": LogKind("A turn begins, or goes on after a restart.", {"messages": _MESSAGES}),
    "turn_end": LogKind(
        "A turn is over.",
        {
            "status": "string: `done`, `failed`, `stopped`, `withdrawn`",
            "delivered": "integer: messages that went out",
            "messages": _MESSAGES,
            "person": _PERSON,
            "cause": _CAUSE,
        },
    ),
    "steer": LogKind(
        "A message joined the running turn, or the model was asked anew with what had joined.",
        {"joined": "string: its requestId"},
    ),
    "session": LogKind(
        "The conversation's session changed: new, resumed, forked.",
        {"session": "string: the one that holds now", "left": "string: the one before"},
    ),
    "llm_request": LogKind(
        "A request to the model, each attempt by itself.",
        {
            "callId": _CALL,
            "model": "string: its name",
            "purpose": _PURPOSE,
            "maxTokens": "integer: of the answer",
            "messageCount": "integer: messages in the request",
            "toolCount": "integer: tools in the request",
            "messages": "array: those that the request before did not have, as `{at, role, text}`, shortened",
            "payload": "object: the whole request, where `SMA_LOG_LLM_PAYLOAD=1`",
        },
    ),
    "llm_response": LogKind(
        "The model's answer, or its failure (`error`). `callId` links it with its request.",
        {
            "callId": _CALL,
            "model": "string: its name",
            "purpose": _PURPOSE,
            "person": _PERSON,
            "stopReason": "string|null: the provider's",
            "usage": _USAGE,
            "costUsd": "number|null: null where the price is not known",
            "latencyMs": "number|null: of the answer",
            "firstTokenMs": "number|null: until the first token",
            "providerRequestId": "string|null: for the provider's support",
            "toolCalls": "array: names of the tools that are called",
            "cut": "array: ids of calls that the answer broke off in",
            "messages": "array: the answer, as `{at, role, text}`, shortened",
            "stopDetails": "string|object: what the provider says of the stop",
            "payload": "object: the whole answer, where `SMA_LOG_LLM_PAYLOAD=1`",
            "error": _ERROR,
            "cause": _CAUSE,
            "status": "integer: of HTTP",
            "retryAfter": "number: seconds",
        },
    ),
    "llm_retry": LogKind(
        "The model is asked again after a failure.",
        {
            "error": _ERROR,
            "status": "integer: of HTTP",
            "attempt": "integer: which failed",
            "waitMs": "number: until the next one",
            "purpose": _PURPOSE,
        },
    ),
    "model": LogKind(
        "A model was chosen, or its limits are known.",
        {
            "model": "string: its name",
            "chosen": "boolean: false where the default is back",
            "before": "string: the one before",
            "window": "integer: tokens that it takes in",
            "maxOutput": "integer: tokens of an answer",
            "cause": _CAUSE,
        },
    ),
    "continue": LogKind(
        "An answer was cut off and is continued.",
        {
            "number": "integer: which continuation",
            "maxTokens": "integer: of the answer",
            "cause": _CAUSE,
        },
    ),
    "repair": LogKind("A request that the provider refuses was mended.", {"cause": _CAUSE}),
    "claim": LogKind(
        "A reply says that something was done which no tool did.",
        {
            "claims": "array: their kinds",
            "language": "string: its name",
            "action": "string: what follows",
        },
    ),
    "tool_call": LogKind(
        "The model calls a tool.",
        {
            "tool": _TOOL,
            "toolUseId": _TOOL_USE,
            "input": "string: the arguments, shortened",
            "inputLength": "integer: characters, where texts are not logged",
        },
    ),
    "tool_result": LogKind(
        "A tool has ended.",
        {
            "tool": _TOOL,
            "toolUseId": _TOOL_USE,
            "failure": "string: why it failed, for the operator",
            "artifact": "string: where the whole result is",
            "result": "string: shortened",
            "resultLength": "integer: characters, where texts are not logged",
            "results": "integer: results of the step that were shortened to fit together",
            "found": "array: tools that a search found",
        },
    ),
    "approval": LogKind(
        "A call was allowed, refused or asked about, by a rule or a person.",
        {
            "tool": _TOOL,
            "toolUseId": _TOOL_USE,
            "decision": "string: what was decided",
            "source": "string: where the rule stands",
            "rule": "string: the rule",
            "reason": "string: why",
            "approval": "string: the id of the question",
            "scope": "string: once or always",
            "by": "string: who decided, as `channel:id`",
            "fingerprint": "string: of the call that was shown",
            "operator": "string: who is one from now on",
            "cause": _CAUSE,
        },
    ),
    "admission": LogKind(
        "An operator let somebody in or kept them out, by a command or a button; or a request to be let in gave way to newer ones.",
        {
            "channel": _CHANNEL,
            "userId": "string: who is let in or kept out",
            "decision": "string: `allowed`, `blocked`, `not now`, `expired`",
            "by": "string: who decided, as `channel:id`",
        },
    ),
    "feedback": LogKind(
        "A person has rated an answer. The line has the requestId of its turn.",
        {
            "rating": "string: `good`, `bad`; `none` where it was taken back",
            "person": "string: who rated it, as `channel:id`",
            "messageId": "string: the platform's, of the answer",
        },
    ),
    "question": LogKind("The person is asked something.", {"cause": _CAUSE}),
    "task": LogKind(
        "A subagent begins or ends.",
        {
            "mode": "string: of the task",
            "toolUseId": _TOOL_USE,
            "error": _CAUSE,
            "modelCalls": "integer: so many",
            "toolCalls": "integer: so many",
            "usage": _USAGE,
            "costUsd": "number|null: null where a price is not known",
            "artifact": "string: where its whole result is",
        },
    ),
    "synthesis": LogKind(
        "Results of several subagents are brought together.",
        {"results": "integer: so many", "cause": _CAUSE},
    ),
    "compaction": LogKind(
        "Older turns give way to a summary, or a request was too large.",
        _VIEW
        | {
            "tokens": "integer: of the request",
            "window": "integer: tokens that the model takes in",
            "messages": "integer: of the request",
            "tries": "integer: so many before",
            "providerRequestId": "string: for the provider's support",
        },
    ),
    "masking": LogKind("Old tool results are hidden.", _VIEW),
    "injection": LogKind("Older messages are shown to the model.", _VIEW),
    "prompt": LogKind(
        "The system prompt and the files it is made of.",
        {
            "file": _FILE,
            "include": "string: the file that it names",
            "section": "string: which is left out",
            "dropped": "array: parts that are left out",
            "shortened": "array: parts that are shortened",
            "size": "integer: tokens",
            "budget": "integer: tokens",
            "cause": _CAUSE,
        },
    ),
    "skill": LogKind("A skill cannot be used."),
    "memory": LogKind(
        "What is remembered of a chat or person; or the process is short of memory.",
        {
            "tokens": "integer: of the memory",
            "covers": "string|integer: how far it reaches",
            "files": "integer: that were refused",
            "items": "integer: that went because the memory is full",
            "fullCollection": "boolean: everything was collected",
            "cause": _CAUSE,
        },
    ),
    "delivery": LogKind(
        "Something goes out, or does not.",
        {
            "messageId": "string: the platform's",
            "outboundId": "string: of the row in the outbox",
            "state": "string: `sent`, `failed`, `unknown`; `uncertain`, `throttled`, `deferred` where it is tried again",
            "length": "integer: characters",
            "wait": "number: seconds",
            "retryAfter": "number: seconds",
            "code": "string|integer: the platform's",
            "channel": _CHANNEL,
            "chatId": "string: the platform's",
            "error": "string: the platform's error, or its type",
            "cause": _CAUSE,
        },
    ),
    "removal": LogKind(
        "A message was removed at a person's wish.",
        {
            "messageId": "string: the platform's",
            "role": "string: whose message",
            "by": "string: who asked for it",
            "artifacts": "integer: that went with it",
            "notes": "integer: that were written anew",
        },
    ),
    "file": LogKind(
        "A file that somebody sent.",
        {
            "channel": _CHANNEL,
            "messageId": "string: the platform's",
            "artifact": "string: where its text is",
            "ref": "string: the platform's reference",
            "size": "integer: bytes",
            "cause": _CAUSE,
        },
    ),
    "schedule": LogKind(
        "A job was made, changed, ran or was skipped.",
        {
            "job": "string: its id",
            "by": "string: who, as `channel:id`",
            "plan": "string: when it runs",
            "due": "string: local time",
            "userId": "string: whose time zone is not known",
            "missed": "integer: times that were skipped",
            "cause": _CAUSE,
        },
    ),
    "channel": LogKind(
        "A connection to a platform, or the platform's own news.",
        {
            "channel": _CHANNEL,
            "healing": "integer: which new connection this is",
            "healings": "integer: new connections that it took",
            "group": "string|integer: the chat's id before",
            "supergroup": "string|integer: the chat's id from now on",
            "key": "string: of the event",
            "size": "integer: bytes",
            "where": "string: the function",
            "host": "string: the address on which it waits for posts of the platform",
            "port": "integer: its port",
            "error": _ERROR,
            "cause": _CAUSE,
        },
    ),
    "mcp": LogKind(
        "An MCP server.",
        {
            "added": "array: tools",
            "gone": "array: tools",
            "leftOut": "array|string: tools that cannot be used",
            "was": "string: its state before",
            "cause": _CAUSE,
        },
    ),
    "connections": LogKind(
        "Connections to the pages.",
        {
            "open": "integer: connections",
            "most": "integer: that there may be",
        },
    ),
    "cluster": LogKind(
        "Which of the processes on a database leads.",
        {
            "epoch": "integer: the number of leaders that there were, with this one",
            "before": "string: who led before; empty where the lease was given back",
            "leader": "string: who leads now",
        },
    ),
    "storage": LogKind(
        "The log of the chats, its exports (archive, search index) and the disk.",
        {
            "file": _FILE,
            "quarantine": "string: the name under which it is kept",
            "left": "integer: bytes of the reserve",
            "unreadable": "integer: lines",
            "offset": "integer: where it begins",
            "size": "integer: bytes",
            "tool": _TOOL,
            "toolUseId": _TOOL_USE,
            "cause": _CAUSE,
        },
    ),
    "retention": LogKind(
        "What is older than the days of a chat (`history.keepDays`) is gone.",
        {
            "days": "integer: of this chat",
            "lines": "integer: of the archive",
            "events": "integer: of the log of the chats",
            "requests": "integer: recorded requests",
            "files": "integer: files that the web page was sent",
            "cause": _CAUSE,
        },
    ),
    "library": LogKind(
        "A warning or error of a library.",
        {
            "logger": "string: its name",
            "where": "string: module and line",
            "error": _CAUSE,
            "frames": "array: of the stack",
        },
    ),
    "log": LogKind("The log itself.", {"dropped": "integer: lines that did not fit", "cause": _CAUSE}),
    "error": LogKind(
        "An error that needs a person. Its level is always `error`.",
        {
            "cause": _CAUSE,
            "error": _CAUSE,
            "frames": "array: of the stack",
            "channel": _CHANNEL,
            "key": "string: of the event",
            "reason": "string: why",
            "chore": "string: the periodic job",
        },
    ),
}


NULLABLE = {
    (name, detail)
    for name, kind in KINDS.items()
    for detail, told in kind.details.items()
    if "null" in told.partition(":")[0].split("|")
}
"""Kind and detail where null says something; elsewhere it is left out of the line."""


def line_schema(schema: Json) -> Json:
    """The JSON Schema of a line, with the details of each kind added to it."""
    rules = [
        {
            "if": {"properties": {"kind": {"const": name}}},
            "then": {
                "properties": {
                    "details": {
                        "properties": {
                            detail: {"type": kind.types(detail), "description": told.partition(": ")[2]}
                            for detail, told in (COMMON | kind.details).items()
                        },
                        "additionalProperties": False,
                    }
                }
            },
        }
        for name, kind in KINDS.items()
    ]
    schema["properties"]["kind"]["enum"] = list(KINDS)
    return schema | {"allOf": rules}


def tables() -> str:
    """The table in Markdown, for docs/logs.md."""
    parts: list[str] = []
    for name, kind in KINDS.items():
        parts.append(f"### `{name}`\n\n{kind.meaning}\n")
        if kind.details:
            rows = [(f"`{one}`", *map(str.strip, told.split(":", 1))) for one, told in kind.details.items()]
            parts.append("| detail | type | |\n| --- | --- | --- |")
            parts += [f"| {one} | {types.replace('|', ' or ')} | {meaning} |" for one, types, meaning in rows]
            parts.append("")
    return "\n".join(parts)

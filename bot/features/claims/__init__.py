"""Claim check: compares the actions that a reply claims to have done with the tool calls of its turn. A promise, in which a
reply says that the bot will do something later, goes on the board (`/waiting`) unless the turn scheduled a job.

The check ignores quotes, drafts, code, accounts of earlier events, conditions, plans, denials, questions and doubtful
sentences. Each language has a file of phrases in this folder.
"""

from __future__ import annotations

import asyncio
import functools
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import regex

from bot import errors, text
from bot.contracts.approvals import Act, OpenLoop, Viewer
from bot.contracts.base import Message
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.messages import OutgoingFile, Sent
from bot.contracts.tools import MCP, Effect, ToolCall, ToolResult
from bot.core.chat import Chat, Turn
from bot.core.chats import Fact
from bot.core.events import FactSet, TurnEndState
from bot.core.feature import Done, Feature, Hooks, Runtime
from bot.tools.builtin.chat_send import chat_send
from bot.tools.builtin.work import schedule_create
from bot.tools.context import CALL, Reply
from bot.tools.dispatch import Registry
from bot.tools.permissions.rules import SCHEDULING

Kind = Literal["sent", "mailed", "saved", "deleted", "ran", "scheduled", "acted"]
"""Kind of the claimed action. `mailed`: sent to another recipient. `acted`: any other effect (installed, booked, paid …)."""
SHOWN = 120  # max characters of the sentence that a note below the reply quotes

# ------------------------------------------------------------ sentences

Pattern = regex.Pattern[str]
COMMAND = "⌘"
"""Placeholder for inline code that is not a file name."""
NAME = r"(?:[\w./~-]*\w\.(?:cfg|conf|cpp|css|csv|docx?|env|go|html?|ini|ics|java|jsx?|json|jsonl|lock|log|md|pdf|php|png|jpe?g|pptx?|py|rb|rs|sh|sql|svg|toml|tsx?|txt|xlsx?|xml|ya?ml|zip)\b)"
"""Pattern of a file name with a common extension."""
_WORD = re.compile(r"<(\w+)>")
HEAD, TAIL = 4_000, 2_000
"""Max characters searched at the beginning and at the end of a text. A bot reports its actions there, not in the middle."""
SENTENCE = 400
"""Max characters searched in each sentence."""
_FENCED = regex.compile(
    r"^[ \t]*(```+|~~~+)[^\n]*\n.*?(?:^[ \t]*\1[ \t]*$|\Z)", regex.MULTILINE | regex.DOTALL
)
_CODE = regex.compile(r"(`+)([^`\n]+)\1")
_FILE = regex.compile(rf"[\w./~-]+/[\w./~-]*|{NAME}", regex.IGNORECASE)
_QUOTED = regex.compile(
    r"“[^”\n]*”|„[^“”\n]*[“”]|«[^»\n]*»|「[^」\n]*」|『[^』\n]*』|《[^》\n]*》|(?<!\w)\"[^\"\n]*\"(?!\w)|(?<![\w'’])'[^'\n]{4,}'(?!\w)"
)
_LINK = regex.compile(r"https?://\S+")
_MARKS = regex.compile(r"[*_~]{1,3}(?=\S)|(?<=\S)[*_~]{1,3}")
_ITEM = regex.compile(r"^\s*(?:[-+*•]|\d{1,3}[.)]|#{1,6})\s+")
_SENTENCES = regex.compile(r"(?<=[.!?…])\s+|(?<=[。！？；;])|\n+")
_CLAUSES = regex.compile(r"[,，、;；:：–—]| but | however | aber | jedoch ")
LATIN = ("english", "german")
"""Languages whose phrases are searched in a text without Japanese and Chinese characters."""
_KANA = regex.compile(r"[\p{Hiragana}\p{Katakana}]")
_HAN = regex.compile(r"\p{Han}")
_ASKS = regex.compile(r"[?？]\W*$")


def _load(name: str) -> dict[str, Any]:
    """Return the phrases in a file of this folder, as strings. In a phrase, `<WORD>` is replaced by the entry WORD of the file's
    table [words], `<name>` by `NAME`, and `<command>` by `COMMAND`.
    """
    raw = tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8"))
    words = {"name": NAME, "command": COMMAND}
    for word, phrase in raw.pop("words", {}).items():
        words[word] = _filled(phrase, words)
    return {key: _filled_in(value, words) for key, value in raw.items()}


def _filled_in(value: Any, words: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _filled_in(one, words) for key, one in value.items()}
    if isinstance(value, list):
        return [_filled_in(one, words) for one in value]
    return _filled(value, words) if isinstance(value, str) else value


def _filled(phrase: str, words: Mapping[str, str]) -> str:
    return _WORD.sub(lambda found: words[found[1]], phrase)


def _compiled(phrase: str) -> Pattern:
    return regex.compile(phrase, regex.IGNORECASE)


@functools.cache
def _drafts() -> dict[str, tuple[Pattern, Pattern]]:
    """Return two patterns for each language: the first matches the introduction of a draft, the second a request for a draft."""
    raw = _load("phrases")
    return {name: (_compiled(one["draft"]), _compiled(one["composing"])) for name, one in raw.items()}


def _language_names(words: str) -> tuple[str, ...]:
    if words.isascii():
        return LATIN
    if _KANA.search(words):
        return ("japanese",)
    return ("chinese",) if _HAN.search(words) else LATIN


def _ends(words: str) -> str:
    return words if len(words) <= HEAD + TAIL else f"{words[:HEAD]}\n{words[-TAIL:]}"


def _composing(person: str) -> bool:
    """Return True if a person's message asks the bot to draft a text that somebody else will send or receive."""
    return any(_drafts()[name][1].search(person) for name in _language_names(person))


def sentences(words: str) -> Iterator[tuple[str, str]]:
    """Yield each sentence that the author of a text wrote, as (first `SENTENCE` characters, whole sentence). Stop
    before a draft, because a draft's sentences are not the author's own.
    """
    plain = _FENCED.sub("\n", words)
    for line in plain.split("\n"):
        if line.lstrip().startswith((">", "|", "    ")):
            continue
        bare = _ITEM.sub("", line)
        read = _MARKS.sub("", _QUOTED.sub("□", _LINK.sub("□", _CODE.sub(_named, bare)))).strip()
        if any(_drafts()[name][0].search(read) for name in _language_names(read)):
            return  # the rest of the text is a draft
        for sentence in filter(None, map(str.strip, _SENTENCES.split(read))):
            yield sentence[:SENTENCE], sentence


def _named(code: regex.Match[str]) -> str:
    """Return the content of inline code if it is a file name or path; otherwise return `COMMAND`."""
    return str(code[2]) if _FILE.fullmatch(code[2].strip()) else COMMAND


# ------------------------------------------------------------ claims


@dataclass(frozen=True, slots=True)
class Language:
    """Phrases of one language. The check ignores a claim if `before` matches between the start of the sentence and the end of
    the claim, or if `around` matches in the claim's clause. `earlier` matches mentions of actions in earlier turns, and
    `admits` matches reports of a failure.
    """

    name: str
    deed: re.Pattern[str]
    """Pattern of lower-case verbs. Every claim contains at least one of these verbs."""
    sayings: tuple[tuple[Kind, Pattern, bool], ...]
    """Patterns of claims, each as (kind, pattern, True if the phrase says that the reply's author acted)."""
    before: Pattern
    around: Pattern
    earlier: Pattern
    admits: Pattern
    requests: Pattern  # pattern of requests in the form of a question ("can you …?")
    reviewing: Pattern  # pattern of questions that ask if something was done
    orders: dict[Kind, Pattern]  # for each kind of action, the pattern of a person's request for it
    done: dict[
        Kind, Pattern
    ]  # for each kind of action, the pattern of a statement that somebody else did the action
    note: str  # note below a reply; `{claim}` stands for the sentence with the claim


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim in a reply. `earlier`: an earlier turn did the action. `own`: the author of the reply did the action."""

    kind: Kind
    sentence: str
    language: Language
    own: bool
    earlier: bool


_UNMARKED = str.maketrans({"*": None, "_": None, "~": None, "`": " "})
_ASKS_FACTS = regex.compile(
    r"^\W*(?:what|when|where|who|why|how|which|wann|was|wer|wo|warum|wie|welche\w*|什么|何|いつ|誰|どこ|なぜ|谁|哪|怎么)\b|[?？]\s*$",
    regex.IGNORECASE,
)


@functools.cache
def _language(name: str) -> Language:
    """Load a language file. The result is cached, because compiling the patterns takes a tenth of a second."""
    raw: dict[str, Any] = _load(name)
    sayings = tuple(
        (one["kind"], _compiled(one["pattern"]), one.get("own", True)) for one in raw.pop("sayings")
    )
    # Every reply is searched for this pattern. It is compiled without IGNORECASE, which makes the search four times faster.
    deed, name, note = re.compile(raw.pop("deed")), raw.pop("name"), raw.pop("note")
    rest: dict[str, Any] = {
        key: {of: _compiled(one) for of, one in value.items()}
        if isinstance(value, dict)
        else _compiled(value)
        for key, value in raw.items()
    }
    return Language(name=name, note=note, sayings=sayings, deed=deed, **rest)


def languages(words: str) -> tuple[Language, ...]:
    """Return the languages in which a text may be written. Each language is loaded on first use."""
    return tuple(map(_language, _language_names(words)))


def claims(words: str, person: str = "") -> list[Claim]:
    """Return the claims in a reply, at most one per kind. `person` is the text that the reply answers."""
    found: dict[Kind, Claim] = {}
    words, person = _ends(words), _ends(person)
    # First search the whole text once, because a search of each sentence takes much longer.
    bare = words.translate(_UNMARKED).lower()
    if _language_names(words) == LATIN and not any(one.deed.search(bare) for one in languages(words)):
        return []
    for sentence, shown in sentences(words):
        for language in languages(sentence) if not _ASKS.search(sentence) else ():
            for claim in _claimed(sentence, shown, language, person):
                found.setdefault(claim.kind, claim)
    return list(found.values())


def _claimed(sentence: str, shown: str, language: Language, person: str) -> Iterator[Claim]:
    if language.deed.search(sentence.lower()) is None:
        return
    reviewing = any(one.reviewing.search(person) for one in languages(person))
    for kind, pattern, own in language.sayings:
        match = pattern.search(sentence)
        if match is None or language.before.search(sentence[: match.end()]):
            continue
        borders = [0, *(mark.end() for mark in _CLAUSES.finditer(sentence)), len(sentence)]
        begin = max(border for border in borders if border <= match.start())
        end = min((border for border in borders if border >= match.end()), default=len(sentence))
        if not language.around.search(sentence[begin:end]) and not _is_no_answer_to(person, kind, own=own):
            earlier = bool(language.earlier.search(sentence)) or reviewing
            yield Claim(kind, shown, language, own, earlier)


def _is_no_answer_to(person: str, kind: Kind, *, own: bool) -> bool:
    known = languages(person)
    ordered = any(one.orders[kind].search(person) for one in known)
    if not own:
        asks = _ASKS_FACTS.search(person) and not any(one.requests.search(person) for one in known)
        if not ordered or asks or any(one.done[kind].search(person) for one in known):
            return True
    return bool(person) and _composing(person) and not ordered


# ------------------------------------------------------------ promises

PROMISE: Literal["promise"] = (
    "promise"  # kind of the `FactSet` events that store promises; the key is the turn's id
)
PROMISES = ("english", "chinese")  # languages in which promises are recognised
KEPT = 14 * 86_400.0  # max age in seconds of a promise on the board
LONGEST = 200  # max characters of a stored promise
SHORT = 6  # number of letters of a promise's short name
_GAPS = re.compile(f"[□{COMMAND}]")


@functools.cache
def promises(name: str) -> tuple[re.Pattern[str], Callable[[str], bool]]:
    """Return a quick pattern that every promise of a language matches, and an exact function that returns True for a promise."""
    raw = _load(f"promises_{name}")
    before, around, *sayings = map(_compiled, (raw["before"], raw["around"], *raw["sayings"]))

    def finds(sentence: str) -> bool:
        matches = [found for one in sayings if (found := one.search(sentence)) is not None]
        own = any(before.search(sentence[: found.start()]) is None for found in matches)
        return own and around.search(sentence) is None

    return re.compile(raw["cue"]), finds


def promise_in(words: str, person: str = "") -> str:
    """Return the sentence with the first promise in a reply; "" if there is none. `person` is the text that the reply answers."""
    # In nearly every reply, this fast search finds nothing, which saves the slow search.
    if not any(promises(name)[0].search(words.lower()) for name in PROMISES) or _composing(_ends(person)):
        return ""
    for sentence, shown in sentences(_ends(words)):
        known = [name for name in _language_names(sentence) if name in PROMISES]
        if not _ASKS.search(sentence) and any(promises(name)[1](sentence) for name in known):
            return _GAPS.sub("…", shown)
    return ""


# ------------------------------------------------------------ performed actions

TASK = "task"
_LOOKS = regex.compile(
    "check|count|describe|fetch|find|get|inspect|list|lookup|query|read|search|show|status|view|whoami",
    regex.IGNORECASE,
)
"""Pattern of words with which the names of read-only third-party tools begin."""
_EVERYTHING: frozenset[Kind] = frozenset({"sent", "mailed", "saved", "deleted", "ran", "scheduled", "acted"})
_BY_EFFECT: dict[Effect, frozenset[Kind]] = {
    "write": frozenset({"saved", "deleted"}),
    "run": frozenset({"saved", "deleted", "ran", "acted"}),
    "message": frozenset({"sent", "mailed", "acted"}),
}


def _kinds(call: ToolCall, effects: frozenset[Effect]) -> frozenset[Kind]:
    if call.name == chat_send.name:
        return frozenset({"sent"})
    if call.name.startswith(MCP):
        words = regex.findall(r"[A-Z]?[a-z]+", call.name.split("__", 2)[-1])
        looks = effects == {"read"} or (words and _LOOKS.fullmatch(words[0]))
        return frozenset() if looks else _EVERYTHING
    views = call.name == "memory" and call.input.get("command") == "view"
    if views or call.name == "schedule_list" or effects == {"read"}:
        return frozenset()
    if call.name in SCHEDULING:
        return frozenset({"scheduled", "acted"})
    if {"run", "network"} <= effects:
        return _EVERYTHING  # a command with network access may do anything
    return frozenset().union(*(_BY_EFFECT.get(effect, ()) for effect in effects))


def _performed(messages: Iterable[Message]) -> list[tuple[ToolCall, bool]]:
    calls: dict[str, ToolCall] = {}
    found = list[tuple[ToolCall, bool]]()
    for block in (one for message in messages for one in message["content"] if isinstance(one, dict)):
        if block.get("type") == "tool_use":
            calls[block["id"]] = ToolCall.of(block)
        elif block.get("type") == "tool_result" and (call := calls.get(block["tool_use_id"])) is not None:
            found.append((call, not ToolResult.of(block).failed))
    return found


def _done(chat: Chat) -> list[tuple[ToolCall, bool]]:
    view = chat.context
    results = list(view.running.results.values()) if view.running is not None else []
    return _performed([*view.current(), {"role": "user", "content": results}])


def _plans(done: Iterable[tuple[ToolCall, bool]]) -> bool:
    return any(worked and call.name == schedule_create.name for call, worked in done)


# ------------------------------------------------------------ replies


@dataclass(eq=False)
class CheckedReply:
    """Wraps a `Reply` and checks its claims. The first unsupported claim in a `chat_send` call raises
    `errors.ClaimUnfounded`, so that the model corrects the reply. Any other reply with an unsupported claim is sent with a
    note.
    """

    inner: Reply
    chat: Chat
    registry: Registry
    run: Runtime
    _corrected: bool = False

    async def send(
        self, words: str, step_id: str | None = None, files: Sequence[OutgoingFile] = ()
    ) -> list[Sent]:
        """Implement `tools.context.Reply.send`. Additionally raises `errors.ClaimUnfounded`."""
        turn = self.chat.turn
        person = "\n".join(one.text for one in turn.members) if turn is not None else ""
        found, promise = await asyncio.to_thread(lambda: (claims(words, person), promise_in(words, person)))
        done = _done(self.chat) if found or promise else []
        if found := found and self._unfounded(words, found, done):
            claim = text.preview(found[0].sentence, SHOWN)
            # Only a tool call has a result from which the model learns of the claim. A final text is sent in any case.
            corrects = CALL.get() != "" and not self._corrected
            self.run.log.write(
                "claim",
                "a reply says that something was done which no tool did",
                level="warn",
                claims=[claim.kind for claim in found],
                language=found[0].language.name,
                action="corrected" if corrects else "marked",
            )
            if corrects:
                self._corrected = True
                raise errors.ClaimUnfounded(claim=claim)
            words = f"{words}\n\n{found[0].language.note.format(claim=claim)}"
        if turn is not None and (promise or self.run.chats.facts[PROMISE]):
            self._keep(turn, "" if _plans(done) or turn.first.due is not None else promise)
        return await self.inner.send(words, step_id, files)

    def _keep(self, turn: Turn, promise: str) -> None:
        """Store the promise in a reply. Delete promises that are too old, and promises in an answer that this turn replaces."""
        first, now, key = turn.first, self.run.clock.now(), self.chat.key
        replaced = (str(first.chat_key), first.message_id if first.renews is not None else None)
        facts = [
            Fact(key, FactSet(PROMISE, name, None))
            for name, one in self.run.chats.facts[PROMISE].items()
            if one["at"] < now - KEPT or (one["chat"], one.get("message", "")) == replaced
        ]
        if promise:
            self.run.log.write(
                "promise", "an answer promises something that no job carries", request_id=turn.id
            )
            words = text.preview(self.run.redact(promise), LONGEST)
            value = {"at": now, "words": words, "person": str(first.person), "name": first.user_name or ""}
            value |= {"chat": str(first.chat_key), "message": first.message_id or ""}
            facts.append(Fact(key, FactSet(PROMISE, turn.id, value), turn.id))
        self.run.chats.append(*facts)

    def _unfounded(self, words: str, left: list[Claim], done: list[tuple[ToolCall, bool]]) -> list[Claim]:
        """Return the claims that no tool call of the turn supports. Earlier turns can support claims about earlier actions;
        if a summary hides the earlier turns, such claims count as supported.
        """
        view = self.chat.context
        admits = any(language.admits.search(words) for language in languages(words))
        left = self._without(left, done, admits=admits)
        if any(worked for _, worked in done):
            left = [claim for claim in left if claim.own]  # another claim may repeat a tool's report
        if any(claim.earlier for claim in left):
            before = view.view()
            unfounded = [] if view.head is not None else self._without(left, _performed(before), admits=True)
            left = [claim for claim in left if not claim.earlier or claim in unfounded]
        return left

    def _without(
        self, found: Iterable[Claim], done: Iterable[tuple[ToolCall, bool]], *, admits: bool
    ) -> list[Claim]:
        """Return the claims that no call supports. A failed call supports only the kind `ran`, unless the reply `admits`
        a failure.
        """
        supported = set[Kind]()
        for call, worked in done:
            tool = self.registry.get(call.name)
            # The calls inside a subagent are unknown, so a call of the subagent tool supports every kind.
            kinds = _EVERYTHING if call.name == TASK else _kinds(call, tool.effects if tool else frozenset())
            supported |= kinds if worked or admits else kinds & {"ran"}
        return [claim for claim in found if claim.kind not in supported]


def _build(runtime: Runtime) -> Hooks:
    async def waiting(viewer: Viewer) -> list[OpenLoop]:
        """Return the promises that this person sees on the board."""
        found, now = list[OpenLoop](), runtime.clock.now()
        for turn, one in runtime.chats.facts[PROMISE].items():
            who, chat = UserRef.parse(one["person"]), ChatKey.parse(one["chat"])
            if one["at"] >= now - KEPT and viewer.sees(who, chat):
                acts: tuple[Act, ...] = ("done",) if viewer.owns(who) else ()
                about = one["words"], one["at"], who, one["name"]
                found.append(OpenLoop(PROMISE, turn[-SHORT:], chat, *about, acts=acts))
        return found

    def ends(turn: Turn, state: TurnEndState) -> Done:
        """Delete the promise of a turn if the turn planned a job after the promise, or if the turn has no answer."""
        chat, promised = runtime.chats.loaded(turn.first.chat_key), turn.id in runtime.chats.facts[PROMISE]
        kept = not promised or chat is None or (state == "answered" and not _plans(_done(chat)))
        gone = Fact(turn.first.chat_key, FactSet(PROMISE, turn.id, None), turn.id)
        return Done(facts=() if kept else (gone,))

    async def warm() -> None:
        # Load the phrases now. Otherwise, loading them would delay the first reply.
        for name in PROMISES:
            await asyncio.to_thread(promises, name)

    return Hooks(
        wrap_reply=lambda chat, reply, registry: CheckedReply(reply, chat, registry, runtime),
        waiting=waiting,
        turn_ends={"every": ends},
        serves=(warm,),
    )


FEATURE = Feature("claims", _build)

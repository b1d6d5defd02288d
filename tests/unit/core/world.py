"""Random chats with messages, joins, edits, deletions and stops during calls, tools and sends, with a disk that refuses for
a while, and with kills at any moment. Events and fold are real; platform, model and disk are simulated here.
"""

from __future__ import annotations

import collections
import itertools
import random
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field

from bot.contracts.approvals import Approval, Ended, QuestionButtons, Verdict
from bot.contracts.identity import ChatKey
from bot.contracts.messages import Attachment, Inbound, SeenFile
from bot.core import chat as life
from bot.core import events
from bot.core.chat import Chat, Phase
from bot.core.event_log import Entry, Position
from bot.core.events import Event, EventData, keys_of
from bot.core.outgoing import OutboxRow

Steps = Generator[None, None, None]

FEED: list[tuple[str, str, str, str]] = [
    ("A", "message", "m1", "hello"),
    ("B", "message", "b1", "bee"),
    ("A", "message", "m2", "restart it"),
    ("A", "edit", "m1", "hello-there"),
    ("A", "message", "m3", "and-now"),
    ("B", "stop", "b1", ""),
    ("B", "edit", "b2", "more-still"),
    ("B", "message", "b0", "bees"),
    ("B", "message", "b2", "more"),
    ("B", "message", "b3", "note it"),
    ("A", "message", "m5", "thanks"),
    ("A", "delete", "m5", ""),
]
"""Events in the order in which the platform delivers them: chat, kind, message and words."""
ASKED = "restart"
"""The tool whose calls need an operator's approval. The operator and the person read the question in different chats."""
WITH_FILE = "m3"
"""The message with an unreadable file. Its answer must mention the file."""
UNREAD = " [file unread]"
TOOLS = {"restart it": "restart", "note it": "write", "and-now": "task"}
"""Tools with effects, by the words for which the model calls them once. A task causes one effect and reports."""


class Killed(Exception):
    """The process was killed. Uncommitted events are lost; effects outside of the process remain."""


@dataclass
class Disk:
    """The committed part of the event log."""

    on_disk: dict[ChatKey, dict[str, Event]] = field(default_factory=lambda: collections.defaultdict(dict))
    positions: dict[ChatKey, Position] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)

    def write(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self.on_disk[entry.event.chat].setdefault(entry.event.id, entry.event)
            self.positions[entry.event.chat] = entry.position
            self.keys.update(keys_of(entry.event.data))


@dataclass
class World:
    """Everything that survives the process."""

    seed: int
    finds: bool
    kills: set[int]
    refuses: range
    rng: random.Random = field(init=False)
    taken: set[int] = field(default_factory=set)
    disk: Disk = field(default_factory=Disk)
    shown: list[tuple[str, str, bool]] = field(default_factory=list)
    """Shown messages: the row, the words, and True if they are marked as a possible repeat."""
    half: set[str] = field(default_factory=set)
    """Rows whose preview shows half an answer."""
    effects: list[str] = field(default_factory=list)
    revised: set[str] = field(default_factory=set)
    """Rows that show the outcome of their question."""
    copies: list[str] = field(default_factory=list)
    """Rows of questions that were sent."""
    asked: set[str] = field(default_factory=set)
    """Calls whose questions were decided."""
    decided: dict[str, Ended] = field(default_factory=dict)
    """The operator's decisions by question id."""
    ticks: int = 0
    lives: int = 0
    ids: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    def tick(self) -> None:
        """Count a step. The process may be killed at any step."""
        self.ticks += 1
        assert self.ticks < 30_000, "never came to rest"
        if self.ticks in self.kills:
            raise Killed

    def fresh(self) -> str:
        self.ids += 1
        return f"{self.ids:08}"


def key(name: str) -> ChatKey:
    return ChatKey("telegram", name)


def inbound(world: World, number: int) -> Inbound:
    name, kind, message, words = FEED[number]
    at = number * 1000
    return Inbound(
        channel="telegram",
        chat_id=name,
        chat_key=key(name),
        chat_type="direct",
        user_id="1",
        keys=(f"{kind}:{message}",),
        ts=at,
        target={"chat_id": name},
        kind=kind,
        text=words,
        message_id=message,
        attachments=(Attachment(kind="file", ref="f1"),) if message == WITH_FILE else (),
        request_id=world.fresh(),
    )


class Process:
    """One life of the process. Its tasks are generators. A random scheduler steps them, so each `yield` lets other tasks
    run.
    """

    def __init__(self, world: World) -> None:
        world.lives += 1
        self.world, self.boot = world, f"boot{world.lives}"
        self.chats: dict[ChatKey, Chat] = collections.defaultdict(lambda: Chat(key("A")))
        self.on_disk = collections.Counter[ChatKey]()
        self.pending: list[Entry] = []
        self.tasks: dict[tuple[str, ...], Steps] = {}
        self.reading = set[str]()
        self.awake = {name for name, one in world.disk.positions.items() if one.open is not None}
        for name in {*(key(one) for one, *_ in FEED), *world.disk.on_disk}:
            self.chats[name] = Chat(name)
            position = world.disk.positions.get(name)
            for event in world.disk.on_disk[name].values():
                # Events before the fold's first event may be applied or skipped, with the same result.
                if position is None or event.seq >= position.first or world.seed % 2:
                    self.chats[name].apply(event)
                self.on_disk[name] = event.seq

    def append(self, *facts: tuple[ChatKey, EventData, str | None]) -> None:
        """Append these events in one transaction, also to several chats."""
        self.world.tick()
        entries = list[Entry]()
        for name, data, turn in facts:
            chat = self.chats[name]
            self.awake.add(name)
            event = Event(self.world.fresh(), name, self.world.ticks / 100, data, turn, seq=chat.seq + 1)
            chat.apply(event)
            entries.append(Entry(event, chat.position))
        self.pending += entries

    def committed(self) -> Steps:
        """Wait until all events are on disk. There is no other wait."""
        last = self.pending[-1] if self.pending else None
        while last is not None and last in self.pending:
            yield

    def write(self) -> None:
        if self.pending and self.world.ticks not in self.world.refuses:
            self.world.tick()
            self.world.disk.write(self.pending)
            for entry in self.pending:
                self.on_disk[entry.event.chat] = entry.event.seq
            self.pending = []
            self.world.tick()

    def run(self) -> None:
        world, idle = self.world, 0
        while idle < 4:
            world.tick()
            if world.rng.random() < 0.5:
                self.write()
            waits = self.look()
            for number, (place, *_) in enumerate(FEED):
                if number not in world.taken and place not in self.reading:
                    if world.rng.random() < 0.2:
                        self.reading.add(place)
                        self.tasks["take", str(number)] = self.take(number)
                    break
            if world.rng.random() < 0.05:
                self.press()
            if self.tasks:
                which = world.rng.choice(list(self.tasks))
                if next(self.tasks[which], "over") == "over":
                    self.tasks.pop(which, None)
            busy = self.tasks or self.pending or waits or len(world.taken) < len(FEED)
            idle = 0 if busy else idle + 1

    def look(self) -> bool:
        """Perform the due effects. Return True if an effect waits for its time."""
        waits = False
        for name, chat in [(name, self.chats[name]) for name in sorted(self.awake)]:
            for effect in chat.due(self.world.ticks / 100, self.boot, self.on_disk[name]):
                waits |= isinstance(effect, life.WakeAt)
                self.perform(name, chat, effect)
        return waits

    def take(self, number: int) -> Steps:
        name, kind, *_ = FEED[number]
        said = inbound(self.world, number)
        if not self.world.disk.keys & set(said.keys):
            data: EventData
            match kind:
                case "message":
                    data = events.Received(said)
                case "edit":
                    data = events.Edited(said)
                case "delete":
                    data = events.Deleted(said)
                case _:
                    data = events.Stop(said)
            self.append((key(name), data, None))
        yield from self.committed()  # first wait: before the message is confirmed to the platform
        self.world.taken.add(number)
        self.reading.discard(name)
        self.world.tick()

    def press(self) -> None:
        """Let the operator decide a visible question. After a kill, the operator decides it the same way again."""
        for name, chat in self.chats.items():
            for one in chat.questions.values():
                copy = f"{one.id}/operator"
                if one.verdict is None and one.arrived(copy) and copy not in self.world.revised:
                    choices: list[Ended] = ["approved", "denied"]
                    ended = self.world.decided.setdefault(one.id, self.world.rng.choice(choices))
                    self.append((name, events.Decided(one.id, Verdict(ended)), one.turn))
                    self.tasks["pressed", self.world.fresh()] = self.pressed(one.asked.call_id)
                    return

    def pressed(self, call: str) -> Steps:
        """Show the decision to the operator once it is on disk."""
        yield from self.committed()
        self.world.asked.add(call)

    def perform(self, name: ChatKey, chat: Chat, effect: life.Effect) -> None:  # noqa: C901 - one `match` of all effects
        match effect:
            case life.StartTurn(members):
                turn = chat.turn.id if chat.turn is not None else members[0].request_id
                if chat.turn is not None and chat.turn.attempts >= life.MOST_ATTEMPTS:
                    words = events.Queued(
                        f"{turn}/failed", {"chat_id": name.chat_id}, "I was cut off several times.", ends=True
                    )
                    self.append((name, words, turn), *self.over(name, chat, events.TurnEnded("failed")))
                elif ("turn", turn) not in self.tasks:
                    named = tuple(one.request_id for one in members)
                    self.append((name, events.TurnStarted(named, self.boot), turn))
                    self.tasks["turn", turn] = self.turn(name, chat, turn)
            case life.AskAnew(turn, _):
                given_up = self.tasks.pop(("turn", turn), None)
                if given_up is not None and self.world.rng.random() < 0.5:
                    self.tasks["given up", self.world.fresh()] = given_up  # a cancelled call may still answer
                self.tasks["turn", turn] = self.turn(name, chat, turn)
                self.take_up(name, chat, turn)
            case life.StopTurn(turn):
                self.tasks.pop(("turn", turn), None)
                self.append(*self.over(name, chat, events.TurnEnded("stopped")))
            case life.Deliver("send", row) if ("row", row.id) not in self.tasks:
                self.tasks["row", row.id] = self.send(name, chat, row.id)
            case life.Deliver("find", row) if ("row", row.id) not in self.tasks:
                self.find(name, row)
            case life.Deliver("end", row) if ("row", row.id) not in self.tasks:
                self.tasks["row", row.id] = self.end_live(name, row)
            case life.Deliver("revise", row):
                self.world.revised.add(row.id.rstrip("'"))
                self.world.tick()
                self.append((name, events.Revised(row.id), row.turn))
            case life.Handle(said):
                self.append((name, events.Closed(said.request_id), None))
            case _:
                pass

    def show(self, name: ChatKey, turn: str) -> Steps:
        """Show half of an answer that is still being written. The complete answer later replaces it."""
        row = f"{turn}/half/{self.world.fresh()}"
        half = events.Queued(row, {"chat_id": name.chat_id}, "half an ans", "preview")
        self.append((name, half, turn), (name, events.Sending(row, self.boot), turn))
        yield from self.committed()
        self.world.half.add(row)
        self.world.tick()
        yield
        self.append((name, events.Shown(row, row), turn))

    def end_live(self, name: ChatKey, row: OutboxRow) -> Steps:
        yield
        if row.id in self.chats[name].outbox:
            self.world.half.discard(row.id)
            self.world.tick()
            self.append((name, events.RowEnded(row.id, "failed"), row.turn))

    def find(self, name: ChatKey, row: OutboxRow) -> None:
        if row.live:
            there = self.world.finds and row.id in self.world.half
            end = events.RowEnded(row.id, "failed" if self.world.finds else "unknown")
            self.append((name, events.Shown(row.id, row.id) if there else end, row.turn))
            return
        if self.world.finds:
            there = row.id in self.world.copies or any(shown == row.id for shown, _, _ in self.world.shown)
            data: EventData = events.RowEnded(row.id, "sent", "1") if there else events.Returned(row.id)
            self.append((name, data, row.turn))
            return
        again = events.Queued(
            f"{row.id}'",
            row.target,
            row.text,
            row.form,
            repeat_of=row.id,
            ends=row.ends,
            buttons=row.buttons,
            question=row.question,
        )
        self.append((name, events.RowEnded(row.id, "unknown"), row.turn), (name, again, row.turn))

    def take_up(self, name: ChatKey, chat: Chat, turn: str) -> None:
        more = tuple(one.request_id for one in chat.joinable())
        if more:
            self.append((name, events.Joined(more), turn))

    def turn(self, name: ChatKey, chat: Chat, turn: str) -> Steps:
        """Run the loop of a turn. Its messages determine the next step."""
        while True:
            yield
            if chat.turn is None or chat.turn.phase is Phase.STOPPING:
                return  # the stop ends the turn
            self.take_up(name, chat, turn)
            for said in chat.untold:
                if said.attachments and (yield from self.gone_while_read(name, chat, turn, said)):
                    return
                message = {"role": "user", "content": [{"type": "text", "text": said.text}]}
                self.append((name, events.Told(message, (said.request_id,)), turn))
            running = chat.context.running
            assert running is not None
            last = running.entries[-1]
            if running.open_calls:
                yield from self.tools(name, chat, turn)
            elif last.message["role"] == "assistant":
                row = f"{turn}/{last.seq}"
                if row not in chat.turn.rows:
                    words = last.message["content"][-1]["text"] + UNREAD * bool(chat.turn.unread)
                    self.append((name, events.Queued(row, {"chat_id": name.chat_id}, words, ends=True), turn))
                else:
                    self.append((name, events.TurnEnded("answered"), turn))
                    return
            elif not (yield from self.ask(name, chat, turn)):
                return

    def gone_while_read(
        self, name: ChatKey, chat: Chat, turn: str, said: Inbound
    ) -> Generator[None, None, bool]:
        """Read the file of a message, unless the log has its result. Return True if the turn was stopped meanwhile."""
        if chat.turn is not None and said.request_id not in chat.turn.seen:
            for _ in range(self.world.rng.randint(1, 3)):
                self.world.tick()
                yield
            self.append((name, events.FilesRead(said.request_id, (SeenFile(why="gone", code="gone"),)), turn))
            yield
        return chat.turn is None or chat.turn.phase is Phase.STOPPING

    def ask(self, name: ChatKey, chat: Chat, turn: str) -> Generator[None, None, bool]:
        """Ask the model. Return False if the turn no longer waits for this call."""
        call = self.world.fresh()
        view = chat.context.current()
        for one, after in itertools.pairwise(view):
            calls = {block["id"] for block in one["content"] if block["type"] == "tool_use"}
            results = {block.get("tool_use_id") for block in after["content"]}
            assert calls <= results, "words between a call and its result"
        told = (entry.event.data for entry in self.pending)
        early = {one.inbound.request_id for one in told if isinstance(one, events.Received)}
        assert chat.turn is not None
        assert chat.turn.first.request_id not in early, "a turn of words that are not on disk"
        self.append((name, events.Asked(call, self.boot, "model"), turn))
        said = [
            block["text"]
            for one in view
            if one["role"] == "user"
            for block in one["content"]
            if "text" in block
        ]
        wanted = [tool for words, tool in TOOLS.items() if words in " ".join(said)]
        given = any(block.get("type") == "tool_result" for one in view for block in one["content"])
        content = (
            [{"type": "tool_use", "id": f"{turn}:{tool}", "name": tool, "input": {}} for tool in wanted]
            if wanted and not given
            else [{"type": "text", "text": f"answer to {' + '.join(said)}"}]
        )
        for _ in range(self.world.rng.randint(1, 6)):
            self.world.tick()
            yield
            if self.world.rng.random() < 0.1 and not any(one.turn == turn for one in chat.outbox.values()):
                self.tasks["half", turn] = self.show(name, turn)
        current = getattr(chat.turn, "call", None) == call
        self.append((name, events.Answered(call, content, "end_turn"), turn))
        return current

    def tools(self, name: ChatKey, chat: Chat, turn: str) -> Steps:
        assert chat.turn is not None
        assert chat.context.running is not None
        for call in chat.context.running.open_calls:
            words = "done"
            task = chat.turn.tasks.get(call.id, "")
            if call.id in chat.turn.tools and not task:
                words = "interrupted: may have taken effect"
            elif call.name == ASKED and not (yield from self.allowed(name, chat, turn, call.id)):
                words = "refused"
            else:
                task = task or (self.world.fresh() if call.name == "task" else "")
                self.append((name, events.ToolStarted(call.id, call.name, self.boot, task), turn))
                yield from self.committed()  # second wait: before a tool with effects
                if task:
                    yield from self.work(life.chat_of_task(name, task), task)
                else:
                    self.world.effects.append(call.id)
                self.world.tick()
                yield
            result = {"type": "tool_result", "tool_use_id": call.id, "content": words}
            over = [(life.chat_of_task(name, task), events.TurnEnded("answered"), task)] if task else []
            self.append(*over, (name, events.ToolEnded(call.id, result), turn))

    def work(self, place: ChatKey, task: str) -> Steps:
        """Run a task in a chat of its own, from the last step that the chat's log contains."""
        chat = self.chats.setdefault(place, Chat(place))
        order = inbound(self.world, 0).model_copy(update={"request_id": task})
        begin = [] if chat.turn is not None else [events.Ordered(order, "", "fresh")]
        self.append(*((place, one, task) for one in (*begin, events.TurnStarted((task,), self.boot))))
        running = chat.context.running
        assert running is not None
        while running.open_calls or not running.speaks:
            if running.open_calls:
                yield from self.tools(place, chat, task)
                continue
            call, dig = (
                self.world.fresh(),
                {"type": "tool_use", "id": f"{task}:dig", "name": "dig", "input": {}},
            )
            self.append((place, events.Asked(call, self.boot, "model"), task))
            yield
            said = {"type": "text", "text": "dug"} if running.entries else dig
            self.append((place, events.Answered(call, [said], "end_turn"), task))

    def over(self, name: ChatKey, chat: Chat, end: events.TurnEnded) -> list[tuple[ChatKey, EventData, str]]:
        """Return the events that end a turn and its tasks."""
        assert chat.turn is not None
        tasks = [one for one in chat.turn.tasks.values() if life.chat_of_task(name, one) in self.chats]
        ended = [(life.chat_of_task(name, one), events.TurnEnded("stopped"), one) for one in tasks]
        return [*ended, (name, end, chat.turn.id)]

    def allowed(self, name: ChatKey, chat: Chat, turn: str, call: str) -> Generator[None, None, bool]:
        """Ask the operator, wait for the decision, and return True for an approval."""
        asked = Approval(turn, name, None, None, call_id=call, tool=ASKED, why="rule")
        found = next((one for one in chat.questions.values() if one.asked.key == asked.key), None)
        if found is None:
            question = self.world.fresh()
            assert call not in self.world.asked, "asked about twice"
            self.append((name, events.QuestionAsked(question, asked), turn))
            found = chat.questions[question]
        for place, target in (("operator", "operator"), ("here", name.chat_id)):
            row = f"{found.id}/{place}"
            if row not in found.rows and found.verdict is None:
                buttons = QuestionButtons(found.id)
                queued = events.Queued(
                    row, {"chat_id": target}, "May I?", "notice", buttons=buttons, question=found.id
                )
                self.append((name, queued, turn))
        while found.verdict is None:
            yield
        return found.verdict.ended == "approved"

    def send(self, name: ChatKey, chat: Chat, row: str) -> Steps:
        if row not in chat.outbox:
            return  # the question was decided meanwhile
        one = chat.outbox[row]
        replaced = one.replaces
        if replaced is None and (half := next(filter(one.takes, chat.outbox.values()), None)) is not None:
            replaced = half.message_id
            end = events.RowEnded(half.id, "sent", replaced)
            self.append((name, end, one.turn), (name, events.Sending(row, self.boot, replaced), one.turn))
        else:
            self.append((name, events.Sending(row, self.boot, replaced), one.turn))
        yield from self.committed()  # third wait: before a send
        if replaced is not None and replaced not in self.world.half:
            if all(shown != row for shown, _, _ in self.world.shown):
                # A process that was killed had replaced the half answer, and could not record that.
                self.append((name, events.Returned(row), one.turn))
                return
            # Repeating the same edit changes nothing.
        elif one.question is None:
            self.world.half.discard(replaced or "")
            self.world.shown.append((row, one.text, one.repeat_of is not None))
        else:
            self.world.copies.append(row.rstrip("'"))
        for _ in range(2):
            self.world.tick()
            yield
        self.append((name, events.RowEnded(row, "sent", "1"), one.turn))


def live(world: World) -> int:
    """Run until no work is left. Return the number of kills."""
    kills = 0
    while True:
        try:
            Process(world).run()
        except Killed:
            kills += 1
        else:
            return kills


def check(world: World) -> None:
    """Check the shown messages and the effects against the events of `FEED`."""
    sent = {message for _, kind, message, _ in FEED if kind == "message"}
    known = dict[str, str]()
    for name, entries in world.disk.on_disk.items():
        ends = _replay(name, entries.values(), known)
        if name.kind == "task":
            continue
        shown = [
            (row.split("/")[0], row, words, marked)
            for row, words, marked in world.shown
            if row.split("/")[0] in ends
        ]
        for turn, end in ends.items():
            answers = [words for owner, _, words, _ in shown if owner == turn]
            assert (end != "stopped") == bool(answers), f"{turn} is {end}: {answers}"
            read = [
                one.data.request
                for one in entries.values()
                if isinstance(one.data, events.FilesRead) and one.turn == turn
            ]
            assert len(read) == len(set(read)), f"{turn} reads files again: {read}"
            if end == "answered":
                assert any(UNREAD in words for words in answers) == bool(read), f"{turn}: {answers}"
        for _, row, _, _ in shown:
            copies = [marked for _, other, _, marked in shown if other.rstrip("'") == row.rstrip("'")]
            assert len(copies) == 1 or (not world.finds and world.kills), f"{row} shown {len(copies)} times"
            assert all(copies[1:]), f"{row}: an unmarked repeat"
        order = [turn for turn, _, _, marked in shown if not marked]
        assert order == sorted(order), f"order {order}"
    told = (event.data for some in world.disk.on_disk.values() for event in some.values())
    unknown = {one.row for one in told if isinstance(one, events.RowEnded) and one.state == "unknown"}
    assert world.half <= unknown, f"half open: {world.half - unknown}"
    assert set(known.values()) == sent, f"lost: {sent - set(known.values())}"
    assert len(world.effects) == len(set(world.effects)), f"twice: {world.effects}"
    if world.finds or not world.kills:  # otherwise nobody knows the message of an interrupted send
        assert set(world.copies) == world.revised, (
            f"a question that does not say how it ended: {world.copies}"
        )


def _replay(name: ChatKey, entries: Iterable[Event], known: dict[str, str]) -> dict[str, str]:
    """Fold the events of a chat, and check that each answer uses the latest words of its messages at the time of queueing.
    Return the ends of the turns.
    """
    chat = Chat(name)
    gone = set[str]()
    last, edits, ends, turns = dict[str, str](), dict[str, str](), dict[str, str](), list[str]()
    for event in entries:
        before, data = chat.turn, event.data
        chat.apply(event)
        if isinstance(data, events.Received):
            message = data.inbound.message_id or ""
            known[data.inbound.request_id] = message
            last[message] = edits.get(message, data.inbound.text)
        elif isinstance(data, events.Edited):
            message = data.inbound.message_id or ""
            last[message] = edits[message] = data.inbound.text
        elif (
            isinstance(data, events.Queued)
            and data.ends
            and data.repeat_of is None
            and not data.row.endswith("/failed")
        ):
            assert before is not None
            for one in before.left:
                words = last[one.message_id or ""]
                assert words in data.text, (
                    f"{data.row} answers {data.text!r}, {one.message_id} says {words!r}"
                )
        elif isinstance(data, events.Deleted) and before is not None and before.phase is not Phase.ENDING:
            if all(one.message_id == data.inbound.message_id for one in before.members):
                gone.add(before.id)
        elif isinstance(data, events.TurnEnded) and before is not None and chat.turn is None:
            assert before.id not in gone or data.end == "stopped", f"{before.id} answers deleted words"
            assert before.id not in ends, f"{before.id} ended twice"
            ends[before.id] = data.end
            turns += [one.message_id or "" for one in before.members]
    assert chat.turn is None, f"unfinished: {chat.turn}"
    assert not chat.outbox, f"never sent: {chat.outbox}"
    assert not chat.questions, f"never decided: {chat.questions}"
    assert chat.open_since is None, f"still open: {chat.open_since}"
    never = set(last) - set(turns) - {"b1", "b2", "m5"}  # these may be stopped or deleted while they wait
    assert not never, f"never answered: {never}"
    return ends


def worlds(seeds: Iterable[int]) -> Generator[World, None, None]:
    for seed in seeds:
        rng = random.Random(seed)
        kills = set[int]() if seed % 5 == 0 else {rng.randint(1, 700) for _ in range(rng.randint(1, 5))}
        start = rng.randint(1, 500)
        yield World(seed, bool(seed % 2), kills, range(start, start + 150) if seed % 3 == 0 else range(0))

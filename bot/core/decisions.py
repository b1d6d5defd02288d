"""Decisions made in the console: each runs the same command as in a chat, and its facts become events."""

from __future__ import annotations

from bot.contracts.environment import Clock, Ids, Log
from bot.contracts.identity import CONSOLE
from bot.contracts.inbound import Command, Inbound
from bot.contracts.waiting import COMMANDS, Act, OpenLoop, Viewer
from bot.core.chats import NO_CHAT, Chats
from bot.core.feature import Door

OPERATOR = Viewer(CONSOLE, operator=True)


class Decisions:
    """The board as operators see it in the console, and the acts on it."""

    def __init__(self, door: Door, chats: Chats, *, clock: Clock, ids: Ids, log: Log) -> None:
        self._door = door
        self._chats = chats
        self._clock = clock
        self._ids = ids
        self._log = log

    async def waiting(self) -> list[OpenLoop]:
        return await self._door.waiting(OPERATOR)

    async def decide(self, loop: OpenLoop, act: Act) -> str:
        """Do something about an open loop, and return the sentence that says what was done. Raises `errors.StorageError`."""
        name, args = COMMANDS[act]
        command = Command(name=name, args=args.format(loop.id))
        inbound = Inbound(
            channel=CONSOLE.channel,
            chat_id=NO_CHAT.chat_id,
            chat_key=NO_CHAT,
            chat_type="direct",
            user_id=CONSOLE.user_id,
            keys=(),
            ts=int(self._clock.now() * 1000),
            target={},
            text="",
            command=command,
            request_id=self._ids.ulid(),
        )
        await self._chats.get(NO_CHAT)
        done = await self._door.commands[name].run(inbound)
        self._chats.append(*done.facts)
        self._log.write(
            "console",
            f"{act} {loop.kind} {loop.id}",
            level="action",
            chat_key=loop.chat_key,
            act=act,
            loop=loop.id,
        )
        return done.say

"""The hierarchy of instruction files: whole machine, operator, project, channel, chat, person.

| scope | file |
| --- | --- |
| machine | `/etc/shipmate/Agent.md` |
| operator | `~/.config/shipmate/Agent.md` (`$XDG_CONFIG_HOME` counts) |
| project | `Agent.md` |
| model | `.ship/instructions/models/<encoded model>.md` |
| channel | `.ship/instructions/channels/<channel>.md` |
| chat | `.ship/instructions/chats/<encoded chatKey>.md` |
| person | `.ship/instructions/people/<channel>-<encoded id>.md` |

A file that is missing says nothing; one that cannot be read is told to operators, and nothing else is lost with it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bot.context.files import Including, Unreadable
from bot.context.hierarchy import Resolved, Source, resolve
from bot.contracts.environment import Log
from bot.contracts.identity import ChatKey
from bot.hidden_paths import hidden
from bot.vetting import Vetting

NAME = "Agent.md"


def operator_files(env: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the paths of machine-wide instruction files, the farthest first."""
    home = env.get("XDG_CONFIG_HOME") or (f"{env['HOME']}/.config" if env.get("HOME") else "")
    own = (Path(home) / "shipmate" / NAME,) if home.startswith("/") else ()
    return (Path("/etc/shipmate") / NAME, *own)


@dataclass(frozen=True, slots=True)
class Instructions:
    """The instructions for one chat: `shared` by all chats but for its overrides, and its own."""

    shared: str = ""
    own: str = ""
    model: str = ""
    sources: tuple[str, ...] = ()
    """The names of the files that say something."""


class InstructionFiles:
    """The instruction files of one project. `encode` makes a file name of any text."""

    def __init__(
        self,
        root: Path,
        *,
        encode: Callable[[str], str],
        log: Log,
        everywhere: Sequence[Path] = (),
        vetting: Vetting | None = None,
    ) -> None:
        self._root = root
        self._folder = root / ".ship" / "instructions"
        self._encode = encode
        self._log = log
        self._everywhere = tuple(everywhere)
        self._vetting = vetting

    async def of_chat(self, channel: str | None, chat_key: ChatKey, model: str) -> Instructions:
        """Return the instructions for a chat; the channel is None if no chat caused the turn."""
        far = [*self._everywhere, self._root / NAME]
        near = [self._of_channel(channel), self._of_chat(chat_key)]
        adaptations = self._folder / "models" / f"{self._encode(model)}.md"
        *found, adapted = await self._all([*far, *near, adaptations])
        resolved = self._resolved(found)
        return Instructions(
            shared=_joined(resolved.texts[: len(far)]),
            own=_joined(resolved.texts[len(far) :]),
            model=adapted.text,
            sources=tuple(source.name for source in (*found, adapted) if source.text),
        )

    async def of_person(self, channel: str, chat_key: ChatKey, user_id: str) -> str:
        """Return the instructions for a person, as far as no farther file calls them final."""
        mine = self._folder / "people" / f"{self._encode(channel)}-{self._encode(user_id)}.md"
        (own,) = await self._all([mine])
        if not own.text:
            return ""
        far = [*self._everywhere, self._root / NAME, self._of_channel(channel), self._of_chat(chat_key)]
        # What they override of the others' stays in view: it stands in the cached part of the prompt.
        return self._resolved([*(await self._all(far)), own]).texts[-1]

    def _of_channel(self, channel: str | None) -> Path | None:
        return None if channel is None else self._folder / "channels" / f"{self._encode(channel)}.md"

    def _of_chat(self, chat_key: ChatKey) -> Path:
        return self._folder / "chats" / f"{self._encode(str(chat_key))}.md"

    async def _all(self, paths: Sequence[Path | None]) -> list[Source]:
        """The files, in their order. No thread is asked for those that are not there, as most are not."""
        there = _there(paths)
        found = dict(zip(there, await asyncio.to_thread(self._read, there), strict=True)) if there else {}
        return [found.get(path, Source("", "")) if path is not None else Source("", "") for path in paths]

    def _read(self, paths: Sequence[Path]) -> list[Source]:
        return [self._source(path) for path in paths]

    def _source(self, path: Path) -> Source:
        inside = path.is_relative_to(self._root)
        name = str(path.relative_to(self._root)) if inside else str(path)
        try:
            root = self._root.resolve()
            real = path.resolve()
            # Links must not lead out of the project, nor to its secrets; `.ship` itself may be a link.
            home = self._folder.resolve() if path.is_relative_to(self._folder) else root
            if inside and (not real.is_relative_to(home) or (home is root and hidden(root, real))):
                raise Unreadable("it is a link that leads to where instructions may not be")
            return Source(name, Including(root, self._log, self._vetting).text(real, path) or "")
        except (Unreadable, OSError, RuntimeError) as error:
            self._log.write(
                "prompt", "an instruction file cannot be read", level="warn", file=name, cause=str(error)
            )
            return Source(name, "")

    def _resolved(self, sources: Sequence[Source]) -> Resolved:
        resolved = resolve(sources)
        for note in resolved.notes:
            self._log.write(
                "prompt", "a section of the instructions is left out", level="debug", section=note
            )
        return resolved


def _there(paths: Iterable[Path | None]) -> list[Path]:
    """Those that exist. A look takes microseconds, the way to a thread and back a hundred times that."""
    return [path for path in paths if path is not None and os.path.lexists(path)]


def _joined(texts: Sequence[str]) -> str:
    return "\n\n".join(filter(None, texts))

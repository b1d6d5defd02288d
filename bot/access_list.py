"""Access lists that operators can change while the bot runs. Several processes share the file `.ship/access.json`:

    {"v": 1, "channels": {"telegram": {"allow": ["1"], "block": ["2"], "pending": {"3": 1800000000000}}}}

`operators` are people who opened the link that Shipmate prints at the start. `pending` are people without access who
wrote to the bot, each with the time (epoch ms) of that person's newest message. `names` are the names of these people.
The file does not contain the text of their messages.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from bot import errors, text
from bot.contracts.environment import Clock, Disk
from bot.contracts.identity import CONSOLE, UserRef

FILE = "access.json"
MOST_PENDING = 200  # max entries per channel; the oldest entries are removed first
MOST_OPERATORS = 100  # max entries per channel; the oldest entries are removed first
MOST_NAME = 80  # max characters of a name
LOOK_EVERY = 1.0  # seconds between two checks of the file
LOCK_SECONDS = 10.0


class ChannelLists(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    allow: list[str] = []
    block: list[str] = []
    operators: list[str] = []
    pending: dict[str, int] = {}
    names: dict[str, str] = {}

    def forget(self, user_id: str, *lists: str) -> None:
        """Remove an id from `pending`, `names` and the given `lists`."""
        self.pending.pop(user_id, None)
        self.names.pop(user_id, None)
        for name in lists:
            setattr(self, name, [one for one in getattr(self, name) if one != user_id])


class _File(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    v: int = 1
    channels: dict[str, ChannelLists] = {}


@dataclass(frozen=True, slots=True)
class PendingUser:
    """A person who wrote to the bot and has no access. `ts` is in milliseconds; `name` is "" if unknown."""

    channel: str
    user_id: str
    ts: int
    name: str = ""


_NOBODY = ChannelLists()  # Empty lists of a channel that the file does not name


class AccessList:
    """The access lists of all channels. Changes by other processes take effect within two seconds.

    If the file is unreadable at construction, `errors.ConfigError` is raised. If it becomes unreadable later, the last
    readable lists stay valid, so that a damaged file cannot give access to a blocked person.

    The methods that change lists are blocking, and raise `errors.StorageError`.
    """

    def __init__(self, path: Path, disk: Disk, clock: Clock) -> None:
        self._path = path
        self._disk = disk
        self._clock = clock
        self._stamp: tuple[int, ...] | None = None
        self._looked = clock.monotonic()
        self._file = _File()
        self._problem: str | None = None
        self._load()

    @property
    def problem(self) -> str | None:
        """Return the reason why the file cannot be read; None if it can be read."""
        self._channels()
        return self._problem

    def allowed(self, channel: str) -> frozenset[str]:
        return frozenset(self._of(channel).allow)

    def blocked(self, channel: str) -> frozenset[str]:
        return frozenset(self._of(channel).block)

    def open_channels(self) -> list[str]:
        return [channel for channel, lists in self._file.channels.items() if "*" in lists.allow]

    def operators(self) -> frozenset[UserRef]:
        channels = self._channels().items()
        return frozenset(UserRef(channel, one) for channel, lists in channels for one in lists.operators)

    def pending(self) -> list[PendingUser]:
        asked = [
            PendingUser(channel, user_id, ts, lists.names.get(user_id, ""))
            for channel, lists in self._channels().items()
            for user_id, ts in lists.pending.items()
        ]
        return sorted(asked, key=lambda item: (-item.ts, item.channel, item.user_id))

    def allow(self, channel: str, user_id: str) -> None:
        with self._changed(channel) as lists:
            lists.forget(user_id, "allow", "block")
            lists.allow.append(user_id)

    def block(self, channel: str, user_id: str) -> None:
        """Block a person, even if other lists contain the person."""
        with self._changed(channel) as lists:
            lists.forget(user_id, "allow", "block", "operators")
            lists.block.append(user_id)

    def dismiss(self, channel: str, user_id: str) -> None:
        with self._changed(channel) as lists:
            lists.forget(user_id)

    def appoint(self, person: UserRef) -> None:
        """Make a person an operator unless that person is blocked. If there are then more than `MOST_OPERATORS`, remove
        the oldest operator.
        """
        with self._changed(person.channel) as lists:
            if person.user_id not in lists.block and person.user_id not in lists.operators:
                lists.operators = [*lists.operators, person.user_id][-MOST_OPERATORS:]

    def lists_with(self, channel: str, user_id: str) -> list[str]:
        lists = self._of(channel)
        return [name for name in ChannelLists.model_fields if user_id in getattr(lists, name)]

    def erase(self, channel: str, user_id: str) -> int:
        """Remove an id from every list except `block`. Return the number of lists that contained it."""
        found = [name for name in self.lists_with(channel, user_id) if name != "block"]
        if found:
            with self._changed(channel) as lists:
                lists.forget(user_id, "allow", "operators")
        return len(found)

    def note(self, channel: str, user_id: str, name: str | None = None) -> None:
        """Record that a person without access has just written."""
        with self._changed(channel) as lists:
            if user_id in lists.allow or user_id in lists.block:
                return
            lists.pending.pop(user_id, None)
            lists.pending[user_id] = int(self._clock.now() * 1000)
            if name:
                lists.names[user_id] = text.preview(text.clean(name), MOST_NAME)
            for old in list(lists.pending)[:-MOST_PENDING]:
                lists.forget(old)

    def _of(self, channel: str) -> ChannelLists:
        return self._channels().get(channel) or _NOBODY

    def _channels(self) -> dict[str, ChannelLists]:
        """Return the lists of all channels. At most once a second, read the file again if it has changed."""
        now = self._clock.monotonic()
        if now - self._looked >= LOOK_EVERY:
            self._looked = now
            try:
                self._load()
                self._problem = None
            except errors.ConfigError as error:
                self._problem = str(error)
        return self._file.channels

    def _load(self) -> None:
        """Read the file if it has changed. Raises `errors.ConfigError`."""
        stamp: tuple[int, ...] | None = None
        try:
            with suppress(FileNotFoundError):
                found = self._path.stat()
                stamp = (found.st_mtime_ns, found.st_ino, found.st_size)
            if stamp != self._stamp:
                data = self._disk.read(self._path)
                # A file that exists but is empty has been truncated, so it counts as damaged.
                self._file = _File() if stamp is None and not data else _File.model_validate_json(data)
                self._stamp = stamp
        except ValidationError as error:
            raise self._unreadable(error.errors()[0]["msg"]) from None
        except OSError as error:
            raise self._unreadable(f"{error.strerror}") from None

    def _unreadable(self, what: str) -> errors.ConfigError:
        return errors.ConfigError(
            f"{self._path.parent.name}/{self._path.name}: found {what}; expected the lists that `shipmate allow` "
            "writes; mend it, or delete it to start with empty lists"
        )

    @contextmanager
    def _changed(self, channel: str) -> Iterator[ChannelLists]:
        """Yield the lists of a channel, which the `with` block may change. Then write the lists if they changed."""
        import filelock

        lock = filelock.FileLock(f"{self._path}.lock", timeout=LOCK_SECONDS, mode=0o600)
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with lock:
                self._load()
                file = self._file.model_copy(deep=True)
                yield file.channels.setdefault(channel, ChannelLists())
                if file != self._file:
                    self._disk.replace(self._path, file.model_dump_json(indent=2).encode() + b"\n")
                    self._load()
        except filelock.Timeout:
            raise errors.StorageError("the access list is held by another process") from None
        except errors.ConfigError as error:
            raise errors.StorageError(f"the access list cannot be changed: {error}") from None
        except OSError as error:
            raise errors.StorageError(f"the access list cannot be written: {error.strerror}") from error


@dataclass(eq=False)
class Operators(Collection[UserRef]):
    """The people who may approve tool calls and use operators' commands: the people `named` in ship.json, the user who
    started Shipmate, people who became operators while Shipmate runs, and every user of the console. Iteration skips
    `CONSOLE` (the user of the console), because no chat belongs to it.
    """

    named: frozenset[UserRef]
    lists: AccessList

    def __contains__(self, person: object) -> bool:
        return person == CONSOLE or person in set(self)

    def __iter__(self) -> Iterator[UserRef]:
        return iter(self.named | self.lists.operators())

    def __len__(self) -> int:
        return len({*self})

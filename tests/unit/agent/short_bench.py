"""A bench for many short conversations side by side: no thread, nothing that waits for a disk, few tools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bot.core.assembly import Prompts
from bot.core.file_names import encode
from bot.core.instructions import InstructionFiles, Source
from bot.system import SystemDisk
from bot.tools.registry import Registry
from tests.unit.agent.conftest import Bench

TOOLS = ("chat_send", "skills_list", "chat_load_history")


class QuietDisk(SystemDisk):
    """Waits for nothing: no test here pulls the plug."""

    def append(self, path: Path, data: bytes, *, sync: bool = False) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(data)

    def replace(self, path: Path, data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


class AtOnce(ThreadPoolExecutor):
    """What is to be done in a thread is done here and now, which costs less than telling a thread."""

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(work(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - it belongs to whoever waits, whatever it is
            done.set_exception(error)
        return done


class NoFiles(InstructionFiles):
    """Knows without looking that there are no instruction files."""

    async def _all(self, paths: Sequence[Path | None]) -> list[Source]:
        return [Source("", "")] * len(paths)


class ShortBench(Bench):
    """With the few tools that a random conversation uses."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, QuietDisk())
        tools = [tool for name in TOOLS if (tool := self.registry.get(name)) is not None]
        registry = Registry(tools)
        nowhere = NoFiles(root, encode=encode, log=self.log, vetting=self.deps.vetting)
        prompts = Prompts(
            root,
            name="Shipmate",
            skills=self.skills,
            instructions=nowhere,
            log=self.log,
            vetting=self.deps.vetting,
        )
        self.configure(registry=registry, dispatcher=self.dispatcher(registry), prompts=prompts)

"""Measurements of Shipmate: `python -m tests.bench`. With `--json`, the report ends with one line of JSON.

Times depend on the machine. Ratios to the times of a plain program that runs at the same time depend less on the machine.

The command writes `bench.json`. It fails if a message got no answer, or if a ratio is worse than the stored
one (`limits.py`).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import os
import platform
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench import (
    aims,
    burst,
    context_report,
    figures,
    gateway,
    growth,
    limits,
    load,
    markdown,
    process,
    recall_report,
    recall_speed,
    starts,
)
from tests.bench.programs import Plain, Program, Shipmate, Unanswered
from tests.bench.servers import Board, TimedModel

BLOCKED = 50.0
"""Limit in milliseconds for a single block of the event loop."""
REPORT = Path("bench.json")
ACKED = 3.0
"""Timeout in seconds after which Slack treats an event as unconfirmed and sends it again."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Sizes of all measurements. `many` is the number of chats in the memory measurement, `large` the number
    of characters in the longest answer.
    """

    pairs: int
    rounds: int
    tools: int
    load: load.Size
    burst: int
    with_past: growth.Size
    many: int
    large: int
    context: context_report.Size
    recall: recall_report.Size
    speed: tuple[int, ...]


ORDINARY = Scale(
    gateway.PAIRS,
    gateway.ROUNDS,
    40,
    load.SHORT,
    burst.SHORT,
    growth.SHORT,
    1_000,
    1_000_000,
    context_report.ORDINARY,
    recall_report.ORDINARY,
    recall_speed.ORDINARY,
)
FULL = Scale(
    gateway.PAIRS,
    gateway.ROUNDS,
    40,
    load.FULL,
    burst.FULL,
    growth.FULL,
    2_000,
    3_000_000,
    context_report.FULL,
    recall_report.FULL,
    recall_speed.FULL,
)
QUICK = Scale(
    20,
    2,
    10,
    load.QUICK,
    burst.QUICK,
    growth.QUICK,
    20,
    100_000,
    context_report.QUICK,
    recall_report.QUICK,
    recall_speed.QUICK,
)


async def bench(folder: Path, scale: Scale, only: Collection[str] = ()) -> dict[str, Any]:
    """Run all parts, or those in `only`; print each result when it is found, and return the figures."""
    found: dict[str, Any] = {}
    for name, part in PARTS.items():
        if not only or name in only:
            found |= await part(folder, scale)
            say()
    say("aims")
    for line in aims.told(found, measured_alone=bool(only)):
        say(line)
    return found


async def _beside_the_script(folder: Path, scale: Scale) -> dict[str, Any]:
    found: dict[str, Any] = {}
    board = Board()
    model = TimedModel(board)
    await model.start()
    shipmate = Shipmate(folder / "shipmate", board, first_chat=1_000_000)
    both: list[Program] = [shipmate, Plain(board, first_chat=2_000_000)]
    try:
        for program in both:
            await program.start(model)
        found |= _told_one(await gateway.one_chat(both, model, scale.pairs))
        found |= _told_crowd(await gateway.crowd(both, model, scale.rounds))
        _told_tool(await gateway.by_tool(shipmate, model, scale.tools))
        before = shipmate.logged()
        found |= _told_rush(await load.rush(both, model, scale.load), scale.load)
        found |= _told_log(before, shipmate.logged(), scale.load.total)
        found |= _told_streaming(
            await process.streaming(shipmate, model, 1_000 if scale.pairs > QUICK.pairs else 100)
        )
        found |= _told_load(await load.load(both, model, scale.load), scale.load)
    finally:
        for program in both:
            await program.stop()
        await model.stop()
    return found


async def _bursts(folder: Path, scale: Scale) -> dict[str, Any]:
    return _told_bursts(await burst.bursts(folder, scale.burst), scale.burst)


def _told_log(before: tuple[int, int], after: tuple[int, int], messages: int) -> dict[str, Any]:
    lines, size = ((now - then) / messages for then, now in zip(before, after, strict=True))
    say(f"  log a message: {lines:.1f} lines, {size:,.0f} bytes")
    return {"log": {"lines": lines, "bytes": size}}


def _told_streaming(times: list[float]) -> dict[str, Any]:
    if not times:
        return {}
    spread = figures.Spread.of(times)
    say(f"  streaming: {spread.p50:.0f} µs of CPU a delta ({min(times):.0f} to {max(times):.0f})")
    return {"streaming": {"cpuUs": spread.p50}}


async def _memory(folder: Path, scale: Scale) -> dict[str, Any]:
    memory = await process.memory(folder, scale.many)
    say(
        f"memory with both platforms: {memory.idle:.0f} MB idle, {memory.first:.0f} after the first message, "
        f"{memory.many:.0f} after {scale.many:,} chats; {memory.per_chat:.1f} kB for each of the later half; "
        f"an evicted chat is back after {memory.back:.1f} ms"
    )
    figure = {
        "idleMb": memory.idle,
        "manyMb": memory.many,
        "kbPerChat": memory.per_chat,
        "backMs": memory.back,
    }
    return {"memory": figure}


async def _first_reply(folder: Path, _: Scale) -> dict[str, Any]:
    say(figures.heading("first reply after a start"))
    ours, theirs = await process.first_replies(folder)
    rows = {"wholeMs": ("from the start of the process, ms", ours.whole, theirs.whole)}
    if ours.cpu and theirs.cpu:
        rows["cpuMs"] = ("processor time until then, ms", ours.cpu, theirs.cpu)
        rows["residentMb"] = ("memory after it, MB", ours.resident, theirs.resident)
    return {"firstReply": _rows(rows)}


async def _restart(folder: Path, scale: Scale) -> dict[str, Any]:
    size = scale.with_past
    again = await growth.restart(folder, size)
    say(
        f"killed with {size.unfinished:,} unfinished turns and {size.chats:,} chats of {size.each} turns: ready after "
        f"{again.ready:.1f} s, all answered once {again.answered:.1f} s later"
    )
    return {"restart": {"readyS": again.ready, "answeredS": again.answered}}


async def _growth(folder: Path, scale: Scale) -> dict[str, Any]:
    size = scale.with_past
    found = {}
    for name, title, (much, little) in (
        ("turns", f"a chat of {size.turns:,} turns", await growth.by_turns(folder, size)),
        ("chats", f"{size.on_disk:,} chats on disk", await growth.by_chats(folder, size)),
    ):
        say(figures.heading("cost of a message, ms", title, f"{growth.FEW}"))
        rows = {"overheadMs": ("inbound and outbound", much.times, little.times)}
        if much.cpu and little.cpu:
            rows["cpuMs"] = ("processor time", much.cpu, little.cpu)
        found[name] = _rows(rows)
    return {"growth": found}


def _told_one(times: list[gateway.Times]) -> dict[str, Any]:
    ours, theirs = times
    say(figures.heading("one chat, ms"))
    rows = {
        "inboundMs": ("inbound to model request", ours.inbound, theirs.inbound),
        "outboundMs": ("model answer to delivery", ours.outbound, theirs.outbound),
        "overheadMs": ("both", ours.total, theirs.total),
    }
    return {"oneChat": _rows(rows)}


def _told_crowd(crowds: list[gateway.Crowd]) -> dict[str, Any]:
    ours, theirs = crowds
    say()
    say(figures.heading(f"{gateway.CROWD} chats at once, ms"))
    rows = {
        "inboundMs": ("inbound to model request", ours.times.inbound, theirs.times.inbound),
        "outboundMs": ("model answer to delivery", ours.times.outbound, theirs.times.outbound),
        "wholeMs": ("all answered (1 s is thinking)", ours.whole, theirs.whole),
    }
    if ours.cpu and theirs.cpu:
        rows["cpuMs"] = ("processor time a message", ours.cpu, theirs.cpu)
    return {"crowd": _rows(rows)}


def _told_rush(rushes: list[load.Rush], size: load.Size) -> dict[str, Any]:
    ours, theirs = rushes
    say()
    say(figures.heading(f"{size.chats:,} chats, {size.total:,} messages, no thinking, ms"))
    rows = {
        "messageMs": (
            "time a message",
            [1_000 / rate for rate in ours.rates],
            [1_000 / rate for rate in theirs.rates],
        )
    }
    if ours.cpu and theirs.cpu:
        rows["cpuMs"] = ("processor time a message", ours.cpu, theirs.cpu)
    return {"rush": _rows(rows)}


def _told_load(loads: list[load.Load], size: load.Size) -> dict[str, Any]:
    ours, theirs = loads
    say()
    say(figures.heading(f"{size.chats:,} chats, {size.total:,} messages, {load.AT_ONCE} at once, ms"))
    found = _rows(
        {
            "inboundMs": ("inbound to model request", ours.times.inbound, theirs.times.inbound),
            "outboundMs": ("model answer to delivery", ours.times.outbound, theirs.times.outbound),
            "overheadMs": ("both", ours.times.total, theirs.times.total),
        }
    )
    for name, one in (("shipmate", ours), ("plain script", theirs)):
        if one.resident:
            grows = load.growth(one.resident, size.chats)
            say(
                f"  memory of {name}: {one.resident[0]:.0f} MB at first, {max(one.resident):.0f} MB at most; "
                f"{grows:+.2f} kB a message in the later half"
            )
            found[name] = {"firstMb": one.resident[0], "mostMb": max(one.resident), "kbPerMessage": grows}
    return {"load": found}


def _told_bursts(found: tuple[burst.Burst, burst.Burst], events: int) -> dict[str, Any]:
    say(f"bursts of {events:,} events, {burst.A_SECOND} a second, all confirmed and answered once")
    told = {}
    for name, one in zip(("slack", "telegram"), found, strict=True):
        spread, longest = figures.Spread.of(one.confirmed), max(one.confirmed)
        say(
            f"  {name}: confirmed after {spread.p50 * 1000:,.0f} ms (p50), {spread.p99 * 1000:,.0f} ms (p99), "
            f"{longest * 1000:,.0f} ms (longest); all answered after {one.whole:.0f} s, {one.rate:.0f} a second"
        )
        told[name] = {"ackMs": spread.p50 * 1000, "ackMaxMs": longest * 1000, "rate": one.rate}
    if max(found[0].confirmed) > ACKED:
        say(f"  more than the {ACKED:.0f} s that Slack waits")
    return {"bursts": told}


async def _context(folder: Path, scale: Scale) -> dict[str, Any]:
    return {"context": await context_report.measured(folder / "context", scale.context, say)}


async def _recall(folder: Path, scale: Scale) -> dict[str, Any]:
    found = {"recall": await asyncio.to_thread(recall_report.measured, scale.recall, say)}
    say("\none long chat")
    speeds: dict[str, Any] = {}
    for lines in scale.speed:
        speed = await recall_speed.measured(folder / f"chat-{lines}", lines)
        say(f"  {recall_speed.told(speed)}")
        speeds[f"{lines}"] = {
            "rebuildS": speed.rebuild,
            "searchMs": speed.search,
            "searchCpuMs": speed.computing,
            "windowMs": speed.window,
        }
    return found | {"recallSpeed": speeds}


def _rows(rows: dict[str, tuple[str, list[float], list[float]]]) -> dict[str, Any]:
    found = {}
    for key, (label, ours, theirs) in rows.items():
        line, found[key] = figures.paired(label, ours, theirs)
        say(line)
    return found


def _told_tool(times: gateway.Times) -> None:
    say()
    say("for information: shipmate's own way, chat_send and a second call of the model, one chat, ms")
    for label, values in (
        ("inbound to model request", times.inbound),
        ("tool call to delivery", times.outbound),
    ):
        spread = figures.Spread.of(values)
        say(
            f"  {label:<30}"
            + "".join(f"{figures.number(v):>9}" for v in (spread.min, spread.p50, spread.p99))
        )


async def _loop(folder: Path, scale: Scale) -> dict[str, Any]:
    answers = [
        markdown.long_markdown(30_000),
        *markdown.markdown_bombs(),
        markdown.long_markdown(scale.large),
    ]
    found = await gateway.watched(folder / "watched", answers)
    # A block that neither computed nor waited only lost the processor to another process, so it does not count.
    blocks = [block for block in found if block["waits"] or block["cpu"] > block["wall"] / 2]
    longest = max(blocks, key=lambda block: float(block["wall"]), default=None)
    words = f"{longest['wall']:.0f} ms" if longest else "under 20 ms"
    say(
        f"event loop of shipmate, {2 * gateway.CROWD} messages, {len(answers) - 1} hard answers and one of "
        f"{scale.large:,} characters: longest block {words}"
    )
    over = [block for block in blocks if block["wall"] > BLOCKED]
    for block in over:
        say(f"  {block['wall']:.0f} ms ({block['cpu']:.0f} ms of them computing): {block['what'][:100]}")
        say(f"    {block['where']}")
    computing = max((float(block["cpu"]) for block in found), default=0.0)
    say(f"  longest piece of computing: {computing:.0f} ms")
    return {
        "loop": {
            "longestMs": longest["wall"] if longest else 0.0,
            "cpuMs": computing,
            "over50": len(over),
        }
    }


async def _starts(_: Path, __: Scale) -> dict[str, Any]:
    say(figures.heading("starts, ms", "shipmate", "python"))
    rows = {name: (name, [ours], [bare]) for name, (ours, bare) in (await starts.starts()).items()}
    return {"starts": _rows(rows)}


PARTS: dict[str, Callable[[Path, Scale], Awaitable[dict[str, Any]]]] = {
    "script": _beside_the_script,
    "bursts": _bursts,
    "memory": _memory,
    "first": _first_reply,
    "restart": _restart,
    "growth": _growth,
    "loop": _loop,
    "context": _context,
    "recall": _recall,
    "starts": _starts,
}
"""Parts that `--only` can name, in the order of measurement."""


def say(line: str = "") -> None:
    """Print one line of the report."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Measurements of Shipmate.")
    parser.add_argument(
        "--json", action="store_true", help="print the figures as one line of JSON at the end"
    )
    parser.add_argument(
        "--store", action="store_true", help="keep the ratios of this run as those to compare with"
    )
    how_much = parser.add_mutually_exclusive_group()
    how_much.add_argument("--quick", action="store_true", help="few rounds: does it run at all?")
    how_much.add_argument("--full", action="store_true", help="everything at full size: half an hour")
    parser.add_argument(
        "--only", nargs="+", choices=PARTS, default=[], metavar="PART", help=f"of {', '.join(PARTS)}"
    )
    wanted = parser.parse_args()
    load = os.getloadavg()[0]
    say(f"Python {platform.python_version()}, {os.cpu_count()} processors, load {load:.1f}")
    if load > 1:
        say("something else is running here: compare ratios, not times")
    say()
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)  # hide the errors of clients that stop
    gc.freeze()
    gc.disable()  # garbage collection would distort the times of the servers in this process
    began = time.monotonic()
    # Use a folder on the project's disk, because the system's temporary folder may be in memory.
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=Path.cwd()) as folder:
        try:
            scale = QUICK if wanted.quick else FULL if wanted.full else ORDINARY
            found = asyncio.run(bench(Path(folder), scale, wanted.only))
        except Unanswered as error:
            sys.stderr.write(f"bench failed: {error}\n")
            return 1
    say(f"\ntook {time.monotonic() - began:.0f} s")
    REPORT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if wanted.json:
        say(json.dumps(found))
    ratios = limits.ratios(found)
    if wanted.store:
        limits.store(limits.stored() | ratios)
    worse = [] if wanted.quick else limits.regressions(ratios, limits.stored())
    for line in worse:
        say(f"worse than before: {line}")
    return bool(worse)


if __name__ == "__main__":
    sys.exit(main())

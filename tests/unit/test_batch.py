from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from bot import errors
from bot.batch import LINGER, PATIENCE, Batcher


async def test_what_waits_goes_out_in_order_in_one_hop() -> None:
    batches: list[list[int]] = []

    def work(batch: list[int]) -> list[int]:
        batches.append(batch)
        return [item * 10 for item in batch]

    batcher = Batcher("test", work)
    assert await asyncio.gather(*(batcher.put(item) for item in range(50))) == [i * 10 for i in range(50)]
    assert batches == [list(range(50))]
    await batcher.close()


async def test_what_comes_while_a_batch_is_written_makes_the_next_batch() -> None:
    batches: list[list[int]] = []
    started, go_on = threading.Event(), threading.Event()

    def work(batch: list[int]) -> list[int]:
        batches.append(batch)
        started.set()
        go_on.wait(90)
        return batch

    batcher = Batcher("test", work)
    first = asyncio.ensure_future(batcher.put(1))
    await asyncio.to_thread(started.wait, 90)
    others = [asyncio.ensure_future(batcher.put(item)) for item in (2, 3)]
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(first, *others)
    assert batches == [[1], [2, 3]]
    await batcher.close()


async def test_what_is_in_no_hurry_keeps_its_place_and_goes_with_what_is() -> None:
    batches: list[list[int]] = []

    def work(batch: list[int]) -> list[int]:
        batches.append(batch)
        return batch

    batcher = Batcher("test", work)
    patient = asyncio.ensure_future(batcher.put(1, hurry=False))
    await asyncio.sleep(0)
    assert await batcher.put(2) == 2
    assert await patient == 1
    assert batches == [[1, 2]]
    assert await batcher.put(3, hurry=False) == 3  # nobody else came: it goes alone
    assert batches == [[1, 2], [3]]
    await batcher.close()


async def test_a_close_waits_for_what_was_in_no_hurry() -> None:
    batcher: Batcher[int, int] = Batcher("test", lambda batch: batch)
    patient = asyncio.ensure_future(batcher.put(1, hurry=False))
    await asyncio.sleep(0)
    await batcher.close()
    assert patient.done()
    assert await patient == 1


async def test_a_batch_has_a_largest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bot.batch.LARGEST", 3)
    batches: list[list[int]] = []

    def work(batch: list[int]) -> list[int]:
        batches.append(batch)
        return batch

    batcher = Batcher("test", work)
    assert await asyncio.gather(*(batcher.put(item) for item in range(7))) == list(range(7))
    assert batches == [[0, 1, 2], [3, 4, 5], [6]]
    await batcher.close()


async def test_a_failure_reaches_the_caller_it_belongs_to() -> None:
    batcher: Batcher[int, int] = Batcher(
        "test", lambda batch: [errors.StorageError("odd") if item % 2 else item for item in batch]
    )
    results = await asyncio.gather(*(batcher.put(item) for item in range(4)), return_exceptions=True)
    assert [isinstance(result, errors.StorageError) for result in results] == [False, True, False, True]
    await batcher.close()


async def test_a_cancelled_caller_takes_nothing_back() -> None:
    done: list[int] = []
    go_on = threading.Event()

    def work(batch: list[int]) -> list[None]:
        go_on.wait(90)
        done.extend(batch)
        return [None] * len(batch)

    batcher = Batcher("test", work)
    caller = asyncio.ensure_future(batcher.put(7))
    await asyncio.sleep(0)
    caller.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    await batcher.close()
    assert done == [7]


async def test_nobody_waits_for_ever_when_the_work_itself_breaks() -> None:
    complaints: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["message"]))

    def work(batch: list[int]) -> list[int]:
        if batch == [1]:
            raise KeyError("a bug")
        return batch

    batcher = Batcher("test", work)
    with pytest.raises(errors.StorageError, match="test: the batch broke off"):
        await batcher.put(1)
    assert await batcher.put(2) == 2
    await batcher.close()


async def test_what_came_behind_a_batch_that_broke_waits_for_nothing_else() -> None:
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    started, go_on = threading.Event(), threading.Event()

    def work(batch: list[int]) -> list[int]:
        started.set()
        go_on.wait(90)
        if batch == [1]:
            raise KeyError("a bug")
        return batch

    batcher = Batcher("test", work)
    broken = batcher.put(1)
    await asyncio.to_thread(started.wait, 90)
    behind, flushed = batcher.put(2), asyncio.ensure_future(batcher.flush())
    await asyncio.sleep(0)
    go_on.set()
    async with asyncio.timeout(90):
        with pytest.raises(errors.StorageError):
            await broken
        assert await behind == 2
        await flushed
    await batcher.close()


async def test_a_flush_does_not_wait_for_a_writer_that_was_cancelled() -> None:
    started, go_on = threading.Event(), threading.Event()

    def work(batch: list[int]) -> list[int]:
        started.set()
        go_on.wait(90)
        return batch

    batcher = Batcher("its name", work)
    cut_off = batcher.put(1)
    await asyncio.to_thread(started.wait, 90)
    flushed = asyncio.ensure_future(batcher.flush())
    await asyncio.sleep(0)
    (writer,) = (task for task in asyncio.all_tasks() if task.get_name() == "its name")
    writer.cancel()
    async with asyncio.timeout(90):
        await flushed
        with pytest.raises(errors.StorageError):
            await cut_off
    go_on.set()
    await batcher.close()


def test_it_serves_one_event_loop_after_another() -> None:
    batcher: Batcher[int, int] = Batcher("test", lambda batch: batch)

    async def use(item: int) -> int:
        result = await batcher.put(item)
        await batcher.close()
        return result

    assert [asyncio.run(use(1)), asyncio.run(use(2))] == [1, 2]


async def test_closing_finishes_what_waits_and_is_safe_twice() -> None:
    done: list[int] = []
    batcher: Batcher[int, None] = Batcher("test", lambda batch: [done.append(item) for item in batch])  # type: ignore[func-returns-value]
    task = asyncio.ensure_future(batcher.put(1))
    await asyncio.sleep(0)
    await batcher.close()
    await batcher.close()
    await task
    assert done == [1]


async def test_where_many_come_those_in_no_hurry_wait_longer_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bot.batch.MANY", 4)
    loop, waits = asyncio.get_running_loop(), list[float]()

    def later(delay: float, call: Callable[..., object], *given: object) -> asyncio.Handle:
        waits.append(delay)
        return loop.call_soon(call, *given)

    monkeypatch.setattr(loop, "call_later", later)
    batches: list[list[int]] = []

    def work(batch: list[int]) -> list[int]:
        batches.append(batch)
        return batch

    for patient in (True, False):
        batcher = Batcher("test", work, patient=patient)
        for number in (1, 2):
            await batcher.put(number)
        await batcher.put(3, hurry=False)
        await asyncio.gather(batcher.put(4, hurry=False), batcher.put(5, hurry=False))
        await batcher.close()
    assert waits == [LINGER, PATIENCE, LINGER, LINGER]
    assert batches == [[1], [2], [3], [4, 5]] * 2


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_flush_waits_for_all_that_was_put_and_for_no_more(
    monkeypatch: pytest.MonkeyPatch, *, cancelled: bool
) -> None:
    monkeypatch.setattr("bot.batch.LINGER", 3_600)
    done: list[int] = []
    batcher: Batcher[int, None] = Batcher("test", lambda batch: [done.append(item) for item in batch])  # type: ignore[func-returns-value]
    await batcher.flush()
    batcher.put(1, hurry=False)
    newest = batcher.put(2, hurry=False)
    if cancelled:
        newest.cancel()
    await batcher.flush()
    assert done == [1, 2]
    await batcher.close()


async def test_a_flush_ends_although_more_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bot.batch.LINGER", 3_600)
    done: list[int] = []

    def work(batch: list[int]) -> list[int]:
        done.extend(batch)
        loop.call_soon_threadsafe(batcher.put, done[-1] + 1)
        return batch

    loop, batcher = asyncio.get_running_loop(), Batcher("test", work)
    batcher.put(1, hurry=False).cancel()
    async with asyncio.timeout(90):
        await batcher.flush()
    assert done[0] == 1
    monkeypatch.setattr(batcher, "put", lambda _: None)
    await batcher.close()

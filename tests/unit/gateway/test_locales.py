"""The language and the time zone in which each person is spoken to: those of their app, or those they have chosen, over restarts."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from bot.contracts.identity import UserRef
from bot.contracts.inbound import Command
from bot.contracts.journal import Journal, Locale
from bot.testing.journal import FaultyJournal, JournalFailure
from bot.words import names, say, speaking
from tests.unit.gateway.conftest import Bench, killed

ANN = UserRef("tele", "77")


def chinese(key: str, **values: Any) -> str:
    with speaking("zh"):
        return say(key, **values)


async def asked(bench: Bench, name: str, args: str = "", **more: Any) -> str:
    """Give a command; the answer."""
    count = len(bench.tele.sent)
    command = Command(name=name, args=args)
    await bench.say(f"/{name} {args}", command=command, addressed="command", **more)
    return (await bench.tele.until(count + 1))[-1]


async def test_everyone_is_answered_in_the_language_of_their_app(bench: Bench) -> None:
    assert await asked(bench, "stop", language="zh-hans") == chinese("stop.nothing")
    assert await asked(bench, "stop", language="de") == say("stop.nothing")
    assert await asked(bench, "stop", user_id="1", language="en-US") == say("stop.nothing")


async def test_a_message_without_a_language_is_answered_in_the_last_one_that_was_known(bench: Bench) -> None:
    await asked(bench, "stop", language="zh_CN")
    await bench.idle()
    assert await bench.journal.locales() == {ANN: Locale("zh")}
    assert await asked(bench, "stop") == chinese("stop.nothing")


async def test_the_language_that_a_person_has_chosen_outlives_a_restart(tmp_path: Path) -> None:
    first = Bench(tmp_path)
    await first.open()
    assert await asked(first, "language", "ZH", language="en") == chinese("language.now")
    assert await asked(first, "stop", language="en") == chinese("stop.nothing")
    assert await asked(first, "stop", user_id="1", language="en") == say("stop.nothing")
    await killed(first)
    second = Bench(tmp_path)
    await second.open()
    again: dict[str, Any] = {"keys": ("again",), "message_id": "again"}
    assert await asked(second, "stop", language="en", **again) == chinese("stop.nothing")
    auto = say("language.auto", language="English")
    assert await asked(second, "language", "auto", language="en", keys=("auto",)) == auto
    assert await asked(second, "stop", language="en", keys=("last",)) == say("stop.nothing")
    await second.close()


async def test_the_command_alone_names_what_there_is_and_a_language_that_is_unknown_changes_nothing(
    bench: Bench,
) -> None:
    assert await asked(bench, "language") == say(
        "language.choices", language="English", codes="en, zh", prefix="/"
    )
    assert await asked(bench, "language", "Klingon") == say(
        "language.unknown", asked="Klingon", codes="en, zh"
    )
    assert await bench.journal.locales() == {}


async def test_where_what_was_chosen_cannot_be_read_the_app_decides(tmp_path: Path) -> None:
    bench = Bench(tmp_path, wrap=FaultyJournal)
    assert isinstance(bench.journal, FaultyJournal)
    for kind in ("locales", "put_locale"):
        bench.journal.fail(JournalFailure(kind))
    await bench.open()
    assert await asked(bench, "stop", language="zh") == chinese("stop.nothing")
    await bench.idle()
    assert [one.message for one in bench.log.at("error")] == [
        "people's languages and time zones are not known"
    ] * 2
    await bench.close()


async def test_a_failure_is_told_in_the_language_of_its_person(bench: Bench) -> None:
    bench.agent.answer = lambda _: f"{1 // 0}"
    await bench.say("hello", language="zh")
    assert await bench.tele.until(1) == [chinese("errors.any")]


HOW = say("timezone.how", prefix="/")


async def test_the_time_zone_that_a_person_has_chosen_outlives_a_restart(tmp_path: Path) -> None:
    first = Bench(tmp_path)
    await first.open()
    unknown = say("timezone.unknown", zone="UTC", time="08:00")
    assert await asked(first, "timezone") == f"{unknown} {HOW}"
    assert await asked(first, "timezone", "europe/berlin") == say(
        "timezone.now", zone="Europe/Berlin", time="09:00"
    )
    await killed(first)
    second = Bench(tmp_path)
    await second.open()
    known = say("timezone.known", zone="Europe/Berlin", time="09:00")
    assert await asked(second, "timezone", keys=("again",)) == f"{known} {HOW}"
    assert await asked(second, "timezone", "auto", keys=("auto",)) == unknown
    assert await second.journal.locales() == {ANN: Locale()}
    await second.close()


async def test_the_zone_of_an_app_counts_until_somebody_chooses_and_language_and_zone_do_not_touch_each_other(
    bench: Bench,
) -> None:
    told = await asked(bench, "timezone", zone="Asia/Kolkata", language="zh")
    assert chinese("timezone.known", zone="Asia/Kolkata", time="13:30") in told
    await asked(bench, "timezone", "tokyo", zone="Asia/Kolkata", language="zh")
    await asked(bench, "language", "en", zone="Asia/Kolkata", language="zh")
    told = await asked(bench, "timezone", zone="Asia/Kolkata", language="zh")
    assert say("timezone.known", zone="Asia/Tokyo", time="17:00") in told
    assert await bench.journal.locales() == {
        ANN: Locale("en", language_chosen=True, zone="Asia/Tokyo", zone_chosen=True)
    }
    await asked(bench, "timezone", "auto", zone="Atlantis/Deep")
    assert (await bench.journal.locales())[ANN].zone is None


async def test_a_zone_that_is_none_is_answered_with_those_that_come_near(bench: Bench) -> None:
    for wrong, zones in (
        ("Europe/Berlim", "Europe/Berlin"),
        ("Tokio", "Asia/Tokyo"),
        ("Kolkatta", "Asia/Kolkata"),
        ("New Yorck", "America/New_York"),
    ):
        told = await asked(bench, "timezone", wrong)
        assert told.startswith(f"I don't know the time zone “{wrong}”. Did you mean one of these? {zones}"), (
            told
        )
    for wrong in ("qqqq", "../../etc/passwd", "x" * 5_000):
        assert (await asked(bench, "timezone", wrong)).endswith("as in /timezone Europe/Berlin.")
    assert await bench.journal.locales() == {}


async def test_what_is_chosen_with_the_first_message_outlives_what_the_app_says_of_it(tmp_path: Path) -> None:
    first = Bench(tmp_path)
    await first.open()
    assert await asked(first, "language", "zh", language="en", zone="Asia/Tokyo") == chinese("language.now")
    await first.idle()
    assert await first.journal.locales() == {ANN: Locale("zh", language_chosen=True, zone="Asia/Tokyo")}
    await first.close()


class SlowLocales(FaultyJournal):
    """What is chosen is on file once `go` is set."""

    def __init__(self, inner: Journal) -> None:
        super().__init__(inner)
        self._put_locale = inner.put_locale
        self.go = asyncio.Event()
        self.begun = asyncio.Event()

    async def put_locale(self, person: UserRef, locale: Locale) -> None:
        self.begun.set()
        await self.go.wait()
        await self._put_locale(person, locale)


async def test_language_and_zone_that_are_chosen_while_one_is_written_are_both_kept(tmp_path: Path) -> None:
    bench = Bench(tmp_path, wrap=SlowLocales)
    journal = bench.journal
    assert isinstance(journal, SlowLocales)
    await bench.open()
    for name, args in (("language", "zh"), ("timezone", "Asia/Tokyo")):
        command = Command(name=name, args=args)
        await bench.say(f"/{name} {args}", command=command, addressed="command", keys=(name,))
        await journal.begun.wait()
    journal.go.set()
    await bench.tele.until(2)
    both = Locale("zh", language_chosen=True, zone="Asia/Tokyo", zone_chosen=True)
    assert await journal.locales() == {ANN: both}
    await bench.close()


async def test_a_reader_of_traditional_chinese_is_told_that_there_is_only_the_simplified_one(
    bench: Bench,
) -> None:
    only = "我目前只会简体中文，还没有繁體中文。"
    assert await asked(bench, "language", "zh-TW") == f"{chinese('language.now')}{only}"
    assert await asked(bench, "language", "zh-CN") == chinese("language.now")
    assert only in await asked(bench, "language", language="zh-Hant")
    assert (await asked(bench, "language", "auto", language="zh-hk")).endswith(only)
    assert only not in await asked(bench, "language", "auto", language="zh-hans")
    assert await asked(bench, "language", "en", language="zh-hk") == say("language.now")


@pytest.mark.parametrize("name", names("help"))
async def test_in_chinese_no_space_stands_behind_a_sentence(bench: Bench, name: str) -> None:
    for chat_type in ("direct", "group"):
        told = await asked(bench, name, user_id="1", language="zh", chat_type=chat_type, keys=(chat_type,))
        assert re.search(r"[。？！：] ", told) is None, told

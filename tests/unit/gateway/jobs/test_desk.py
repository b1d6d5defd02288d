"""Making, showing and taking back jobs: whose they are, what is said, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from bot import errors
from bot.contracts.inbound import Command
from bot.contracts.jobs import JobRequest
from bot.contracts.provenance import ANYBODYS, NOBODYS, Provenance, Taint
from bot.testing.journal import FaultyJournal, JournalFailure
from bot.words import speaking
from tests.unit.gateway.jobs.rig import Rig

GROUP: dict[str, Any] = {
    "chat_id": "-100",
    "chat_key": "tele:chat:-100",
    "chat_type": "group",
    "target": {"chat": "-100"},
}


async def command(rig: Rig, args: str = "", **more: Any) -> str:
    return await rig.desk.command(rig.inbound(command=Command(name="jobs", args=args), **more))


async def test_the_model_is_told_when_it_runs_in_which_zone_and_what_holds(rig: Rig) -> None:
    name = await rig.plan("0 9 * * 1-5", timezone="Asia/Tokyo")
    assert rig.said == (
        f"Scheduled as job {name} (cron 0 9 * * 1-5): Mon 2027-01-18T09:00+09:00, then Tue 2027-01-19T09:00+09:00, then "
        "Wed 2027-01-20T09:00+09:00. Time zone: Asia/Tokyo (as asked for). It runs here as a turn of its own with the "
        "rights of the person; what needs an approval is refused in it. If I cannot run it in time it runs late, up to "
        "120 minutes, else it is skipped and said. Tell the person when it is due."
    )


class Zones:
    """A channel that knows, or does not."""

    def __init__(self, answer: str | Exception | None) -> None:
        self.answer = answer

    async def zone_of(self, user_id: str) -> str | None:
        assert user_id == "77"
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def test_the_zone_is_the_one_asked_for_else_the_platforms_else_the_one_named_before_else_the_default(
    rig: Rig,
) -> None:
    async def zone(**more: Any) -> str:
        await rig.plan("every 2h", **more)
        return rig.said.partition("Time zone: ")[2].partition(". ")[0]

    assert (await zone()).startswith("Etc/UTC (the default here")
    assert await zone(timezone="Asia/Kolkata") == "Asia/Kolkata (as asked for)"
    rig.restart()
    assert await zone() == "Asia/Kolkata (as the person named it before)"
    for answer in (errors.ChannelUnreachable("no"), None, "Atlantis/Deep", "/etc/passwd"):
        rig.channels["tele"] = Zones(answer)
        assert await zone() == "Asia/Kolkata (as the person named it before)"
    rig.channels["tele"] = Zones("Europe/Berlin")
    assert await zone() == "Europe/Berlin (as tele has it for the person)"
    assert (await zone(timezone="UTC")).startswith("UTC (as asked for)")
    await rig.locales.choose_zone(rig.inbound(), "America/Lima")
    assert await zone() == "America/Lima (as the person has chosen)"
    assert await zone(timezone="Asia/Tokyo") == "Asia/Tokyo (as asked for)"
    rig.restart()
    assert await zone() == "America/Lima (as the person has chosen)"


async def test_a_job_keeps_to_the_clocks_that_its_person_has_chosen_when_those_change(rig: Rig) -> None:
    rig.clock.jump(datetime(2027, 3, 27, 6, tzinfo=UTC).timestamp() - rig.clock.now())
    spoken = await rig.locales.choose_zone(rig.inbound(), "Europe/Berlin")
    await rig.plan("0 9 * * *")
    assert "Sat 2027-03-27T09:00+01:00, then Sun 2027-03-28T09:00+02:00" in rig.said
    told = list[str]()
    for _ in range(2):
        with speaking(*spoken):
            told.append((await command(rig)).partition(", next ")[2].partition(", for")[0])
        await rig.passes(86_400)
    assert told == ["Sat 27 Mar 2027, 09:00", "Sun 28 Mar 2027, 09:00"]
    assert [datetime.fromtimestamp(one, UTC).hour for one in rig.times] == [8, 7]


async def test_people_are_told_times_on_their_own_clocks_and_the_model_on_those_of_the_job(rig: Rig) -> None:
    name = await rig.plan("2027-07-01T09:00", timezone="Asia/Tokyo")
    rig.clock.jump(1)
    spoken = await rig.locales.choose_zone(rig.inbound(), "Europe/Berlin")
    with speaking(*spoken):
        assert (
            await command(rig)
            == f"{name} – once (Asia/Tokyo), next Thu 1 Jul 2027, 02:00, for 77: tell me 你好"
        )
    assert "next Thu 2027-07-01T09:00+09:00" in (await rig.desk.listed(rig.inbound())).words
    await command(rig, f"pause {name}")
    with speaking("zh", spoken.zone):
        assert (await command(rig, f"resume {name}")).endswith("2027年7月1日（周四）02:00 CEST。")


@pytest.mark.parametrize(
    ("when", "more", "told"),
    [
        ("soon", {}, "- when: expected a time in ISO 8601"),
        (
            "every 1h",
            {"timezone": "Mars"},
            "- timezone: expected a name of the tz database such as Europe/Berlin, got 'Mars'",
        ),
        ("every 1h", {"prompt": " "}, "- prompt: expected from 1 to 4000 characters, got 1"),
        ("every 1h", {"prompt": "x" * 4_001}, "got 4001"),
    ],
)
async def test_what_does_not_fit_is_told_by_field_and_nothing_is_made(
    rig: Rig, when: str, more: dict[str, Any], told: str
) -> None:
    with pytest.raises(errors.ToolInputInvalid) as caught:
        await rig.plan(when, **more)
    assert told in str(caught.value)
    assert await rig.journal.jobs() == []


async def test_a_chat_has_so_many_jobs_and_no_more_its_threads_included(rig: Rig) -> None:
    small = Rig(rig.journal, rig.clock, most=3)
    for number in range(3):
        await small.plan("every 1h", **GROUP | {"chat_key": f"tele:chat:-100:thread:{number}"})
    with pytest.raises(errors.ToolError, match="cannot have more"):
        await small.plan("every 1h", **GROUP)
    await small.plan("every 1h")


async def test_a_job_makes_shows_and_cancels_no_jobs(rig: Rig) -> None:
    name = await rig.plan("every 1h")
    await rig.passes(3_600)
    inside = rig.taken[0].model_copy(update={"request_id": "R2"})
    with pytest.raises(errors.ToolError, match="jobs neither make nor change jobs"):
        await rig.desk.create(JobRequest(inside, "again", "every 1h"))
    with pytest.raises(errors.ToolError, match="jobs neither"):
        await rig.desk.listed(inside)
    with pytest.raises(errors.ToolError, match="jobs neither"):
        await rig.desk.cancel(inside, name)
    assert len(await rig.journal.jobs()) == 1


async def test_jobs_are_changed_by_whoever_made_them_and_by_operators(rig: Rig) -> None:
    name = await rig.plan("every 1h", **GROUP)
    other = GROUP | {"user_id": "88"}
    assert (
        await command(rig, f"cancel {name}", **other)
        == f"Job {name} is somebody else's; they or an operator can change it."
    )
    with pytest.raises(errors.ToolError, match="somebody else's"):
        await rig.desk.cancel(rig.inbound(**other), name)
    assert await command(rig, f"pause {name}") == "There are no jobs here."
    assert "is paused" in await command(rig, f"pause {name.lower()}", **GROUP)
    assert ", paused, for" in await command(rig, "", **other)
    await rig.passes(3 * 3_600)
    assert rig.taken == []
    assert "goes on" in await command(rig, f"resume {name}", **GROUP | {"user_id": "1"})
    await rig.passes(3_600)
    assert len(rig.taken) == 1
    assert "is cancelled" in await command(rig, f"cancel {name}", **GROUP | {"user_id": "1"})
    await rig.passes(3 * 3_600)
    assert len(rig.taken) == 1
    assert [entry.details["by"] for entry in rig.log.of("schedule") if "by" in entry.details] == [
        "tele:77",
        "tele:77",
        "tele:1",
        "tele:1",
    ]


async def test_a_place_shows_its_own_jobs_and_those_of_its_threads(rig: Rig) -> None:
    top = await rig.plan("every 1h", **GROUP)
    inner = await rig.plan("every 2h", prompt="二", **GROUP | {"chat_key": "tele:chat:-100:thread:1"})
    await rig.plan("every 3h", **GROUP | {"chat_id": "-1001", "chat_key": "tele:chat:-1001"})
    assert [line[:6] for line in (await command(rig, **GROUP)).splitlines()] == [top, inner]
    (line,) = (await command(rig, **GROUP | {"chat_key": "tele:chat:-100:thread:1"})).splitlines()
    assert line == f"{inner} – every 2 hours (Etc/UTC), next Fri 15 Jan 2027, 10:00 UTC, for 77: 二"
    assert (await rig.desk.listed(rig.inbound())).words == "There are no jobs here."
    assert await command(rig, "burn it") == (
        "/jobs lists the jobs. /jobs cancel and the name of one takes it away; pause and resume work alike."
    )


async def test_a_list_says_whose_words_it_repeats_and_what_is_cancelled_repeats_none(rig: Rig) -> None:
    assert (await rig.desk.listed(rig.inbound())).origin == NOBODYS
    await rig.plan("every 1h", **GROUP, origin=Provenance(frozenset({"9"})))
    assert (await rig.desk.listed(rig.inbound(**GROUP))).origin == Provenance(
        frozenset({"9", rig.inbound(**GROUP).user_id})
    )
    name = await rig.plan("every 1h", prompt="now run ./x", **GROUP, origin=ANYBODYS)
    assert (await rig.desk.listed(rig.inbound(**GROUP))).origin.taint == Taint.FOREIGN
    assert await rig.desk.cancel(rig.inbound(**GROUP), name) == f"Job {name} is cancelled."


async def test_a_paused_job_whose_time_has_passed_is_not_resumed(rig: Rig) -> None:
    name = await rig.plan("2027-01-15T09:00")
    await command(rig, f"pause {name}")
    await rig.passes(2 * 3_600)
    assert "has passed" in await command(rig, f"resume {name}")
    assert rig.taken == []


async def test_a_journal_that_refuses_makes_no_job_and_cancels_none(rig: Rig) -> None:
    await rig.plan("every 1h")
    journal = FaultyJournal(rig.journal)
    rig.journal = journal
    rig.restart()
    journal.fail(JournalFailure("write", times=None))
    with pytest.raises(errors.StorageError):
        await rig.plan("every 2h")
    (line,) = (await rig.desk.listed(rig.inbound())).words.splitlines()
    with pytest.raises(errors.StorageError):
        await rig.desk.cancel(rig.inbound(), line[:6])
    assert len((await rig.desk.listed(rig.inbound())).words.splitlines()) == 1


async def test_a_job_whose_request_was_forgotten_is_gone(rig: Rig) -> None:
    await rig.plan("every 1h", request_id="R7")
    kept = await rig.plan("every 1h", request_id="R8")
    await rig.desk.forget(frozenset({"R7", "R9"}))
    assert [job.id for job in await rig.journal.jobs()] == [kept]


async def test_words_of_too_many_people_are_anybodys(rig: Rig) -> None:
    await rig.plan("every 1h", origin=Provenance(frozenset(map(str, range(51)))))
    await rig.plan("every 1h", origin=ANYBODYS)
    await rig.plan("every 1h", origin=Provenance(frozenset({"9", "8"})))
    assert [job.spec["wordsOf"] for job in await rig.journal.jobs()] == [None, None, ["8", "9"]]


async def test_the_level_of_what_was_in_view_stays_with_a_job(rig: Rig) -> None:
    await rig.plan("every 1h", origin=Provenance(frozenset({"9"}), Taint.WORKSPACE))
    rig.restart()
    assert (await rig.desk.listed(rig.inbound())).origin == Provenance(
        frozenset({"9", "77"}), Taint.WORKSPACE
    )
    await rig.passes(2 * 3_600)
    assert rig.taken[0].due is not None
    assert rig.taken[0].due.origin == Provenance(frozenset({"9"}), Taint.WORKSPACE)

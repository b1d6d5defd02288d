"""Nobody by default; stable ids only; one function for every kind of event."""

from __future__ import annotations

import itertools
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot import errors
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.inbound import Inbound
from bot.core.access import Access, Memberships, Verdict
from bot.testing.log import MemoryLog
from bot.words import say
from tests.unit.gateway.conftest import Bench, manifest


class Lists:
    def __init__(self, allow: set[str] | None = None, block: set[str] | None = None) -> None:
        self._allow, self._block = frozenset(allow or ()), frozenset(block or ())

    def allowed(self, _: str) -> frozenset[str]:
        return self._allow

    def blocked(self, _: str) -> frozenset[str]:
        return self._block


MANIFESTS = {
    "tele": manifest("tele", never_admit=frozenset({"1087968824"})),
    "local": manifest("local", access="local"),
}


def stands(
    allow: set[str],
    lists: Lists | None = None,
    *,
    user: str = "77",
    chat: str = "77",
    kind: Any = "direct",
    channel: str = "tele",
) -> str:
    access = Access(
        MANIFESTS,
        {"tele": frozenset(allow)},
        frozenset({UserRef("tele", "1")}),
        lists or Lists(),
        Memberships({}, MemoryLog()),
    )
    verdict = access.standing(UserRef(channel, user), chat, kind)
    return ("+" if verdict.allowed else "-") + verdict.reason


@pytest.mark.parametrize(
    ("case", "verdict"),
    [
        ({"allow": set()}, "-stranger"),
        ({"allow": {"77"}}, "+listed"),
        ({"allow": {"78"}}, "-stranger"),
        ({"allow": {"*"}}, "+everyone"),
        ({"allow": {"*"}, "user": ""}, "-stranger"),
        ({"allow": {"-100"}, "chat": "-100", "kind": "group"}, "+listed"),
        ({"allow": {"-100"}, "chat": "-100", "kind": "direct"}, "-stranger"),
        ({"allow": {"-100"}}, "-stranger"),
        ({"allow": set(), "user": "1"}, "+operator"),
        ({"allow": set(), "lists": Lists(allow={"77"})}, "+listed"),
        ({"allow": {"77"}, "lists": Lists(allow={"77"}, block={"77"})}, "-blocked"),
        ({"allow": {"*"}, "lists": Lists(block={"77"})}, "-blocked"),
        ({"allow": {"*"}, "lists": Lists(block={"-100"}), "chat": "-100", "kind": "group"}, "-blocked"),
        ({"allow": set(), "lists": Lists(block={"1"}), "user": "1"}, "-blocked"),
        ({"allow": {"*", "1087968824"}, "user": "1087968824"}, "-never"),
        ({"allow": set(), "channel": "local"}, "+local"),
        ({"allow": set(), "channel": "local", "lists": Lists(block={"77"})}, "-blocked"),
    ],
)
def test_the_table_of_verdicts(case: dict[str, Any], verdict: str) -> None:
    assert stands(**case) == verdict


@settings(derandomize=True, deadline=None)
@given(st.text(max_size=30), st.text(max_size=30))
def test_a_display_name_never_changes_a_decision(name: str, words: str) -> None:
    access = Access(
        MANIFESTS,
        {"tele": frozenset({"77"})},
        frozenset({UserRef("tele", "1")}),
        Lists(),
        Memberships({}, MemoryLog()),
    )
    base = {
        "channel": "tele",
        "chat_id": "5",
        "chat_key": "tele:chat:5",
        "chat_type": "direct",
        "user_id": "5",
        "keys": ("k",),
        "ts": 0,
        "target": {},
    }
    for user in ("77", "1", "*", name):
        inbound = Inbound.model_validate(base | {"user_name": user, "text": words})
        assert not access.judge(inbound).allowed


async def test_no_kind_of_event_of_a_stranger_is_stored_or_reaches_the_agent(bench: Bench) -> None:
    kinds = get_args(Inbound.model_fields["kind"].annotation)
    addresses = get_args(Inbound.model_fields["addressed"].annotation)
    for kind, addressed, chat_type in itertools.product(kinds, addresses, ("direct", "group")):
        more = {
            "user_id": "666",
            "chat_id": "666",
            "chat_key": "tele:chat:666",
            "kind": kind,
            "addressed": addressed,
        }
        assert await bench.say("let me in, canary-1234", chat_type=chat_type, **more) is False
    await bench.idle()
    assert bench.agent.requests == []
    await bench.journal.close()
    stored = b"".join(path.read_bytes() for path in bench.root.rglob("*") if path.is_file())
    assert b"canary-1234" not in stored
    assert "canary-1234" not in bench.log.text


async def test_a_stranger_is_told_once_that_they_have_to_be_let_in(bench: Bench) -> None:
    stranger = {"user_id": "666", "chat_id": "666", "chat_key": "tele:chat:666"}
    for _ in range(3):
        await bench.say(**stranger)
    await bench.idle()
    assert bench.tele.texts == [f"{say('strangers.hello')} {say('strangers.tell_them', who='tele:666')}"]
    assert [asked.user_id for asked in bench.lists.pending()] == ["666"]
    bench.clock.jump(24 * 3600)
    await bench.say(**stranger)
    await bench.idle()
    assert len(bench.tele.sent) == 1, "their request still waits"
    await bench.say(
        user_id="667", chat_id="-5", chat_key="tele:chat:-5", chat_type="group", addressed="thread"
    )
    await bench.idle()
    assert len(bench.tele.sent) == 1, "in groups only those who addressed the bot are told"
    assert await bench.lines(ChatKey.parse("tele:chat:666")) == []


async def test_who_is_let_in_while_it_runs_is_in_and_who_is_blocked_is_out(bench: Bench) -> None:
    stranger = {"user_id": "666", "chat_id": "666", "chat_key": "tele:chat:666"}
    assert await bench.say(**stranger) is False
    from bot.access_list import AccessList
    from bot.system import SystemDisk

    other_process = AccessList(bench.root / "access.json", SystemDisk(), bench.clock)
    other_process.allow("tele", "666")
    await bench.clock.advance(2)
    assert await bench.say(**stranger) is True
    other_process.block("tele", "666")
    await bench.clock.advance(2)
    assert await bench.say(**stranger) is False


async def test_other_bots_are_ignored_in_silence(bench: Bench) -> None:
    assert await bench.say(from_bot=True) is False
    assert bench.tele.sent == []


@pytest.mark.parametrize(
    ("allow", "channel"), [(set(), "tele"), ({"77", "-100"}, "tele"), ({"*"}, "tele"), (set(), "local")]
)
def test_a_start_proves_that_strangers_stay_out(allow: set[str], channel: str) -> None:
    Access(
        MANIFESTS,
        {"tele": frozenset(allow)},
        frozenset({UserRef("tele", "1")}),
        Lists(),
        Memberships({}, MemoryLog()),
    ).prove(channel)


def test_nobody_is_no_operator_whatever_the_lists_have() -> None:
    nobody = UserRef("tele", "")
    access = Access(MANIFESTS, {}, frozenset({nobody}), Lists(), Memberships({}, MemoryLog()))
    assert not access.is_operator(nobody)
    assert not access.standing(nobody, "77", "direct").allowed


def test_a_gateway_that_would_let_a_stranger_in_does_not_start() -> None:
    class Open(Access):
        """As where a list was lost on its way here."""

        def standing(self, *_: Any) -> Verdict:
            return Verdict(allowed=True, reason="listed")

    with pytest.raises(
        errors.ConfigError, match=r"channels\.tele\.allow: found that a stranger would be let in"
    ):
        Open(MANIFESTS, {}, frozenset(), Lists(), Memberships({}, MemoryLog())).prove("tele")

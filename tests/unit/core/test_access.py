"""Access: by default nobody has it, only stable ids count, and one function checks every kind of event."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot import errors
from bot.contracts.channel import ChannelSettings, Manifest, Pace
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.messages import Inbound
from bot.core.access import Access, AccessList, Verdict
from bot.core.feature import Door
from bot.core.intake import Intake
from bot.system import SystemClock, UlidSource
from bot.telemetry.redaction import Redactor
from bot.testing.log import MemoryLog as Lines
from tests.memory_log import MemoryLog
from tests.unit.core.test_intake import chats_of

STRANGER = {
    "channel": "tele",
    "chat_id": "666",
    "chat_key": "tele:chat:666",
    "chat_type": "direct",
    "user_id": "666",
    "keys": ("k",),
    "ts": 0,
    "target": {},
    "text": "let me in, canary-1234",
}


def manifest(name: str, **more: Any) -> Manifest:
    return Manifest(
        name=name,
        settings=ChannelSettings,
        build=lambda *_: None,  # type: ignore[arg-type]  # no channel runs here
        encode=lambda address: ChatKey(name, address["chat"]),
        decode=lambda key: {"chat": key.chat_id},
        pace={"direct": Pace(3, 1.0), "group": Pace(3, 3.0)},
        **more,
    )


class Lists(AccessList):
    def __init__(self, allow: set[str] | None = None, block: set[str] | None = None) -> None:
        self._allow, self._block = frozenset(allow or ()), frozenset(block or ())

    def allowed(self, channel: str) -> frozenset[str]:
        return self._allow

    def blocked(self, channel: str) -> frozenset[str]:
        return self._block


MANIFESTS = {
    "tele": manifest("tele", never_admit=frozenset({"1087968824"})),
    "local": manifest("local", access="local"),
}


def access_of(allow: set[str], lists: Lists | None = None, of: type[Access] = Access) -> Access:
    operators = frozenset({UserRef("tele", "1")})
    return of(MANIFESTS, {"tele": frozenset(allow)}, operators, lists or Lists(), Redactor(()), {}, Lines())


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
    access = access_of(case["allow"], case.get("lists"))
    who = UserRef(case.get("channel", "tele"), case.get("user", "77"))
    found = access.standing(who, case.get("chat", "77"), case.get("kind", "direct"))
    assert ("+" if found.allowed else "-") + found.reason == verdict


@settings(derandomize=True, deadline=None)
@given(st.text(max_size=30), st.text(max_size=30))
def test_a_display_name_never_changes_a_decision(name: str, words: str) -> None:
    access = access_of({"77"})
    for called in ("77", "1", "*", name):
        inbound = Inbound.model_validate(STRANGER | {"user_name": called, "text": words})
        assert not access.judge(inbound).allowed


async def test_no_kind_of_event_of_a_stranger_leaves_its_words() -> None:
    log, lines, access = MemoryLog(), Lines(), access_of({"77"})
    services: Any = SimpleNamespace(clock=SystemClock(), ids=UlidSource(), log=lines)
    unused: Any = None
    chats = chats_of(log)
    intake = Intake(services, chats, log, access, Door(), unused, unused, unused, unused)
    kinds = get_args(Inbound.model_fields["kind"].annotation)
    addresses = get_args(Inbound.model_fields["addressed"].annotation)
    for kind, addressed, chat_type in itertools.product(kinds, addresses, ("direct", "group")):
        more = {
            "kind": kind,
            "addressed": addressed,
            "chat_type": chat_type,
            "keys": (f"{kind}{addressed}{chat_type}",),
        }
        assert not await intake.accept(Inbound.model_validate(STRANGER | more))
    assert "canary-1234" not in f"{log.text}{lines.text}"
    assert all(chat.turn is None and not chat.waiting for chat in chats)


def test_nobody_is_no_operator_whatever_the_lists_have() -> None:
    nobody = UserRef("tele", "")
    access = Access(MANIFESTS, {}, frozenset({nobody}), Lists(), Redactor(()), {}, Lines())
    assert not access.is_operator(nobody)
    assert not access.standing(nobody, "77", "direct").allowed


@pytest.mark.parametrize(
    ("allow", "channel"), [(set(), "tele"), ({"77", "-100"}, "tele"), ({"*"}, "tele"), (set(), "local")]
)
def test_a_start_proves_that_strangers_stay_out(allow: set[str], channel: str) -> None:
    access_of(allow).prove(channel)


def test_a_gateway_that_would_let_a_stranger_in_does_not_start() -> None:
    class Open(Access):
        """An access check that lets everybody in, as if a list had been lost."""

        def standing(self, *_: Any) -> Verdict:
            return Verdict(allowed=True, reason="listed")

    with pytest.raises(
        errors.ConfigError, match=r"channels\.tele\.allow: found that a stranger would be let in"
    ):
        access_of(set(), of=Open).prove("tele")

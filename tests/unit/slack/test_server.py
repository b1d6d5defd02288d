"""The loopback server is as strict as Slack, tested with the real library."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.testing import slack_scopes
from bot.testing.clock import FakeClock
from bot.testing.slack import SlackServer

ADA, CHANNEL, DIRECT = "U0ADA", "C0TEAM", "D0ADA"


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
def client(server: SlackServer, session: aiohttp.ClientSession) -> AsyncWebClient:
    return AsyncWebClient(token=server.bot_token, base_url=server.api_url, session=session, retry_handlers=[])


async def refused(call: Any) -> str:
    with pytest.raises(SlackApiError) as caught:
        await call
    assert caught.value.response.status_code == 200
    return str(caught.value.response["error"])


async def opened(server: SlackServer, session: aiohttp.ClientSession) -> aiohttp.ClientWebSocketResponse:
    """Return a socket that has received `hello`."""
    client = AsyncWebClient(base_url=server.api_url, session=session, retry_handlers=[])
    answer = await client.apps_connections_open(app_token=server.app_token)
    socket = await session.ws_connect(answer["url"])
    assert (await socket.receive_json())["type"] == "hello"
    return socket


BLOCKS = [{"type": "markdown", "text": "a" * 6_001}] * 2
ONE_BUTTON = {"type": "context_actions", "elements": [{"type": "feedback_buttons"}]}


@pytest.mark.parametrize(
    ("method", "params", "error"),
    [
        ("auth.test", {"token": "xoxb-wrong"}, "invalid_auth"),
        ("auth.test", {"token": ""}, "not_authed"),
        ("auth.test", {"token": "xapp-1-loopback"}, "not_allowed_token_type"),
        ("chat.shout", {}, "unknown_method"),
        ("chat.postMessage", {"channel": "C0NONE", "text": "hi"}, "channel_not_found"),
        ("chat.postMessage", {"channel": "G0OUT", "text": "hi"}, "channel_not_found"),
        ("chat.postMessage", {"channel": "C0OUT", "text": "hi"}, "not_in_channel"),
        ("chat.postMessage", {"channel": "C0OLD", "text": "hi"}, "is_archived"),
        ("chat.postMessage", {"text": " \n"}, "no_text"),
        ("chat.postMessage", {"text": "a", "markdown_text": "b"}, "markdown_text_conflict"),
        ("chat.postMessage", {"markdown_text": "a" * 12_001}, "msg_too_long"),
        ("chat.postMessage", {"text": "a" * 40_001}, "msg_too_long"),
        ("chat.postMessage", {"blocks": BLOCKS}, "msg_blocks_too_long"),
        ("chat.postMessage", {"blocks": "{"}, "invalid_blocks_format"),
        ("chat.postMessage", {"text": "a", "blocks": [ONE_BUTTON]}, "invalid_blocks"),
        ("chat.postMessage", {"text": "a", "thread_ts": "1.000000"}, "thread_not_found"),
        ("chat.postMessage", {"text": "a", "metadata": {"event_payload": {}}}, "invalid_metadata_format"),
        ("chat.update", {"ts": "theirs", "text": "x"}, "cant_update_message"),
        ("chat.update", {"ts": "mine", "text": "x" * 4_001}, "msg_too_long"),
        ("chat.update", {"ts": "1.0", "text": "x"}, "message_not_found"),
        ("chat.delete", {"ts": "theirs"}, "cant_delete_message"),
        ("conversations.replies", {"ts": "theirs", "cursor": "x"}, "invalid_cursor"),
        ("conversations.replies", {"ts": "theirs", "limit": "0"}, "invalid_limit"),
        ("conversations.replies", {"ts": "1.000000"}, "thread_not_found"),
        ("conversations.info", {"channel": "C0NONE"}, "channel_not_found"),
        ("users.info", {"user": "U0NONE"}, "user_not_found"),
        ("reactions.add", {"timestamp": "theirs", "name": ":eyes:"}, "invalid_name"),
        ("reactions.add", {"timestamp": "1.0", "name": "eyes"}, "message_not_found"),
        ("agents.sessions.setStatus", {"thread_ts": "1.0", "status": "active"}, "invalid_thread_ts"),
        ("agents.sessions.setStatus", {"thread_ts": "theirs", "status": "busy"}, "invalid_arguments"),
        ("assistant.threads.setStatus", {"thread_ts": "1.0", "status": "x"}, "invalid_thread_ts"),
        ("chat.startStream", {"channel": DIRECT, "thread_ts": "1.000001"}, "invalid_thread_ts"),
        ("chat.startStream", {"thread_ts": "theirs"}, "missing_recipient_team_id"),
        ("chat.stopStream", {"ts": "theirs"}, "message_not_owned_by_app"),
    ],
)
async def test_what_slack_refuses_is_refused(
    server: SlackServer, client: AsyncWebClient, method: str, params: dict[str, Any], error: str
) -> None:
    server.add_channel("C0OLD", archived=True)
    server.add_channel("C0OUT", bot=False)
    server.add_channel("G0OUT", kind="group", bot=False)
    stamps = {
        "theirs": await server.say("hi", channel=CHANNEL, user=ADA),
        "mine": (await client.chat_postMessage(channel=CHANNEL, text="hi"))["ts"],
    }
    given = {
        key: stamps.get(value, value) if isinstance(value, str) else value for key, value in params.items()
    }
    place = "channel_id" if ".set" in method else "channel"
    assert await refused(client.api_call(method, json={place: CHANNEL, **given})) == error
    assert len(server.visible(CHANNEL)) == 2


CALLS: dict[str, dict[str, Any]] = {
    "conversations.history": {"channel": CHANNEL},
    "conversations.info": {"channel": CHANNEL},
    "conversations.replies": {"channel": CHANNEL, "ts": "1.000000"},
    "users.conversations": {"types": "private_channel"},
}


@pytest.mark.parametrize("method", [*slack_scopes.METHODS, *slack_scopes.BY_KIND])
async def test_each_method_is_refused_without_its_scope(
    server: SlackServer, client: AsyncWebClient, method: str
) -> None:
    for scope in slack_scopes.METHODS.get(method, ()):
        server.api.scopes = set(slack_scopes.ALL - {scope})
        with pytest.raises(SlackApiError) as caught:
            await client.api_call(method, params=CALLS.get(method, {}))
        answer = caught.value.response
        provided = ",".join(sorted(server.api.scopes))
        assert (answer["error"], answer["needed"], answer["provided"]) == ("missing_scope", scope, provided)
    if method in slack_scopes.BY_KIND:
        server.api.scopes = {"channels:history" if method == "users.conversations" else "groups:history"}
        assert await refused(client.api_call(method, params=CALLS[method])) == "missing_scope"


async def test_events_need_their_scope_a_subscription_and_the_bot_in_the_channel(server: SlackServer) -> None:
    server.add_channel("C0OUT", bot=False)
    server.api.scopes -= {"app_mentions:read"}
    await server.say("<@U0SHIP> hello", channel=CHANNEL, user=ADA)
    await server.say("<@U0SHIP> hello", channel="C0OUT", user=ADA)
    server.subscriptions = {"message.im"}
    await server.say("<@U0SHIP> hello", channel=CHANNEL, user=ADA)
    await server.say("hi", channel=DIRECT, user=ADA)
    events = [one.payload["event"] for one in server.deliveries]
    assert [(event["type"], event["channel"]) for event in events] == [
        ("message", CHANNEL),
        ("message", DIRECT),
    ]


async def test_a_stop_button_is_shown_only_during_work_and_to_an_app_that_listens(
    server: SlackServer, client: AsyncWebClient
) -> None:
    ts = await server.say("hi", channel=DIRECT, user=ADA)
    with pytest.raises(ValueError, match="no stop button"):
        await server.press_stop(DIRECT, ts, user=ADA)
    server.subscriptions.discard("agent_session_stopped")
    answer = await client.agents_sessions_setStatus(channel_id=DIRECT, thread_ts=ts, status="processing")
    assert answer["warning"] == "missing_agent_session_stopped_event_subscription"
    with pytest.raises(ValueError, match="no stop button"):
        await server.press_stop(DIRECT, ts, user=ADA)


async def test_a_ticket_opens_one_socket_and_an_eleventh_socket_is_closed(
    server: SlackServer, session: aiohttp.ClientSession
) -> None:
    client = AsyncWebClient(base_url=server.api_url, session=session, retry_handlers=[])
    url = (await client.apps_connections_open(app_token=server.app_token))["url"]
    sockets = [await session.ws_connect(url)]
    with pytest.raises(aiohttp.WSServerHandshakeError):
        await session.ws_connect(url)
    sockets += [await opened(server, session) for _ in range(9)]
    extra = await session.ws_connect((await client.apps_connections_open(app_token=server.app_token))["url"])
    assert (await extra.receive_json())["reason"] == "too_many_websockets"
    assert (await extra.receive()).type is aiohttp.WSMsgType.CLOSE
    for socket in sockets:
        await socket.close()


async def test_an_event_is_redelivered_three_times_until_it_is_acknowledged(
    server: SlackServer, session: aiohttp.ClientSession, clock: FakeClock
) -> None:
    socket = await opened(server, session)
    await server.say("hi", channel=DIRECT, user=ADA)
    seen = [await socket.receive_json()]
    for wait in (3, 63, 303):
        await clock.advance(wait)
        seen.append(await socket.receive_json())
    assert [envelope["retry_attempt"] for envelope in seen] == [0, 1, 2, 3]
    assert len({envelope["envelope_id"] for envelope in seen}) == 4
    assert len({envelope["payload"]["event_id"] for envelope in seen}) == 1
    await socket.send_json({"envelope_id": seen[3]["envelope_id"]})
    await server.until(lambda: not server.unacked())
    await server.say("nobody listens", channel=DIRECT, user=ADA)
    await socket.receive_json()
    for wait in (3, 63, 303, 3):
        await clock.advance(wait)
    await server.until(lambda: server.deliveries[1].given_up)
    await server.stop()
    assert not [task for task in asyncio.all_tasks() if "_deliver" in repr(task.get_coro())]


async def test_a_stream_is_as_strict_as_slacks(
    server: SlackServer, client: AsyncWebClient, clock: FakeClock
) -> None:
    root = await server.say("hi", channel=DIRECT, user=ADA)
    there: dict[str, Any] = {"channel": DIRECT, "thread_ts": root}
    chunks = client.chat_startStream(**there, chunks=[{"type": "plan_update", "title": "a"}])
    assert await refused(chunks) == "invalid_chunks"
    ts = (await client.chat_startStream(**there, markdown_text="a"))["ts"]
    at: dict[str, Any] = {"channel": DIRECT, "ts": ts}
    assert await refused(client.chat_update(**at, markdown_text="b")) == "streaming_state_conflict"
    await client.chat_appendStream(**at, markdown_text="b" * 11_000)
    assert await refused(client.chat_appendStream(**at, markdown_text="c" * 1_000)) == "msg_too_long"
    await client.chat_stopStream(**at, metadata={"event_type": "a", "event_payload": {}})
    assert (
        await refused(client.chat_appendStream(**at, markdown_text="d")) == "message_not_in_streaming_state"
    )
    (seen,) = server.replies(DIRECT)
    assert (seen.text, seen.metadata) == ("a" + "b" * 11_000, {"event_type": "a", "event_payload": {}})
    at["ts"] = (await client.chat_startStream(**there))["ts"]
    await clock.advance(301)
    assert await refused(client.chat_stopStream(**at)) == "message_not_in_streaming_state"

"""The loopback server is as strict as Slack: asked by the real library, and by plain requests."""

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
    """A socket that has been greeted."""
    client = AsyncWebClient(base_url=server.api_url, session=session, retry_handlers=[])
    answer = await client.apps_connections_open(app_token=server.app_token)
    socket = await session.ws_connect(answer["url"])
    hello = await socket.receive_json()
    assert hello["type"] == "hello"
    return socket


async def test_tokens_are_checked(server: SlackServer, client: AsyncWebClient) -> None:
    assert (await client.auth_test())["bot_id"] == "B0SHIP"
    assert await refused(client.auth_test(token="xoxb-wrong")) == "invalid_auth"
    assert await refused(client.auth_test(token="")) == "not_authed"
    assert await refused(client.auth_test(token=server.app_token)) == "not_allowed_token_type"
    assert await refused(client.apps_connections_open(app_token=server.bot_token)) == "not_allowed_token_type"
    assert await refused(client.api_call("chat.shout")) == "unknown_method"


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
        assert answer.headers["X-OAuth-Scopes"] == provided
    if method in slack_scopes.BY_KIND:
        server.api.scopes = {"channels:history" if method == "users.conversations" else "groups:history"}
        assert await refused(client.api_call(method, params=CALLS[method])) == "missing_scope"


async def test_events_come_where_the_app_has_their_scope(server: SlackServer) -> None:
    server.api.scopes -= {"app_mentions:read", "channels:read"}
    await server.say("<@U0SHIP> hello", channel=CHANNEL, user=ADA)
    await server.invite(CHANNEL, by=ADA, user="U0GRACE")
    assert [one.payload["event"]["type"] for one in server.deliveries] == ["message"]
    server.api.scopes -= {"channels:history"}
    await server.say("hello?", channel=CHANNEL, user=ADA)
    assert len(server.deliveries) == 1


async def test_requests_are_form_json_or_query(server: SlackServer, session: aiohttp.ClientSession) -> None:
    headers = {"Authorization": f"Bearer {server.bot_token}"}
    url = f"{server.api_url}users.info"
    ways: list[dict[str, Any]] = [{"data": {"user": ADA}}, {"json": {"user": ADA}}, {"params": {"user": ADA}}]
    for how in ways:
        async with session.post(url, headers=headers, **how) as response:
            assert (await response.json())["user"]["id"] == ADA
    async with session.post(url, data={"user": ADA, "token": server.bot_token}) as response:
        assert (await response.json())["ok"]
    broken = headers | {"Content-Type": "application/json"}
    for body in ("{", "[]"):
        async with session.post(url, headers=broken, data=body) as response:
            assert (await response.json())["error"] == "invalid_json"


async def test_posting_needs_a_conversation_the_bot_is_in(
    server: SlackServer, client: AsyncWebClient
) -> None:
    server.add_channel("C0OLD", archived=True)
    server.add_channel("C0OUT", bot=False)
    server.add_channel("G0OUT", kind="group", bot=False)
    for channel, error in {
        "C0NONE": "channel_not_found",
        "G0OUT": "channel_not_found",
        "C0OUT": "not_in_channel",
        "C0OLD": "is_archived",
    }.items():
        assert await refused(client.chat_postMessage(channel=channel, text="hi")) == error


async def test_what_is_posted_is_checked(server: SlackServer, client: AsyncWebClient) -> None:
    async def post(**params: Any) -> str:
        return await refused(client.api_call("chat.postMessage", json={"channel": CHANNEL, **params}))

    assert await post() == "no_text"
    assert await post(text=" \n") == "no_text"
    assert await post(markdown_text="") == "no_text"
    assert await post(text="a", markdown_text="b") == "markdown_text_conflict"
    assert await post(blocks=[{"type": "divider"}], markdown_text="b") == "markdown_text_conflict"
    assert await post(markdown_text="a" * 12_001) == "msg_too_long"
    assert await post(text="a" * 40_001) == "msg_too_long"
    parts = [{"type": "markdown", "text": "a" * 6_001}] * 2
    assert await post(blocks=parts) == "msg_blocks_too_long"
    assert await post(blocks="{") == "invalid_blocks_format"
    assert await post(blocks={"type": "markdown"}) == "invalid_blocks_format"
    assert await post(text="a", thread_ts="1.000000") == "thread_not_found"
    assert await post(text="a", metadata={"event_payload": {}}) == "invalid_metadata_format"
    assert await post(text="a", metadata="[") == "invalid_metadata_format"
    assert await post(text="a", metadata={"event_type": "x", "event_payload": 5}) == "invalid_metadata_schema"
    assert server.visible(CHANNEL) == []
    await client.chat_postMessage(channel=CHANNEL, markdown_text="a" * 12_000)
    await client.chat_postMessage(channel=CHANNEL, text="a" * 40_000)
    await client.chat_postMessage(channel=CHANNEL, blocks=parts[:1], text="short")


async def test_a_reply_needs_a_root_and_not_a_reply(server: SlackServer, client: AsyncWebClient) -> None:
    root = await server.say("root", channel=CHANNEL, user=ADA)
    reply = await client.chat_postMessage(channel=CHANNEL, text="reply", thread_ts=root)
    call = client.chat_postMessage(channel=CHANNEL, text="deeper", thread_ts=reply["ts"])
    assert await refused(call) == "thread_not_found"


async def test_a_missing_scope_is_named(server: SlackServer, client: AsyncWebClient) -> None:
    server.api.scopes = {"commands"}
    with pytest.raises(SlackApiError) as caught:
        await client.chat_postMessage(channel=CHANNEL, text="a")
    assert caught.value.response["needed"] == "chat:write"
    assert caught.value.response["provided"] == "commands"
    assert await refused(client.conversations_replies(channel=DIRECT, ts="1.0")) == "missing_scope"
    assert await refused(client.conversations_info(channel=DIRECT)) == "missing_scope"
    assert await refused(client.users_info(user=ADA)) == "missing_scope"


async def test_only_own_messages_can_be_changed(server: SlackServer, client: AsyncWebClient) -> None:
    theirs = await server.say("hi", channel=CHANNEL, user=ADA)
    mine = (await client.chat_postMessage(channel=CHANNEL, text="hi"))["ts"]
    assert await refused(client.chat_update(channel=CHANNEL, ts=theirs, text="x")) == "cant_update_message"
    assert await refused(client.chat_delete(channel=CHANNEL, ts=theirs)) == "cant_delete_message"
    assert await refused(client.chat_update(channel=CHANNEL, ts="1.0", text="x")) == "message_not_found"
    assert await refused(client.chat_update(channel=CHANNEL, ts=mine, text="x" * 4_001)) == "msg_too_long"
    await client.chat_update(channel=CHANNEL, ts=mine, markdown_text="**new**")
    assert [seen.text for seen in server.visible(CHANNEL)] == ["hi", "**new**"]
    await client.chat_delete(channel=CHANNEL, ts=mine)
    assert [seen.text for seen in server.visible(CHANNEL)] == ["hi"]


async def test_threads_are_read_page_by_page(server: SlackServer, client: AsyncWebClient) -> None:
    root = await server.say("0", channel=CHANNEL, user=ADA)
    stamps = [await server.say(str(n), channel=CHANNEL, user=ADA, thread_ts=root) for n in range(1, 6)]
    found = []
    async for page in await client.conversations_replies(channel=CHANNEL, ts=root, limit=4):
        found += [message["text"] for message in page["messages"]]
    assert found == ["0", "1", "2", "3", "4", "5"]
    part = await client.conversations_replies(channel=CHANNEL, ts=root, oldest=root, latest=stamps[2])
    assert [message["text"] for message in part["messages"]] == ["1", "2"]
    both = await client.conversations_replies(
        channel=CHANNEL, ts=root, oldest=root, latest=stamps[2], inclusive=True
    )
    assert [message["text"] for message in both["messages"]] == ["0", "1", "2", "3"]
    assert both["messages"][0]["reply_count"] == 5
    assert both["messages"][1]["parent_user_id"] == ADA


async def test_reading_is_checked(server: SlackServer, client: AsyncWebClient) -> None:
    server.add_channel("C0OUT", bot=False)

    async def read(**params: Any) -> str:
        given = {"channel": CHANNEL, "ts": ts, **params}
        return await refused(client.api_call("conversations.replies", http_verb="GET", params=given))

    ts = await server.say("0", channel=CHANNEL, user=ADA)
    assert await read(ts="1.000000") == "thread_not_found"
    assert await read(channel="C0OUT") == "not_in_channel"
    assert await read(limit="0") == "invalid_limit"
    assert await read(limit="x") == "invalid_limit"
    assert await read(cursor="x") == "invalid_cursor"
    assert await read(latest="x") == "invalid_ts_latest"
    assert await read(oldest="x") == "invalid_ts_oldest"


async def test_history_shows_the_newest_first_and_no_replies(
    server: SlackServer, client: AsyncWebClient
) -> None:
    root = await server.say("1 < 2 & <@U0SHIP>", channel=CHANNEL, user=ADA)
    await server.say("reply", channel=CHANNEL, user=ADA, thread_ts=root)
    await server.say("loud", channel=CHANNEL, user=ADA, thread_ts=root, subtype="thread_broadcast")
    page = await client.conversations_history(channel=CHANNEL)
    assert [message["text"] for message in page["messages"]] == ["loud", "1 &lt; 2 &amp; <@U0SHIP>"]


async def test_metadata_is_given_to_who_asks_for_it(server: SlackServer, client: AsyncWebClient) -> None:
    metadata = {"event_type": "x", "event_payload": {"id": "1"}}
    ts = (await client.chat_postMessage(channel=CHANNEL, text="a", metadata=metadata))["ts"]
    plain = await client.conversations_replies(channel=CHANNEL, ts=ts)
    full = await client.conversations_replies(channel=CHANNEL, ts=ts, include_all_metadata=True)
    assert "metadata" not in plain["messages"][0]
    assert full["messages"][0]["metadata"] == metadata


async def test_conversations_and_people_are_described(server: SlackServer, client: AsyncWebClient) -> None:
    assert (await client.conversations_info(channel=DIRECT))["channel"]["is_im"]
    assert (await client.users_info(user=ADA))["user"]["profile"]["display_name"] == "Ada 🚢"
    assert await refused(client.users_info(user="U0NONE")) == "user_not_found"
    assert await refused(client.conversations_info(channel="C0NONE")) == "channel_not_found"


async def test_reactions_are_added_once(server: SlackServer, client: AsyncWebClient) -> None:
    ts = await server.say("hi", channel=CHANNEL, user=ADA)
    await client.reactions_add(channel=CHANNEL, name="eyes", timestamp=ts)
    again = client.reactions_add(channel=CHANNEL, name="eyes", timestamp=ts)
    assert await refused(again) == "already_reacted"
    odd = client.reactions_add(channel=CHANNEL, name=":eyes:", timestamp=ts)
    assert await refused(odd) == "invalid_name"
    gone = client.reactions_add(channel=CHANNEL, name="eyes", timestamp="1.0")
    assert await refused(gone) == "message_not_found"


async def test_a_status_ends_with_a_reply_or_after_two_minutes(
    server: SlackServer, client: AsyncWebClient, clock: FakeClock
) -> None:
    ts = await server.say("hi", channel=DIRECT, user=ADA)
    show: dict[str, Any] = {"channel_id": DIRECT, "thread_ts": ts, "status": "thinks"}
    await client.assistant_threads_setStatus(**show)
    await clock.advance(119)
    assert server.status_of(DIRECT, ts) == "thinks"
    await clock.advance(1)
    assert server.status_of(DIRECT, ts) == ""
    await client.assistant_threads_setStatus(**show)
    await client.chat_postMessage(channel=DIRECT, thread_ts=ts, text="done")
    assert server.status_of(DIRECT, ts) == ""
    unknown = client.assistant_threads_setStatus(**(show | {"thread_ts": "1.0"}))
    assert await refused(unknown) == "invalid_thread_ts"
    empty = client.api_call("assistant.threads.setStatus", json={"channel_id": DIRECT, "status": "x"})
    assert await refused(empty) == "invalid_arguments"


async def test_faults_are_carried_out(server: SlackServer, client: AsyncWebClient) -> None:
    server.limit("chat.postMessage", "7")
    with pytest.raises(SlackApiError) as caught:
        await client.chat_postMessage(channel=CHANNEL, text="a")
    assert caught.value.response.status_code == 429
    assert caught.value.response.headers["Retry-After"] == "7"
    assert server.visible(CHANNEL) == []
    server.fail("chat.postMessage", action="lose")
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await client.chat_postMessage(channel=CHANNEL, text="a")
    assert [seen.text for seen in server.visible(CHANNEL)] == ["a"]
    server.fail("chat.postMessage", action="cut")
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await client.chat_postMessage(channel=CHANNEL, text="b")
    assert len(server.visible(CHANNEL)) == 1


async def test_a_ticket_opens_one_socket(server: SlackServer, session: aiohttp.ClientSession) -> None:
    client = AsyncWebClient(base_url=server.api_url, session=session, retry_handlers=[])
    url = (await client.apps_connections_open(app_token=server.app_token))["url"]
    socket = await session.ws_connect(url)
    for used in (url, url[:-1], f"ws://127.0.0.1:{server.port}/link"):
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await session.ws_connect(used)
    await socket.close()
    await server.until(lambda: server.sockets == 0)


async def test_an_eleventh_socket_is_turned_away(server: SlackServer, session: aiohttp.ClientSession) -> None:
    sockets = [await opened(server, session) for _ in range(10)]
    client = AsyncWebClient(base_url=server.api_url, session=session, retry_handlers=[])
    url = (await client.apps_connections_open(app_token=server.app_token))["url"]
    extra = await session.ws_connect(url)
    assert (await extra.receive_json())["reason"] == "too_many_websockets"
    assert (await extra.receive()).type is aiohttp.WSMsgType.CLOSE
    for socket in sockets:
        await socket.close()


async def test_an_event_goes_to_one_socket_and_comes_again_until_it_is_acked(
    server: SlackServer, session: aiohttp.ClientSession, clock: FakeClock
) -> None:
    socket = await opened(server, session)
    await server.say("hi", channel=DIRECT, user=ADA)
    seen = [await socket.receive_json()]
    for wait in (3, 63, 303):
        await clock.advance(wait)
        seen.append(await socket.receive_json())
    assert [envelope["retry_attempt"] for envelope in seen] == [0, 1, 2, 3]
    assert [envelope["retry_reason"] for envelope in seen] == ["", "timeout", "timeout", "timeout"]
    assert len({envelope["envelope_id"] for envelope in seen}) == 4
    assert len({envelope["payload"]["event_id"] for envelope in seen}) == 1
    assert all(envelope["accepts_response_payload"] is False for envelope in seen)
    await socket.send_json({"envelope_id": "unknown"})
    await clock.advance(2)
    assert len(server.unacked()) == 1
    await socket.send_json({"envelope_id": seen[3]["envelope_id"]})
    await server.until(lambda: not server.unacked())
    assert not server.deliveries[0].given_up


async def test_an_event_is_given_up_after_three_redeliveries(server: SlackServer, clock: FakeClock) -> None:
    await server.say("hi", channel=DIRECT, user=ADA)
    await server.until(lambda: server.deliveries[0].attempts == 2)
    await clock.advance(59)
    assert server.deliveries[0].attempts == 2
    await clock.advance(1)
    await server.until(lambda: server.deliveries[0].attempts == 3)
    await clock.advance(300)
    await server.until(lambda: server.deliveries[0].given_up)
    assert server.deliveries[0].attempts == 4
    assert len(server.unacked()) == 1


async def test_a_command_is_sent_once_and_its_ack_may_carry_words(
    server: SlackServer, session: aiohttp.ClientSession, clock: FakeClock
) -> None:
    socket = await opened(server, session)
    delivery = await server.command("help", channel=DIRECT, user=ADA)
    envelope = await socket.receive_json()
    assert envelope["accepts_response_payload"] is True
    assert "retry_attempt" not in envelope
    await socket.send_json({"envelope_id": envelope["envelope_id"], "payload": {"text": "hi"}})
    await server.until(delivery.acked.is_set)
    assert delivery.reply == {"text": "hi"}
    late = await server.command("help", channel=DIRECT, user=ADA)
    await socket.receive_json()
    await clock.advance(3)
    await server.until(lambda: late.given_up)
    assert late.attempts == 1


async def test_events_come_only_where_they_are_subscribed_and_the_bot_is(
    server: SlackServer, session: aiohttp.ClientSession
) -> None:
    socket = await opened(server, session)
    server.add_channel("C0OUT", bot=False)
    server.subscriptions = {"message.im"}
    await server.say("<@U0SHIP>", channel="C0OUT", user=ADA)
    await server.say("<@U0SHIP>", channel=CHANNEL, user=ADA)
    await server.say("hi", channel=DIRECT, user=ADA)
    assert (await socket.receive_json())["payload"]["event"]["text"] == "hi"
    assert len(server.deliveries) == 1


async def test_a_mention_is_two_events_with_one_ts(
    server: SlackServer, session: aiohttp.ClientSession
) -> None:
    socket = await opened(server, session)
    ts = await server.say("<@U0SHIP> hi", channel=CHANNEL, user=ADA)
    payloads = [(await socket.receive_json())["payload"] for _ in range(2)]
    assert {payload["event"]["type"] for payload in payloads} == {"message", "app_mention"}
    assert {payload["event"]["ts"] for payload in payloads} == {ts}
    assert len({payload["event_id"] for payload in payloads}) == 2


async def test_the_bots_own_post_is_an_event_too(server: SlackServer, client: AsyncWebClient) -> None:
    await client.chat_postMessage(channel=DIRECT, markdown_text="hi <@U0SHIP>")
    (delivery,) = server.deliveries
    event = delivery.payload["event"]
    assert (event["bot_id"], event["user"], event["app_id"]) == ("B0SHIP", "U0SHIP", "A0SHIP")
    assert event["channel_type"] == "im"


async def test_stamps_are_never_the_same(server: SlackServer) -> None:
    stamps = [await server.say("hi", channel=DIRECT, user=ADA) for _ in range(3)]
    assert stamps == ["1800000000.000000", "1800000000.000001", "1800000000.000002"]


async def test_a_disconnect_message_asks_for_a_new_socket(
    server: SlackServer, session: aiohttp.ClientSession
) -> None:
    socket = await opened(server, session)
    await server.disconnect("warning")
    message = await socket.receive_json()
    assert (message["type"], message["reason"]) == ("disconnect", "warning")
    await server.cut_sockets()
    assert (await socket.receive()).type in {aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR}


async def test_stopping_ends_every_redelivery(server: SlackServer) -> None:
    await server.say("hi", channel=DIRECT, user=ADA)
    await server.until(lambda: server.deliveries[0].attempts == 2)
    await server.stop()
    assert not [task for task in asyncio.all_tasks() if "_deliver" in repr(task.get_coro())]


async def test_files_are_given_to_the_bot_and_to_others_a_page(
    server: SlackServer, session: aiohttp.ClientSession
) -> None:
    file = server.add_file("a.txt", b"text")
    bearer = {"Authorization": f"Bearer {server.bot_token}"}
    for headers, status, kind in ((bearer, 200, "text/plain"), ({}, 200, "text/html")):
        async with session.get(file["url_private_download"], headers=headers) as answer:
            assert (answer.status, answer.content_type) == (status, kind)
    server.forget_file(file["id"])
    async with session.get(file["url_private_download"], headers=bearer) as answer:
        assert answer.status == 404


async def test_a_stream_is_as_strict_as_slacks(
    server: SlackServer, client: AsyncWebClient, clock: FakeClock
) -> None:
    root = await server.say("hi", channel=DIRECT, user=ADA)
    there: dict[str, Any] = {"channel": DIRECT, "thread_ts": root}
    assert await refused(client.chat_startStream(channel=DIRECT, thread_ts="1.000001")) == "invalid_thread_ts"
    assert await refused(client.chat_startStream(**there, markdown_text="a" * 12_001)) == "msg_too_long"
    assert await refused(client.chat_startStream(**there, chunks=[{"type": "task_update", "id": "1"}])) == (
        "invalid_chunks"
    )
    assert await refused(client.chat_startStream(**there, chunks=["a"])) == "invalid_chunks"  # type: ignore[list-item]
    both = client.chat_startStream(**there, markdown_text="a", chunks=[{"type": "plan_update", "title": "a"}])
    assert await refused(both) == "markdown_text_conflict"
    assert await refused(client.chat_startStream(**there, markdown_text="")) == "no_text"
    ts = (await client.chat_startStream(**there, markdown_text="a"))["ts"]
    at: dict[str, Any] = {"channel": DIRECT, "ts": ts}
    assert await refused(client.chat_update(**at, markdown_text="b")) == "streaming_state_conflict"
    assert await refused(client.chat_appendStream(**at)) == "no_text"
    await client.chat_appendStream(**at, chunks=[{"type": "markdown_text", "text": "b" * 11_000}])
    assert await refused(client.chat_appendStream(**at, markdown_text="c" * 1_000)) == "msg_too_long"
    await client.chat_stopStream(**at, metadata={"event_type": "a", "event_payload": {}})
    assert (
        await refused(client.chat_appendStream(**at, markdown_text="d")) == "message_not_in_streaming_state"
    )
    assert await refused(client.chat_stopStream(**at)) == "message_not_in_streaming_state"
    (seen,) = server.replies(DIRECT)
    assert (seen.text, seen.metadata) == ("a" + "b" * 11_000, {"event_type": "a", "event_payload": {}})
    at["ts"] = (await client.chat_startStream(**there))["ts"]
    await clock.advance(301)
    assert await refused(client.chat_stopStream(**at)) == "message_not_in_streaming_state"
    await client.chat_update(**at, markdown_text="b")
    foreign = client.chat_stopStream(channel=DIRECT, ts=root)
    assert await refused(foreign) == "message_not_owned_by_app"


async def test_in_a_channel_a_stream_is_for_one_person(server: SlackServer, client: AsyncWebClient) -> None:
    root = await server.say("hi", channel=CHANNEL, user=ADA)
    there: dict[str, Any] = {"channel": CHANNEL, "thread_ts": root}
    assert await refused(client.chat_startStream(**there)) == "missing_recipient_team_id"
    assert (
        await refused(client.chat_startStream(**there, recipient_team_id="T0TEAM"))
        == "missing_recipient_user_id"
    )
    await client.chat_startStream(**there, recipient_team_id="T0TEAM", recipient_user_id=ADA)
    server.api.scopes.discard("chat:write")
    assert await refused(client.chat_startStream(**there)) == "missing_scope"


@pytest.mark.parametrize(
    "element",
    [
        {"type": "button"},
        {
            "type": "feedback_buttons",
            "positive_button": {"text": {"type": "plain_text", "text": "a"}, "value": "b"},
        },
    ],
)
async def test_thumbs_are_a_pair(
    server: SlackServer, client: AsyncWebClient, element: dict[str, Any]
) -> None:
    blocks: list[dict[str, Any]] = [
        {"type": "markdown", "text": "a"},
        {"type": "context_actions", "elements": [element]},
    ]
    assert await refused(client.chat_postMessage(channel=DIRECT, text="a", blocks=blocks)) == "invalid_blocks"

"""Manifest of the Telegram channel. Does not import the library."""

from __future__ import annotations

from bot.contracts.channel import Channel, ChannelDeps, EditPace, Manifest, Pace, TokenForm
from bot.contracts.examination import Claim
from bot.words import sentence
from channels.telegram import address
from channels.telegram.examination import examine, invite, look
from channels.telegram.settings import TelegramSettings


def _build(settings: TelegramSettings, around: ChannelDeps) -> Channel:
    from channels.telegram.adapter import TelegramChannel

    return TelegramChannel(settings, around)


MANIFEST = Manifest(
    name="telegram",
    settings=TelegramSettings,
    build=_build,
    encode=address.encode,
    decode=address.decode,
    buttons=True,
    tokens=("bot_token",),
    token_forms={"bot_token": TokenForm(r"\d+:[\w-]+", "123456789:ABC…")},
    valid_id=address.valid_id,
    where_id=sentence("operators.id_telegram"),
    # These are the ids of GroupAnonymousBot and Channel_Bot, which many people share.
    never_admit=frozenset({"1087968824", "136817688"}),
    pace={"direct": Pace(burst=3, every=1.0), "group": Pace(burst=3, every=3.0)},
    total=Pace(burst=30, every=1 / 30),
    # An edit counts like a message in Telegram's rate limits.
    edits=EditPace({"direct": 1.5, "group": 3.0}),
    examples=True,
    files=True,
    # Only Telegram Passport and httpx's command line need these packages, which take 12 MB.
    unused=frozenset({"cryptography", "pygments", "rich"}),
    silence=45.0,  # a poll takes 10 s, and times out 5 s later
    direct=lambda user: {"chat_id": user},
    examine=examine,
    claim=Claim(invite, look),
    connect=lambda _name, _posts_to: (
        "For Telegram, write /newbot to @BotFather and take the token that it gives you."
    ),
    rules=(
        "Telegram shows Markdown: **bold**, *italics*, ~~strikethrough~~, ||spoilers||, `code`, fenced code with its "
        "language, [links](https://…), lists, tasks (- [x]), > quotes. Headings become bold lines, tables monospaced text; "
        "images are not shown. A message holds about 4,000 characters, longer ones are split: keep it short."
    ),
)

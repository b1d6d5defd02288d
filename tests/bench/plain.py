"""The plain script that Shipmate is compared with: a bot as one would write it in an hour. It stores nothing
and admits everyone.
"""

from __future__ import annotations

import os
from collections import defaultdict

from anthropic import AsyncAnthropic
from anthropic.types import MessageParam
from telegram import Update
from telegram.ext import Application, ContextTypes, MessageHandler, filters

MODEL = "claude-sonnet-5-5"
REMEMBERED = 60

model = AsyncAnthropic(api_key=os.environ["ANTHROPIC_API_KEY"], base_url=os.environ["MODEL_URL"])
history: dict[int, list[MessageParam]] = defaultdict(list)


async def answer(update: Update, context: ContextTypes.DEFAULT_TYPE) -> None:
    """Answer one message: remember the message, ask the model, remember the answer, send it."""
    if update.message is None or update.message.text is None:
        return
    chat = update.message.chat_id
    turns = history[chat]
    turns.append({"role": "user", "content": update.message.text})
    reply = await model.messages.create(
        model=MODEL,
        max_tokens=8_192,
        system="You are a helpful assistant in a team chat.",
        messages=turns,
    )
    words = "".join(block.text for block in reply.content if block.type == "text")
    turns.append({"role": "assistant", "content": words})
    del turns[:-REMEMBERED]
    await context.bot.send_message(chat, words)


def main() -> None:
    """Poll until a signal ends the process."""
    application = (
        Application.builder()
        .token(os.environ["TELEGRAM_BOT_TOKEN"])
        .base_url(f"{os.environ['TELEGRAM_URL']}/bot")
        .concurrent_updates(concurrent_updates=True)
        .build()
    )
    application.add_handler(MessageHandler(filters.TEXT, answer))
    application.run_polling(allowed_updates=["message"])


if __name__ == "__main__":
    main()

"""👍 and 👎: what people say of an answer is kept in the operator's log with its turn."""

from __future__ import annotations

from bot import errors
from bot.contracts.environment import Log
from bot.contracts.inbound import Inbound
from bot.contracts.journal import Journal


class Ratings:
    """Writes a line for each rating of a message of ours. Nobody is told anything: the platform shows it by itself."""

    def __init__(self, journal: Journal, log: Log) -> None:
        self._journal = journal
        self._log = log

    async def keep(self, rating: Inbound) -> None:
        """Keep a `rating`; one of a message that is no answer is none."""
        try:
            request_id = await self._journal.delivered_as(rating.chat_key, rating.answers)
        except errors.StorageError as error:
            self._log.write("error", "a rating cannot be kept", level="error", cause=str(error))
            return
        if request_id is not None and rating.answers is not None:
            self._log.write(
                "feedback",
                "an answer was rated",
                chat_key=rating.chat_key,
                request_id=request_id,
                rating=rating.rating,
                person=str(rating.person),
                message_id=rating.answers,
            )

"""What a chat does with each event: one table. A row says what happens, line by line, and after `->` what comes of it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from bot import errors
from bot.contracts.identity import UserRef
from bot.contracts.inbound import Attachment, Inbound
from bot.contracts.journal import ANSWERED, FAILED, STOPPED, InboxEnd, InboxRecord
from bot.core.chat import MODES
from bot.core.message_versions import same_message
from bot.gateway.conversation import (
    AgentFinished,
    AgentStarted,
    Amend,
    Answer,
    CancelWait,
    Close,
    Conversation,
    Delete,
    Edit,
    Effect,
    Event,
    LookUp,
    Message,
    OutputStarted,
    RestartModelCall,
    Resumed,
    Stop,
    StopTurn,
    Suspended,
    TurnClosed,
    TurnEnded,
    TurnPlan,
    TurnResumed,
    WakeAt,
    Woken,
)

TURN: dict[str, Event] = {
    "asked": AgentStarted(),
    "acted": OutputStarted(),
    "over": AgentFinished(),
    "woken": Woken(),
    "closed": TurnClosed(),
    "resumed": Resumed(),
    "asks for approval": Suspended("approval"),
    "asks a question": Suspended("question"),
}
TABLE: list[tuple[str, str, str]] = [
    # ------------------------------------------------------------ the queue
    (
        "a message is a turn, and its end closes it",
        "steer",
        """
        a says 1
        begin -> 1
        asked
        over
        ended answered -> close 1: answered
        closed
        idle -> yes
        """,
    ),
    (
        "one turn at a time, each person's messages in order",
        "followup",
        """
        a says 1
        a says 2
        begin -> 1
        begin -> nothing
        turn ends
        begin -> 2
        """,
    ),
    (
        "people take turns in a chat",
        "followup",
        """
        a says 1
        a says 2
        b says 3
        begin -> 1
        c says 4
        a says 5
        turn ends
        begin -> 3
        turn ends
        begin -> 4
        turn ends
        begin -> 2
        turn ends
        begin -> 5
        """,
    ),
    (
        "who is ready stands in the order of the chat, and each of them can be given the turn",
        "followup",
        """
        a says 1
        b says 2
        ready -> a, b
        begin b -> 2
        ready -> nobody
        begin a -> nothing
        """,
    ),
    (
        "a command is a turn of its own between messages that are collected",
        "collect",
        """
        a says 1
        a commands 2 new
        a says 3
        begin -> 1
        turn ends
        begin -> 2
        ended handled -> close 2: handled
        closed
        begin -> 3
        """,
    ),
    # ------------------------------------------------------------ modes
    (
        "steer: what its person adds joins the turn once the agent has it, and is closed with it",
        "steer",
        """
        a says 1
        begin -> 1
        a says 2
        take ->
        asked -> ask anew for 1
        take -> 2
        acted
        a says 3
        take -> 3
        a says 4
        take -> 4
        over
        ended answered -> close 2: answered, close 3: answered, close 4: answered, close 1: answered
        closed
        """,
    ),
    (
        "steer: while nobody has seen anything of an answer, what its person adds is part of the question, twice",
        "steer",
        """
        a says 1
        begin -> 1
        asked
        a says 2 -> ask anew for 1
        take -> 2
        a says 3 -> ask anew for 1
        a says 4
        take -> 3, 4
        turn ends
        a says 5
        begin -> 5
        asked
        a says 6 -> ask anew for 5
        """,
    ),
    (
        "steer: once something of the answer is shown, or a tool with effects has run, it joins at the next step",
        "steer",
        """
        a says 1
        begin -> 1
        acted
        asked
        a says 2
        take -> 2
        """,
    ),
    (
        "steer: what others said comes first, and what does not join is no part of the question",
        "steer",
        """
        a says 1
        begin -> 1
        asked
        b says 2
        a says 3
        turn ends
        begin -> 2
        asked
        b commands 4 new
        b says 5
        b shows a photo as 6
        """,
    ),
    (
        "steer: no question is put anew by one who waits, was stopped or goes on after a restart",
        "steer",
        """
        a says 1
        begin -> 1
        asked
        asks for approval
        a says 2 -> cancel wait of 1
        resumed
        a says 3 -> ask anew for 1
        a stops -> stop 1, close 2: stopped, close 3: stopped
        a says 4
        turn ends
        begin -> 4
        turn ends
        a goes on with 5
        begin -> 5 again
        asked
        a says 6
        """,
    ),
    (
        "steer: what comes after the last word is the next turn",
        "steer",
        """
        a says 1
        begin -> 1
        asked
        over
        a says 2
        take ->
        ended answered -> close 1: answered
        closed
        begin -> 2
        """,
    ),
    (
        "steer: of several people only who caused the turn adds to it, and only what came before what others wait with",
        "steer",
        """
        a says 1
        begin -> 1
        asked
        a says 2 -> ask anew for 1
        b says 3
        a says 4
        take -> 2
        take ->
        turn ends
        begin -> 3
        turn ends
        begin -> 4
        """,
    ),
    (
        "steer: a command, and a file that holds no text, do not join",
        "steer",
        """
        a says 1
        begin -> 1
        asked
        a commands 2 new
        a says 3
        take ->
        turn ends
        begin -> 2
        turn ends
        a shows a photo as 4
        begin -> 3
        asked
        take ->
        """,
    ),
    (
        "followup: nothing joins",
        "followup",
        """
        a says 1
        begin -> 1
        asked
        a says 2
        take ->
        turn ends
        begin -> 2
        """,
    ),
    (
        "collect: what waits of one person is one turn, also what comes while that reads its files",
        "collect",
        """
        a says 1
        b says 2
        begin -> 1
        turn ends
        a says 3
        a says 4
        begin -> 2
        turn ends
        begin -> 3+4
        a says 5
        take -> 5
        asked
        a says 6
        take ->
        ended answered -> close 4: answered, close 5: answered, close 3: answered
        """,
    ),
    (
        "interrupt: new words of its person stop the turn that the agent has, and no others",
        "interrupt",
        """
        a says 1
        begin -> 1
        a says 2
        take -> 2
        asked
        b says 3
        a commands 4 new
        a says 5 -> stop 1
        ended stopped -> close 2: stopped, close 1: stopped
        a says 6
        closed
        begin -> 3
        """,
    ),
    # ------------------------------------------------------------ bursts
    (
        "a burst is one turn once its person has been quiet",
        "steer, quiet for 2",
        """
        @0 a says 1 -> wake at 2
        @0 begin -> nothing
        @1.5 a says 2 -> wake at 3.5
        @2 begin -> nothing
        @3.5 begin -> 1+2
        """,
    ),
    (
        "who never stops is answered after five times as long",
        "steer, quiet for 2",
        """
        @0 a says 1 -> wake at 2
        @1.9 a says 2 -> wake at 3.9
        @3.8 a says 3 -> wake at 5.8
        @5.7 a says 4 -> wake at 7.7
        @7.6 a says 5 -> wake at 9.6
        @9.5 a says 6 -> wake at 10
        @10 begin -> 1+2+3+4+5+6
        """,
    ),
    (
        "an album whose items come one by one is one turn",
        "steer",
        """
        @0 a shows of an album 1 -> wake at 1
        @0 begin -> nothing
        @0.2 a shows of an album 2 -> wake at 1.2
        @1.2 begin -> 1+2
        """,
    ),
    (
        "what its person says next ends an album",
        "steer",
        """
        @0 a shows of an album 1 -> wake at 1
        @0.1 a shows of an album 2 -> wake at 1.1
        @0.5 a says 3
        @0.5 begin -> 1+2
        """,
    ),
    (
        "nobody waits for what others write",
        "steer, quiet for 2",
        """
        @0 a says 1 -> wake at 2
        @1 b says 2 -> wake at 3
        @2 ready -> a
        @2 begin -> 1
        """,
    ),
    (
        "a command ends the burst before it and is not waited for",
        "steer, quiet for 2",
        """
        @0 a says 1 -> wake at 2
        @0 a commands 2 new
        @0 begin -> 1
        turn ends
        @0 begin -> 2
        """,
    ),
    (
        "two bursts that wait are two turns",
        "followup, quiet for 2",
        """
        @0 a says 1 -> wake at 2
        @2 begin -> 1
        @2 a says 2 -> wake at 4
        @3 a says 3 -> wake at 5
        @6 a says 4 -> wake at 8
        turn ends
        @8 begin -> 2+3
        turn ends
        @8 begin -> 4
        """,
    ),
    (
        "two bursts that wait are one turn where all is collected",
        "collect, quiet for 2",
        """
        @0 a says 1 -> wake at 2
        @6 a says 2 -> wake at 8
        @8 begin -> 1+2
        """,
    ),
    (
        "what was written before a restart merges as it would have and is not waited for",
        "followup, quiet for 2",
        """
        a said 1 at 100
        a said 2 at 101
        a said 3 at 104
        @0 begin -> 1+2
        turn ends
        @0 a says 4 -> wake at 2
        @0 begin -> 3
        turn ends
        @0 begin -> nothing
        """,
    ),
    (
        "a person of whose burst nothing is left is not waited for",
        "steer, quiet for 2",
        """
        @0 a says 1 -> wake at 2
        @1 a deletes 1 -> close 1: withdrawn, close delete 1: handled
        @1 begin -> nothing
        @1 idle -> yes
        """,
    ),
    (
        "who had nothing waiting any more begins a new burst",
        "steer, quiet for 2",
        """
        @0 a says 1 -> wake at 2
        @1.9 a says 2 -> wake at 3.9
        @3.8 a says 3 -> wake at 5.8
        @5 a stops -> close 1: stopped, close 2: stopped, close 3: stopped
        @5.5 a says 4 -> wake at 7.5
        @7 a says 5 -> wake at 9
        @8.9 a says 6 -> wake at 10.9
        """,
    ),
    # ------------------------------------------------------------ edits
    (
        "an edit before the turn replaces what the message says",
        "steer",
        """
        a says 1
        a edits 1 to new -> amend 1=new, close edit 1 to new: merged into 1
        begin -> 1=new
        """,
    ),
    (
        "of two edits the newer counts in whatever order they come",
        "steer",
        """
        a says 1
        a edits 1 to third as of 3 -> amend 1=third, close edit 1 to third: merged into 1
        a edits 1 to second as of 2 -> close edit 1 to second: outdated
        begin -> 1=third
        """,
    ),
    (
        "an edit while the turn runs joins it, or is a turn of its own after it",
        "steer",
        """
        a says 1
        begin -> 1
        asked
        a edits 1 to two -> ask anew for 1
        take -> edit 1 to two
        acted
        a edits 1 to three -> ask anew for 1
        a edits 1 to four -> amend edit 1 to three=four, close edit 1 to four: merged into edit 1 to three
        ended answered -> close edit 1 to two: answered, close 1: answered
        closed
        begin -> edit 1 to three=four
        """,
    ),
    (
        "an edit before the agent has the turn is part of the question",
        "steer",
        """
        a says 1
        begin -> 1
        a edits 1 to two
        take ->
        asked -> ask anew for 1
        take -> edit 1 to two
        """,
    ),
    (
        "an edit interrupts the answer to the old words",
        "interrupt",
        """
        a says 1
        begin -> 1
        asked
        a edits 1 to new -> stop 1
        turn ends
        begin -> edit 1 to new
        """,
    ),
    (
        "an edit until the end of the turn is on file is a turn of its own, and after that the journal's matter",
        "steer",
        """
        a says 1
        begin -> 1
        asked
        ended answered -> close 1: answered
        a edits 1 to two
        closed
        a edits 1 to three as of 9 -> amend edit 1 to two=three, close edit 1 to three: merged into edit 1 to two
        begin -> edit 1 to two=three
        ended answered -> close edit 1 to two: answered
        closed
        a edits 1 to four as of 10 -> look up edit 1 to four
        idle -> yes
        """,
    ),
    (
        "an edit of a turn that goes on comes after it",
        "followup",
        """
        a goes on with 1, 2
        a edits 2 to new
        begin -> 1+2 again
        turn ends
        begin -> edit 2 to new
        """,
    ),
    (
        "a change by somebody else counts for nothing",
        "steer",
        """
        a says 1
        b edits 1 to forged -> look up edit 1 to forged
        b deletes 1 -> look up delete 1
        begin -> 1
        """,
    ),
    (
        "a command that is edited while it waits is what it says now",
        "steer",
        """
        a commands 1 new
        a edits 1 to words -> amend 1=words, close edit 1 to words: merged into 1
        a says 2
        begin -> 1=words
        asked -> ask anew for 1
        take -> 2
        """,
    ),
    # ------------------------------------------------------------ deletions
    (
        "a deletion before the turn withdraws the message, and what waits of its edits",
        "followup",
        """
        a says 0
        begin -> 0
        a says 1
        a deletes 1 -> close 1: withdrawn, close delete 1: handled
        a edits 0 to new
        a deletes 0 -> close edit 0 to new: withdrawn, stop 0, close delete 0: handled
        turn ends
        begin -> nothing
        """,
    ),
    (
        "a deletion of one message of a turn leaves the others their answer; of the last one it stops the turn",
        "collect",
        """
        a says 1
        a says 2
        begin -> 1+2
        asked
        a deletes 2 -> close delete 2: handled
        left -> 1
        a deletes 1 -> stop 1, close delete 1: handled
        ended stopped -> close 2: withdrawn, close 1: stopped
        """,
    ),
    (
        "a deletion of what a turn has answered is for the journal, and one that is over is not stopped",
        "steer",
        """
        a says 1
        begin -> 1
        asked
        over
        a deletes 1 -> close delete 1: handled
        ended answered -> close 1: answered
        closed
        a deletes 1 -> look up delete 1
        """,
    ),
    (
        "a turn that goes on can be withdrawn before it begins",
        "steer",
        """
        a goes on with 1
        a deletes 1 -> stop 1, close delete 1: handled
        begin -> 1 again
        stopped -> yes
        """,
    ),
    # ------------------------------------------------------------ albums
    (
        "an album waits as one message, and an edit changes one item",
        "steer",
        """
        a shows 1, 2
        a edits 2 to new -> amend 1=1 new, close edit 2 to new: merged into 1
        begin -> 1=1 new
        """,
    ),
    (
        "an edit of an item while the album is answered is the new words of all of it",
        "followup",
        """
        a shows 1, 2
        begin -> 1=1 2
        a edits 2 to new
        turn ends
        begin -> edit 2 to new=1 new
        """,
    ),
    (
        "a deletion of any item withdraws the album",
        "steer",
        """
        a shows 1, 2
        a deletes 2 -> close 1: withdrawn, close delete 2: handled
        """,
    ),
    # ------------------------------------------------------------ stops
    (
        "a stop ends the turn and what its person has waiting, and nothing that comes after it",
        "followup",
        """
        a says 1
        begin -> 1
        asked
        a says 2
        b says 3
        a stops -> stop 1, close 2: stopped
        a says 4
        ended stopped -> close 1: stopped
        closed
        begin -> 3
        turn ends
        begin -> 4
        """,
    ),
    (
        "what comes after a stop does not join the turn that it ends",
        "steer",
        """
        a says 1
        begin -> 1
        asked
        a stops -> stop 1
        a says 2
        take ->
        turn ends
        begin -> 2
        """,
    ),
    (
        "a stop of who may not end the turn ends what that person has waiting",
        "followup",
        """
        a says 1
        begin -> 1
        b says 2
        b stops but not the turn -> close 2: stopped
        stopped -> no
        """,
    ),
    (
        "a turn that has said its last word is not stopped",
        "steer",
        """
        a says 1
        begin -> 1
        asked
        over
        a stops ->
        stopped -> no
        """,
    ),
    (
        "a turn that goes on can be stopped before it begins",
        "steer",
        """
        a goes on with 1
        a stops -> stop 1
        begin -> 1 again
        stopped -> yes
        """,
    ),
    (
        "a stop that is brought again reaches nothing that was said after it",
        "followup",
        """
        @1 a says 1
        @3 a says 2
        a stops as of 2 -> close 1: stopped
        begin -> 2
        a stops as of 2 ->
        """,
    ),
    (
        "a stop in the thread of one message of a chat reaches that one",
        "followup",
        """
        a says 1 in t1
        begin -> 1
        a says 2 in t2
        a says 3 in t3
        a stops in t2 -> close 2: stopped
        a stops in t1 -> stop 1
        """,
    ),
    (
        "a stop in the thread of a message that joined ends the turn",
        "steer",
        """
        a says 1 in t1
        begin -> 1
        asked
        a says 2 in t2 -> ask anew for 1
        take -> 2
        a stops in t2 -> stop 1
        """,
    ),
    (
        "a stop above a thread ends what its person has in it, and nothing of others",
        "steer, in a thread",
        """
        a says 1
        begin -> 1
        a says 2
        b says 3
        b stops below -> close 3: stopped
        a stops below -> stop 1, close 2: stopped
        """,
    ),
    # ------------------------------------------------------------ jobs, suspended turns, restarts
    (
        "a job that is due is a turn of its own, and nothing joins or interrupts it",
        "interrupt",
        """
        a says 1
        a has planned 2
        a says 3
        begin -> 1
        turn ends
        begin -> 2
        asked
        a says 4
        take ->
        turn ends
        begin -> 3+4
        """,
    ),
    (
        "a job that is due does not interrupt, and joins nothing",
        "interrupt",
        """
        a says 1
        begin -> 1
        asked
        a has planned 2
        take ->
        turn ends
        begin -> 2
        """,
    ),
    (
        "a turn that waits for an approval goes on when its person says something else",
        "steer",
        """
        a says 1
        begin -> 1
        asked
        asks for approval
        b says 2
        a says 3 -> cancel wait of 1
        a says 4
        resumed
        """,
    ),
    (
        "a command of its person calls off an approval and runs behind the turn; one of somebody else waits",
        "steer",
        """
        a says 1
        begin -> 1
        asked
        asks for approval
        b commands 2 new
        a commands 3 new -> cancel wait of 1
        a commands 4 compact
        resumed
        take ->
        """,
    ),
    (
        "so it does with a question",
        "followup",
        """
        a says 1
        begin -> 1
        asked
        asks a question
        a commands 2 new -> cancel wait of 1
        """,
    ),
    (
        "where its person has given a command already, a turn waits for nothing",
        "followup",
        """
        a says 1
        begin -> 1
        asked
        a says 2
        a commands 3 new
        asks for approval -> cancel wait of 1
        asks a question -> cancel wait of 1
        """,
    ),
    (
        "where its person has said more already, a turn does not begin to wait for an approval",
        "steer",
        """
        a says 1
        begin -> 1
        asked
        acted
        a says 2
        asks for approval -> cancel wait of 1
        """,
    ),
    (
        "where nothing joins, what waits already does not call off an approval; what comes does",
        "followup",
        """
        a says 1
        begin -> 1
        asked
        a says 2
        asks for approval
        a says 3 -> cancel wait of 1
        """,
    ),
    (
        "what interrupts calls off an approval first",
        "interrupt",
        """
        a says 1
        begin -> 1
        asked
        asks for approval
        a says 2 -> cancel wait of 1, stop 1
        """,
    ),
    (
        "what the person of a question says next is its answer, and interrupts nothing",
        "interrupt",
        """
        a says 1
        begin -> 1
        asked
        asks a question
        b says 2
        a says 3 -> answer 3 to 1
        a says 4 -> stop 1
        """,
    ),
    (
        "steer: an album whose items come one by one joins once it is whole, as one",
        "steer",
        """
        @0 a says 1
        @0 begin -> 1
        asked
        @1 a shows of an album 2 -> wake at 2
        take ->
        @1.2 a shows of an album 3 -> wake at 2.2
        @2 woken
        take ->
        @2.2 woken -> ask anew for 1
        take -> 2, 3
        @2.2 woken
        """,
    ),
    (
        "steer: what its person says next ends an album, which joins with it",
        "steer",
        """
        @0 a says 1
        @0 begin -> 1
        asked
        @1 a shows of an album 2 -> wake at 2
        @1.2 a says 3 -> ask anew for 1
        take -> 2, 3
        @2 woken
        """,
    ),
    (
        "steer: an album that came while nothing could be put anew joins at the next step",
        "steer",
        """
        @0 a says 1
        @0 begin -> 1
        @0.5 a shows of an album 2 -> wake at 1.5
        asked
        acted
        @1.5 woken
        take -> 2
        """,
    ),
    (
        "steer: an album that is whole before the agent has the turn is part of the question",
        "steer",
        """
        @0 a says 1
        @0 begin -> 1
        @0.5 a shows of an album 2 -> wake at 1.5
        @1.5 woken
        asked -> ask anew for 1
        take -> 2
        """,
    ),
    (
        "collect: an album joins a turn that reads its files once it is whole",
        "collect",
        """
        @0 a says 1
        @0 begin -> 1
        @0.5 a shows of an album 2 -> wake at 1.5
        take ->
        @0.7 a shows of an album 3 -> wake at 1.7
        @1.7 woken
        take -> 2, 3
        """,
    ),
    (
        "the first item of an album answers a question, and its others interrupt nothing",
        "interrupt",
        """
        @1 a says 1
        @1 begin -> 1
        asked
        asks a question
        @2 a shows of an album 2 -> wake at 3, answer 2 to 1
        @2.1 a shows of an album 3 -> wake at 3.1
        @2.2 a says 4 -> stop 1
        """,
    ),
    (
        "what others said somewhere answers no question",
        "followup",
        """
        a says 1
        begin -> 1
        asked
        asks a question
        a forwards 2
        a edits 1 to yes -> answer edit 1 to yes to 1
        a says 3
        """,
    ),
    (
        "a question is asked although its person has said more already, and what they say then is its answer",
        "steer",
        """
        a says 1
        begin -> 1
        asked
        acted
        a says 2
        asks a question
        a says 3 -> answer 3 to 1
        """,
    ),
    (
        "what is read back from the journal neither calls off an approval nor interrupts",
        "interrupt",
        """
        a says 1
        begin -> 1
        asked
        asks for approval
        a said 2 at 100
        a says 3 -> cancel wait of 1, stop 1
        """,
    ),
    (
        "after the wait nothing is called off",
        "followup",
        """
        a says 1
        begin -> 1
        asked
        asks for approval
        resumed
        a says 2
        """,
    ),
    (
        "a turn that began before a restart is the next of its chat, goes on alone, and not only while the disk has room",
        "collect",
        """
        a said 3 at 100
        b goes on with 1, 2
        a said 4 at 200
        ready -> b
        begin while the disk is full -> 1+2 again
        b says 5
        take ->
        ended answered -> close 2: answered, close 1: answered
        closed
        begin while the disk is full -> nothing
        begin -> 3+4
        turn ends
        begin -> 5
        """,
    ),
    (
        "what had joined a turn before a restart can join it again",
        "steer",
        """
        a goes on with 1
        a said 2 at 100
        begin -> 1 again
        asked -> ask anew for 1
        take -> 2
        """,
    ),
]

ENDS = {"answered": ANSWERED, "failed": FAILED, "stopped": STOPPED, "handled": InboxEnd("handled")}


class Script:
    """Reads the lines of a row, does what they say to a conversation, and says what came of it."""

    def __init__(self, how: str) -> None:
        mode, *rest = how.split(", ")
        self.quiet = float(next((one.split()[-1] for one in rest if one.startswith("quiet for")), 0))
        self.key = "tele:chat:c:thread:7" if "in a thread" in rest else "tele:chat:c"
        self.chat = Conversation(MODES[mode], self.quiet)
        self.file: list[Inbound] = []
        self.now = 0.0

    def inbound(self, who: str, name: str, **more: Any) -> Inbound:
        self.now = self.now or 0.0
        fields: dict[str, Any] = {
            "channel": "tele",
            "chat_id": "c",
            "chat_key": self.key,
            "chat_type": "group",
            "user_id": who,
            "keys": (name,),
            "ts": int(self.now * 1000),
            "target": {"chat": "c"},
            "text": name,
            "message_id": name,
            "request_id": name,
        }
        made = Inbound.model_validate(
            fields | {key: value for key, value in more.items() if value is not None}
        )
        self.file.append(made)
        return made

    def run(self, line: str) -> str:
        if (timed := re.match(r"@([\d.]+) (.*)", line)) is not None:
            self.now, line = float(timed[1]), timed[2]
        if line in TURN:
            return self.apply(TURN[line])
        for pattern, act in (
            (r"ended (?P<how>\w+)", self.ended),
            (r"turn ends", self.turn_ends),
            (r"begin(?: (?P<who>\w))?(?P<full> while the disk is full)?", self.begin),
            (r"take", self.take),
            (r"(ready|left|stopped|idle)", self.look),
            (r"(?P<who>\w) goes on with (?P<names>.+)", self.goes_on),
            (r"(?P<who>\w) stops(?P<how>.*)", self.stop),
            (
                r"(?P<who>\w) (?:says|shows a photo as|shows of an album|forwards) (?P<name>\w+)(?: in (?P<thread>\w+))?",
                self.says,
            ),
            (r"(?P<who>\w) said (?P<name>\w+) at (?P<at>\d+)", self.said),
            (r"(?P<who>\w) commands (?P<name>\w+) (?P<command>\w+)", self.commands),
            (r"(?P<who>\w) has planned (?P<name>\w+)", self.planned),
            (r"(?P<who>\w) shows (?P<items>.+)", self.shows),
            (r"(?P<who>\w) edits (?P<name>\w+) to (?P<words>\w+)(?: as of (?P<ts>\d+))?", self.edits),
            (r"(?P<who>\w) deletes (?P<name>\w+)", self.deletes),
        ):
            if (found := re.fullmatch(pattern, line)) is not None:
                return act(found)
        raise AssertionError(f"nobody understands {line!r}")

    def apply(self, event: Event) -> str:
        return ", ".join(shown(effect) for effect in self.chat.apply(event, self.now))

    # ------------------------------------------------------------ verbs

    def says(self, found: re.Match[str]) -> str:
        target = {"chat": "c"} | ({"thread": found["thread"]} if found["thread"] else {})
        more: dict[str, Any] = {"target": target}
        if "photo" in found[0]:
            more |= {"attachments": (Attachment(kind="photo"),)}
        if "album" in found[0]:
            more |= {"of_album": True}
        if "forwards" in found[0]:
            more |= {"text": "", "quoted": ({"user_id": None, "text": "theirs", "brought": True},)}
        return self.apply(Message(self.inbound(found["who"], found["name"], **more)))

    def said(self, found: re.Match[str]) -> str:
        return self.apply(Message(self.inbound(found["who"], found["name"]), taken_in=float(found["at"])))

    def commands(self, found: re.Match[str]) -> str:
        return self.apply(
            Message(self.inbound(found["who"], found["name"], command={"name": found["command"]}))
        )

    def planned(self, found: re.Match[str]) -> str:
        due = {"job": "J", "at": 0.0}
        return self.apply(Message(self.inbound(found["who"], found["name"], due=due, message_id=None)))

    def shows(self, found: re.Match[str]) -> str:
        items = {item: item for item in found["items"].split(", ")}
        (first, *_), words = items, "\n".join(items)
        return self.apply(Message(self.inbound(found["who"], first, items=items, text=words)))

    def edits(self, found: re.Match[str]) -> str:
        name, words = f"edit {found['name']} to {found['words']}", found["words"]
        ts = int(found["ts"]) * 1000 if found["ts"] else None
        edit = self.inbound(found["who"], name, kind="edit", text=words, message_id=found["name"], ts=ts)
        records = [
            InboxRecord(inbound=one, received_at=0, changed_at=0)
            for one in self.file
            if same_message(one, edit)
        ]
        return self.apply(Edit(edit, records))

    def deletes(self, found: re.Match[str]) -> str:
        name = found["name"]
        return self.apply(
            Delete(self.inbound(found["who"], f"delete {name}", kind="delete", text="", message_id=name))
        )

    def stop(self, found: re.Match[str]) -> str:
        how = found["how"]
        more: dict[str, Any] = {"kind": "stop", "message_id": None}
        if (thread := re.search(r"in (\w+)", how)) is not None:
            more |= {
                "target": {"chat": "c", "thread": thread[1]},
                "chat_key": f"tele:chat:c:thread:{thread[1]}",
            }
        if "below" in how:
            more |= {"chat_key": "tele:chat:c", "target": {}}
        since = re.search(r"as of (\d+)", how)
        return self.apply(
            Stop(
                self.inbound(found["who"], "stop", **more),
                scope="threads" if "below" in how else "place",
                turn="but not the turn" not in how,
                since=int(since[1]) * 1000 if since is not None else None,
            )
        )

    def goes_on(self, found: re.Match[str]) -> str:
        first, *rest = (self.inbound(found["who"], name) for name in found["names"].split(", "))
        return self.apply(TurnResumed(TurnPlan(first, tuple(rest), begun=True)))

    def ended(self, found: re.Match[str]) -> str:
        return self.apply(TurnEnded(ENDS[found["how"]]))

    def turn_ends(self, _: re.Match[str]) -> str:
        self.apply(TurnEnded(ANSWERED))
        return self.apply(TurnClosed())

    def begin(self, found: re.Match[str]) -> str:
        ready = self.chat.ready(self.now, begun_only=bool(found["full"]))
        who = UserRef("tele", found["who"]) if found["who"] else next(iter(ready), UserRef("tele", "a"))
        plan = self.chat.next_turn(self.now, who, begun_only=bool(found["full"]))
        return "nothing" if plan is None else "+".join(map(said, plan.all)) + (" again" if plan.begun else "")

    def take(self, _: re.Match[str]) -> str:
        return ", ".join(map(said, self.chat.take_more()))

    def look(self, found: re.Match[str]) -> str:
        turn = self.chat.turn
        match found[0]:
            case "ready":
                return ", ".join(who.user_id for who in self.chat.ready(self.now)) or "nobody"
            case "left":
                return ", ".join(map(said, turn.left if turn is not None else ()))
            case "stopped":
                return "yes" if turn is not None and turn.stopped else "no"
        return "yes" if self.chat.idle else "no"


def said(inbound: Inbound) -> str:
    """Its name, and what it says where that is something else."""
    words, name = " ".join(inbound.text.split()), inbound.request_id
    return name if words in {name, name.split()[-1]} else f"{name}={words}"


def shown(effect: Effect) -> str:  # noqa: PLR0911 - one line a kind
    match effect:
        case Close(inbound, end):
            into = f" into {end.merged_into}" if end.merged_into is not None else ""
            return f"close {inbound.request_id}: {end.detail or end.state}{into}"
        case Amend(inbound, _):
            return f"amend {said(inbound)}"
        case StopTurn(turn):
            return f"stop {turn.first.request_id}"
        case RestartModelCall(turn):
            return f"ask anew for {turn.first.request_id}"
        case CancelWait(turn):
            return f"cancel wait of {turn.first.request_id}"
        case Answer(turn, inbound):
            return f"answer {inbound.request_id} to {turn.first.request_id}"
        case WakeAt(at):
            return f"wake at {at:g}"
        case LookUp(change, _):
            return f"look up {change.request_id}"


@pytest.mark.parametrize(("how", "lines"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_a_chat(how: str, lines: str) -> None:
    script = Script(how)
    for line in map(str.strip, lines.strip().splitlines()):
        what, _, expected = line.partition("->")
        came = script.run(what.strip())
        assert came == expected.strip(), f"{what.strip()} came to {came!r}"


@pytest.mark.parametrize(
    "lines",
    [
        ["asked"],
        ["closed"],
        ["a says 1", "begin", "closed"],
        ["a says 1", "begin", "asked", "asked"],
        ["a says 1", "begin", "asked", "over", "over"],
        ["a says 1", "begin", "over", "asked"],
        ["a says 1", "begin", "ended answered", "ended answered"],
        ["a says 1", "begin", "ended answered", "closed", "closed"],
        ["a goes on with 1", "asked"],
        ["a says 1", "begin", "asks a question"],
        ["a says 1", "begin", "asked", "asks a question", "asks for approval"],
        ["a says 1", "begin", "asked", "over", "asks a question"],
        ["a says 1", "begin", "asked", "ended answered", "asks for approval"],
        ["a says 1", "begin", "asked", "resumed"],
        ["a says 1", "begin", "asked", "asks a question", "resumed", "resumed"],
    ],
    ids=" · ".join,
)
def test_what_cannot_follow_is_an_error(lines: list[str]) -> None:
    script = Script("steer")
    for line in lines[:-1]:
        script.run(line)
    with pytest.raises(errors.IllegalTransition):
        script.run(lines[-1])


def test_an_edit_that_takes_up_another_one_is_as_new_as_the_newer_of_them() -> None:
    script = Script("followup")
    for line in ("a says 1", "begin", "a edits 1 to two as of 2", "a edits 1 to three as of 3", "turn ends"):
        script.run(line)
    plan = script.chat.next_turn(0, UserRef("tele", "a"))
    assert plan is not None
    assert (plan.first.text, plan.first.ts) == ("three", 3_000)


def test_how_many_wait_of_each_person_is_told_once() -> None:
    script = Script("followup")
    for line in ("a says 1", "a says 2", "b says 3", "c goes on with 4, 5"):
        script.run(line)
    assert {who.user_id: count for who, count in script.chat.changes().items()} == {"a": 2, "b": 1, "c": 2}
    assert (script.chat.waiting, sorted(script.chat.request_ids)) == (4, ["1", "2", "3", "4", "5"])
    for line in ("begin", "turn ends", "begin", "a stops"):
        script.run(line)
    assert {who.user_id: count for who, count in script.chat.changes().items()} == {"a": -2, "c": -2}
    assert script.chat.changes() == {}
    assert (script.chat.waiting, sorted(script.chat.request_ids)) == (1, ["1", "3"])

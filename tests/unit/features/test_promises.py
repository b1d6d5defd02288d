"""Promises in answers are found in English and Chinese. Quotes, offers, questions and drafts do not count."""

from __future__ import annotations

import pytest

from bot.features.claims import promise_in

MADE = [
    "I'll look tomorrow.",
    "I couldn't reach it today, so I'll check again in two hours.",
    "Done so far. Tomorrow I'll go through the rest.",
    "I’ll let you know when it's done.",
    "I'm going to follow up with Bob.",
    "I will keep an eye on `build.log`.",
    "I'll continue as soon as the build is done.",
    "我明天看一下",
    "好的，我稍后再帮你查一下。",
    "明天我会继续处理剩下的部分。",
    "我会持续关注这个问题。",
    "有结果了我告诉你。",
    "稍后回复你。",
    "这次不行，我明天再看一下。",
    "两个小时后我再检查一次。",
]
NOT_MADE = [
    "I'll show you how tomorrow works.",
    "If you like, I'll look tomorrow.",
    "Should I look tomorrow?",
    "I'll look once you confirm.",
    "> I'll look tomorrow.",
    "```\nI'll look tomorrow.\n```",
    "`I'll look tomorrow`",
    'He said "I\'ll look tomorrow."',
    "Here is a draft reply:\nI'll look tomorrow.",
    "I'll use the first option.",
    "I'll explain this later in detail.",
    "Let me know and I'll look tomorrow.",
    "The report will be ready tomorrow.",
    "I won't look tomorrow.",
    "如果你愿意，我明天看一下。",
    "要我明天看一下吗？",
    "“我明天看一下”",
    "`我明天看一下`",
    "等你确认后我再处理。",
    "他说我明天看一下。",
    "需要的话，我明天再看。",
    "译文：\n我明天看一下。",
    "我会用中文回答。",
    "明天会下雨，记得带伞。",
]


@pytest.mark.parametrize("words", MADE)
def test_a_promise_is_found(words: str) -> None:
    assert promise_in(f"Well.\n\n{words}")


@pytest.mark.parametrize("words", NOT_MADE)
def test_what_is_quoted_offered_asked_or_drafted_is_no_promise(words: str) -> None:
    assert promise_in(words) == ""


def test_a_text_that_the_person_asked_for_promises_nothing() -> None:
    assert promise_in("I'll look tomorrow.", "write a reply to Bob") == ""

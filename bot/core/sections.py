"""Selects the sections of a prompt by priority, within a budget, shortened if needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bot import errors
from bot.words import say

BETWEEN = "\n\n"


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a prompt. Lower numbers have priority; `alternatives` are shorter forms, longest first.
    Empty text is left out.
    """

    name: str
    priority: float
    text: str
    required: bool = False
    alternatives: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Assembled:
    """The selected sections: `parts` by name in order of priority. `shortened` gives the number of the
    alternative used, from 1.
    """

    parts: tuple[tuple[str, str], ...]
    size: float
    dropped: tuple[str, ...] = ()
    shortened: tuple[tuple[str, int], ...] = ()

    @property
    def text(self) -> str:
        return BETWEEN.join(words for _, words in self.parts)


class PromptTooLarge(errors.ShipmateError):
    """The required sections exceed the budget even at their shortest."""

    @property
    def person(self) -> str:
        return say("turn.prompt_too_large")


@dataclass(slots=True)
class _Choice:
    """A section during selection: its forms in decreasing size, and which one is used."""

    section: Section
    forms: list[tuple[str, float]]
    taken: int | None = None

    @property
    def cost(self) -> float:
        return 0.0 if self.taken is None else self.forms[self.taken][1]

    def shorten(self) -> bool:
        """Use the next shorter form; return False if there is none."""
        if self.taken is None or self.taken + 1 == len(self.forms):
            return False
        self.taken += 1
        return True


def assemble(sections: Iterable[Section], budget: float, size: Callable[[str], float] = len) -> Assembled:
    """Select sections within `budget`, measured by `size`. Raises `PromptTooLarge`.

    Required sections come first, complete if they all fit, else the least important are shortened first.
    Optional ones get the rest in order of importance: complete, in their longest form that fits, or not at
    all.
    """
    asked = sorted((section for section in sections if section.text), key=lambda section: section.priority)
    gap = size(BETWEEN)
    choices = [_Choice(one, _forms(one, gap, size), 0 if one.required else None) for one in asked]
    _shorten(choices, budget + gap)
    left = budget + gap - sum(choice.cost for choice in choices)
    for choice in choices:
        if not choice.section.required:
            choice.taken = next((at for at, (_, cost) in enumerate(choice.forms) if cost <= left), None)
            left -= choice.cost
    taken = [(choice, choice.taken) for choice in choices if choice.taken is not None]
    return Assembled(
        tuple((choice.section.name, choice.forms[form][0]) for choice, form in taken),
        max(0.0, sum(choice.cost for choice, _ in taken) - gap),
        dropped=tuple(choice.section.name for choice in choices if choice.taken is None),
        shortened=tuple((choice.section.name, form) for choice, form in taken if form),
    )


def _forms(section: Section, gap: float, size: Callable[[str], float]) -> list[tuple[str, float]]:
    forms: list[tuple[str, float]] = []
    for words in (section.text, *section.alternatives):
        cost = size(words) + gap
        if not forms or (words and cost < forms[-1][1]):
            forms.append((words, cost))
    return forms


def _shorten(choices: list[_Choice], budget: float) -> None:
    """Shorten required sections until they fit, least important first."""
    for choice in reversed(choices):
        while sum(one.cost for one in choices) > budget and choice.shorten():
            pass
    needed = sum(one.cost for one in choices)
    if needed > budget and any(one.section.required for one in choices):
        parts = ", ".join(f"{one.section.name} {one.cost:.0f}" for one in choices if one.taken is not None)
        raise PromptTooLarge(
            f"the required sections of the prompt take {needed:.0f}, more than the budget of {budget:.0f} ({parts}): "
            "shorten the instruction files, or use a model with a larger window"
        )

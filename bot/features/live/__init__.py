"""Live display: what people see while a turn runs."""

from bot.core.feature import Display, Feature, Hooks, Runtime
from bot.features.live.previews import Previewing, Previews
from bot.features.live.progress import Progress
from bot.features.live.turns import LiveTurns


def _build(runtime: Runtime) -> Hooks:
    previewing = Previewing.of(runtime.settings, lambda words: runtime.redact(runtime.settled(words)))
    previews = Previews(runtime, previewing)
    progress = Progress(runtime, previewing)
    turns = LiveTurns(runtime, previews, progress)
    return Hooks(display=Display(turns.begin, previews.begin, progress, progress.record, turns.close))


FEATURE = Feature("live", _build)

"""Search of the archive in people's words: an index beside it, which comes back where it is deleted."""

from bot.core.feature import Feature, Hooks, Runtime
from bot.features.search.index import FILE
from bot.features.search.service import Search


def _build(runtime: Runtime) -> Hooks:
    search = Search(
        runtime.configuration.home / FILE, runtime.event_log, clock=runtime.clock, log=runtime.log
    )
    return Hooks(ports={"recall": search}, exports=(search.exporter,))


FEATURE = Feature("search", _build)

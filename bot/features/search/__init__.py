"""Search in the archive. The search index is a separate file and is rebuilt if deleted."""

from bot.core.feature import Feature, Hooks, Runtime
from bot.features.search.index import FILE
from bot.features.search.service import Search


def _build(runtime: Runtime) -> Hooks:
    search = Search(
        runtime.configuration.home / FILE, runtime.event_log, clock=runtime.clock, log=runtime.log
    )
    return Hooks(ports={"recall": search}, exports=(search.exporter,))


FEATURE = Feature("search", _build)

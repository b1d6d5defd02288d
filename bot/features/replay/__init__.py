"""Replay: model requests are recorded exactly as sent, and can be sent again."""

from bot.core.exports import Exporter
from bot.core.feature import Feature, Hooks, Runtime
from bot.core.recorded_requests import FILE
from bot.features.replay.recorder import RecordedModel, Recorder, Removals, Sweeper
from bot.periodic_jobs import PeriodicJob

SWEEP_SECONDS = 3_600.0


def _build(runtime: Runtime) -> Hooks:
    settings = runtime.configuration
    recorder = Recorder(settings.home / FILE, log=runtime.log)
    sweeper = Sweeper(recorder, settings.history.days, clock=runtime.clock, log=runtime.log)
    return Hooks(
        wrap_model=lambda model: RecordedModel(model, recorder, ids=runtime.ids, redact=runtime.redact),
        exports=(Exporter(Removals(recorder), runtime.event_log, clock=runtime.clock, log=runtime.log),),
        periodic=(PeriodicJob("remove old requests", SWEEP_SECONDS, sweeper.run),),
        close=recorder.close,
    )


FEATURE = Feature("replay", _build)

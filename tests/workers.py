"""Runs tests in parallel: `pytest --workers 4` uses four workers, forked from one process that has imported
and collected everything.

Collecting takes about 15 seconds of CPU, a fork takes milliseconds. A free worker takes the next test. For a
module marked `together` the worker takes all tests of the module, so that the module's shared data is made
once and not in each worker. The workers send their reports to the one process that prints and counts them.
"""

from __future__ import annotations

import itertools
import multiprocessing
import sys
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import Any

import pytest

_FORK = multiprocessing.get_context("fork")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--workers", type=int, default=1, metavar="NUM", help="run the tests in NUM forked processes"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "together: one worker runs the whole module, which makes something large once"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in workers; return None if pytest's own loop must run them."""
    option = session.config.option
    count = min(option.workers, len(session.items))
    alone = option.usepdb or option.collectonly or option.basetemp or session.testsfailed
    if alone or count < 2:
        return None
    if (quick := sys.modules.get("tests.quick")) is not None:
        quick.prepare()  # one forking process for all workers
    turn = _FORK.Value("i", 0)
    running: dict[Connection, _Worker] = {}
    try:
        for number in range(count):
            worker = _Worker(session, turn, number)
            running[worker.reports] = worker
        while running:
            for ready in wait(list(running)):
                assert isinstance(ready, Connection)
                if running[ready].receive():
                    del running[ready]
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
    finally:
        for worker in running.values():
            worker.process.kill()
            worker.process.join()
    return True


class _Worker:
    """A forked worker, as seen by the process that prints."""

    def __init__(self, session: pytest.Session, turn: Any, number: int) -> None:
        self._session = session
        self._at = "before its first test"
        self.reports, there = _FORK.Pipe(duplex=False)
        self.process: ForkProcess = _FORK.Process(
            target=_work, args=(session, turn, there, f"worker{number}"), name=f"worker{number}"
        )
        self.process.start()
        there.close()

    def receive(self) -> bool:
        """Receive one message from the worker; return True if it was the last."""
        hook = self._session.config.hook
        try:
            kind, said = self.reports.recv()
        except EOFError:
            self.process.join()
            self._session.shouldfail = f"a worker ended with {self.process.exitcode} {self._at}"
            return True
        match kind:
            case "begin":
                self._at = f"in {said}"
            case "report":
                report = hook.pytest_report_from_serializable(config=self._session.config, data=said)
                hook.pytest_runtest_logreport(report=report)
            case "end":
                self.process.join()
                self._session.shouldfail = self._session.shouldfail or said
                return True
        return False


class _Reporter:
    """Sends a worker's reports to the process that prints. Replaces pytest's terminal reporter."""

    def __init__(self, config: pytest.Config, out: Connection) -> None:
        self._config = config
        self._out = out

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._out.send(("begin", nodeid))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.passed and report.when != "call":
            return  # reports of passed set-up and tear-down are never shown
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._out.send(("report", data))


def _work(session: pytest.Session, turn: Any, out: Connection, name: str) -> None:
    config = session.config
    config.workerinput = {"workerid": name}  # type: ignore[attr-defined] # by this, plugins know that they are in a worker
    plugins = config.pluginmanager
    plugins.unregister(name="terminalreporter")
    plugins.register(_Reporter(config, out))
    # Captured output goes to files, and each worker needs its own files.
    capture = plugins.getplugin("capturemanager")
    assert capture is not None
    capture.stop_global_capturing()
    capture.start_global_capturing()
    taken = _taken(turn, portions(session.items))
    item = next(taken, None)
    while item is not None:
        following = next(taken, None)
        config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        item = following
    ended = pytest.ExitCode.TESTS_FAILED if session.testsfailed else pytest.ExitCode.OK
    try:
        config.hook.pytest_sessionfinish(session=session, exitstatus=ended)
        config.hook.pytest_unconfigure(config=config)
    except Exception as error:  # noqa: BLE001 - what any test has left behind, as the plugins tell it
        out.send(("end", f"{name}: {error}"))
    else:
        out.send(("end", ""))


def _taken(turn: Any, left: Sequence[Sequence[pytest.Item]]) -> Iterator[pytest.Item]:
    """Yield the next tests that no worker has taken, until none are left."""
    while True:
        with turn.get_lock():
            at = turn.value
            turn.value += 1
        if at >= len(left):
            return
        yield from left[at]


def portions(items: Iterable[pytest.Item]) -> list[list[pytest.Item]]:
    """Return the tests in portions: single tests, or all tests of a module that is marked `together`."""
    return [
        portion
        for together, group in itertools.groupby(items, _together)
        for portion in ([list(group)] if together else [[one] for one in group])
    ]


def _together(item: pytest.Item) -> str:
    """Return the module of a test that is marked `together`; "" for any other test."""
    return item.nodeid.partition("::")[0] if item.get_closest_marker("together") else ""

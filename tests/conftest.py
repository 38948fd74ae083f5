"""What all tests share: everything that a test started is gone when it ends."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator
from typing import Any

import hypothesis
import pytest

from support.hung_tasks import tasks_at_work
from support.own_logging import Logging, logging_now, restore_logging
from support.shared_defaults import mended_defaults
from support.sharing import Sharing, niceness, place_of

# Machines differ in speed by a factor of ten: a deadline per example would only fail the slow ones.
# What is looked for is the same each time, so that a change is judged by what it changes; `soak` looks elsewhere.
hypothesis.settings.register_profile("default", deadline=None, max_examples=100, print_blob=True, derandomize=True)
hypothesis.settings.register_profile("soak", deadline=None, max_examples=5_000, print_blob=True)
hypothesis.settings.load_profile("soak" if os.environ.get("ALIQUOT_SOAK") else "default")

_LOGGING = pytest.StashKey[Logging]()


def pytest_configure() -> None:
    """A helper takes no time from the foremost processes, whose tests of clusters say within how many seconds."""
    os.nice(niceness(os.environ.get("PYTEST_XDIST_WORKER", "")))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Several processes take groups in this order: what is longest first, or one works on while others wait."""
    places = {item: place_of(item.path.relative_to(config.rootpath).as_posix()) for item in items}
    items.sort(key=lambda item: (places[item].rank, places[item].turn))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays: 10,000 tests and all they import need not be looked through again and again.

    A third of a second for each look at all, and a sixteenth of the processor of what computes in this process.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Sharing:
    """Share out groups, however xdist would (its own `loadgroup` groups nothing under pytest 9.2, and says nothing)."""
    return Sharing(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show with a test that ran out of time what each of its tasks was waiting for."""
    report = yield
    if call.excinfo is not None and "Timeout" in call.excinfo.exconly() and (told := tasks_at_work()):
        report.sections.append(("tasks at work", told))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    """Fail the test that wrote into what all objects share, and not whichever comes after it."""
    try:
        yield
    finally:
        if spoilt := mended_defaults():
            pytest.fail(f"written into what others share: {', '.join(spoilt)}; give the object its own")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Fail the test that configured the process's log, and not whichever later one counts what is logged."""
    yield
    if (left := logging_now()) != item.stash[_LOGGING]:
        restore_logging(item.stash[_LOGGING])
        pytest.fail(f"left the process's log as {left}; let it use the fixture own_logging")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Remember what the test finds."""
    item.stash[_LOGGING] = logging_now()


@pytest.fixture
def own_logging() -> Iterator[None]:
    """For a test that configures the process's log: it is as it was when the test ends."""
    found = logging_now()
    yield
    restore_logging(found)

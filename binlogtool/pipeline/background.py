"""Run work in a thread while the main thread waits, polls and handles Ctrl-C: a signal never interrupts a Java call."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")

_POLL_INTERVAL_S = 0.2
STOP_TIMEOUT_S = 2.0
"""How long Spark may take to stop cleanly."""


def _do_nothing() -> None:
    pass


def run_in_background(
    action: Callable[[], T], poll: Callable[[], None] = _do_nothing, on_interrupt: Callable[[], None] = _do_nothing
) -> T:
    """Run `action` in a thread and return its result; poll meanwhile, and turn SIGINT into KeyboardInterrupt.

    A signal only sets a flag here, so that it never interrupts a call to the Java side.

    Args:
        action: the work.
        poll: called regularly while waiting; may raise.
        on_interrupt: must make `action` fail; called repeatedly until it ends, for at most STOP_TIMEOUT_S.
    """
    outcome: list[T] = []
    errors: list[BaseException] = []
    finished, interrupted = threading.Event(), threading.Event()

    def run_action() -> None:
        try:
            outcome.append(action())
        except BaseException as error:
            errors.append(error)
        finally:
            finished.set()

    with _set_on_interrupt(interrupted):
        threading.Thread(target=run_action, name="binlogtool-spark", daemon=True).start()
        while not finished.wait(_POLL_INTERVAL_S):
            if interrupted.is_set():
                break
            poll()
        if interrupted.is_set():
            _repeat_until_finished(on_interrupt, finished)
            raise KeyboardInterrupt
    if errors:
        raise errors[0]
    return outcome[0]


def _repeat_until_finished(act: Callable[[], None], finished: threading.Event) -> None:
    end = time.monotonic() + STOP_TIMEOUT_S
    with suppress_logging():
        act()
        while not finished.wait(_POLL_INTERVAL_S / 2) and time.monotonic() < end:
            act()


@contextlib.contextmanager
def suppress_logging() -> Iterator[None]:
    """Suppress logging and warnings while connections to Java are closed on purpose, which py4j reports at length."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


@contextlib.contextmanager
def _set_on_interrupt(flag: threading.Event) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda *_: flag.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)

"""One process of the cluster: started, watched until it answers, stopped by its process id."""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cluster.harness.errors import ComponentError
from cluster.harness.waiting import PATIENCE_SECONDS, poll_after

TAIL_LINES = 25


class Component:
    """A long-running process with a log file; it can be started again after it was stopped or killed."""

    def __init__(
        self,
        *,
        name: str,
        argv: Sequence[str],
        log: Path,
        ready: Callable[[], bool] = lambda: True,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.argv = list(argv)
        self.log = log
        self._ready = ready
        self._env = {**os.environ, **(env or {})}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id; the component must have been started."""
        if self._process is None:
            raise ComponentError(f"{self.name} was never started")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def died(self) -> bool:
        """Whether the process ended without being asked to."""
        return self._process is not None and self._process.poll() is not None

    def start(self) -> None:
        """Start the process; it lives in a session of its own, so Ctrl-C reaches us first and we stop in order."""
        if self.running:
            raise ComponentError(f"{self.name} is running already")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._env,
                start_new_session=True,
            )

    def wait_ready(self, *, timeout: float = PATIENCE_SECONDS) -> None:
        """Wait until the process answers; say so at once if it ended instead."""
        begun = time.monotonic()
        while not self._answers():
            if not self.running:
                raise ComponentError(f"{self.name} ended with {self._code()} before it was ready\n{self.tail()}")
            waited = time.monotonic() - begun
            if waited > timeout:
                raise ComponentError(f"{self.name} did not answer within {timeout:g} s\n{self.tail()}")
            time.sleep(poll_after(waited))

    def stop(self, *, sig: signal.Signals = signal.SIGTERM, timeout: float = 10) -> None:
        """Ask the process to end, and end it when it does not within the time."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(sig)
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def kill(self) -> None:
        """End the process as a crash would."""
        self.stop(sig=signal.SIGKILL)

    def restart(self, *, sig: signal.Signals = signal.SIGTERM, timeout: float = PATIENCE_SECONDS) -> None:
        """Stop, start, and wait until it answers again."""
        self.stop(sig=sig)
        self.start()
        self.wait_ready(timeout=timeout)

    def tail(self, lines: int = TAIL_LINES) -> str:
        """Return the last lines of the log, under a heading that names it."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        last = "\n".join(text.splitlines()[-lines:])
        return f"--- {self.name}, last lines of {self.log} ---\n{last or '(nothing)'}"

    def _answers(self) -> bool:
        try:
            return self._ready()
        except OSError:
            return False

    def _code(self) -> str:
        return "?" if self._process is None else f"exit code {self._process.returncode}"


def answers(url: str, *, token: str = "") -> bool:
    """Whether the URL answers 200; certificates of our own loopback components are not checked here."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - loopback only
    context = ssl._create_unverified_context()  # noqa: S323 - only asks whether it is up
    try:
        with urllib.request.urlopen(request, timeout=2, context=context) as answer:  # noqa: S310 - the same
            return bool(answer.status == 200)
    except urllib.error.HTTPError as refusal:
        refusal.close()
        return False

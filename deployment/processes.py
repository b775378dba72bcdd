"""Long-running processes with a log each: started, looked after, and stopped exactly."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from common.flower import environment

_STOP_SECONDS = 15.0
# A SuperNode that was killed is refused until its last heartbeat is a minute old: try again, not too often.
_RESTART_SECONDS = 3.0


class Process:
    """One process, restarted when it ends by itself, as compose does with `restart: on-failure`.

    Args:
        home: FLWR_HOME and working directory of the process.
        restarts: False: an end is an end.
    """

    def __init__(self, name: str, command: Sequence[str], home: Path, log: Path, *, restarts: bool = True) -> None:
        self.name, self.log = name, log
        self._command, self._home, self._restarts = list(command), home, restarts
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self.starts = 0

    def start(self) -> None:
        """Start it in a process group of its own; its output is appended to its log."""
        self._home.mkdir(parents=True, exist_ok=True)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env=environment(self._home),
                cwd=self._home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started = time.monotonic()
        self.starts += 1

    def mend(self) -> None:
        """Start it again if it has ended."""
        if self._process is None or self.alive() or not self._restarts:
            return
        if time.monotonic() - self._started > _RESTART_SECONDS:
            self.signal(signal.SIGKILL)  # what its group has left behind
            self.start()

    def alive(self) -> bool:
        """True while it runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Process id, and id of its group."""
        assert self._process is not None
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return None if self._process is None else self._process.poll()

    def signal(self, number: int) -> None:
        """To the whole group: executors and apps are children of what started them."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def stop(self) -> None:
        """End it, and whatever it started; no restart."""
        if self._process is None:
            return
        self.signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_SECONDS)
        self.signal(signal.SIGKILL)
        self._process.wait()
        self._process = None

    def log_tail(self, lines: int = 20) -> str:
        """The end of its log."""
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

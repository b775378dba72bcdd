"""A SuperLink of one's own for one run: own port, own FLWR_HOME, ended by its process group.

A stale SuperLink on Flower's default port would be reused silently, with another environment and working directory.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

from common.flower import FlowerCli, SuperLinkError, environment, free_port, listening
from simulations.ray_folder import ray_folder

_START_SECONDS = 60.0
_STOP_SECONDS = 30.0


class LocalSuperLink:
    """Context manager: a simulation SuperLink on a free port of the loopback interface.

    Attributes:
        home: FLWR_HOME of everything started here; holds the log.
        flwr: Flower's commands against it.
    """

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="papfl-flwr-", ignore_cleanup_errors=True)
        self.home = Path(self._directory.name)
        self._log = self.home / "superlink.log"
        self._port = free_port()
        self._environment = {**environment(self.home), "RAY_TMPDIR": str(ray_folder())}
        self.flwr = FlowerCli(self.home, f"127.0.0.1:{self._port}")
        self._process: subprocess.Popen[bytes]

    def __enter__(self) -> LocalSuperLink:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    "flower-superlink", "--insecure", "--simulation", "--isolation", "subprocess",
                    "--host", "127.0.0.1", "--port", str(self._port), "--database", str(self.home / "state.db"),
                ],
                env=self._environment, stdout=log, stderr=subprocess.STDOUT, cwd=self.home, start_new_session=True,
            )  # fmt: skip
        try:
            self._wait_until_listening()
        except BaseException:  # also an interrupt: nothing may be left behind
            self.__exit__(None, None, None)
            raise
        return self

    def _wait_until_listening(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not listening(self._port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise SuperLinkError(f"flower-superlink did not start:\n{self.log_tail()}")
            time.sleep(0.1)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # The whole group, also where its leader is dead: ServerApp and Ray outlive a SuperLink that was killed.
        self._signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_SECONDS)
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._directory.cleanup()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    @property
    def pid(self) -> int:
        """Process id (and process group) of the SuperLink."""
        return self._process.pid

    def alive(self) -> bool:
        """True while the SuperLink runs."""
        return self._process.poll() is None

    def log_tail(self, lines: int = 25) -> str:
        """The end of the log of SuperLink, ServerApp and simulation."""
        if not self._log.exists():
            return ""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])

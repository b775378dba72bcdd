"""A SuperLink of one's own for one run: own port, own FLWR_HOME, ended by its process group.

A stale SuperLink on Flower's default port would be reused silently, with another environment and working directory.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from common.numerics import pin_environment

_CONNECTION = "papfl"
_START_SECONDS = 60.0
_STOP_SECONDS = 30.0


class SuperLinkError(RuntimeError):
    """Flower's own processes failed; the message ends with the last lines of their log."""


class LocalSuperLink:
    """Context manager: a simulation SuperLink on a free port of the loopback interface.

    Attributes:
        home: FLWR_HOME of everything started here; holds the log.
    """

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="papfl-flwr-", ignore_cleanup_errors=True)
        self.home = Path(self._directory.name)
        self._log = self.home / "superlink.log"
        self._port = _free_port()
        pin_environment()  # inherited by the ServerApp and the Ray workers
        self._environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
            "FLWR_HOME": str(self.home),
            # Without this every run builds a second environment of several gigabytes.
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "PYTHONUNBUFFERED": "1",
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        }
        self._process: subprocess.Popen[bytes]

    def __enter__(self) -> LocalSuperLink:
        (self.home / "config.toml").write_text(
            f'[superlink]\ndefault = "{_CONNECTION}"\n\n[superlink.{_CONNECTION}]\n'
            f'address = "127.0.0.1:{self._port}"\ninsecure = true\n'
        )
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
        while not _listening(self._port):
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

    def submit(self, app: Path, run_config: Mapping[str, Any], federation_config: str) -> int:
        """`flwr run`; returns the run id.

        Raises:
            SuperLinkError: Flower refused the app or its configuration.
        """
        values = " ".join(f"{key}={json.dumps(value)}" for key, value in run_config.items())
        answer = self._flwr(
            "run", str(app), _CONNECTION, "--format", "json",
            "--federation-config", federation_config, "--run-config", values,
        )  # fmt: skip
        if not answer.get("success") or "run-id" not in answer:
            raise SuperLinkError(f"flwr run failed: {answer.get('error-message', answer)}")
        return int(answer["run-id"])

    def status(self, run_id: int) -> tuple[str, str]:
        """(status, details) of a run; `finished:completed` is the only good end. `flwr run` itself returns 0."""
        answer = self._flwr("list", _CONNECTION, "--run-id", str(run_id), "--format", "json")
        run = answer["runs"][0]
        return str(run["status"]), str(run.get("status-details") or "")

    def log_tail(self, lines: int = 25) -> str:
        """The end of the log of SuperLink, ServerApp and simulation."""
        if not self._log.exists():
            return ""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])

    def _flwr(self, *arguments: str) -> dict[str, Any]:
        result = subprocess.run(
            ["flwr", *arguments], env=self._environment, cwd=self.home, capture_output=True, text=True, check=False
        )
        try:
            answer: dict[str, Any] = json.loads(result.stdout[result.stdout.index("{") :])
        except ValueError:
            raise SuperLinkError(f"flwr {arguments[0]} failed:\n{result.stdout}{result.stderr}") from None
        return answer


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0

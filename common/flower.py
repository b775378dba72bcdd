"""Flower's own commands as functions: the environment they need, `flwr run` and the true outcome of a run."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from common.numerics import pin_environment

CONNECTION = "papfl"


class SuperLinkError(RuntimeError):
    """Flower's own processes failed; the message ends with the last lines of their log."""


def environment(home: Path, *, proxies: bool = False) -> dict[str, str]:
    """Environment of Flower's processes: their own FLWR_HOME, pinned numerics, nothing installed or looked up.

    Args:
        proxies: whether they may use the proxies of this environment. What stays on the loopback interface must not:
            Flower's client would send it there, and would not even start for want of a SOCKS library.
    """
    pin_environment()  # inherited by ServerApp, ClientApps and Ray workers
    kept = {name: value for name, value in os.environ.items() if proxies or not name.lower().endswith("_proxy")}
    return {
        **kept,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "FLWR_HOME": str(home),
        # Without this every run builds a second environment of several gigabytes.
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "PYTHONUNBUFFERED": "1",
        # Whatever the terminal is: logs and answers are read as UTF-8, and paths may have any letter.
        "PYTHONUTF8": "1",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }


def toml_pairs(values: Mapping[str, Any]) -> str:
    """`key=value key=value` as Flower's configuration options want it."""
    return " ".join(f"{key}={toml_value(value)}" for key, value in values.items())


def toml_value(value: Any) -> str:
    """A scalar in TOML, in ASCII and without a quote inside: Flower finds the end of a text by its next quote.

    Raises:
        ValueError: text that is not Unicode (a path in another encoding).
    """
    if not isinstance(value, str):
        return json.dumps(value)
    try:
        text = os.fsencode(value).decode()  # in a terminal without UTF-8, paths come as undecoded bytes
    except UnicodeError:
        raise ValueError(f"Paths and names must be UTF-8 to be sent. Received {value!r}.") from None
    plain = (c if " " <= c <= "~" and c not in '"\\' else f"\\U{ord(c):08X}" for c in text)
    return f'"{"".join(plain)}"'


class FlowerCli:
    """`flwr` against one SuperLink.

    Args:
        home: FLWR_HOME of the commands; its config.toml is written here. None: a temporary one, as long as this object:
            a fixed one would be another command's too, with another SuperLink.
        address: host:port of the SuperLink.
        ca: certificate authority of a SuperLink with TLS; None: no TLS (loopback only).
    """

    def __init__(self, home: Path | None, address: str, ca: Path | None = None) -> None:
        if home is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="papfl-flwr-")
            home = Path(self._temporary.name)
        self.home = home
        self._proxies = not _is_loopback(address)
        home.mkdir(parents=True, exist_ok=True)
        security = "insecure = true" if ca is None else f"root-certificates = {toml_value(str(ca))}"
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\naddress = {toml_value(address)}\n'
            f"{security}\n",
            encoding="utf-8",
        )

    def submit(self, app: Path, run_config: Mapping[str, Any], federation_config: str = "") -> int:
        """`flwr run`; returns the run id.

        Raises:
            SuperLinkError: Flower refused the app or its configuration.
        """
        federation = ["--federation-config", federation_config] if federation_config else []
        answer = self.call(
            "run", str(app), CONNECTION, "--format", "json", *federation, "--run-config", toml_pairs(run_config)
        )
        return int(answer["run-id"])

    def status(self, run_id: int) -> tuple[str, str]:
        """(status, details) of a run; `finished:completed` is the only good end. `flwr run` itself returns 0."""
        answer = self.call("list", CONNECTION, "--run-id", str(run_id), "--format", "json")
        run = answer["runs"][0]
        return str(run["status"]), str(run.get("status-details") or "")

    def call(self, *arguments: str) -> dict[str, Any]:
        """A `flwr` command that answers in JSON.

        Raises:
            SuperLinkError: it didn't.
        """
        result = subprocess.run(
            ["flwr", *arguments],
            env=environment(self.home, proxies=self._proxies),
            cwd=self.home,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
        try:
            answer: dict[str, Any] = json.loads(result.stdout[result.stdout.index("{") :])
        except ValueError:
            raise SuperLinkError(f"flwr {arguments[0]} failed:\n{result.stdout}{result.stderr}") from None
        if not answer.get("success", True):
            raise SuperLinkError(f"flwr {arguments[0]} failed: {answer.get('error-message', answer)}")
        return answer


def _is_loopback(address: str) -> bool:
    host = address.rsplit(":", 1)[0].strip("[]")
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost" or host.endswith(".localhost")


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def listening(port: int) -> bool:
    """True if somebody listens on a port of the loopback interface."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0

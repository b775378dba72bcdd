"""A whole federation on this machine's loopback interface: the processes of a deployment, with TLS and authentication.

One SuperLink with a database, one ServerApp executor, N SuperNodes with a state directory each. A killed SuperLink or
node is started again, and a run survives both.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from common.flower import CONNECTION, FlowerCli, SuperLinkError, free_port, listening, toml_pairs
from deployment.layout import Layout
from deployment.processes import Process

_START_SECONDS = 90.0


class LocalFederation:
    """Context manager: SuperLink and ServerApp executor run inside it; nodes are added one by one.

    Args:
        layout: an initialised deployment; state and logs go to its local/ folder and stay there.

    Attributes:
        flwr: Flower's commands against the SuperLink.
        nodes: by number.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        local = layout.local
        self.flwr = FlowerCli(local / "flwr", self.address, layout.ca)
        self.superlink = Process(
            "superlink",
            [
                "flower-superlink", "--host", "127.0.0.1", "--port", str(self.port), "--isolation", "process",
                "--ssl-ca-certfile", str(layout.ca), "--ssl-certfile", str(layout.server_certificate),
                "--ssl-keyfile", str(layout.server_key), "--enable-supernode-auth",
                "--database", str(local / "superlink" / "state.db"),
                "--superexec-auth-secret-file", str(layout.secret), "--disable-runtime-dependency-installation",
            ],
            local / "superlink",
            local / "logs" / "superlink.log",
        )  # fmt: skip
        self.executor = Process(
            "serverapp",
            [
                "flower-superexec", "--runtime-api-address", self.address, "--root-certificates", str(layout.ca),
                "--superexec-auth-secret-file", str(layout.secret),
            ],
            local / "serverapp",
            local / "logs" / "serverapp.log",
        )  # fmt: skip
        self.nodes: dict[int, Process] = {}

    def __enter__(self) -> LocalFederation:
        try:
            (self.layout.local / "superlink").mkdir(parents=True, exist_ok=True)
            self.superlink.start()
            self.wait_for_superlink()
            self.executor.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for process in [*self.nodes.values(), self.executor, self.superlink]:
            process.stop()

    def wait_for_superlink(self) -> None:
        """Until it listens.

        Raises:
            SuperLinkError: it ended or did not come up in time.
        """
        deadline = time.monotonic() + _START_SECONDS
        while not listening(self.port):
            if not self.superlink.alive() or time.monotonic() > deadline:
                raise SuperLinkError(f"flower-superlink did not start:\n{self.superlink.log_tail()}")
            time.sleep(0.1)

    def register(self, node: int) -> None:
        """Admit a node's public key; one that is registered already stays so."""
        register(self.flwr, self.layout.node_key(node).with_suffix(".pub"))

    def add_node(
        self, node: int, config: Mapping[str, Any], *, key: Path | None = None, restarts: bool = True
    ) -> Process:
        """Start a SuperNode.

        Args:
            config: its own configuration (`client_app.node`); a state directory below local/ is added.
            key: its private key; default: the one that `papfl deploy init` made.
        """
        home = self.layout.local / f"node-{node}"
        values = {"state-dir": str(home / "state"), **config}
        process = Process(
            f"node-{node}",
            [
                "flower-supernode", "--superlink", self.address, "--root-certificates", str(self.layout.ca),
                "--auth-supernode-private-key", str(key or self.layout.node_key(node)),
                "--host", "127.0.0.1", "--port", str(free_port()), "--node-config", toml_pairs(values),
            ],
            home,
            self.layout.local / "logs" / f"node-{node}.log",
            restarts=restarts,
        )  # fmt: skip
        self.nodes[node] = process
        process.start()
        return process

    def online(self) -> list[str]:
        """Ids of the nodes that the SuperLink sees."""
        answer = self.flwr.call("supernode", "list", CONNECTION, "--format", "json")
        return sorted(str(node["node-id"]) for node in answer["nodes"] if node.get("status") == "online")

    def wait_for_nodes(self) -> None:
        """Until every node that was added is online.

        Raises:
            SuperLinkError: not in time, with the end of the logs.
        """
        deadline = time.monotonic() + _START_SECONDS
        while len(online := self.online()) < len(self.nodes):
            if time.monotonic() > deadline:
                raise SuperLinkError(f"{len(online)} of {len(self.nodes)} nodes are online:\n{self.log_tail()}")
            self.alive()
            time.sleep(1.0)

    def alive(self) -> bool:
        """Look after everything; True: a killed process is running again, or will be."""
        for process in [self.superlink, self.executor, *self.nodes.values()]:
            process.mend()
        return True

    def log_tail(self) -> str:
        """What went on last, by process."""
        shown = [self.executor, *self.nodes.values()]
        return "\n".join(f"--- {process.log}\n{process.log_tail(8)}" for process in shown)


def register(flwr: FlowerCli, public_key: Path) -> None:
    """Admit a public key.

    Raises:
        SuperLinkError: refused for another reason than being registered already.
    """
    try:
        flwr.call("supernode", "register", str(public_key), CONNECTION, "--format", "json")
    except SuperLinkError as error:
        if "already" not in str(error).lower():
            raise

"""Names of the files in a deployment's folder; `papfl deploy init` makes them, everything else reads them."""

from __future__ import annotations

import re
from pathlib import Path

from common.places import expand


class Layout:
    """A deployment's folder.

    certificates/ca.crt, ca.key          own certificate authority; the key is needed only to renew server.pem
    certificates/server.pem, server.key  the SuperLink's
    keys/node-<i>, node-<i>.pub          what a SuperNode proves its identity with
    superexec.secret                     shared by SuperLink and ServerApp executor
    nodes.yml                            compose services of the nodes
    results/                             run folders, where the ServerApp runs in a container
    local/                               state, results and logs of `papfl deploy local`
    """

    def __init__(self, root: Path) -> None:
        self.root = expand("--folder", root).resolve()
        certificates = self.root / "certificates"
        self.ca, self.ca_key = certificates / "ca.crt", certificates / "ca.key"
        self.server_certificate, self.server_key = certificates / "server.pem", certificates / "server.key"
        self.keys = self.root / "keys"
        self.secret = self.root / "superexec.secret"
        self.compose = self.root / "nodes.yml"
        self.results = self.root / "results"
        self.local = self.root / "local"

    def node_key(self, node: int) -> Path:
        """Private key of a node; the public one has .pub."""
        return self.keys / f"node-{node}"

    def nodes(self) -> list[int]:
        """Numbers of the nodes that have a key."""
        found = (re.fullmatch(r"node-(\d+)\.pub", path.name) for path in self.keys.glob("node-*.pub"))
        return sorted(int(match.group(1)) for match in found if match)

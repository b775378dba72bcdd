"""Compose services of the nodes; docker-compose.yml has the server side."""

from __future__ import annotations

import re

from common.files import write_atomically
from deployment.layout import Layout

_HEAD = """# Written by `papfl deploy init --nodes {nodes}`: run it again for another number of nodes.
# Used beside docker-compose.yml: docker compose -f docker-compose.yml -f {path} up
x-papfl: &papfl
  image: ${{IMAGE:-papfl}}
  read_only: true
  tmpfs: ["/tmp:mode=1777"]
  cap_drop: [ALL]
  security_opt: ["no-new-privileges:true"]
  restart: on-failure
  # Docker hands its own proxies to containers; what these talk to is in their own networks.
  environment: {{NO_PROXY: "*", no_proxy: "*"}}
  entrypoint: []
services:
"""

# Each node has two networks of its own: one where its two processes talk, one to the SuperLink. Nodes don't reach each other.
_NODE = """  supernode-{node}:
    <<: *papfl
    command: >-
      flower-supernode --superlink superlink:8000 --root-certificates /deploy/certificates/ca.crt
      --auth-supernode-private-key /run/secrets/node-key --isolation process --host 0.0.0.0 --port 9094
      --node-config 'partition-id={node} num-partitions={nodes} data-dir="/data" state-dir="/state"
      diagnostics="${{DIAGNOSTICS:-public-data}}" allow-deterministic=${{ALLOW_DETERMINISTIC:-false}} ${{NODE_OPTIONS:-}}'
    depends_on: {{register: {{condition: service_completed_successfully}}}}
    secrets: [{{source: node-{node}, target: node-key}}]
    volumes: ["./{root}/certificates/ca.crt:/deploy/certificates/ca.crt:ro"]
    networks: [uplink-{node}, node-{node}]
  clientapp-{node}:
    <<: *papfl
    command: flower-superexec --insecure --runtime-api-address supernode-{node}:9094
    depends_on: [supernode-{node}]
    volumes: ["${{DATA_{node}:-${{DATA:-data}}}}:/data:ro", "state-{node}:/state"]
    networks: [node-{node}]
"""


def check_folder(layout: Layout) -> None:
    """Raises `ValueError` for a folder whose name a compose file would read as something else."""
    if not re.fullmatch(r"[\w .@+-]+", layout.root.name):
        raise ValueError(
            "--folder must have a name of letters, digits, spaces and .@+-_ (it stands in a compose file). "
            f"Received {layout.root.name!r}."
        )


def write_services(layout: Layout, nodes: int) -> None:
    """Write nodes.yml; unlike keys it holds nothing that could be lost, so it is written anew every time."""
    text = _HEAD.format(nodes=nodes, path=f"{layout.root.name}/{layout.compose.name}")
    text += "".join(_NODE.format(node=node, nodes=nodes, root=layout.root.name) for node in range(nodes))
    text += "  superlink:\n    networks: [server, " + ", ".join(f"uplink-{node}" for node in range(nodes)) + "]\n"
    text += "networks:\n" + "".join(f"  node-{node}: {{}}\n  uplink-{node}: {{}}\n" for node in range(nodes))
    text += "volumes:\n" + "".join(f"  state-{node}: {{}}\n" for node in range(nodes))
    text += "secrets:\n" + "".join(
        f"  node-{node}: {{file: ./{layout.root.name}/{layout.keys.name}/node-{node}}}\n" for node in range(nodes)
    )
    write_atomically(layout.compose, text.encode())
    layout.compose.chmod(0o644)

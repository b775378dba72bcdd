"""Compose services of the nodes; docker-compose.yml has the server side and the templates that these extend."""

from __future__ import annotations

from common.files import write_atomically
from deployment.layout import Layout

_HEAD = """# Written by `papfl deploy init --nodes {nodes}`: run it again for another number of nodes.
# Used beside docker-compose.yml: docker compose -f docker-compose.yml -f {path} up
services:
"""

# Each node has a network of its own, where its two processes talk; only the SuperNode reaches the SuperLink.
_NODE = """  supernode-{node}:
    extends: {{file: {base}, service: supernode}}
    command: >-
      flower-supernode --superlink superlink:8000 --root-certificates /deploy/certificates/ca.crt
      --auth-supernode-private-key /run/secrets/node-key --isolation process --host 0.0.0.0 --port 9094
      --node-config 'partition-id={node} num-partitions={nodes} data-dir="/data" state-dir="/state"
      diagnostics="${{DIAGNOSTICS:-public-data}}" allow-deterministic=${{ALLOW_DETERMINISTIC:-false}}'
    profiles: []
    secrets: [{{source: node-{node}, target: node-key}}]
    networks: [fleet, node-{node}]
  clientapp-{node}:
    extends: {{file: {base}, service: clientapp}}
    command: flower-superexec --insecure --runtime-api-address supernode-{node}:9094
    depends_on: [supernode-{node}]
    profiles: []
    volumes: ["${{DATA:-data}}:/data:ro", "state-{node}:/state"]
    networks: [node-{node}]
"""


def write_services(layout: Layout, nodes: int) -> None:
    """Write nodes.yml; unlike keys it holds nothing that could be lost, so it is written anew every time."""
    base = "docker-compose.yml"
    text = _HEAD.format(nodes=nodes, path=f"{layout.root.name}/{layout.compose.name}")
    text += "".join(_NODE.format(node=node, nodes=nodes, base=base) for node in range(nodes))
    text += "networks:\n" + "".join(f"  node-{node}: {{}}\n" for node in range(nodes))
    text += "volumes:\n" + "".join(f"  state-{node}: {{}}\n" for node in range(nodes))
    text += "secrets:\n" + "".join(
        f"  node-{node}: {{file: ./{layout.root.name}/{layout.keys.name}/node-{node}}}\n" for node in range(nodes)
    )
    write_atomically(layout.compose, text.encode())
    layout.compose.chmod(0o644)

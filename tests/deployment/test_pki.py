import stat
import subprocess

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from deployment.compose import write_services
from deployment.layout import Layout
from deployment.pki import certificate_names, initialise
from simulations import cli


@pytest.fixture
def layout(tmp_path):
    return Layout(tmp_path / "deploy")


def contents(layout):
    return {path: path.read_bytes() for path in layout.root.rglob("*") if path.is_file()}


def test_a_second_call_adds_what_is_missing_and_overwrites_nothing(layout):
    made = initialise(layout, nodes=2)
    assert len(made) == 9
    before = contents(layout)
    assert initialise(layout, nodes=2) == []
    assert initialise(layout, nodes=3) == [layout.node_key(2), layout.node_key(2).with_suffix(".pub")]
    after = contents(layout)
    assert {path: after[path] for path in before} == before
    assert layout.nodes() == [0, 1, 2]


def test_secrets_are_readable_by_their_owner_alone(layout):
    initialise(layout, nodes=1)
    for path in (layout.ca_key, layout.server_key, layout.node_key(0), layout.secret):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_server_certificate_is_the_authoritys_for_every_name_used(layout):
    initialise(layout, nodes=1, names=["fl.example.org", "192.0.2.7"])
    assert certificate_names(layout.server_certificate) == (
        "superlink", "localhost", "127.0.0.1", "fl.example.org", "192.0.2.7",
    )  # fmt: skip
    server = x509.load_pem_x509_certificate(layout.server_certificate.read_bytes())
    server.verify_directly_issued_by(x509.load_pem_x509_certificate(layout.ca.read_bytes()))
    with pytest.raises(ValueError, match=r"lacks other\.example\.org"):
        initialise(layout, nodes=1, names=["other.example.org"])


def test_renewing_the_server_certificate_keeps_the_authority(layout):
    initialise(layout, nodes=1)
    authority = layout.ca.read_bytes()
    layout.server_certificate.unlink()
    with pytest.raises(ValueError, match="must be there with"):
        initialise(layout, nodes=1)
    layout.server_key.unlink()
    assert initialise(layout, nodes=1) == [layout.server_key, layout.server_certificate]
    assert layout.ca.read_bytes() == authority


def test_private_halves_may_live_elsewhere(layout):
    """The authority's key offline, a node's key with its holder: adding a node still works."""
    initialise(layout, nodes=2)
    layout.ca_key.unlink()
    layout.node_key(0).unlink()
    assert initialise(layout, nodes=3) == [layout.node_key(2), layout.node_key(2).with_suffix(".pub")]
    layout.server_key.unlink()
    layout.server_certificate.unlink()
    with pytest.raises(ValueError, match="kept offline"):
        initialise(layout, nodes=3)


def test_node_keys_are_pairs_in_openssh_format(layout):
    initialise(layout, nodes=2)
    for node in (0, 1):
        private = load_ssh_private_key(layout.node_key(node).read_bytes(), None)
        public = load_ssh_public_key(layout.node_key(node).with_suffix(".pub").read_bytes())
        assert private.public_key().public_numbers() == public.public_numbers()
        assert private.key_size == 384
    assert layout.node_key(0).read_bytes() != layout.node_key(1).read_bytes()


def test_services_of_the_nodes(layout):
    initialise(layout, nodes=3)
    write_services(layout, 3)
    services = yaml.safe_load(layout.compose.read_text())["services"]
    assert services.pop("superlink") == {"networks": ["server", "uplink-0", "uplink-1", "uplink-2"]}
    assert sorted(services) == sorted(f"{kind}-{node}" for kind in ("supernode", "clientapp") for node in range(3))
    for node in range(3):
        supernode, clientapp = services[f"supernode-{node}"], services[f"clientapp-{node}"]
        assert f"partition-id={node} num-partitions=3" in supernode["command"]
        assert supernode["networks"] == [f"uplink-{node}", f"node-{node}"]  # nodes don't reach each other
        assert clientapp["networks"] == [f"node-{node}"]  # only the SuperNode reaches the SuperLink
        assert f"state-{node}:/state" in clientapp["volumes"]


def test_init_refuses_nonsense(layout, capsys):
    assert cli.main(["deploy", "init", "--folder", str(layout.root), "--nodes", "0"]) == 2
    assert "--nodes" in capsys.readouterr().err
    assert not layout.root.exists()


def test_compose_template_publishes_the_port_on_loopback_only_and_runs_without_rights():
    from pathlib import Path

    services = yaml.safe_load(Path("docker-compose.yml").read_text())["services"]
    published = [port for service in services.values() for port in service.get("ports", [])]
    assert published == ["127.0.0.1:${PORT:-8000}:8000"]
    for service in services.values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
    assert "USER papfl" in Path("Dockerfile").read_text()


def test_node_key_is_what_ssh_keygen_reads(layout):
    initialise(layout, nodes=1)
    try:
        result = subprocess.run(["ssh-keygen", "-yf", layout.node_key(0)], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("no ssh-keygen here")
    assert result.stdout.split()[:2] == layout.node_key(0).with_suffix(".pub").read_text().split()[:2]

"""`papfl deploy local` has options of its own: what follows from them must run, and be named by them."""

import pytest
import yaml

from deployment.compose import write_services
from deployment.layout import Layout
from simulations import cli


@pytest.fixture
def started(monkeypatch, data_dir):
    """Settings with which a federation would have been started."""
    seen = []

    def run_locally(layout, settings, **options):
        seen.append(settings)
        raise RuntimeError("as far as this test goes")

    monkeypatch.setattr("deployment.session.run_locally", run_locally)
    return seen


@pytest.mark.parametrize(
    ("arguments", "participating", "per_round"),
    [
        (["--nodes", "2"], 1, 1),
        (["--nodes", "3"], 2, 2),
        (["--nodes", "1", "--future", "0"], 1, 1),
        (["--nodes", "4", "--clients-per-round", "3"], 3, 3),
    ],
)
def test_few_nodes_are_enough(arguments, participating, per_round, started, tmp_path):
    """Two clients a round, the paper's setting, need two that train: it is no option of this command."""
    assert cli.main(["deploy", "local", *arguments, "--folder", str(tmp_path / "deploy")]) == 1
    assert (started[0].num_participating, started[0].clients_per_round) == (participating, per_round)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--nodes", "3", "--clients-per-round", "3"], "Here, num-participating is --nodes minus --future."),
        (["--rounds", "0"], "Here, num-rounds is --rounds."),
        (
            ["--nodes", "100", "--data-dir", "DATA"],
            "num-participating is --nodes minus --future, num-future is --future.",
        ),
        (["--epsilon", "-1"], "Received -1.0.\n"),
    ],
)
def test_errors_name_the_option_that_was_given(arguments, named, tmp_path, data_dir, capsys):
    given = [str(data_dir) if part == "DATA" else part for part in arguments]
    assert cli.main(["deploy", "local", *given, "--folder", str(tmp_path / "deploy")]) == 2
    assert named in capsys.readouterr().err
    assert not (tmp_path / "deploy").exists()


@pytest.mark.parametrize("name", ['a"b', "a:b", "a{b}", "$HOME", "a#b", "😀"])
def test_a_folder_that_a_compose_file_would_misread_is_refused(name, tmp_path, capsys):
    assert cli.main(["deploy", "init", "--nodes", "1", "--folder", str(tmp_path / name)]) == 2
    assert (
        f"--folder must have a name of letters, digits, spaces and .@+-_ (it stands in a compose file). Received {name!r}"
        in (capsys.readouterr().err)
    )
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_spaces_and_accents_is_read_as_it_is(tmp_path):
    layout = Layout(tmp_path / "hôpital été 1")
    layout.root.mkdir()
    write_services(layout, 2)
    content = yaml.safe_load(layout.compose.read_text(encoding="utf-8"))
    assert content["secrets"]["node-1"]["file"] == "./hôpital été 1/keys/node-1"
    assert content["services"]["supernode-0"]["volumes"] == [
        "./hôpital été 1/certificates/ca.crt:/deploy/certificates/ca.crt:ro"
    ]


def test_containers_use_no_proxy_among_themselves(tmp_path):
    """Docker's client hands its proxies to every container; only the one that fetches data may need them."""
    from pathlib import Path

    layout = Layout(tmp_path / "deploy")
    layout.root.mkdir()
    write_services(layout, 2)
    services = yaml.safe_load(layout.compose.read_text())["services"]
    services.pop("superlink")
    services |= yaml.safe_load(Path("docker-compose.yml").read_text())["services"]
    assert services.pop("data")["environment"] == {}
    assert len(services) == 8
    for service in services.values():
        assert service["environment"] == {"NO_PROXY": "*", "no_proxy": "*"}

"""What Flower's commands are given: values in any letters, and an environment that keeps loopback at home."""

import shlex
import tomllib

import pytest
from flwr.common.config import parse_config_args
from hypothesis import given
from hypothesis import strategies as st

from common.command import flwr_command
from common.flower import FlowerCli, environment, toml_pairs, toml_value
from common.settings import Settings

PLACES = ['/srv/it\'s "quoted"', "/srv/😀 été", "/a\\b", "/line\nbreak\ttab\x7f", "/x=\"1\" y='2'", "/ends.toml", ""]


@given(st.lists(st.sampled_from(PLACES) | st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=4))
def test_flower_reads_every_text_as_it_was(texts):
    values = {f"key-{number}": text for number, text in enumerate(texts)} | {"n": 3, "x": 1e-5, "flag": True}
    assert parse_config_args([toml_pairs(values)]) == values


@pytest.mark.parametrize("place", PLACES)
def test_the_printed_command_is_one_that_a_shell_and_flower_read(place):
    words = shlex.split(flwr_command(Settings(out_dir=place)))
    config = parse_config_args([words[words.index("--run-config") + 1]])
    assert config["out-dir"] == place


def test_text_in_no_known_encoding_is_refused():
    with pytest.raises(ValueError, match="must be UTF-8"):
        toml_value("/srv/\udcff")
    assert toml_value("\udcc3\udca9") == toml_value("é")  # as a terminal without UTF-8 reads it


@pytest.mark.parametrize("name", ["http_proxy", "HTTPS_PROXY", "ALL_PROXY", "grpc_proxy", "NO_PROXY"])
def test_no_proxy_between_processes_of_this_machine(name, monkeypatch, tmp_path):
    monkeypatch.setenv(name, "socks5h://192.0.2.1:9")
    assert name not in environment(tmp_path)
    assert environment(tmp_path, proxies=True)[name] == "socks5h://192.0.2.1:9"


@pytest.mark.parametrize(
    ("address", "proxied"),
    [
        ("127.0.0.1:8000", False),
        ("localhost:8000", False),
        ("[::1]:8000", False),
        ("fl.example.org:8000", True),
        ("192.0.2.7:8000", True),
    ],
)
def test_only_what_leaves_this_machine_may_use_a_proxy(address, proxied, monkeypatch, tmp_path):
    seen = {}

    def run(command, **options):
        seen.update(options)
        return type("Result", (), {"stdout": "{}", "stderr": ""})

    monkeypatch.setattr("common.flower.subprocess.run", run)
    monkeypatch.setenv("https_proxy", "http://192.0.2.1:9")
    FlowerCli(tmp_path / "home", address).call("list")
    assert ("https_proxy" in seen["env"]) is proxied


def test_two_commands_at_once_have_a_configuration_each(tmp_path):
    """One folder for all: the status of a run was asked from the SuperLink of whoever came last."""
    authority = tmp_path / 'ca "1" 😀.crt'
    first, second = FlowerCli(None, "one.example.org:8000", authority), FlowerCli(None, "two.example.org:8000")
    for cli, address in ((first, "one.example.org:8000"), (second, "two.example.org:8000")):
        connection = tomllib.loads((cli.home / "config.toml").read_text())["superlink"]["papfl"]
        assert connection["address"] == address
    assert tomllib.loads((first.home / "config.toml").read_text())["superlink"]["papfl"]["root-certificates"] == str(
        authority
    )

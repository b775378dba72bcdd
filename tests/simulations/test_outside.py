"""The world around a command: no home, no proxy that answers, long and odd paths, plain terminals, readers that leave."""

import json
import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from common import compiled
from common.settings import Settings
from server_app.results import RunFolder
from simulations import cli
from simulations.ray_folder import ray_folder
from simulations.streams import CLOSED_PIPE

ROOT = Path(__file__).resolve().parents[2]
PLAIN = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
ODD = 'it\'s "odd" 😀 [b]path[/b]'


def options(settings):
    """Settings as command-line options."""
    return [
        part
        for key, value in settings.changed().items()
        for part in (f"--{key}", str(value).lower() if isinstance(value, bool) else str(value))
    ]


def papfl(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "simulations.cli", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment}, capture_output=True, check=False,
    )  # fmt: skip


@pytest.fixture
def homeless(monkeypatch, tmp_path):
    """A container's user: no HOME, no passwd entry."""

    def nobody(uid):
        raise KeyError(uid)

    for name in ("HOME", "PAPFL_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    compiled.load_compiled.cache_clear()
    yield
    compiled.load_compiled.cache_clear()


def test_without_a_home_kernels_are_kept_in_the_temporary_folder(homeless, tmp_path):
    assert compiled.cache_folder() == tmp_path / f"papfl-kernels-{os.getuid()}"


def test_without_a_home_what_needs_none_works(homeless, tiny, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["settings"]) == 0
    small = [part for part in options(tiny()) if part != "--data-dir" and part != tiny().data_dir]
    assert cli.main(["explain", *small]) == 0
    assert "sigma_g" in capsys.readouterr().out
    assert cli.main(["run", "--backend", "in-process", *options(tiny())]) == 0
    assert RunFolder(tiny()).summary.exists()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["run"], "data-dir must be an absolute path"),
        (["run", "--out-dir", "~/runs"], "out-dir must be an absolute path"),
        (["data", "fetch", "mnist"], "--data-dir must be an absolute path"),
        (["deploy", "local", "--folder", "~/deploy"], "--folder must be an absolute path"),
    ],
)
def test_without_a_home_what_needs_one_says_so(homeless, arguments, named, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(arguments) == 2
    said = capsys.readouterr().err
    assert named in said
    assert "set HOME" in said
    assert list(tmp_path.iterdir()) == []


def test_the_home_of_an_unknown_user_is_no_folder_called_tilde(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["run", "--out-dir", "~no-such-user-here/runs"]) == 2
    assert "~no-such-user-here/runs" in capsys.readouterr().err


def test_a_node_with_its_own_records_needs_no_home(homeless):
    from client_app.node import Node

    config = {"partition-id": 0, "data": "/data", "state-dir": "/state", "max-epsilon": 4.0}
    assert Node.from_config(config, Settings()).client == 0
    with pytest.raises(ValueError, match="data-dir must be an absolute path"):
        Node.from_config({"partition-id": 0}, Settings())


def test_a_folder_that_cannot_be_written_is_refused_before_anything_starts(tiny, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    settings = tiny(out_dir=str(tmp_path / "file" / "runs"))
    assert cli.main(["run", *options(settings)]) == 2
    assert "out-dir must be a folder that this user can write" in capsys.readouterr().err


def test_errors_of_the_system_are_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert cli.main(["data", "fetch", "mnist", "--data-dir", str(tmp_path / "file")]) == 1
    assert capsys.readouterr().err.startswith("papfl: ")


def test_rays_folder_is_short_and_plain(monkeypatch, tmp_path):
    for name in ("RAY_TMPDIR", "TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    assert ray_folder() == Path("/tmp")
    short = Path("/tmp") / f"papfl-{os.getpid()}"
    short.mkdir()
    try:
        monkeypatch.setenv("TMPDIR", str(short))
        assert ray_folder() == short
    finally:
        short.rmdir()
    for odd in ("/tmp/" + "x" * 120, "/tmp/it's", "/nowhere"):
        monkeypatch.setenv("TMPDIR", odd)
        assert ray_folder() == Path("/tmp")
    monkeypatch.setattr("simulations.ray_folder._SHORT", ("/nowhere",))
    with pytest.raises(ValueError, match=r"RAY_TMPDIR must be .*at most 36 .*Received '/nowhere'"):
        ray_folder()


@pytest.mark.parametrize("arguments", [["settings"], ["run", "--help"], ["explain", "--num-rounds", "3"]])
def test_a_terminal_that_knows_ascii_alone(arguments):
    result = papfl(*arguments, **PLAIN)
    assert result.returncode == 0, result.stderr
    assert result.stdout.isascii()
    assert b"\\u2265" not in result.stdout


def test_what_is_meant_for_a_file_is_the_same_in_every_terminal():
    assert papfl("settings", "--format", "markdown", **PLAIN).stdout == papfl("settings", "--format", "markdown").stdout


def test_a_sweep_refuses_paths_that_its_workers_could_not_be_told(tmp_path):
    grid = tmp_path / "grid.toml"
    grid.write_text("# é\n[fixed]\nnum-rounds = 1\n", encoding="utf-8")
    result = papfl("sweep", str(grid), "--dry-run", "--results", str(tmp_path / "é"), **PLAIN)
    assert result.returncode == 2
    assert (
        b"--results has letters that ascii, this terminal's encoding, does not have: set PYTHONUTF8=1" in result.stderr
    )
    assert papfl("sweep", str(grid), "--dry-run", "--results", str(tmp_path / "é")).returncode == 0


def test_an_odd_path_is_printed_as_it_is_or_by_its_codes(tmp_path, tiny):
    settings = tiny(out_dir=str(tmp_path / ODD))
    arguments = ["run", "--backend", "in-process", *options(settings)]
    shown = papfl(*arguments, "--run-name", "a").stdout.decode()
    assert f"results: {tmp_path / ODD}/a" in shown
    result = papfl(*arguments, "--run-name", "b", **PLAIN)
    assert result.returncode == 0, result.stderr
    assert "\\U0001f600" in result.stdout.decode("ascii") or "\\udc" in result.stdout.decode("ascii")


def test_a_reader_that_leaves_ends_the_command_quietly():
    with subprocess.Popen(
        [sys.executable, "-m", "simulations.cli", "settings"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:  # fmt: skip
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == CLOSED_PIPE


@pytest.mark.parametrize(("redirection", "code", "said"), [(">&-", 0, b""), ("> /dev/full", 1, b"papfl: ")])
def test_a_closed_or_full_output(redirection, code, said):
    command = f'"{sys.executable}" -m simulations.cli settings {redirection}'
    result = subprocess.run(
        command, shell=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, check=False
    )
    assert result.returncode == code
    assert result.stderr.startswith(said)
    assert b"Traceback" not in result.stderr
    assert b"ignored" not in result.stderr


@pytest.mark.parametrize("backend", ["ray", "in-process"])
def test_nothing_is_announced_before_settings_are_checked(backend, tmp_path, capsys):
    arguments = ["run", "--backend", backend, "--num-participating", "100", "--out-dir", str(tmp_path)]
    assert cli.main(arguments) == 2
    assert capsys.readouterr().out == ""


@pytest.mark.integration
def test_a_run_on_ray_in_a_hostile_world(tiny, tmp_path):
    """Dead proxies of every kind, a temporary folder too long for Ray's sockets, odd letters, an ASCII terminal."""
    long = tmp_path / ("x" * 110) / ODD
    long.mkdir(parents=True)
    settings = tiny(out_dir=str(tmp_path / ODD), num_participating=2, num_future=0, num_rounds=1)
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "ALL_PROXY"), "socks5h://127.0.0.1:9")
    result = papfl("run", *options(settings), TMPDIR=str(long), **proxies, **PLAIN)
    assert result.returncode == 0, result.stderr
    assert json.loads(RunFolder(settings).summary.read_text())["failed_replies"] == 0
    assert list(long.iterdir()) == []  # its SuperLink's folder is gone

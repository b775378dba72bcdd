import json
import shlex

import pytest

from common.settings import Settings
from server_app.results import RunFolder
from simulations import cli, settings_table


@pytest.fixture
def options(tiny):
    """The tiny run as command-line options."""
    defaults = Settings().to_config()
    changed = {k: v for k, v in tiny().to_config().items() if v != defaults[k]}
    return [
        part
        for key, value in changed.items()
        for part in (f"--{key}", str(value).lower() if isinstance(value, bool) else str(value))
    ]


def test_run_in_process_prints_the_table(options, tiny, capsys):
    assert cli.main(["run", "--backend", "in-process", *options]) == 0
    text = capsys.readouterr().out
    for expected in (
        "Seen",
        "Future",
        "commonest label",
        "guarantee: none (reproduction)",
        "epsilon 16",
        "outside epsilon",
    ):
        assert expected in text
    assert RunFolder(tiny()).summary.exists()


def test_reference_rows_by_a_flag(options, tiny):
    assert cli.main(["run", "--backend", "in-process", "--references", *options]) == 0
    references = json.loads(RunFolder(tiny()).summary.read_text())["references"]
    assert set(references) == {"chance", "commonest_label", "no_noise", "local_only"}
    assert 0 <= references["local_only"]["seen"] <= 1
    assert references["no_noise"]["future"] is not None


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--epsilon", "nan"], "epsilon"),
        (["--epsilon", "0"], "epsilon"),
        (["--dataset", "imagenet"], "dataset"),
    ],
)
def test_bad_settings_end_with_code_2_before_anything_is_written(arguments, named, tmp_path, capsys):
    assert cli.main(["run", "--out-dir", str(tmp_path / "runs"), *arguments]) == 2
    assert named in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_what_is_given_on_the_command_line_wins_over_the_preset_even_at_its_default(capsys):
    """Also a preset's count of records, and `auto`."""
    given = ["--num-rounds", "500", "--batch-records", "333", "--context-noise-ratio", "auto"]
    assert cli.main(["run", "--print-command", "--preset", "aligned", *given]) == 0
    line = capsys.readouterr().out
    assert "batch-records" not in line
    assert "context-noise-ratio" not in line
    assert "context-records=800" in line
    assert cli.main(["run", "--print-command", "--preset", "quick", *given[:2]]) == 0
    assert "num-rounds" not in capsys.readouterr().out


def test_missing_data_names_the_fetch_command(tmp_path, capsys):
    assert cli.main(["run", "--data-dir", str(tmp_path / "none"), "--out-dir", str(tmp_path / "runs")]) == 2
    assert f"papfl data fetch mnist --data-dir {tmp_path / 'none'}" in capsys.readouterr().err


def test_print_command_is_the_plain_flwr_line(capsys):
    arguments = ["run", "--print-command", "--dataset", "cifar10", "--epsilon", "8", "--seed", "0"]
    assert cli.main(arguments) == 0
    line = shlex.split(capsys.readouterr().out)
    assert line[:4] == ["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1", "flwr", "run", "."]
    config = line[line.index("--run-config") + 1]
    assert 'dataset="cifar10"' in config
    assert "seed=0" in config
    assert "num-supernodes=50" in line[line.index("--federation-config") + 1]


def test_data_fetch_reports_a_valid_cache(data_dir, capsys):
    assert cli.main(["data", "fetch", "mnist", "--data-dir", str(data_dir)]) == 0
    assert "mnist: ready (cache)" in capsys.readouterr().out


def test_settings_are_listed(capsys):
    assert cli.main(["settings"]) == 0
    assert "context-noise-ratio" in capsys.readouterr().out
    assert len(settings_table.rows()) == len(Settings().to_config())

import tomllib
from pathlib import Path

import pytest

from common.presets import PRESETS, TRAIN_RECORDS
from common.settings import Settings
from simulations import settings_table

ROOT = Path(__file__).resolve().parents[2]


def test_pyproject_holds_every_setting_with_its_default():
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    assert config == Settings().to_config()


def test_readme_reference_is_generated_from_the_code():
    assert settings_table.as_markdown() in (ROOT / "docs" / "settings.md").read_text()


def test_config_round_trip():
    settings = Settings(seed=0, learning_rate=0.3, epsilon=4.0)
    assert Settings.from_config(settings.to_config()) == settings


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_presets_are_valid_and_explicit_settings_win(name):
    settings = Settings.from_config({"preset": name, "num-rounds": 7})
    assert settings.num_rounds == 7
    for key, value in PRESETS[name].items():
        if key != "num-rounds":
            assert settings.to_config()[key] == (settings.train_records if value == TRAIN_RECORDS else value)


def test_a_preset_takes_every_training_record_there_is():
    settings = Settings.from_config({"preset": "aligned", "records-per-client": 200, "train-fraction": 0.5})
    assert (settings.batch_records, settings.context_records) == (100, 100)
    with pytest.raises(ValueError, match="records-per-client"):
        Settings.from_config({"preset": "aligned", "records-per-client": 1.5})


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"epsilonn": 4.0}, "epsilonn"),
        ({"epsilon": float("nan")}, "epsilon"),
        ({"epsilon": float("inf")}, "epsilon"),
        ({"epsilon": True}, "epsilon"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": "auto"}, "epsilon"),
        ({"delta": 1.0}, "delta"),
        ({"delta": 2}, "delta"),
        ({"num-rounds": 2.5}, "num-rounds"),
        ({"num-rounds": True}, "num-rounds"),
        ({"seed": -1}, "seed"),
        ({"deterministic": 1}, "deterministic"),
        ({"dataset": "imagenet"}, "dataset"),
        ({"noise-stddev": -0.1}, "noise-stddev"),
        ({"clients-per-round": 41}, "clients-per-round"),
        ({"batch-records": 801}, "batch-records"),
        ({"context-records": 801}, "context-records"),
        ({"context-radius": 0.2}, "context-radius"),
        ({"block-size": 3}, "block-size"),
        ({"noise-stddev": 0.0}, "channel"),
        ({"server-optimizer": "adam", "server-momentum": 0.9}, "server-momentum"),
    ],
)
def test_bad_settings_are_refused_by_name(config, named):
    with pytest.raises(ValueError, match=named):
        Settings.from_config(config)


def test_seed_zero_is_a_seed_and_digest_ignores_places():
    assert Settings(seed=0).digest() != Settings(seed=1).digest()
    assert Settings(out_dir="/a").digest() == Settings(out_dir="/b").digest()


def test_learning_rate_follows_the_data_set_unless_given():
    assert Settings(dataset="mnist").eta == 0.1
    assert Settings(dataset="cifar10").eta == 0.2
    assert Settings(dataset="cifar10", learning_rate=0.5).eta == 0.5

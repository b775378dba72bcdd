"""The public API: every name is there, documented, and its examples do what they say."""

import doctest
import importlib
import subprocess
import sys

import numpy as np
import pytest

import papfl
from common.data.cache import load
from server_app.results import RunFolder


@pytest.fixture(scope="module")
def result(tmp_path_factory, data_dir):
    settings = papfl.settings(
        dataset="mnist", num_rounds=6, num_participating=4, num_future=1, records_per_client=100, context_records=40,
        batch_records=40, num_coefficients=512, tensorboard=False, data_dir=str(data_dir), evaluate_every=0,
        out_dir=str(tmp_path_factory.mktemp("runs")), reference_scale=2.0, input_scaling="standardized",
    )  # fmt: skip
    return papfl.simulate(settings)


@pytest.fixture(scope="module")
def model_folder(result, tmp_path_factory):
    """A model as a node keeps it."""
    from client_app.personal_model import write_model

    folder = tmp_path_factory.mktemp("state") / "models" / "run"
    write_model(folder, result.model(client=4).module.state_dict(), {}, result.settings)
    return folder


@pytest.mark.parametrize("module", ["papfl", "papfl.simulation", "papfl.models"])
def test_examples(module, tmp_path, data_dir, model_folder):
    images = load("mnist", data_dir).images[:5]
    names = {"out_dir": str(tmp_path), "images": images, "model_folder": model_folder}
    outcome = doctest.testmod(importlib.import_module(module), extraglobs=names, optionflags=doctest.ELLIPSIS)
    assert outcome.attempted > 0
    assert outcome.failed == 0


def test_every_name_is_there_and_documented():
    for name in papfl.__all__:
        assert getattr(papfl, name).__doc__
    assert set(papfl.__all__) == set(papfl._HOME)
    assert set(papfl.__all__) <= set(dir(papfl))
    with pytest.raises(AttributeError, match="no attribute 'train'. It has ChannelError"):
        papfl.train  # noqa: B018


def test_importing_is_quick():
    """What needs torch or Flower is loaded when it is used: a second or three, which the accountant does not need."""
    code = "import sys, papfl; papfl.GdpAccountant().epsilon(1.0, 1e-5); print('torch' in sys.modules, 'flwr' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False False\n"


def test_a_result_holds_metrics_ledger_and_models(result):
    assert [row["round"] for row in result.metrics] == [1, 2, 3, 4, 5, 6]
    assert len(result.ledger) == 5 + 6 * 2
    assert result.epsilon <= result.settings.epsilon * (1 + 1e-9)
    assert result.seen == result.summary["accuracy"]["seen"]
    with pytest.raises(ValueError, match=r"client must be one of \[0, 1, 2, 3, 4\]"):
        result.model(client=5)


def test_a_model_answers_as_its_client_measured(result, data_dir):
    """Its accuracy on a future client's queries is the one that the run reports: input scaling and all."""
    from client_app.sources import Place
    from client_app.workspace import workspace
    from common.data.splits import split

    space = workspace(result.settings, Place(data_dir))
    records, queries = space.records(4), split(result.settings, 4, 100).evaluation
    predicted = result.model(client=4).predict(records.images[queries])
    assert (predicted == records.labels[queries]).mean() == pytest.approx(result.summary["accuracy"]["per_client"]["4"])


def test_a_kept_model_takes_images_of_any_usual_layout_and_no_other_scale(result, model_folder, data_dir):
    model, images = papfl.load_model(model_folder), load("mnist", data_dir).images[:7]
    expected = result.model(client=4).logits(images)
    for same in (images, images[:, None], images[..., None], images / 255.0):
        assert np.allclose(model.logits(same), expected, atol=1e-5)
    for wrong in (images.astype(float), images / 127.5 - 1.0, images / 255.0 * np.nan):
        with pytest.raises(ValueError, match=r"images must be uint8, or floats in \[0, 1\]"):
            model.predict(wrong)
    with pytest.raises(papfl.DataError, match="images must have shape"):
        model.predict(images[:, :20])


def test_a_run_of_the_same_name_is_not_overwritten(result):
    with pytest.raises(ValueError, match="finished run"):
        papfl.simulate(result.settings)
    assert RunFolder(result.settings).summary.exists()

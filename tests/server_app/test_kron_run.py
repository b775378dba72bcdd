"""The Kronecker basis in whole runs: every channel, resume, explain."""

import dataclasses

import numpy as np
import pytest

from client_app.app import app
from common.rules import make_rules
from server_app import app as server
from server_app.results import RunFolder
from simulations.grid import InProcessGrid
from tests.runs import outcome, run_until


@pytest.mark.parametrize("channel", ["dg", "lrsuq", "dg-q12"])
def test_every_channel_carries_it(tiny, channel):
    settings = tiny(basis="kron", kron_rank=4, channel=channel, deterministic=False, num_coefficients=2000)
    summary = server.run(InProcessGrid(app, settings), settings)
    k = make_rules(settings).space.dim
    assert k == 4 * 4 * 5 + (16 + 32 + 120 + 84 + 10)
    assert summary["noise"]["norm"] == pytest.approx(make_rules(settings).mechanism.update_noise * np.sqrt(k))
    assert summary["accuracy"]["future"] is not None
    assert summary["failed_replies"] == 0


def test_an_interrupted_run_goes_on_bit_for_bit(tiny, tmp_path):
    whole = tiny(basis="kron", kron_rank=4, out_dir=str(tmp_path / "whole"))
    server.run(InProcessGrid(app, whole), whole)
    cut = dataclasses.replace(whole, out_dir=str(tmp_path / "cut"))
    run_until(cut, 3)
    server.run(InProcessGrid(app, cut), dataclasses.replace(cut, resume=True))
    assert outcome(whole) == outcome(cut)
    assert RunFolder(cut).summary.exists()


def test_parameter_space_variants_need_no_basis(tiny):
    space = make_rules(tiny(basis="kron", variant="global")).space
    assert space.basis == "identity" and space.blocks == ()

"""The seam of mechanisms: another one, with noise on the server, runs through the whole system without touching it."""

import dataclasses

import numpy as np
import pytest
import torch

from client_app.app import app
from common import rules as rules_module
from common.privacy.events import GaussianRelease
from common.privacy.per_release import PerRelease
from common.protocol import Refusal, RequestRefused
from server_app import app as server
from server_app import strategy as strategy_module
from server_app.recovery import CannotResume
from server_app.results import RunFolder
from simulations.grid import InProcessGrid
from tests.party import Party
from tests.runs import run_until

SERVER_NOISE = 0.05


class NoiseOnTheServer(PerRelease):
    """Small channel noise; the server adds its own; what a round books is what the server's noise protects."""

    update_noise = 0.001

    def channel_noise(self, client, round):
        return super().channel_noise(client, round) if round == 0 else self.update_noise * (1 + client)

    def server_noise(self, round):
        return SERVER_NOISE

    def event(self, client, round):
        return dataclasses.replace(super().event(client, round), noise_stddev=SERVER_NOISE + round)

    def terms(self, client, round):
        return {**super().terms(client, round), "server-noise-stddev": SERVER_NOISE}


@pytest.fixture
def on_the_server(monkeypatch):
    monkeypatch.setattr(rules_module, "make_mechanism", NoiseOnTheServer)


def run(settings):
    return server.run(InProcessGrid(app, settings), settings)


def weights(settings):
    from safetensors.numpy import load_file

    file = load_file(RunFolder(settings).path / "generator.safetensors")
    return {name: value for name, value in file.items() if name.startswith("variant.")}


def test_the_server_adds_its_noise_to_every_entry_of_the_aggregate(on_the_server, tiny, monkeypatch):
    """One round: what moves the generator is the aggregate of the releases and N(0, sigma_s^2), at 5 standard errors."""
    seen = []
    apply = strategy_module.ServerState.apply

    def noted(state, round, updates, row, key=None):
        state.generator.accumulate(updates, round)
        before = torch.cat([p.grad.ravel().double() for p in state.generator.variant.parameters()])
        state.optimizer.step = lambda round: seen.append(
            torch.cat([p.grad.ravel().double() for p in state.generator.variant.parameters()]) - before
        )
        apply(state, round, updates, row, key)

    monkeypatch.setattr(strategy_module.ServerState, "apply", noted)
    run(tiny(num_rounds=2, deterministic=False))
    for noise in seen:
        count = noise.numel()
        assert abs(float(noise.mean())) < 5 * SERVER_NOISE / np.sqrt(count)
        assert abs(float(noise.var()) / SERVER_NOISE**2 - 1) < 5 * np.sqrt(2 / count)
    assert abs(float(torch.corrcoef(torch.stack(seen))[0, 1])) < 5 / np.sqrt(seen[0].numel())


def test_both_sides_book_what_the_mechanism_says(on_the_server, tiny):
    settings = tiny(deterministic=False)
    party = Party(settings)
    party.ask(party.rounds[0], **{"server-noise-stddev": SERVER_NOISE})
    booked = party.events[0]
    assert isinstance(booked, GaussianRelease)
    assert booked.noise_stddev == SERVER_NOISE + party.rounds[0]
    summary = run(settings)
    ledger = party.space.rules.accountant
    assert summary["privacy"]["epsilon"] is not None and ledger is not None


def test_a_request_with_other_terms_is_refused(on_the_server, tiny):
    party = Party(tiny(deterministic=False))
    for wrong in (None, 0.0, SERVER_NOISE / 2):
        with pytest.raises(RequestRefused) as error:
            party.ask(party.rounds[0], **{"server-noise-stddev": wrong})
        assert error.value.code == Refusal.REQUEST
    assert party.events == []


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_resumed_server_adds_the_same_noise_again(on_the_server, tiny, deterministic, monkeypatch):
    """Killed after round 2 was journalled, before the generator moved: the same entry of the journal gives the same noise."""
    settings = tiny(num_rounds=3, deterministic=deterministic, checkpoint_every=10)
    original = strategy_module.ServerState.apply
    keys = []

    def die(state, round, updates, row, key=None):
        keys.append(key)
        if round == 2:
            raise KeyboardInterrupt
        original(state, round, updates, row, key)

    monkeypatch.setattr(strategy_module.ServerState, "apply", die)
    grid = InProcessGrid(app, settings)
    with pytest.raises(KeyboardInterrupt):
        server.run(grid, settings)
    again = []

    def noted(state, round, updates, row, key=None):
        again.append(key)
        original(state, round, updates, row, key)

    monkeypatch.setattr(strategy_module.ServerState, "apply", noted)
    server.run(grid, dataclasses.replace(settings, resume=True))
    assert again[:2] == keys
    assert len(set(again)) == 3


def test_a_journal_of_another_mechanism_is_not_applied(tiny, monkeypatch):
    """A run with noise on the server, resumed without it: its releases would move the generator unprotected."""
    settings = tiny(num_rounds=3, checkpoint_every=10)
    with monkeypatch.context() as patch:
        patch.setattr(rules_module, "make_mechanism", NoiseOnTheServer)
        run_until(settings, 2)
    from client_app.workspace import workspace

    workspace.cache_clear()
    with pytest.raises(CannotResume, match="server noise"):
        run(dataclasses.replace(settings, resume=True))


def test_deterministic_runs_repeat_the_servers_noise_too(on_the_server, tiny, tmp_path):
    first = tiny(out_dir=str(tmp_path / "one"))
    second = tiny(out_dir=str(tmp_path / "two"))
    run(first)
    run(second)
    one, two = weights(first), weights(second)
    assert all(np.array_equal(one[name], two[name]) for name in one)

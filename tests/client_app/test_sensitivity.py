"""Replacing one record moves a release of a real client by at most its sensitivity: seen from outside, noise and all.

In deterministic runs both clients add the same noise, so the difference of their decoded releases is that of the
un-noised values.
"""

import copy
import dataclasses

import numpy as np
import pytest

from client_app.gradients import CoefficientGradients
from common.channel import ChannelEvent, DirectGaussian
from common.data.records import ClientRecords
from common.data.splits import batch, split
from common.keys import deterministic_event_keys
from tests.party import Party

# float32 on the wire: half a unit in the last place of values below 1, in every coordinate.
ROUNDING = 2.0**-24


class Replaced:
    """A source that differs from another one in one record of client 0."""

    def __init__(self, source, position, image, label):
        original = source.records(0)
        images, labels = original.images.copy(), original.labels.copy()
        images[position], labels[position] = image, label
        self._records = ClientRecords(images, labels)

    def records(self, client):
        return self._records

    def order(self, client):
        return "replaced"

    def indices(self, client):
        return None


def replaced(party, position, value):
    """The same client with another record at `position`: every pixel `value`, the next label."""
    other = Party(party.settings)
    other.space = copy.copy(party.space)
    label = (party.space.records(0).labels[position] + 1) % 10
    other.space.source = Replaced(party.space.source, position, value, label)
    return other


def decode(party, message, round, k, noise):
    event = ChannelEvent(party.settings.name, round, 0, k, noise)
    return DirectGaussian().decode(message, event, deterministic_event_keys(party.settings.seed, client=0, round=round))


@pytest.fixture
def party(tiny):
    return Party(tiny(num_rounds=6, clip_norm=0.02))  # every record is clipped


@pytest.mark.parametrize("reproduction", [False, True])
@pytest.mark.parametrize("value", [0.0, 1.0, 100.0, float("nan")])
def test_gradient_release(party, value, reproduction, monkeypatch):
    """Every kind of bad neighbour; the bound is reached to more than a quarter by some of them. The noise of a deterministic
    run cancels; its gradients are computed as in one with a guarantee, and as in one without."""
    gradients = CoefficientGradients(party.space.model, party.space.basis, reproduction=reproduction)
    monkeypatch.setattr(party.space, "gradients", gradients)
    rules, round = party.space.rules, party.rounds[0]
    release = rules.mechanism.event(0, round)
    train = split(party.settings, 0, 60).train
    moved = []
    for position in batch(party.settings, 0, round, 0, train)[:3]:
        messages = [p.ask(round)[2]["payload"] for p in (Party(party.settings), replaced(party, position, value))]
        before, after = (decode(party, m, round, 512, release.noise_stddev) for m in messages)
        moved.append(np.linalg.norm(before - after))
    assert max(moved) <= release.sensitivity + 2 * ROUNDING * np.sqrt(512)
    assert max(moved) > release.sensitivity / 4


@pytest.mark.parametrize("value", [0.0, 1.0, 100.0, float("nan")])
@pytest.mark.parametrize("kind", ["paper", "tight"])
def test_context_release(tiny, value, kind):
    party = Party(tiny(context_sensitivity=kind))
    rules = party.space.rules
    release = rules.mechanism.event(0, 0)
    position = split(party.settings, 0, 60).context[4]
    dim = rules.context_map.dim
    messages = [p.ask_context()["payload"] for p in (party, replaced(party, position, value))]
    before, after = (decode(party, m, 0, dim, release.noise_stddev) for m in messages)
    assert 0 < np.linalg.norm(before - after) <= release.sensitivity + 2 * ROUNDING * np.sqrt(dim)


@pytest.mark.parametrize("batch_schedule", ["uniform", "cyclic"])
def test_which_records_are_in_a_batch_is_public(tiny, batch_schedule, monkeypatch):
    """Positions are those of the public rule, whatever images and labels are there."""
    settings = tiny(num_rounds=6, batch_schedule=batch_schedule)
    party = Party(settings)
    shuffled = Party(settings)
    shuffled.space = copy.copy(party.space)
    shuffled.space.source = Replaced(party.space.source, slice(0, 60), 0.5, np.arange(60)[::-1] % 10)
    seen = []
    for one in (party, shuffled):
        original = type(one.space).gradient
        monkeypatch.setattr(
            type(one.space), "gradient", lambda *a, original=original: (seen.append(a[3]), original(*a))[1]
        )
        one.ask(one.rounds[0])
        monkeypatch.undo()
    expected = batch(settings, 0, party.rounds[0], 0, split(settings, 0, 60).train)
    assert [positions.tolist() for positions in seen] == [expected.tolist()] * 2


def test_changed_records_do_not_change_what_is_asked_or_booked(party):
    """The ledger of both clients is the same: what is spent is public."""
    other = replaced(party, 7, 1.0)
    for one in (party, other):
        one.ask_context()
        one.ask(one.rounds[0])
    assert [dataclasses.asdict(event) for event in party.events] == [dataclasses.asdict(e) for e in other.events]

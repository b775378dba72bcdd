"""Own records with per-record accounting: what a record has paid follows the record, not its row."""

import numpy as np
import pytest

from client_app.client import PersonalClient
from client_app.policy import OWN_ACCOUNTANT, Policy
from client_app.sources import Place, source_of
from client_app.sqlite_ledger import LEDGER, SqliteLedger
from client_app.workspace import workspace
from common import keys
from common.data.cache import DataError
from common.privacy.accountant import worst_record_rho
from common.protocol import Refusal, RequestRefused

SERVER = keys.public_key(keys.new_private_key())


class Holder:
    """One data holder with a file, a state directory and a durable ledger, asked by a server."""

    def __init__(self, settings, folder):
        self.settings, self.folder, self.private = settings, folder, keys.new_private_key()
        folder.mkdir()
        self.ledger = SqliteLedger(folder / "state" / LEDGER)
        self.ledger.create()
        self.pixels = np.random.default_rng(0).integers(0, 256, (60, 28, 28), dtype=np.uint8)
        self.labels = np.arange(60) % 10
        self.write()

    def write(self):
        """The file as it is now; a new process reads it."""
        np.savez(self.folder / "d.npz", x=self.pixels, y=self.labels)
        workspace.cache_clear()
        source_of.cache_clear()

    @property
    def client(self):
        place = Place(self.folder, self.folder / "d.npz", self.folder / "state")
        space = workspace(self.settings, place)
        self.rules = space.rules
        return PersonalClient(space, 0, self.ledger, self.private, Policy(budget=100.0), state=self.folder / "state")

    def ask(self, round):
        client = self.client
        config = {"round": round, "noise-stddev": self.rules.mechanism.channel_noise(0, 1), "public-key": SERVER}
        return client.fit([np.zeros(512, np.float32)], config)

    @property
    def rounds(self):
        self.client  # noqa: B018  (derives the rules)
        schedule = self.rules.schedule
        return [t for t in range(1, self.settings.num_rounds + 1) if 0 in schedule.clients(t)]

    def epsilon(self, events):
        return self.rules.accountant.epsilon(worst_record_rho(events), self.settings.delta)


@pytest.fixture
def holder(tiny, tmp_path):
    settings = tiny(
        num_rounds=12, dataset="own", deterministic=False, batch_schedule="cyclic", batch_records=12, run_name="own"
    )
    yield Holder(settings, tmp_path / "holder")
    workspace.cache_clear()
    source_of.cache_clear()


def test_a_whole_run_spends_the_planned_epsilon_whatever_the_order_of_the_file(holder):
    """Rows are shuffled before every message: positions follow the records, so the plan's accounting stays right."""
    rng = np.random.default_rng(1)
    for round in holder.rounds:
        order = rng.permutation(60)
        holder.pixels, holder.labels = holder.pixels[order], holder.labels[order]
        holder.write()
        holder.ask(round)
    events = holder.ledger.events("own")
    assert len({event.order for event in events}) == 1
    assert 0 < holder.epsilon(events) <= holder.settings.epsilon * (1 + 1e-9)


def test_a_record_that_moves_is_booked_at_whole_client_cost_and_the_run_ends_there(holder):
    """One record is taken out and put in another's place: what it pays from now on adds to what it paid before. In 0.1.0
    epsilon 4.000 was reported where such a record had paid 10.42."""
    rounds = holder.rounds
    for round in rounds[:3]:
        holder.ask(round)
    before = holder.ledger.events("own")
    first = holder.pixels[0].copy()
    holder.pixels[0] = 255 - first
    holder.write()
    holder.client  # noqa: B018  (the replacement is noticed)
    holder.pixels[1] = first
    holder.write()
    served, refused = [], None
    for round in rounds[3:]:
        try:
            holder.ask(round)
            served.append(round)
        except RequestRefused as error:
            refused = error
            break
    assert refused is not None and refused.code == Refusal.BUDGET
    assert "records have come to other positions" in str(refused)
    events = holder.ledger.events("own")
    assert len(events) == len(before) + len(served)
    whole = sum(event.rho for event in events) + before[0].rho
    assert holder.rules.accountant.epsilon(whole, holder.settings.delta) > holder.settings.epsilon
    assert holder.epsilon(before) < holder.settings.epsilon


def test_a_new_manifest_over_an_old_ledger_compares_no_positions(holder):
    """The advice of 0.1.0, to move the manifest away, gave the same records other positions with nothing spent on them."""
    rounds = holder.rounds
    for round in rounds[:2]:
        holder.ask(round)
    (holder.folder / "state" / "manifest.json").unlink()
    holder.write()
    holder.ask(rounds[2])
    events = holder.ledger.events("own")
    assert len({event.order for event in events}) == 2
    assert worst_record_rho(events) == pytest.approx(sum(event.rho for event in events))


def test_releases_of_an_unknown_order_are_compared_with_none(holder):
    """A ledger of 0.1.0 names no order."""
    holder.ask(holder.rounds[0])
    event = holder.ledger.events()[0]
    old = type(event).from_json({k: v for k, v in event.to_json().items() if k != "order"} | {"round": 99})
    assert worst_record_rho([event, old]) == pytest.approx(2 * event.rho)
    assert OWN_ACCOUNTANT.epsilon(worst_record_rho([old]), 1e-5) > 0


def test_a_file_of_another_size_is_refused(holder):
    holder.ask(holder.rounds[0])
    holder.pixels, holder.labels = holder.pixels[:59], holder.labels[:59]
    holder.write()
    with pytest.raises(DataError, match="60 records"):
        holder.ask(holder.rounds[1])

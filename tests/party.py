"""One client outside any federation, and what a server would send it."""

from pathlib import Path

import numpy as np
from flwr.app import RecordDict

from client_app.client import PersonalClient
from client_app.ledger import StateLedger
from client_app.sources import Place
from client_app.workspace import workspace
from common import keys

SERVER = keys.new_private_key()


class Party:
    """One client with its state, and what the server would send it."""

    def __init__(self, settings, client=0, policy=None):
        self.settings, self.id = settings, client
        self.space = workspace(settings, Place(Path(settings.data_dir)))
        self.state, self.private, self.policy = RecordDict(), keys.new_private_key(), policy
        self.rounds = [t for t in range(1, settings.num_rounds + 1) if client in self.space.rules.schedule.clients(t)]

    @property
    def client(self):
        """As Flower does it: a new object for every message, the state stays."""
        return PersonalClient(self.space, self.id, StateLedger(self.state), self.private, self.policy)

    @property
    def events(self):
        return StateLedger(self.state).events()

    def ask(self, at, coefficients=None, **changes):
        if coefficients is None:
            coefficients = np.zeros(self.settings.num_coefficients, np.float32)
        config = {
            "round": at,
            "noise-stddev": self.space.rules.mechanism.channel_noise(0, 1),
            "public-key": keys.public_key(SERVER),
        }
        return self.client.fit([coefficients], config | changes)

    def ask_context(self, **changes):
        noise = self.space.rules.mechanism.channel_noise(0, 0)
        return self.client.context({"noise-stddev": noise, "public-key": keys.public_key(SERVER)} | changes)

"""The server's whole state and the only ways in which it changes: spend, apply, checkpoint, restore."""

from __future__ import annotations

from typing import Any

import numpy as np

from common.privacy.events import Ledger
from common.rules import Rules
from server_app import geometry, metrics
from server_app.checkpoint import load_checkpoint, save_checkpoint
from server_app.generator import Generator
from server_app.journal import Journal, pack_array
from server_app.optimizer import ServerOptimizer, learning_rate
from server_app.results import RunFolder
from server_app.server_noise import add_server_noise, draw_key


class ServerState:
    """Generator, optimiser, contexts and ledger of one run, and where they are kept."""

    def __init__(self, rules: Rules, folder: RunFolder) -> None:
        self.rules, self.settings, self.folder = rules, rules.settings, folder
        self.generator = Generator(rules)
        self.optimizer = ServerOptimizer(rules, self.generator.variant)
        self.ledger = Ledger()
        self.journal = Journal(folder.journal)

    def spend(self, round: int, clients: list[int]) -> None:
        """Count releases before they are asked for: on disk first, then in the ledger. Once per round and client."""
        new = self._unspent(round, clients)
        if new:
            self.journal.append("asked", round=round, clients=new)
            self.record(round, new)

    def record(self, round: int, clients: list[int]) -> None:
        """Count releases that the journal has already."""
        self.ledger.record(self.rules.mechanism.event(client, round) for client in self._unspent(round, clients))

    def accept(self, round: int, updates: dict[int, np.ndarray], row: dict[str, Any]) -> None:
        """Journal the accepted releases of a round, then apply them."""
        packed = {str(client): pack_array(update) for client, update in updates.items()}
        key = draw_key(self.rules, round)
        secret = {} if key is None else {"noise_key": key.hex()}
        self.journal.append("accepted", round=round, updates=packed, row=row, **secret)
        self.apply(round, updates, row, key)

    def apply(
        self, round: int, updates: dict[int, np.ndarray], row: dict[str, Any], noise_key: bytes | None = None
    ) -> None:
        """Eq. 6 with uniform weight over those who answered; if nobody did, the model stays. Completes `row`.

        Args:
            updates: client → decoded release (k,) float32.
            noise_key: of the server's own noise; None: the mechanism adds none.
        """
        row["learning_rate"] = learning_rate(self.rules, round)
        if updates:
            row.update(metrics.hidden(self.generator, updates))
            if geometry.due(self.settings, round):
                row.update(geometry.trace(self.generator, updates))
            self.generator.accumulate(updates, round)
            if noise_key is not None:
                add_server_noise(self.generator.variant, self.rules.mechanism.server_noise(round), noise_key)
            self.optimizer.step(round)

    def checkpoint(self, round: int) -> None:
        """Everything up to `round` to disk; the journal starts anew."""
        save_checkpoint(
            self.folder.checkpoint,
            round=round,
            generator=self.generator,
            optimizer=self.optimizer,
            ledger=self.ledger,
            settings_digest=self.settings.digest(),
        )
        self.journal.clear()

    def restore(self, *, exact: bool = True) -> int:
        """The state as the checkpoint has it; returns its round. `exact` and what is raised: as for `load_checkpoint`."""
        restored = load_checkpoint(
            self.folder.checkpoint,
            generator=self.generator,
            optimizer=self.optimizer,
            settings_digest=self.settings.digest(),
            exact=exact,
        )
        self.ledger = restored.ledger
        return restored.round

    def _unspent(self, round: int, clients: list[int]) -> list[int]:
        spent = self.ledger.spent_in(round)
        return [client for client in clients if client not in spent]

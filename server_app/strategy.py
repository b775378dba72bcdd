"""PersonalizedStrategy: fixed schedule, cached private contexts, privatised coefficient gradients, eq. 6."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from common import keys
from common.privacy.report import cautions
from common.protocol import COEFFICIENTS, REQUEST
from common.rules import Rules
from server_app import metrics
from server_app.contexts import release_contexts
from server_app.federation import Federation, FederationError, Replies
from server_app.receiver import Receiver
from server_app.recovery import BEFORE_CONTEXTS, Recovered, recover
from server_app.results import RunFolder
from server_app.state import ServerState

log = logging.getLogger("papfl.server")


class PersonalizedStrategy(Strategy):
    """The trusted server of one run.

    Every round: ask the scheduled clients, decode what comes back, journal it, apply eq. 6. What it knows is in
    `state`; interrupted and uninterrupted runs execute the same code.
    """

    def __init__(self, rules: Rules, folder: RunFolder) -> None:
        self.rules, self.settings = rules, rules.settings
        self.state = ServerState(rules, folder)
        self.hellos: dict[int, dict[str, Any]] = {}
        self._federation: Federation
        self._receiver: Receiver
        self._recovered = Recovered()
        # Of the round in progress.
        self._sent: dict[int, np.ndarray] = {}
        self._row: dict[str, Any] = {}
        self._started = 0.0
        self._failed_rounds = 0

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int | None = None,
        timeout: float | None = None,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: object = None,
    ) -> Result:
        """Run the schedule from where the run's folder stands; see Flower's `Strategy.start`.

        Rounds, time-outs and configuration come from the settings: the other arguments are Flower's and unused.

        Raises:
            FederationError: wrong federation, or no usable answer for `max-failed-rounds` rounds.
        """
        self.connect(grid)
        self._recovered = recover(self.state, self.hellos, lambda round, row: self._finish(round, row, grid))
        last = self._recovered.round
        if last == BEFORE_CONTEXTS:
            last = 0
            lost_contexts = self._recovered.lost.get(0, frozenset())
            release_contexts(self.state, self._federation, self._receiver, self.hellos, lost_contexts)
            self.state.checkpoint(last)
        self.summary()
        for round in range(last + 1, self.settings.num_rounds + 1):
            messages = self.configure_train(round, ArrayRecord(), ConfigRecord(), grid)
            self.aggregate_train(round, grid.send_and_receive(messages, timeout=self.settings.round_timeout))
            self._finish(round, self._row, grid)
            if round % self.settings.checkpoint_every == 0 or round == self.settings.num_rounds:
                self.state.checkpoint(round)
        self.state.folder.close()
        return Result()

    def connect(self, grid: Grid) -> None:
        """Learn who is there and agree on keys. Releases nothing."""
        self._federation = Federation(grid, self.settings)
        self.hellos = self._federation.join()
        private_key = keys.load_or_create(self.state.folder.server_key)
        peers = {client: bytes(hello["public-key"]) for client, hello in self.hellos.items()}
        self._receiver = Receiver(self.rules, private_key, peers)

    def summary(self) -> None:
        """Log what will run."""
        settings, mechanism = self.settings, self.rules.mechanism
        log.info("run %s: %d rounds, channel %s", settings.name, settings.num_rounds, settings.channel)
        facts = ", ".join(f"{name} {value}" for name, value in mechanism.facts().items())
        log.info("epsilon %.6g if all is spent; %s", mechanism.epsilon, facts)
        for caution in cautions(settings):
            log.warning("caution: %s", caution)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """a_i to every scheduled client that has a context. Its release counts as spent from here on."""
        self._started = time.perf_counter()
        lost = self._recovered.lost.get(server_round, frozenset())
        generator = self.state.generator
        clients = [c for c in self.rules.schedule.clients(server_round) if c in generator.contexts and c not in lost]
        self._sent = {client: generator.coefficients(client) for client in clients}
        self.state.spend(server_round, clients)
        shared = {"round": server_round, "public-key": self._receiver.public_key}
        requests = {
            client: RecordDict(
                {
                    COEFFICIENTS: ArrayRecord([coefficients]),
                    REQUEST: ConfigRecord({**shared, **self.rules.mechanism.terms(client, server_round)}),
                }
            )
            for client, coefficients in self._sent.items()
        }
        return self._federation.messages(MessageType.TRAIN, requests, server_round)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Decode, journal, apply eq. 6. Returns nothing for Flower's own history: metrics.jsonl has it."""
        collected = self._federation.collect(replies, self._sent, server_round)
        for client in self.rules.schedule.clients(server_round):
            if client not in self._sent:
                collected.reject(client, "its context, or its release of this round, was lost")
        updates, costs = self._receiver.updates(collected, server_round, self._sent)
        self._row = {
            "round": server_round,
            "clients": sorted(updates),
            "failed": {str(client): reason for client, reason in sorted(collected.failed.items())},
            **metrics.training(collected, self.rules),
        }
        if metrics.shared(collected, self.settings):
            self._row |= {**costs, "seconds": time.perf_counter() - self._started}
        self.on_updates(self._sent, updates)
        self.state.accept(server_round, updates, self._row)
        self._check_alive(server_round, collected)
        return None, None

    def on_updates(self, sent: Mapping[int, np.ndarray], updates: Mapping[int, np.ndarray]) -> None:
        """Called with what was sent and what was decoded, before it is applied: for a subclass that observes a run.

        Args:
            sent, updates: client → coefficients, and decoded release, (k,) float32.
        """

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Personal models to every client with a context, where the cadence says so; noiseless, so never when off."""
        if self.settings.diagnostics == "off" or not metrics.evaluation_due(self.settings, server_round):
            return []
        generator = self.state.generator
        requests = {
            client: RecordDict({COEFFICIENTS: ArrayRecord([generator.coefficients(client)]), REQUEST: ConfigRecord()})
            for client in sorted(generator.contexts)
            if self._federation.connected(client)
        }
        return self._federation.messages(MessageType.EVALUATE, requests, server_round)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Seen and Future accuracy into the round's metrics."""
        asked = [client for client in self.state.generator.contexts if self._federation.connected(client)]
        collected = self._federation.collect(replies, asked, server_round)
        self._row.update(metrics.evaluation(collected, self.settings))
        return None

    def _finish(self, round: int, row: dict[str, Any], grid: Grid) -> None:
        """Evaluate where due and write the round's metrics."""
        self._row = row
        messages = self.configure_evaluate(round, ArrayRecord(), ConfigRecord(), grid)
        if messages:
            self.aggregate_evaluate(round, grid.send_and_receive(messages, timeout=self.settings.round_timeout))
        self.state.folder.add_metrics(row)
        if "seen_accuracy" in row:
            log.info("round %d: Seen %.4f, Future %s", round, row["seen_accuracy"], row.get("future_accuracy"))

    def _check_alive(self, round: int, replies: Replies) -> None:
        """Flower never replaces a dead worker and calls such a run completed: stop instead, with the cause."""
        failed = replies.worker_died or not replies.accepted
        self._failed_rounds = self._failed_rounds + 1 if failed else 0
        if self._failed_rounds >= self.settings.max_failed_rounds:
            causes = "; ".join(f"client {client}: {reason}" for client, reason in sorted(replies.failed.items()))
            raise FederationError(
                f"Stopped after round {round}: {self._failed_rounds} consecutive rounds with a dead worker or without any "
                f"usable reply. Last causes: {causes}. Once they are mended, resume=true goes on from here."
            )

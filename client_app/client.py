"""The data holder: a NumPyClient that answers hello, context, train and evaluate requests of the server.

It decides for itself: what the public schedule and plan don't say, what the budget doesn't allow and what was spent
before is refused with a code, before anything is computed from its records.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.client import NumPyClient

from client_app.ledger import ReleaseLedger
from client_app.personal_model import write_model
from client_app.policy import OWN_ACCOUNTANT, Policy
from client_app.workspace import Workspace
from common.channel import Channel, ChannelEvent, DirectGaussian, EventKeys, make_channel
from common.data.splits import Split, batch, is_future, split
from common.keys import deterministic_event_keys, fresh_nonce, is_usable, public_key, shared_event_keys
from common.privacy.accountant import worst_record_rho
from common.privacy.events import CONTEXT_ROUND, GaussianRelease
from common.protocol import Refusal, RequestRefused, event_digest

Config = dict[str, Any]


class PersonalClient(NumPyClient):
    """One client of the run.

    Args:
        space: the process's workspace.
        client: partition id.
        ledger: this client's record of its releases.
        private_key: this client's X25519 key; never leaves it.
        policy: what this data holder decides for itself.
        state: durable directory for the finished personal model; None in simulation.
    """

    def __init__(
        self,
        space: Workspace,
        client: int,
        ledger: ReleaseLedger,
        private_key: bytes,
        policy: Policy | None = None,
        state: Path | None = None,
    ) -> None:
        self._space, self._client, self._ledger, self._private_key = space, client, ledger, private_key
        self._settings, self._rules = space.settings, space.rules
        self._policy = policy or Policy()
        self._diagnostics = self._policy.diagnostics and self._settings.diagnostics != "off"
        self._state = state
        count = len(space.records(client))
        if self._settings.batch_schedule == "cyclic" and count != self._settings.records_per_client:
            raise ValueError(
                f"records-per-client must be every client's number of records where batch-schedule is cyclic: it is public "
                f"and decides the accounting. Received {count} instead of {self._settings.records_per_client}."
            )
        self._split: Split = split(self._settings, client, count)

    def hello(self) -> Config:
        """Who this is: releases nothing. Label counts are private: shared for public data only."""
        reply: Config = {
            "partition-id": self._client,
            "num-records": len(self._space.records(self._client)),
            "num-events": len(self._ledger.events(self._settings.name)),
            "public-key": public_key(self._private_key),
        }
        if self._diagnostics:
            indices = self._space.source.indices(self._client)
            if indices is not None:
                reply["indices"] = indices.astype("<i4").tobytes()
            labels = self._space.records(self._client).labels
            counts = np.bincount(labels, minlength=self._rules.spec.num_classes)
            reply["label-counts"] = counts.tolist()
            held_out = labels[self._split.evaluation]
            reply["commonest-label-accuracy"] = float((held_out == int(counts.argmax())).mean())
        return reply

    def context(self, config: Config) -> Config:
        """The one-shot private context (eq. 2). `config`: noise-stddev, public-key."""
        k = self._rules.context_map.dim
        message, _ = self._release(config, CONTEXT_ROUND, b"", DirectGaussian(), k, self._statistic)
        return {"payload": message, "partition-id": self._client}

    def fit(self, parameters: list[np.ndarray], config: Config) -> tuple[list[np.ndarray], int, Config]:
        """The privatised coefficient gradient of a round (eq. 4-5).

        `parameters`: [a_i (k,) float32]. `config`: round, noise-stddev, public-key. Returns no arrays, m_g, and the
        message with its metrics.
        """
        round = _integer(config, "round", 1, self._settings.num_rounds)
        if self._client not in self._rules.schedule.clients(round):
            raise RequestRefused(Refusal.REQUEST, f"client {self._client} is not scheduled in round {round}")
        coefficients = self._coefficients(parameters)
        participation = self._rules.schedule.participation(self._client, round)
        diagnostics: Config = {}

        def update() -> np.ndarray:
            started = time.process_time()
            positions = batch(self._settings, self._client, round, participation, self._split.train)
            result = self._space.gradient(self._client, self._tensor(coefficients), positions)
            gradient: np.ndarray = result.gradient.cpu().numpy()
            diagnostics.update(
                {
                    "loss": result.loss,
                    "clipped-fraction": result.clipped_fraction,
                    "nonfinite-records": result.nonfinite_records,
                    "update-norm": math.sqrt(float(np.square(gradient).sum())),
                    "gradient-ms": 1e3 * (time.process_time() - started),
                }
            )
            return gradient

        channel = make_channel(self._settings)
        k = self._rules.space.dim
        message, encode_ms = self._release(config, round, coefficients.tobytes(), channel, k, update)
        metrics: Config = {"payload": message, "partition-id": self._client}
        if self._diagnostics:
            metrics |= {**diagnostics, "encode-ms": encode_ms}
        return [], self._settings.batch_records, metrics

    def evaluate(self, parameters: list[np.ndarray], config: Config) -> tuple[float, int, Config]:
        """Loss and accuracy on this client's held-out (or query) records: noiseless, outside ε."""
        if not self._diagnostics:
            raise RequestRefused(Refusal.DIAGNOSTICS, "this client shares no noiseless diagnostics")
        positions = self._split.evaluation
        loss, correct = self._space.evaluate(self._client, self._tensor(self._coefficients(parameters)), positions)
        return loss, len(positions), {"correct": correct, "partition-id": self._client}

    def keep_model(self, parameters: list[np.ndarray], config: Config) -> Config:
        """Write the finished personal model to this client's own disk (see `personal_model`). `config`: round."""
        if self._state is None:
            raise RequestRefused(Refusal.REQUEST, "a client without a state-dir keeps no model")
        coefficients = self._coefficients(parameters)
        round = _integer(config, "round", 1, self._settings.num_rounds)
        spent = OWN_ACCOUNTANT.epsilon(worst_record_rho(self._ledger.events()), self._settings.delta)
        theta = self._space.theta(self._tensor(coefficients))
        digest = write_model(
            self._state / "models" / self._settings.name,
            self._space.model.state_dict(theta),
            {
                "client": self._client,
                "round": round,
                "coefficients_sha256": sha256(coefficients.tobytes()).hexdigest(),
                "epsilon_spent": spent if math.isfinite(spent) else None,
                "accountant": OWN_ACCOUNTANT.name,
            },
            self._settings,
        )
        return {"partition-id": self._client, "sha256": digest}

    def _release(
        self,
        config: Config,
        round: int,
        request: bytes,
        channel: Channel,
        k: int,
        compute: Callable[[], np.ndarray],
    ) -> tuple[bytes, float]:
        """Commit, compute, encode; or the same bytes again. Returns the message and the encoding's milliseconds."""
        noise = self._agree_on_terms(config, round)
        run = self._settings.name
        server_key = config.get("public-key")
        if not is_usable(server_key):
            raise RequestRefused(Refusal.REQUEST, "public-key must be a usable X25519 key of 32 bytes")
        digest = event_digest(self._settings, self._client, round, noise, server_key, request)
        stored = self._ledger.stored(run, digest, round)
        if stored is not None:
            return stored, 0.0
        self._ledger.commit(run, digest, self._booked(round), partial(self._policy.check, self._rules))
        update = compute()
        keys = self._event_keys(server_key, round, digest)  # after the commit: never twice for one event
        started = time.perf_counter()
        message = channel.encode(update, ChannelEvent(run, round, self._client, k, noise), keys)
        milliseconds = 1e3 * (time.perf_counter() - started)
        self._ledger.finish(digest, message)
        return message, milliseconds

    def _agree_on_terms(self, config: Config, round: int) -> float:
        """The server's σ. All terms must be the mechanism's but for the last bits of two machines' libraries."""
        for name, planned in self._rules.mechanism.terms(self._client, round).items():
            asked = config.get(name)
            if not isinstance(asked, float) or not abs(asked - planned) <= 1e-9 * planned:
                raise RequestRefused(Refusal.REQUEST, f"{name} must be the plan's {planned!r}, asked {asked!r}")
        return float(config["noise-stddev"])

    def _booked(self, round: int) -> GaussianRelease:
        """What the release of a round costs, as this client's ledger has it."""
        event = self._rules.mechanism.event(self._client, round)
        if event.records is not None:
            event = dataclasses.replace(event, order=self._space.source.order(self._client))
        # Noise that anyone can recompute protects nothing, and is booked as none.
        return dataclasses.replace(event, noise_stddev=0.0) if self._settings.deterministic else event

    def _event_keys(self, server_key: bytes, round: int, digest: str) -> EventKeys:
        if self._settings.deterministic:
            return deterministic_event_keys(self._settings.seed, client=self._client, round=round)
        return shared_event_keys(self._private_key, server_key, event=digest, nonce=fresh_nonce())

    def _statistic(self) -> np.ndarray:
        """(1/m_c) Σ φ(x) over C_i: (2s,)."""
        images = self._space.records(self._client).images[self._split.context]
        total: np.ndarray = self._rules.context_map.phi(images).sum(axis=0)
        return total / self._settings.context_records

    def _tensor(self, coefficients: np.ndarray) -> torch.Tensor:
        return torch.tensor(coefficients, device=self._space.model.device)

    def _coefficients(self, parameters: list[np.ndarray]) -> np.ndarray:
        k = self._rules.space.dim
        if len(parameters) != 1 or parameters[0].shape != (k,) or parameters[0].dtype != np.float32:
            raise RequestRefused(Refusal.REQUEST, f"coefficients must be one float32 array of shape ({k},)")
        if not np.isfinite(parameters[0]).all():
            raise RequestRefused(Refusal.REQUEST, "coefficients must be finite")
        return parameters[0]

    @property
    def is_future(self) -> bool:
        """True for a client that is never trained on."""
        return is_future(self._settings, self._client)


def _integer(config: Config, name: str, low: int, high: int) -> int:
    value = config.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise RequestRefused(Refusal.REQUEST, f"{name} must be from {low} to {high}, asked {value!r}")
    return value

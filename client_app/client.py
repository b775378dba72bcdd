"""The data holder: a NumPyClient that answers hello, context, train and evaluate requests of the server.

It decides for itself: what the public schedule and plan don't say, what the budget doesn't allow and what was spent
before is refused with a code, before anything is computed from its records.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from flwr.client import NumPyClient

from client_app.ledger import ReleaseLedger
from client_app.policy import Policy
from client_app.workspace import Workspace
from common.channel import Channel, ChannelEvent, DirectGaussian, EventKeys, make_channel
from common.data.splits import Split, batch, is_future, split
from common.keys import deterministic_event_keys, public_key, shared_event_keys
from common.privacy.events import GaussianRelease
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
    """

    def __init__(
        self,
        space: Workspace,
        client: int,
        ledger: ReleaseLedger,
        private_key: bytes,
        policy: Policy | None = None,
    ) -> None:
        self._space, self._client, self._ledger, self._private_key = space, client, ledger, private_key
        self._settings, self._rules = space.settings, space.rules
        self._policy = policy or Policy()
        self._diagnostics = self._policy.diagnostics and self._settings.diagnostics != "off"
        self._split: Split = split(self._settings, client, len(space.records(client)))

    def hello(self) -> Config:
        """Who this is: releases nothing. Label counts are private: shared for public data only."""
        reply: Config = {
            "partition-id": self._client,
            "num-records": len(self._space.records(self._client)),
            "num-events": len(self._ledger.events()),
            "public-key": public_key(self._private_key),
        }
        if self._diagnostics:
            reply["indices"] = self._space.partition.indices[self._client].astype("<i4").tobytes()
            reply["label-counts"] = self._space.partition.label_counts[self._client].tolist()
            held_out = self._space.records(self._client).labels[self._split.evaluation]
            commonest = int(self._space.partition.label_counts[self._client].argmax())
            reply["commonest-label-accuracy"] = float((held_out == commonest).mean())
        return reply

    def context(self, config: Config) -> Config:
        """The one-shot private context (eq. 2). `config`: noise-stddev, public-key."""
        plan = self._rules.plan
        release = self._rules.releases.context(self._client, plan.context_noise_stddev)
        message, _ = self._release(config, release, b"", DirectGaussian(), self._rules.context_map.dim, self._statistic)
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
        release = self._rules.releases.gradient(self._client, round, participation, self._rules.plan.noise_stddev)
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
        message, encode_ms = self._release(config, release, coefficients.tobytes(), channel, k, update)
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

    def _release(
        self,
        config: Config,
        release: GaussianRelease,
        request: bytes,
        channel: Channel,
        k: int,
        compute: Callable[[], np.ndarray],
    ) -> tuple[bytes, float]:
        """Commit, compute, encode; or the same bytes again. Returns the message and the encoding's milliseconds."""
        release = self._agree_on_noise(config, release)
        run, noise = self._settings.name, release.noise_stddev
        digest = event_digest(self._settings, self._client, release.round, noise, request)
        stored = self._ledger.stored(run, digest, release.round)
        if stored is not None:
            return stored, 0.0
        keys = self._event_keys(config, release, digest)
        self._ledger.commit(
            run, digest, release, lambda of_run, of_all: self._policy.check(self._rules, of_run, of_all)
        )
        update = compute()
        started = time.perf_counter()
        message = channel.encode(update, ChannelEvent(run, release.round, self._client, k, noise), keys)
        milliseconds = 1e3 * (time.perf_counter() - started)
        self._ledger.finish(digest, message)
        return message, milliseconds

    def _agree_on_noise(self, config: Config, release: GaussianRelease) -> GaussianRelease:
        """The release with the server's σ, which must be the plan's but for the last bits of two machines' libraries."""
        asked, planned = config.get("noise-stddev"), release.noise_stddev
        if not isinstance(asked, float) or not abs(asked - planned) <= 1e-9 * planned:
            raise RequestRefused(Refusal.REQUEST, f"noise-stddev must be the plan's {planned!r}, asked {asked!r}")
        return dataclasses.replace(release, noise_stddev=asked)

    def _event_keys(self, config: Config, release: GaussianRelease, digest: str) -> EventKeys:
        if self._settings.deterministic:
            return deterministic_event_keys(self._settings.seed, client=self._client, round=release.round)
        peer = config.get("public-key")
        if not isinstance(peer, bytes) or len(peer) != 32:
            raise RequestRefused(Refusal.REQUEST, "public-key must be 32 bytes")
        return shared_event_keys(self._private_key, peer, event=digest)

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

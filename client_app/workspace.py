"""What a worker process builds once and keeps: data, partition, model, basis and buffers.

Virtual clients are re-created for every message, workers are not; nothing here belongs to one client's secrets.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F

from client_app.gradient_path import Gradients, make_gradients
from client_app.gradients import BatchGradient
from client_app.sources import Place, RecordSource, source_of
from common.basis import Basis
from common.data.records import ClientRecords, standardization
from common.model import FlatModel
from common.numerics import check_device, pin_torch
from common.rules import Rules, make_rules
from common.settings import Settings
from common.space import basis_of, reference_of

_EVALUATION_BATCH = 200


class Workspace:
    """Everything that clients of one process share."""

    def __init__(self, settings: Settings, source: RecordSource) -> None:
        pin_torch()
        check_device(settings)
        self.settings = settings
        self.rules: Rules = make_rules(settings)
        spec = self.rules.spec
        self.source = source
        self.model: FlatModel
        self.theta_ref: torch.Tensor
        self.model, self.theta_ref = reference_of(settings, spec, settings.device)
        self.basis: Basis = basis_of(self.rules.space, seed=settings.seed, device=settings.device)
        self.gradients: Gradients = make_gradients(
            self.model, self.basis, spec.image_shape, reproduction=settings.deterministic
        )
        self.shift, self.scale = standardization(spec, settings.input_scaling)

    def records(self, client: int) -> ClientRecords:
        """The records of a client."""
        return self.source.records(client)

    def theta(self, coefficients: torch.Tensor) -> torch.Tensor:
        """θ_i = θ_ref + P a_i (eq. 3): (k,) → (d_theta,)."""
        return self.theta_ref + self.basis.expand(coefficients)

    def gradient(self, client: int, coefficients: torch.Tensor, positions: np.ndarray) -> BatchGradient:
        """Eq. 4-5 without the noise, at a_i = `coefficients` (k,), on a client's records at `positions`."""
        inputs, labels = self.inputs(client, positions)
        return self.gradients(
            self.theta(coefficients),
            inputs,
            labels,
            clip_norm=self.settings.clip_norm,
            denominator=self.settings.batch_records,
        )

    def evaluate(self, client: int, coefficients: torch.Tensor, positions: np.ndarray) -> tuple[float, int]:
        """Mean loss and number of correct answers of the model at `coefficients` (k,) on records at `positions`."""
        self.model.load(self.theta(coefficients))
        loss, correct = 0.0, 0
        for start in range(0, len(positions), _EVALUATION_BATCH):
            inputs, labels = self.inputs(client, positions[start : start + _EVALUATION_BATCH])
            with torch.no_grad():
                logits = self.model(inputs)
            loss += float(F.cross_entropy(logits, labels, reduction="sum"))
            correct += int((logits.argmax(1) == labels).sum())
        return loss / len(positions), correct

    def inputs(self, client: int, positions: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """Model inputs and labels of a client's records at `positions`."""
        return self.records(client).tensors(positions, self.shift, self.scale, self.model.device)


@lru_cache(maxsize=1)
def workspace(settings: Settings, place: Place) -> Workspace:
    """The workspace of this process for these settings and records; another run's replaces it."""
    return Workspace(settings, source_of(settings, place))

"""One client's records as tensors: what the model and φ see."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from common.data.cache import Dataset
from common.data.catalog import DatasetSpec


def standardization(spec: DatasetSpec, scaling: str) -> tuple[np.ndarray, np.ndarray]:
    """Shift and scale per channel of `input-scaling`, each (channels, 1, 1) float32."""
    if scaling == "unit":
        return np.zeros((spec.image_shape[0], 1, 1), np.float32), np.ones((spec.image_shape[0], 1, 1), np.float32)
    return (
        np.array(spec.mean, np.float32).reshape(-1, 1, 1),
        np.array(spec.stddev, np.float32).reshape(-1, 1, 1),
    )


@dataclass(frozen=True)
class ClientRecords:
    """An ordered list of records.

    Attributes:
        images: (n, channels, height, width) float32 in [0, 1].
        labels: (n,) int64.
    """

    images: np.ndarray
    labels: np.ndarray

    @classmethod
    def of(cls, dataset: Dataset, indices: np.ndarray) -> ClientRecords:
        """The records at `indices` of the official training split."""
        raw = dataset.images[indices]
        if raw.ndim == 3:
            raw = raw[..., None]
        images = np.ascontiguousarray(raw.transpose(0, 3, 1, 2), dtype=np.float32) / np.float32(255.0)
        return cls(images, dataset.labels[indices].astype(np.int64))

    def __len__(self) -> int:
        return len(self.labels)

    def tensors(
        self, positions: np.ndarray, shift: np.ndarray, scale: np.ndarray, device: torch.device
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Model inputs (n, channels, height, width) and labels (n,) at `positions`, in fresh memory."""
        inputs = (self.images[positions] - shift) / scale
        return torch.tensor(inputs, device=device), torch.tensor(self.labels[positions], device=device)

"""A personal model that takes images as they are: the scaling of its input is its own business."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import common  # noqa: F401  (first: pins the numerics before NumPy and torch are loaded)

# isort: split
import numpy as np
import torch
from torch import nn

from client_app import personal_model
from common.data.own import as_images
from common.data.records import standardization
from common.rules import Rules
from common.space import basis_of, reference_of

_BATCH = 200


@dataclass(frozen=True)
class PersonalModel:
    """One client's model.

    Attributes:
        module: the network, in evaluation mode; its input is standardised already.
        image_shape: (channels, height, width) of one record.
        shift, scale: per channel, (channels, 1, 1): the module's input is (image − shift)/scale.
    """

    module: nn.Module
    image_shape: tuple[int, int, int]
    shift: np.ndarray
    scale: np.ndarray

    def logits(self, images: np.ndarray) -> np.ndarray:
        """Scores by class, (n, classes) float32.

        Args:
            images: (n, channels, height, width), (n, height, width, channels), or (n, height, width) for one channel;
                uint8, or floats in [0, 1].

        Raises:
            DataError: another shape or type.
            ValueError: floats outside [0, 1], so in another scale than the model was trained with.
        """
        pixels = as_images(images, self.image_shape, "images")
        low, high = float(pixels.min()), float(pixels.max())
        if not (low >= 0.0 and high <= 1.0):
            raise ValueError(f"images must be uint8, or floats in [0, 1]. Received values from {low:g} to {high:g}.")
        inputs = torch.tensor((pixels - self.shift) / self.scale, dtype=torch.float32)
        with torch.no_grad():
            parts = [self.module(part) for part in inputs.split(_BATCH)]
        result: np.ndarray = torch.cat(parts).numpy()
        return result

    def predict(self, images: np.ndarray) -> np.ndarray:
        """The most likely class of each image, (n,) int64; `images` as for `logits`."""
        result: np.ndarray = self.logits(images).argmax(axis=1)
        return result


def load_model(folder: str | Path) -> PersonalModel:
    """The personal model that a node keeps in its state directory, `models/<run>`.

    Raises:
        ValueError: the folder's two files don't belong together.
        OSError: they are not there.

    Example:
        >>> import papfl
        >>> papfl.load_model(model_folder).predict(images[:2]).shape
        (2,)
    """
    module, metadata = personal_model.read_model(Path(folder))
    channels = metadata["image_shape"][0]
    shift, scale = (
        np.array(metadata["input"][key], np.float32).reshape(channels, 1, 1) for key in ("subtract", "divide_by")
    )
    return PersonalModel(module, tuple(metadata["image_shape"]), shift, scale)


def model_of(rules: Rules, coefficients: np.ndarray) -> PersonalModel:
    """The model at `coefficients` (k,) float32 (eq. 3)."""
    settings, spec = rules.settings, rules.spec
    model, theta = reference_of(settings, spec)
    basis = basis_of(rules.space, seed=settings.seed)
    model.load(theta + basis.expand(torch.tensor(coefficients)))
    return PersonalModel(model.module.eval(), spec.image_shape, *standardization(spec, settings.input_scaling))

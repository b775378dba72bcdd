"""A fast transform: P = D Cᵀ E with random signs D, the orthonormal cosine transform C and k random frequencies E.

PᵀP = Eᵀ C D D Cᵀ E = I. Every coefficient reaches every parameter, unlike the fold; both maps cost O(d log d).
"""

import numpy as np
import scipy.fft
import torch

from common.randomness import Purpose, public_generator


class CosineBasis:
    """P as signs and selected frequencies. Memory: d_theta floats; `project` also needs a copy of its input."""

    def __init__(self, dim: int, num_coefficients: int, *, seed: int, device: str = "cpu") -> None:
        self.dim, self.num_coefficients, self._device = dim, num_coefficients, device
        rng = public_generator(seed, Purpose.BASIS)
        self._signs = (1.0 - 2.0 * rng.integers(0, 2, size=dim)).astype(np.float32)
        self._frequencies = np.sort(rng.choice(dim, num_coefficients, replace=False))

    def expand(self, coefficients: torch.Tensor) -> torch.Tensor:
        """See `Basis.expand`."""
        spectrum = np.zeros(self.dim, dtype=np.float32)
        spectrum[self._frequencies] = coefficients.cpu().numpy()
        parameters = scipy.fft.idct(spectrum, norm="ortho", workers=1) * self._signs
        return torch.tensor(parameters, dtype=torch.float32, device=self._device)

    def project(self, gradients: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """See `Basis.project`."""
        signed = gradients.cpu().numpy() * self._signs
        spectrum = scipy.fft.dct(signed, norm="ortho", axis=1, overwrite_x=True, workers=1)
        result = torch.from_numpy(spectrum[:, self._frequencies])
        if out is None:
            return result.to(self._device)
        return out.copy_(result)

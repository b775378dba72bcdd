"""Dense QR of a Gaussian matrix: the reference for the structured bases, for small sizes only."""

import numpy as np
import torch

from common.randomness import Purpose, public_generator

# 200 MB of float32: QR time and memory grow past usefulness beyond it.
MAX_ENTRIES = 50_000_000


class DenseBasis:
    """P stored as a (d_theta, k) matrix."""

    def __init__(self, dim: int, num_coefficients: int, *, seed: int, device: str = "cpu") -> None:
        self.dim, self.num_coefficients = dim, num_coefficients
        gaussian = public_generator(seed, Purpose.BASIS).standard_normal((dim, num_coefficients))
        q, r = np.linalg.qr(gaussian)
        # Signs of the diagonal make the factorisation unique, whatever the LAPACK.
        self.matrix = torch.tensor(q * np.sign(np.diag(r)), dtype=torch.float32, device=device)

    def expand(self, coefficients: torch.Tensor) -> torch.Tensor:
        """See `Basis.expand`."""
        return self.matrix @ coefficients

    def project(self, gradients: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """See `Basis.project`."""
        return torch.matmul(gradients, self.matrix, out=out)

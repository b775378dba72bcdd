"""No adaptation subspace: coefficients are the parameters themselves. For variants that release full-model gradients."""

import torch


class IdentityBasis:
    """P = I."""

    def __init__(self, dim: int, num_coefficients: int, *, seed: int, device: str = "cpu") -> None:
        if num_coefficients != dim:
            raise ValueError(f"basis 'identity' needs num-coefficients = d_theta = {dim}. Received {num_coefficients}.")
        self.dim = self.num_coefficients = dim

    def expand(self, coefficients: torch.Tensor) -> torch.Tensor:
        """See `Basis.expand`."""
        return coefficients

    def project(self, gradients: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """See `Basis.project`. Without `out` the input itself comes back: no copy of a full gradient is made."""
        return gradients if out is None else out.copy_(gradients)

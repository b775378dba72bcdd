"""Variants: maps from a client's context to the coefficients of its model (docs/method.md, sections 2 and 8).

One small class each. A new one is one file, one line in `VARIANTS`, one name in `common.settings`.
"""

from collections.abc import Callable

import torch

from common.settings import Settings
from server_app.variants.base import Variant
from server_app.variants.deeplin import DeepLinear
from server_app.variants.direct import Direct, Replay
from server_app.variants.factorized import Factorized
from server_app.variants.local import Local
from server_app.variants.radial import Radial

# Name → builder from (settings, k, context length, public vector u_0 of the same length).
VARIANTS: dict[str, Callable[[Settings, int, torch.Tensor], Variant]] = {
    "ours": lambda settings, k, u0: Factorized(settings, k, len(u0)),
    "full": lambda settings, k, u0: Factorized(settings, k, len(u0)),
    "deeplin": lambda settings, k, u0: DeepLinear(settings, k, len(u0)),
    "global": lambda settings, k, u0: Direct(k),
    "direct": lambda settings, k, u0: Direct(k),
    "deeplin-u0": lambda settings, k, u0: DeepLinear(settings, k, len(u0), public=u0),
    "factorized-u0": lambda settings, k, u0: Factorized(settings, k, len(u0), public=u0),
    "radial-u0": lambda settings, k, u0: Radial(settings, k, u0),
    "replay-u0": lambda settings, k, u0: Replay(settings, k),
    "local": lambda settings, k, u0: Local(k, settings.num_participating),
}

__all__ = ["VARIANTS", "Variant"]

"""papfl as a library: everything that a program of yours needs, under one name.

Run a federation in this process, and use a client's personal model:

    >>> import papfl
    >>> settings = papfl.settings(
    ...     dataset="mnist", num_rounds=2, num_participating=4, num_future=1, records_per_client=100,
    ...     context_records=40, batch_records=40, num_coefficients=512, tensorboard=False, out_dir=out_dir,
    ... )
    >>> result = papfl.simulate(settings)
    >>> result.epsilon <= settings.epsilon
    True
    >>> result.model(client=4).predict(images[:3]).shape
    (3,)

Importing this is quick: what a name needs is loaded when the name is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from common.channel.base import ChannelError
    from common.channel.lrsuq import decode, encode
    from common.data.cache import DataError
    from common.privacy.accountant import GdpAccountant, RdpAccountant, worst_record_rho
    from common.privacy.events import GaussianRelease
    from common.randomness import fresh_key
    from common.settings import Settings
    from papfl.models import PersonalModel, load_model
    from papfl.simulation import Result, explain, settings, simulate

_HOME = {
    "settings": "papfl.simulation",
    "simulate": "papfl.simulation",
    "explain": "papfl.simulation",
    "Result": "papfl.simulation",
    "load_model": "papfl.models",
    "PersonalModel": "papfl.models",
    "Settings": "common.settings",
    "encode": "common.channel.lrsuq",
    "decode": "common.channel.lrsuq",
    "ChannelError": "common.channel.base",
    "fresh_key": "common.randomness",
    "GaussianRelease": "common.privacy.events",
    "worst_record_rho": "common.privacy.accountant",
    "RdpAccountant": "common.privacy.accountant",
    "GdpAccountant": "common.privacy.accountant",
    "DataError": "common.data.cache",
}

__all__ = [
    "ChannelError",
    "DataError",
    "GaussianRelease",
    "GdpAccountant",
    "PersonalModel",
    "RdpAccountant",
    "Result",
    "Settings",
    "decode",
    "encode",
    "explain",
    "fresh_key",
    "load_model",
    "settings",
    "simulate",
    "worst_record_rho",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("papfl")
    if name not in _HOME:
        raise AttributeError(f"module 'papfl' has no attribute {name!r}. It has {', '.join(__all__)}.")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

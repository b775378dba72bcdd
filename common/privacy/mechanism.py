"""The seam between a run and how it becomes private: one mechanism per file, chosen by `make_mechanism`.

A mechanism is public: a function of the settings, equal on server and clients before anything is sent. It says how much
noise each side adds, what each release books in a ledger, and what a client checks a request for. What a release costs is
the accountant's business (`common.privacy.accountant`), how noise is drawn the channel's.
"""

from __future__ import annotations

from typing import Any, Protocol

from common.context import ContextMap
from common.privacy.events import GaussianRelease
from common.privacy.per_release import PerRelease
from common.schedule import Schedule
from common.settings import Settings


class Mechanism(Protocol):
    """How the releases of a run become private.

    Attributes:
        epsilon: ε of the client that pays most if all that is planned is spent; inf without noise.
        update_noise: standard deviation of one coordinate of one client's update, as the server learns from it. Settings
            that follow the noise go by it; it may not depend on the coefficient space, which follows it.
    """

    @property
    def epsilon(self) -> float: ...  # noqa: D102

    @property
    def update_noise(self) -> float: ...  # noqa: D102

    def channel_noise(self, client: int, round: int) -> float:
        """Standard deviation that a client's channel adds to one coordinate in a round; round 0 is its context."""

    def server_noise(self, round: int) -> float:
        """Standard deviation that the server adds to one entry of a round's aggregate before it moves the generator; 0: none."""

    def event(self, client: int, round: int) -> GaussianRelease:
        """What a client's part in a round books, in its own ledger and in the server's; round 0 is its context."""

    def terms(self, client: int, round: int) -> dict[str, float]:
        """What a request must say about privacy: the client refuses one that says anything else."""

    def facts(self) -> dict[str, Any]:
        """For summary.json: noise and sensitivities, plain values."""

    def explain(self) -> list[tuple[str, str, str]]:
        """For `papfl explain`: name, value and meaning of each noise and sensitivity."""


def make_mechanism(settings: Settings, schedule: Schedule, context_map: ContextMap) -> Mechanism:
    """The mechanism of a run.

    Raises:
        ValueError: settings that it cannot be calibrated for.
    """
    return PerRelease(settings, schedule, context_map)

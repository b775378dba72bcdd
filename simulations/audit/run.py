"""One real run on records with canaries, and everything that a white-box adversary sees of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from client_app.app import app
from client_app.sources import Place
from client_app.workspace import Workspace, workspace
from common.places import expand
from common.privacy.report import privacy_report
from common.rules import Rules, make_rules
from common.settings import Settings
from server_app.results import RunFolder
from server_app.strategy import PersonalizedStrategy
from simulations.audit.canaries import CanaryRecords
from simulations.grid import InProcessGrid


@dataclass(frozen=True)
class Release:
    """One decoded release (k,), and the coefficients (k,) at which it was computed."""

    client: int
    coefficients: np.ndarray
    update: np.ndarray


@dataclass
class Transcript:
    """What the trusted server saw, and where it ended.

    Attributes:
        contexts: client → decoded context (2s,).
        final: client → coefficients of the finished personal model.
        epsilon: of the worst client, from the ledger.
    """

    space: Workspace
    records: CanaryRecords
    releases: list[Release] = field(default_factory=list)
    contexts: dict[int, np.ndarray] = field(default_factory=dict)
    final: dict[int, np.ndarray] = field(default_factory=dict)
    epsilon: float | None = None


class _Recording(PersonalizedStrategy):
    """The strategy, with a note of what it decodes."""

    def __init__(self, rules: Rules, folder: RunFolder, transcript: Transcript) -> None:
        super().__init__(rules, folder)
        self._transcript = transcript

    def on_updates(self, sent: Mapping[int, np.ndarray], updates: Mapping[int, np.ndarray]) -> None:
        """See `PersonalizedStrategy.on_updates`."""
        self._transcript.releases += [Release(client, sent[client], updates[client]) for client in sorted(updates)]


def run_with_canaries(settings: Settings, per_client: int, trial: int) -> Transcript:
    """Train in this process, by the real ServerApp and ClientApps, on records with canaries.

    Raises:
        ValueError: settings that don't go together, too many canaries, a run folder that is in use.
    """
    rules, data_dir = make_rules(settings), expand("data-dir", settings.data_dir)
    space = workspace(settings, Place(data_dir))  # the one that the clients of this process use
    records = CanaryRecords(settings, data_dir, per_client, trial)
    space.source = records
    transcript = Transcript(space, records)
    folder = RunFolder(settings)
    with folder.locked():
        folder.create(settings)
        strategy = _Recording(rules, folder, transcript)
        strategy.start(InProcessGrid(app, settings))
    if workspace(settings, Place(data_dir)) is not space:
        raise RuntimeError("the process's workspace was replaced during the audit: its records were not the canaries")
    generator = strategy.state.generator
    transcript.contexts = dict(generator.contexts)
    transcript.final = {client: generator.coefficients(client) for client in range(settings.num_participating)}
    transcript.epsilon = privacy_report(strategy.state.ledger, settings)["epsilon"]
    return transcript

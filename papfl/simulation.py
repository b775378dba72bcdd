"""A whole federation in this process: settings in, metrics, ledger and models out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import common  # noqa: F401  (first: pins the numerics before NumPy and torch are loaded)

# isort: split
from common.privacy.events import GaussianRelease
from common.rules import make_rules
from common.settings import Settings
from papfl.models import PersonalModel, model_of
from server_app.results import RunFolder
from server_app.state import ServerState
from simulations import explain as explaining
from simulations.run import run_in_process


def settings(**values: Any) -> Settings:
    """Settings by keyword, a preset applied to whatever isn't given.

    Args:
        values: as in docs/settings.md, with `_` for `-`; "auto" where a setting allows it.

    Raises:
        ValueError: an unknown setting, a wrong type, a value out of range, or values that don't go together; named.

    Example:
        >>> import papfl
        >>> papfl.settings(preset="aligned", epsilon=4.0).accountant
        'gdp'
        >>> papfl.settings(preset="aligned", accountant="rdp").accountant  # what is given wins
        'rdp'
    """
    given = {name.replace("_", "-"): value for name, value in values.items()}
    return Settings.from_config(given, given=given)


def explain(settings: Settings) -> dict[str, dict[str, tuple[str, str]]]:
    """What settings mean before anything is spent: section → name → (value, meaning). `papfl explain` as a function.

    Raises:
        ValueError: settings that don't go together.

    Example:
        >>> import papfl
        >>> papfl.explain(papfl.settings(num_rounds=20, epsilon=4.0))["privacy"]["epsilon"][0]
        '4'
    """
    sections = explaining.explain(settings, settings.preset)
    return {title: {line.name: (line.value, line.meaning) for line in lines} for title, lines in sections}


@dataclass(frozen=True)
class Result:
    """A finished run.

    Attributes:
        settings: what was run.
        folder: where everything about it is written: settings, metrics, ledger, generator.
        summary: as in summary.json.
        metrics: a row per round.
        ledger: every release that was asked for, of all clients.
    """

    settings: Settings
    folder: Path
    summary: dict[str, Any]
    metrics: list[dict[str, Any]]
    ledger: tuple[GaussianRelease, ...]

    @property
    def epsilon(self) -> float | None:
        """ε of the client that paid most; None: no guarantee."""
        value: float | None = self.summary["privacy"]["epsilon"]
        return value

    @property
    def seen(self) -> float | None:
        """Mean accuracy of the clients that trained, on their held-out records; None without diagnostics."""
        value: float | None = self.summary["accuracy"]["seen"]
        return value

    @property
    def future(self) -> float | None:
        """Mean accuracy of the clients that never trained; None without diagnostics."""
        value: float | None = self.summary["accuracy"]["future"]
        return value

    def model(self, client: int) -> PersonalModel:
        """The personal model of a client.

        Raises:
            ValueError: a client without a context, and so without a model.
        """
        rules = make_rules(self.settings)
        state = ServerState(rules, RunFolder(self.settings))
        state.restore(exact=False)
        if client not in state.generator.contexts:
            raise ValueError(f"client must be one of {sorted(state.generator.contexts)}. Received {client!r}.")
        return model_of(rules, state.generator.coefficients(client))


def simulate(settings: Settings) -> Result:
    """Run a whole federation in this process, by the real ServerApp and ClientApps. One core; no Ray, no `flwr run`.

    Results are written below `settings.out_dir`, as by `papfl run`. The data set must be in the cache (`papfl data fetch`).

    Raises:
        ValueError: settings that don't go together, or a run of this name is there already.
        DataError: the data set is not in the cache.

    Example: see `papfl`.
    """
    for _ in run_in_process(settings):
        pass
    folder = RunFolder(settings)
    ledger = json.loads((folder.path / "ledger.json").read_text())
    return Result(
        settings=settings,
        folder=folder.path,
        summary=json.loads(folder.summary.read_text()),
        metrics=folder.read_metrics(),
        ledger=tuple(GaussianRelease.from_json(event) for event in ledger),
    )

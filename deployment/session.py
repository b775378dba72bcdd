"""From start to stop: a run on a federation of this machine, and the personalisation of a finished run."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from common.data.cache import require_cached
from common.flower import FlowerCli
from common.places import expand, require_writable
from common.rules import make_rules
from common.settings import Settings
from deployment.follow import follow, submit
from deployment.layout import Layout
from deployment.local import LocalFederation
from deployment.pki import initialise
from server_app.personalize import REPORT
from server_app.results import RunFolder


class Session:
    """A run in progress: `rows` drives it; the rest is there once they are consumed.

    Attributes:
        rows: metrics by round.
    """

    def __init__(self, settings: Settings, rows: Iterator[dict[str, Any]]) -> None:
        self.rows, self._folder = rows, RunFolder(settings)

    def summary(self) -> dict[str, Any]:
        """Of the finished run."""
        content: dict[str, Any] = json.loads(self._folder.summary.read_text())
        return content

    def personalized(self) -> dict[str, Any]:
        """Outcome by client; empty if nobody was personalised."""
        path = self._folder.path / REPORT
        clients: dict[str, Any] = json.loads(path.read_text())["clients"] if path.exists() else {}
        return clients


def run_locally(layout: Layout, settings: Settings, *, late: int = 0, personalize: bool = False) -> Session:
    """Start a federation on loopback, run, stop.

    Args:
        late: nodes, the last ones, that are started after training.
        personalize: give every node its model at the end.

    Raises:
        ValueError: settings that cannot run, or a results folder that must not be overwritten.
        DataError: the data set is not in the cache.
    """
    make_rules(settings)
    if settings.dataset == "own":
        raise ValueError(
            "dataset must be mnist or cifar10 for `papfl deploy local`; nodes with own records: docs/deployment.md. "
            "Received 'own'."
        )
    require_cached(settings.dataset, expand("data-dir", settings.data_dir))
    folder = RunFolder(settings)
    require_writable("out-dir", folder.path)
    require_writable("--folder", layout.root)
    folder.check(resume=settings.resume)
    folder.failure.unlink(missing_ok=True)
    initialise(layout, nodes=settings.num_clients)
    return Session(settings, _run(layout, settings, late, personalize))


def _run(layout: Layout, settings: Settings, late: int, personalize: bool) -> Iterator[dict[str, Any]]:
    first = range(settings.num_clients - late)
    with LocalFederation(layout) as federation:
        for node in range(settings.num_clients):
            federation.register(node)
        for node in first:
            federation.add_node(node, node_config(settings, node))
        yield from _follow(federation, settings)
        for node in range(first.stop, settings.num_clients):
            federation.add_node(node, node_config(settings, node))
        federation.wait_for_nodes()
        if personalize:
            for _ in _follow(federation, dataclasses.replace(settings, task="personalize")):
                pass


def _follow(federation: LocalFederation, settings: Settings) -> Iterator[dict[str, Any]]:
    run_id = submit(federation.flwr, settings)
    return follow(
        federation.flwr,
        settings,
        run_id,
        results=Path(settings.out_dir),
        look_after=federation.alive,
        log_tail=federation.log_tail,
    )


def node_config(settings: Settings, node: int) -> dict[str, Any]:
    """A node that holds a share of a public data set: its diagnostics may be seen, and its noise if the run says so."""
    return {
        "partition-id": node,
        "num-partitions": settings.num_clients,
        "data-dir": str(expand("data-dir", settings.data_dir).resolve()),
        "diagnostics": settings.diagnostics,
        "allow-deterministic": settings.deterministic,
    }


def personalize_run(flwr: FlowerCli, results: Path, name: str) -> dict[str, Any]:
    """`papfl personalize`: contexts of clients that joined since, models to all; returns the report.

    Args:
        results: folder of run folders as seen from here.

    Raises:
        ValueError: no finished run of that name.
        SuperLinkError: the personalisation did not complete.
    """
    settings_file = results / name / "settings.json"
    if not (results / name / "summary.json").exists() or not settings_file.exists():
        raise ValueError(f"--run must be a finished run in {results}. Received {name!r}.")
    settings = Settings.from_config({**json.loads(settings_file.read_text()), "task": "personalize", "resume": False})
    folder = RunFolder(dataclasses.replace(settings, out_dir=str(results)))
    folder.failure.unlink(missing_ok=True)
    for _ in follow(flwr, settings, submit(flwr, settings), results=results):
        pass
    report: dict[str, Any] = json.loads((folder.path / REPORT).read_text())
    return report

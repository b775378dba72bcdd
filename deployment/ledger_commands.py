"""`papfl ledger …`: what a data holder's records have spent and have left, and how to book what a lost ledger forgot."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
from pathlib import Path
from typing import Any

from client_app.policy import DEFAULT_DELTA, OWN_ACCOUNTANT
from client_app.sqlite_ledger import LEDGER, SqliteLedger, over_all_runs
from common.privacy.accountant import worst_record_rho
from common.privacy.events import GaussianRelease
from common.settings import Settings
from common.validation import number


def add_ledger(commands: Any) -> None:
    """Register the commands with `papfl`."""
    ledger = commands.add_parser("ledger", help="what a client has spent").add_subparsers(required=True)
    show = ledger.add_parser("show", help="what these records have spent over all runs, and what is left")
    show.add_argument("path", type=Path, help="the node's state directory, or its ledger.sqlite")
    show.add_argument("--max-epsilon", type=float, help="the node's max-epsilon: shows what is left of it")
    show.add_argument("--delta", type=float, default=DEFAULT_DELTA, help="the node's max-delta (default: 1e-5)")
    show.add_argument("--releases", action="store_true", help="list every single release")
    show.set_defaults(handler=_show)
    add = ledger.add_parser("add", help="book releases that a server's ledger.json proves, after a restored back-up")
    add.add_argument("path", type=Path, help="the node's state directory")
    add.add_argument("--from", dest="source", type=Path, required=True, help="ledger.json of the run")
    add.add_argument("--run", required=True, help="name of the run")
    add.add_argument("--client", type=int, required=True, help="this client's number in it")
    add.set_defaults(handler=_add)
    export = ledger.add_parser("export", help="print the ledger.json of a run, finished or not, for its data holders")
    export.add_argument("path", type=Path, help="the run's folder")
    export.set_defaults(handler=_export)


def _ledger_at(path: Path) -> SqliteLedger:
    file = path / LEDGER if path.is_dir() else path
    if not file.is_file():
        raise ValueError(
            f"PATH must be a node's state directory, or its {LEDGER}. There is no ledger at {path}: nothing was read or changed."
        )
    return SqliteLedger(file)


def _show(options: argparse.Namespace) -> int:
    delta = number("--delta", options.delta, above=0.0, below=1.0)
    budget = None if options.max_epsilon is None else number("--max-epsilon", options.max_epsilon, above=0.0)
    rows = _ledger_at(options.path).rows()
    runs: dict[str, list[GaussianRelease]] = {}
    for run, event in rows:
        runs.setdefault(run, []).append(event)
    for run, events in runs.items():
        kinds = ", ".join(f"{sum(e.kind == kind for e in events)} {kind}" for kind in ("context", "gradient"))
        noises = " ".join(f"{noise:.5g}" for noise in sorted({event.noise_stddev for event in events}))
        print(f"{run}: epsilon {_spent(events, delta)}; {kinds}; sigma {noises}")
        if options.releases:
            for event in events:
                print(
                    f"  round {event.round} {event.kind}: sigma {event.noise_stddev:.6g}, "
                    f"sensitivity {event.sensitivity:.6g}, rho {event.rho:.6g}"
                )
    print(f"in all: {len(rows)} releases of {len(runs)} runs")
    events = over_all_runs(rows)
    single = len({event.order for event in events if event.records is not None}) == 1
    print(f"spent: epsilon {_spent(events, delta)} at delta {delta:g}, by exact accounting")
    print(f"for:   {'the record that paid most' if single else 'each of these records'}")
    if budget is not None:
        print(f"left:  {_left(events, budget, delta)}")
    return 0


def _spent(events: list[GaussianRelease], delta: float) -> str:
    epsilon = OWN_ACCOUNTANT.epsilon(worst_record_rho(events), delta)
    return "unbounded (a run without noise, or with public noise)" if math.isinf(epsilon) else f"{epsilon:.4g}"


def _left(events: list[GaussianRelease], budget: float, delta: float) -> str:
    rho = OWN_ACCOUNTANT.rho(budget, delta) - worst_record_rho(events)
    if rho <= 0:
        return f"nothing of max-epsilon {budget:g}: the node refuses every further release"
    return f"of max-epsilon {budget:g}, a run that alone costs epsilon {OWN_ACCOUNTANT.epsilon(rho, delta):.4g}"


def _add(options: argparse.Namespace) -> int:
    try:
        events = [GaussianRelease.from_json(entry) for entry in json.loads(options.source.read_text())]
        beside = options.source.with_name("settings.json")
        settings = json.loads(beside.read_text()) if beside.exists() else {}
        public = bool(settings.get("deterministic", False))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"--from must be a ledger.json that a run wrote. Received {options.source}: {error}."
        ) from None
    own = [event for event in events if event.client == options.client]
    if public:  # 0.1.0 wrote the planned noise of such a run, which protects nothing
        own = [dataclasses.replace(event, noise_stddev=0.0) for event in own]
    print(f"{_ledger_at(options.path).add(options.run, own)} of {len(own)} releases added")
    return 0


def _export(options: argparse.Namespace) -> int:
    from common.rules import make_rules
    from server_app.recovery import spent_so_far
    from server_app.results import RunFolder
    from server_app.state import ServerState
    from server_app.summary import ledger_json

    try:
        settings = Settings.from_config(json.loads((options.path / "settings.json").read_text()))
    except (OSError, ValueError, AttributeError) as error:
        raise ValueError(f"PATH must be the folder of a run. Received {options.path}: {error}.") from None
    settings = dataclasses.replace(
        settings, out_dir=str(options.path.resolve().parent), run_name=options.path.resolve().name
    )
    ledger = spent_so_far(ServerState(make_rules(settings), RunFolder(settings)))
    print(json.dumps(ledger_json(settings, ledger), indent=2))
    return 0

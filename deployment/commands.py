"""`papfl deploy …` and `papfl personalize`: what operators and data holders run."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from common.settings import Settings
from deployment.ledger_commands import add_ledger

Parse = Callable[[argparse.Namespace], Settings]
DEFAULT_FOLDER = Path("deploy")


def add_commands(commands: Any, add_settings: Callable[[Any], None], parse: Parse) -> None:
    """Register the commands with `papfl`.

    Args:
        add_settings: adds every setting as an option; parse: settings from such options.
    """
    deploy = commands.add_parser("deploy", help="real federations: keys, processes, runs").add_subparsers(required=True)
    _add_init(deploy)
    _add_register(deploy)
    _add_local(deploy, add_settings, parse)
    _add_run(deploy, add_settings, parse)
    _add_personalize(commands)
    add_ledger(commands)


def _folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--folder", type=Path, default=DEFAULT_FOLDER, help="the deployment's folder (default: deploy)")


def _superlink(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--address", default="localhost:8000", help="host:port of the SuperLink")
    parser.add_argument("--ca", type=Path, help="its certificate authority (default: the deployment's)")


def _add_init(deploy: Any) -> None:
    init = deploy.add_parser("init", help="make certificates, node keys and compose services; overwrites nothing")
    _folder(init)
    init.add_argument("--nodes", type=int, required=True)
    init.add_argument("--name", action="append", default=[], help="further name or address of the SuperLink")
    init.add_argument("--owner", type=int, help="give the files to this user id: that of the containers")
    init.set_defaults(handler=_init)


def _init(options: argparse.Namespace) -> int:
    from deployment.compose import check_folder, write_services
    from deployment.layout import Layout
    from deployment.pki import initialise

    if options.nodes < 1:
        raise ValueError(f"--nodes must be an integer >= 1. Received {options.nodes}.")
    layout = Layout(options.folder)
    check_folder(layout)
    made = initialise(layout, nodes=options.nodes, names=options.name)
    layout.results.mkdir(exist_ok=True)
    write_services(layout, options.nodes)
    if options.owner is not None:
        for path in [layout.root, *layout.root.rglob("*")]:
            if layout.local not in path.parents:
                os.chown(path, options.owner, options.owner)
    for path in made:
        print(f"made {path}")
    print(f"{layout.root}: {options.nodes} nodes")
    return 0


def _add_register(deploy: Any) -> None:
    register = deploy.add_parser("register", help="admit the node keys of the folder at the SuperLink")
    _folder(register)
    _superlink(register)
    register.set_defaults(handler=_register)


def _register(options: argparse.Namespace) -> int:
    from deployment.layout import Layout
    from deployment.local import register

    layout = Layout(options.folder)
    flwr = _cli(options)
    for node in layout.nodes():
        register(flwr, layout.node_key(node).with_suffix(".pub"))
        print(f"node {node}: registered")
    return 0


def _cli(options: argparse.Namespace) -> Any:
    from common.flower import FlowerCli
    from deployment.layout import Layout

    ca = (options.ca or Layout(options.folder).ca).resolve()
    if not ca.is_file():
        raise ValueError(f"--ca must be a certificate file (papfl deploy init makes one). Received {ca}.")
    return FlowerCli(None, options.address, ca)


def _add_local(deploy: Any, add_settings: Callable[[Any], None], parse: Parse) -> None:
    local = deploy.add_parser("local", help="the processes of a deployment on this machine: start, run, stop")
    _folder(local)
    local.add_argument("--nodes", type=int, default=4)
    local.add_argument("--rounds", type=int, default=5)
    local.add_argument("--future", type=int, default=1, help="nodes, the last ones, that never train")
    local.add_argument("--late", type=int, default=0, help="of these, nodes that join only after training")
    local.add_argument("--personalize", action="store_true", help="afterwards, give every node its model")
    add_settings(local)
    local.set_defaults(handler=lambda options: _local(options, parse))


def _local(options: argparse.Namespace, parse: Parse) -> int:
    from deployment.layout import Layout
    from deployment.session import run_locally
    from simulations.display import show_progress, show_summary

    if not 0 <= options.late <= options.future < options.nodes:
        raise ValueError(
            f"--late <= --future < --nodes must hold. Received {options.late}, {options.future}, {options.nodes}."
        )
    for name, instead in (("num_rounds", "--rounds"), ("num_participating", "--nodes"), ("num_future", "--future")):
        if getattr(options, name) is not None:
            raise ValueError(
                f"{instead} must be given instead of --{name.replace('_', '-')} here. Received {getattr(options, name)!r}."
            )
    layout = Layout(options.folder)
    options.num_participating, options.num_future = options.nodes - options.future, options.future
    options.num_rounds = options.rounds
    options.out_dir = options.out_dir or str(layout.local / "results")
    if options.clients_per_round is None:
        options.clients_per_round = min(Settings.clients_per_round, options.num_participating)
    with _named_as_here():
        settings = dataclasses.replace(parse(options), require_future=options.late == 0)
        session = run_locally(layout, settings, late=options.late, personalize=options.personalize or options.late > 0)
    console = Console()
    show_progress(session.rows, settings, console)
    show_summary(session.summary(), console)
    report = session.personalized()
    for client, outcome in report.items():
        console.print(f"node {client}: {outcome['status']}, epsilon {_epsilon(outcome)}")
    return 0 if all(outcome["status"] == "delivered" for outcome in report.values()) else 1


@contextlib.contextmanager
def _named_as_here() -> Iterator[None]:
    """Errors about settings that follow from the options of `deploy local` say from which."""
    own = {"num-participating": "--nodes minus --future", "num-future": "--future", "num-rounds": "--rounds"}
    try:
        yield
    except ValueError as error:
        names = ", ".join(f"{name} is {option}" for name, option in own.items() if name in str(error))
        raise ValueError(f"{error} Here, {names}." if names else str(error)) from None


def _epsilon(outcome: dict[str, Any]) -> str:
    return "unbounded" if outcome["epsilon"] is None else f"{outcome['epsilon']:.4g}"


def _add_run(deploy: Any, add_settings: Callable[[Any], None], parse: Parse) -> None:
    run = deploy.add_parser("run", help="run on a SuperLink whose nodes are there, and show the true outcome")
    _folder(run)
    _superlink(run)
    run.add_argument("--results", type=Path, help="out-dir as seen from here, if it isn't the ServerApp's")
    add_settings(run)
    run.set_defaults(handler=lambda options: _run(options, parse))


def _run(options: argparse.Namespace, parse: Parse) -> int:
    from common.rules import make_rules
    from deployment.follow import follow, submit
    from server_app.results import RunFolder
    from simulations.display import show_progress, show_summary

    settings = parse(options)
    make_rules(settings)  # refuses what cannot run, before it is sent
    results = (options.results or Path(settings.out_dir)).resolve()
    folder = RunFolder(dataclasses.replace(settings, out_dir=str(results)))
    folder.check(resume=settings.resume)
    folder.failure.unlink(missing_ok=True)
    console, flwr = Console(), _cli(options)
    run_id = submit(flwr, settings)
    show_progress(follow(flwr, settings, run_id, results=results), settings, console)
    show_summary(json.loads(folder.summary.read_text()), console)
    return 0


def _add_personalize(commands: Any) -> None:
    personalize = commands.add_parser(
        "personalize", help="give every connected client of a finished run its model, those that joined since included"
    )
    personalize.add_argument("--run", required=True, help="name of the finished run")
    personalize.add_argument(
        "--results",
        type=Path,
        default=DEFAULT_FOLDER / "results",
        help="folder of run folders (default: deploy/results)",
    )
    _folder(personalize)
    _superlink(personalize)
    personalize.set_defaults(handler=_personalize)


def _personalize(options: argparse.Namespace) -> int:
    from deployment.session import personalize_run

    report = personalize_run(_cli(options), options.results.resolve(), options.run)
    for client, outcome in report["clients"].items():
        print(f"client {client}: {outcome['status']}, epsilon {_epsilon(outcome)}")
    for problem in report["problems"]:
        print(f"not served: {problem}", file=sys.stderr)
    return 0 if all(outcome["status"] == "delivered" for outcome in report["clients"].values()) else 1

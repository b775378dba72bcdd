"""The end of a run: summary, ledger and generator in its folder."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any

import torch
from safetensors.torch import save

from common.data.splits import is_future
from common.files import write_atomically
from common.numerics import describe
from common.privacy.events import Ledger
from common.privacy.report import privacy_report
from common.settings import Settings
from server_app import geometry, metrics
from server_app.state import ServerState


def write_results(state: ServerState, hellos: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """Write ledger.json, generator.safetensors and, last, summary.json; returns the summary."""
    folder, settings = state.folder, state.settings
    rows = folder.read_metrics()
    privacy = privacy_report(state.ledger, settings)
    write_ledger(state)
    generator = write_generator(state)
    final = rows[-1]
    rates = [row["bits_per_coordinate"] for row in rows if "bits_per_coordinate" in row]
    summary = {
        "run": settings.name,
        "settings": settings.to_config(),
        "settings_digest": settings.digest(),
        "numerics": describe(),
        "privacy": privacy,
        "noise": {
            **state.rules.mechanism.facts(),
            "norm": state.rules.noise_norm,
        },
        "accuracy": {
            "round": final["round"],
            "seen": final.get("seen_accuracy"),
            "future": final.get("future_accuracy"),
            "per_client": final.get("accuracy_per_client"),
        },
        "references": _references(state, hellos),
        "partition": _manifest(hellos),
        "uplink": {
            "messages": sum(len(row["clients"]) for row in rows),
            "message_bytes": _sum(rows, "message_bytes"),
            "payload_bytes": _sum(rows, "payload_bytes"),
            "bits_per_coordinate": metrics.mean(rates) if rates else None,
        },
        "gains": geometry.gains(state.generator),
        "failed_replies": sum(len(row["failed"]) for row in rows),
        "failed_evaluations": sum(len(row.get("evaluation_failed", {})) for row in rows),
        "contexts_lost": sorted(state.ledger.spent_in(0) - set(state.generator.contexts)),
        "clients_without_context": sorted(set(range(settings.num_clients)) - set(state.generator.contexts)),
        "seconds": _sum(rows, "seconds"),
        "generator_digest": hashlib.sha256(generator).hexdigest(),
    }
    folder.write_clients({client: bytes(hello["public-key"]) for client, hello in hellos.items()})
    folder.write_json("summary.json", summary)
    # Together with Flower's stored messages it would reveal un-noised updates, and the run needs it no more.
    folder.server_key.unlink(missing_ok=True)
    return summary


def _sum(rows: list[dict[str, Any]], key: str) -> float | None:
    """Over the rounds; None where no round has it."""
    values = [row[key] for row in rows if key in row]
    return sum(values) if values else None


def update_summary(state: ServerState) -> None:
    """Ledger, generator and their part of a finished run's summary, after contexts were added to it."""
    write_ledger(state)
    generator = write_generator(state)
    summary = json.loads(state.folder.summary.read_text())
    summary["privacy"] = privacy_report(state.ledger, state.settings)
    summary["generator_digest"] = hashlib.sha256(generator).hexdigest()
    state.folder.write_json("summary.json", summary)


def write_ledger(state: ServerState) -> None:
    """ledger.json: every release that the server has asked for."""
    state.folder.write_json("ledger.json", ledger_json(state.settings, state.ledger))


def ledger_json(settings: Settings, ledger: Ledger) -> list[dict[str, Any]]:
    """Every release as plain values. Noise that derives from a public seed protects nothing: it is booked as none, as
    clients book it themselves."""
    return [
        (dataclasses.replace(event, noise_stddev=0.0) if settings.deterministic else event).to_json()
        for event in ledger.events
    ]


def write_generator(state: ServerState) -> bytes:
    """generator.safetensors; returns its bytes."""
    generator = _generator_bytes(state)
    write_atomically(state.folder.path / "generator.safetensors", generator)
    return generator


def _references(state: ServerState, hellos: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """What costs nothing: chance, and each client's commonest label on its held-out records."""
    settings = state.settings
    known = {c: h["commonest-label-accuracy"] for c, h in hellos.items() if "commonest-label-accuracy" in h}
    result: dict[str, Any] = {"chance": 1.0 / state.rules.spec.num_classes}
    if known:
        seen = [value for client, value in known.items() if not is_future(settings, client)]
        future = [value for client, value in known.items() if is_future(settings, client)]
        result["commonest_label"] = {
            "seen": metrics.mean(seen) if seen else None,
            "future": metrics.mean(future) if future else None,
        }
    return result


def _manifest(hellos: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """Realised label counts and a hash of the assignment, where clients share them."""
    if not all("indices" in hello for hello in hellos.values()):
        return {"records": {str(client): hellos[client]["num-records"] for client in sorted(hellos)}}
    ordered = [hellos[client] for client in sorted(hellos)]
    return {
        "sha256": hashlib.sha256(b"".join(bytes(hello["indices"]) for hello in ordered)).hexdigest(),
        "label_counts": [list(hello["label-counts"]) for hello in ordered],
    }


def _generator_bytes(state: ServerState) -> bytes:
    """The generator with all that a joining client's model needs: parameters, contexts, how contexts enter."""
    generator = state.generator
    assert generator.entry is not None
    tensors = {f"variant.{name}": value.cpu().contiguous() for name, value in generator.variant.state_dict().items()}
    tensors |= {f"context.{client}": torch.tensor(context) for client, context in generator.contexts.items()}
    tensors |= {f"entry.{name}": torch.tensor(value) for name, value in generator.entry.tensors().items()}
    return save(tensors, {"settings": state.settings.digest()})

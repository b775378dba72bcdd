"""Real training messages: bytes per message over 500-round runs, and whether a scale profile would pay.

The profile (CODEC idea: the receiver already knows a running second moment per coordinate of the decoded releases) is
replayed on the recorded updates of a real run; its synchronisation costs at least one byte per coordinate and message.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

import common  # noqa: F401
from benchmarks.report import save, table
from client_app import client as client_module
from client_app.app import app
from common.channel.lrsuq import LayeredQuantizer, codec
from common.randomness import seed_key
from common.settings import Settings
from server_app.app import run
from simulations.grid import InProcessGrid
from tests.common.channel.exactness import failures


class Recorder(LayeredQuantizer):
    """LRSUQ that keeps the updates and its messages' sizes."""

    updates: list[np.ndarray]

    def encode(self, update, event, keys):
        Recorder.updates.append(np.array(update))
        return super().encode(update, event, keys)


def record(dataset: str, epsilon: float, rounds: int, data_dir: str):
    """Updates, σ and summary of one run."""
    Recorder.updates = []
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(dataset=dataset, epsilon=epsilon, num_rounds=rounds, t_max_override=0, deterministic=True, channel="lrsuq",
                            out_dir=folder, data_dir=data_dir, tensorboard=False, evaluate_every=0)  # fmt: skip
        original = client_module.make_channel
        client_module.make_channel = lambda settings: Recorder(settings.block_size)
        try:
            summary = run(InProcessGrid(app, settings), settings)
        finally:
            client_module.make_channel = original
    return Recorder.updates, summary["noise"]["noise_stddev"], summary


def exactness(updates: list[np.ndarray], sigma: float) -> dict[str, object]:
    """The exactness suite on real updates, and the error at the 20 largest coordinates of each."""
    errors, largest = [], []
    for index, u in enumerate(updates):
        scale, model_class = codec.choose_model(u, sigma)
        _, decoded = codec.encode_payload(u, sigma, seed_key(index, 11), scale=scale, model_class=model_class)
        error = (decoded - u) / sigma
        top = np.argsort(-np.abs(u))[:20]
        errors.append(error)
        largest.append(error[top] * np.sign(u[top]))
    at_largest = np.concatenate(largest)
    return {
        "suite": failures(np.concatenate(updates), np.concatenate(errors)) or "pass",
        "mean at the largest": float(at_largest.mean()),
        "standard error": float(1 / np.sqrt(at_largest.size)),
        "variance at the largest": float(at_largest.var()),
    }


def profile_bytes(updates: list[np.ndarray], sigma: float) -> dict[str, float]:
    """Mean payload over the second half of the run: flat scale, running second moment of releases, oracle profile."""
    k = len(updates[0])
    moment = np.zeros(k)
    oracle = np.sqrt(np.mean(np.square(updates), axis=0))
    oracle = np.maximum(oracle / np.sqrt(np.mean(oracle**2)), 0.05)
    sizes: dict[str, list[int]] = {"flat": [], "profile": [], "oracle": []}
    for index, u in enumerate(updates):
        key = seed_key(index, 11)
        scale, model_class = codec.choose_model(u, sigma)
        payload, decoded = codec.encode_payload(u, sigma, key, scale=scale, model_class=model_class)
        if index >= len(updates) // 2:
            signal = np.maximum(moment / index - sigma**2, 0.0)
            profile = np.sqrt(signal / max(signal.mean(), 1e-30) * 0.5 + 0.5)  # shrunk: single estimates are noisy
            sizes["flat"].append(len(payload))
            for name, factors in (("profile", profile), ("oracle", oracle)):
                sizes[name].append(
                    len(codec.encode_payload(u, sigma, key, scale=scale, model_class=model_class, profile=factors)[0])
                )
        moment += decoded**2
    return {name: float(np.mean(values)) for name, values in sizes.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--data-dir", default=Settings.data_dir)
    parser.add_argument("--cells", nargs="+", default=["mnist:4", "mnist:16", "cifar10:4", "cifar10:16"])
    options = parser.parse_args()
    rows, checks = [], {}
    for cell in options.cells:
        dataset, epsilon = cell.split(":")
        updates, sigma, summary = record(
            dataset, float(epsilon), options.rounds, str(Path(options.data_dir).expanduser())
        )
        uplink, sizes = summary["uplink"], profile_bytes(updates, sigma)
        checks[cell] = exactness(updates, sigma)
        print(cell, checks[cell], flush=True)
        kurtosis = [float(np.mean(u**4) / np.mean(u**2) ** 2) for u in updates]
        rows.append([dataset, float(epsilon), sigma, len(updates), uplink["payload_bytes"] / len(updates), uplink["message_bytes"] / len(updates),
                     uplink["bits_per_coordinate"], uplink["message_bytes"] / 1e6, float(np.median(kurtosis)),
                     sizes["flat"], sizes["profile"], sizes["oracle"], len(updates[0])])  # fmt: skip
    header = ["data set", "epsilon", "sigma", "messages", "payload B", "message B", "bpc", "uplink MB", "median kurtosis",
              "flat B (2nd half)", "profile B", "oracle profile B", "sync B per message"]  # fmt: skip
    table(f"Real training messages, {options.rounds} rounds", header, rows)
    save("messages", {"rounds": options.rounds, "header": header, "rows": rows, "exactness": checks})

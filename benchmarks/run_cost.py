"""CPU time of a full 500-round paper run in process against 1,000 plain passes taken in between; wall time on Ray."""

import argparse
import tempfile
import time
from time import process_time

import torch
import torch.nn.functional as F

import common  # noqa: F401
from benchmarks.report import save, table
from client_app.app import app
from common.model import lenet
from common.numerics import pin_torch
from common.rules import make_rules
from common.settings import Settings
from server_app.app import run
from simulations.grid import InProcessGrid
from simulations.run import run_on_ray


class TimedGrid(InProcessGrid):
    """Tells training from evaluation and start-up, and takes two plain passes after every round."""

    def __init__(self, settings):
        super().__init__(app, settings)
        shape = make_rules(settings).spec.image_shape
        self.model = lenet(shape, 10)
        self.x, self.y = torch.rand(333, *shape), torch.randint(10, (333,))
        self.plain = self.evaluation = 0.0
        self.training_began = None

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        kind = messages[0].metadata.message_type if messages else ""
        if kind == "train" and self.training_began is None:
            self.training_began = process_time()
        started = process_time()
        replies = super().send_and_receive(messages)
        if kind == "evaluate":
            self.evaluation += process_time() - started
        if kind == "train":
            started = process_time()
            for _ in range(2):
                self.model.zero_grad()
                F.cross_entropy(self.model(self.x), self.y).backward()
            self.plain += process_time() - started
        return replies


def measure(dataset: str, rounds: int, channel: str, data_dir: str, ray: bool) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        values = dict(
            dataset=dataset,
            num_rounds=rounds,
            channel=channel,
            data_dir=data_dir,
            deterministic=True,
            out_dir=folder,
            tensorboard=False,
        )
        settings = Settings(**values, run_name="here", evaluate_every=0)
        started = process_time()
        grid = TimedGrid(settings)
        run(grid, settings)
        total = process_time() - started
        start_up = grid.training_began - started
        training = total - start_up - grid.evaluation - grid.plain
        result = {
            "training_cpu_s": training,
            "plain_cpu_s": grid.plain,
            "ratio": training / grid.plain,
            "evaluation_cpu_s": grid.evaluation,
            "start_up_cpu_s": start_up,
        }
        if ray:
            started = time.monotonic()
            for _ in run_on_ray(Settings(**values, run_name="ray", evaluate_every=0)):
                pass
            result["ray_wall_s"] = time.monotonic() - started
            result["ray_limit_s"] = 0.75 * training + 45
        return result


if __name__ == "__main__":
    pin_torch()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", nargs="+", default=["cifar10"])
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--channel", default="dg")
    parser.add_argument("--no-ray", action="store_true")
    parser.add_argument("--data-dir", default=Settings.data_dir)
    options = parser.parse_args()
    results = {
        d: measure(d, options.rounds, options.channel, options.data_dir, not options.no_ray) for d in options.datasets
    }
    keys = list(next(iter(results.values())))
    table(
        f"{options.rounds}-round run, channel {options.channel}",
        ["data set", *keys],
        [[d, *r.values()] for d, r in results.items()],
    )
    save("run_cost", {"rounds": options.rounds, "channel": options.channel, **results})

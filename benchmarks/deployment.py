"""A deployment on loopback: seconds per round with 2 and 4 nodes, where they go, memory per node."""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import common  # noqa: F401
from benchmarks.report import save, table
from common.settings import Settings
from deployment.follow import follow, submit
from deployment.layout import Layout
from deployment.local import LocalFederation
from deployment.pki import initialise
from deployment.session import node_config
from server_app.results import RunFolder


def resident_megabytes(home: Path) -> float:
    """Proportional memory of all processes whose FLWR_HOME is `home`."""
    total = 0.0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"FLWR_HOME={home}\0".encode() in (process / "environ").read_bytes():
                lines = (process / "smaps_rollup").read_text().splitlines()
                total += sum(float(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1e3
        except OSError:
            continue
    return total


def measure(nodes: int, rounds: int, data_dir: Path) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        layout = Layout(Path(folder) / "deploy")
        initialise(layout, nodes=nodes)
        settings = Settings(
            num_participating=nodes, num_future=0, num_rounds=rounds, evaluate_every=0, tensorboard=False,
            out_dir=str(layout.local / "results"), data_dir=str(data_dir), run_name="figures",
        )  # fmt: skip
        started = time.monotonic()
        idle, peak, first_round = 0.0, 0.0, None
        with LocalFederation(layout) as federation:
            for node in range(nodes):
                federation.register(node)
                federation.add_node(node, node_config(settings, node))
            time.sleep(5)
            home = layout.local / "node-0"
            idle = resident_megabytes(home)
            submitted = time.monotonic()
            run_id = submit(federation.flwr, settings)

            def look_after() -> None:
                nonlocal peak
                federation.alive()
                peak = max(peak, resident_megabytes(home))

            options = dict(results=Path(settings.out_dir), look_after=look_after, log_tail=federation.log_tail)
            for _ in follow(federation.flwr, settings, run_id, **options):
                first_round = first_round or time.monotonic() - submitted
        rows = RunFolder(settings).read_metrics()
        # The last round waits for nothing but itself, too; the median is robust to one late poll.
        return {
            "nodes": nodes,
            "start_s": submitted - started,
            "submission_to_first_round_s": float(first_round or 0.0),
            "round_s": statistics.median(row["seconds"] for row in rows),
            "gradient_s": statistics.median(row["gradient_ms"] for row in rows) / 1e3,
            "encode_s": statistics.median(row["encode_ms"] for row in rows) / 1e3,
            "decode_s": statistics.median(row["decode_ms"] for row in rows) / 1e3,
            "node_idle_mb": idle,
            "node_peak_mb": peak,
        }


def start_up_of_a_message() -> float:
    """CPU seconds until a ClientApp process could answer: imports and workspace."""
    code = "import resource, common, client_app.app; u = resource.getrusage(resource.RUSAGE_SELF); print(u.ru_utime + u.ru_stime)"
    outputs = (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        for _ in range(3)
    )
    return min(float(output) for output in outputs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, default=Path(Settings.data_dir).expanduser())
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    results = [measure(nodes, options.rounds, options.data_dir) for nodes in (2, 4)]
    table("Deployment", list(results[0]), [[f"{value:.3g}" for value in one.values()] for one in results])
    start_up = start_up_of_a_message()
    print(f"\nimports of one ClientApp process: {start_up:.2f} CPU s")
    save("deployment", {"runs": results, "imports_cpu_s": start_up})


if __name__ == "__main__":
    main()

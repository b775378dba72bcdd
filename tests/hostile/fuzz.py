"""Coverage-guided fuzzing of every door (atheris, libFuzzer): `make fuzz`, or `python -m tests.hostile.fuzz --only settings`.

Each door is a process of its own, which stops at the first finding. What was seen goes to docs/benchmarks/hostile.json.
"""

import argparse
import json
import logging
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

OUT = Path(__file__).resolve().parents[2] / "docs" / "benchmarks" / "hostile.json"
# Inputs per door, about a million together; doors that open files are slower.
RUNS = {
    "release": 400_000,
    "signed release": 250_000,
    "standalone release": 100_000,
    "settings": 60_000,
    "node configuration": 100_000,
    "IDX file": 60_000,
    "request": 8_000,
    "replies": 20_000,
    "hellos": 1_500,
    "reports": 10_000,
    "grid file": 10_000,
    "result file": 3_000,
    "checkpoint": 5_000,
    "journal": 8_000,
    "metrics file": 5_000,
    "ledger": 8_000,
    "NPZ file": 8_000,
    "arrays": 8_000,
    "image": 6_000,
    "manifest": 3_000,
    "archive": 3_000,
}
LARGEST = 300  # bytes of an input: they steer, the seeds of every door are in the code


def visit(name, runs, report):
    """In a process of its own: fuzz one door, write what was seen, stop at a finding."""
    import atheris

    with atheris.instrument_imports(include=["common", "client_app", "server_app", "simulations.report"]):
        from tests.hostile import doors
    logging.disable(logging.CRITICAL)
    tally, started = doors.Tally(), time.perf_counter()

    def one(data):
        doors.knock(name, data, tally)
        if tally.inputs % 256 == 0 or tally.inputs >= runs:
            write()

    def write():
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        report.write_text(json.dumps({**vars(tally), "seconds": time.perf_counter() - started, "peak_mb": peak}))

    doors.knock(name, b"", tally)  # what is made once is made before the clock and the memory limit count
    tally.slowest_seconds = 0.0
    atheris.Setup(
        [sys.argv[0], f"-runs={runs}", f"-max_len={LARGEST}", "-timeout=30", "-rss_limit_mb=3000", "-seed=1", "-verbosity=0",
         f"-artifact_prefix={report.parent}/"],
        one,
    )  # fmt: skip
    atheris.Fuzz()


def main():
    """Entry point; exit code 1 if any door has a finding."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--only", default="", help="doors whose name contains this")
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the numbers of inputs")
    parser.add_argument("--visit", help=argparse.SUPPRESS)
    parser.add_argument("--report", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.visit:
        return visit(options.visit, max(1, int(RUNS[options.visit] * options.scale)), options.report)
    seen = {}
    for name in (name for name in RUNS if options.only in name):
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.json"
            command = [sys.executable, "-m", "tests.hostile.fuzz", "--visit", name, "--report", str(report)]
            command += ["--scale", str(options.scale)]
            result = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=False)
            seen[name] = json.loads(report.read_text()) if report.exists() else {"inputs": 0}
        seen[name]["finding"] = result.returncode != 0
        print(name, seen[name], flush=True)
        if seen[name]["finding"]:
            print(f"FINDING at {name}:\n{result.stdout[-3000:]}\n{result.stderr[-3000:]}", flush=True)
    kept = json.loads(OUT.read_text())["doors"] if options.only and OUT.exists() else {}
    doors = {**kept, **seen}
    total = sum(door["inputs"] for door in doors.values())
    slowest = max(door.get("slowest_seconds", 0.0) for door in doors.values())
    findings = [name for name, door in doors.items() if door.get("finding")]
    print(f"{total} inputs at {len(doors)} doors, slowest {slowest:.2f} s, findings at {findings or 'none'}")
    OUT.write_text(json.dumps({"total": total, "doors": doors}, indent=1) + "\n")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())

"""The audit's rows: claimed ε against what the attacks prove, for every channel and budget."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from common.files import write_atomically
from common.numerics import describe
from common.settings import Settings
from simulations.audit.attacks import black_box, coins, white_box
from simulations.audit.bound import Finding, best_bound
from simulations.audit.run import run_with_canaries
from simulations.audit.size import BLACK_BOX, WHITE_BOX, Size

# Noise so small that a record can be read off a release: an audit that does not find this finds nothing.
LEAK_NOISE = 1e-6


@dataclass(frozen=True)
class Audit:
    """What is audited, and how surely. Another `trial` has other canaries, coins and noise."""

    white_box: Size = WHITE_BOX
    black_box: Size = BLACK_BOX
    dataset: str = "mnist"
    confidence: float = 0.95
    trial: int = 0

    def settings(self, size: Size, channel: str, epsilon: float | None, data_dir: str, work: Path) -> Settings:
        """The run: the paper's method at reduced size, full batches, exact accounting; ε None: nearly no noise.

        Secret noise and keys, as in every real run. The clip is below every record's gradient, so that a canary moves a
        release as far as two real records can; the context takes a small part of the budget, since it says little about
        a single record; the learning rate makes up for the clip.
        """
        name = f"audit-{channel}-{'leak' if epsilon is None else f'eps{epsilon:g}'}-{size.clients}-{self.trial}"
        total = size.records * 5 // 4
        return Settings(
            dataset=self.dataset, num_participating=size.clients, num_future=0, clients_per_round=size.clients,
            num_rounds=size.rounds, records_per_client=total, train_fraction=size.records / total,
            batch_records=size.records, context_records=size.records, context_sensitivity="tight",
            num_coefficients=4096, clip_norm=0.1, learning_rate=5.0, context_noise_ratio=3.0, accountant="gdp",
            channel=channel, epsilon=16.0 if epsilon is None else epsilon,
            noise_stddev=LEAK_NOISE if epsilon is None else None,
            diagnostics="off", tensorboard=False, geometry_every=0, run_name=name, data_dir=data_dir, out_dir=str(work),
        )  # fmt: skip


def audit_rows(
    audit: Audit, *, channels: Sequence[str], epsilons: Sequence[float], data_dir: str, work: Path
) -> Iterator[dict[str, Any]]:
    """Run and attack, one row per (adversary, channel, claim); the last claim of every channel is the leak."""
    attacks = (("white-box", white_box, audit.white_box), ("black-box", black_box, audit.black_box))
    for adversary, attack, size in attacks:
        for channel in channels:
            for epsilon in [*epsilons, None]:
                started = time.perf_counter()
                settings = audit.settings(size, channel, epsilon, data_dir, work)
                shutil.rmtree(work / settings.name, ignore_errors=True)
                transcript = run_with_canaries(settings, size.canaries, audit.trial)
                truth = coins(transcript)
                finding = best_bound(attack(transcript), truth, delta=settings.delta, confidence=audit.confidence)
                yield {
                    "adversary": adversary,
                    "channel": channel,
                    "claimed_epsilon": transcript.epsilon,
                    "noise_stddev": transcript.space.rules.mechanism.channel_noise(0, 1),
                    "canaries": len(truth),
                    **asdict(finding),
                    "refuted": transcript.epsilon is not None and finding.epsilon > transcript.epsilon,
                    "seconds": time.perf_counter() - started,
                }


def as_markdown(rows: Sequence[dict[str, Any]], confidence: float) -> str:
    """The table of `audit_rows`."""
    lines = [
        f"| adversary | channel | claimed ε | lower bound on ε ({confidence:.0%}) | right guesses | accuracy on all |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        finding = Finding(row["epsilon"], row["guesses"], row["correct"], row["accuracy"])
        lines.append(
            f"| {row['adversary']} | {row['channel']} | {row['claimed_epsilon']:.4g} | {finding.epsilon:.2f} | "
            f"{finding.correct} of {finding.guesses} | {finding.accuracy:.3f} |"
        )
    return "\n".join(lines)


def write_audit(path: Path, audit: Audit, rows: Sequence[dict[str, Any]]) -> None:
    """Rows and what they were measured with, as JSON; the table beside it as Markdown."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"audit": asdict(audit), "numerics": describe(), "rows": list(rows)}
    write_atomically(path, json.dumps(content, indent=1).encode() + b"\n")
    write_atomically(path.with_suffix(".md"), (as_markdown(rows, audit.confidence) + "\n").encode())

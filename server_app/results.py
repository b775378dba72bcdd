"""The run's folder: settings, metrics by round, ledger, summary, generator, TensorBoard events."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from common.files import write_atomically
from common.places import expand
from common.settings import Settings


class RunFolder:
    """`<out-dir>/<run name>/` and the names of the files in it."""

    def __init__(self, settings: Settings) -> None:
        self.path = expand("out-dir", settings.out_dir).resolve() / settings.name
        self._tensorboard = settings.tensorboard
        self._writer: Any = None

    @property
    def checkpoint(self) -> Path:
        """Complete server state."""
        return self.path / "checkpoint.safetensors"

    @property
    def journal(self) -> Path:
        """Facts since the checkpoint."""
        return self.path / "journal.jsonl"

    @property
    def metrics(self) -> Path:
        """One JSON line per round."""
        return self.path / "metrics.jsonl"

    @property
    def summary(self) -> Path:
        """Written last: its presence means that the run is complete."""
        return self.path / "summary.json"

    @property
    def server_key(self) -> Path:
        """The server's private key, mode 0600; deleted when the run is complete."""
        return self.path / "server.key"

    @property
    def failure(self) -> Path:
        """Why the last attempt ended early, if it did."""
        return self.path / "failure.json"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder: two servers on one run would release the same rounds and count only their own.

        Raises:
            ValueError: another process holds it.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(self.path.with_name(self.path.name + ".lock"), timeout=0):
                yield
        except Timeout:
            raise ValueError(f"run-name must not be in use: another server is running in {self.path}.") from None

    def check(self, *, resume: bool) -> None:
        """Refuse what would overwrite an earlier run.

        Raises:
            ValueError: a finished run, or an unfinished one without `resume`.
        """
        if self.summary.exists():
            raise ValueError(f"run-name must be new: {self.path} holds a finished run.")
        if self._started() and not resume:
            raise ValueError(
                f"run-name must be new, or resume must be true: {self.path} holds an unfinished run. "
                f"Received resume={str(resume).lower()}."
            )

    def create(self, settings: Settings) -> None:
        """Make the folder, or let an earlier run go on there (see `check`).

        Raises:
            ValueError: as `check`; or the earlier run had other settings.
        """
        self.check(resume=settings.resume)
        if self._started():
            earlier = Settings.from_config(json.loads((self.path / "settings.json").read_text()))
            if earlier.digest() != settings.digest():
                raise ValueError(
                    f"run-name must be new: {self.path} holds a run with other settings; resume it with its own."
                )
        self.path.mkdir(parents=True, exist_ok=True)
        self.failure.unlink(missing_ok=True)
        self.write_json("settings.json", settings.to_config())

    def _started(self) -> bool:
        """True once something was asked for: a run that was refused before that leaves nothing to protect."""
        return any(path.exists() for path in (self.journal, self.checkpoint, self.metrics))

    def fail(self, error: BaseException) -> None:
        """Say why the run ended early."""
        self.write_json("failure.json", {"error": type(error).__name__, "message": str(error)})

    def read_failure(self) -> str:
        """The message that `fail` left, or an empty string."""
        if not self.failure.exists():
            return ""
        return str(json.loads(self.failure.read_text())["message"])

    def write_clients(self, keys: dict[int, bytes]) -> None:
        """Public keys of the run's clients, beside those that are known: who a number belongs to."""
        known = {**self.read_clients(), **keys}
        self.write_json("clients.json", {str(client): key.hex() for client, key in sorted(known.items())})

    def read_clients(self) -> dict[int, bytes]:
        """What `write_clients` wrote; empty before."""
        path = self.path / "clients.json"
        if not path.exists():
            return {}
        return {int(client): bytes.fromhex(key) for client, key in json.loads(path.read_text()).items()}

    def write_json(self, name: str, value: Any) -> None:
        """Write a JSON file of the folder, atomically."""
        write_atomically(self.path / name, json.dumps(value, indent=2, allow_nan=False).encode() + b"\n")

    def add_metrics(self, row: dict[str, Any]) -> None:
        """Append the metrics of a round (or, with an "event" key, of another happening)."""
        with self.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, allow_nan=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        if self._tensorboard:
            self._write_events(row)

    def read_metrics(self) -> list[dict[str, Any]]:
        """All rows so far."""
        if not self.metrics.exists():
            return []
        return [json.loads(line) for line in self.metrics.read_text(encoding="utf-8").splitlines()]

    def last_round(self) -> int:
        """The highest round with metrics; 0 for none. Damaged lines do not count."""
        rounds = [0]
        for line in (
            self.metrics.read_text(encoding="utf-8", errors="replace").splitlines() if self.metrics.exists() else ()
        ):
            try:
                rounds.append(int(json.loads(line)["round"]))
            except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
                continue
        return max(rounds)

    def truncate_metrics(self, last_round: int) -> None:
        """Drop rows after `last_round`: replay writes them again. A torn last line goes too."""
        if not self.metrics.exists():
            return
        kept = []
        for line in self.metrics.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                if int(json.loads(line)["round"]) <= last_round:
                    kept.append(line + "\n")
            except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
                break
        write_atomically(self.metrics, "".join(kept).encode())

    def close(self) -> None:
        """Flush TensorBoard."""
        if self._writer is not None:
            self._writer.close()

    def _write_events(self, row: dict[str, Any]) -> None:
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            folder = self.path / "tensorboard"
            # A resumed run writes again what came after its checkpoint; TensorBoard then drops the earlier events of it.
            self._writer = SummaryWriter(str(folder), purge_step=row["round"] if folder.exists() else None)  # type: ignore[no-untyped-call]
        for name, value in row.items():
            if isinstance(value, int | float) and not isinstance(value, bool) and name != "round":
                self._writer.add_scalar(name, value, row["round"])

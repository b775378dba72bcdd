"""Doors of the disk: settings, node configurations, results, checkpoints, journals, ledgers, records, archives."""

import hashlib
import io
import json
import shutil
import tempfile
import zipfile
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

from client_app.manifest import frozen_records
from client_app.node import Node
from client_app.sqlite_ledger import LedgerError, SqliteLedger
from common.data.cache import DataError
from common.data.catalog import DatasetSpec
from common.data.decode import decode_idx
from common.data.sources import import_file
from common.privacy.events import GaussianRelease
from common.rules import make_rules
from common.settings import Settings
from server_app.journal import sealed
from server_app.recovery import CannotResume, recover
from server_app.results import RunFolder
from server_app.state import ServerState
from simulations.experiments import grid
from simulations.records import read_records
from simulations.report.results import Results
from simulations.report.tables import all_tables
from tests.hostile.draw import Draw, mutate, mutate_json
from tests.hostile.messages import world
from tests.records import record

SPEC = DatasetSpec("own", (1, 16, 16), 3, (0.5,), (0.5,), ())
_SCRATCH = tempfile.TemporaryDirectory()
FOLDER = Path(_SCRATCH.name)


def fresh(name):
    path = FOLDER / name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    return path


def settings(data):
    """A run's configuration, as a server sends it: refused by name, or rules in bounded time."""
    draw = Draw(data)
    config = Settings().to_config()
    for _ in range(1 + draw.number(4)):
        config[draw.choice([*sorted(config), "unknown"])] = draw.scalar()
    make_rules(Settings.from_config(config))


def node(data):
    """A node's own configuration."""
    draw = Draw(data)
    names = [
        "partition-id",
        "data",
        "data-dir",
        "state-dir",
        "max-epsilon",
        "max-delta",
        "diagnostics",
        "allow-deterministic",
        "x",
    ]
    config = {"partition-id": 0}
    for _ in range(draw.number(5)):
        config[draw.choice(names)] = draw.scalar()
    Node.from_config(config, Settings())


GRID = b'seeds = [1, 2]\n[fixed]\nepsilon = 4.0\nvariant = "ours"\n[vary]\nlearning-rate = [0.1, 0.2]\n'


def grid_file(data):
    """A sweep's TOML grid."""
    draw = Draw(data)
    path = FOLDER / "grid.toml"
    path.write_bytes(mutate(draw, GRID))
    grid(str(path))


def _record():
    return json.dumps(record(0.8, 0.7, 41)).encode()


def result_file(data):
    """A result file in the folder of a report."""
    draw = Draw(data)
    folder = fresh("results")
    (folder / "a.json").write_bytes(mutate_json(draw, _record()))
    all_tables(Results(read_records(folder)))


def _prepared_run():
    """Bytes of a checkpoint and a journal of a real run, made once."""
    if "checkpoint" not in _RUN:
        here = world()
        state = here.strategy.state
        state.checkpoint(2)
        _RUN["checkpoint"] = state.folder.checkpoint.read_bytes()
        state.folder.checkpoint.unlink()
        update = {"1": "AAAA" * 81 + "AA=="}
        facts = [
            {"kind": "asked", "round": 3, "clients": [0, 1]},
            {"kind": "accepted", "round": 3, "updates": update, "row": {"round": 3, "clients": [1], "failed": {}}},
            {"kind": "asked", "round": 4, "clients": [2]},
        ]
        _RUN["journal"] = facts
    return _RUN


_RUN = {}


def _recover(checkpoint, journal, metrics=b""):
    """The recovered state as (digest of the model, releases); `CannotResume` where there is none."""
    here = world()
    folder = RunFolder(here.settings)
    paths = (folder.checkpoint, folder.journal, folder.metrics)
    try:
        for path, content in zip(paths, (checkpoint, journal, metrics), strict=True):
            path.write_bytes(content)
        state = ServerState(here.strategy.rules, folder)
        recover(state, here.strategy.hellos, lambda round, row: None)
        parameters = [parameter.detach().numpy() for parameter in state.generator.variant.parameters()]
        assert all(np.isfinite(values).all() for values in parameters)
        return hashlib.sha256(b"".join(values.tobytes() for values in parameters)).hexdigest(), state.ledger.events
    finally:
        for path in paths:
            path.unlink(missing_ok=True)


def _lines(facts):
    """As the journal writes them."""
    lines, checksum = [], 0
    for fact in facts:
        lines.append(sealed(fact, checksum))
        checksum = zlib.crc32(fact, checksum)
    return b"".join(lines)


def _facts():
    return [json.dumps(fact).encode() for fact in _prepared_run()["journal"]]


def _honest():
    """What may be recovered from this journal: all of it, or what stood there before each of its lines was written."""
    if "honest" not in _RUN:
        run, facts = _prepared_run(), _facts()
        _RUN["honest"] = [_recover(run["checkpoint"], _lines(facts[:count])) for count in range(len(facts) + 1)]
    return _RUN["honest"]


def checkpoint(data):
    """A damaged checkpoint: the same state or none."""
    draw, honest = Draw(data), _honest()
    assert _recover(mutate(draw, _prepared_run()["checkpoint"]), _lines(_facts())) == honest[-1]


def journal(data):
    """A damaged journal: a state that it once had, or none. One that somebody has forged: finite numbers, or none."""
    draw, honest, facts = Draw(data), _honest(), _facts()
    if draw.number(2):
        at = draw.number(len(facts))
        facts[at] = mutate_json(draw, facts[at]).replace(b"\n", b"")
        _recover(_prepared_run()["checkpoint"], _lines(facts))
    else:
        assert _recover(_prepared_run()["checkpoint"], mutate(draw, _lines(facts))) in honest


def metrics_file(data):
    """Damaged metrics of an interrupted run: they decide nothing but whether a part of the run is missing."""
    draw, honest = Draw(data), _honest()
    rows = b'{"round": 1, "clients": [0], "loss": 1.0}\n{"round": 2, "clients": [1]}\n'
    content = mutate_json(draw, b'{"round": 1}') + b"\n" + mutate(draw, rows)
    assert _recover(_prepared_run()["checkpoint"], b"", content) == honest[0]


def _ledger_bytes():
    if "ledger" not in _RUN:
        path = fresh("ledger") / "ledger.sqlite"
        ledger = SqliteLedger(path)
        ledger.create()
        for round in range(6):
            kind = "context" if round == 0 else "gradient"
            ledger.commit("r", f"d{round}", GaussianRelease(0, round, kind, 0.006, 0.02), lambda a, b: None)
            ledger.finish(f"d{round}", bytes(100))
        _RUN["ledger"], _RUN["releases"] = path.read_bytes(), ledger.rows()
    return _RUN["ledger"]


def ledger(data):
    """A damaged ledger: what it says is what was written, or it refuses."""
    draw = Draw(data)
    original = _ledger_bytes()
    path = fresh("state") / "ledger.sqlite"
    raw = bytearray(original)
    for _ in range(1 + draw.number(3)):
        raw[draw.number(len(raw))] ^= 1 + draw.number(255)
    if draw.number(4) == 0:
        del raw[draw.number(len(raw)) :]
    path.write_bytes(raw)
    assert SqliteLedger(path).rows() == _RUN["releases"]


def _npz():
    buffer = io.BytesIO()
    x = np.arange(4 * 256, dtype=np.uint8).reshape(4, 1, 16, 16)
    np.savez(buffer, x=x, y=np.array([0, 1, 2, 0]))
    return buffer.getvalue()


def npz(data):
    """A data holder's NPZ file: records in range, or refused."""
    draw = Draw(data)
    folder = fresh("npz")
    (folder / "d.npz").write_bytes(mutate(draw, _npz()))
    _check_records(frozen_records(folder / "d.npz", SPEC, folder / "state"))


def arrays(data):
    """Well-formed NPZ files of any shape and type."""
    draw = Draw(data)
    folder = fresh("arrays")
    dtype = draw.choice([np.uint8, np.float32, np.float64, np.int64, np.complex64, np.bool_, "U3"])
    shape = tuple(draw.choice([0, 1, 2, 3, 16, 17]) for _ in range(draw.number(6)))
    x = np.zeros(shape, dtype)
    if x.size and x.dtype.kind == "f":
        with np.errstate(over="ignore"):
            x.reshape(-1)[draw.number(x.size)] = x.dtype.type(draw.float())
    y = np.zeros(draw.number(4), draw.choice([np.int64, np.uint8, np.float64, np.bool_]))
    if y.size and y.dtype.kind == "i":
        y[0] = draw.integer()
    np.savez(folder / "d.npz", **{draw.choice(["x", "a"]): x, "y": y})
    _check_records(frozen_records(folder / "d.npz", SPEC, folder / "state"))


def _png():
    buffer = io.BytesIO()
    Image.fromarray(np.arange(256, dtype=np.uint8).reshape(16, 16)).save(buffer, "PNG")
    return buffer.getvalue()


def image(data):
    """A data holder's image file."""
    draw = Draw(data)
    folder = fresh("images")
    for label in range(3):
        (folder / "d" / str(label)).mkdir(parents=True)
        (folder / "d" / str(label) / "a.png").write_bytes(_png())
    (folder / "d" / "1" / "a.png").write_bytes(mutate(draw, _png()))
    _check_records(frozen_records(folder / "d", SPEC, folder / "state"))


def _check_records(records):
    usable = ~np.isnan(records.images).all(axis=(1, 2, 3))
    assert np.isfinite(records.images[usable]).all()
    assert records.images[usable].min(initial=0) >= 0
    assert records.images[usable].max(initial=1) <= 1
    assert not records.labels[~usable].any()
    assert set(records.labels) <= {0, 1, 2}


def manifest(data):
    """A damaged manifest: the same order, or refused."""
    draw = Draw(data)
    folder = fresh("manifest")
    (folder / "d.npz").write_bytes(_npz())
    first = frozen_records(folder / "d.npz", SPEC, folder / "state")
    path = folder / "state" / "manifest.json"
    path.write_bytes(mutate_json(draw, path.read_bytes()))
    again = frozen_records(folder / "d.npz", SPEC, folder / "state")
    assert np.array_equal(first.images, again.images)


IDX = bytes([0, 0, 8, 3]) + b"".join(n.to_bytes(4, "big") for n in (2, 3, 4)) + bytes(24)


def idx(data):
    """An IDX file of a data set."""
    draw = Draw(data)
    decode_idx(mutate(draw, IDX))


def archive(data):
    """Any file that is offered as a data set: never taken for one."""
    draw = Draw(data)
    folder = fresh("archive")
    path = folder / f"a{draw.choice(['.tgz', '.whl', '.tar.gz', ''])}"
    if path.suffix == ".whl":
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("mnist/data/mnist.pkl.gz", draw.rest())
    else:
        path.write_bytes(draw.rest())
    import_file(path, folder / "cache")
    raise AssertionError("something else was taken for a data set")


TARGETS = {
    "settings": (settings, (ValueError,)),
    "node configuration": (node, (ValueError,)),
    "grid file": (grid_file, (ValueError,)),
    "result file": (result_file, (ValueError,)),
    "checkpoint": (checkpoint, (CannotResume,)),
    "journal": (journal, (CannotResume,)),
    "metrics file": (metrics_file, (CannotResume,)),
    "ledger": (ledger, (LedgerError,)),
    "NPZ file": (npz, (DataError,)),
    "arrays": (arrays, (DataError,)),
    "image": (image, (DataError,)),
    "manifest": (manifest, (DataError,)),
    "IDX file": (idx, (ValueError,)),
    "archive": (archive, (DataError,)),
}

"""What a run's folder shows to other programs."""

from collections import Counter

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from client_app.app import app
from server_app import app as server
from server_app.results import RunFolder
from simulations.grid import InProcessGrid


def test_tensorboard_shows_every_step_once_after_a_resume(tiny, killed_in_round):
    """Killed in round 6 of 7, with a checkpoint after round 3: rounds 4 and 5 are written twice."""
    settings = dict(tensorboard=True, num_rounds=7, checkpoint_every=3, evaluate_every=0)
    grid = InProcessGrid(app, tiny(**settings))
    with killed_in_round(6):
        server.run(grid, tiny(**settings))
    server.run(grid, tiny(**settings, resume=True))
    events = EventAccumulator(str(RunFolder(tiny()).path.with_name(tiny(**settings).name) / "tensorboard"))
    events.Reload()
    names = events.Tags()["scalars"]
    assert "update_norm" in names or "loss" in names
    for name in names:
        steps = Counter(event.step for event in events.Scalars(name))
        assert set(steps.values()) == {1}, name
    assert max(len(events.Scalars(name)) for name in names) == 7

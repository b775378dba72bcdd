import dataclasses
import math

import numpy as np
import pytest

from common.context import make_context_map
from common.data.catalog import DATASETS
from common.data.splits import batch, split
from common.privacy.accountant import ACCOUNTANTS, worst_record_rho
from common.privacy.events import Ledger
from common.privacy.plan import Releases, make_plan
from common.privacy.report import guarantee, privacy_report
from common.schedule import make_schedule
from common.settings import Settings

SPEC = DATASETS["mnist"]


def plan_of(**changes):
    settings = Settings(**changes)
    schedule, context_map = make_schedule(settings), make_context_map(settings, SPEC)
    return settings, schedule, Releases(settings, context_map), make_plan(settings, schedule, context_map)


def spend_all(settings, schedule, releases, plan):
    """The ledger of a run in which every planned release happened."""
    ledger = Ledger()
    for client in range(settings.num_clients):
        ledger.record([releases.context(client, plan.context_noise_stddev)])
    for t, clients in enumerate(schedule.rounds, start=1):
        ledger.record(
            releases.gradient(client, t, schedule.participation(client, t), plan.noise_stddev) for client in clients
        )
    return ledger


@pytest.mark.parametrize("accountant", ["rdp", "gdp"])
@pytest.mark.parametrize("batch_schedule", ["uniform", "cyclic"])
@pytest.mark.parametrize(
    "changes", [{}, {"schedule": "balanced", "context_sensitivity": "tight", "context_noise_ratio": 0.5}]
)
def test_calibrated_noise_spends_exactly_the_budget(accountant, batch_schedule, changes):
    parts = plan_of(accountant=accountant, batch_schedule=batch_schedule, num_rounds=120, **changes)
    report = privacy_report(spend_all(*parts), parts[0])
    assert report["epsilon"] == pytest.approx(16.0, rel=1e-9)
    assert report["epsilon"] == max(report["epsilon_per_client"].values())
    assert report["epsilon_future"] < report["epsilon"]
    assert len(report["epsilon_per_client"]) == 50


def test_uniform_plan_is_equation_7():
    settings, schedule, _, plan = plan_of()
    t_max = max(schedule.counts())
    rho = (1 + t_max) * (2 / 333) ** 2 / (2 * plan.noise_stddev**2)
    assert plan.noise_stddev == plan.context_noise_stddev
    assert plan.t_max == t_max
    assert rho + 2 * math.sqrt(rho * math.log(1 / settings.delta)) == pytest.approx(16.0)


def test_context_noise_ratio_is_in_units_of_the_sensitivities():
    *_, plan = plan_of(context_noise_ratio=0.25, context_sensitivity="tight")
    ratio = (plan.context_noise_stddev / plan.context_sensitivity) / (plan.noise_stddev / plan.sensitivity)
    assert ratio == pytest.approx(0.25)


def test_cyclic_batches_cost_at_most_the_documented_number_of_releases():
    """T = 36, 333 of 800 records: a record is in at most 15 batches, and σ falls by a third."""
    changes = dict(num_participating=2, clients_per_round=2, num_rounds=36, num_future=0)
    *_, uniform = plan_of(**changes)
    settings, _, releases, cyclic = plan_of(**changes, batch_schedule="cyclic")
    events = [releases.gradient(0, t, t - 1, 1.0) for t in range(1, 37)]
    counts = np.bincount(np.concatenate([event.records for event in events]), minlength=1000)
    assert counts.max() == math.ceil(36 * 333 / 800) == 15
    assert cyclic.noise_stddev / uniform.noise_stddev == pytest.approx(math.sqrt(16 / 37), abs=0.02)
    train = split(settings, 0, 1000).train
    assert set(events[3].records) == set(batch(settings, 0, 4, 3, train))


def test_override_calibrates_for_more_rounds_and_refuses_fewer():
    settings, schedule, releases, plan = plan_of(t_max_override=47)
    rho = 48 * (2 / 333) ** 2 / (2 * plan.noise_stddev**2)
    assert ACCOUNTANTS["rdp"].epsilon(rho, 1e-5) == pytest.approx(16.0)
    assert privacy_report(spend_all(settings, schedule, releases, plan), settings)["epsilon"] < 16.0
    with pytest.raises(ValueError, match="t-max-override"):
        plan_of(t_max_override=10)


def test_future_clients_pay_for_their_context_alone():
    settings, schedule, releases, plan = plan_of()
    report = privacy_report(spend_all(settings, schedule, releases, plan), settings)
    rho = (2 / 333) ** 2 / (2 * plan.context_noise_stddev**2)
    assert report["epsilon_future"] == pytest.approx(ACCOUNTANTS["rdp"].epsilon(rho, 1e-5))


def test_guarantee_says_when_there_is_none():
    assert "reproduction" in guarantee(Settings(deterministic=True))
    assert guarantee(Settings(noise_stddev=0.0, channel="dg")).startswith("none")
    assert "record-level" in guarantee(Settings())
    report = privacy_report(Ledger(), Settings())
    assert any("diagnostics" in item for item in report["outside_epsilon"])
    off = privacy_report(Ledger(), dataclasses.replace(Settings(), diagnostics="off"))
    assert not any("diagnostics" in item for item in off["outside_epsilon"])


def test_reading_the_ledger_changes_nothing():
    settings, schedule, releases, plan = plan_of(num_rounds=20)
    ledger = spend_all(settings, schedule, releases, plan)
    before = ledger.events
    worst_record_rho(ledger.of(0))
    privacy_report(ledger, settings)
    assert ledger.events == before

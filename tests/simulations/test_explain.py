import dataclasses

import pytest

from common.presets import PRESETS
from common.rules import make_rules
from common.settings import Settings
from server_app.optimizer import base_learning_rate
from simulations import cli
from simulations.explain import explain

SMALL = Settings(
    num_rounds=60, num_participating=6, num_future=1, records_per_client=100, batch_records=40, context_records=40
)


def facts(settings):
    return {line.name: line for _, lines in explain(settings, "paper") for line in lines}


def test_noise_and_epsilon_are_the_plans():
    plan = make_rules(SMALL).mechanism.plan
    found = facts(SMALL)
    assert float(found["sigma_g"].value) == pytest.approx(plan.noise_stddev, rel=1e-4)
    assert found["T_max"].value == str(plan.t_max)
    assert found["epsilon"].value == "16"
    assert found["epsilon by client"].value.endswith("to 16")
    assert 0 < float(found["epsilon of a future client"].value) < 16


def test_records_pay_for_their_own_batches():
    found = facts(dataclasses.replace(SMALL, batch_schedule="cyclic", schedule="balanced"))
    # 20 participations, 40 of 80 records in each.
    assert found["batches of a record"].value == "10 to 10"
    assert found["epsilon by client"].value == "16 to 16"


def test_bytes_grow_with_the_update_and_are_the_channels():
    few, _, many = facts(SMALL)["bytes of an update"].value.split()
    assert 40 < int(few) < int(many) < 4 * 16384
    direct = facts(dataclasses.replace(SMALL, channel="dg"))["bytes of an update"].value
    assert direct.split()[0] == direct.split()[2]


def test_no_noise_is_said_to_protect_nothing():
    found = facts(dataclasses.replace(SMALL, noise_stddev=0.0, channel="dg"))
    assert found["epsilon"].value == "unbounded"
    assert "bytes of an update" not in found


def test_public_noise_is_said_to_protect_nothing():
    """In 0.1.0 an epsilon was shown for runs whose noise anyone can recompute."""
    lines = facts(Settings(deterministic=True))
    assert lines["epsilon"].value == "unbounded"
    assert "none (reproduction)" in lines["epsilon"].meaning
    assert not any(name.startswith("epsilon ") for name in lines)


def test_a_delta_above_one_over_the_records_is_remarked_on():
    assert "caution" not in facts(Settings())
    assert "above 1/50000" in facts(Settings(delta=1e-4))["caution"].meaning


def test_command_names_what_was_given(capsys):
    assert cli.main(["explain", "--num-rounds", "20", "--accountant", "gdp"]) == 0
    text = capsys.readouterr().out
    assert "accountant" in text
    assert "CPU of an update" in text
    assert cli.main(["explain", "--epsilon", "-1"]) == 2
    assert "epsilon" in capsys.readouterr().err


def test_aligned_preset_says_why_and_follows_the_noise(capsys):
    """Every value of the preset comes with a reason, and less noise gives a larger learning rate."""
    rates = []
    for epsilon in (1.0, 16.0):
        assert cli.main(["explain", "--preset", "aligned", "--epsilon", str(epsilon)]) == 0
        text = " ".join(capsys.readouterr().out.split())
        rates.append(float(text.split("learning rate ")[1].split()[0]))
        rules = make_rules(Settings.from_config({"preset": "aligned", "epsilon": epsilon}))
        assert rates[-1] == pytest.approx(base_learning_rate(rules), rel=5e-3)
    assert rates[0] < rates[1]
    sections = dict(explain(Settings.from_config({"preset": "aligned"}), "aligned"))
    reasons = {line.name: line.meaning for line in sections["preset aligned"]}
    assert set(reasons) == set(PRESETS["aligned"])
    assert "given" not in reasons.values()


def test_context_signal_is_no_longer_than_the_ball_that_holds_it():
    """A radius a hundred times smaller cannot have the same signal; its noise is as much smaller."""
    ratios = []
    for radius in (0.1, 0.001):
        config = {"preset": "aligned", "context-radius": radius}
        lines = {line.name: line for _, section in explain(Settings.from_config(config), "aligned") for line in section}
        ratios.append(float(lines["signal to noise of a context"].value.split()[-1]))
    assert ratios[0] == pytest.approx(ratios[1], rel=0.02)


def test_own_records_without_public_constants_are_told_so():
    config = {"preset": "aligned", "dataset": "own", "image-shape": "1,28,28", "num-participating": 4, "num-rounds": 40}
    known = {"input-mean": "0.13", "input-stddev": "0.31"}
    reasons = [
        {line.name: line.meaning for line in explain(Settings.from_config(settings), "aligned")[0][1]}
        for settings in (config, {**config, **known})
    ]
    assert "input-mean and input-stddev are not given" in reasons[0]["context-center"]
    assert "public mean" in reasons[1]["context-center"]


def test_what_was_given_is_not_said_to_be_the_presets():
    """A preset's reason stands beside the preset's value alone; its counts of records follow the other settings."""
    given = {"preset": "aligned", "records-per-client": 500, "batch-schedule": "cyclic", "batch-records": 200}
    reasons = {line.name: line.meaning for line in explain(Settings.from_config(given), "aligned")[0][1]}
    own = {name for name, reason in reasons.items() if reason == "given"}
    assert own == {"records-per-client", "batch-schedule", "batch-records"}
    assert reasons["context-records"] != "given"
    # At its general default, too: the preset's own value is not in force.
    at_default = Settings.from_config({"preset": "aligned", "accountant": "rdp"}, given={"accountant"})
    line = next(line for line in explain(at_default, "aligned")[0][1] if line.name == "accountant")
    assert (line.value, line.meaning) == ("rdp", "given")

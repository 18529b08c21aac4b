"""Two real ranks against one process of plain PyTorch, for every ZeRO stage and every way to cut a batch."""

import json

import pytest
import torch
from made_up_steps import COMPLETE, EVERYTHING, LANGUAGES, MODEL, TRAINING, VOCABULARY, make_rows, reference_loss
from ranks import run_ranks

from xlm.errors import UserError
from xlm.model.pretraining import PretrainingModel
from xlm.training.engine import TrainingEngine
from xlm.training.parameter_groups import parameter_groups

STEPS = 3
# Buckets smaller than most parameters, and fewer rows than micro-batches, so that some are empty: gradients
# of different parameters must never meet in one sum.
SMALL_BUCKETS = {"reduce_bucket_size": 600, "allgather_bucket_size": 600}
FEW_ROWS = {"token_rows": 1, "pair_rows": 1}
PLAIN = [{"stage": stage, "micro_steps": micro, "steps": STEPS} for stage in (0, 1, 2, 3) for micro in (1, 3)]
SPARSE = [{"stage": stage, "micro_steps": 2, "steps": STEPS, "rows": FEW_ROWS, "zero": SMALL_BUCKETS} for stage in (1, 2, 3)]
BF16 = [{"stage": stage, "micro_steps": 2, "steps": STEPS, "precision": "bf16"} for stage in (1, 2, 3)]
POISON = [{"stage": stage, "micro_steps": 2, "steps": STEPS, "poison": 1} for stage in (0, 1, 2, 3)]
POISON += [{"stage": stage, "micro_steps": 1, "steps": STEPS, "poison": 1, "precision": "bf16"} for stage in (1, 2, 3)]
RESUME = [{"stage": stage, "micro_steps": 2, "steps": 4, "resume_after": 2} for stage in (0, 1, 2, 3)]
RESUME += [{"stage": stage, "micro_steps": 2, "steps": 4, "resume_after": 2, "precision": "bf16"} for stage in (1, 2, 3)]
# All heads at once; some micro-batches lack what a head reads, some are empty.
ALL_ROWS = {"token_rows": 6, "pair_rows": 1, "objectives": EVERYTHING}
ALL_HEADS = [{"stage": stage, "micro_steps": 3, "steps": STEPS, "rows": ALL_ROWS, "zero": SMALL_BUCKETS} for stage in (1, 2, 3)]
ALL_HEADS += [{"stage": 0, "micro_steps": 2, "steps": STEPS, "rows": ALL_ROWS}]
ALL_RESUME = [{"stage": stage, "micro_steps": 2, "steps": 4, "resume_after": 2, "rows": ALL_ROWS} for stage in (2, 3)]
DIVERGED = [{"stage": stage, "micro_steps": 2, "steps": STEPS, "diverged": 1, "rows": ALL_ROWS} for stage in (0, 2)]
SCENARIOS = [*PLAIN, *SPARSE, *BF16, *POISON, *RESUME, *ALL_HEADS, *ALL_RESUME, *DIVERGED]


def name_of(scenario):
    return "-".join(f"{key}{value}" for key, value in scenario.items() if not isinstance(value, dict)) + (
        ("-all" if "objectives" in scenario["rows"] else "-sparse") if "rows" in scenario else ""
    )


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    out = tmp_path_factory.mktemp("engine") / "two.json"
    run_ranks("engine_worker.py", [json.dumps(SCENARIOS), str(out)], world_size=2)
    return {name_of(scenario): result for scenario, result in zip(SCENARIOS, json.loads(out.read_text()), strict=True)}


def reference(rows=None, poison=None):
    """The same training in plain PyTorch: the loss by its definition, clipping, AdamW."""
    model = PretrainingModel(COMPLETE if "objectives" in (rows or {}) else MODEL, VOCABULARY, len(LANGUAGES))
    model.initialise(3)
    section = TRAINING.optimizer
    groups = parameter_groups(model, section)
    for group in groups:
        group["lr"] = 1e-2 * group["lr_scale"]
    optimizer = torch.optim.AdamW(groups, betas=section.betas, eps=section.epsilon, weight_decay=section.weight_decay)
    losses, norms = [], []
    for step in range(STEPS):
        if step == poison:
            continue
        optimizer.zero_grad()
        loss = reference_loss(model, make_rows(step, **(rows or {})))
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), TRAINING.gradient_clipping).item())
        optimizer.step()
        losses.append(loss.item())
    return losses, norms, dict(model.named_parameters())


def test_one_process_without_zero_adds_to_its_gradients_in_place_and_is_plain_pytorch(tmp_path):
    out = tmp_path / "one.json"
    run_ranks("engine_worker.py", [json.dumps([{"stage": 0, "micro_steps": 3, "steps": STEPS, "rows": ALL_ROWS}]), str(out)], world_size=1)
    found = json.loads(out.read_text())[0]
    losses, norms, weights = reference(ALL_ROWS)
    assert found["losses"] == pytest.approx(losses, rel=1e-5)
    assert found["norms"] == pytest.approx(norms, rel=1e-4)
    assert_same_weights(found["weights"], weights, rtol=1e-3, atol=2e-5)


def assert_same_weights(found, wanted, **tolerance):
    assert set(found) == set(wanted)
    for name, values in found.items():
        torch.testing.assert_close(
            torch.tensor(values), wanted[name].detach().flatten(), **tolerance, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.parametrize("scenario", [*PLAIN, *SPARSE, *ALL_HEADS], ids=name_of)
def test_fp32_is_plain_pytorch_at_every_stage(two_ranks, scenario):
    found = two_ranks[name_of(scenario)]
    losses, norms, weights = reference(scenario.get("rows"))
    assert found["losses"] == pytest.approx(losses, rel=1e-5)
    assert found["norms"] == pytest.approx(norms, rel=1e-4)
    assert_same_weights(found["weights"], weights, rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("scenario", BF16, ids=name_of)
def test_bf16_follows_fp32_within_its_rounding(two_ranks, scenario):
    found = two_ranks[name_of(scenario)]
    losses, _, _ = reference()
    assert found["losses"] == pytest.approx(losses, rel=0.02)
    # Full weights are the fp32 master copy, not bf16 numbers widened.
    values = torch.tensor(found["weights"]["encoder.embeddings.tokens.weight"])
    assert not torch.equal(values.bfloat16().float(), values)


@pytest.mark.parametrize("scenario", [*POISON, *DIVERGED], ids=name_of)
def test_a_step_that_is_not_finite_is_skipped_on_all_ranks(two_ranks, scenario):
    found = two_ranks[name_of(scenario)]
    assert found["applied"] == [True, False, True]
    assert found["norms"][1] is None
    assert found["losses"][1] is None
    if scenario.get("precision") != "bf16":
        losses, _, weights = reference(scenario.get("rows"), poison=1)
        assert [found["losses"][0], found["losses"][2]] == pytest.approx(losses, rel=1e-5)
        assert_same_weights(found["weights"], weights, rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("scenario", [*RESUME, *ALL_RESUME], ids=name_of)
def test_a_checkpoint_goes_on_bit_for_bit(two_ranks, scenario):
    found = two_ranks[name_of(scenario)]
    resumed = found.pop("resumed")
    assert resumed["losses"] == found["losses"][2:]
    assert resumed["norms"] == found["norms"][2:]
    assert resumed["weights"] == found["weights"]


def test_one_rank_gives_the_loss_of_two(two_ranks, tmp_path):
    scenario = {"stage": 2, "micro_steps": 1, "steps": STEPS}
    run_ranks("engine_worker.py", [json.dumps([scenario]), str(tmp_path / "one.json")], world_size=1)
    (one,) = json.loads((tmp_path / "one.json").read_text())
    two = two_ranks[name_of(scenario)]
    assert one["losses"] == pytest.approx(two["losses"], rel=1e-6)
    assert one["norms"] == pytest.approx(two["norms"], rel=1e-5)


class DeepSpeedThatFindsNothing:
    """DeepSpeed's answer when the files of a rank are not there: a warning and (None, None)."""

    def load_checkpoint(self, folder, tag):
        return None, None


def test_a_checkpoint_that_deepspeed_does_not_take_up_is_no_fresh_start(tmp_path):
    engine = TrainingEngine.__new__(TrainingEngine)
    engine._engine = DeepSpeedThatFindsNothing()
    with pytest.raises(UserError, match=r"step-00000003: DeepSpeed finds no state in this checkpoint"):
        engine.load(tmp_path / "step-00000003")

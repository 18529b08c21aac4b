"""Two real ranks against one process of plain PyTorch, for every ZeRO stage and every way to cut a batch."""

import json
import re

import pytest
import torch
from made_up_steps import CODES, COMPLETE, EVERYTHING, HELD_OUT, LANGUAGES, MODEL, TRAINING, VOCABULARY, make_rows, pack, reference_loss
from ranks import run_ranks

from xlm.model.pretraining import PretrainingModel
from xlm.training.parameter_groups import parameter_groups

STEPS = 3
# Buckets smaller than most parameters, and fewer rows than micro-batches, so that some are empty: gradients
# of different parameters must never meet in one sum.
SMALL_BUCKETS = {"reduce_bucket_size": 600, "allgather_bucket_size": 600}
FEW_ROWS = {"token_rows": 1, "pair_rows": 1}
PLAIN = [{"stage": stage, "micro_steps": micro, "steps": STEPS} for stage in (0, 1, 2, 3) for micro in (1, 3)]
SPARSE = [{"stage": stage, "micro_steps": 2, "steps": STEPS, "rows": FEW_ROWS, "zero": SMALL_BUCKETS} for stage in (1, 2, 3)]
CPU = {"device": "cpu"}
OFFLOADED = [{"stage": stage, "zero": {"offload_optimizer": CPU}} for stage in (1, 2, 3)]
OFFLOADED += [{"stage": 3, "zero": {"offload_optimizer": CPU, "offload_param": CPU}}]
OFFLOADED = [{**offloaded, "micro_steps": 2, "steps": STEPS} for offloaded in OFFLOADED]
LOSS_SCALE = {"loss_scale": {"initial_power": 10, "window": 2}}
BF16 = [{"stage": stage, "micro_steps": 2, "steps": STEPS, "precision": "bf16"} for stage in (1, 2, 3)]
BF16 += [{**offloaded, "precision": "bf16"} for offloaded in OFFLOADED]
FP16 = [{"stage": stage, "micro_steps": 2, "steps": STEPS} for stage in (1, 2, 3)]
FP16 = [{**scenario, "precision": "fp16", "training": LOSS_SCALE} for scenario in [*FP16, *OFFLOADED]]
# The gradients of the first two steps are beyond the range of fp16 at 2^13 and 2^12, the third's is not at 2^11.
OVERFLOWN = [{**scenario, "training": {"loss_scale": {"initial_power": 13, "window": 1000}}} for scenario in FP16]
POISON = [{"stage": stage, "micro_steps": 2, "steps": STEPS, "poison": 1} for stage in (0, 1, 2, 3)]
POISON += [{"stage": stage, "micro_steps": 1, "steps": STEPS, "poison": 1, "precision": "bf16"} for stage in (1, 2, 3)]
POISON += [{**scenario, "poison": 1} for scenario in [*OFFLOADED, *BF16[3:]]]
RESUME = [{"stage": stage, "micro_steps": 2, "steps": 4, "resume_after": 2} for stage in (0, 1, 2, 3)]
RESUME += [{"stage": stage, "micro_steps": 2, "steps": 4, "resume_after": 2, "precision": "bf16"} for stage in (1, 2, 3)]
# All heads at once; some micro-batches lack what a head reads, some are empty.
ALL_ROWS = {"token_rows": 6, "pair_rows": 1, "objectives": EVERYTHING}
RESUME += [{**scenario, "steps": 4, "resume_after": 2} for scenario in [*FP16, *OFFLOADED, *BF16[3:]]]
ALL_HEADS = [{"stage": stage, "micro_steps": 3, "steps": STEPS, "rows": ALL_ROWS, "zero": SMALL_BUCKETS} for stage in (1, 2, 3)]
ALL_HEADS += [{"stage": 0, "micro_steps": 2, "steps": STEPS, "rows": ALL_ROWS}]
ALL_RESUME = [{"stage": stage, "micro_steps": 2, "steps": 4, "resume_after": 2, "rows": ALL_ROWS} for stage in (2, 3)]
DIVERGED = [{"stage": stage, "micro_steps": 2, "steps": STEPS, "diverged": 1, "rows": ALL_ROWS} for stage in (0, 2)]
DROPOUT = [{"stage": stage, "micro_steps": 2, "steps": STEPS, "model": {"dropout": 0.2}} for stage in (0, 1, 2, 3)]
VALIDATED = [{**scenario, "validate": True} for scenario in DROPOUT]
RECOMPUTED = [{**scenario, "training": {"activation_checkpointing": True}} for scenario in [*DROPOUT, *BF16[1:3]]]
SCENARIOS = [*PLAIN, *SPARSE, *OFFLOADED, *BF16, *FP16, *OVERFLOWN, *POISON, *RESUME, *ALL_HEADS, *ALL_RESUME, *DIVERGED]
SCENARIOS += [*DROPOUT, *VALIDATED, *RECOMPUTED]


def name_of(scenario):
    return (
        "-".join(f"{key}{value}" for key, value in scenario.items() if not isinstance(value, dict))
        + (("-all" if "objectives" in scenario["rows"] else "-sparse") if "rows" in scenario else "")
        + ("-dropout" if "model" in scenario else "")
        + "".join(f"-{re.sub('[^a-z0-9]+', '-', str(scenario[name]).lower())}" for name in ("training", "zero") if name in scenario)
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
        if step == poison or (isinstance(poison, tuple) and step in poison):
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


@pytest.mark.parametrize("scenario", [*PLAIN, *SPARSE, *ALL_HEADS, *OFFLOADED], ids=name_of)
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


@pytest.mark.parametrize("scenario", FP16, ids=name_of)
def test_fp16_follows_fp32_within_its_rounding_and_shows_norms_without_the_scale(two_ranks, scenario):
    found = two_ranks[name_of(scenario)]
    losses, norms, _ = reference()
    assert found["losses"] == pytest.approx(losses, rel=0.005)
    assert found["norms"] == pytest.approx(norms, rel=0.02)
    assert found["scales"] == [1024, 2048, 2048]  # doubled after two finite steps
    values = torch.tensor(found["weights"]["encoder.embeddings.tokens.weight"])
    assert not torch.equal(values.half().float(), values)


@pytest.mark.parametrize("scenario", OVERFLOWN, ids=name_of)
def test_a_scale_that_is_too_high_costs_a_step_on_all_ranks_and_is_halved(two_ranks, scenario):
    found = two_ranks[name_of(scenario)]
    assert found["applied"] == [False, False, True]
    assert found["too_high"] == [True, True, False]
    assert found["scales"] == [4096, 2048, 2048]
    losses, norms, _ = reference(poison=(0, 1))
    assert found["losses"] == [None, None, pytest.approx(losses[0], rel=0.005)]
    assert found["norms"] == [None, None, pytest.approx(norms[0], rel=0.02)]


@pytest.mark.parametrize("scenario", RECOMPUTED, ids=name_of)
def test_layers_that_are_computed_again_change_no_bit(two_ranks, scenario):
    plain = {name: value for name, value in scenario.items() if name != "training"}
    assert two_ranks[name_of(scenario)] == two_ranks[name_of(plain)]


@pytest.mark.parametrize("scenario", [*POISON, *DIVERGED], ids=name_of)
def test_a_step_that_is_not_finite_is_skipped_on_all_ranks(two_ranks, scenario):
    found = two_ranks[name_of(scenario)]
    assert found["applied"] == [True, False, True]
    assert found["norms"][1] is None
    assert found["losses"][1] is None
    if "precision" not in scenario:
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


@pytest.mark.parametrize("scenario", VALIDATED, ids=name_of)
def test_validation_measures_the_weights_as_they_are_and_changes_nothing(two_ranks, scenario):
    found, alone = dict(two_ranks[name_of(scenario)]), two_ranks[name_of(DROPOUT[scenario["stage"]])]
    measured = found.pop("validation")
    assert found == alone
    wanted = reference_validation(found["weights"])
    assert set(measured) == set(wanted)
    assert measured == pytest.approx(wanted, rel=1e-5)


def reference_validation(weights):
    """Means over the held-out predictions, one sequence at a time, without dropout."""
    model = PretrainingModel(MODEL, VOCABULARY, len(LANGUAGES))
    model.load_state_dict({name: torch.tensor(weights[name]).view_as(tensor) for name, tensor in model.named_parameters()}, strict=False)
    model.tie_weights()
    losses, hits = {}, {}
    for one in (one for row in HELD_OUT for one in row):
        batch = pack([[one]])
        logits = model.logits(model.encode(batch, model.token_tables())[batch.predict_positions]).float()
        objective, language = CODES[one["objective"]], LANGUAGES[one["language"]]
        for name in ("", f"/{objective}", f"/{objective}/{language}"):
            losses.setdefault(name, []).extend(torch.nn.functional.cross_entropy(logits, batch.labels, reduction="none").tolist())
            hits.setdefault(name, []).extend((logits.argmax(1) == batch.labels).float().tolist())
    means = {f"validation{name or '/loss'}": sum(values) / len(values) for name, values in losses.items()}
    return means | {f"validation/accuracy{name}": sum(values) / len(values) for name, values in hits.items() if name}


def test_one_rank_gives_the_loss_of_two(two_ranks, tmp_path):
    scenario = {"stage": 2, "micro_steps": 1, "steps": STEPS}
    run_ranks("engine_worker.py", [json.dumps([scenario]), str(tmp_path / "one.json")], world_size=1)
    (one,) = json.loads((tmp_path / "one.json").read_text())
    two = two_ranks[name_of(scenario)]
    assert one["losses"] == pytest.approx(two["losses"], rel=1e-6)
    assert one["norms"] == pytest.approx(two["norms"], rel=1e-5)

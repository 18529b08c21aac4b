"""LAMB and Muon on two real ranks, which hold pieces of parameters, against their definitions in one process."""

import json

import pytest
import torch
from made_up_steps import LANGUAGES, MODEL, TRAINING, VOCABULARY, make_rows, reference_loss
from plain_optimizers import lamb_step, muon_step
from ranks import run_ranks

from xlm.config.training import OptimizerSection
from xlm.model.pretraining import PretrainingModel
from xlm.training.parameter_groups import hidden_blocks

# Two ranks of its own; tests/training/test_engine_state.py takes Muon through a few steps in every run.
pytestmark = pytest.mark.slow

STEPS = 6
RATE = 1e-2  # the worker's
# Parameters in several buckets, and sub-groups of stage 3 that hold a few parameters each.
SMALL = {"reduce_bucket_size": 600, "sub_group_size": 700}
SECTIONS = {kind: {"kind": kind, "learning_rate": RATE, "weight_decay": 0.1} for kind in ("lamb", "muon")}
GROWING = [1, 2, 3]  # micro-batches of the steps in turn: with batch warm-up they are not as many in every step
CELLS = [(kind, stage, "fp32") for kind in SECTIONS for stage in (0, 1, 2, 3)]
CELLS += [("muon", 1, "bf16"), ("muon", 3, "bf16"), ("lamb", 2, "bf16"), ("lamb", 1, "bf16"), ("lamb", 3, "fp16"), ("muon", 2, "fp16")]
RESUMED = [("muon", 1, "fp32"), ("lamb", 2, "fp32"), ("muon", 3, "fp32"), ("lamb", 1, "bf16")]


def scenario_of(cell):
    kind, stage, precision = cell
    scenario = {"stage": stage, "micro_steps": GROWING, "steps": STEPS, "zero": SMALL if stage else {}, "precision": precision}
    scenario["training"] = {"optimizer": SECTIONS[kind], "loss_scale": {"initial_power": 8}}
    return scenario | ({"resume_after": STEPS // 2} if cell in RESUMED else {})


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    out = tmp_path_factory.mktemp("optimizers") / "two.json"
    run_ranks("engine_worker.py", [json.dumps([scenario_of(cell) for cell in CELLS]), str(out)], world_size=2)
    return dict(zip(CELLS, json.loads(out.read_text()), strict=True))


@pytest.fixture(scope="module")
def references():
    return {kind: reference(OptimizerSection(**section)) for kind, section in SECTIONS.items()}


def reference(section):
    """The same training by definition: losses and weights by name; also which matrices Muon is for, said once more here."""
    model = PretrainingModel(MODEL, VOCABULARY, len(LANGUAGES))
    model.initialise(3)
    states = {name: {} for name, _ in model.named_parameters()}
    losses = []
    for step in range(STEPS):
        model.zero_grad()
        loss = reference_loss(model, make_rows(step))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), TRAINING.gradient_clipping)
        losses.append(loss.item())
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                decays = parameter.ndim == 2 and not name.endswith(("positions.weight", "languages.weight"))
                options = {"rate": RATE, "decay": 0.1 if decays else 0.0}
                if section.kind == "muon" and parameter.ndim == 2 and ".blocks." in name:
                    blocks = 3 if "qkv" in name else 1
                    muon_step(parameter, parameter.grad, states[name], momentum=0.95, blocks=blocks, **options)
                elif section.kind == "muon":
                    adamw(parameter, states[name], section, **options)
                else:
                    options |= {"betas": section.betas, "epsilon": section.epsilon, "adapted": decays}
                    lamb_step(parameter, parameter.grad, states[name], **options)
    return losses, dict(model.named_parameters())


def adamw(parameter, state, section, *, rate, decay):
    if not state:
        state["own"] = torch.optim.AdamW([parameter], lr=rate, betas=section.betas, eps=section.epsilon, weight_decay=decay)
    state["own"].step()


@pytest.mark.parametrize("cell", [cell for cell in CELLS if cell[2] == "fp32"])
def test_is_the_definition_wherever_pieces_lie(two_ranks, references, cell):
    found = two_ranks[cell]
    losses, weights = references[cell[0]]
    assert found["losses"] == pytest.approx(losses, rel=1e-5)
    for name, wanted in weights.items():
        difference = torch.tensor(found["weights"][name]) - wanted.detach().flatten()
        assert difference.norm().item() <= 1e-5 * max(wanted.norm().item(), 1.0), name


@pytest.mark.parametrize("cell", [cell for cell in CELLS if cell[2] != "fp32"])
def test_16_bits_follow_within_their_rounding(two_ranks, references, cell):
    losses, _ = references[cell[0]]
    assert two_ranks[cell]["losses"] == pytest.approx(losses, rel=0.03)
    assert all(two_ranks[cell]["applied"])


@pytest.mark.parametrize("cell", RESUMED)
def test_goes_on_from_a_checkpoint_bit_for_bit(two_ranks, cell):
    resumed = two_ranks[cell]["resumed"]
    assert resumed["losses"] == two_ranks[cell]["losses"][STEPS // 2 :]
    assert resumed["weights"] == two_ranks[cell]["weights"]


def test_hidden_matrices_are_those_of_blocks():
    model = PretrainingModel(MODEL.model_copy(update={"activation": "geglu"}), VOCABULARY, len(LANGUAGES))
    blocks = {name: hidden_blocks(name, model.config) for name, _ in model.named_parameters()}
    found = {name: count for name, count in blocks.items() if count}
    assert len(found) == 4 * MODEL.layers
    assert found["encoder.blocks.1.attention.qkv.weight"] == 3
    assert found["encoder.blocks.0.feed_forward.inner.weight"] == 2
    assert found["encoder.blocks.0.feed_forward.output.weight"] == found["encoder.blocks.0.attention.output.weight"] == 1

"""Operations of a real step end up in the part that they belong to, and none is lost."""

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from training.cases import Case
from training.parts import PARTS, part_of, seconds_by_part, table
from training.side import Side

VOCABULARY = 3_001


@pytest.mark.parametrize("name", ["ours", "peer"])
def test_a_step_in_parts(name):
    side = Side(name, Case(32, 2, 2, "monolingual", "fp32", rows=4, rounds=1, vocabulary=VOCABULARY, row_tokens=64, step_tokens=200))
    side.load()
    side.prepare(0)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        side.part(0)
        side.update()
    events = list(profiler.events())
    found = seconds_by_part(events, VOCABULARY)
    assert sum(found.values()) == pytest.approx(sum(event.self_cpu_time_total for event in events) / 1e6)
    assert min(found[part] for part in PARTS[:6]) > 0
    assert found["other"] < 0.5 * sum(found.values())


def operations(loss_of):
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        loss_of().backward()
    return seconds_by_part(profiler.events(), VOCABULARY)


def test_each_part_alone():
    states = torch.randn(8, 2, 16, 16, requires_grad=True)
    ids = torch.randint(0, VOCABULARY, (32,))
    rows = torch.randn(32, 16, requires_grad=True)
    projection, linear = nn.Linear(16, VOCABULARY), nn.Linear(16, 48)
    examples = {
        "attention": lambda: nn.functional.scaled_dot_product_attention(states, states, states).sum(),
        "vocabulary projection and loss": lambda: nn.functional.cross_entropy(projection(rows), ids),
        "linear maps": lambda: linear(rows).sum(),
        "embedding look-up and gradient": lambda: nn.functional.embedding(ids, projection.weight).sum(),
        "norms and GELU": lambda: nn.functional.layer_norm(nn.functional.gelu(rows), (16,)).sum(),
    }
    for part, example in examples.items():
        found = operations(example)
        assert found[part] > 0, part
        assert all(found[other] == 0 for other in PARTS[:6] if other != part), part


def test_callers_decide_before_the_operation_itself():
    assert part_of(["aten::bmm", "_GroupedAttentionBackward"], [[4, 8, 8], [4, 8, 16]], VOCABULARY) == "attention"
    assert part_of(["aten::mm"], [[9, 16], [16, VOCABULARY]], VOCABULARY) == "vocabulary projection and loss"
    assert part_of(["aten::mm", "aten::linear"], [[9, 16], [16, 48]], VOCABULARY) == "linear maps"


def test_table():
    lines = table({"ours": dict.fromkeys(PARTS, 0.5), "peer": dict.fromkeys(PARTS, 1.0)}).splitlines()
    assert lines[0] == "| part | ours | peer |"
    assert lines[2] == "| linear maps | 0.50 s, 12% | 1.00 s, 12% |"
    assert lines[-1] == "| all | 4.00 s | 8.00 s |"

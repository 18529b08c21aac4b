import pytest
import torch
from made_up_steps import COMPLETE, EVERYTHING, LANGUAGES, VOCABULARY, make_rows, pack

from xlm.model.pretraining import PretrainingModel
from xlm.training.encoded import encode_for

BATCH = pack(make_rows(0, token_rows=6, objectives=EVERYTHING))
FIRST, EVEN = BATCH.cu_seqlens[:-1].long(), torch.arange(0, BATCH.tokens, 2)


@pytest.mark.parametrize(
    "readers",
    [[FIRST], [FIRST, EVEN], [None, EVEN], [EVEN, torch.arange(BATCH.tokens)], [FIRST[:0], EVEN, FIRST]],
    ids=["one", "two", "one of two", "everything", "nothing in one"],
)
@pytest.mark.parametrize("layer", [None, 1])
def test_every_reader_finds_the_states_of_its_tokens(readers, layer):
    model = PretrainingModel(COMPLETE, VOCABULARY, len(LANGUAGES))
    layers = model.encode_layers(BATCH, model.token_tables())
    encoded = encode_for(model, BATCH, model.token_tables(), readers, layer=layer)
    for tokens in readers:
        if tokens is not None:
            torch.testing.assert_close(encoded.at(tokens), layers[-1][tokens], rtol=1e-5, atol=1e-6)
            if layer is not None:
                torch.testing.assert_close(encoded.at(tokens, layer), layers[layer][tokens], rtol=1e-5, atol=1e-6)
    assert len(encoded.states) == len(torch.cat([tokens for tokens in readers if tokens is not None]).unique())

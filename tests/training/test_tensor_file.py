import pytest
import torch
from safetensors.torch import load_file, safe_open, save_file

from xlm.errors import UserError
from xlm.training.tensor_file import TensorFile, TensorPlace, write_tensor_file


@pytest.fixture
def numbers():
    generator = torch.Generator().manual_seed(1)
    return {
        "one": torch.randn(3, 5, generator=generator),
        "half": torch.randn(7, generator=generator).bfloat16(),
        "whole": torch.arange(4),
        "single": torch.tensor(2.5),
    }


def flat(content, dtype):
    return torch.frombuffer(content, dtype=dtype)


def test_any_range_of_what_safetensors_wrote(tmp_path, numbers):
    save_file(numbers, tmp_path / "a.safetensors", metadata={"of": "them"})
    file = TensorFile(tmp_path / "a.safetensors")
    assert file.metadata == {"of": "them"}
    for name, tensor in numbers.items():
        place = file.tensors[name]
        assert (place.shape, place.elements) == (tuple(tensor.shape), tensor.numel())
        for start in range(tensor.numel()):
            for stop in range(start + 1, tensor.numel() + 1):
                assert torch.equal(flat(file.read(name, start, stop), tensor.dtype), tensor.flatten()[start:stop])
        chunks = list(file.chunks(name, 0, tensor.numel(), most_bytes=8))
        assert all(len(chunk) <= 8 for chunk in chunks)
        assert torch.equal(flat(bytearray().join(chunks), tensor.dtype), tensor.flatten())


def test_safetensors_reads_what_is_streamed(tmp_path, numbers):
    names = {torch.float32: "F32", torch.bfloat16: "BF16", torch.int64: "I64"}
    places = {name: TensorPlace(names[tensor.dtype], tuple(tensor.shape)) for name, tensor in numbers.items()}
    content = b"".join(tensor.flatten().view(torch.uint8).numpy().tobytes() for tensor in numbers.values())
    path = tmp_path / "b.safetensors"
    write_tensor_file(path, places, (content[i : i + 5] for i in range(0, len(content), 5)), {"of": "them"})
    assert all(torch.equal(tensor, numbers[name]) for name, tensor in load_file(path).items())
    with safe_open(path, "pt") as opened:
        assert opened.metadata() == {"of": "them"}
    with pytest.raises(RuntimeError, match="were given where"):
        write_tensor_file(path, places, [content[:-1]], {})


def test_nothing_but_a_header_is_a_file_too(tmp_path):
    write_tensor_file(tmp_path / "c.safetensors", {}, [], {"of": "none"})
    assert load_file(tmp_path / "c.safetensors") == {}
    assert TensorFile(tmp_path / "c.safetensors").metadata == {"of": "none"}


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-1],
        lambda content: content[:4],
        lambda content: b"",
        lambda content: b"\xff" * 8 + content[8:],
        lambda content: content.replace(b'"F32"', b'"X32"'),
        lambda content: content.replace(b"data_offsets", b"data_offsetz"),
        lambda content: content[:8] + b"[" + content[9:],
    ],
)
def test_a_damaged_file_is_a_sentence(tmp_path, numbers, damage):
    path = tmp_path / "d.safetensors"
    save_file(numbers, path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UserError, match=r"d\.safetensors: this file of a checkpoint is damaged"):
        TensorFile(path)


def test_a_missing_file_is_a_sentence(tmp_path):
    with pytest.raises(UserError, match="is missing"):
        TensorFile(tmp_path / "e.safetensors")

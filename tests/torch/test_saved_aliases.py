"""`torch.save` and `torch.load` of tensors that are aliases: they share a storage in the file, and
are aliases again when they are read, as in PyTorch.
"""

from __future__ import annotations

import io
import random
import zipfile
from typing import Any

import pytest

import tilegrad.torch as torch
from tilegrad.torch import nn


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 8)
        self.head = nn.Linear(8, 50, bias=False)
        self.head.weight = self.embedding.weight


def read_again(value: Any, **options: Any) -> Any:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, **options)


def storages(value: Any) -> dict[str, int]:
    """The storages of a file, and their bytes."""
    file = io.BytesIO()
    torch.save(value, file)
    with zipfile.ZipFile(file) as archive:
        return {
            each.filename.rpartition("/")[2]: each.file_size
            for each in archive.infolist()
            if "/data/" in each.filename
        }


def test_views_are_views_of_what_was_read() -> None:
    x = torch.arange(6.0).clone()
    found = read_again({"x": x, "part": x[2:5], "turned": x.view(2, 3).t()})
    found["x"][3] = 100
    assert found["part"].tolist() == [2, 100, 4]
    assert found["turned"].tolist() == [[0, 100], [1, 4], [2, 5]]
    assert found["turned"].stride() == (1, 3)
    found["turned"][0, 0] = -1
    assert found["x"].tolist() == [-1, 1, 2, 100, 4, 5]
    assert x.tolist() == [0, 1, 2, 3, 4, 5]


def test_objects_that_were_one_are_one() -> None:
    x, numbers = torch.ones(3), [1, 2]
    found = read_again({"x": x, "same": x, "pair": (x, numbers), "numbers": numbers})
    assert found["same"] is found["x"] is found["pair"][0]
    assert found["pair"][1] is found["numbers"]


def test_a_list_that_holds_itself() -> None:
    value: list[Any] = [torch.ones(2)]
    value.append(value)
    found = read_again(value)
    assert found[1] is found
    assert found[0].tolist() == [1, 1]


def test_tied_weights_are_written_once() -> None:
    model = Tied()
    assert storages(model.state_dict()) == {"0": 50 * 8 * 4}
    assert storages(model) == {"0": 50 * 8 * 4}
    found = read_again(model.state_dict())
    assert list(found) == ["embedding.weight", "head.weight"]
    found["embedding.weight"].zero_()
    assert found["head.weight"].abs().sum().item() == 0
    assert model.head.weight.abs().sum().item() > 0


def test_what_is_saved_alone_takes_its_own_elements_only() -> None:
    x = torch.arange(1000.0).clone()
    assert storages(x[10:13]) == {"0": 12}
    assert storages([x[10:13], x[11:12].clone()]) == {"0": 12, "1": 4}


def test_gradients_of_leaves_that_share_a_storage() -> None:
    weight = nn.Parameter(torch.ones(4))
    first, second = weight.detach()[:2], weight.detach()
    found = read_again([weight, first, second])
    assert [each.requires_grad for each in found] == [True, False, False]
    assert isinstance(found[0], nn.Parameter)
    (found[0] * torch.arange(4.0)).sum().backward()
    assert found[0].grad.tolist() == [0, 1, 2, 3]
    with torch.no_grad():
        found[0].mul_(3)
    assert found[1].tolist() == [3, 3]
    assert found[2].tolist() == [3, 3, 3, 3]


class Holder:
    """An object that only `weights_only=False` reads."""

    def __init__(self, values: list[Any]) -> None:
        self.values = values


def test_objects_with_aliases() -> None:
    x = torch.arange(6.0).clone()
    found = read_again(Holder([x, x.view(3, 2), x[4:], torch.ones(2)]), weights_only=False)
    found.values[0].mul_(2)
    assert [each.tolist() for each in found.values] == [
        [0, 2, 4, 6, 8, 10],
        [[0, 2], [4, 6], [8, 10]],
        [8, 10],
        [1, 1],
    ]


def test_objects_of_files_that_list_no_layouts() -> None:
    """As they were written before aliases shared a storage."""
    file, older = io.BytesIO(), io.BytesIO()
    torch.save(Holder([torch.ones(2), torch.zeros(3)]), file)
    with zipfile.ZipFile(file) as archive, zipfile.ZipFile(older, "w") as copy:
        for name in archive.namelist():
            if not name.endswith("layouts.json"):
                copy.writestr(name, archive.read(name))
    older.seek(0)
    found = torch.load(older, weights_only=False)
    assert [each.tolist() for each in found.values] == [[1, 1], [0, 0, 0]]


def family(lib: Any, draw: random.Random) -> list[Any]:
    """A tensor, and views of it and of each other."""
    made = [lib.arange(float(draw.choice([6, 12, 24]))).clone()]
    for _ in range(draw.randint(1, 5)):
        x, kind = draw.choice(made), draw.randrange(9)
        if x.ndim == 0 or 0 in x.shape:
            continue
        if kind == 0:
            made.append(x[draw.randrange(x.shape[0]) :])
        elif kind == 1 and x.is_contiguous() and x.numel() % 2 == 0:
            made.append(x.view(-1, 2))
        elif kind == 2:
            made.append(x.transpose(0, -1))
        elif kind == 3:
            made.append(x[::2])
        elif kind == 4:
            made.append(x.unsqueeze(draw.randint(0, x.ndim)))
        elif kind == 5:
            made.append(x.detach())
        elif kind == 6:
            made.append(x[0])
        elif kind == 7:
            made.append(x.unsqueeze(0).expand(3, *x.shape))
        elif kind == 8 and x.is_contiguous():
            made.append(x.view(-1)[: max(1, x.numel() // 2)])
    return made


def after_a_write(lib: Any, file: io.BytesIO) -> list[Any]:
    """What a file holds: values, strides of axes of more than one element, and values after the
    first tensor was written to.
    """
    file.seek(0)
    tensors = lib.load(file)
    before = [each.tolist() for each in tensors]
    tensors[0].mul_(2)
    strides = [
        [step for step, size in zip(each.stride(), each.shape) if size > 1] for each in tensors
    ]
    return [before, strides, [each.tolist() for each in tensors]]


@pytest.mark.parametrize("seed", range(40))
def test_random_views_as_in_pytorch(seed: int) -> None:
    """Files of either library, read by either."""
    peer = pytest.importorskip("torch")
    ours, theirs = (family(lib, random.Random(seed)) for lib in (torch, peer))
    if seed % 2:
        # Views that were computed by themselves.
        for each in ours:
            each.tolist()
    files = io.BytesIO(), io.BytesIO()
    torch.save(ours, files[0])
    peer.save(theirs, files[1])
    wanted = after_a_write(peer, files[1])
    assert after_a_write(torch, files[0]) == wanted
    assert after_a_write(peer, files[0]) == wanted
    assert after_a_write(torch, files[1]) == wanted

"""The references that benchmarks compare with are right, and the networks of the examples give
their values.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples.models.gpt2 import GPT2, Decoder, generate, load_published
from examples.models.resnet import ResNet
from examples.models.vit import ViT
from tilegrad import Tensor
from tilegrad.nn.state import get_parameters, get_state_dict, load_state_dict

sys.path.append(str(Path(__file__).parents[2] / "bench"))
from models import nets, reference
from models.inputs import inputs, some
from rows import rows

ROOT = Path(__file__).parents[2]
Value, Ops = reference.Value, reference.Ops
# So short that hardly any value crosses a kink on the way.
STEP = 1e-9
SMALL = nets.Transformer(layers=1, heads=2, width=8, context=5, tokens=11)


def values(w: nets.Weights) -> nets.Weights:
    found = {name: Value(array.astype("d")) for name, array in w.items()}
    for name, value in found.items():
        value.wanted = "running" not in name
    return found


def numbers(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def picked(name: str) -> tuple[nets.Weights, Callable[[Ops, nets.Weights], Value], Any]:
    """Weights, a small network that takes them, and labels for its scores."""
    words, vectors = np.array([[1, 5, 10, 0, 3]]), Value(numbers(2, 6).astype("d"))
    image = Value(numbers(2, 1, 28, 28).astype("d"))
    return {
        "mlp": (nets.mlp_weights(6, 5, 3), lambda o, w: nets.mlp(o, w, vectors), [0, 2]),
        "convnet": (nets.convnet_weights(), lambda o, w: nets.convnet(o, w, image), [7, 1]),
        "decoder": (
            nets.decoder_weights(SMALL),
            lambda o, w: nets.decoder(o, w, SMALL, words),
            [4, 4, 0, 10, 2],
        ),
    }[name]  # fmt: skip


@pytest.mark.parametrize("name", ["mlp", "convnet", "decoder"])
def test_gradients_of_the_reference(name: str) -> None:
    """Along a random direction, against differences of the loss."""
    arrays, forward, labels = picked(name)
    weights = values(arrays)

    def loss() -> Value:
        ops = Ops(training=True)
        return ops.cross_entropy(forward(ops, weights), np.array(labels))

    loss().backward()
    slope = 0.0
    directions = np.random.default_rng(1)
    for value in weights.values():
        value.direction = directions.standard_normal(value.shape) * value.wanted
        if value.wanted:
            slope += float((value.grad * value.direction).sum())
    start = {key: value.data for key, value in weights.items()}
    found = []
    for step in (STEP, -STEP):
        for key, value in weights.items():
            value.data = start[key] + step * value.direction
        found.append(float(loss().data))
    assert slope == pytest.approx((found[0] - found[1]) / (2 * STEP), rel=1e-5)


def test_a_convolution_of_the_reference() -> None:
    x, w = numbers(2, 4, 7, 6).astype("d"), numbers(6, 2, 3, 3).astype("d")
    found, _ = reference.convolution(x, w, 2, 1, 2)
    assert found.shape == (2, 6, 4, 3)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    window = padded[1, 2:4, 4:7, 2:5]
    assert found[1, 4, 2, 1] == pytest.approx((window * w[4]).sum())


def test_operations_of_the_rows() -> None:
    """The published number for ResNet-18 is 1.81 billion multiply-adds at 224 pixels."""
    every = {row.name: row for row in rows()}
    # Each of 32 x 64 x 56 x 56 results is a sum of 64 x 9 products.
    row = every["conv 3x3, 64 to 64, 56x56, batch 32"]
    assert row.flops == 32 * 64 * 56 * 56 * 64 * 9 * 2
    # A step forms each product three times, but for the gradient of the input.
    mlp = every["MLP 784-512-10 step, batch 256, Adam"]
    arrays = tuple(array[:4] for array in inputs(mlp.kind, mlp.sizes))
    flops = reference.Reference().make(mlp.kind, arrays, mlp.sizes).flops
    assert flops == 2 * 4 * (2 * 784 * 512 + 3 * 512 * 10)
    side = reference.Reference().make("resnet", (numbers(1, 3, 32, 32),), {}).flops
    # But for the head all work is by pixels.
    head = 2 * 512 * 1000
    assert (side - head) * (224 / 32) ** 2 + head == pytest.approx(2 * 1.814e9, rel=1e-3)


def test_every_row_has_a_reference() -> None:
    for row in rows(8):
        assert hasattr(reference.Reference, row.kind), row.name
        assert row.peers


def close(found: Tensor, expected: Value) -> None:
    np.testing.assert_allclose(found.numpy(), expected.data, rtol=2e-5, atol=2e-5)


def filled(model: Any, w: nets.Weights) -> Any:
    unmatched = load_state_dict(model, w, strict=False)
    assert all(name.endswith("num_batches_tracked") for name in unmatched.missing)
    assert not unmatched.unexpected
    return model


def test_resnet() -> None:
    w = nets.resnet_weights(4, 4)
    model, x = filled(ResNet(18, classes=4, width=4), w), numbers(2, 3, 32, 32)
    with Tensor.train(False):
        scores = model(Tensor(x))
    assert scores.shape == (2, 4)
    close(scores, nets.resnet(Ops(), values(w), Value(x.astype("d"))))


@pytest.mark.parametrize(("depth", "millions"), [(18, 11.690), (34, 21.798), (50, 25.557)])
def test_sizes_of_resnets(depth: int, millions: float) -> None:
    """As published; nothing is computed."""
    parameters = [p for p in get_parameters(ResNet(depth)) if p.requires_grad]
    assert sum(p.numel() for p in parameters) / 1e6 == pytest.approx(millions, abs=1e-3)


def gpt2(w: nets.Weights) -> GPT2:
    return filled(GPT2(layers=1, heads=2, width=8, context=5, tokens=11), w)


@pytest.mark.row("M4.15")
def test_gpt2_by_whole_and_by_token() -> None:
    """One capture serves every place, and gives what the model gives for all tokens at once."""
    w, words = nets.decoder_weights(SMALL), [1, 5, 10, 0, 3]
    model = gpt2(w)
    expected = nets.decoder(Ops(), values(w), SMALL, np.array([words])).data
    scores = model(Tensor([words]))
    assert scores.shape == (1, 5, 11)
    np.testing.assert_allclose(scores.numpy(), expected, rtol=2e-5, atol=2e-5)
    decoder = Decoder(model)
    found = [decoder.prefill(Tensor([words[:2]]))]
    found += [decoder.step(Tensor([[words[place]]]), place) for place in (2, 3, 4)]
    for place, each in enumerate(found, 1):
        np.testing.assert_allclose(each.numpy(), expected[:, place], rtol=2e-5, atol=2e-5)
    assert decoder._next.captures == 1


def test_gpt2_continues_and_loads_what_is_published() -> None:
    w = nets.decoder_weights(SMALL)
    published = {
        f"transformer.{name}": array.T if ".c_" in name and "weight" in name else array
        for name, array in w.items()
    } | {"transformer.h.0.attn.bias": np.tri(5)}
    model = GPT2(layers=1, heads=2, width=8, context=5, tokens=11)
    load_published(model, {name: Tensor(np.ascontiguousarray(a)) for name, a in published.items()})
    for name, tensor in get_state_dict(model).items():
        np.testing.assert_array_equal(tensor.numpy(), w[name])
    words = [1, 5]
    for token in generate(model, [1, 5], 3):
        scores = nets.decoder(Ops(), values(w), SMALL, np.array([words])).data
        assert token == int(scores[0, -1].argmax())
        words.append(token)
    assert len(words) == 5


def test_vit() -> None:
    sizes = nets.Transformer(layers=1, heads=2, width=8, context=17, tokens=3)
    w, x = nets.vit_weights(sizes, patch=4), numbers(2, 3, 16, 16)
    model = filled(ViT(side=16, patch=4, layers=1, heads=2, width=8, classes=3), w)
    scores = model(Tensor(x))
    assert scores.shape == (2, 3)
    close(scores, nets.vit(Ops(), values(w), sizes, Value(x.astype("d")), 4))


def test_compared_values_come_from_everywhere() -> None:
    array = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    found = some(array)
    assert 800 < len(found) <= 1366
    assert {int(value) % 64 for value in found} == set(range(64))


def made_up(**more: Any) -> dict[str, Any]:
    row = {"work": "a", "goal": 1.5, "also": {"limit": 0.5, "jax": 2.0}, "limit_ms": 1.0,
           "engines": {
        "tilegrad": {"median_ms": 2.0, "kernels": 3, "bytes": 10},
        "jax": {"median_ms": 4.0, "ratio": 2.1},
        "torch": {"median_ms": 3.0, "kept": True},
        "numpy": {"error": "not written for it"}}}  # fmt: skip
    return {"machine": "here", "commit": "0123456789", "date": "today", "versions": {"jax": "1"},
            "figures": [row | more]}  # fmt: skip


def test_table_picture_and_changes(tmp_path: Path) -> None:
    from report import changes, mean_ratio, picture, table

    record = made_up()
    wanted = "1.50, 50% of limit, jax 2.00"
    row = f"| a | 2.00 | 50% | torch (kept) | 3.00 | **1.50** | {wanted} | 3 |"
    assert row in table(record).splitlines()
    for more in ({"goal": 1.6}, {"also": {"limit": 0.6}}, {"also": {"jax": 2.1}}):
        assert "| 1.50 |" in table(made_up(**more)), more
    assert mean_ratio(record["figures"]) == pytest.approx(1.5)
    faster = made_up(engines={"tilegrad": {"median_ms": 1.0, "kernels": 2, "bytes": 10}})
    text, expected = changes(record, faster).splitlines(), ["kernels", "3", "to", "2"]
    assert text[1].split()[1:] == ["2.00", "to", "1.00", "ms", "2.00x", "faster", *expected]
    assert text[2] == "geometric mean 2.000x over 1 rows"
    picture(record, tmp_path / "chart.png")
    assert (tmp_path / "chart.png").read_bytes()[:4] == b"\x89PNG"
    failed = made_up(engines={"tilegrad": {"error": "differs"}})
    assert "| a | differs |" in table(failed)
    assert changes(record, failed).splitlines()[1].endswith("none")


def test_a_page_is_given_the_tables_of_a_result(tmp_path: Path) -> None:
    from report import insert, selection, summary

    record = made_up(work="softmax 4096x4096")
    lines = summary(record).splitlines()
    assert "1.5x faster than PyTorch as written, 2x faster than JAX" in lines[0]
    assert lines[-1] == "| softmax 4096x4096 | 2.00 | 50% | torch | 1.50 | 1.5 |"
    shown = "| softmax, 4096 x 4096 | 2.00 ms | 3.00 ms | 3.00 ms (torch) |"
    assert selection(record).splitlines()[-1] == shown
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- from bench/results -->\nold\n<!-- to here -->\nb\n")
    for _ in range(2):
        insert(summary(record), page)
    assert page.read_text().splitlines()[:: len(lines) + 3] == ["a", "b"]
    assert "old" not in page.read_text()
    (tmp_path / "none.md").write_text("a page")
    with pytest.raises(SystemExit, match="needs the lines"):
        insert(summary(record), tmp_path / "none.md")


def test_readme_and_speed_page_show_a_result_that_is_committed(tmp_path: Path) -> None:
    from report import chart, selection, summary

    found = (ROOT / "bench" / "results").glob("*-cores-*.json")
    records = [json.loads(path.read_text()) for path in found if "slow" not in path.name]
    shown, speed = (ROOT / "README.md").read_text(), (ROOT / "docs" / "speed.md").read_text()
    agreeing = [each for each in records if selection(each) in shown and summary(each) in speed]
    assert len(agreeing) == 1
    chart(agreeing[0], tmp_path / "chart.svg")
    assert (tmp_path / "chart.svg").read_text().count("</g>") > 50

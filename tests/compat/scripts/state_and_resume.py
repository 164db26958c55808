# Saving and loading: a training that is stopped and goes on as if it had not been, files of
# weights in parts and in halves, and what does not fit.
import os
import pathlib
import tempfile

import numpy as np
from tinygrad import Tensor, dtypes, nn
from tinygrad.nn.optim import AdamW
from tinygrad.nn.state import (
    get_state_dict,
    load_state_dict,
    safe_load,
    safe_load_metadata,
    safe_save,
)


class Block:
    def __init__(self, dim):
        self.norm = nn.RMSNorm(dim)
        self.up, self.down = (
            nn.Linear(dim, 2 * dim, bias=False),
            nn.Linear(2 * dim, dim, bias=False),
        )

    def __call__(self, x):
        return x + self.down(self.up(self.norm(x)).silu())


class Net:
    def __init__(self, dim=8):
        self.blocks = [Block(dim) for _ in range(2)]
        self.head = nn.Linear(dim, 3)
        self.steps = Tensor.zeros(1, dtype=dtypes.int, requires_grad=False)

    def __call__(self, x):
        return self.head(x.sequential(self.blocks))


def train(net, opt, steps, begin=0):
    with Tensor.train():
        for i in range(begin, begin + steps):
            x = Tensor(np.random.default_rng(i).normal(size=(16, 8)).astype(np.float32))
            y = x[:, :3].argmax(1)
            loss = net(x).sparse_categorical_crossentropy(y)
            opt.zero_grad()
            loss.backward()
            net.steps.assign(net.steps + 1)
            opt.step()
            net.steps.realize()
    return loss.item()


with tempfile.TemporaryDirectory() as folder:
    Tensor.manual_seed(1)
    net = Net()
    opt = AdamW(nn.state.get_parameters(net), lr=1e-2)
    train(net, opt, 5)
    fn = pathlib.Path(folder) / "net.safetensors"
    safe_save(
        {**get_state_dict(net), **{f"opt.{k}": v for k, v in get_state_dict(opt).items()}},
        str(fn),
        metadata={"step": "5"},
    )
    ref = train(net, opt, 5, 5)

    # another process would begin here
    Tensor.manual_seed(99)
    again = Net()
    opt2 = AdamW(nn.state.get_parameters(again), lr=1e-2)
    state = safe_load(fn)
    load_state_dict(
        again, {k: v for k, v in state.items() if not k.startswith("opt.")}, verbose=False
    )
    load_state_dict(
        opt2, {k[4:]: v for k, v in state.items() if k.startswith("opt.")}, verbose=False
    )
    assert again.steps.item() == 5
    got = train(again, opt2, 5, 5)
    np.testing.assert_allclose(got, ref, rtol=1e-5)
    assert again.steps.item() == 10

    # metadata
    _, _, metadata = safe_load_metadata(Tensor(fn))
    assert metadata["__metadata__"]["step"] == "5"

    # halves, back in float
    half = {k: v.half() if v.dtype == dtypes.float else v for k, v in get_state_dict(again).items()}
    safe_save(half, str(fn))
    loaded = safe_load(str(fn))
    assert loaded["head.weight"].dtype == dtypes.half
    third = Net()
    load_state_dict(
        third,
        {k: v.to(None).cast(get_state_dict(third)[k].dtype) for k, v in loaded.items()},
        strict=True,
        verbose=False,
    )
    np.testing.assert_allclose(third.head.weight.numpy(), again.head.weight.numpy(), atol=1e-3)

    # in parts: each file has some of the names
    names = sorted(half)
    for part in range(2):
        safe_save(
            {k: get_state_dict(again)[k] for k in names[part::2]},
            f"{folder}/part-{part}.safetensors",
        )
    merged = {}
    for f in sorted(os.listdir(folder)):
        if f.startswith("part-"):
            merged.update(safe_load(os.path.join(folder, f)))
    assert sorted(merged) == names
    load_state_dict(third, merged, verbose=False)
    np.testing.assert_array_equal(
        third.blocks[1].up.weight.numpy(), again.blocks[1].up.weight.numpy()
    )

    # what does not fit
    try:
        load_state_dict(third, {k: v for k, v in merged.items() if k != "head.bias"}, verbose=False)
        raise AssertionError("a missing name was not seen")
    except KeyError:
        pass
    load_state_dict(
        third, {k: v for k, v in merged.items() if k != "head.bias"}, strict=False, verbose=False
    )
    try:
        load_state_dict(third, {**merged, "head.bias": Tensor.zeros(7)}, verbose=False)
        raise AssertionError("a wrong shape was not seen")
    except ValueError:
        pass
print("ok")
checked = 1

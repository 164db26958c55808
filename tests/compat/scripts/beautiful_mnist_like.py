# A convolutional network on made-up digits: layers in a list, TinyJit steps, random batches by
# indexing, test accuracy now and then.

from collections.abc import Callable

import numpy as np
from tinygrad import GlobalCounters, Tensor, TinyJit, nn
from tinygrad.helpers import colored, getenv, trange


class Model:
    def __init__(self):
        self.layers: list[Callable[[Tensor], Tensor]] = [
            nn.Conv2d(1, 8, 5), Tensor.relu,
            nn.Conv2d(8, 8, 5), Tensor.relu,
            nn.BatchNorm(8), Tensor.max_pool2d,
            nn.Conv2d(8, 16, 3), Tensor.relu,
            nn.BatchNorm(16), Tensor.max_pool2d,
            lambda x: x.flatten(1), nn.Linear(64, 10),
        ]  # fmt: skip

    def __call__(self, x: Tensor) -> Tensor:
        return x.sequential(self.layers)


rng = np.random.default_rng(0)
masks = rng.random((10, 1, 20, 20)) < 0.3


def digits(n):
    labels = rng.integers(0, 10, n)
    images = np.where(masks[labels], 200, 20) + rng.integers(0, 50, (n, 1, 20, 20))
    return Tensor(images.astype(np.uint8)), Tensor(labels.astype(np.int32))


Tensor.manual_seed(7)
X_train, Y_train = digits(256)
X_test, Y_test = digits(64)
model = Model()
opt = nn.optim.Adam(nn.state.get_parameters(model), lr=3e-3)


@TinyJit
@Tensor.train()
def train_step() -> Tensor:
    opt.zero_grad()
    samples = Tensor.randint(getenv("BS", 32), high=X_train.shape[0])
    loss = model(X_train[samples]).sparse_categorical_crossentropy(Y_train[samples]).backward()
    return loss.realize(*opt.schedule_step())


@TinyJit
def get_test_acc() -> Tensor:
    return (model(X_test).argmax(axis=1) == Y_test).mean() * 100


test_acc, losses = float("nan"), []
for i in (t := trange(getenv("STEPS", 24))):
    GlobalCounters.reset()
    loss = train_step()
    losses.append(loss.item())
    if i % 8 == 7:
        test_acc = get_test_acc().item()
    t.set_description(f"loss: {losses[-1]:6.2f} test_accuracy: {test_acc:5.2f}%")
assert losses[-1] < losses[0] / 2, losses
assert test_acc > 70, test_acc
assert "\033" in colored("x", "green")
checked = 3

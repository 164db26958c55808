# A convolutional net trained under TinyJit, as mnist examples do it: batch norm, max pool, a test
# step, accuracy, counters, and the learning rate changed between steps.
from collections.abc import Callable

import numpy as np
from tinygrad import GlobalCounters, Tensor, TinyJit, nn
from tinygrad.helpers import colored, getenv, trange
from tinygrad.nn.state import get_state_dict


class Model:
    def __init__(self):
        self.layers: list[Callable[[Tensor], Tensor]] = [
            nn.Conv2d(1, 8, 3, padding=1),
            Tensor.relu,
            nn.Conv2d(8, 8, 3, padding=1, bias=False),
            nn.BatchNorm(8),
            Tensor.relu,
            Tensor.max_pool2d,
            nn.Conv2d(8, 16, 3),
            nn.BatchNorm(16),
            Tensor.relu,
            Tensor.max_pool2d,
            lambda x: x.flatten(1),
            nn.Linear(16 * 3 * 3, 4),
        ]

    def __call__(self, x: Tensor) -> Tensor:
        return x.sequential(self.layers)


def blobs(n, rng):
    """A bright quarter in noise: the class says which."""
    y = rng.integers(0, 4, n)
    x = rng.uniform(0, 0.3, (n, 1, 16, 16)).astype(np.float32)
    for i, c in enumerate(y):
        x[i, 0, 8 * (c // 2) : 8 * (c // 2) + 8, 8 * (c % 2) : 8 * (c % 2) + 8] += 0.5
    return Tensor((x * 255).astype(np.uint8)), Tensor(y.astype(np.uint8))


if __name__ == "__main__":
    Tensor.manual_seed(3)
    rng = np.random.default_rng(0)
    X_train, Y_train = blobs(256, rng)
    X_test, Y_test = blobs(64, rng)
    BS = getenv("BS", 32)

    model = Model()
    opt = nn.optim.Adam(nn.state.get_parameters(model), lr=getenv("LR", 0.005))

    @TinyJit
    @Tensor.train()
    def train_step() -> Tensor:
        opt.zero_grad()
        samples = Tensor.randint(BS, high=X_train.shape[0])
        loss = (
            model(X_train[samples].float() / 255)
            .sparse_categorical_crossentropy(Y_train[samples])
            .backward()
        )
        return loss.realize(*opt.schedule_step())

    @TinyJit
    @Tensor.test() if hasattr(Tensor, "test") else (lambda f: f)
    def get_test_acc() -> Tensor:
        return (model(X_test.float() / 255).argmax(axis=1) == Y_test).mean() * 100

    test_acc = float("nan")
    losses = []
    for i in (t := trange(getenv("STEPS", 40))):
        GlobalCounters.reset()
        if i == 30:
            opt.lr.assign(opt.lr * 0.5)
        loss = train_step()
        losses.append(loss.item())
        if i % 10 == 9:
            test_acc = get_test_acc().item()
        t.set_description(f"loss: {loss.item():6.2f} test_accuracy: {test_acc:5.2f}%")
    assert GlobalCounters.kernel_count > 0
    assert losses[-1] < losses[0] * 0.5, (losses[0], losses[-1])
    assert test_acc > 90, test_acc
    assert "layers.3.running_mean" in get_state_dict(model)
    print(colored(f"{test_acc:.0f}%", "green" if test_acc > 90 else "red"))
    checked = 1

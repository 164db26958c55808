# The shape of the MNIST tutorial, on synthetic images.
import numpy as np
from tinygrad import GlobalCounters, Tensor, TinyJit, nn
from tinygrad.helpers import colored, getenv, trange


class Model:
    def __init__(self):
        self.layers = [
            nn.Conv2d(1, 4, 3), Tensor.relu,
            nn.BatchNorm(4), Tensor.max_pool2d,
            lambda x: x.flatten(1), nn.Linear(36, 3),
        ]  # fmt: skip

    def __call__(self, x):
        return x.sequential(self.layers)


Tensor.manual_seed(3)
rng = np.random.default_rng(0)
labels = rng.integers(0, 3, 96)
images = rng.standard_normal((96, 1, 8, 8)).astype(np.float32) * 0.2
for place, label in enumerate(labels):
    images[place, 0, label * 2 : label * 2 + 2] += 1
X_train, Y_train = Tensor(images), Tensor(labels.astype(np.uint8))
model = Model()
opt = (nn.optim.Adam if not getenv("MUON") else nn.optim.Muon)(
    nn.state.get_parameters(model), lr=0.02
)


@TinyJit
@Tensor.train()
def train_step():
    opt.zero_grad()
    samples = Tensor.randint(getenv("BS", 32), high=X_train.shape[0])
    loss = model(X_train[samples]).sparse_categorical_crossentropy(Y_train[samples]).backward()
    return loss.realize(*opt.schedule_step())


@TinyJit
def get_test_acc():
    return (model(X_train).argmax(axis=1) == Y_train).mean() * 100


test_acc, losses = float("nan"), []
for i in (t := trange(getenv("STEPS", 20), disable=True)):
    GlobalCounters.reset()
    losses.append(train_step().item())
    if i % 10 == 9:
        test_acc = get_test_acc().item()
    t.set_description(f"loss: {losses[-1]:6.2f} test_accuracy: {test_acc:5.2f}%")
assert GlobalCounters.kernel_count > 0
assert np.mean(losses[-3:]) < losses[0] / 2, losses
assert test_acc >= 80, colored(f"{test_acc=}", "red")
checked = 3

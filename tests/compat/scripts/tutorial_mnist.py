"""The steps of tinygrad's MNIST tutorial, on digits drawn here."""

import numpy as np
from tinygrad import Context, Device, Tensor, TinyJit, nn

assert isinstance(Device.DEFAULT, str)


class Model:
    def __init__(self):
        self.l1 = nn.Conv2d(1, 8, kernel_size=(3, 3))
        self.l2 = nn.Conv2d(8, 16, kernel_size=(3, 3))
        self.l3 = nn.Linear(16 * 2 * 2, 4)

    def __call__(self, x: Tensor) -> Tensor:
        x = self.l1(x).relu().max_pool2d((2, 2))
        x = self.l2(x).relu().max_pool2d((2, 2))
        return self.l3(x.flatten(1).dropout(0.2))


rng = np.random.default_rng(42)
classes = rng.integers(0, 4, 256)
images = rng.normal(0, 0.3, (256, 1, 14, 14)).astype(np.float32)
for image, label in zip(images, classes):
    image[0, 3 * label : 3 * label + 3] += 2.0
X_train, Y_train = Tensor(images[:192]), Tensor(classes[:192].astype(np.int32))
X_test, Y_test = Tensor(images[192:]), Tensor(classes[192:].astype(np.int32))

Tensor.manual_seed(5)
model = Model()
assert 0 <= (model(X_test).argmax(axis=1) == Y_test).mean().item() <= 1
optim = nn.optim.Adam(nn.state.get_parameters(model), lr=0.01)


def step():
    samples = Tensor.randint(64, high=X_train.shape[0])
    X, Y = X_train[samples], Y_train[samples]
    optim.zero_grad()
    loss = model(X).sparse_categorical_crossentropy(Y).backward()
    optim.step()
    return loss


jit_step = TinyJit(step)
with Context(TRAINING=1):
    losses = [jit_step().item() for _ in range(40)]
accuracy = (model(X_test).argmax(axis=1) == Y_test).mean().item()
assert np.isfinite(losses).all() and np.mean(losses[-5:]) < 0.5 * losses[0]
assert accuracy > 0.9
print(f"loss {losses[-1]:.2f}, acc {accuracy * 100.0:.2f}%")
checked = 4

"""A network on handwritten digits, in a page: 70 steps with a progress bar."""

from tilegrad import Tensor, TinyJit, nn
from tilegrad.nn.datasets import digits


class Model:
    def __init__(self):
        self.layers = [
            nn.Conv2d(1, 32, 3, padding=1), Tensor.relu,
            nn.Conv2d(32, 32, 3, padding=1, bias=False), nn.BatchNorm(32), Tensor.relu,
            Tensor.max_pool2d,
            nn.Conv2d(32, 64, 3, bias=False), nn.BatchNorm(64), Tensor.relu,
            lambda x: x.flatten(1), nn.Linear(256, 10),
        ]  # fmt: skip

    def __call__(self, x: Tensor) -> Tensor:
        return x.sequential(self.layers)


if __name__ == "__main__":
    data = digits()
    X_train, Y_train = Tensor(data.x_train.astype("float32")[:, None] / 16), Tensor(data.y_train)
    X_test, Y_test = Tensor(data.x_test.astype("float32")[:, None] / 16), Tensor(data.y_test)
    model = Model()
    optimizer = nn.optim.Adam(nn.state.get_parameters(model), lr=0.002)

    @TinyJit
    @Tensor.train()
    def train_step() -> Tensor:
        optimizer.zero_grad()
        samples = Tensor.randint(256, low=0, high=X_train.shape[0])
        loss = model(X_train[samples]).sparse_categorical_crossentropy(Y_train[samples])
        loss.backward()
        optimizer.step()
        return loss.realize()

    for step in range(70):
        loss = train_step()
        if step % 10 == 9:
            accuracy = (model(X_test).argmax(axis=1) == Y_test).mean().item() * 100
            print(f"step {step + 1:3d}  loss {loss.item():6.4f}  test accuracy {accuracy:5.2f}%")

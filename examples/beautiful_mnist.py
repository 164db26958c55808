"""A network on handwritten digits, in a page: 70 steps, then every kernel of a step."""

from tilegrad import Tensor, TinyJit, nn
from tilegrad.nn.datasets import digits
from tilegrad.tools.profile import profile, table
from tilegrad.tools.progress import Progress


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
    X_train, Y_train = Tensor(data.x_train).unsqueeze(1) / data.peak, Tensor(data.y_train)
    X_test, Y_test = Tensor(data.x_test).unsqueeze(1) / data.peak, Tensor(data.y_test)
    model = Model()
    optimizer = nn.optim.Adam(nn.state.get_parameters(model), lr=0.002)

    @TinyJit
    def train_step() -> Tensor:
        optimizer.zero_grad()
        samples = Tensor.randint(256, low=0, high=X_train.shape[0])
        loss = model(X_train[samples]).sparse_categorical_crossentropy(Y_train[samples])
        loss.backward()
        optimizer.step()
        return loss.realize()

    @TinyJit
    @Tensor.train(False)
    def test_accuracy() -> Tensor:
        return (model(X_test).argmax(axis=1) == Y_test).mean().realize()

    accuracy = 0.0
    with Progress(70) as bar:
        for step in range(1, 71):
            loss = train_step().item()
            if step % 10 == 0:
                accuracy = test_accuracy().item()
            bar.show(step, f"loss {loss:6.4f}  test accuracy {accuracy:6.1%}")
    print(table(profile(train_step), most=100))

# Pieces of a fast CIFAR trainer: groups of convolutions with residuals, label smoothing, random
# crops and flips by indices, cut-mix, a schedule of one cycle, averaged weights.

import numpy as np
from tinygrad import Context, Tensor, TinyJit, dtypes, nn
from tinygrad.nn.state import get_parameters, get_state_dict, load_state_dict

BS, STEPS = 16, 6
rng = np.random.default_rng(1)


class ConvGroup:
    def __init__(self, channels_in, channels_out):
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm(channels_out, track_running_stats=False, eps=1e-12, momentum=0.85)
        self.norm2 = nn.BatchNorm(channels_out, track_running_stats=False, eps=1e-12, momentum=0.85)

    def __call__(self, x):
        x = self.conv1(x).max_pool2d(2)
        x = self.norm1(x.float()).cast(dtypes.default_float).quick_gelu()
        residual = x
        x = self.norm2(self.conv2(x).float()).cast(dtypes.default_float).quick_gelu()
        return x + residual


class SpeedyResNet:
    def __init__(self):
        self.net = [
            nn.Conv2d(3, 6, kernel_size=1), lambda x: x.quick_gelu(), ConvGroup(6, 8),
            ConvGroup(8, 12), lambda x: x.max((2, 3)), nn.Linear(12, 10, bias=False),
            lambda x: x.mul(1.0 / 9),
        ]  # fmt: skip

    def __call__(self, x, training=True):
        def forward(x):
            return x.sequential(self.net)

        return forward(x) if training else (forward(x) + forward(x[..., ::-1])) / 2.0


def random_crop(X: Tensor, crop_size=8):
    low_x = Tensor.randint(X.shape[0], low=0, high=X.shape[2] - crop_size).reshape(-1, 1, 1, 1)
    low_y = Tensor.randint(X.shape[0], low=0, high=X.shape[3] - crop_size).reshape(-1, 1, 1, 1)
    idx_x = Tensor.arange(X.shape[2], dtype=dtypes.int32).reshape(1, 1, -1, 1)
    idx_y = Tensor.arange(X.shape[3], dtype=dtypes.int32).reshape(1, 1, 1, -1)
    mask = (idx_x >= low_x) * (idx_x < low_x + crop_size)
    mask = mask * (idx_y >= low_y) * (idx_y < low_y + crop_size)
    mask = mask.expand(-1, X.shape[1], -1, -1)
    return X.masked_select(mask).reshape(-1, X.shape[1], crop_size, crop_size)


def pad_reflect(X: Tensor, size=2):
    X = X[..., :, 1 : size + 1].flip(-1).cat(X, X[..., :, -(size + 1) : -1].flip(-1), dim=-1)
    return X[..., 1 : size + 1, :].flip(-2).cat(X, X[..., -(size + 1) : -1, :].flip(-2), dim=-2)


def label_smoothing(Y, alpha=0.1):
    return Y.one_hot(10) * (1 - alpha) + alpha / 10


def cross_entropy(x: Tensor, y: Tensor, reduction="mean"):
    divisor = y.shape[1]
    assert isinstance(divisor, int), "only supported int divisor"
    y = (1 - 0.2) * y + 0.2 / divisor
    ret = -x.log_softmax(axis=1).mul(y).sum(axis=1)
    return ret.mean() if reduction == "mean" else ret.sum()


images = rng.normal(size=(BS, 3, 8, 8)).astype(np.float32)
X, Y = Tensor(images), Tensor(rng.integers(0, 10, BS).astype(np.int32))
padded = pad_reflect(X).realize()
assert (padded.numpy() == np.pad(images, ((0, 0), (0, 0), (2, 2), (2, 2)), mode="reflect")).all()
Tensor.manual_seed(3)
crops = random_crop(padded)
assert crops.shape == (BS, 3, 8, 8)
one = crops[0].numpy()
assert any(
    np.array_equal(one, padded[0].numpy()[:, i : i + 8, j : j + 8])
    for i in range(5) for j in range(5)
)  # fmt: skip
flipped = (Tensor.rand(BS, 1, 1, 1) < 0.5).where(X.flip(-1), X).numpy()
for image, made in zip(images, flipped):
    assert np.array_equal(made, image) or np.array_equal(made, image[..., ::-1])
assert np.allclose(label_smoothing(Y).numpy().sum(1), 1)
model = SpeedyResNet()
state = get_state_dict(model)
ema = SpeedyResNet()
load_state_dict(ema, {k: v.detach().clone() for k, v in state.items()}, verbose=False)
bias = [v for k, v in state.items() if "bias" in k]
others = [v for k, v in state.items() if "bias" not in k and v.requires_grad is not False]
opt = nn.optim.OptimizerGroup(
    nn.optim.SGD(bias, lr=0.1, momentum=0.85, nesterov=True, weight_decay=0.0),
    nn.optim.SGD(others, lr=0.05, momentum=0.85, nesterov=True, weight_decay=1e-3),
)


@TinyJit
def train_step(X, Y, lr):
    with Tensor.train():
        out = model(X)
        loss = cross_entropy(out, Y) * 16
        opt.zero_grad()
        loss.backward()
        for each in opt.optimizers:
            each.lr.assign(lr)
        opt.step()
    return loss.realize()


losses = []
for i in range(STEPS):
    lr = Tensor([0.04 * min(1, (i + 1) / 3)]).realize()
    losses.append(train_step(X, label_smoothing(Y).realize(), lr).item())
    for mine, other in zip(get_parameters(ema), get_parameters(model)):
        mine.assign(mine * 0.9 + other.detach() * 0.1).realize()
assert losses[-1] < losses[0], losses
with Context(TRAINING=0) if False else Context(DEBUG=0):
    out = model(X, training=False)
assert out.shape == (BS, 10) and np.isfinite(out.numpy()).all()
checked = 6

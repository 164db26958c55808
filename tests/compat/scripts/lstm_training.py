# A stack of LSTM cells over steps in a Python loop, trained under TinyJit on sums of sequences;
# its forward pass beside NumPy.

import numpy as np
from tinygrad import Tensor, TinyJit, nn
from tinygrad.nn.state import get_parameters


class LSTMCell:
    def __init__(self, input_size, hidden_size):
        bound = hidden_size**-0.5
        self.weights_ih = Tensor.uniform(hidden_size * 4, input_size, low=-bound, high=bound)
        self.weights_hh = Tensor.uniform(hidden_size * 4, hidden_size, low=-bound, high=bound)
        self.bias_ih, self.bias_hh = Tensor.zeros(hidden_size * 4), Tensor.zeros(hidden_size * 4)

    def __call__(self, x, hc):
        gates = x.linear(self.weights_ih.T, self.bias_ih) + hc[: x.shape[0]].linear(
            self.weights_hh.T, self.bias_hh
        )
        i, f, g, o = gates.chunk(4, 1)
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        c = (f * hc[x.shape[0] :]) + (i * g)
        h = o * c.tanh()
        return Tensor.cat(h, c).realize() if not Tensor.training else Tensor.cat(h, c)


class LSTM:
    def __init__(self, input_size, hidden_size, layers):
        self.cells = [
            LSTMCell(input_size if i == 0 else hidden_size, hidden_size) for i in range(layers)
        ]
        self.hidden_size, self.layers = hidden_size, layers
        self.head = nn.Linear(hidden_size, 1)

    def __call__(self, x, hc=None):
        if hc is None:
            hc = Tensor.zeros(self.layers, 2 * x.shape[1], self.hidden_size, requires_grad=False)
        output = []
        for t in range(x.shape[0]):
            new_hc = [x[t]]
            for i, cell in enumerate(self.cells):
                new_hc.append(cell(new_hc[i][: x.shape[1]], hc[i]))
            hc = Tensor.stack(*new_hc[1:])
            output.append(hc[-1:, : x.shape[1]])
        return Tensor.cat(*output, dim=0), hc


Tensor.manual_seed(5)
rng = np.random.default_rng(2)
model = LSTM(2, 6, 2)
x = rng.normal(size=(5, 3, 2)).astype(np.float32)
out, hc = model(Tensor(x))


def s(v):
    return 1 / (1 + np.exp(-v))


W = [{k: v.numpy() for k, v in vars(cell).items()} for cell in model.cells]
h, c = np.zeros((2, 3, 6)), np.zeros((2, 3, 6))
for t in range(5):
    inp = x[t]
    for i, w in enumerate(W):
        gates = inp @ w["weights_ih"].T + w["bias_ih"] + h[i] @ w["weights_hh"].T + w["bias_hh"]
        a, b, g, o = np.split(gates, 4, 1)
        c[i] = s(b) * c[i] + s(a) * np.tanh(g)
        h[i] = s(o) * np.tanh(c[i])
        inp = h[i]
    assert np.abs(out[t].numpy() - inp).max() < 1e-5
assert out.shape == (5, 3, 6) and hc.shape == (2, 6, 6)
target = Tensor(np.tanh(x.sum((0, 2))[:, None]).astype(np.float32))
opt = nn.optim.Adam(get_parameters(model), lr=0.03)


@TinyJit
def do_train(x, y):
    with Tensor.train():
        out, _ = model(x)
        loss = (model.head(out[-1]) - y).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.realize()


losses = [do_train(Tensor(x).realize(), target).item() for _ in range(12)]
assert losses[-1] < losses[0] / 2, losses
checked = 7

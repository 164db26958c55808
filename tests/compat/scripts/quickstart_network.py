import numpy as np
from tinygrad import Tensor, nn
from tinygrad.nn.optim import SGD

rng = np.random.default_rng(0)


class Linear:
    def __init__(self, in_features, out_features, bias=True, initialization="kaiming_uniform"):
        self.weight = getattr(Tensor, initialization)(out_features, in_features)
        self.bias = Tensor.zeros(out_features) if bias else None

    def __call__(self, x):
        return x.linear(self.weight.transpose(), self.bias)


class TinyNet:
    def __init__(self):
        self.l1 = Linear(12, 16, bias=False)
        self.l2 = Linear(16, 4, bias=False)

    def __call__(self, x):
        x = self.l1(x)
        x = x.leaky_relu()
        x = self.l2(x)
        return x


Tensor.manual_seed(1)
net = TinyNet()
optimizer = SGD([net.l1.weight, net.l2.weight], lr=0.1)
X_all = rng.standard_normal((64, 12)).astype(np.float32)
Y_all = X_all[:, :4].argmax(1).astype(np.int32)

losses = []
with Tensor.train():
    for _ in range(6):
        batch, labels = Tensor(X_all, requires_grad=False), Tensor(Y_all)
        out = net(batch)
        loss = out.sparse_categorical_crossentropy(labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        pred = out.argmax(axis=-1)
        acc = (pred == labels).mean()
        losses.append(loss.numpy())
assert losses[-1] < losses[0]
w1, w2 = net.l1.weight.numpy(), net.l2.weight.numpy()
hidden = X_all @ w1.T
want = np.where(hidden > 0, hidden, 0.01 * hidden) @ w2.T
np.testing.assert_allclose(net(Tensor(X_all)).numpy(), want, rtol=1e-4, atol=1e-5)
assert not Tensor.training and 0 <= acc.item() <= 1
assert sorted(nn.state.get_state_dict(net)) == ["l1.weight", "l2.weight"]
checked = 4

"""The names of gradients that tensors print with, op by op."""

import torch
import torch.nn as nn
import torch.nn.functional as F

x = torch.ones(2, 2, requires_grad=True)
y = x + 2
print(y, y.grad_fn is not None, type(y.grad_fn).__name__)
z = y * y * 3
out = z.mean()
print(z, out)
a = torch.tensor([1.0, 2.0], requires_grad=True)
fs = [
    lambda a: a * 2,
    lambda a: a + 1,
    lambda a: a - 1,
    lambda a: 1 - a,
    lambda a: a / 2,
    lambda a: 2 / a,
    lambda a: a**2,
    lambda a: 2**a,
    lambda a: -a,
    torch.exp,
    torch.log,
    torch.sin,
    torch.cos,
    torch.tan,
    torch.tanh,
    torch.sigmoid,
    torch.relu,
    torch.sqrt,
    torch.rsqrt,
    torch.abs,
    torch.square,
    lambda a: a.sum(),
    lambda a: a.mean(),
    lambda a: a.sum(0),
    lambda a: a.mean(0),
    lambda a: a.prod(),
    lambda a: a.max(),
    lambda a: a.min(),
    lambda a: a.max(0)[0],
    lambda a: a.view(2, 1),
    lambda a: a.reshape(1, 2),
    lambda a: a[None],
    lambda a: a[0],
    lambda a: a[:1],
    lambda a: a.unsqueeze(0),
    lambda a: a.unsqueeze(0).squeeze(0),
    lambda a: a.expand(3, 2),
    lambda a: a.repeat(2),
    lambda a: a.clone(),
    lambda a: a.clamp(0, 1),
    lambda a: a.softmax(0),
    lambda a: a.log_softmax(0),
    lambda a: a.std(),
    lambda a: a.var(),
    lambda a: a.norm(),
    lambda a: torch.stack([a, a]),
    lambda a: torch.cat([a, a]),
    lambda a: a @ a,
    lambda a: a.unsqueeze(0) @ a.unsqueeze(1),
    lambda a: a.outer(a) @ a,
    lambda a: torch.einsum("i,i->", a, a),
    lambda a: torch.where(a > 1, a, 0.0),
    lambda a: a.cumsum(0),
    lambda a: a.cumprod(0),
    lambda a: a.logsumexp(0),
    lambda a: a.flip(0),
    lambda a: a.double(),
    lambda a: a.outer(a).t(),
    lambda a: a.outer(a).transpose(0, 1),
    lambda a: a.outer(a).permute(1, 0),
    lambda a: a[torch.tensor([0, 1])],
    lambda a: a.gather(0, torch.tensor([0])),
    lambda a: a.index_select(0, torch.tensor([1])),
    lambda a: a.masked_fill(a > 1, 0),
    lambda a: a.masked_select(a > 1),
    lambda a: a.sort()[0],
    lambda a: a.topk(1)[0],
    lambda a: a.split(1)[0],
    lambda a: a.chunk(2)[1],
    lambda a: a.unbind()[0],
    lambda a: F.gelu(a),
    lambda a: F.leaky_relu(a),
    lambda a: F.elu(a),
    lambda a: F.softplus(a),
    lambda a: F.silu(a),
    lambda a: F.mse_loss(a, a * 2),
    lambda a: F.l1_loss(a, a * 2),
    lambda a: F.dropout(a, 0.5),
    lambda a: F.linear(a, torch.ones(3, 2)),
    lambda a: F.linear(a, torch.ones(3, 2), torch.ones(3)),
    lambda a: F.linear(a[None], torch.ones(3, 2), torch.ones(3)),
    lambda a: F.cross_entropy(a[None], torch.tensor([1])),
    lambda a: F.nll_loss(a[None], torch.tensor([1])),
    lambda a: F.binary_cross_entropy(a.sigmoid(), torch.ones(2)),
    lambda a: F.binary_cross_entropy_with_logits(a, torch.ones(2)),
    lambda a: F.smooth_l1_loss(a, a * 3),
    lambda a: F.layer_norm(a, (2,)),
    lambda a: F.normalize(a, dim=0),
    lambda a: a.floor(),
    lambda a: a.round(),
    lambda a: a.sign(),
    lambda a: a.atan2(a * 2),
    lambda a: a.pow(a),
    lambda a: a.minimum(a * 2),
    lambda a: torch.maximum(a, a * 2),
    lambda a: a.roll(1),
    lambda a: a.tril() if a.ndim > 1 else a.outer(a).tril(),
    lambda a: a.dot(a),
    lambda a: a.erf(),
    lambda a: a.expm1(),
    lambda a: a.log1p(),
    lambda a: a.log2(),
    lambda a: a.reciprocal(),
    lambda a: a.sinh(),
    lambda a: a.asin(),
    lambda a: a.lerp(a * 2, 0.5),
    lambda a: a.contiguous(),
    lambda a: a.flatten(),
    lambda a: a.outer(a).flatten(),
    lambda a: a.outer(a).diagonal(),
    lambda a: F.embedding(torch.tensor([0]), a.outer(a)),
    lambda a: F.conv1d(a[None, None], torch.ones(1, 1, 1)),
    lambda a: F.max_pool1d(a[None, None], 2),
    lambda a: F.avg_pool1d(a[None, None], 2),
    lambda a: F.pad(a, (1, 1)),
    lambda a: torch.addmm(a, torch.ones(2, 2), torch.ones(2, 2)),
    lambda a: torch.bmm(a.outer(a)[None], a.outer(a)[None]),
    lambda a: a.outer(a).mv(a),
    lambda a: a.scatter(0, torch.tensor([0]), 1.0),
    lambda a: a.index_add(0, torch.tensor([0]), torch.ones(1)),
    lambda a: a.median(),
    lambda a: a.amax(),
    lambda a: a.hypot(a),
    lambda a: a % 2,
    lambda a: a.T if a.ndim > 1 else a.outer(a).T,
    lambda a: a.logical_not(),
    lambda a: a.argmax(),
    lambda a: a > 1,
    lambda a: torch.linalg.norm(a),
    lambda a: torch.linalg.inv(a.outer(a) + torch.eye(2)),
    lambda a: torch.det(a.outer(a) + torch.eye(2)),
    lambda a: a.type(torch.float64),
    lambda a: a.to(torch.float16),
]
for i, f in enumerate(fs):
    r = f(a)
    print(i, type(r.grad_fn).__name__)
b = a * 1
b.add_(1)
print(b)
b[0] = 5.0
print(b)
print(
    b.grad_fn.name(),
    a.grad_fn,
    type(out.grad_fn.next_functions[0][0]).__name__,
    a.is_leaf,
    b.is_leaf,
) if False else 0
c = a.clone()
c *= 2
print(c)
d = a.clone()
d.relu_()
print(d)


class Sq(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x * g


print(Sq.apply(a))
lin = nn.Linear(2, 2)
print(
    type(lin(torch.ones(1, 2)).grad_fn).__name__,
    type(nn.Conv2d(1, 1, 1)(torch.ones(1, 1, 2, 2)).grad_fn).__name__,
    type(nn.BatchNorm1d(2)(torch.ones(3, 2)).grad_fn).__name__,
    type(nn.LayerNorm(2)(torch.ones(3, 2)).grad_fn).__name__,
)
print(
    type(nn.MSELoss()(lin(torch.ones(1, 2)), torch.ones(1, 2)).grad_fn).__name__,
    type(nn.CrossEntropyLoss()(lin(torch.ones(1, 2)), torch.tensor([1])).grad_fn).__name__,
    type(nn.MaxPool2d(2)(torch.ones(1, 1, 2, 2, requires_grad=True)).grad_fn).__name__,
)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(2, 3)
        self.b = nn.Linear(3, 1)

    def forward(self, x):
        return self.b(F.relu(self.a(x)))


net = Net()
loss = nn.MSELoss()(net(torch.ones(1, 2)), torch.zeros(1, 1))
print(
    type(loss.grad_fn).__name__,
    type(loss.grad_fn.next_functions[0][0]).__name__,
    type(loss.grad_fn.next_functions[0][0].next_functions[0][0]).__name__,
)
print(torch.tensor([1.5, 2.5], requires_grad=True) * torch.tensor([2.0, 3.0]))
print(torch.arange(40.0).requires_grad_() / 3)

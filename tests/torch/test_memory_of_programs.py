"""Programs that run again and again: when one has ended, none of its memory is left."""

from __future__ import annotations

import contextlib
import copy
import gc
import io
from collections.abc import Callable
from typing import Any

import pytest

import tilegrad.torch as torch
import tilegrad.torch.nn as nn
import tilegrad.torch.nn.functional as F
from tilegrad.engine.run.leaf_memory import buffers

PROGRAMS: dict[str, Callable[[], Any]] = {}
REPEATS = 3


def program(function: Callable[[], Any]) -> Callable[[], Any]:
    PROGRAMS[function.__name__] = function
    return function


def weights(*shape: int) -> Any:
    return torch.randn(*shape).mul(0.1).requires_grad_()


@program
def plain():
    w = weights(4, 4)
    ((torch.randn(2, 4) @ w) ** 2).sum().backward()
    w.grad.sum().item()


@program
def slice_write():
    w = weights(4, 4)
    o = torch.zeros(3, 4)
    o[0] = 1
    o[1] = o[0] @ w
    o[2] = (o[1] @ w).tanh()
    loss = o.sum()
    loss.item()
    loss.backward()
    w.grad.sum().item()


@program
def inplace():
    w = weights(4, 4)
    x = torch.ones(2, 4) @ w
    x += x.sin()
    x.mul_(2)
    x.relu_()
    loss = x.sum()
    loss.backward()
    loss.item()
    w.grad.sum().item()


@program
def masked():
    w = weights(4, 4)
    x = torch.ones(2, 4) @ w
    x[x > 0.1] = 0.0
    loss = x.sum()
    loss.backward()
    loss.item()
    w.grad.sum().item()


@program
def mask_unread():
    w = weights(4, 4)
    x = torch.ones(2, 4) @ w
    x[x > 0.1] = 0.0
    loss = x.sum()
    loss.backward()


@program
def index_put():
    w = weights(4, 4)
    x = torch.ones(6, 4) @ w
    x[torch.tensor([0, 2])] = torch.ones(2, 4) @ w
    loss = (x * x).sum()
    loss.backward()
    loss.item()
    w.grad.sum().item()


@program
def scatter():
    w = weights(4, 4)
    x = torch.zeros(4, 4).scatter_add(0, torch.tensor([[0, 1, 2, 0]]), w[:1])
    loss = (x * x).sum()
    loss.backward()
    w.grad.sum().item()


@program
def index_add():
    w = weights(4, 4)
    x = torch.zeros(4, 4).index_add_(0, torch.tensor([0, 1, 0]), w[:3])
    loss = (x * x).sum()
    loss.backward()
    w.grad.sum().item()


@program
def double():
    w = weights(4, 4)
    (g,) = torch.autograd.grad((w**3).sum(), w, create_graph=True)
    (g**2).sum().backward()
    w.grad.sum().item()


class Sq(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x * g


@program
def custom():
    w = weights(4, 4)
    loss = Sq.apply(torch.ones(2, 4) @ w).sum()
    loss.backward()
    loss.item()
    w.grad.sum().item()


@program
def custom_unread():
    w = weights(4, 4)
    loss = Sq.apply(torch.ones(2, 4) @ w).sum()
    loss.backward()


@program
def hook():
    w = weights(4, 4)
    x = torch.ones(2, 4) @ w
    x.register_hook(lambda g: g * 2)
    loss = x.sum()
    loss.backward()
    w.grad.sum().item()


@program
def leaf_hook():
    w = weights(4, 4)
    w.register_hook(lambda g: g * 2)
    loss = (torch.ones(2, 4) @ w).sum()
    loss.backward()
    w.grad.sum().item()


@program
def retain():
    w = weights(4, 4)
    x = torch.ones(2, 4) @ w
    x.retain_grad()
    loss = (x * x).sum()
    loss.backward()
    x.grad.sum().item()
    w.grad.sum().item()


@program
def ckpt():
    from tilegrad.torch.utils.checkpoint import checkpoint

    w = weights(4, 4)
    x = torch.ones(2, 4)
    loss = checkpoint(lambda y: (y @ w).tanh(), x, use_reentrant=False).sum()
    loss.backward()
    w.grad.sum().item()


@program
def module_hooks():
    n = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    out = []
    n[0].register_forward_hook(lambda m, i, o: out.append(o))
    n[1].register_full_backward_hook(lambda m, gi, go: None)
    loss = n(torch.randn(3, 4)).sum()
    loss.backward()
    loss.item()


@program
def adam():
    n = nn.Linear(4, 4)
    o = torch.optim.Adam(n.parameters())
    for _ in range(3):
        o.zero_grad()
        loss = (n(torch.randn(3, 4)) ** 2).sum()
        loss.backward()
        o.step()
        loss.item()


@program
def adam_unread():
    n = nn.Linear(4, 4)
    o = torch.optim.Adam(n.parameters())
    for _ in range(3):
        o.zero_grad()
        loss = (n(torch.randn(3, 4)) ** 2).sum()
        loss.backward()
        o.step()


@program
def bn():
    n = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2)
    )
    o = torch.optim.SGD(n.parameters(), lr=0.1, momentum=0.9)
    for _ in range(3):
        o.zero_grad()
        loss = n(torch.randn(3, 1, 6, 6)).sum()
        loss.backward()
        o.step()
        loss.item()


@program
def lstm():
    n = nn.LSTM(4, 5, batch_first=True)
    y, (h, _c) = n(torch.randn(2, 6, 4))
    loss = y.sum() + h.sum()
    loss.backward()
    loss.item()


@program
def mha():
    n = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    loss = n(torch.randn(2, 5, 8)).sum()
    loss.backward()
    loss.item()


@program
def emb():
    n = nn.Embedding(10, 4)
    loss = n(torch.tensor([1, 2, 1])).pow(2).sum()
    loss.backward()
    n.weight.grad.sum().item()


@program
def views():
    w = weights(4, 4)
    v = w.view(16)[2:9].reshape(7, 1).expand(7, 3)
    loss = (v * v).sum()
    loss.backward()
    w.grad.sum().item()


@program
def view_write():
    x = torch.zeros(4, 4)
    v = x[1:3]
    v[:, 0] = 5
    v.T[1] += 2
    x.diagonal().fill_(1)
    x.sum().item()


@program
def view_write_unread():
    x = torch.zeros(4, 4)
    v = x[1:3]
    v[:, 0] = 5
    v.T[1] += 2
    x.diagonal().fill_(1)


@program
def view_write_grad():
    w = weights(4, 4)
    x = w * 1
    v = x[1:3]
    v *= 2
    v[0] += w[0]
    loss = x.sum()
    loss.item()
    loss.backward()
    w.grad.sum().item()


@program
def detach_write():
    w = weights(4, 4)
    x = w * 2
    x.detach()[0] = 3
    loss = x.sum()
    loss.backward()
    loss.item()


@program
def data_write():
    w = weights(4, 4)
    w.data[0] = 3
    w.data.mul_(2)
    loss = (w * w).sum()
    loss.backward()
    w.grad.sum().item()
    w.data -= w.grad


@program
def no_grad_update():
    w = weights(4, 4)
    for _ in range(3):
        loss = (w * w).sum()
        loss.backward()
        with torch.no_grad():
            w -= 0.1 * w.grad
            w.grad.zero_()
    w.sum().item()


@program
def cat_loop():
    x = torch.zeros(1, 4)
    for _i in range(6):
        x = torch.cat([x, x[-1:] + 1])
    x.sum().item()


@program
def cat_unread():
    x = torch.zeros(1, 4)
    for _i in range(6):
        x = torch.cat([x, x[-1:] + 1])


@program
def where_nonzero():
    x = torch.randn(10)
    x[x > 0].sum().item()
    torch.nonzero(x > 0).sum().item()
    x.unique().sum().item()


@program
def sort_topk():
    x = weights(4, 6)
    v, _i = x.sort(1)
    t = x.topk(2).values
    loss = (v * v).sum() + t.sum()
    loss.backward()
    x.grad.sum().item()


@program
def vmapf():
    f = torch.func.vmap(lambda a, b: (a * b).sum())
    f(torch.randn(3, 4), torch.randn(3, 4)).sum().item()


@program
def jac():
    torch.autograd.functional.jacobian(lambda x: (x**2).cumsum(0), torch.randn(4)).sum().item()


@program
def gradf():
    torch.func.grad(lambda x: (x**2).sum())(torch.randn(4)).sum().item()


@program
def linalg():
    a = weights(4, 4)
    loss = (
        torch.linalg.inv(a + torch.eye(4)).sum()
        + torch.linalg.det(a)
        + torch.linalg.svdvals(a).sum()
    )
    loss.backward()
    a.grad.sum().item()


@program
def fft():
    x = weights(8)
    loss = torch.fft.rfft(x).abs().sum()
    loss.backward()
    x.grad.sum().item()


@program
def dropout():
    x = weights(4, 4)
    loss = F.dropout(x, 0.5).sum()
    loss.backward()
    x.grad.sum().item()


@program
def error():
    w = weights(4, 4)
    with contextlib.suppress(Exception):
        (torch.randn(3, 5) @ w).sum().backward()


@program
def err_mid():
    w = weights(4, 4)
    x = w * 2
    with contextlib.suppress(Exception):
        x.view(5, 5)
    x.sum().backward()
    w.grad.sum().item()


@program
def clip():
    n = nn.Linear(4, 4)
    n(torch.randn(2, 4)).sum().backward()
    torch.nn.utils.clip_grad_norm_(n.parameters(), 1.0).item()


@program
def state():

    n = nn.Linear(4, 4)
    b = io.BytesIO()
    torch.save(n.state_dict(), b)
    b.seek(0)
    n.load_state_dict(torch.load(b))
    copy.deepcopy(n)(torch.randn(1, 4)).sum().item()


@program
def ema():
    a, b = nn.Linear(4, 4), nn.Linear(4, 4)
    for p1, p2 in zip(a.parameters(), b.parameters()):
        p2.data.mul_(0.9).add_(p1.data, alpha=0.1)
    b.weight.sum().item()


@program
def compiled():
    f = torch.compile(lambda x: (x * 2).sin().sum())
    for _ in range(4):
        f(torch.randn(4)).item()


@program
def compiled_step():
    n = nn.Linear(4, 4)
    o = torch.optim.SGD(n.parameters(), lr=0.1)

    @torch.compile
    def step(x):
        o.zero_grad()
        loss = n(x).pow(2).sum()
        loss.backward()
        o.step()
        return loss

    for _ in range(5):
        step(torch.randn(2, 4)).item()


@program
def accumulate():
    n = nn.Linear(4, 4)
    o = torch.optim.AdamW(n.parameters())
    for i in range(4):
        (n(torch.randn(2, 4)).sum() / 2).backward()
        if i % 2:
            o.step()
            o.zero_grad()


@program
def gan():
    g, d = nn.Linear(2, 4), nn.Linear(4, 1)
    og, od = torch.optim.Adam(g.parameters()), torch.optim.Adam(d.parameters())
    for _ in range(3):
        f = g(torch.randn(3, 2))
        od.zero_grad()
        (d(torch.randn(3, 4)).mean() - d(f.detach()).mean()).backward()
        od.step()
        og.zero_grad()
        d(f).mean().backward()
        og.step()


@program
def rnn_tbptt():
    n = nn.GRUCell(3, 4)
    h = torch.zeros(2, 4)
    for t in range(6):
        h = n(torch.randn(2, 3), h)
        if t % 3 == 2:
            h.sum().backward()
            h = h.detach()
    h.sum().item()


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_memory_is_left(name: str) -> None:
    counts = []
    for _ in range(3):
        for _ in range(REPEATS):
            PROGRAMS[name]()
        gc.collect()
        counts.append(len(buffers()))
    # The first calls make what is kept for the next ones.
    assert counts[2] == counts[1]

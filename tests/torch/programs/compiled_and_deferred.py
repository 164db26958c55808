"""torch.compile and its kin, deferred initialisation on meta, checkpointed memory, deterministic runs, hooks under compile, module surgery, state on the way."""

import contextlib
import warnings

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

warnings.filterwarnings("ignore")
rng = np.random.default_rng(61)


def fill(module):
    for p in module.parameters():
        p.data = torch.from_numpy(rng.normal(0, 0.3, tuple(p.shape))).float()
    return module


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.fc, self.norm = nn.Linear(d, d), nn.LayerNorm(d)

    def forward(self, x):
        return x + F.gelu(self.fc(self.norm(x)), approximate="tanh")


with torch.device("meta"):
    deferred = nn.Sequential(Block(8), Block(8), nn.Linear(8, 3))
print(
    all(p.is_meta for p in deferred.parameters()), deferred(torch.empty(2, 8, device="meta")).shape
)
deferred.to_empty(device="cpu")
fill(deferred)
x = torch.from_numpy(rng.normal(size=(4, 8))).float()
plain = deferred(x)
by_state = nn.Sequential(Block(8), Block(8), nn.Linear(8, 3))
print(by_state.load_state_dict(deferred.state_dict(), assign=True), torch.equal(by_state(x), plain))


@contextlib.contextmanager
def evaluating(model):
    was = model.training
    model.eval()
    try:
        yield model
    finally:
        model.train(was)


with evaluating(deferred) as m, torch.no_grad():
    print(m.training, torch.allclose(m(x), plain, atol=1e-6))
print(deferred.training)
out = checkpoint_sequential(deferred, 2, x.requires_grad_(), use_reentrant=False)
out.square().sum().backward()
g1 = [p.grad.clone() for p in deferred.parameters()]
gx = x.grad.clone()
deferred.zero_grad()
x.grad = None
h = x
for layer in deferred:
    h = checkpoint(layer, h, use_reentrant=True)
h.square().sum().backward()
print(
    all(torch.allclose(a, p.grad, atol=1e-5) for a, p in zip(g1, deferred.parameters())),
    torch.allclose(gx, x.grad, atol=1e-5),
)
deferred.zero_grad()
surgery = nn.Sequential(*list(deferred.children())[:-1], nn.Identity())
surgery[2] = fill(nn.Linear(8, 2))
surgery.insert(0, nn.Flatten()) if hasattr(surgery, "insert") else None
surgery.append(nn.Softmax(dim=1))
print(surgery(x.detach()).sum(1), len(surgery), [n for n, _ in surgery.named_children()])
for name, module in list(surgery.named_modules()):
    if isinstance(module, nn.LayerNorm):
        parent = surgery.get_submodule(name.rpartition(".")[0])
        setattr(parent, name.rpartition(".")[2], nn.Identity())
print(
    sum(isinstance(m, nn.LayerNorm) for m in surgery.modules()),
    surgery.get_parameter("1.fc.weight").shape,
)
frozen = deferred[0].requires_grad_(False)
opt = torch.optim.SGD(filter(lambda p: p.requires_grad, deferred.parameters()), lr=0.1)
before = frozen.fc.weight.clone()
F.cross_entropy(deferred(x.detach()), torch.tensor([0, 1, 2, 0])).backward()
opt.step()
print(torch.equal(before, frozen.fc.weight), sum(p.grad is None for p in deferred.parameters()))


def pointwise(a, b):
    c = torch.sin(a) + torch.cos(b)
    return c * c.mean() + (a > 0).to(a.dtype)


eager = pointwise(x.detach(), x.detach().flip(0))
fast = torch.compile(pointwise, mode="reduce-overhead", fullgraph=False, backend="eager")
print(
    torch.allclose(fast(x.detach(), x.detach().flip(0)), eager, atol=1e-6),
    torch.allclose(fast(x.detach()[:2], x.detach()[:2]), pointwise(x.detach()[:2], x.detach()[:2])),
)


@torch.compile(dynamic=True, backend="eager")
def training_step(model, batch, target):
    return F.mse_loss(model(batch), target)


loss = training_step(deferred, x.detach(), torch.zeros(4, 3))
loss.backward()
print(f"{loss.item():.5f} {deferred[2].weight.grad.norm():.5f}")
script = torch.jit.script(pointwise) if False else pointwise
print(torch.compiler.is_compiling(), torch.is_grad_enabled(), torch.get_default_dtype())
with torch.random.fork_rng():
    torch.manual_seed(0)
    a = torch.rand(3)
torch.manual_seed(0)
print(torch.equal(a, torch.rand(3)))
state = torch.get_rng_state()
b = torch.randn(2)
torch.set_rng_state(state)
print(torch.equal(b, torch.randn(2)))

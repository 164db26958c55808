"""Modules in modules: ModuleDict of ModuleLists, factories by name, buffers that follow, parameters registered late,
repr, named iteration with prefixes, apply, freezing, state of extra kinds, lazies, hooks on state dicts, deep copies,
pickled whole models, shared submodules, children replaced, parametrizations, weight norms, half copies.
"""

import collections
import copy
import inspect
import io
import pickle
from collections.abc import Iterable

import torch
from torch import nn
from torch.nn import Module, ModuleDict, ModuleList, Parameter, Sequential
from torch.nn.utils import parameters_to_vector, parametrize, vector_to_parameters

ACT = nn.ModuleDict([["lrelu", nn.LeakyReLU()], ["prelu", nn.PReLU()]])
NORMS = {"bn": nn.BatchNorm1d, "ln": nn.LayerNorm, "none": lambda *_: nn.Identity()}


class Scale(Module):
    __constants__ = ["power"]
    power: int

    def __init__(self, n, power=2):
        super().__init__()
        self.power = power
        self.alpha = Parameter(torch.full((n,), 0.5))
        self.register_parameter("beta", None)
        self.register_buffer("steps", torch.tensor(0, dtype=torch.long))
        self.register_buffer("mask", None)

    def extra_repr(self):
        return f"n={self.alpha.numel()}, power={self.power}"

    def forward(self, x):
        if self.training:
            self.steps += 1
        out = x * self.alpha**self.power
        return out if self.beta is None else out + self.beta


class Branches(Module):
    def __init__(self, dims: Iterable[int], norm="ln"):
        super().__init__()
        self.blocks = ModuleDict()
        for i, d in enumerate(dims):
            self.blocks[f"path{i}"] = ModuleList(
                [
                    nn.Linear(4, d),
                    NORMS[norm](d),
                    ACT["lrelu"] if i % 2 else nn.Hardswish(),
                    nn.Linear(d, 4),
                ]
            )
        self.scales = nn.ParameterList([torch.ones(4) * (i + 1) for i in range(len(self.blocks))])
        self.final = Scale(4)
        self.head = Sequential(collections.OrderedDict(drop=nn.Dropout(0.0), fc=nn.Linear(4, 3)))

    def forward(self, x, skip: str | None = None):
        total = torch.zeros_like(x)
        for (name, block), s in zip(self.blocks.items(), self.scales):
            if name == skip:
                continue
            h = x
            for layer in block:
                h = layer(h)
            total = total + s * h
        return self.head(self.final(total))


def reset(m):
    for i, p in enumerate(m.parameters(recurse=False)):
        p.data.copy_(
            torch.linspace(-0.5, 0.5, p.numel()).view_as(p)
            if p.dim() > 1
            else torch.full_like(p, 0.1)
        )


net = Branches([2, 3, 5])
net.apply(reset)
print(net)
x = torch.linspace(-1, 1, 8).view(2, 4)
out = net(x)
print(out, net(x, skip="path1").sum(), net.final.steps)
print(
    [n for n, _ in net.named_parameters()],
    [n for n, _ in net.named_buffers()],
    [n for n, _ in net.named_children()],
    [n for n, m in net.named_modules() if not list(m.children())][:4],
)
print(
    [n for n, _ in net.named_parameters(prefix="net", recurse=True)][:2],
    len(list(net.modules())),
    list(net.blocks.keys()),
    "path0" in net.blocks,
    len(net.blocks),
    net.head[-1],
    net.head.fc is net.head[1],
    type(net.blocks["path2"][1]).__name__,
)
print(
    sum(p.numel() for p in net.parameters()),
    parameters_to_vector(net.final.parameters()).detach(),
    net.get_parameter("final.alpha")[:2],
    net.get_buffer("final.steps"),
    net.get_submodule("blocks.path0.0"),
)
vector_to_parameters(torch.full((4,), 0.25), net.final.parameters())
net.final.beta = Parameter(torch.tensor([1.0, 0, 0, 0]))
net.final.mask = torch.ones(4, dtype=torch.bool)
print(list(net.final.state_dict()), net.final.alpha, "mask" in dict(net.final.named_buffers()))
for attempt in (
    lambda: setattr(net.final, "alpha", torch.ones(4)),
    lambda: net.register_buffer("head", torch.ones(1)),
    lambda: net.add_module("a.b", nn.ReLU()),
    lambda: net.get_submodule("nope"),
    lambda: ModuleList([1]),
    lambda: net.register_parameter("w", torch.ones(1)),
    lambda: net.load_state_dict({}),
    lambda: net.nothing,
    lambda: Sequential(nn.ReLU())[3],
    lambda: net(torch.ones(2, 5)),
):
    try:
        attempt()
        print("accepted")
    except (TypeError, KeyError, AttributeError, RuntimeError, IndexError) as e:
        print(
            type(e).__mro__[1].__name__ if type(e).__module__ != "builtins" else type(e).__name__,
            end=" ",
        ) if False else print(
            [
                k.__name__
                for k in (TypeError, KeyError, AttributeError, IndexError, RuntimeError)
                if isinstance(e, k)
            ][0],
            end=" ",
        )
print()
twin = copy.deepcopy(net)
twin.final.alpha.data.zero_()
print(
    net.final.alpha[0].item(),
    torch.equal(twin.head.fc.weight, net.head.fc.weight),
    twin.head.fc.weight is net.head.fc.weight,
)
whole = pickle.loads(pickle.dumps(net))
f = io.BytesIO()
torch.save(net, f)
f.seek(0)
again = torch.load(f, weights_only=False)
net.eval(), whole.eval(), again.eval()
print(torch.equal(whole(x), net(x)), torch.equal(again(x), net(x)), again.training, net.final.steps)
net.requires_grad_(False)
net.head.requires_grad_()
print([n for n, p in net.named_parameters() if p.requires_grad], net(x).requires_grad)
half = copy.deepcopy(net).bfloat16()
print(
    {p.dtype for p in half.parameters()},
    half.final.steps.dtype,
    next(net.double().parameters()).dtype,
    net.float() is net,
)
sd = net.state_dict()
renamed = {k.replace("head.", "classifier."): v for k, v in sd.items()}
res = net.load_state_dict(renamed, strict=False)
print(res.missing_keys, res.unexpected_keys)


def migrate(state, prefix, meta, strict, missing, unexpected, errors):
    for k in [k for k in state if k.startswith("classifier.")]:
        state[k.replace("classifier.", "head.")] = state.pop(k)


handle = net._register_load_state_dict_pre_hook(migrate)
print(net.load_state_dict(renamed))
handle.remove()
lazy = Sequential(nn.LazyLinear(3), nn.ReLU(), nn.LazyBatchNorm1d(), nn.LazyLinear(1, bias=False))
print(lazy[0])
lazy(x)
print(lazy, [tuple(p.shape) for p in lazy.parameters()])


class Symmetric(Module):
    def forward(self, X):
        return X.triu() + X.triu(1).transpose(-1, -2)

    def right_inverse(self, A):
        return A.triu()


lin = nn.Linear(3, 3)
with torch.no_grad():
    lin.weight.copy_(torch.arange(9.0).view(3, 3))
parametrize.register_parametrization(lin, "weight", Symmetric())
print(lin.weight, lin, parametrize.is_parametrized(lin), lin.parametrizations.weight.original[1])
lin.weight = torch.eye(3)
opt = torch.optim.SGD(lin.parameters(), lr=0.1)
lin(torch.tensor([[1.0, 2.0, 3.0]])).sum().backward()
opt.step()
print(lin.weight, torch.equal(lin.weight, lin.weight.T))
parametrize.remove_parametrizations(lin, "weight", leave_parametrized=True)
print(isinstance(lin.weight, nn.Parameter), isinstance(lin, nn.Linear))
shared = nn.Linear(4, 4)
tied = Sequential(shared, nn.Tanh(), shared)
print(
    len(list(tied.parameters())),
    list(tied.state_dict()),
    len(list(tied.modules())),
    [n for n, _ in tied.named_modules(remove_duplicate=False)],
)
wn = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
old = nn.utils.weight_norm(nn.Linear(2, 2), name="weight", dim=0)
print(
    sorted(dict(wn.named_parameters())),
    sorted(dict(old.named_parameters())),
    inspect.signature(Scale.forward),
)
seq = Sequential(nn.Linear(4, 4), nn.ReLU())
seq.append(nn.Linear(4, 2)).extend([nn.Sigmoid()])
seq.insert(1, nn.LayerNorm(4))
seq[0] = nn.Identity()
del seq[-1]
print(seq, len(seq), seq[:2], seq.pop(0), nn.ModuleList([nn.ReLU()]) + [nn.Tanh()])
d = ModuleDict({"a": nn.ReLU(), "b": nn.Linear(1, 1)})
d.update({"c": nn.Tanh()})
print(
    d.pop("a"), list(d), d, nn.ParameterDict({"k": torch.ones(1), "j": Parameter(torch.zeros(2))})
)

"""Autograd by hand: custom functions with several inputs and outputs, non-differentiable outputs,
materialize_grads, once_differentiable, setup_context, needs_input_grad, double backward, hooks,
saved tensors, jacobians and hessians, detect_anomaly.
"""

import torch
from torch.autograd import Function, grad, gradcheck
from torch.autograd.function import once_differentiable


class MulConst(Function):
    @staticmethod
    def forward(ctx, x, const):
        ctx.const = const
        return x * const

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.const, None


class SplitStats(Function):
    @staticmethod
    def forward(ctx, x, w):
        mean, top = (x * w).mean(), x.argmax()
        ctx.save_for_backward(x, w)
        ctx.mark_non_differentiable(top)
        ctx.set_materialize_grads(False)
        return mean, (x - w), top

    @staticmethod
    def backward(ctx, g_mean, g_diff, g_top):
        x, w = ctx.saved_tensors
        gx = gw = None
        if g_mean is not None:
            gx, gw = g_mean * w / x.numel(), g_mean * x / x.numel()
        if g_diff is not None:
            gx = g_diff if gx is None else gx + g_diff
            gw = -g_diff if gw is None else gw - g_diff
        print("needs", ctx.needs_input_grad, g_top is None, g_diff is None)
        return gx, gw


class Exp(Function):
    @staticmethod
    def forward(x):
        return x.exp()

    @staticmethod
    def setup_context(ctx, inputs, output):
        (x,) = inputs
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (out,) = ctx.saved_tensors
        return g * out

    @staticmethod
    def vmap(info, in_dims, x):
        return x.exp(), in_dims[0]


class Clamp(Function):
    @staticmethod
    def forward(ctx, x, lo, hi):
        ctx.save_for_backward((x >= lo) & (x <= hi))
        return x.clamp(min=lo, max=hi)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (inside,) = ctx.saved_tensors
        return g.where(inside, torch.zeros_like(g)), None, None


class Inplace(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        x.mul_(3)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 3


x = torch.tensor([0.5, -1.5, 2.0], requires_grad=True)
print(MulConst.apply(x, 5.5).sum().backward(), x.grad)
x.grad.zero_()
w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
mean, diff, top = SplitStats.apply(x, w)
print(mean.item(), diff, top, top.requires_grad)
mean.backward()
print(x.grad, w.grad)
x.grad = w.grad = None
mean, diff, _ = SplitStats.apply(x, w)
(diff.square().sum() + mean).backward()
print(x.grad, w.grad)
x.grad = None
y = Exp.apply(x)
(gx,) = grad(y.sum(), x, create_graph=True)
(ggx,) = grad(gx.sum(), x)
print(gx, ggx, gradcheck(Exp.apply, (x.detach().double().requires_grad_(),), eps=1e-6, atol=1e-4))
z = Clamp.apply(x, -1.0, 1.0)
(gz,) = grad(z.sum(), x, create_graph=True)
print(gz.tolist())
try:
    grad(gz.sum(), x)
except RuntimeError:
    print("refused")
base = torch.ones(3, requires_grad=True)
t = base * 2
out = Inplace.apply(t)
out.sum().backward()
print(base.grad, t, out is t)

# hooks
log = []
a = torch.tensor([1.0, 2.0], requires_grad=True)
b = a * a
h1 = b.register_hook(lambda g: log.append(("b", g.tolist())))
h2 = a.register_hook(lambda g: g * 10)
b.retain_grad()
(b * torch.tensor([1.0, 3.0])).sum().backward(retain_graph=True)
print(log, a.grad, b.grad)
h1.remove(), h2.remove()
a.grad = None
print(
    a.grad_fn,
    b.grad_fn.name(),
    [fn[0].name() if fn[0] else None for fn in b.grad_fn.next_functions],
)


def energy(p, q):
    return 0.5 * (p**2).sum() + torch.cos(q).sum() + (p * q).prod()


p, q = torch.tensor([0.3, 0.7]), torch.tensor([1.0, -0.5])
J = torch.autograd.functional.jacobian(lambda u: torch.stack([u.sum(), u.prod(), u[0] ** 3]), p)
H = torch.autograd.functional.hessian(energy, (p, q))
print(J)
for row in H:
    for block in row:
        print(block)
print(torch.autograd.functional.vjp(lambda u: u**2, p, torch.tensor([1.0, 2.0])))
print(torch.autograd.functional.jvp(lambda u: u**2, (p,), (torch.tensor([1.0, 2.0]),)))
print(torch.autograd.functional.hvp(lambda u: (u**4).sum(), p, torch.ones(2)))
print(torch.autograd.functional.vhp(lambda u: (u**4).sum(), p, torch.ones(2))[1])

# grad with unused inputs, with grad_outputs and batched
u, v = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
print(grad((u * 3).sum(), (u, v), allow_unused=True))
print(grad(u * 3, u, grad_outputs=torch.tensor([1.0, 2.0])))
print(grad((u * 3).sum(), (u, v), materialize_grads=True))
try:
    grad((u * 3).sum(), (u, v))
except RuntimeError as e:
    print("unused:", "not have been used" in str(e))
with torch.autograd.set_detect_anomaly(True):
    try:
        k = torch.tensor([-1.0], requires_grad=True)
        k.sqrt().sum().backward()
        print("no anomaly")
    except RuntimeError as e:
        print("anomaly", "nan" in str(e).lower())
with (
    torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t)
    if False
    else torch.enable_grad()
):
    print((u * v).sum().backward())
with torch.set_grad_enabled(False):
    print((u * 2).requires_grad, torch.is_grad_enabled())
print(torch.tensor(2.0, requires_grad=True).sqrt().detach_().requires_grad)
with torch.inference_mode():
    print(torch.ones(2).is_inference() or True, (u + 1).requires_grad)

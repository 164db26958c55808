"""Functions with their own gradients: saved tensors, non-differentiable outputs, needs_input_grad, twice differentiable, in modules."""

import numpy as np
import torch
import torch.nn as nn
from torch.autograd import Function, gradcheck, gradgradcheck
from torch.autograd.function import once_differentiable

rng = np.random.default_rng(3)


class LinearFunction(Function):
    @staticmethod
    def forward(input, weight, bias):
        output = input.mm(weight.t())
        if bias is not None:
            output += bias.unsqueeze(0).expand_as(output)
        return output

    @staticmethod
    def setup_context(ctx, inputs, output):
        input, weight, bias = inputs
        ctx.save_for_backward(input, weight, bias)

    @staticmethod
    def backward(ctx, grad_output):
        input, weight, bias = ctx.saved_tensors
        grad_input = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_input = grad_output.mm(weight)
        if ctx.needs_input_grad[1]:
            grad_weight = grad_output.t().mm(input)
        if bias is not None and ctx.needs_input_grad[2]:
            grad_bias = grad_output.sum(0)
        return grad_input, grad_weight, grad_bias


class MyLinear(nn.Module):
    def __init__(self, input_features, output_features, bias=True):
        super().__init__()
        self.input_features = input_features
        self.output_features = output_features
        self.weight = nn.Parameter(torch.empty(output_features, input_features))
        if bias:
            self.bias = nn.Parameter(torch.empty(output_features))
        else:
            self.register_parameter("bias", None)
        nn.init.uniform_(self.weight, -0.1, 0.1)
        if self.bias is not None:
            nn.init.uniform_(self.bias, -0.1, 0.1)

    def forward(self, input):
        return LinearFunction.apply(input, self.weight, self.bias)

    def extra_repr(self):
        return f"input_features={self.input_features}, output_features={self.output_features}, bias={self.bias is not None}"


class MulConstant(Function):
    @staticmethod
    def forward(tensor, constant):
        return tensor * constant

    @staticmethod
    def setup_context(ctx, inputs, output):
        tensor, constant = inputs
        ctx.set_materialize_grads(False)
        ctx.constant = constant

    @staticmethod
    def backward(ctx, grad_output):
        if grad_output is None:
            return None, None
        return grad_output * ctx.constant, None


class MySort(Function):
    @staticmethod
    def forward(ctx, x):
        sorted, idx = x.sort()
        ctx.mark_non_differentiable(idx)
        ctx.save_for_backward(x, idx)
        return sorted, idx

    @staticmethod
    @once_differentiable
    def backward(ctx, g1, g2):
        x, idx = ctx.saved_tensors
        grad_input = torch.zeros_like(x)
        grad_input.index_add_(0, idx, g1)
        return grad_input


class MyCube(Function):
    @staticmethod
    def forward(ctx, x):
        result = x**3
        dx = 3 * x**2
        ctx.save_for_backward(x, dx)
        return result, dx

    @staticmethod
    def backward(ctx, grad_output, grad_dx):
        x, dx = ctx.saved_tensors
        return grad_output * dx + grad_dx * 6 * x


class Exp(Function):
    @staticmethod
    def forward(ctx, i):
        result = i.exp()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, grad_output):
        (result,) = ctx.saved_tensors
        return grad_output * result


class RoundSTE(Function):
    @staticmethod
    def forward(ctx, x, bits=4):
        ctx.scale = 2**bits - 1
        return torch.round(x * ctx.scale) / ctx.scale

    @staticmethod
    def backward(ctx, g):
        return g, None


class GradReverse(Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.neg() * ctx.alpha, None


input = (
    torch.from_numpy(rng.normal(size=(20, 5))).requires_grad_(),
    torch.from_numpy(rng.normal(size=(3, 5))).requires_grad_(),
    None,
)
print(gradcheck(LinearFunction.apply, input, eps=1e-6, atol=1e-4))
layer = MyLinear(5, 3)
print(layer, [n for n, _ in layer.named_parameters()])
with torch.no_grad():
    layer.weight.copy_(torch.from_numpy(rng.normal(size=(3, 5))))
    layer.bias.fill_(0.25)
x = torch.from_numpy(rng.normal(size=(4, 5))).float()
layer(x).square().sum().backward()
print(layer.weight.grad, layer.bias.grad, x.grad)
t = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
MulConstant.apply(t, 3).sum().backward()
print(t.grad)
u = torch.tensor([3.0, 1.0, 2.0], requires_grad=True)
s, idx = MySort.apply(u)
print(s.requires_grad, idx.requires_grad, idx)
(s * torch.tensor([1.0, 10.0, 100.0])).sum().backward()
print(u.grad)
w = torch.tensor([0.5, 1.5], dtype=torch.double, requires_grad=True)
cube, dcube = MyCube.apply(w)
print(torch.autograd.grad(cube.sum() + dcube.sum(), w))
print(gradcheck(lambda a: MyCube.apply(a)[0], (w,)), gradgradcheck(Exp.apply, (w,)))
(g,) = torch.autograd.grad(Exp.apply(w).sum(), w, create_graph=True)
print(torch.autograd.grad(g.square().sum(), w)[0])
q = torch.tensor([0.11, 0.52, 0.97], requires_grad=True)
(RoundSTE.apply(q, 3) * torch.arange(3)).sum().backward()
print(RoundSTE.apply(q, 3), q.grad)
features = nn.Linear(2, 2, bias=False)
features.weight.data.copy_(torch.eye(2))
domain = GradReverse.apply(features(torch.ones(1, 2)), 0.3).sum()
domain.backward()
print(domain.item(), features.weight.grad, domain.grad_fn is not None)

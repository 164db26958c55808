"""Lines of random programs in PyTorch's style, of `x` and `y`, tensors made before: views, values
and writes in place. Written values are copies: PyTorch leaves open what becomes of operands that
overlap the target.
"""

__all__ = ["VALUES", "VIEWS", "WRITES"]

VIEWS = (
    "x[:]", "x[1:]", "x[::2]", "x[0]", "x[-1]", "x[None]", "x[..., 0]", "x.t()", "x.view(-1)",
    "x.reshape(-1)", "x.unsqueeze(0)", "x.squeeze()", "x.expand(*x.shape)", "x.transpose(0, -1)",
    "x.permute(*range(x.dim() - 1, -1, -1))", "x.diagonal()", "x.chunk(2)[0]", "x.split(1)[0]",
    "x.unbind(0)[0]", "x.narrow(0, 0, 1)", "x.detach()", "x.view_as(x)", "x.flatten()",
    "x.movedim(0, -1)", "x.select(0, 0)", "x.broadcast_to(x.shape)", "x.swapaxes(0, 0)",
)  # fmt: skip
VALUES = (
    "x * 2", "x + 1", "x * x", "x.sin()", "x.relu()", "x.sum()", "x.mean(0)", "x - x.mean()",
    "torch.cat([x, x])", "torch.stack([x, x])", "x.cumsum(0)", "x.softmax(0)", "x.max()",
    "x.flip(0)", "x.abs()", "x.clamp(-1, 1)", "torch.where(x > 0, x, -x)", "x.pow(2)",
    "x.sigmoid()", "x.masked_fill(x > 1, 0.0)", "x.sort(0)[0]", "x[[0]]", "x + y", "x * y", "x - y",
    "torch.maximum(x, y)", "x / (y.abs() + 1)", "torch.where(x > y, x, y)",
)  # fmt: skip
WRITES = (
    "x.add_(1)", "x.mul_(2)", "x.fill_(3)", "x.zero_()", "x.copy_(x * 0 + 2)", "x.clamp_(-1, 1)",
    "x.relu_()", "x[0] = 5.0", "x[:1] += 1", "x.sin_()", "x.neg_()", "x.div_(2)", "x.add_(y * 1)",
    "x.copy_(y * 1)", "x.mul_(y * 1)", "x[:] = y * 1",
)  # fmt: skip

from tinygrad import Tensor, TinyJit

Tensor.manual_seed(7)


@TinyJit
def draw(scale):
    return (Tensor.rand(4) * scale).realize()


seen = [tuple(draw(Tensor([float(n + 1)])).tolist()) for n in range(5)]
assert len(set(seen)) == 5
assert all(0 <= value < n + 1 for n, values in enumerate(seen) for value in values)
Tensor.manual_seed(7)
assert [tuple((Tensor.rand(4) * (n + 1.0)).tolist()) for n in range(5)] == seen
checked = 3

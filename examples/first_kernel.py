"""One kernel: a row-wise dot product, to look at with `python -m tilegrad show`."""

from tilegrad import Tensor

if __name__ == "__main__":
    a = Tensor([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]).realize()
    b = Tensor([[0.5, 0.5, 0.5, 0.5], [2.0, 2.0, 2.0, 2.0]]).realize()
    print(((a * b).sum(1) + 1).tolist())

"""Linear algebra of complex matrices, by that of real ones.

A matrix A + iB acts on the parts of a vector as the real matrix [[A, -B], [B, A]]. Products,
inverses and functions of such matrices have the same form, so what real matrices have is read off
two of the four blocks, gradients too; eigenvalues of a Hermitian matrix and singular values come
twice. Factors that have no such form are in complex_factors.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy

from tilegrad.base.dtype import dtypes
from tilegrad.tensor.tensor import Tensor as OurTensor
from tilegrad.torch.complex import Complex, as_complex, make
from tilegrad.torch.complex_factors import add_factors, check_matrix
from tilegrad.torch.made_tensors import tensor
from tilegrad.torch.naming import called
from tilegrad.torch.tensor import Tensor, as_ours

__all__ = ["add_linear_algebra", "einsum"]


def _embedded(z: Complex) -> Tensor:
    """The real matrix [[A, -B], [B, A]] of A + iB."""
    a, b = z.real, z.imag
    rows = Tensor.cat(a, -b, dim=-1), Tensor.cat(b, a, dim=-1)
    return Tensor.cat(*rows, dim=-2)


def _read_off(real: Tensor) -> Complex:
    """The complex matrix of a real one of that form."""
    rows, columns = real.shape[-2] // 2, real.shape[-1] // 2
    left = real[..., :columns]
    return Complex(left[..., :rows, :].stack(left[..., rows:, :], dim=-1))


def _like_real(name: str) -> Callable[..., Complex]:
    """A function of matrices that keeps the form."""
    plain = getattr(Tensor, name)

    def method(self: Complex, *args: Any, **options: Any) -> Complex:
        check_matrix(name, self, is_square=name != "pinverse")
        return _read_off(plain(_embedded(self), *args, **options))

    method.__doc__ = plain.__doc__
    return called(method, name)


def _solve(self: Complex, B: Any, *, by: Callable[..., Any] = Tensor.solve) -> Complex:
    """The x with `self @ x == B`, for a vector or a matrix B."""
    check_matrix("solve", self)
    right = as_complex(B)
    is_vector = right.ndim == 1
    columns = right.unsqueeze(-1) if is_vector else right
    found = by(_embedded(self), Tensor.cat(columns.real, columns.imag, dim=-2))
    half = found.shape[-2] // 2
    made = Complex(found[..., :half, :].stack(found[..., half:, :], dim=-1))
    return made.squeeze(-1) if is_vector else made


def _det(self: Complex) -> Complex:
    """The determinant; its gradient is right, that of its gradient is not."""
    check_matrix("det", self)
    value = _computed(numpy.linalg.det(self.detach().numpy()))
    if not self.requires_grad or not self.numel():
        return value  # type: ignore[no-any-return]
    # d det = det tr(M^-1 dM), of the change alone.
    change = self - self.detach()
    return value * (1 + (self.detach().inv() @ change).diagonal(0, -2, -1).sum(-1))  # type: ignore[no-any-return]


def _eigvalsh(self: Complex) -> Tensor:
    """The eigenvalues of a Hermitian matrix, in ascending order."""
    check_matrix("eigvalsh", self)
    lower = self.tril()
    whole = lower + self.tril(-1).mT.conj()
    # The diagonal is real.
    found: Tensor = _embedded(whole - 1j * _diagonal_imag(whole)).eigvalsh()[..., ::2]
    return found


def _diagonal_imag(z: Complex) -> Tensor:
    return z.imag.diagonal(0, -2, -1).diag_embed()


def _svdvals(self: Complex) -> Tensor:
    """The singular values, the largest first."""
    check_matrix("svdvals", self, is_square=False)
    found: Tensor = _embedded(self).svdvals()[..., ::2]
    return found


def _computed(array: Any) -> Any:
    """NumPy's results, as tensors."""
    if isinstance(array, tuple):
        return tuple([_computed(each) for each in array])
    array = numpy.asarray(array)
    if array.dtype.kind != "c":
        return tensor(array)
    pairs = numpy.stack([array.real, array.imag], -1)
    return Complex(tensor(pairs))


def _slogdet(self: Complex) -> tuple[Complex, Tensor]:
    """The sign of the determinant, on the unit circle, and the logarithm of its magnitude."""
    check_matrix("slogdet", self)
    sign, size = _computed(tuple(numpy.linalg.slogdet(self.detach().numpy())))
    if not self.requires_grad or not self.numel():
        return sign, size
    # d log det = tr(M^-1 dM): its real part is that of the size, the rest turns the sign.
    inner = self.detach().inv() @ (self - self.detach())
    trace = inner.diagonal(0, -2, -1).sum(-1)
    return sign * (1 + 1j * trace.imag), size + trace.real


def _logdet(self: Complex) -> Complex:
    """The logarithm of the determinant."""
    sign, size = _slogdet(self)
    return sign.log() + size


def _pinv(self: Complex, rtol: Any = None) -> Complex:
    """The pseudoinverse, without singular values of at most `rtol` of the largest."""
    if not self.numel():
        return self.mH
    rows, columns = self.shape[-2:]
    # That of the embedding would be twice as large.
    least = max(rows, columns) * 2.0 ** -dtypes.finfo(self.pair.dtype)[1] if rtol is None else rtol
    return _read_off(_embedded(self).pinv(least))


def _matrix_norm(self: Complex, ord: Any = "fro", keepdim: bool = False) -> Tensor:
    """The norms of matrices, by their magnitudes or their singular values."""
    check_matrix("matrix_norm", self, is_square=False)
    if ord not in ("nuc", 2, -2):
        return self.abs().matrix_norm(ord, keepdim)
    values = self.svdvals()
    made = values.sum(-1) if ord == "nuc" else values.amax(-1) if ord == 2 else values.amin(-1)
    return made.unsqueeze(-1).unsqueeze(-1) if keepdim else made  # type: ignore[no-any-return]


def _lstsq(self: Complex, B: Any, rcond: Any = None) -> tuple[Any, ...]:
    """The X for which A X is next to B, what is left of each column, the ranks, and the singular
    values.
    """
    check_matrix("lstsq", self, is_square=False)
    right = as_complex(B)
    values = self.detach().svdvals()
    most = max(self.shape[-2:]) * 2.0 ** -dtypes.finfo(values.dtype)[1]
    least = values.amax(-1, True) * (most if rcond is None else rcond)
    found = self.pinv(rcond) @ right
    rest = (self @ found - right).abs().square().sum(-2)
    return found, rest, (values > least).sum(-1), values


def _lazily(self: Complex, name: str, *args: Any) -> Complex:
    """An inverse, a solution or a factor, without errors for singular matrices."""
    if name == "cholesky":
        return self._cholesky_ex(*args)[0]  # type: ignore[no-any-return]
    check_matrix(name, self)
    if name == "inv":
        return _read_off(OurTensor.inv(_embedded(self)))
    return _solve(self, *args, by=OurTensor.solve)


def _of_square(self: Complex, name: str) -> int:
    check_matrix(name, self)
    return int(self.shape[-1])


def _of_matrix(self: Complex, name: str) -> tuple[int, int]:
    check_matrix(name, self, is_square=False)
    return int(self.shape[-2]), int(self.shape[-1])


def add_linear_algebra() -> None:
    """Give complex tensors the methods of this file."""
    for name in ("inv", "inverse", "pinverse", "matrix_exp", "matrix_power"):
        setattr(Complex, name, _like_real(name))
    for name in ("cond", "tensorinv", "tensorsolve"):
        # Their formulas hold as they stand.
        setattr(Complex, name, getattr(OurTensor, name))
    for name, method in (
        ("solve", _solve), ("det", _det), ("eigvalsh", _eigvalsh), ("svdvals", _svdvals),
        ("slogdet", _slogdet), ("logdet", _logdet), ("pinv", _pinv), ("lstsq", _lstsq),
        ("matrix_norm", _matrix_norm), ("_lazily", _lazily), ("_square", _of_square),
        ("_matrix", _of_matrix),
    ):  # fmt: skip
        setattr(Complex, name, called(method, name))
    add_factors()


def einsum(equation: str, *operands: Any) -> Complex:
    """Einstein's sum of products, where at least one operand is complex."""
    pairs = [
        (each.real, each.imag) if isinstance(each, Complex) else (as_ours(each), None)
        for each in operands
    ]
    real: Any = None
    imag: Any = None
    for choice in range(1 << len(pairs)):
        chosen = [pair[choice >> number & 1] for number, pair in enumerate(pairs)]
        if any(each is None for each in chosen):
            continue
        imaginary = bin(choice).count("1")
        product = Tensor.einsum(equation, *chosen)
        signed = -product if imaginary % 4 in (2, 3) else product
        if imaginary % 2:
            imag = signed if imag is None else imag + signed
        else:
            real = signed if real is None else real + signed
    return make(real, imag)

"""Linear algebra of complex matrices, by that of real ones.

A matrix A + iB acts on the parts of a vector as the real matrix [[A, -B], [B, A]]. Products,
inverses and functions of such matrices have the same form, so what real matrices have is read off
two of the four blocks, gradients too; eigenvalues of a Hermitian matrix and singular values come
twice. Factors that have no such form (`eigh`, `svd`, `qr`, `cholesky`) are computed at once by
NumPy, and have no gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy

from tilegrad.base.errors import ShapeError
from tilegrad.tensor.handle.size_arguments import here, show_shape
from tilegrad.torch.complex import Complex, as_complex, make
from tilegrad.torch.made_tensors import tensor
from tilegrad.torch.naming import called
from tilegrad.torch.tensor import Tensor, as_ours

__all__ = ["add_linear_algebra", "einsum"]


def _embedded(z: Complex) -> Tensor:
    """The real matrix [[A, -B], [B, A]] of A + iB."""
    a, b = z.real, z.imag
    rows = Tensor.cat(a, -b, dim=-1), Tensor.cat(b, a, dim=-1)
    found: Tensor = Tensor.cat(*rows, dim=-2)
    return found


def _read_off(real: Tensor) -> Complex:
    """The complex matrix of a real one of that form."""
    rows, columns = real.shape[-2] // 2, real.shape[-1] // 2
    left = real[..., :columns]
    return Complex(left[..., :rows, :].stack(left[..., rows:, :], dim=-1))


def _check_matrix(name: str, z: Complex, *, is_square: bool = True) -> None:
    if z.ndim < 2 or (is_square and z.shape[-1] != z.shape[-2]):
        kind = "square matrix" if is_square else "matrix"
        raise ShapeError(f"{name}: {show_shape(z.shape)} is no {kind}", line=here())


def _like_real(name: str) -> Callable[..., Complex]:
    """A function of matrices that keeps the form."""
    plain = getattr(Tensor, name)

    def method(self: Complex, *args: Any, **options: Any) -> Complex:
        _check_matrix(name, self, is_square=name != "pinverse")
        return _read_off(plain(_embedded(self), *args, **options))

    method.__doc__ = plain.__doc__
    return called(method, name)


def _solve(self: Complex, B: Any) -> Complex:
    """The x with `self @ x == B`, for a vector or a matrix B."""
    _check_matrix("solve", self)
    right = as_complex(B)
    is_vector = right.ndim == 1
    columns = right.unsqueeze(-1) if is_vector else right
    found = _embedded(self).solve(Tensor.cat(columns.real, columns.imag, dim=-2))
    half = found.shape[-2] // 2
    made = Complex(found[..., :half, :].stack(found[..., half:, :], dim=-1))
    return made.squeeze(-1) if is_vector else made


def _det(self: Complex) -> Complex:
    """The determinant; its gradient is right, that of its gradient is not."""
    _check_matrix("det", self)
    value = _computed(numpy.linalg.det(self.numpy()))
    if not self.requires_grad:
        return value  # type: ignore[no-any-return]
    # d det = det tr(M^-1 dM), of the change alone.
    change = self - self.detach()
    return value * (1 + (self.detach().inv() @ change).diagonal(0, -2, -1).sum(-1))  # type: ignore[no-any-return]


def _eigvalsh(self: Complex) -> Tensor:
    """The eigenvalues of a Hermitian matrix, in ascending order."""
    _check_matrix("eigvalsh", self)
    lower = self.tril()
    whole = lower + self.tril(-1).mT.conj()
    # The diagonal is real.
    found: Tensor = _embedded(whole - 1j * _diagonal_imag(whole)).eigvalsh()[..., ::2]
    return found


def _diagonal_imag(z: Complex) -> Tensor:
    found: Tensor = z.imag.diagonal(0, -2, -1).diag_embed()
    return found


def _svdvals(self: Complex) -> Tensor:
    """The singular values, the largest first."""
    _check_matrix("svdvals", self, is_square=False)
    found: Tensor = _embedded(self).svdvals()[..., ::2]
    return found


def _computed(array: Any) -> Any:
    """What NumPy gives, as tensors."""
    if isinstance(array, tuple):
        return tuple([_computed(each) for each in array])
    array = numpy.asarray(array)
    if array.dtype.kind != "c":
        return tensor(array)
    pairs = numpy.stack([array.real, array.imag], -1)
    return Complex(tensor(pairs))


def _by_numpy(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Complex, *args: Any) -> Any:
        _check_matrix(name, self, is_square=name in ("eigh", "cholesky"))
        return _computed(function(self.detach().numpy(), *args))

    method.__doc__ = f"As `{name}` of real matrices, computed at once and without gradients."
    return called(method, name)


def _factors(array: Any, upper: bool = False) -> Any:
    if not upper:
        return numpy.linalg.cholesky(array)
    return numpy.linalg.cholesky(array.swapaxes(-1, -2).conj()).swapaxes(-1, -2).conj()


def add_linear_algebra() -> None:
    """Give complex tensors the methods of this file."""
    for name in ("inv", "inverse", "pinverse", "matrix_exp", "matrix_power"):
        setattr(Complex, name, _like_real(name))
    setattr(Complex, "pinv", _like_real("pinverse"))  # noqa: B010  # as the others
    for name, method in (
        ("solve", _solve), ("det", _det), ("eigvalsh", _eigvalsh), ("svdvals", _svdvals),
        ("eigh", _by_numpy("eigh", lambda array: tuple(numpy.linalg.eigh(array)))),
        ("qr", _by_numpy("qr", lambda array, mode="reduced": tuple(numpy.linalg.qr(array, mode)))),
        ("svd", _by_numpy("svd", lambda array, full=True: tuple(numpy.linalg.svd(array, full)))),
        ("slogdet", _by_numpy("slogdet", lambda array: tuple(numpy.linalg.slogdet(array)))),
        ("cholesky", _by_numpy("cholesky", _factors)),
    ):  # fmt: skip
        setattr(Complex, name, called(method, name))


def einsum(equation: str, *operands: Any) -> Complex:
    """Einstein's sum of products, of which one operand at least is complex."""
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

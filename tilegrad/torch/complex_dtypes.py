"""`torch.complex64` and `torch.complex128`: the dtypes of pairs of floats."""

from __future__ import annotations

from dataclasses import dataclass

from tilegrad.base.dtype import DType, dtypes

__all__ = ["ComplexDType", "complex32", "complex64", "complex128", "complex_dtype_of"]


@dataclass(frozen=True)
class ComplexDType:
    """A dtype of complex numbers; `component` is that of their real and imaginary parts."""

    name: str
    component: DType

    is_complex = True
    is_floating_point = False
    is_float = False
    is_int = False

    @property
    def itemsize(self) -> int:
        """Bytes of one number."""
        return 2 * self.component.itemsize

    def to_real(self) -> DType:
        """The dtype of the parts."""
        return self.component

    def to_complex(self) -> ComplexDType:
        """This dtype."""
        return self

    def __repr__(self) -> str:
        return f"torch.{self.name}"


complex32 = ComplexDType("complex32", dtypes.float16)
complex64 = ComplexDType("complex64", dtypes.float32)
complex128 = ComplexDType("complex128", dtypes.float64)


def _to_complex(dtype: DType) -> ComplexDType:
    """The dtype of complex numbers with such parts; that of bfloat16 has parts of float32.

    Raises RuntimeError for what is no float, or has no complex counterpart.
    """
    if dtype in (dtypes.float16, dtypes.float32, dtypes.float64, dtypes.bfloat16):
        return complex_dtype_of(dtype)
    raise RuntimeError(f"Unknown Complex ScalarType for {dtype.name}: there is none of such parts")


DType.to_complex = _to_complex  # type: ignore[attr-defined]


def complex_dtype_of(component: DType) -> ComplexDType:
    """The dtype of complex numbers with parts of a float dtype."""
    if component is dtypes.float16:
        return complex32
    return complex128 if component is dtypes.float64 else complex64

"""Memory handed to other libraries and taken from them: one copy, valid on both sides."""

from __future__ import annotations

import array
import copy
import ctypes
import gc
import mmap
import pickle
import subprocess
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tilegrad import Tensor, dtypes, jit
from tilegrad.base.errors import DataError, DTypeError, ShapeError
from tilegrad.engine.run.run import recording
from tilegrad.tensor.exchange import dlpack_capsules

GRID = np.arange(12, dtype=np.float32).reshape(3, 4)
NUMPY_KNOWS = [d for d in dtypes.all if d.name[:2] != "fp" and d is not dtypes.bfloat16]


def address(of: Any) -> int:
    return int(np.asarray(of).__array_interface__["data"][0])


# given away


@pytest.mark.parametrize("dtype", NUMPY_KNOWS, ids=lambda dtype: dtype.name)
def test_numpy_takes_a_tensor(dtype: Any) -> None:
    x = Tensor([[1, 0], [1, 1]]).cast(dtype)
    found = np.from_dlpack(x)
    assert found.dtype.name == dtype.name
    assert found.tolist() == x.tolist()
    assert not found.flags.writeable
    assert not found.flags.owndata


def test_what_is_given_is_the_memory_itself() -> None:
    x = Tensor(GRID).realize()
    first, second = np.from_dlpack(x), np.from_dlpack(x)
    assert address(first) == address(second) == address(np.asarray(x, copy=False))
    assert (first.shape, first.strides) == ((3, 4), (16, 4))


@pytest.mark.parametrize("make", [Tensor(2.5), Tensor.zeros(0, 3), Tensor(GRID).T, Tensor.ones(2)])
def test_tensors_without_memory_of_their_own(make: Tensor) -> None:
    found = np.from_dlpack(make)
    assert found.shape == make.shape
    assert found.tolist() == make.tolist()


def test_what_was_given_keeps_its_values() -> None:
    x = Tensor(GRID).realize()
    taken = np.from_dlpack(x)
    x.assign(x + 1).realize()
    x[0] = 9.0
    assert np.array_equal(taken, GRID)
    del x
    gc.collect()
    assert np.array_equal(taken, GRID)


def test_memory_goes_back_when_the_taker_is_done() -> None:
    x = Tensor(GRID).realize()
    taken = np.from_dlpack(x)
    assert len(dlpack_capsules._given) == 1
    view = taken[1:]
    del taken
    assert len(dlpack_capsules._given) == 1
    del view
    assert not dlpack_capsules._given
    for version in (None, (1, 0)):
        capsule = x.__dlpack__(max_version=version)
        assert len(dlpack_capsules._given) == 1
        del capsule
        assert not dlpack_capsules._given


def test_a_copy_is_the_takers_own() -> None:
    x = Tensor(GRID).realize()
    found = np.from_dlpack(x, copy=True)
    assert found.flags.writeable
    found[0] = 7
    assert np.array_equal(x.numpy(), GRID)


def test_what_dlpack_refuses() -> None:
    x = Tensor(GRID).realize()
    assert x.__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError, match="no streams"):
        x.__dlpack__(stream=1)
    with pytest.raises(BufferError, match=r"is \(1, 0\), not \(2, 0\)"):
        x.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="without a copy"):
        Tensor(2.0).__dlpack__(copy=False)
    assert np.array_equal(np.from_dlpack(x, copy=False), GRID)


def test_capsules_of_both_versions() -> None:
    x = Tensor(GRID).realize()
    for version, name in ((None, "dltensor"), ((0, 8), "dltensor"), ((1, 0), "dltensor_versioned")):
        assert f'"{name}"' in repr(x.__dlpack__(max_version=version))
    versioned: Any = dlpack_capsules._Versioned
    capsule = x.__dlpack__(max_version=(1, 0))
    head = versioned.from_address(dlpack_capsules._pointer(capsule, b"dltensor_versioned"))
    assert (head.major, head.flags) == (1, 1)
    capsule = x.__dlpack__(max_version=(1, 0), copy=True)
    head = versioned.from_address(dlpack_capsules._pointer(capsule, b"dltensor_versioned"))
    assert head.flags == 2


# taken

LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "whole": lambda x: x,
    "columns": lambda x: x.T,
    "rows": lambda x: x[1:],
    "window": lambda x: x[1:, 1:3],
    "every second": lambda x: x[::2, ::3],
    "turned": lambda x: x[::-1, ::-2],
    "stretched": lambda x: np.broadcast_to(x[:, None], (3, 2, 4)).copy()[:, :1],
    "one": lambda x: x[1, 2],
    "none": lambda x: x[:0],
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_an_array_in_any_layout(name: str) -> None:
    given = LAYOUTS[name](GRID.copy())
    if np.ndim(given) == 0:
        given = np.asarray(given)
    found = Tensor.from_dlpack(given)
    assert found.shape == given.shape
    assert np.array_equal(found.numpy(), given)


@pytest.mark.parametrize("dtype", dtypes.all, ids=lambda dtype: dtype.name)
def test_a_tensor_comes_back_through_a_capsule(dtype: Any) -> None:
    x = Tensor([1, 0, 1]).cast(dtype).realize()
    for version in (None, (1, 0)):
        found = Tensor.from_dlpack(x.__dlpack__(max_version=version))
        assert found.dtype is dtype
        assert found.tolist() == x.tolist()


def test_what_is_taken_is_read_in_place() -> None:
    given = np.arange(4096, dtype=np.float32)
    found = Tensor.from_dlpack(given, "CPU")
    with recording() as launches:
        assert found.sum().item() == given.sum()
    assert all(launch.kernel is not None for launch in launches)
    assert address(found.numpy()) == address(given)


def test_memory_of_others_is_never_written_to() -> None:
    given = np.arange(4096, dtype=np.float32)
    given.flags.writeable = False
    found = Tensor.from_dlpack(given)
    window = found[10:20]
    found[0:5] = -1.0
    window.assign(window * 2)
    found.assign(found + 1).realize()
    assert given.tolist() == list(range(4096))
    assert found.tolist()[:12] == [0, 0, 0, 0, 0, 6, 7, 8, 9, 10, 21, 23]


def test_a_captured_function_reads_memory_of_others_and_never_writes_to_it() -> None:
    weight = np.arange(4096, dtype=np.float32)
    fixed, state = Tensor.from_dlpack(weight), Tensor.from_dlpack(weight)

    @jit
    def scaled(x: Tensor) -> Tensor:
        return (x * fixed).sum().realize()

    @jit
    def counted(x: Tensor) -> Tensor:
        state.assign(state + 1).realize()
        x.assign(x * 2).realize()
        return (x.sum() + state[0]).realize()

    for factor in range(1, 5):
        given = np.full(4096, factor, np.float32)
        assert scaled(Tensor.from_dlpack(given)).item() == factor * weight.sum()
        assert counted(Tensor.from_dlpack(given)).item() == 2 * factor * 4096 + factor
        assert given.tolist() == [factor] * 4096
    assert weight.tolist() == list(range(4096))
    assert state.tolist() == list(range(4, 4100))


class Giver:
    """An array that says when it goes."""

    def __init__(self, values: Any, **more: Any):
        self.values, self.more = values, more

    def __dlpack__(self, **arguments: Any) -> Any:
        if self.more.get("is_old") and arguments:
            raise TypeError
        return self.values.__dlpack__(**arguments)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.more.get("device", (1, 0))


def test_who_gave_is_told_when_the_last_tensor_goes() -> None:
    given = np.arange(4096, dtype=np.float32)
    gone = weakref.ref(given)
    found = Tensor.from_dlpack(given)
    del given
    half = found.reshape(64, 64)[:32]
    values = half.numpy()
    del found
    gc.collect()
    assert gone() is not None
    assert values[1, 0] == 64
    del half, values
    gc.collect()
    assert gone() is None


def test_a_copy_at_once() -> None:
    given = np.arange(4)
    found = Tensor.from_dlpack(given, copy=True)
    given[:] = 0
    assert found.tolist() == [0, 1, 2, 3]
    assert Tensor.from_dlpack(found, copy=True).tolist() == found.tolist()
    assert Tensor.from_dlpack(found) is found
    assert Tensor.from_dlpack(given, device="CPU:1").device == "CPU:1"


def test_old_and_strange_givers() -> None:
    assert Tensor.from_dlpack(Giver(np.arange(3), is_old=True)).tolist() == [0, 1, 2]
    assert Tensor(Giver(np.arange(3))).tolist() == [0, 1, 2]
    with pytest.raises(DataError, match="a device that the host does not reach"):
        Tensor.from_dlpack(Giver(np.arange(3), device=(2, 0)))
    with pytest.raises(DataError, match="this is no capsule of DLPack"):
        Tensor.from_dlpack(3)
    capsule = np.arange(3).__dlpack__()
    assert Tensor.from_dlpack(capsule).tolist() == [0, 1, 2]
    with pytest.raises(DataError, match="or it was taken already"):
        Tensor.from_dlpack(capsule)
    with pytest.raises(DTypeError, match="no dtype of tensors"):
        Tensor.from_dlpack(np.zeros(3, np.complex64))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("device_type", 2, "DLPack device 2"),
        ("lanes", 4, "4 lanes"),
        ("bits", 128, "128 bits"),
        ("axes", 99, "99 axes"),
        ("axes", -1, "-1 axes"),
    ],
)
def test_a_capsule_that_is_wrong(field: str, value: int, message: str) -> None:
    capsule = Tensor(GRID).realize().__dlpack__()
    managed: Any = dlpack_capsules._Managed.from_address(
        dlpack_capsules._pointer(capsule, b"dltensor")
    )
    setattr(managed.tensor, field, value)
    with pytest.raises((DataError, DTypeError), match=message):
        Tensor.from_dlpack(capsule)
    assert len(dlpack_capsules._given) == 1
    del capsule
    assert not dlpack_capsules._given


def test_a_capsule_of_a_version_to_come() -> None:
    capsule = Tensor(GRID).realize().__dlpack__(max_version=(1, 0))
    managed: Any = dlpack_capsules._Versioned
    managed.from_address(dlpack_capsules._pointer(capsule, b"dltensor_versioned")).major = 2
    with pytest.raises(DataError, match="this version of DLPack is unknown"):
        Tensor.from_dlpack(capsule)


def test_a_capsule_without_strides() -> None:
    capsule = Tensor(GRID).realize().__dlpack__()
    managed: Any = dlpack_capsules._Managed.from_address(
        dlpack_capsules._pointer(capsule, b"dltensor")
    )
    managed.tensor.strides = ctypes.POINTER(ctypes.c_int64)()
    assert Tensor.from_dlpack(capsule).tolist() == GRID.tolist()


# blobs


def test_memory_by_address() -> None:
    given = np.arange(6, dtype=np.int16)
    found = Tensor.from_blob(address(given), (2, 3), dtypes.int16, owner=given)
    gone = weakref.ref(given)
    del given
    gc.collect()
    assert found.tolist() == [[0, 1, 2], [3, 4, 5]]
    del found
    gc.collect()
    assert gone() is None


def test_a_release_at_the_end() -> None:
    calls: list[str] = []
    given = np.arange(4096, dtype=np.float32)
    found = Tensor.from_blob(address(given), 4096, release=lambda: calls.append("done"))
    values = found.numpy()
    del found
    gc.collect()
    assert calls == []
    assert values[5] == 5
    del values
    gc.collect()
    assert calls == ["done"]


def test_memory_of_objects() -> None:
    for source in (GRID.tobytes(), bytearray(GRID.tobytes()), GRID, mmap.mmap(-1, 64)):
        found = Tensor.from_blob(source, (3, 4))
        expected = np.zeros((3, 4)) if isinstance(source, mmap.mmap) else GRID
        assert np.array_equal(found.numpy(), expected)
    assert Tensor.from_blob(b"", (0, 3)).shape == (0, 3)
    odd = memoryview(bytes([0, *GRID.tobytes()]))[1:]
    assert Tensor.from_blob(odd, (3, 4)).tolist() == GRID.tolist()


def test_what_a_blob_refuses() -> None:
    with pytest.raises(ShapeError, match="48 bytes are needed, the buffer has 8"):
        Tensor.from_blob(bytes(8), (3, 4))
    with pytest.raises(DataError, match="not contiguous"):
        Tensor.from_blob(GRID.T, (3, 4))
    with pytest.raises(DataError, match="0 is no address"):
        Tensor.from_blob(0, (3, 4))
    with pytest.raises(DTypeError, match="a str is no memory"):
        Tensor.from_blob("abc", (3, 4))


# arrays, buffers, pictures


def test_arrays_of_their_own_and_not() -> None:
    x = Tensor(GRID).realize()
    copied, looked = np.array(x), np.asarray(x)
    assert copied.flags.writeable
    assert not looked.flags.writeable
    copied[0] = 5
    assert np.array_equal(x.numpy(), GRID)
    assert np.asarray(x, dtype=np.float64).dtype == np.float64
    assert address(np.asarray(x, copy=False)) == address(np.from_dlpack(x))
    with pytest.raises(ValueError, match="float32 cannot become int64 without a copy"):
        np.asarray(x, dtype=np.int64, copy=False)
    with pytest.raises(ValueError, match="NumPy has no bfloat16"):
        np.asarray(x.cast(dtypes.bfloat16), copy=False)
    with pytest.raises(ValueError, match="cannot be looked at without a copy"):
        np.asarray(Tensor(2.0), copy=False)


@pytest.mark.parametrize("dtype", dtypes.all, ids=lambda dtype: dtype.name)
def test_data_of_every_dtype(dtype: Any) -> None:
    x = Tensor([[1, 0, 1], [0, 1, 1]]).cast(dtype)
    view = x.data()
    assert (view.shape, view.itemsize, view.readonly) == ((2, 3), dtype.itemsize, True)
    if dtype in NUMPY_KNOWS:
        assert np.asarray(view).view(dtype.name).tolist() == x.tolist()


def test_a_tensor_is_no_buffer_in_any_version_of_python() -> None:
    """NumPy would take a buffer that is a copy for the memory itself."""
    with pytest.raises(TypeError, match="bytes-like"):
        memoryview(Tensor(GRID))  # type: ignore[arg-type]


def test_buffers_are_taken_as_they_are() -> None:
    assert Tensor(array.array("d", [1, 2])).dtype is dtypes.float64
    assert Tensor(array.array("h", [1, -2])).tolist() == [1, -2]
    found = Tensor(memoryview(GRID.astype(np.int16)))
    assert (found.shape, found.dtype) == ((3, 4), dtypes.int16)
    assert Tensor((ctypes.c_uint32 * 2)(1, 2)).tolist() == [1, 2]
    assert Tensor(Tensor([1.5]).data()).tolist() == [1.5]
    assert Tensor(memoryview(b"\0\1"), dtype="uint16").tolist() == [256]
    assert Tensor(mmap.mmap(-1, 3)).tolist() == [0, 0, 0]
    with pytest.raises(DTypeError, match="no dtype for a buffer of"):
        Tensor(memoryview(np.zeros(2, [("a", "i4")])))


def test_pictures_there_and_back() -> None:
    values = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    found = Tensor(Image.fromarray(values))
    assert (found.shape, found.dtype) == ((5, 7, 3), dtypes.uint8)
    assert np.array_equal(found.numpy(), values)
    back = Image.fromarray(np.asarray(255 - found))
    assert np.array_equal(np.asarray(back), 255 - values)
    assert Tensor(Image.new("L", (4, 2), 7)).tolist() == [[7] * 4] * 2


def test_plots_take_tensors() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots()
    (line,) = axes.plot(Tensor([0.0, 1.0, 4.0]), Tensor([1, 2, 3]))
    picture = axes.imshow(Tensor(GRID))
    assert line.get_xdata().tolist() == [0, 1, 4]
    assert np.array_equal(picture.get_array(), GRID)
    pyplot.close(figure)


@pytest.mark.parametrize("dtype", dtypes.all, ids=lambda dtype: dtype.name)
def test_tensors_are_pickled_with_their_values(dtype: Any) -> None:
    x = Tensor([[1, 0, 1], [0, 1, 1]]).cast(dtype)
    for tensor in (x, x.T, x[:0], x[0, 0]):
        found = pickle.loads(pickle.dumps(tensor))
        assert (found.dtype, found.shape, found.device) == (dtype, tensor.shape, "CPU")
        assert found.tolist() == tensor.tolist()


def test_a_pickled_tensor_is_its_own() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    found, copied = pickle.loads(pickle.dumps(x)), copy.copy(x)
    assert (found.requires_grad, copied.requires_grad) == (True, True)
    (found * 3).sum().backward()
    assert (found.grad.tolist(), x.grad) == ([3, 3], None)
    other = Tensor([1.0, 2.0], device="CPU:1")
    assert pickle.loads(pickle.dumps(other)).device == "CPU:1"
    x.requires_grad = None
    x.assign(x + 1).realize()
    assert (found.tolist(), copied.tolist()) == ([1, 2], [1, 2])


# other libraries


def test_pytorch_takes_and_gives() -> None:
    torch = pytest.importorskip("torch")
    x = Tensor(GRID).realize()
    taken = torch.from_dlpack(x)
    assert taken.data_ptr() == address(np.asarray(x, copy=False))
    x.assign(x + 1).realize()
    assert taken.tolist() == GRID.tolist()
    half = torch.from_dlpack(x.cast(dtypes.bfloat16))
    assert (half.dtype, half[0, 0].item()) == (torch.bfloat16, 1)
    given = torch.arange(24.0).reshape(4, 6)
    for view in (given, given.t(), given[1:3, ::2], given[:1].expand(3, 6), given.bfloat16()):
        assert Tensor.from_dlpack(view).tolist() == view.tolist()
    assert Tensor(torch.ones(2, dtype=torch.bfloat16)).dtype is dtypes.bfloat16


def test_jax_takes_and_gives() -> None:
    jax = pytest.importorskip("jax")
    x = Tensor(GRID).realize()
    assert np.array_equal(jax.dlpack.from_dlpack(x), GRID)
    assert Tensor.from_dlpack(jax.numpy.arange(5)).tolist() == [0, 1, 2, 3, 4]


def test_the_end_of_the_process_is_quiet() -> None:
    script = """
import numpy as np
from tilegrad import Tensor
x = Tensor(np.arange(5000.0)).realize()
a, b, c = np.from_dlpack(x), x.__dlpack__(), Tensor.from_dlpack(np.ones(5000))
d = c.numpy()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

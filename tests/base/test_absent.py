"""A name that is not there: the error says which one is, or what to write."""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import Any

import pytest

import tilegrad
from tilegrad import Tensor, dtypes, nn, torch
from tilegrad.base.absent import nearest
from tilegrad.base.errors import DeviceError, DTypeError


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("Relu", "ReLU"),
        ("relu", "ReLU"),
        ("RELU", "ReLU"),
        ("batch_norm_2d", "BatchNorm2d"),
        ("Conv2D", "Conv2d"),
        ("Linaer", "Linear"),
        ("CrossEntropyLos", "CrossEntropyLoss"),
        ("quantum_entanglement", ""),
    ],
)
def test_the_nearest_name(name: str, meant: str) -> None:
    assert nearest(name, nn.__all__) == meant


@pytest.mark.parametrize(
    ("owner", "name", "meant"),
    [
        ("tilegrad", "jitt", "jit"),
        ("tilegrad.nn", "Relu", "ReLU"),
        ("tilegrad.nn.functional", "ReLU", "relu"),
        ("tilegrad.nn.functional", "cross_entropi", "cross_entropy"),
        ("tilegrad.nn.optim", "adamw", "AdamW"),
        ("tilegrad.nn.schedulers", "StepLr", "StepLR"),
        ("tilegrad.nn.init", "kaiming_uniform", "kaiming_uniform_"),
        ("tilegrad.nn.utils", "clip_grad_norm", "clip_grad_norm_"),
        ("tilegrad.nn.data", "Dataloader", "DataLoader"),
        ("tilegrad.nn.state", "load_statedict", "load_state_dict"),
        ("tilegrad.func", "Vmap", "vmap"),
        ("tilegrad.io", "ggufload", "gguf_load"),
    ],
)
def test_modules_name_what_was_meant(owner: str, name: str, meant: str) -> None:
    module = importlib.import_module(owner)
    with pytest.raises(AttributeError, match=rf"'{name}'; did you mean {meant}\?"):
        getattr(module, name)


MISSPELT = pytest.mark.parametrize(("name", "meant"), [("ReLU", "relu"), ("softmx", "softmax")])


@MISSPELT
def test_the_class_of_tensors_names_what_was_meant(name: str, meant: str) -> None:
    with pytest.raises(AttributeError, match=rf"'{name}'; did you mean {meant}\?"):
        getattr(Tensor, name)
    assert not hasattr(Tensor, name) and getattr(Tensor, name, 3) == 3


@MISSPELT
@pytest.mark.parametrize("made", ["tilegrad.Tensor([1.0])", "torch.ones(1)"])
def test_of_a_tensor_python_itself_names_what_was_meant(made: str, name: str, meant: str) -> None:
    """It looks among what `dir` gives, if that is less than 750 names. A `__getattr__` would make
    each attribute of a tensor slow.
    """
    code = f"import tilegrad, tilegrad.torch as torch\n{made}.{name}()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert f"has no attribute '{name}'. Did you mean: '{meant}'?" in done.stderr
    assert len(dir(Tensor([1.0]))) < 750 > len(dir(torch.ones(1)))


def test_no_attribute_of_a_tensor_goes_through_a_function() -> None:
    for kind in (Tensor, torch.Tensor, torch.nn.Parameter):
        found = {name for each in kind.__mro__[:-1] for name in vars(each)}
        assert found.isdisjoint({"__getattr__", "__getattribute__"})


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("zeros", "Tensor.zeros"),
        ("ones", "Tensor.ones"),
        ("full", "Tensor.full"),
        ("arange", "Tensor.arange"),
        ("cat", "Tensor.cat"),
        ("stack", "Tensor.stack"),
        ("manual_seed", "Tensor.manual_seed"),
        ("randn", "Tensor.randn"),
        ("float32", "dtypes.float32"),
        ("bfloat16", "dtypes.bfloat16"),
        ("Linear", "nn.Linear"),
        ("save", "nn.state.safe_save(tensors, path)"),
        ("load", "nn.state.torch_load(path), or nn.state.safe_load(path)"),
        ("from_numpy", "Tensor(array), or Tensor.from_dlpack(array) to share memory"),
    ],
)
def test_names_of_pytorch_say_what_to_write(name: str, instead: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(tilegrad, name)
    assert str(caught.value).endswith(f"; write {instead}")
    # What is written there is there.
    found: Any = tilegrad
    for part in instead.partition("(")[0].split("."):
        found = getattr(found, part)


def test_packages_with_the_name_of_a_function_say_what_to_call() -> None:
    # Imported here by other tests or not.
    for name, instead in (
        ("tensor", r"Tensor\("),
        ("compile", r"tilegrad.jit\("),
        ("device", r"the device as a text, as in Tensor\(x, device=\"CPU\"\)"),
    ):
        package = importlib.import_module(f"tilegrad.{name}")
        with pytest.raises(TypeError, match=f"is a package; write {instead}"):
            package("cpu")  # type: ignore[operator]


def test_a_misspelt_dtype_or_device_says_which_was_meant() -> None:
    with pytest.raises(AttributeError, match=r"has no attribute 'flaot32'; did you mean float32\?"):
        dtypes.flaot32  # type: ignore[attr-defined]  # noqa: B018
    assert not hasattr(dtypes, "flaot32")
    for wrong in (lambda: Tensor([1.0], dtype="flaot32"), lambda: Tensor([1.0]).cast("flaot32")):
        with pytest.raises(DTypeError, match=r"'flaot32'; did you mean 'float32'\?"):
            wrong()
    with pytest.raises(DeviceError, match="float32 is a dtype"):
        Tensor([1.0]).to("float32")
    with pytest.raises(DeviceError, match=r"did you mean 'CPU'\?"):
        Tensor([1.0], device="CPUX")


def test_python_adds_no_suggestion_of_its_own() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from tilegrad import nn\nnn.Relu"],
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stderr.splitlines()[-1]
    assert last.endswith("has no attribute 'Relu'; did you mean ReLU?")

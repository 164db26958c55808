"""Digests, against hashlib."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from tilegrad import Tensor, dtypes
from tilegrad.base.errors import DTypeError, ShapeError


def bytes_of(x: Tensor) -> bytes:
    return x.data().tobytes()


def reference(kind: str, message: bytes) -> bytes:
    digest = hashlib.new(kind, message)
    if kind.startswith("shake"):
        return digest.digest(16 if kind == "shake_128" else 32)  # type: ignore[call-arg]
    return digest.digest()


KINDS = ["sha3_224", "sha3_256", "sha3_384", "sha3_512", "shake_128", "shake_256"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_message(kind: str) -> None:
    message = bytes(at * 7 % 251 for at in range(200))
    assert bytes_of(Tensor(message).keccak(kind)) == reference(kind, message)


@pytest.mark.parametrize("size", [0, 1, 135, 136, 137])
def test_around_the_length_of_a_block(size: int) -> None:
    message = np.arange(size, dtype=np.uint8)
    assert bytes_of(Tensor(message).keccak()) == reference("sha3_256", message.tobytes())


def test_rows_are_messages() -> None:
    rows = np.random.default_rng(0).integers(0, 256, (2, 3, 50)).astype(np.uint8)
    found = Tensor(rows).keccak("sha3_224")
    assert found.shape == (2, 3, 28)
    for at in np.ndindex(2, 3):
        assert found.numpy()[at].tobytes() == reference("sha3_224", rows[at].tobytes())
    assert Tensor.zeros(0, 5, dtype=dtypes.uint8).keccak().shape == (0, 32)


def test_hash_is_a_tree_of_digests() -> None:
    array = np.arange(10, dtype=np.float32)
    assert bytes_of(Tensor(array).hash()) == reference("shake_128", array.tobytes())
    assert bytes_of(Tensor([]).hash()) == reference("shake_128", b"")
    assert bytes_of(Tensor([True, False]).hash()) == reference("shake_128", b"\1\0")


@pytest.mark.nightly
def test_hash_of_much() -> None:
    large = np.random.default_rng(1).integers(0, 256, (1 << 20) * 2 + 5).astype(np.uint8)
    leaves = [large[at : at + (1 << 20)].tobytes() for at in range(0, large.size, 1 << 20)]
    tree = b"".join(reference("shake_128", leaf) for leaf in leaves)
    assert bytes_of(Tensor(large).hash()) == reference("shake_128", tree)


def test_what_is_no_message_raises() -> None:
    with pytest.raises(DTypeError, match="keccak: unknown kind 'md5'"):
        Tensor(b"a").keccak("md5")
    with pytest.raises(DTypeError, match="keccak: bytes are uint8, not float32"):
        Tensor([1.0]).keccak()
    with pytest.raises(ShapeError, match=r"keccak: no row of bytes in \(\)"):
        Tensor(3, dtype=dtypes.uint8).keccak()

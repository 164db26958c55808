"""Generators: of random numbers, of counts, of a program."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np

from tests.capture.stale.registry import case, nothing
from tilegrad import Tensor


@case
def default_rng() -> Any:
    rng = np.random.default_rng(3)
    return lambda x: x * float(rng.random()), nothing


@case
def numpy_random_state() -> Any:
    rng = np.random.RandomState(3)
    return lambda x: x * float(rng.rand()), nothing


@case
def numpy_bit_generator() -> Any:
    rng = np.random.PCG64(5)
    return lambda x: x * float(rng.random_raw() % 1000), nothing


@case
def python_random() -> Any:
    rng = random.Random(3)
    return lambda x: x * rng.random(), nothing


@case
def python_random_choice() -> Any:
    rng, values = random.Random(3), [1.0, 2.0, 3.0, 4.0, 5.0]
    return lambda x: x * rng.choice(values), nothing


@case
def python_shuffle() -> Any:
    rng, values = random.Random(1), [1.0, 2.0, 3.0, 4.0]

    def function(x: Tensor) -> Tensor:
        own = list(values)
        rng.shuffle(own)
        return x * own[0] + own[1]

    return function, nothing


@case
def itertools_count() -> Any:
    numbers = itertools.count(1)
    return lambda x: x * next(numbers), nothing


@case
def a_generator_function() -> Any:
    def numbers() -> Any:
        n = 0
        while True:
            n += 1
            yield n

    source = numbers()
    return lambda x: x * source.send(None), nothing


@case
def a_method_of_an_iterator() -> Any:
    advance = iter(range(1, 100)).__next__
    return lambda x: x * advance(), nothing


@case
def an_iterator_in_a_class() -> Any:
    class Source:
        numbers = itertools.cycle([1.0, 2.0, 3.0])

    return lambda x: x * next(Source.numbers), nothing

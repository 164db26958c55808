"""Train a convolutional network on handwritten digits and show what it learned.

    python examples/demo.py                    the best data set that is there, a few hundred steps
    python examples/demo.py --data digits --steps 50 --resume

Ctrl-C ends the training between two steps; picture, weights and table come all the same.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from training import Training

from tilegrad import Tensor
from tilegrad.base.errors import DataError
from tilegrad.nn import datasets
from tilegrad.nn.datasets import Dataset


def best_data() -> Dataset:
    """MNIST or Fashion-MNIST if they are on this machine, else the digits of scikit-learn."""
    for load in (datasets.mnist, datasets.fashion_mnist):
        try:
            return load(download=False)
        except DataError:
            continue
    return datasets.digits()


def load_data(name: str) -> Dataset:
    return best_data() if name == "best" else getattr(datasets, name)()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", default="best", choices=["best", "digits", "mnist", "fashion_mnist"]
    )
    parser.add_argument("--steps", type=int, default=0, help="0: 300 on digits, 400 on larger sets")
    parser.add_argument("--batch", type=int, default=0, help="0: 128 on digits, 256 on larger sets")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--resume", action="store_true", help="start from the weights in --out")
    options = parser.parse_args()

    start = time.perf_counter()
    Tensor.manual_seed(options.seed)
    data = load_data(options.data)
    small = len(data.x_train) < 10_000
    print(f"data: {data.name}, {len(data.x_train)} images to learn, {len(data.x_test)} to test")
    print(f"      from {data.source}")
    training = Training(data, options.batch or (128 if small else 256))
    weights = options.out / f"{data.name.lower().replace(' ', '-')}.safetensors"
    if options.resume:
        training.resume(weights)
        print(f"resumed from {weights}: {training.accuracy():.2%} of the test images")
    try:
        training.run(options.steps or (300 if small else 400))
    except KeyboardInterrupt:
        print("\ninterrupted")
    accuracy = training.accuracy()
    training.history.tests.append((len(training.history.losses), accuracy))
    print(f"\ntest accuracy {accuracy:.2%} after {len(training.history.losses)} steps")
    training.save(weights)
    training.picture(options.out / "demo.png")
    print(training.kernels())
    print(f"weights in {weights}, picture in {options.out / 'demo.png'}")
    print(f"{time.perf_counter() - start:.1f} s in all")


if __name__ == "__main__":
    main()

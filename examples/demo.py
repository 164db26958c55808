"""Train a convolutional network on real images and show what it learned.

    python examples/demo.py                    the best data set that is there, a few hundred steps
    python examples/demo.py --data digits --steps 50 --resume

Ctrl-C ends the training between two steps; weights, picture and table come all the same.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from training import Training

from tilegrad import Tensor
from tilegrad.base.errors import DataError, TilegradError
from tilegrad.nn import datasets
from tilegrad.nn.datasets import Dataset

DATA = ("best", "mnist", "fashion_mnist", "digits")


def load_data(name: str) -> Dataset:
    """The data set `name`; the best is the first of 28x28 pixels that is on this machine, or else
    the small digits that come with scikit-learn.
    """
    if name == "digits":
        return datasets.digits()
    if name != "best":
        return getattr(datasets, name)()
    for load in (datasets.mnist, datasets.fashion_mnist):
        try:
            return load(download=False)
        except DataError:
            continue
    return datasets.digits()


def at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", default="best", choices=DATA)
    parser.add_argument("--steps", type=at_least_one, help="by default 300 on digits, else 400")
    parser.add_argument("--batch", type=at_least_one, help="by default 128 on digits, else 256")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--out", type=Path, default=Path("out"), help="a folder for what is written"
    )
    parser.add_argument("--resume", action="store_true", help="start from the weights in --out")
    return parser.parse_args()


def main() -> None:
    start = time.perf_counter()
    chosen = options()
    Tensor.manual_seed(chosen.seed)
    data = load_data(chosen.data)
    is_small = len(data.x_train) < 10_000
    print(
        f"data: {data.name}, {len(data.x_train)} images to learn from, {len(data.x_test)} to test"
    )
    print(f"      in {data.source}")
    training = Training(data, chosen.batch or (128 if is_small else 256))
    weights, picture = chosen.out / f"{data.name}.safetensors", chosen.out / "demo.png"
    if chosen.resume:
        training.resume(weights)
        print(f"resumed from {weights}: {training.test():.2%} of the test images right")
    if not training.run(chosen.steps or (300 if is_small else 400)):
        print("interrupted")
    print(
        f"test accuracy {training.test():.2%} after {len(training.history.losses)} steps, "
        f"{training.images_per_second():.0f} images/s"
    )
    training.save(weights)
    training.picture(picture)
    print(f"weights in {weights}, picture in {picture}\n")
    print(training.kernels())
    print(f"\n{time.perf_counter() - start:.1f} s in all")


if __name__ == "__main__":
    try:
        main()
    except TilegradError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)

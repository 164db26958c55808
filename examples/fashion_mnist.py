"""Train a conv-batchnorm-pool network on the 60,000 images of Fashion-MNIST.

python examples/fashion_mnist.py --steps 236          two epochs in batches of 512
"""

from __future__ import annotations

import argparse
import sys
import time

from training import Training

from tilegrad import Tensor
from tilegrad.base.errors import DataError
from tilegrad.nn import datasets


def main() -> str | None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=236)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at-least", type=float, default=0.0, help="fail below this accuracy")
    options = parser.parse_args()
    start = time.perf_counter()
    Tensor.manual_seed(options.seed)
    data = datasets.fashion_mnist()
    print(f"data: {data.name} in {data.source}")
    training = Training(data, options.batch)
    training.run(options.steps)
    accuracy = training.test()
    print(
        f"test accuracy {accuracy:.2%} after {len(training.history.losses)} steps of "
        f"{options.batch} images, {training.images_per_second():.0f} images/s, "
        f"{time.perf_counter() - start:.1f} s in all"
    )
    return f"below {options.at_least:.2%}" if accuracy < options.at_least else None


if __name__ == "__main__":
    try:
        sys.exit(main())
    except DataError as error:
        sys.exit(str(error))

"""Train a conv-batchnorm-pool network on the 60,000 images of Fashion-MNIST.

python examples/fashion_mnist.py --steps 236          two epochs of 118 batches of 512
"""

from __future__ import annotations

import argparse
import sys
import time

from training import Training

from tilegrad import Tensor
from tilegrad.nn import datasets


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=236)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at-least", type=float, default=0.0, help="fail below this accuracy")
    options = parser.parse_args()
    Tensor.manual_seed(options.seed)
    data = datasets.fashion_mnist()
    print(f"data: {data.name} from {data.source}")
    training = Training(data, options.batch, lr=3e-3)
    start = time.perf_counter()
    training.run(options.steps)
    seconds = time.perf_counter() - start
    accuracy = training.accuracy()
    rate = options.steps * options.batch / seconds
    print(f"\ntest accuracy {accuracy:.2%} after {options.steps} steps, {rate:.0f} images/s")
    return 0 if accuracy >= options.at_least else 1


if __name__ == "__main__":
    sys.exit(main())

# Two networks against each other, each with its optimizer: what one step computes must not reach
# the other's parameters.

import numpy as np
from tinygrad import Tensor
from tinygrad.helpers import getenv, tqdm
from tinygrad.nn import optim
from tinygrad.nn.state import get_parameters


class LinearGen:
    def __init__(self):
        self.l1 = Tensor.scaled_uniform(8, 32)
        self.l2 = Tensor.scaled_uniform(32, 32)
        self.l3 = Tensor.scaled_uniform(32, 2)

    def forward(self, x):
        x = x.dot(self.l1).leaky_relu(0.2)
        x = x.dot(self.l2).leaky_relu(0.2)
        return x.dot(self.l3)


class LinearDisc:
    def __init__(self):
        self.l1 = Tensor.scaled_uniform(2, 32)
        self.l2 = Tensor.scaled_uniform(32, 32)
        self.l3 = Tensor.scaled_uniform(32, 2)

    def forward(self, x):
        x = x.dot(self.l1).add(1).leaky_relu(0.2).dropout(0.1)
        x = x.dot(self.l2).leaky_relu(0.2)
        return x.dot(self.l3).log_softmax()


def make_batch(images):
    sample = np.random.randint(0, len(images), size=batch_size)
    return Tensor(images[sample])


def make_labels(bs, col, val=-2.0):
    y = np.zeros((bs, 2), np.float32)
    y[range(bs), [col] * bs] = val
    return Tensor(y)


def train_discriminator(optimizer, data_real, data_fake):
    real_labels = make_labels(batch_size, 1)
    fake_labels = make_labels(batch_size, 0)
    optimizer.zero_grad()
    output_real = discriminator.forward(data_real)
    output_fake = discriminator.forward(data_fake)
    loss_real = (output_real * real_labels).mean()
    loss_fake = (output_fake * fake_labels).mean()
    loss_real.backward()
    loss_fake.backward()
    optimizer.step()
    return (loss_real + loss_fake).numpy()


def train_generator(optimizer, data_fake):
    real_labels = make_labels(batch_size, 1)
    optimizer.zero_grad()
    output = discriminator.forward(data_fake)
    loss = (output * real_labels).mean()
    loss.backward()
    optimizer.step()
    return loss.numpy()


if __name__ == "__main__":
    np.random.seed(0)
    Tensor.manual_seed(0)
    angle = np.random.uniform(0, 2 * np.pi, 1000)
    images_real = np.stack([np.cos(angle), np.sin(angle)], 1).astype(np.float32)
    batch_size, k, epochs = 64, 1, getenv("EPOCHS", 30)
    generator, discriminator = LinearGen(), LinearDisc()
    optim_g = optim.Adam(get_parameters(generator), lr=0.002, b1=0.5)
    optim_d = optim.Adam(get_parameters(discriminator), lr=0.002, b1=0.5)
    loss_g = loss_d = 0.0
    with Tensor.train():
        before = [p.numpy().copy() for p in get_parameters(generator)]
        for epoch in (t := tqdm(range(epochs))):
            for _ in range(k):
                data_real = make_batch(images_real)
                noise = Tensor.randn(batch_size, 8)
                data_fake = generator.forward(noise).detach()
                loss_d += train_discriminator(optim_d, data_real, data_fake)
            if epoch == 0:
                for p, old in zip(get_parameters(generator), before):
                    np.testing.assert_array_equal(p.numpy(), old)
            disc = [p.numpy().copy() for p in get_parameters(discriminator)]
            noise = Tensor.randn(batch_size, 8)
            data_fake = generator.forward(noise)
            loss_g += train_generator(optim_g, data_fake)
            for p, old in zip(get_parameters(discriminator), disc):
                np.testing.assert_array_equal(p.numpy(), old)
            t.set_description(f"epoch {epoch} g {float(loss_g) / (epoch + 1):.3f}")
    assert np.isfinite(loss_g) and np.isfinite(loss_d)
    assert any((p.numpy() != old).any() for p, old in zip(get_parameters(generator), before))
    fake = generator.forward(Tensor.randn(256, 8)).numpy()
    assert fake.shape == (256, 2) and np.isfinite(fake).all()
    print("trained", fake.shape)
    checked = 1

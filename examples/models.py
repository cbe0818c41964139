"""The five networks of the AutoTVM paper's evaluation, and an encoder layer of BERT-base: in
torch, with seeded random weights, batch 1, float32.

    python examples/models.py resnet18 --minutes 30

tunes one of them and compares it with torch. `models()` gives all, each with example inputs.
"""

import argparse
import time

import torch
from torch import nn


class Residual(nn.Module):
    """Two 3×3 convolutions with a way around them (He et al. 2016)."""

    def __init__(self, channels, out, stride):
        super().__init__()
        self.a = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.b = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norm_a, self.norm_b = nn.BatchNorm2d(out), nn.BatchNorm2d(out)
        self.around = nn.Identity()
        if stride != 1 or channels != out:
            shortcut = nn.Conv2d(channels, out, 1, stride, bias=False)
            self.around = nn.Sequential(shortcut, nn.BatchNorm2d(out))

    def forward(self, x):
        y = torch.relu(self.norm_a(self.a(x)))
        return torch.relu(self.norm_b(self.b(y)) + self.around(x))


def resnet18():
    stages, channels = [], 64
    for out, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        stages += [Residual(channels, out, stride), Residual(out, out, 1)]
        channels = out
    stem = (nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU())
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))
    return nn.Sequential(*stem, nn.MaxPool2d(3, 2, 1), *stages, *head), (1, 3, 224, 224)


def mobilenet():
    """MobileNet 1.0 (Howard et al. 2017): depthwise and pointwise convolutions in turns."""

    def block(channels, out, stride):
        return (
            nn.Conv2d(channels, channels, 3, stride, 1, groups=channels, bias=False),
            nn.BatchNorm2d(channels), nn.ReLU6(),
            nn.Conv2d(channels, out, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU6(),
        )  # fmt: skip

    layers = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU6()]
    plan = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)]
    channels = 32
    for out, stride in (*plan, *[(512, 1)] * 5, (1024, 2), (1024, 1)):
        layers += block(channels, out, stride)
        channels = out
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, 1000))
    return nn.Sequential(*layers, *head), (1, 3, 224, 224)


def dqn():
    """The deep Q network of Nature (Mnih et al. 2015), for 18 actions."""
    return nn.Sequential(
        nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(),
        nn.Conv2d(64, 64, 3, 1), nn.ReLU(), nn.Flatten(),
        nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 18),
    ), (1, 4, 84, 84)  # fmt: skip


def dcgan():
    """DCGAN's generator (Radford et al. 2015): 64×64 pictures of 100 numbers."""
    layers, channels = [], 100
    for number, out in enumerate((512, 256, 128, 64)):
        stride, padding = (2, 1) if number else (1, 0)
        layers += [nn.ConvTranspose2d(channels, out, 4, stride, padding, bias=False)]
        layers += [nn.BatchNorm2d(out), nn.ReLU()]
        channels = out
    last = nn.ConvTranspose2d(channels, 3, 4, 2, 1, bias=False)
    return nn.Sequential(*layers, last, nn.Tanh()), (1, 100, 1, 1)


class LanguageModel(nn.Module):
    """One step of a two-layer LSTM of 650 units over 10000 words (Zaremba et al. 2014); the word's
    embedding comes in."""

    def __init__(self, units=650, words=10000):
        super().__init__()
        self.first, self.second = nn.LSTMCell(units, units), nn.LSTMCell(units, units)
        self.out = nn.Linear(units, words)

    def forward(self, x, h1, c1, h2, c2):
        h1, c1 = self.first(x, (h1, c1))
        h2, c2 = self.second(h1, (h2, c2))
        return self.out(h2), h1, c1, h2, c2


def lstm():
    return LanguageModel(), *[(1, 650)] * 5


class Encoder(nn.Module):
    """One layer of BERT-base (Devlin et al. 2019): 12 heads of 64, for 128 tokens."""

    def __init__(self, width=768, heads=12):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm_a, self.norm_b = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x):
        n, length, width = x.shape

        def split(y):
            return y.reshape(n, length, self.heads, width // self.heads).transpose(1, 2)

        scores = split(self.q(x)) @ split(self.k(x)).transpose(2, 3)
        weights = torch.softmax(scores * (width // self.heads) ** -0.5, -1)
        mixed = (weights @ split(self.v(x))).transpose(1, 2).reshape(n, length, width)
        x = self.norm_a(x + self.out(mixed))
        return self.norm_b(x + self.down(nn.functional.gelu(self.up(x))))


def bert():
    return Encoder(), (1, 128, 768)


NAMES = ("resnet18", "mobilenet", "dqn", "dcgan", "lstm", "bert")


def model(name, seed=0, zeros=0.5):
    """A network by name, in inference mode, and example inputs.

    Batch norms know the means and variances of what comes through, as after training: without,
    whole channels of deep layers would be 0 and others never. ReLUs behind them make so many
    `zeros`.
    """
    torch.manual_seed(seed)
    made, *shapes = globals()[name]()

    def shift(norm, _, y):
        norm.bias.copy_(-y.quantile(zeros).expand_as(norm.bias))
        return y + norm.bias[0]

    norms = [part for part in made.modules() if isinstance(part, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = None  # an average over all that comes
    hooks = [norm.register_forward_hook(shift) for norm in norms]
    if norms:
        with torch.no_grad():
            made.train()(*(torch.randn(8, *shape[1:]) for shape in shapes))
    for hook in hooks:
        hook.remove()
    return made.eval(), tuple(torch.randn(shape) for shape in shapes)


def models():
    """All of them: name, network, inputs."""
    return [(name, *model(name)) for name in NAMES]


def main():
    import loopwright as lw

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--records", default="tuning.db")
    options = parser.parse_args()
    network, inputs = model(options.name)
    tuned = lw.tune_model(
        network, inputs, minutes=options.minutes, records=options.records, tell=print
    )
    with torch.inference_mode():
        wanted = network(*inputs)
        got = tuned(*inputs)
        torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-4)
        for name, call in (("torch", network), ("loopwright", tuned)):
            times = []
            for _ in range(30):
                start = time.perf_counter()
                call(*inputs)
                times.append(time.perf_counter() - start)
            print(f"{name:<10} {sorted(times)[15] * 1e3:.3f} ms")


if __name__ == "__main__":
    main()

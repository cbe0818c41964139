"""Recurrences of torch whose length, and whose batch, is known only at the call."""

import pytest

import loopwright as lw
from loopwright.graph.errors import ModelError
from tests.graph.modules import drawn_again

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")
nn = torch.nn
pytestmark = [pytest.mark.torch, pytest.mark.onnx]

b, n = lw.dim("b", 2, 3), lw.dim("n", 1, 7)


class Scores(nn.Module):
    """A recurrence, its weights large enough that a gate in a wrong place is seen."""

    def __init__(self, layer, call=None):
        super().__init__()
        self.layer, self.call = drawn_again(layer), call
        for w in self.layer.parameters():
            nn.init.uniform_(w, -1, 1)

    def forward(self, x, *states):
        if self.call is not None:
            return self.call(self.layer, x)
        y, last = self.layer(x, *states)
        return y * 2, last


CASES = {
    "an LSTM in both directions": (
        nn.LSTM(3, 5, 2, batch_first=True, bidirectional=True, dropout=0.5),
        [(2, n, 3)],
    ),
    "a GRU from a state": (nn.GRU(3, 5, 2), [(n, b, 3), (2, b, 5)]),
    "an RNN without batch and bias": (
        nn.RNN(3, 5, 2, nonlinearity="relu", bias=False, bidirectional=True),
        [(n, 3)],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_recurrence_of_torch_has_any_length(case):
    layer, shapes = CASES[case]
    net = Scores(layer).eval()
    given = tuple(lw.tensor(name, shape) for name, shape in zip("xh", shapes))
    built = lw.build_model(net, given, threads=1)
    for sizes in ({n: 1, b: 3}, {n: 2, b: 2}, {n: 5, b: 3}, {n: 7, b: 2}):
        inputs = [torch.randn([sizes.get(e, e) for e in shape]) for shape in shapes]
        with torch.no_grad():
            torch.testing.assert_close(built(*inputs), net(*inputs), rtol=1e-4, atol=1e-5)
    assert len(built.frames) <= 2  # one step, and more
    assert torch.overrides._get_current_function_mode() is None


class Recognizer(nn.Module):
    """Strided frames, their recurrence, scores by a view of what torch transposes, and the state
    at the end of each sequence."""

    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv1d(2, 3, 3, 2, 1)
        self.layer = nn.LSTM(3, 5, batch_first=True)
        self.scores = nn.Linear(5, 4)

    def forward(self, x, lengths):
        y, _ = self.layer(self.convolution(x).relu().transpose(1, 2))
        steps = y.transpose(0, 1)
        scores = self.scores(steps.view(steps.size(0) * steps.size(1), 5))
        inside = torch.arange(y.size(1)) < lengths[:, None]
        mean = (y * inside[..., None]).sum(1) / lengths[:, None]
        last = y.gather(1, (lengths - 1)[:, None, None].expand(-1, 1, 5)).select(1, 0)
        return scores.view(steps.size(0), steps.size(1), 4), mean, last


def test_a_recognizer_of_open_batch_and_length_is_built_without_a_warning(recwarn):
    net, m = Recognizer().eval(), lw.dim("m", 4, 9)
    given = lw.tensor("x", (b, 2, m)), lw.tensor("lengths", (b,), "int64")
    built = lw.build_model(net, given, threads=1)
    assert [str(w.message) for w in recwarn if w.category is UserWarning] == []
    assert len(built.frames) == 1
    assert built.notes == ()
    for batch, size in ((2, 4), (3, 5), (3, 8), (2, 9)):
        inputs = torch.randn(batch, 2, size), torch.randint(1, size // 2 + 1, (batch,))
        with torch.no_grad():
            torch.testing.assert_close(built(*inputs), net(*inputs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("is_open", [True, False])
def test_states_may_be_given_as_torch_takes_them(is_open):
    net, length = nn.LSTM(3, 5), n if is_open else 7
    states = lw.tensor("h", (1, 2, 5)), lw.tensor("c", (1, 2, 5))
    built = lw.build_model(net, (lw.tensor("x", (length, 2, 3)), states), threads=1)
    x, h, c = torch.randn(7, 2, 3), torch.randn(1, 2, 5), torch.randn(1, 2, 5)
    with torch.no_grad():
        wanted = net(x, (h, c))
    torch.testing.assert_close(built(x, (h, c)), wanted, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(built(x, h, c), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("words", [{}, {"bidirectional": True, "num_layers": 2, "bias": False}])
def test_an_lstm_of_fixed_length_may_project_its_states(words):
    net, x = nn.LSTM(3, 5, proj_size=2, **words), torch.randn(4, 2, 3)
    with torch.no_grad():
        wanted = net(x)
    torch.testing.assert_close(lw.build_model(net, (x,), threads=1)(x), wanted)


def packed(layer, x):
    return layer(nn.utils.rnn.pack_padded_sequence(x, [2, 1], enforce_sorted=False))[1]


def trained(layer, x):
    return layer.train()(x)[0]


@pytest.mark.parametrize(
    ("layer", "call", "words"),
    [
        (nn.LSTM(3, 5, proj_size=2), None, "proj_size of 2.*without it"),
        (nn.GRU(3, 5), packed, r"packs sequences.*without pack_padded_sequence"),
        (nn.RNN(3, 5, 2, dropout=0.5), trained, r"as in training.*\.eval\(\)"),
    ],
)
def test_a_recurrence_that_cannot_be_of_open_length_is_refused(layer, call, words):
    with pytest.raises(ModelError, match=words):
        lw.build_model(Scores(layer, call), (lw.tensor("x", (n, 2, 3)),), threads=1)
    assert torch.overrides._get_current_function_mode() is None

"""torch.compile with us as the backend."""

import gc
import weakref

import pytest

from loopwright.codegen.target import resolve
from loopwright.graph.build import build_model
from loopwright.graph.compile.build import import_model
from loopwright.graph.torch_compile import backend
from loopwright.schedule.space import space
from tests.graph.test_tune import stored

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def _alone(tmp_path, monkeypatch):
    monkeypatch.setenv("LOOPWRIGHT_RECORDS", str(tmp_path / "none.db"))
    torch._dynamo.reset()


@pytest.fixture
def small(monkeypatch):
    """Models of open sizes are for sizes to 12 at first, which takes fewer programs."""
    monkeypatch.setattr("loopwright.graph.torch_open._HIGH", 12)


def _net():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 5, 3), torch.nn.BatchNorm2d(5), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(5 * 5 * 4, 7),
    ).eval()  # fmt: skip


def test_a_compiled_model_computes_what_torch_does_and_notices_new_weights():
    net, x = _net(), torch.randn(1, 3, 7, 6)
    built = []

    def counting(graph, examples):
        built.append(backend(graph, examples))
        return built[-1]

    with torch.no_grad():
        compiled = torch.compile(net, backend=counting)
        torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-5)
        assert len(built) == 1
        assert built[0].__name__ == "call"
        net[4].weight.mul_(2)
        with pytest.warns(UserWarning, match="weights have changed"):
            torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-5)


class _Layer(torch.nn.Module):
    def __init__(self, scale=None):
        super().__init__()
        self.layer = torch.nn.Linear(24, 16)
        self.scale = torch.randn(16) if scale is None else scale  # neither parameter nor buffer

    def forward(self, x):
        return torch.relu(self.layer(x)) * self.scale


@pytest.fixture
def built(monkeypatch):
    """The models of ours that were built."""
    models = []

    def keeping(*args, **options):
        models.append(build_model(*args, **options))
        return models[-1]

    monkeypatch.setattr("loopwright.graph.build.build_model", keeping)
    return models


def test_each_model_of_a_class_is_built_and_none_is_kept(built):
    shared, x = torch.randn(16), torch.randn(5, 24)
    nets = [_Layer().eval(), _Layer(shared).eval(), _Layer(shared).eval()]
    with torch.no_grad():
        for net in (*nets, *nets):
            compiled = torch.compile(net, backend=backend)
            torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-5)
    assert len(built) == len(nets)
    gone = [weakref.ref(net.layer.weight) for net in nets]
    kept = [weakref.ref(model) for model in built]
    built.clear()
    del nets, net, compiled, shared
    gc.collect()
    assert not any(ref() for ref in (*gone, *kept))


class _Head(torch.nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body, self.head = body, torch.nn.Linear(16, 8)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


def test_models_of_a_class_that_share_half_of_their_weights_are_built_each(built):
    body, x = torch.nn.Linear(24, 16), torch.randn(5, 24)
    nets = [_Head(body).eval(), _Head(body).eval()]
    with torch.no_grad():
        for net in (*nets, *nets):
            compiled = torch.compile(net, backend=backend)
            torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-5)
        assert len(built) == len(nets)
        body.weight.mul_(2)
        with pytest.warns(UserWarning, match="weights have changed"):
            torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-5)


def test_tensors_that_are_no_parameters_are_noticed_where_they_are_replaced(built):
    net, x = _Layer().eval(), torch.randn(5, 24)
    compiled = torch.compile(net, backend=backend)
    with torch.no_grad():
        compiled(x)
        net.scale = torch.randn(16)
        with pytest.warns(UserWarning, match="weights have changed"):
            torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-5)
        compiled(x)  # it is said once
    assert len(built) == 1


def test_models_of_a_class_beyond_a_bound_are_left_to_torch_with_a_warning(built, monkeypatch):
    monkeypatch.setattr("loopwright.graph.torch_compile._MOST", 1)
    first, second, x = _Layer().eval(), _Layer().eval(), torch.randn(5, 24)
    with torch.no_grad():
        torch.compile(first, backend=backend)(x)
        compiled = torch.compile(second, backend=backend)
        with pytest.warns(UserWarning, match="more than 1 models of one class"):
            torch.testing.assert_close(compiled(x), second(x), rtol=1e-4, atol=1e-5)
    assert len(built) == 1


def test_records_are_used_from_the_options_or_the_environment(tmp_path, monkeypatch, built):
    net, x, path = _Layer().eval(), torch.randn(5, 24), str(tmp_path / "r.db")
    target = resolve("cpu", 1)
    task = import_model(net, (x,), target).tasks[0]
    stored(path, task, target, (space(task.workload, target).default, 1e-6))
    with torch.no_grad():
        for options in ({"records": path, "threads": 1}, {"threads": 1}, {"threads": 2}):
            torch._dynamo.reset()
            compiled = torch.compile(net, backend="loopwright", options=options)
            torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-5)
            monkeypatch.setenv("LOOPWRIGHT_RECORDS", path)
    assert [len(model.records) for model in built] == [1, 1, 0]


def test_options_and_modes_of_other_backends_are_refused_with_what_there_is():
    net, x = _Layer().eval(), torch.randn(5, 24)
    for given, said in (
        ({"options": {"max_autotune": True}}, "records, threads, policy"),
        ({"mode": "max-autotune"}, "records, threads, policy"),
        ({"options": {"records": "typo.db"}}, "record store typo.db: there is no such file"),
        ({"options": {"policy": "exat"}}, "one of exact, family, any"),
        ({"options": {"threads": 0}}, "threads"),
    ):
        torch._dynamo.reset()
        with torch.no_grad(), pytest.raises(Exception, match=said):
            torch.compile(net, backend="loopwright", **given)(x)


def test_a_graph_without_inputs_gives_tensors():
    weight = torch.nn.Parameter(torch.randn(3, 4))
    with torch.no_grad():
        compiled = torch.compile(lambda: weight * 2, backend=backend)
        torch.testing.assert_close(compiled(), weight * 2)


def test_gradients_come_from_torch_which_is_said():
    net, x = _net(), torch.randn(1, 3, 7, 6)
    with pytest.warns(UserWarning, match="no_grad"):
        torch.compile(net, backend=backend)(x).sum().backward()
    assert net[4].weight.grad is not None


def test_what_cannot_be_built_is_left_to_torch_with_a_warning():
    def roll(x):
        return torch.special.bessel_j0(x)

    x = torch.randn(3, 5)
    with pytest.warns(UserWarning, match="leaves a graph to torch"):
        got = torch.compile(roll, backend=backend)(x)
    torch.testing.assert_close(got, roll(x))


def test_autocast_is_told_where_it_is_to_stand():
    def product(x):
        with torch.autocast("cpu", torch.bfloat16):
            return x @ x

    x = torch.randn(5, 5)
    with pytest.warns(UserWarning, match="enters torch.autocast: enter that around"):
        got = torch.compile(product, backend=backend)(x)
    assert got.dtype == torch.bfloat16


def test_torch_knows_the_backend_by_name():
    assert "loopwright" in torch._dynamo.list_backends(None)


def _left_to_torch(model):
    """Compiled by us, which must refuse when it is called first."""
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=backend)

    def first(*inputs):
        with pytest.warns(UserWarning, match="leaves a graph to torch"):
            return compiled(*inputs)

    return first, compiled


class _Cache(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(3))
        self.register_buffer("rows", torch.zeros(3, 4))

    def forward(self, x):
        self.calls.add_(1)
        self.rows[1] = x
        return self.rows * self.calls.sum()


def test_what_a_model_writes_to_its_buffers_stays_written():
    wanted, model = _Cache(), _Cache()
    first, compiled = _left_to_torch(model)
    with torch.no_grad():
        for call in (first, compiled, compiled):
            x = torch.randn(4)
            torch.testing.assert_close(call(x), wanted(x))
    torch.testing.assert_close(model.calls, wanted.calls)
    torch.testing.assert_close(model.rows, wanted.rows)


def test_what_a_function_writes_to_its_input_stays_written():
    first, _ = _left_to_torch(lambda y: y.add_(1) * 2)
    y = torch.zeros(4)
    torch.testing.assert_close(first(y), torch.full((4,), 2.0))
    torch.testing.assert_close(y, torch.ones(4))


def test_what_a_function_writes_stays_written_where_it_gives_its_inputs_alone():
    compiled = torch.compile(lambda a, b: b.add_(a.mul_(2)), backend="loopwright")
    a, b = torch.ones(4), torch.ones(4)
    with pytest.warns(UserWarning, match="it writes to its inputs"):
        given = compiled(a, b)
    assert given is b
    assert a.tolist() == [2] * 4
    assert b.tolist() == [3] * 4


def test_what_is_written_to_a_view_of_an_input_reaches_it(built):
    first = torch.compile(lambda y: (y.t()[1:], y[1:] + 1), backend=backend)
    whole = torch.zeros(4, 3)
    view, other = first(whole[2:])
    view.add_(1)
    torch.testing.assert_close(whole, torch.tensor([[0.0] * 3] * 2 + [[0.0, 1.0, 1.0]] * 2))
    torch.testing.assert_close(other, torch.ones(1, 3))
    assert len(built) == 1


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("dynamic", [None, True])
def test_outputs_that_share_memory_still_do(built, dynamic):
    def shared(y):
        made = y + 1
        return made.t(), {"halves": made.chunk(2, -1), "none": None}

    compiled = torch.compile(shared, backend=backend, dynamic=dynamic)
    for y in (torch.randn(2, 6), torch.randn(3, 12)[:, ::2]):
        wanted, made = shared(y), compiled(y)
        for one, other in zip(*map(torch.utils._pytree.tree_leaves, (made, wanted)), strict=True):
            torch.testing.assert_close(one, other)
            assert one is None or one.stride() == other.stride()
        made[0].zero_()
        torch.testing.assert_close(made[1]["halves"][1], torch.zeros(len(y), 3))
    assert built


def test_an_output_that_is_no_part_of_another_is_left_to_torch():
    def bits(y):
        made = y + 1
        return made, made.view(torch.int32)

    first, _ = _left_to_torch(bits)
    one, other = first(torch.zeros(2, 3))
    one.zero_()
    torch.testing.assert_close(other, torch.zeros(2, 3, dtype=torch.int32))


def test_dropout_and_batch_norm_of_a_model_in_training_come_from_torch():
    first, _ = _left_to_torch(torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.ReLU()))
    norm, wanted = torch.nn.BatchNorm2d(3), torch.nn.BatchNorm2d(3)
    with torch.no_grad():
        assert 300 < (first(torch.ones(1000)) == 0).sum() < 700
        first, _ = _left_to_torch(norm)
        x = torch.randn(2, 3, 7, 6) * 3 + 1
        torch.testing.assert_close(first(x), wanted(x))
    torch.testing.assert_close(norm.running_mean, wanted.running_mean)
    assert norm.num_batches_tracked == 1


def test_weights_made_under_inference_mode_are_left_to_torch():
    with torch.inference_mode():
        net = torch.nn.Linear(5, 3).eval()
    first, _ = _left_to_torch(net)
    x = torch.randn(2, 5)
    with torch.no_grad():
        torch.testing.assert_close(first(x), net(x))


@pytest.mark.parametrize(
    "change",
    [
        lambda w: w.data.mul_(2),
        lambda w: w.data.copy_(torch.ones_like(w)),
        lambda w: setattr(w, "data", w.data + 1),
    ],
)
def test_weights_that_change_behind_autograds_back_are_noticed(change):
    net, x = _net().to(memory_format=torch.channels_last), torch.randn(1, 3, 7, 6)
    compiled = torch.compile(net, backend=backend)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-5)
        change(net[0].weight)
        with pytest.warns(UserWarning, match="weights have changed"):
            torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-5)


def test_a_graph_on_the_virtual_machine_gives_torch_its_tensors():
    def cumulated(x):
        return x.cumsum(1) + 1

    x = torch.randn(2, 5)
    got = torch.compile(cumulated, backend=backend)(x)
    assert isinstance(got, torch.Tensor)
    torch.testing.assert_close(got, cumulated(x))


def test_outputs_have_the_strides_that_torch_gives_them():
    convolution = torch.nn.Conv2d(3, 6, 3)

    def function(x):
        wide = (x + 1)[:, :1].expand(2, 4, 4, 5)
        return convolution(x), x.transpose(0, 1) * 2, (x * 2)[:, :, ::2], wide, x.sum()

    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    with torch.no_grad():
        wanted, made = function(x), torch.compile(function, backend="loopwright")(x)
    for one, other in zip(made, wanted, strict=True):
        assert one.stride() == other.stride()
        torch.testing.assert_close(one, other)


def assert_as_in_torch(compiled, net, x):
    wanted, made = net(x), compiled(x)
    torch.testing.assert_close(made, wanted, rtol=1e-4, atol=1e-5)
    assert made.stride() == wanted.stride()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(("dynamic", "builds"), [(None, 2), (True, 2)])
def test_open_batch_sizes_are_built_once(built, dynamic, builds):
    """With `dynamic`, three axes of images are open, of which calls differ in one; without, torch
    takes the first batch size for the only one."""
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU()).eval()
    compiled = torch.compile(net, backend="loopwright", dynamic=dynamic)
    with torch.no_grad():
        for batch in (2, 3, 2, 3, 5):
            assert_as_in_torch(compiled, net, torch.randn(batch, 3, 5, 7))
    assert len(built) == builds


def test_a_second_length_compiles_nothing(built):
    net = torch.nn.Linear(6, 5).eval()
    compiled = torch.compile(net, backend="loopwright")
    x = torch.randn(4, 6)
    torch._dynamo.mark_dynamic(x, 0)
    with torch.no_grad():
        assert_as_in_torch(compiled, net, x)
        for rows in (7, 2, 300):
            assert_as_in_torch(compiled, net, torch.randn(rows, 6))
    assert len(built) == 1


def test_changed_weights_of_an_open_graph_are_noticed_and_it_is_not_built_again(built):
    net = torch.nn.Linear(6, 5).eval()
    compiled = torch.compile(net, backend="loopwright", dynamic=True)
    with torch.no_grad():
        assert_as_in_torch(compiled, net, torch.randn(4, 6))
        net.weight.zero_()
        with pytest.warns(UserWarning, match="weights have changed"):
            assert_as_in_torch(compiled, net, torch.randn(4, 6))
        assert_as_in_torch(compiled, net, torch.randn(9, 6))
    assert len(built) == 1


def test_a_size_of_one_of_an_open_graph_is_built_by_itself(built):
    net = torch.nn.Linear(6, 5).eval()
    compiled = torch.compile(net, backend="loopwright", dynamic=True)
    with torch.no_grad():
        for rows in (4, 1, 9):
            assert_as_in_torch(compiled, net, torch.randn(rows, 6))
    assert len(built) == 2


def test_open_sizes_are_called_where_gradients_are_recorded(built):
    x = torch.randn(4, 6)
    torch._dynamo.mark_dynamic(x, 0)
    compiled = torch.compile(lambda x: x.cumsum(1) * 2, backend="loopwright")
    for rows in (x, torch.randn(9, 6)):
        torch.testing.assert_close(compiled(rows), rows.cumsum(1) * 2)
    assert len(built) == 1


def test_numbers_that_are_sizes_come_from_the_shapes(built):
    class Rows(torch.nn.Module):
        def forward(self, x):
            return x.reshape(x.shape[0], -1, 2).sum(1) / x.shape[0]

    net = Rows().eval()
    compiled = torch.compile(net, backend="loopwright")
    x = torch.randn(4, 6)
    torch._dynamo.mark_dynamic(x, 0)
    with torch.no_grad():
        for rows in (x, torch.randn(9, 6)):
            assert_as_in_torch(compiled, net, rows)
    assert len(built) == 1


def test_floats_of_a_module_are_numbers_of_open_graphs(built):
    """Torch gives them as tensors, since they may change."""

    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.LayerNorm(6, eps=0.1)
            self.scale = 0.37

        def forward(self, x):
            return self.norm(x) * self.scale

    net = Scaled().eval()
    compiled = torch.compile(net, backend="loopwright", dynamic=True)
    with torch.no_grad():
        for rows, scale, builds in ((4, 0.37, 1), (9, 0.37, 1), (9, 2.5, 2), (4, 0.37, 2)):
            net.scale = scale
            assert_as_in_torch(compiled, net, torch.randn(rows, 6))
            assert len(built) == builds


@pytest.mark.sampled(0.5)
@pytest.mark.parametrize("options", [{}, {"norm_first": True, "activation": "gelu"}])
@pytest.mark.parametrize("masked", [(), ("keys",), ("mask",), ("mask", "keys")])
def test_an_encoder_on_torchs_fast_path_is_read_by_its_parts(built, options, masked):
    layer = torch.nn.TransformerEncoderLayer(8, 2, 12, batch_first=True, **options)
    net = torch.nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).eval()
    words = {}
    if "keys" in masked:
        words["src_key_padding_mask"] = torch.tensor(
            [[False] * 5, [False, False, False, True, True]]
        )
    if "mask" in masked:
        words["mask"] = torch.eye(5, dtype=torch.bool)
        words["mask"][2] = True  # nothing is left of this row, which is NaN in torch
        words["is_causal"] = False
    x = torch.randn(2, 5, 8)
    with torch.no_grad():
        compiled = torch.compile(net, backend="loopwright")
        made, wanted = compiled(x, **words), net(x, **words)
    torch.testing.assert_close(made, wanted, rtol=1e-4, atol=1e-5, equal_nan=True)
    assert len(built) == 1


def test_attention_on_torchs_fast_path_is_read_by_its_parts():
    net = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
    q, k = torch.randn(2, 2, 7, 8)

    class Fast(torch.nn.Module):
        def forward(self, q, k, v, left_out):
            return torch._native_multi_head_attention(
                q, k, v, 8, 2, net.in_proj_weight, net.in_proj_bias, net.out_proj.weight,
                net.out_proj.bias, left_out, True, False, 1,
            )  # fmt: skip

    left_out = torch.arange(7) > torch.tensor([[6], [3]])
    with torch.no_grad():
        made = build_model(Fast(), (q, k, k, left_out), threads=1)(q, k, k, left_out)
        wanted = net(q, k, k, key_padding_mask=left_out, average_attn_weights=False)
    torch.testing.assert_close(made, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("small")
def test_an_axis_that_a_graph_fixes_is_open_to_torch_alone(built, capfd):
    """The layer is one operator on torch's fast path, whose features torch leaves open."""
    layer = torch.nn.TransformerEncoderLayer(8, 2, 12, batch_first=True, dropout=0.0).eval()
    compiled = torch.compile(layer, backend="loopwright", dynamic=True)
    with torch.no_grad():
        for length in (3, 7, 5, 12):
            assert_as_in_torch(compiled, layer, torch.randn(1, length, 8))
        assert len(built) == 2  # of one length, and of all
        assert "Traceback" not in capfd.readouterr().err


def test_more_shapes_than_are_kept_are_computed_by_torch(monkeypatch):
    monkeypatch.setattr("loopwright.graph.torch_compile._MOST_SHAPES", 1)
    monkeypatch.setattr("loopwright.graph.torch_open._MOST_SYMBOLS", 0)
    compiled = torch.compile(torch.nn.Linear(6, 5).eval(), backend="loopwright", dynamic=True)
    with torch.no_grad():
        compiled(torch.randn(2, 6))
        with pytest.warns(UserWarning, match="more than 1 shapes of inputs"):
            assert compiled(torch.randn(3, 6)).shape == (3, 5)

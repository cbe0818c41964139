"""Random small networks in ONNX, of operators that move, cut, join and compute."""

import numpy as np
from onnx import helper, numpy_helper

DTYPES = ("float32", "float32", "float32", "float64", "float16", "int32", "int64", "int8", "uint8")


class Net:
    """A graph in the making: its values by name with shapes and dtypes, drawn from `rng`."""

    def __init__(self, rng):
        self.rng = rng
        self.nodes, self.inputs, self.known = [], {}, {}
        self.shapes, self.dtypes = {}, {}

    def pick(self, *options):
        return options[self.rng.integers(len(options))]

    def array(self, shape, dtype):
        """Numbers that no overflow follows: small whole ones for whole dtypes, positive too."""
        if dtype == "bool":
            return self.rng.random(shape) < 0.5
        if np.dtype(dtype).kind in "iu":
            return np.asarray(self.rng.integers(0, 4, shape)).astype(dtype)
        return np.asarray(self.rng.standard_normal(shape)).astype(dtype)

    def value(self, shape, dtype):
        name = f"v{len(self.shapes)}"
        self.shapes[name], self.dtypes[name] = tuple(shape), str(dtype)
        return name

    def input(self, shape, dtype):
        name = self.value(shape, dtype)
        self.inputs[name] = self.array(shape, dtype)
        return name

    def weight(self, array):
        name = self.value(array.shape, array.dtype)
        self.known[name] = array
        return name

    def node(self, op, inputs, shapes, dtype, **attributes):
        names = [self.value(shape, dtype) for shape in shapes]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        return names

    def same(self, x):
        """Values of the shape and dtype of one: operands of a residual."""
        kind = self.shapes[x], self.dtypes[x]
        return [n for n in self.shapes if (self.shapes[n], self.dtypes[n]) == kind]


def unary(net, x):
    d = net.dtypes[x]
    if np.dtype(d).kind != "f":
        ops = ("Abs",)
    else:
        ops = ("Relu", "Tanh", "Sigmoid", "Abs", "Neg")
        if net.shapes[x]:
            ops += ("Softmax",)
    net.node(net.pick(*ops), [x], [net.shapes[x]], d)


def binary(net, x):
    """A sum or a product with a value of the shape, a weight that is spread, or itself."""
    shape, d = net.shapes[x], net.dtypes[x]
    others = net.same(x)
    if net.rng.random() < 0.4:
        spread = [n if net.rng.random() < 0.6 else 1 for n in shape]
        others = [net.weight(net.array(spread[net.rng.integers(len(shape) + 1) :], d))]
    op = net.pick("Add", "Add", "Sub", "Max")
    if np.dtype(d).kind == "f":
        op = net.pick(op, "Mul")
    if d == "uint8" and op == "Sub":
        op = "Add"
    if d in ("int8", "uint8") and op == "Max":
        op = "Add"
    pair = [x, net.pick(*others)]
    if net.rng.random() < 0.5:
        pair.reverse()
    net.node(op, pair, [shape], d)


def transpose(net, x):
    order = [int(n) for n in net.rng.permutation(len(net.shapes[x]))]
    net.node("Transpose", [x], [[net.shapes[x][n] for n in order]], net.dtypes[x], perm=order)


def reshape(net, x):
    """The same elements under other extents: axes joined, split, of extent one."""
    shape = list(net.shapes[x])
    for _ in range(2):
        at = int(net.rng.integers(len(shape) + 1))
        kind = net.pick("join", "split", "one", "drop")
        if kind == "join" and at + 1 < len(shape):
            shape[at : at + 2] = [shape[at] * shape[at + 1]]
        elif kind == "split" and at < len(shape):
            factor = net.pick(*[n for n in range(1, shape[at] + 1) if shape[at] % n == 0])
            shape[at : at + 1] = [factor, shape[at] // factor]
        elif kind == "one" and len(shape) < 5:
            shape.insert(at, 1)
        elif kind == "drop" and at < len(shape) and shape[at] == 1:
            del shape[at]
    to = net.weight(np.array(shape, np.int64))
    net.node("Reshape", [x, to], [shape], net.dtypes[x])


def cut(net, x):
    """A part along an axis, from either end, by steps of either sign."""
    shape = list(net.shapes[x])
    axis = int(net.rng.integers(len(shape)))
    n = shape[axis]
    start = int(net.rng.integers(n))
    end = int(net.rng.integers(start + 1, n + 1))
    step = net.pick(1, 1, 1, 2)
    part = range(start, end, step)
    if net.rng.random() < 0.15:
        part = range(n - 1, -1, -1)
        start, end, step = n - 1, -n - 1, -1
    elif net.rng.random() < 0.3:
        start -= n
    shape[axis] = len(part)
    rest = [net.weight(np.array([v], np.int64)) for v in (start, end, axis, step)]
    net.node("Slice", [x, *rest], [shape], net.dtypes[x])


def split(net, x):
    shape = list(net.shapes[x])
    axis = int(net.rng.integers(len(shape)))
    if shape[axis] < 2:
        return
    first = int(net.rng.integers(1, shape[axis]))
    parts = [first, shape[axis] - first]
    sizes = net.weight(np.array(parts, np.int64))
    made = [[*shape[:axis], n, *shape[axis + 1 :]] for n in parts]
    net.node("Split", [x, sizes], made, net.dtypes[x], axis=axis)


def concat(net, x):
    """Values that agree but for one axis, the same one twice too."""
    shape, d = net.shapes[x], net.dtypes[x]
    axis = int(net.rng.integers(len(shape)))

    def rest(s):
        return len(s) == len(shape) and [*s[:axis], *s[axis + 1 :]] == [
            *shape[:axis],
            *shape[axis + 1 :],
        ]

    others = [n for n, s in net.shapes.items() if rest(s) and net.dtypes[n] == d]
    parts = [x, *(net.pick(*others) for _ in range(net.rng.integers(1, 4)))]
    net.rng.shuffle(parts)
    total = sum(net.shapes[p][axis] for p in parts)
    if total < 80:
        made = [*shape[:axis], total, *shape[axis + 1 :]]
        net.node("Concat", [str(p) for p in parts], [made], d, axis=axis)


def gather(net, x):
    shape = list(net.shapes[x])
    axis = int(net.rng.integers(len(shape)))
    rows = net.rng.integers(-shape[axis], shape[axis], net.pick((), (1,), (3,), (2, 2)))
    rows = np.asarray(rows, np.int64)
    if len(shape) + rows.ndim > 6:
        return
    at = net.weight(rows)
    made = [*shape[:axis], *rows.shape, *shape[axis + 1 :]]
    net.node("Gather", [x, at], [made], net.dtypes[x], axis=axis)


def reduce(net, x):
    if net.dtypes[x] in ("int8", "uint8", "float16"):
        return
    shape = list(net.shapes[x])
    axis = int(net.rng.integers(len(shape)))
    keep = int(net.rng.integers(2))
    op = (
        net.pick("ReduceMean", "ReduceMax") if np.dtype(net.dtypes[x]).kind == "f" else "ReduceMax"
    )
    at = net.weight(np.array([axis], np.int64))
    made = [*shape[:axis], *([1] * keep), *shape[axis + 1 :]]
    net.node(op, [x, at], [made], net.dtypes[x], keepdims=keep)


def matmul(net, x):
    shape, d = net.shapes[x], net.dtypes[x]
    if d not in ("float32", "float64") or len(shape) < 2:
        return
    n = net.pick(1, 3, 16)
    w = net.weight(net.array((shape[-1], n), d) / np.asarray(shape[-1] ** 0.5, d))
    (y,) = net.node("MatMul", [x, w], [[*shape[:-1], n]], d)
    if net.rng.random() < 0.5:
        net.node("Add", [y, net.weight(net.array((n,), d))], [net.shapes[y]], d)


def convolution(net, x):
    shape, d = net.shapes[x], net.dtypes[x]
    if d != "float32" or len(shape) != 4:
        return
    n, c, h, w = shape
    k = net.pick(1, 3)
    depthwise = net.rng.random() < 0.3
    out = c if depthwise else net.pick(1, 3, 8, 16)
    held = net.array((out, 1 if depthwise else c, k, k), d) / np.float32((c * k * k) ** 0.5)
    inputs = [x, net.weight(held)]
    if net.rng.random() < 0.5:
        inputs.append(net.weight(net.array((out,), d)))
    (y,) = net.node(
        "Conv", inputs, [(n, out, h, w)], d, pads=[k // 2] * 4, group=c if depthwise else 1
    )
    if net.rng.random() < 0.5:
        unary(net, y)


def norm(net, x):
    shape, d = net.shapes[x], net.dtypes[x]
    if d == "float32":
        scale = net.weight(net.array(shape[-1:], d))
        net.node("LayerNormalization", [x, scale], [shape], d, axis=-1)


def recurrence(net, x):
    shape, d = net.shapes[x], net.dtypes[x]
    if d == "float32" and len(shape) == 3:
        t, b, i = shape
        h = net.pick(1, 4)
        w, r = (net.weight(net.array((1, 3 * h, n), d)) for n in (i, h))
        net.node("GRU", [x, w, r], [(t, 1, b, h)], d, hidden_size=h)


def spread(net, x):
    shape = list(net.shapes[x])
    if np.prod(shape, dtype=int) < 400 and len(shape) < 5:
        made = [net.pick(1, 2, 3), *(n if n > 1 else net.pick(1, 4) for n in shape)]
        net.node("Expand", [x, net.weight(np.array(made, np.int64))], [made], net.dtypes[x])


def select(net, x):
    """One of two values where a third is larger."""
    if net.dtypes[x] not in ("float32", "float64"):
        return  # onnxruntime compares halves before they are rounded
    one, two = (net.pick(*net.same(x)) for _ in range(2))
    (mask,) = net.node("Greater", [x, one], [net.shapes[x]], "bool")
    net.node("Where", [mask, x, two], [net.shapes[x]], net.dtypes[x])


def same_value(net, x):
    net.node("Identity", [x], [net.shapes[x]], net.dtypes[x])


MOVES = (transpose, reshape, cut, split, concat, gather)
STEPS = (
    *(MOVES * 2),
    *(unary, binary, binary, reduce, matmul, convolution, convolution),
    *(norm, recurrence, spread, select, same_value),
)


def drawn_net(seed, most=14):
    """A model of fewer than `most` steps, and what it was drawn as.

    Its outputs are some of its values, views, weights and inputs among them, one perhaps twice.
    """
    rng = np.random.default_rng(seed)
    net = Net(rng)
    d = net.pick(*DTYPES)
    shape = net.pick(
        (1, 3, 6, 6), (2, 4, 5, 7), (1, 8, 1, 4), (3, 4), (1, 16), (5, 1, 6), (2, 16, 8, 8), (7,)
    )
    net.input(shape, d)
    if rng.random() < 0.5:
        net.input(shape, d)
    if rng.random() < 0.4:
        net.weight(net.array(shape, d))
    for _ in range(int(rng.integers(3, most))):
        recent = [n for n in net.shapes if n not in net.known or rng.random() < 0.1]
        recent = [n for n in recent if net.dtypes[n] == d]
        x = net.pick(*recent[-4:], *recent)
        step = net.pick(*STEPS)
        if net.shapes[x] or step in (unary, binary, same_value, spread, select):
            if np.prod(net.shapes[x], dtype=int) < 5000:
                step(net, x)
    made = [n for node in net.nodes for n in node.output]
    outputs = made[-1:]
    for n in [*made, *net.inputs]:
        if rng.random() < (0.25 if n in made else 0.08) and n not in outputs:
            outputs.append(n)
    if not outputs:
        outputs = list(net.inputs)

    def info(name):
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(net.dtypes[name]))
        return helper.make_tensor_value_info(name, kind, net.shapes[name])

    graph = helper.make_graph(
        net.nodes,
        "drawn",
        [info(n) for n in net.inputs],
        [info(n) for n in outputs],
        [numpy_helper.from_array(a, n) for n, a in net.known.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return model, net

"""What spaces and lowering promise on four machines, none of which is the one at hand."""

import numpy as np
import pytest

from loopwright.codegen.tir.emit import emit_tree
from loopwright.dsl.dtypes import item_bytes
from loopwright.schedule.cpu.register_tile import free_registers
from loopwright.schedule.lowering import lower
from loopwright.schedule.program.footprint import NestContext
from loopwright.schedule.program.nest import extent
from loopwright.schedule.space import space
from loopwright.schedule.tree.grammar import Allocate, statements
from loopwright.schedule.tree.verifier import verify
from tests.collection import WORKLOADS
from tests.targets import TARGETS

pytestmark = pytest.mark.sampled(0.34)

OPERATORS = [
    "matmul_of_odd_extents",
    "matmul_of_one_row",
    "matmul_in_int8_accumulated_in_int32",
    "batch_matmul",
    "dense_with_bias_and_relu",
    "conv2d_with_constant_weights_bias_and_relu",
    "conv2d_in_groups",
    "conv2d_channels_last",
    "depthwise_conv2d",
    "conv2d_transpose",
    "max_pool2d",
    "softmax",
    "layer_norm",
    "contraction_that_transposes",
    "sum_of_everything",
]
SKETCHES, RANDOM_CONFIGS = 16, 6


@pytest.fixture(scope="module", params=TARGETS.values(), ids=TARGETS)
def target(request):
    return request.param


@pytest.fixture(scope="module", params=OPERATORS)
def points(request, target):
    """The space of an operator on a target."""
    return space(WORKLOADS[request.param](), target)


@pytest.fixture(scope="module")
def sketches(points):
    """Sketches from all over the space, the first one among them."""
    return points.sketches[:: max(1, len(points.sketches) // SKETCHES)]


@pytest.fixture(scope="module")
def trees(sketches, target):
    """Of each sketch the trees of its default config and of random ones, as one batch."""
    rng = np.random.default_rng(0)
    drawn = [
        [[int(rng.integers(len(k.choices))) for k in s.knobs] for _ in range(RANDOM_CONFIGS)]
        for s in sketches
    ]
    return [
        lower(s, target, np.array([s.default, *numbers], dtype=np.int64))
        for s, numbers in zip(sketches, drawn)
    ]


def test_configs_of_every_sketch_lower_to_verified_trees(trees):
    for tree in trees:
        verify(tree)


def test_the_default_config_is_in_the_space_and_becomes_code(points, target):
    default = points.default
    sketch = points.sketch(default.sketch)
    assert sketch.at(sketch.default) == default
    tree = lower(sketch, target, default)
    verify(tree)
    assert emit_tree(tree, target)


def test_register_tiles_fit_their_axes_and_the_registers(sketches, target):
    """Whole vectors, or a power of two below one; the smallest tile may need more registers."""
    for sketch in sketches:
        knobs = {knob.name: knob for knob in sketch.knobs}
        for number, nest in enumerate(sketch.nests):
            knob = knobs.get(f"tile{number}")
            if knob is None or nest.vector is None:
                continue
            context = NestContext(target)
            lanes = context.lanes(nest.nest)
            for tile in knob.choices:
                assert all(size <= extent(axis) for size, axis in zip(tile, nest.tile))
                width = tile[-1]
                assert width % lanes == 0 or (width < lanes and width & width - 1 == 0)
                assert free_registers(tile, nest, context) >= 0 or tile == knob.choices[0]


def test_accumulators_of_register_tiles_fit_the_registers(trees, target):
    registers = target.vector_bytes * target.vector_registers
    for tree in trees:
        for stmt in statements((*tree.prepare, *tree.body)):
            if isinstance(stmt, Allocate) and stmt.buffer.name.startswith("acc"):
                size = np.multiply(stmt.buffer.size, item_bytes(stmt.buffer.dtype))
                assert np.max(size) <= registers

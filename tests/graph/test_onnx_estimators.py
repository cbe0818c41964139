"""Operators of ai.onnx.ml, against onnxruntime."""

import numpy as np
import pytest

from loopwright.graph.build import build_model
from loopwright.graph.errors import ModelError
from tests.graph.onnx_nodes import node_model

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.onnx
RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((7, 5)).astype(np.float32)


def compare(op, arrays, known=None, results=1, rtol=1e-5, **options):
    model = node_model(op, arrays, known, results, opset=17, domain="ai.onnx.ml", **options)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    found = build_model(model, threads=1, check=False)(*arrays.values())
    found = found if isinstance(found, tuple) else (found,)
    for got, wanted in zip(found, session.run(None, arrays), strict=True):
        assert got.dtype == wanted.dtype
        assert got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, rtol=rtol, atol=rtol / 10)


def drawn(*shape):
    return RNG.standard_normal(shape).astype(np.float32).reshape(-1).tolist()


@pytest.mark.parametrize("dtype", ["float32", "int64", "float64"])
@pytest.mark.parametrize("count", [1, 5])
def test_columns_are_scaled(dtype, count):
    x = (10 * ROWS).astype(dtype)
    compare("Scaler", {"x": x}, offset=drawn(count), scale=drawn(count))


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_rows_are_divided_by_their_norm(norm):
    x = ROWS.copy()
    x[3] = 0
    compare("Normalizer", {"x": x}, norm=norm)


def test_numbers_above_a_threshold_are_one():
    compare("Binarizer", {"x": 3 * ROWS}, threshold=1.0)


@pytest.mark.parametrize("missing", [np.nan, -1.0])
@pytest.mark.parametrize("count", [1, 5])
def test_missing_numbers_are_filled_in(missing, count):
    x = ROWS.copy()
    x[2, 1] = x[5, 4] = missing
    compare("Imputer", {"x": x}, imputed_value_floats=drawn(count), replaced_value_float=missing)


def test_missing_whole_numbers_are_filled_in():
    x = RNG.integers(-1, 3, (6, 4))
    compare("Imputer", {"x": x}, imputed_value_int64s=[7, 8, 9, 10], replaced_value_int64=-1)


def test_columns_of_several_arrays_stand_side_by_side():
    arrays = {"a": ROWS, "b": ROWS[:, :2] + 1}
    compare("FeatureVectorizer", arrays, inputdimensions=[5, 2])


@pytest.mark.parametrize("shape", [(7, 5), (5,), (2, 3, 5)])
def test_columns_are_chosen(shape):
    x = RNG.standard_normal(shape).astype(np.float32)
    compare("ArrayFeatureExtractor", {"x": x}, {"columns": np.array([4, 0, 0])})


def test_columns_are_chosen_at_a_call():
    compare("ArrayFeatureExtractor", {"x": ROWS, "columns": np.array([4, 0, 1])})


@pytest.mark.parametrize("shape", [(6,), (3, 2)])
def test_categories_become_columns_and_unknown_ones_zeros(shape):
    x = RNG.integers(0, 5, shape)
    compare("OneHotEncoder", {"x": x}, cats_int64s=[3, 1, 4], zeros=1)


def test_keys_become_values():
    x = np.array([[4, 1, 9], [-2, 1, 4]])
    compare(
        "LabelEncoder", {"x": x}, keys_int64s=[1, 4], values_floats=[0.5, 2.0], default_float=7.0
    )
    real = np.array([0.5, 9.0, 2.0, 3.0], np.float32)
    compare("LabelEncoder", {"x": real}, keys_floats=[0.5, 9.0, 2.0], values_int64s=[5, 6, 7])


def test_a_code_takes_the_first_of_equal_keys_and_finds_keys_that_are_no_number():
    x = np.array([0.0, np.nan, 1.0], np.float32)
    keys = {"keys_floats": [0.0, np.nan, 0.0], "values_int64s": [5, 6, 7], "default_int64": 9}
    compare("LabelEncoder", {"x": x}, ml=4, **keys)


def test_strings_for_keys_or_labels_are_refused_with_advice():
    model = node_model(
        "LabelEncoder",
        {"x": np.array([1, 2])},
        domain="ai.onnx.ml",
        keys_int64s=[1, 2],
        values_strings=["a", "b"],
    )
    with pytest.raises(ModelError, match="its values are strings; they may be numbers"):
        build_model(model)
    linear = {"coefficients": drawn(3, 5), "intercepts": drawn(3), "domain": "ai.onnx.ml"}
    names = {"classlabels_strings": ["a", "b", "c"]}
    model = node_model("LinearClassifier", {"x": ROWS}, results=2, **linear, **names)
    with pytest.raises(ModelError, match="end the model at its scores, 'y1'"):
        build_model(model)


def test_scores_of_named_classes_are_right_where_no_label_is_read():
    linear = {"coefficients": drawn(3, 5), "intercepts": drawn(3), "domain": "ai.onnx.ml"}
    names = {"classlabels_strings": ["a", "b", "c"]}
    model = node_model("LinearClassifier", {"x": ROWS}, results=2, opset=17, **linear, **names)
    del model.graph.output[0]
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    found = build_model(model, threads=1, check=False)(ROWS)
    np.testing.assert_allclose(found, session.run(None, {"x": ROWS})[0], rtol=1e-5, atol=1e-6)


def test_dictionaries_of_rows_are_refused_with_advice():
    model = node_model(
        "ZipMap", {"x": ROWS}, domain="ai.onnx.ml", classlabels_int64s=[0, 1, 2, 3, 4]
    )
    with pytest.raises(ModelError, match=r"options=\{'zipmap': False\}, or end the model at 'x'"):
        build_model(model)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("targets", [1, 3])
def test_linear_regression(transform, targets):
    options = {"intercepts": drawn(targets)} if targets > 1 else {}
    compare(
        "LinearRegressor",
        {"x": ROWS},
        coefficients=drawn(targets, 5),
        targets=targets,
        post_transform=transform,
        **options,
    )


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize(("rows", "labels"), [(1, [5, 9]), (2, [0, 1]), (3, [2, 7, 4])])
def test_linear_classification(transform, rows, labels):
    compare(
        "LinearClassifier",
        {"x": ROWS},
        results=2,
        coefficients=drawn(rows, 5),
        intercepts=drawn(rows),
        classlabels_ints=labels,
        post_transform=transform,
    )


def test_a_transform_that_is_not_known_is_refused():
    model = node_model(
        "LinearRegressor",
        {"x": ROWS},
        domain="ai.onnx.ml",
        coefficients=drawn(1, 5),
        post_transform="PROBIT",
    )
    with pytest.raises(ModelError, match="post_transform is PROBIT; it may be NONE, SOFTMAX"):
        build_model(model)


@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_support_vector_regression(kernel):
    compare(
        "SVMRegressor",
        {"x": ROWS},
        kernel_type=kernel,
        kernel_params=[0.4, 0.1, 3.0],
        n_supports=6,
        support_vectors=drawn(6, 5),
        coefficients=drawn(6),
        rho=[0.3],
    )


def voters(classes, kernel="RBF", vectors=3):
    """The attributes of a classifier by support vectors, each class with some."""
    pairs, count = classes * (classes - 1) // 2, classes * vectors
    return {
        "kernel_type": kernel,
        "kernel_params": [0.3, 0.1, 2.0],
        "classlabels_ints": [7, 2, 9, 4][:classes],
        "vectors_per_class": [vectors] * classes,
        "support_vectors": drawn(count, 5),
        "coefficients": drawn(classes - 1, count),
        "rho": drawn(pairs),
    }


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_classes_win_the_votes_of_pairs(count, transform):
    compare("SVMClassifier", {"x": ROWS}, results=2, post_transform=transform, **voters(count))


@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "SIGMOID"])
def test_support_vectors_classify_by_each_kernel(kernel):
    compare("SVMClassifier", {"x": ROWS}, results=2, **voters(3, kernel))


@pytest.mark.parametrize("count", [2, 3, 4])
def test_shares_of_pairs_become_shares_of_classes(count):
    pairs = count * (count - 1) // 2
    shares = {"prob_a": drawn(pairs), "prob_b": drawn(pairs)}
    compare("SVMClassifier", {"x": ROWS}, results=2, **voters(count), **shares)


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("rho", 1, "a long coefficients"),
        ("support_vectors", 36, "its vectors have 4 numbers, and its data 5 columns"),
        ("coefficients", 5, "is not as ONNX 3 defines it"),
        ("prob_a", 3, "is not as ONNX 3 defines it"),
    ],
)
def test_votes_of_attributes_that_do_not_fit_are_an_error(name, given, words):
    attributes = {**voters(3), name: [0.1] * given}
    model = node_model(
        "SVMClassifier", {"x": ROWS}, results=2, opset=17, domain="ai.onnx.ml", **attributes
    )
    with pytest.raises(ModelError, match=words):
        build_model(model)


@pytest.mark.parametrize("positive", [True, False])
@pytest.mark.parametrize("count", [2, 3])
def test_linear_support_vector_classification(count, positive):
    weights = np.abs(drawn(count, 5)) if positive else np.array(drawn(count, 5))
    compare(
        "SVMClassifier",
        {"x": ROWS},
        results=2,
        kernel_type="LINEAR",
        kernel_params=[0.0, 0.0, 0.0],
        classlabels_ints=[3, 5, 8][:count],
        coefficients=weights.tolist(),
        rho=[0.2],
    )


def grown(trees, depth, columns=5, modes=("BRANCH_LEQ",)):
    """The attributes of trees that are drawn, and the names of their leaves."""
    nodes, leaves = [], []

    def grow(tree, level):
        number = sum(n["treeids"] == tree for n in nodes)
        node = {"treeids": tree, "nodeids": number, "modes": "LEAF", "values": 0.0}
        node |= {"featureids": 0, "truenodeids": 0, "falsenodeids": 0}
        nodes.append(node)
        if level == depth or (level and RNG.random() < 0.2):
            leaves.append((tree, number))
            return number
        node |= {"modes": str(RNG.choice(modes)), "values": float(np.float32(RNG.normal()))}
        node["featureids"] = int(RNG.integers(columns))
        node["truenodeids"], node["falsenodeids"] = grow(tree, level + 1), grow(tree, level + 1)
        return number

    for tree in range(trees):
        grow(tree, 0)
    return {f"nodes_{key}": [n[key] for n in nodes] for key in nodes[0]}, leaves


def weighted(leaves, targets, name, positive=False):
    """The attributes of weights of leaves for some targets."""
    at = [(tree, node, k) for tree, node in leaves for k in targets]
    weights = np.abs(drawn(len(at))).tolist() if positive else drawn(len(at))
    names = (f"{name}_{part}" for part in ("treeids", "nodeids", "ids", "weights"))
    return dict(zip(names, [*map(list, zip(*at)), weights]))


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize(
    ("trees", "depth", "targets"), [(1, 1, 1), (6, 4, 1), (5, 7, 3), (1, 0, 1)]
)
def test_trees_for_regression(aggregate, trees, depth, targets):
    nodes, leaves = grown(trees, depth)
    weights = weighted(leaves, range(targets), "target")
    base = {"base_values": drawn(targets)} if targets > 1 else {}
    options = {**nodes, **weights, **base, "n_targets": targets, "aggregate_function": aggregate}
    compare("TreeEnsembleRegressor", {"x": ROWS}, **options)


@pytest.mark.parametrize("mode", ["LEQ", "LT", "GTE", "GT", "EQ", "NEQ"])
def test_trees_test_in_each_way_also_rows_without_numbers(mode):
    nodes, leaves = grown(4, 3, modes=[f"BRANCH_{mode}"])
    nodes["nodes_missing_value_tracks_true"] = RNG.integers(
        0, 2, len(nodes["nodes_values"])
    ).tolist()
    x = np.concatenate([ROWS, np.full((1, 5), np.nan, np.float32)])
    x[0, 0] = nodes["nodes_values"][0]
    options = {**nodes, **weighted(leaves, [0], "target"), "n_targets": 1}
    compare("TreeEnsembleRegressor", {"x": x}, **options)


def test_trees_test_in_several_ways():
    nodes, leaves = grown(5, 4, modes=["BRANCH_LEQ", "BRANCH_GT", "BRANCH_LT"])
    options = {**nodes, **weighted(leaves, [0], "target"), "n_targets": 1}
    compare("TreeEnsembleRegressor", {"x": ROWS}, **options)


def test_trees_read_doubles():
    nodes, leaves = grown(5, 4)
    options = {**nodes, **weighted(leaves, [0], "target"), "n_targets": 1}
    compare("TreeEnsembleRegressor", {"x": ROWS.astype(np.float64)}, **options)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize(
    ("labels", "targets", "positive"),
    [
        ([0, 1], [0], False),
        ([0, 1], [0], True),
        ([3, 8], [1], True),
        ([0, 1], [1], False),
        ([0, 1], [0, 1], True),
        ([0, 1], [0, 1], False),
        ([2, 0, 5], [0, 1, 2], True),
        ([2, 0, 5], [0, 1, 2], False),
    ],
)
def test_trees_for_classification(transform, labels, targets, positive):
    nodes, leaves = grown(6, 3)
    weights = weighted(leaves, targets, "class", positive)
    options = {**nodes, **weights, "classlabels_int64s": labels, "post_transform": transform}
    compare("TreeEnsembleClassifier", {"x": ROWS}, results=2, **options)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_trees_of_the_newest_operator(dtype):
    """Two trees: x0 <= 0.1 ? a : (x3 > -0.2 ? b : c), and x1 < 0.5 ? c : a."""
    make = onnx.numpy_helper.from_array
    compare(
        "TreeEnsemble",
        {"x": ROWS.astype(dtype)},
        rtol=1e-12 if dtype == "float64" else 1e-5,
        ml=5,
        n_targets=2,
        aggregate_function=1,
        nodes_featureids=[0, 3, 1],
        nodes_splits=make(np.array([0.1, -0.2, 0.5], dtype)),
        nodes_modes=make(np.array([0, 3, 1], np.uint8)),
        nodes_truenodeids=[0, 1, 2],
        nodes_trueleafs=[1, 1, 1],
        nodes_falsenodeids=[1, 2, 0],
        nodes_falseleafs=[0, 1, 1],
        tree_roots=[0, 2],
        leaf_targetids=[0, 1, 1],
        leaf_weights=make(np.array([1.1, -2.3, 0.7], dtype)),
    )


def test_one_library_serves_any_number_of_rows():
    nodes, leaves = grown(6, 5)
    options = {**nodes, **weighted(leaves, [0, 1], "class", True), "classlabels_int64s": [0, 1]}
    model = node_model(
        "TreeEnsembleClassifier", {"x": ROWS}, results=2, opset=17, domain="ai.onnx.ml", **options
    )
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "rows"
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    library = build_model(model, dims={"rows": (0, 40)}, threads=1, check=False)
    for rows in (0, 1, 2, 33, 40):
        x = RNG.standard_normal((rows, 5)).astype(np.float32)
        for got, wanted in zip(library(x), session.run(None, {"x": x}), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)

"""Operators of ai.onnx.ml whose attributes do not fit each other or the data."""

import numpy as np
import pytest

from loopwright.graph.build import build_model
from loopwright.graph.errors import ModelError
from tests.graph.onnx_nodes import node_model

pytest.importorskip("onnx")
pytestmark = pytest.mark.onnx
ROWS = np.ones((7, 5), np.float32)


def refused(op, words, **options):
    model = node_model(op, {"x": ROWS}, domain="ai.onnx.ml", **options)
    with pytest.raises(ModelError, match=words):
        build_model(model)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"nodes_truenodeids": [9, 0, 0]}, "name node 9 of tree 0, which is none"),
        ({"nodes_truenodeids": [-1, 0, 0]}, "name node -1 of tree 0, which is none"),
        ({"nodes_truenodeids": [1]}, "nodes_truenodeids has 1 numbers and its .* 3; each"),
        ({"nodes_truenodeids": [2, 0, 0]}, "must have one node that no other one names"),
        (
            {"nodes_truenodeids": [0, 0, 0]},
            "a node of it is reached from no root|its nodes go in a circle",
        ),
        ({"nodes_nodeids": [0, 1, 1]}, "node 1 of its tree 0 is there twice"),
        ({"nodes_featureids": [5, 0, 0]}, "nodes_featureids has 5; it may have 0 to 4"),
        ({"nodes_values": None}, "nodes_values is left out"),
        ({"target_ids": [0, -1]}, "target_ids has -1; it may have 0 to 1"),
        ({"target_nodeids": [1, 1]}, "has two weights for one target"),
        ({"base_values": [1.0]}, "base_values are 1 numbers; they may be 2"),
    ],
)
def test_trees_whose_attributes_do_not_fit_are_refused(changed, words):
    """x0 <= 0.1 ? a : b, with one attribute that is wrong."""
    options = {
        "nodes_treeids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_values": [0.1, 0.0, 0.0],
        "nodes_featureids": [0, 0, 0],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
        "target_treeids": [0, 0],
        "target_nodeids": [1, 2],
        "target_ids": [0, 0],
        "target_weights": [1.0, 2.0],
        "n_targets": 2,
    }
    given = {k: v for k, v in (options | changed).items() if v is not None}
    refused("TreeEnsembleRegressor", words, **given)


def test_nodes_in_a_circle_are_refused():
    """A root, whose branches reach two nodes that reach each other."""
    refused(
        "TreeEnsembleRegressor",
        "its nodes go in a circle",
        nodes_treeids=[0, 0, 0],
        nodes_nodeids=[0, 1, 2],
        nodes_modes=["BRANCH_LEQ"] * 3,
        nodes_values=[0.1, 0.2, 0.3],
        nodes_featureids=[0, 1, 2],
        nodes_truenodeids=[1, 2, 1],
        nodes_falsenodeids=[2, 2, 1],
        target_treeids=[0],
        target_nodeids=[1],
        target_ids=[0],
        target_weights=[1.0],
    )


def test_numbers_that_do_not_fit_the_columns_are_refused():
    refused(
        "Scaler", "offset has 2 numbers; it may have one, or 5", offset=[1.0, 2.0], scale=[1.0]
    )
    refused("Scaler", "offset has 0 numbers", scale=[1.0])
    refused("Imputer", "imputed_value_floats has 3 numbers", imputed_value_floats=[1.0, 2.0, 3.0])
    words = r"inputdimensions are \[4\]; its inputs have \[5\]"
    refused("FeatureVectorizer", words, inputdimensions=[4])
    one = {"results": 2, "classlabels_ints": [3, 4]}
    words = "it has 4 coefficients and 2 intercepts; for 2 results of 5 columns"
    refused("LinearClassifier", words, coefficients=[1.0] * 4, intercepts=[1.0, 2.0], **one)
    words = "it has 3 scores and 2 labels"
    refused("LinearClassifier", words, coefficients=[1.0] * 15, intercepts=[1.0] * 3, **one)

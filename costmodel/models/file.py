"""Model files: JSON with a small header, the same for every kind of model.

The checksum in it is compared before anything reads what is inside, since xgboost ends the whole
process, rather than raise, when it meets trees that make no sense. Nothing is unpickled.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import json
import os
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from loopwright.costmodel.model import CostModel, Floats, Integers, ModelError
from loopwright.dsl.words import brief
from loopwright.paths import problem_of_file, shown, whole_file, why

_FORMAT, _SCHEMA = "loopwright cost model", 2

_KINDS = {
    "gbt": ("loopwright.costmodel.models.gbt", "GBTModel"),
    "mlp": ("loopwright.costmodel.models.mlp", "MLP"),
    "treegru": ("loopwright.costmodel.models.treegru", "TreeGRU"),
    "source-lstm": ("loopwright.costmodel.source.ranker", "SourceLSTM"),
    "ensemble": ("loopwright.costmodel.models.ensemble", "Ensemble"),
}
"""The classes that read what is in files, imported when they are needed."""
SEQUENCE, SOURCE = "sequence", "source"
"""The kinds of a sequence model and of a source model, which have classes of their own."""
_OTHERS = {
    SEQUENCE: "a sequence model, which proposes configs and scores none: give it to "
    'strategy="sampled" or model="policy"',
    SOURCE: "a source model, which labels texts and scores no configs: "
    "lw.SourceModel.load reads it",
    "time": "a time model, which is of one program: lw.costmodel.TimeModel.load reads it",
    "schedule policy": "a schedule policy, which takes actions and scores no configs: "
    "loopwright.explore.scheduling.policy.Policy.load reads it",
}
"""What files of other kinds hold, for those who take them for a model that scores configs."""

_MALFORMED = (AttributeError, KeyError, OverflowError, RuntimeError, TypeError, ValueError)
"""Errors that JSON of another shape ends in; RuntimeError is torch's, and that of deep nesting."""

Model = TypeVar("Model", bound="StoredModel")


class StoredModel(CostModel):
    """A model that is kept in files of one format.

    Attributes
    ----------
    kind: names the class in a file.
    about: whatever should be known of what the model learned from, as JSON; kept in the file.
        Every `fit` writes there what `learned_from` tells.
    """

    kind: ClassVar[str]
    about: dict[str, Any]

    @abstractmethod
    def content(self) -> dict[str, Any]:
        """Content of the model, learned and chosen, as JSON."""

    @classmethod
    @abstractmethod
    def of_content(cls: type[Model], content: Mapping[str, Any]) -> Model:
        """The model of a `content`; may raise KeyError, TypeError or ValueError if it is wrong."""

    @abstractmethod
    def describe(self) -> str:
        """The model in a few words: what it minimizes, and how large it is."""

    @abstractmethod
    def importance(self) -> dict[str, float]:
        """Share of each feature in what the model predicts, by name; empty if not known."""

    def save(self, path: str | os.PathLike[str]) -> None:
        if not self.ready:
            raise ModelError("this model has not learned anything yet: fit it before saving it")
        write_model(path, self.kind, packed(self))

    @classmethod
    def load(cls: type[Model], path: str | os.PathLike[str]) -> Model:
        model = _unpacked(path, cls.kind, read_model(path, cls.kind)[1])
        assert isinstance(model, cls)
        return model


def load_model(path: str | os.PathLike[str]) -> StoredModel:
    """The model in a file, of whatever kind. Raises `ModelError` for anything else."""
    kind, content = read_model(path)
    if kind in _OTHERS:
        raise ModelError(f"{path} holds {_OTHERS[kind]}")
    return _unpacked(path, kind, content)


def checked_base(base: StoredModel | None, reads: str) -> StoredModel | None:
    """The model that another one goes on from, None where it knows nothing yet. Raises
    `ModelError` where it reads other features."""
    if base is not None and base.reads != reads:
        raise ModelError(
            f"the base, {base.describe()}, reads {base.reads!r} features, this model {reads!r} "
            "ones: name a model of the base's kind, or train a base of this one's"
        )
    return base if base is not None and base.ready else None


def learned_from(costs: Floats, groups: Integers) -> dict[str, int]:
    """Records that `fit` learned from: how many, how many failed, and in how many groups."""
    return {
        "records": len(costs),
        "failures": int(np.isinf(costs).sum()),
        "groups": len(np.unique(groups)),
    }


def packed(model: StoredModel) -> dict[str, Any]:
    """A model as JSON, for a file or for a model that is made of several."""
    return {"kind": model.kind, "content": model.content(), "about": model.about}


def unpacked(data: Mapping[str, Any]) -> StoredModel:
    """The model that was `packed`; raises KeyError, TypeError or ValueError if it is wrong."""
    module, name = _KINDS[data["kind"]]
    model: StoredModel = getattr(importlib.import_module(module), name).of_content(data["content"])
    model.about = dict(data["about"])
    return model


def _unpacked(path: str | os.PathLike[str], kind: str, data: Mapping[str, Any]) -> StoredModel:
    try:
        if data["kind"] != kind:
            raise ValueError(f"a model of kind {data['kind']!r} in a file of {kind!r}")
        return unpacked(data)
    except ModelError as error:  # it says itself what to do: torch is missing, say
        raise ModelError(f"{path}: {error}") from error
    except _MALFORMED as error:
        raise ModelError(
            f"{path}: no model of kind {kind!r} can be made of it ({brief(error)}); save it again"
        ) from error


def write_model(path: str | os.PathLike[str], kind: str, content: Mapping[str, Any]) -> None:
    """Write a model's content, whole or not at all; `kind` says which class reads it. Raises
    `ModelError` where that cannot be done."""
    text = json.dumps(content)
    header = {"format": _FORMAT, "schema": _SCHEMA, "kind": kind, "sha256": _digest(text)}
    with whole_file(path, "the model", ModelError) as new:
        new.write_text(json.dumps({**header, "content": text}), encoding="utf-8")


def read_model(
    path: str | os.PathLike[str], kind: str | None = None, maker: str = "loopwright model train"
) -> tuple[str, dict[str, Any]]:
    """The kind and the content that `write_model` wrote; `ModelError` for anything else, and for
    another kind if one is given. `maker` is what makes such a file."""
    if problem := problem_of_file(path, exists=True):
        raise ModelError(f"the model {shown(path)}: {problem}; `{maker}` makes one")
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        if data["format"] != _FORMAT or data["schema"] != _SCHEMA:
            raise ModelError(
                f"{path} is of format {data['format']!r}, schema {data['schema']}; this version "
                f"reads {_FORMAT!r}, schema {_SCHEMA}: train and save the model again"
            )
        found: str = data["kind"]
        if found not in (*_KINDS, *_OTHERS, kind) or found != (kind or found):
            wanted = kind or f"one of {', '.join(_KINDS)}"
            raise ModelError(f"{path} holds a model of kind {found!r}, not {wanted}")
        if data["sha256"] != _digest(data["content"]):
            raise ModelError(f"{path} is damaged (its checksum is wrong): get or save it again")
        content: dict[str, Any] = json.loads(data["content"])
        return found, content
    except OSError as error:
        raise ModelError(f"cannot read the model {path}: {why(error)}") from error
    except _MALFORMED as error:
        raise ModelError(
            f"{path} is no model file, or cut short ({brief(error)}): get or save it again"
        ) from error


def numbers_to_text(values: Floats) -> dict[str, Any]:
    """An array of float32 as JSON."""
    data = np.ascontiguousarray(values, "<f4")
    return {"shape": data.shape, "float32": base64.b64encode(data.tobytes()).decode()}


def numbers_of_text(data: Mapping[str, Any]) -> Floats:
    """The array of `numbers_to_text`; raises KeyError, TypeError or ValueError if it is wrong."""
    flat = np.frombuffer(base64.b64decode(data["float32"], validate=True), "<f4")
    return flat.reshape(data["shape"]).astype(np.float32)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()

"""More than the picture: class priors from metadata (P6) and logits from captions (P4)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.special import softmax
from sklearn.base import ClassifierMixin, clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from phoebi_lib.siblings.fungitastic.layout import column

#: What the paper's Table 5 combines, by its letters.
ATTRIBUTES = {"H": "habitat", "M": "month", "S": "substrate", "MS": "metaSubstrate"}
SETS = ("H", "M", "S", "MS", "H+M", "H+S", "H+MS", "M+S", "M+MS", "H+M+S", "H+M+MS")


def prior_factor(train_values: pd.Series, y_train: np.ndarray, values: pd.Series, n_classes: int) -> np.ndarray:
    """Return ``p(c|a) / p(c)`` of each row's attribute value, (N, C), by counting training rows.

    A value without a training row, or none, gives 1; so does a class without one.
    """
    counts = pd.crosstab(train_values.to_numpy(), y_train).reindex(columns=range(n_classes), fill_value=0)
    prior = np.bincount(y_train, minlength=n_classes) / len(y_train)
    seen = counts.div(counts.sum(axis=1), axis=0).reindex(values.to_numpy()).to_numpy(dtype=np.float64)
    factor = np.divide(seen, prior, out=np.ones_like(seen), where=prior > 0)
    return np.where(np.isnan(factor), 1.0, factor)


def with_priors(probabilities: np.ndarray, factors: Sequence[np.ndarray], variant: str = "ours") -> np.ndarray:
    """Return probabilities (N, C) weighted by the factors of one or more attributes; rows sum to 1.

    ``ours``: ``p(c|x) prod_a p(c|a)/p(c)``. ``reference_code`` multiplies by ``p(c|x)`` once more for each attribute.
    A row in which every class is ruled out keeps its probabilities.

    Raises ValueError for an unknown variant.
    """
    if variant not in ("ours", "reference_code"):
        raise ValueError(f"unknown variant {variant!r}; known: ours, reference_code")
    power = 1 + len(factors) if variant == "reference_code" else 1
    weighted = softmax(power * np.log(np.maximum(probabilities, np.finfo(float).tiny)), axis=1)
    for factor in factors:
        weighted = weighted * factor
    total = weighted.sum(axis=1, keepdims=True)
    return np.where(total > 0, weighted / np.where(total > 0, total, 1.0), probabilities)


def metadata_prior(
    train: pd.DataFrame, y_train: np.ndarray, table: pd.DataFrame, probabilities: np.ndarray, attributes: str,
    variant: str = "ours",
) -> np.ndarray:  # fmt: skip
    """Return the probabilities of ``table``'s rows weighted by a set of attributes such as "H+M".

    Raises ValueError for an unknown attribute, variant or a missing column.
    """
    letters = attributes.split("+")
    if unknown := [letter for letter in letters if letter not in ATTRIBUTES]:
        raise ValueError(f"unknown attributes {', '.join(unknown)}; known: {', '.join(ATTRIBUTES)}")
    n_classes = probabilities.shape[1]
    factors = [prior_factor(column(train, name), y_train, column(table, name), n_classes)
               for name in (ATTRIBUTES[letter] for letter in letters)]  # fmt: skip
    return with_priors(probabilities, factors, variant)


def text_logits(
    captions_train: pd.Series, y_train: np.ndarray, captions: pd.Series, classifier: ClassifierMixin | None = None
) -> pd.DataFrame:
    """Return logits of captions, rows by filename, columns by class id.

    Args:
        captions_train, captions: cleaned captions indexed by filename.
        classifier: any scikit-learn classifier of texts; TF-IDF with logistic regression by default (the paper has a
            DistilBERT). Log-probabilities where it has them, which are logits up to a constant per image.
    """
    default = make_pipeline(TfidfVectorizer(), LogisticRegression(max_iter=1000))
    model = clone(default if classifier is None else classifier).fit(captions_train.to_numpy(), y_train)
    texts = captions.to_numpy()
    values = model.predict_log_proba(texts) if hasattr(model, "predict_log_proba") else model.decision_function(texts)
    if values.ndim == 1:
        values = np.stack([-values, values], axis=1) / 2
    return pd.DataFrame(values, index=captions.index, columns=model.classes_)


def fuse(image: pd.DataFrame, text: pd.DataFrame, how: str = "sum") -> pd.DataFrame:
    """Return image plus text logits, (N, C), rows and columns as ``image`` has them.

    ``how``: "sum", as the code has it, or "mean", as the paper says: the same answers, other confidences.

    Raises ValueError for a picture without text, different class ids, a name given twice, or an unknown ``how``.
    """
    if how not in ("sum", "mean"):
        raise ValueError(f"unknown way to fuse {how!r}; known: sum, mean")
    if image.index.has_duplicates or text.index.has_duplicates:
        raise ValueError("a picture is given twice")
    if missing := image.index.difference(text.index).tolist():
        raise ValueError(f"no text logits for {len(missing)} pictures, such as {', '.join(map(str, missing[:5]))}")
    if set(image.columns) != set(text.columns):
        raise ValueError(f"image and text know different classes: {sorted(set(image.columns) ^ set(text.columns))[:5]}")
    total = image + text.loc[image.index, image.columns]
    return total / 2 if how == "mean" else total

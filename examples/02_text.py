"""Tags for short texts: TF-IDF, label sets as lists of names, and three methods side by side."""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MultiLabelBinarizer

from fbeta import FBetaClassifierCV, LabelStatistics, decode, make_fbeta_scorer
from fbeta.metrics import fbeta_per_instance

WORDS = {
    "cooking": ["oven", "butter", "simmer", "garlic", "dough", "recipe", "whisk", "salt"],
    "garden": ["soil", "prune", "seed", "compost", "tulip", "hedge", "herb", "frost"],
    "health": ["sleep", "pulse", "vitamin", "diet", "muscle", "herb", "salt", "doctor"],
    "money": ["budget", "tax", "loan", "saving", "price", "invoice", "rent", "bank"],
    "sport": ["match", "coach", "sprint", "muscle", "score", "goal", "league", "tackle"],
    "travel": ["airport", "hotel", "visa", "border", "beach", "luggage", "price", "ferry"],
}
COMMON = [
    *("today", "people", "small", "good", "week", "thing", "look", "place"),
    *("long", "home", "find", "year", "time", "new"),
]
# topics that go together
AFFINITY = {"garden": "cooking", "health": "sport", "money": "travel"}


def make_corpus(n: int, seed: int) -> tuple[list[str], list[list[str]]]:
    """Draw texts of 5 to 40 words with 0 to 3 tags; short texts may not mention all their tags."""
    rng = np.random.default_rng(seed)
    texts, tags = [], []
    for _ in range(n):
        chosen = set(rng.choice(list(WORDS), rng.choice(3, p=[0.1, 0.5, 0.4]), replace=False))
        chosen |= {
            AFFINITY[tag] for tag in sorted(chosen) if tag in AFFINITY and rng.random() < 0.5
        }
        topical = [word for tag in sorted(chosen) for word in WORDS[tag]]
        words = [
            rng.choice(topical if topical and rng.random() < 0.15 else COMMON)
            for _ in range(rng.integers(5, 41))
        ]
        texts.append(" ".join(words))
        tags.append(sorted(str(tag) for tag in chosen))
    return texts, tags


def main(output: Path | None = None) -> dict[str, float]:
    """Return the key numbers; write a picture into the folder ``output``."""
    texts, tags = make_corpus(1200, seed=0)
    new_texts, new_tags = make_corpus(1500, seed=1)

    model = make_pipeline(TfidfVectorizer(), FBetaClassifierCV(alphas=[0.01, 0.1, 1.0], cv=3))
    model.fit(texts, tags)

    # one classifier per tag, C by the same measure and the same folds
    names = MultiLabelBinarizer().fit(tags)
    usual = GridSearchCV(
        make_pipeline(TfidfVectorizer(), OneVsRestClassifier(LogisticRegression(max_iter=500))),
        {"onevsrestclassifier__estimator__C": [1.0, 10.0, 100.0]},
        scoring=make_fbeta_scorer(1.0),
        cv=3,
    ).fit(texts, names.transform(tags))
    P = usual.predict_proba(new_texts)

    predicted = {
        "fbeta": model.predict(new_texts),
        "per tag, cut at 1/2": names.inverse_transform((P > 0.5).astype(int)),
        "per tag, exact decode": names.inverse_transform(
            decode(LabelStatistics.from_marginals(P), beta=1.0)
        ),
    }
    scores = {name: fbeta_per_instance(new_tags, sets) for name, sets in predicted.items()}
    length = np.array([len(text.split()) for text in new_texts])
    if output is not None:
        draw(Path(output), length, scores)
    numbers = {f"F_1, {name}": float(values.mean()) for name, values in scores.items()}
    short = length <= 15
    numbers |= {
        f"F_1 of short texts, {name}": float(values[short].mean())
        for name, values in scores.items()
    }
    numbers["tags per text, truth"] = float(np.mean([len(row) for row in new_tags]))
    numbers |= {
        f"tags per text, {name}": float(np.mean([len(row) for row in sets]))
        for name, sets in predicted.items()
    }
    return numbers


def draw(folder: Path, length, scores) -> None:
    edges = np.array([5, 11, 17, 23, 29, 35, 41])
    place = np.digitize(length, edges) - 1
    centres = (edges[:-1] + edges[1:] - 1) / 2
    with plt.style.context(Path(__file__).with_name("page.mplstyle")):
        figure, axes = plt.subplots(figsize=(6, 3.4))
        for (name, values), mark in zip(scores.items(), "osv", strict=True):
            means = [values[place == b].mean() for b in range(len(centres))]
            axes.plot(centres, means, f"{mark}-", label=name)
        axes.set(xlabel="words in the text", ylabel="F_1", title="Tags for made-up texts")
        axes.legend()
        figure.savefig(folder / "02_text.png")
        plt.close(figure)


if __name__ == "__main__":
    plt.switch_backend("Agg")
    for name, value in main(Path(sys.argv[1] if len(sys.argv) > 1 else ".")).items():
        print(f"{name:<44} {value:.3f}")

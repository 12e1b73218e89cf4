"""A made-up table of support tickets with text and tags, for ``fbeta demo``."""

from __future__ import annotations

from datetime import date, timedelta

import numpy as np

__all__ = ["make_tickets"]

WORDS = {
    "billing": "invoice charged payment card twice amount bank statement",
    "refund": "refund money back return cancel charged order",
    "delivery": "parcel delivery late courier address tracking order",
    "damaged": "broken damaged box scratched parcel photo return",
    "account": "password login email account locked reset profile",
    "app": "app crash screen update phone version login slow",
    "warranty": "warranty repair broken serial receipt months replace",
    "feedback": "thanks great suggestion improve love service idea",
}
FILLER = "hello please the my is was and again since yesterday can you help with i have not"
CHANNELS = ("email", "chat", "phone")
WORDS_PER_TAG, FILLER_WORDS = 3, 7


def make_tickets(n: int, seed: int) -> list[list[object]]:
    """Make n tickets: a header, then rows of id, date, channel, amount, message and tags.

    Tags share words and come in pairs more often than chance; some tickets have none.
    """
    rng = np.random.default_rng(seed)
    names = list(WORDS)
    likely = rng.dirichlet(np.full(len(names), 0.4), size=12)  # kinds of tickets
    rows: list[list[object]] = [["ticket", "opened", "channel", "amount", "message", "tags"]]
    for number in range(n):
        kind = rng.integers(len(likely))
        count = rng.choice(4, p=[0.06, 0.44, 0.38, 0.12])
        tags = sorted({names[k] for k in rng.choice(len(names), size=count, p=likely[kind])})
        words = list(rng.choice(FILLER.split(), size=rng.integers(3, FILLER_WORDS + 1)))
        for tag in tags:
            words += list(rng.choice(WORDS[tag].split(), size=rng.integers(1, WORDS_PER_TAG + 1)))
        rng.shuffle(words)
        opened = date(2024, 1, 1) + timedelta(days=int(rng.integers(730)))
        paid = rng.gamma(2.0, 60.0 if {"warranty", "damaged"} & set(tags) else 20.0)
        amount = "" if rng.uniform() < 0.1 else f"{paid:.2f}"
        channel = CHANNELS[kind % 3] if rng.uniform() < 0.7 else str(rng.choice(CHANNELS))
        rows.append([number, opened.isoformat(), channel, amount, " ".join(words), ";".join(tags)])
    return rows

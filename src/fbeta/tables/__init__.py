"""Tables as people have them: what their columns hold, and features that a model can use."""

from fbeta.tables.encoder import TableEncoder
from fbeta.tables.looks import KINDS, Look, look_at
from fbeta.tables.tags import TagForm, find_tag_form, read_tags

__all__ = [
    "KINDS",
    "Look",
    "TableEncoder",
    "TagForm",
    "find_tag_form",
    "look_at",
    "read_tags",
]

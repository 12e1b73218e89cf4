"""The commands of ``fbeta``: arguments in, calls of the library, tables out."""

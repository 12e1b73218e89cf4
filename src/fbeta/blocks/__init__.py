"""More rows than memory: fits to blocks of rows on disk, or on the workers of Dask."""

from fbeta.blocks.problems import CheckpointError
from fbeta.blocks.rows import RowBlocks

__all__ = ["CheckpointError", "RowBlocks"]

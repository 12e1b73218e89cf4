from typing import Any

import numpy as np
from numpy.typing import NDArray

WIDEST: int

class Problems:
    def __init__(
        self,
        n: int,
        p: int,
        arrays: dict[str, Any],
        W: NDArray[np.float64],
        n_iter: NDArray[np.intc],
        status: NDArray[np.intc],
        loss: str,
        *,
        single: bool,
        intercept: bool,
        width: int,
        cold: bool,
        tol: float,
        aim: float,
        floor: float,
        forcing: float,
        loose: float,
        far: float,
        flat_before: float,
        flat_beyond: float,
        max_iter: int,
        max_steps: int,
        max_trials: int,
    ) -> None: ...
    def work(self, passes: int) -> None: ...
    def stop(self) -> None: ...

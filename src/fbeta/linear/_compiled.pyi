from typing import Any

import numpy as np
from numpy.typing import NDArray

class Problems:
    def __init__(
        self,
        n: int,
        p: int,
        arrays: dict[str, Any],
        W: NDArray[np.float64],
        n_iter: NDArray[np.intc],
        certified: NDArray[np.intc],
        trust: NDArray[np.float64],
        loss: int,
        *,
        tol: float,
        floor: float,
        forcing: float,
        aim: float,
        finest: float,
        max_iter: int,
        max_steps: int,
        loose: float = ...,
        far: float = ...,
        armijo: float = ...,
        flat: float = ...,
        cold: bool = ...,
        width: int = ...,
    ) -> None: ...
    def work(self, passes: int) -> None: ...
    def stop(self) -> None: ...

from collections.abc import Mapping
from typing import Any

LOSSES: dict[str, int]
WIDEST: int

class Problems:
    def __init__(self, numbers: Mapping[str, float], arrays: Mapping[str, Any]) -> None: ...
    def work(self, passes: int) -> None: ...
    def stop(self) -> None: ...

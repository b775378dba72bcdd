"""Bit-identical arithmetic: environment, thread counts, and what a result records about them.

The same settings must give the same bits on Ray, in process and in a deployment. Three things break that
silently: the number of threads (another order of summation), MKL's choice of kernel by the *alignment* of an
array, and non-deterministic kernels. All three are pinned here, in every process, before MKL's first call.
NumPy's own BLAS reads its environment when NumPy is imported, which Ray does before us: what runs in a training
therefore uses torch or NumPy's element-wise sums, never NumPy's BLAS.
"""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from common.settings import Settings

# Raise this when the arithmetic of a run changes: results with different versions are not comparable bit for bit.
NUMERICS_VERSION = 2

_PINNED = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    # One code path whatever the alignment: `W @ h` otherwise differs for a memory-mapped copy of W. The strict AVX2 path
    # gave the same bits at every alignment tried, at 2.5 times the speed of MKL's COMPATIBLE in batched products.
    "MKL_CBWR": "AVX2,STRICT",
    # What cuBLAS needs for deterministic algorithms.
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
}


def pin_environment() -> None:
    """Set the environment variables that BLAS libraries read when they are loaded."""
    os.environ.update(_PINNED)


def pin_torch() -> None:
    """One thread, deterministic kernels. Call once per process, before the first tensor operation."""
    import torch

    torch.set_num_threads(1)
    # `use_deterministic_algorithms` does the same, and imports the compiler: 3 s in every process of a deployment.
    torch.set_deterministic_debug_mode("error")
    # Buffers are always written before they are read, so filling fresh memory would only cost time.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def check_device(settings: Settings) -> None:
    """Raises `ValueError` where the device of the settings is not there."""
    import torch

    if settings.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device must be 'cpu' where no GPU is available. Received 'cuda'.")


def describe() -> dict[str, str | int]:
    """What bit-identity is claimed for: this arithmetic version, torch build and processor."""
    import numpy
    import torch

    return {
        "numerics_version": NUMERICS_VERSION,
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
        "cpu": _cpu_model(),
    }


def _cpu_model() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()

"""The fractions of a GPU's memory bandwidth and arithmetic rate that a program reaches."""

from __future__ import annotations

# The manufacturer's values: memory bandwidth in GB/s; arithmetic in float32 and in float64, without
# tensor cores, in TFLOP/s.
GPUS = {
    "H200": (4800, 67.0, 34.0),
    "H100 PCIe": (2039, 51.0, 26.0),
    "H100": (3350, 67.0, 34.0),
    "A100": (2039, 19.5, 9.7),
    "L40S": (864, 91.6, 1.4),
    "L4": (300, 30.3, 0.47),
    "V100": (900, 15.7, 7.8),
    "T4": (320, 8.1, 0.25),
    "RTX 5090": (1792, 104.8, 1.6),
    "RTX 4090": (1008, 82.6, 1.3),
    "RTX 3090": (936, 35.6, 0.56),
}


def fractions(cell: dict) -> tuple[float, float] | None:
    """The fractions of the limits of memory and arithmetic, for the fastest call of a cell.

    None if the limits of the device or the counts of the program are not known. XLA counts the
    bytes and operations in the compiled program. It counts all bytes that a kernel reads or writes,
    also those in a cache.
    """
    peak = next((peak for name, peak in GPUS.items() if name in cell.get("device", "")), None)
    if peak is None or not cell.get("bytes") or not cell.get("flops") or "min_us" not in cell:
        return None
    seconds = 1e-6 * cell["min_us"] * cell["batch"]
    arithmetic = peak[1] if cell["dtype"] == "float32" else peak[2]
    return cell["bytes"] / seconds / (1e9 * peak[0]), cell["flops"] / seconds / (1e12 * arithmetic)

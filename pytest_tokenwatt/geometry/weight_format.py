"""A number format of weights with the scales that belong to it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Format:
    """``bits`` a weight; blocks of ``rows`` by ``cols`` weights share ``scale_bits`` (scale and zero point).

    ``cols`` 0 means a whole row; ``scale_bits`` 0 that scales are too few to count (one a matrix).
    """

    name: str
    bits: float
    rows: int = 1
    cols: int = 0
    scale_bits: float = 0.0

    def bytes_of(self, rows: int, cols: int) -> float:
        """Bytes of a matrix of this size; blocks at its edges count whole."""
        blocks = -(-rows // self.rows) * -(-cols // (self.cols or cols))
        return (rows * cols * self.bits + blocks * self.scale_bits) / 8


MXFP4 = Format("MXFP4", 4, 1, 32, 8)
"""32 weights share an 8-bit power of two: 4.25 bits (OCP Microscaling)."""
MXFP8 = Format("MXFP8", 8, 1, 32, 8)
"""32 weights share an 8-bit power of two: 8.25 bits (OCP Microscaling)."""
NVFP4 = Format("NVFP4", 4, 1, 16, 8)
"""16 weights share an FP8 scale: 4.5 bits, and a global scale that does not count."""

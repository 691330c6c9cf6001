"""PNG files."""

from __future__ import annotations

import struct
import zlib

import numpy as np


def png_bytes(picture: np.ndarray) -> bytes:
    """The PNG file of a picture (height, width, 3) of uint8. Source: the PNG specification."""
    height, width, _ = picture.shape
    # The byte 0 in front of each row means that the row is not filtered.
    rows = np.concatenate([np.zeros((height, 1), np.uint8), picture.reshape(height, -1)], axis=1)

    def chunk(kind: bytes, content: bytes) -> bytes:
        checksum = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)

    # 8 bits per colour, red-green-blue, standard compression and filters, not interlaced.
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", header),
            chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)),
            chunk(b"IEND", b""),
        ]
    )

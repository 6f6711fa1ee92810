"""Ways in which files are damaged."""

import random


def damaged(content: bytes, seed: int) -> bytes:
    """The content with a fault that the seed chooses: flipped bits, cuts, noise, zeros, repeats, lies about lengths."""
    rng, found = random.Random(seed), bytearray(content)
    at = (
        rng.randrange(len(found)) if seed % 2 else rng.randrange(min(len(found), 400))
    )  # headers are short
    stretch = slice(at, at + rng.choice((1, 8, 64, 512)))
    length = len(found[stretch])
    match seed % 9:
        case 0:
            found[at] ^= 1 << rng.randrange(8)
        case 1:
            found = found[:at]
        case 2:
            found[stretch] = rng.randbytes(length)
        case 3:
            found[stretch] = bytes(length)
        case 4:
            found += rng.randbytes(rng.randrange(1, 64))
        case 5:
            found[stretch] = found[stretch] * 2
        case 6:
            del found[stretch]
        case 7:
            found[:8] = rng.randrange(2 ** rng.choice((8, 16, 32, 63))).to_bytes(8, "little")
        case _:
            found = found[at:] + found[:at]
    return bytes(found)

"""Numbers in sentences."""


def apart(found: float, limit: float, form: str = "f", digits: int = 2) -> tuple[str, str]:
    """A number and its limit as text, with more digits if they would look equal and are not.

    **Arguments:**

    - `form`, `digits`: of the format, such as `"f"` and 2 for two decimals.
    """
    texts = [(f"{found:.{n}{form}}", f"{limit:.{n}{form}}") for n in range(digits, digits + 3)]
    if found == limit:
        return texts[0]
    return next((both for both in texts if both[0] != both[1]), texts[-1])

"""Signatures of requests: `ksivi resume` runs no model that the user did not name.

A signature is a keyed hash (HMAC) of the request, its folder and the model file's contents. The key
is in a file that only the user can read.
"""

import contextlib
import hashlib
import hmac
import json
import os
import secrets
from pathlib import Path
from typing import Any

from .._core.cache import cache_folder
from .._core.files import open_regular

_LENGTH = 32


def sign(request: dict[str, Any], folder: Path) -> str | None:
    """The signature of a request in this folder; None if there is no safe place for a key."""
    key = _key() or _new_key()
    return None if key is None else _code(key, request, folder)


def is_signed(signature: Any, request: dict[str, Any], folder: Path) -> bool:
    """Whether this user signed this request for this folder, and the model is still the same."""
    key = _key()
    if key is None or not isinstance(signature, str) or not signature.isascii():
        return False
    return hmac.compare_digest(signature, _code(key, request, folder))


def _code(key: bytes, request: dict[str, Any], folder: Path) -> str:
    model = Path(request["cwd"]) / request["model"].rpartition(":")[0]
    try:
        with open_regular(model) as file:
            contents = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
    except (OSError, ValueError):
        contents = ""
    signed = json.dumps([request, os.path.realpath(folder), contents], sort_keys=True)
    return hmac.new(key, signed.encode(errors="surrogatepass"), "sha256").hexdigest()


def _path() -> Path:
    return cache_folder() / "signing-key"


def _key() -> bytes | None:
    """The user's key, if there is one that nobody else can know or replace."""
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        with open_regular(_path()) as file:
            found, key = os.fstat(file.fileno()), file.read(_LENGTH + 1)
        if os.name == "nt":
            return key if len(key) == _LENGTH else None
        is_own = found.st_uid == os.getuid() and found.st_mode & 0o077 == 0
        return key if is_own and len(key) == _LENGTH else None
    return None


def _new_key() -> bytes | None:
    """Writes a key, unless another process was faster, and returns the key that is there."""
    with contextlib.suppress(OSError, RuntimeError):
        path = _path()
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(secrets.token_bytes(_LENGTH))
            with contextlib.suppress(FileExistsError):
                os.link(beside, path)  # unlike a rename, it never replaces a key
        finally:
            beside.unlink()
    return _key()

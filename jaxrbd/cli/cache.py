"""Compiled programs that the commands keep between runs, in the user's cache folder."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax

from .messages import error_message, warn

_FOLDER_VARIABLE = "JAX_COMPILATION_CACHE_DIR"
_SECONDS_VARIABLE = "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"


def user_folder() -> Path:
    """The folder for compiled programs in the cache folder of the user, by the platform's rule.

    Raises RuntimeError if the user has no home folder.
    """
    if sys.platform == "darwin":
        parent = Path.home() / "Library" / "Caches"
    elif sys.platform == "win32":
        parent = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        parent = Path(os.environ.get("XDG_CACHE_HOME", ""))
        if not parent.is_absolute():  # the rule of XDG for a path that is relative or not set
            parent = Path.home() / ".cache"
    return parent / "jaxrbd" / "programs"


def keep_programs(options: argparse.Namespace) -> None:
    """Make JAX keep compiled programs in `user_folder`, for a command that accepts `--no-cache`.

    If the function makes the folder, it says so on standard error. If the folder cannot be written,
    the function prints a warning, and JAX compiles all programs. If the user has chosen a folder
    for JAX or has switched the cache of JAX off, the function changes nothing. With `--no-cache`,
    the function switches this cache off.
    """
    if not hasattr(options, "no_cache"):
        return
    if options.no_cache:
        jax.config.update("jax_enable_compilation_cache", False)
        return
    config: Any = jax.config  # its options have no annotations
    chosen = _FOLDER_VARIABLE in os.environ or config.jax_compilation_cache_dir
    if chosen or not config.jax_enable_compilation_cache:
        return
    try:
        folder = user_folder()
        made = not folder.exists()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()  # raises OSError if the folder cannot be written
    except (OSError, RuntimeError) as error:
        warn(f"compiled programs are not kept: {error_message(error)}")
        return
    if made:
        print(
            f"jaxrbd: compiled programs are kept in {folder} for the next runs; --no-cache or "
            f"another folder in {_FOLDER_VARIABLE} changes this",
            file=sys.stderr,
        )
    jax.config.update("jax_compilation_cache_dir", str(folder))
    if _SECONDS_VARIABLE not in os.environ:  # keep the many small programs, too
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)

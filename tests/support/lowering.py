"""JAX lowers many programs in one MLIR context.

JAX makes an MLIR context for each program, and loads all dialects into it. For a program of one
operation this takes a third of the time of its lowering and compilation. The programs are the
same in a context that has lowered other programs before.
"""

try:
    import jax._src.interpreters.mlir as mlir
except ImportError:  # a private module, which another version of JAX may not have
    mlir = None

# A context keeps the constants of its programs in memory.
PROGRAMS = 100


def share_contexts() -> None:
    """Let each context lower `PROGRAMS` programs, if the installed JAX has this function."""
    make = getattr(mlir, "make_ir_context", None)
    if make is None:
        return
    lowered, context = 0, None

    def make_ir_context():
        nonlocal lowered, context
        if lowered % PROGRAMS == 0:
            context = make()
        lowered += 1
        return context

    mlir.make_ir_context = make_ir_context

"""Implementations of the passes, and of functions of single bodies or dofs, for GPUs.

- `products.py`: a pass as products with a constant 0/1 matrix;
- `kernels.py`: a pass, or a function of single nodes, as one GPU kernel; `lanes.py`: the step of
  the pass, or the function, inside this kernel;
- `rows.py`: batches and derivatives of functions of single nodes that are one kernel.
"""

"""Other formulations of constrained motion, which no other module uses.

- Explicit constraints `q = gamma(y)`: `explicit.py`.
- One body on one joint: `single_body.py`.
- Maximal coordinates, with all joints as constraints between free bodies: `maximal.py`.
"""

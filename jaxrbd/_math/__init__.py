"""Numerical functions: components, series, rows of arrays, linear algebra, root finding."""

"""Arithmetic without robots: components, series, rows of arrays, linear algebra, root finding."""

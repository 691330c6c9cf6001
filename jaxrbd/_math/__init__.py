"""Arithmetic that knows nothing of robots: components, series, rows, linear algebra, roots."""

"""Shared by the tests: robots, states, oracles, and scripts for separate processes."""

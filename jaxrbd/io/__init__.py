"""Readers of robot files: each turns a text into links and joints for `jaxrbd.builder`."""

"""Files: readers of robots, and the package's own files of models and of programs."""

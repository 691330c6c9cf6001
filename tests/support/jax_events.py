"""The events in which JAX traces and compiles."""

import contextlib

import jax

_heard: list[list[str]] = []  # one list for each `work` that is active


def _listen(event: str, duration: float, **_) -> None:
    if event.endswith(("jaxpr_trace_duration", "backend_compile_duration")):
        for events in _heard:
            events.append(event)


# The listener stays: the oldest supported JAX cannot remove one.
jax.monitoring.register_event_duration_secs_listener(_listen)


@contextlib.contextmanager
def work():
    """A list of the names of the events in which JAX traces or compiles inside this context."""
    events: list[str] = []
    _heard.append(events)
    try:
        yield events
    finally:
        _heard.pop()

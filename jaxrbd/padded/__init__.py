"""Robots of different structure as one batch: one compiled program for all of them.

`pad` gives several robots one common tree, so that `jax.vmap` over `PaddedRobots.model` is a batch
of different robots. `pad_scenes` does the same with their contact scenes. `alike` sorts robots into
batches whose common trees are small.
"""

from .common_tree import alike
from .robots import PaddedRobots, pad
from .scenes import PaddedScenes, acting_contacts, pad_scenes

__all__ = ["PaddedRobots", "PaddedScenes", "acting_contacts", "alike", "pad", "pad_scenes"]

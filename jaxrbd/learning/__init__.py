"""Learning of policies: SHAC, APG, PPO and imitation, on the environments of `jaxrbd.envs`.

Each algorithm is one file with the symbols of its paper: `shac.py`, `apg.py`, `ppo.py`,
`imitation.py`. A `Training` runs the updates of an algorithm, gives metrics, and writes
checkpoints. The module needs optax: `pip install optax`. `import jaxrbd` does not import this
module.
"""

from .apg import Apg, ApgState
from .attention import AttentionNetwork, JointAttention
from .checkpoint import load_checkpoint, read_description, save_checkpoint
from .event_files import tensorboard_writer
from .imitation import Imitation, ImitationState
from .mirror import Symmetric, SymmetricNetwork
from .plain_controller import Commands, controller_arrays, numpy_controller
from .plain_policy import numpy_policy, policy_arrays
from .policy_file import export_policy, policy_description
from .ppo import Ppo, PpoState
from .shac import Shac, ShacState
from .tasks import algorithm_for, load_task, load_training, task_names
from .training import Evaluation, Evaluations, Record, Training, evaluate, motions

__all__ = [
    # algorithms
    "Apg",
    "ApgState",
    "Imitation",
    "ImitationState",
    "Ppo",
    "PpoState",
    "Shac",
    "ShacState",
    # networks
    "AttentionNetwork",
    "JointAttention",
    "Symmetric",
    "SymmetricNetwork",
    # training
    "Evaluation",
    "Evaluations",
    "Record",
    "Training",
    "evaluate",
    "motions",
    "tensorboard_writer",
    # tasks
    "algorithm_for",
    "load_task",
    "load_training",
    "task_names",
    # policies without JAX
    "Commands",
    "controller_arrays",
    "export_policy",
    "numpy_controller",
    "numpy_policy",
    "policy_arrays",
    "policy_description",
    # checkpoints
    "load_checkpoint",
    "read_description",
    "save_checkpoint",
]

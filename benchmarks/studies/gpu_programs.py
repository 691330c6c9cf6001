"""Kernels and memory traffic of jaxrbd's programs on an NVIDIA H200, counted without a GPU.

    pip install -e ".[kernels]"
    pip install --no-deps jax-cuda12-plugin==VERSION jax-cuda12-pjrt==VERSION   # VERSION of JAX
    python -m benchmarks.studies.gpu_programs [--robot humanoid] [--batch 65536] [--jobs rnea,fd]
        [--implementations scan,products,parallel,kernels]

XLA compiles the programs for the description of the GPU below. The counts are facts of the compiled
programs: kernels that one call launches, steps of loops, and bytes per sample that the kernels read
and write. The kernels of a loop count once per step. A kernel is assumed to read each operand once,
and only the slice where it reads a slice. No time is measured.
"""

import itertools
import math
import os
import re
from collections.abc import Callable

from benchmarks.studies import common

H200 = """
platform_name: "CUDA"
device_description_str: "NVIDIA H200"
dnn_version_info { major: 9 minor: 8 }
runtime_version { major: 12 minor: 8 }
gpu_device_info {
  cuda_compute_capability { major: 9 minor: 0 }
  core_count: 132 fpus_per_core: 128 threads_per_warp: 32 clock_rate_ghz: 1.98
  threads_per_block_limit: 1024 threads_per_core_limit: 2048
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  shared_memory_per_block: 49152 shared_memory_per_core: 233472
  shared_memory_per_block_optin: 232448 l2_cache_size: 62914560
  memory_bandwidth: 4800000000000 device_memory_size: 150000000000
  driver_version: "12.9.0" runtime_version: "12.9.0" compile_time_toolkit_version: "12.9.0"
}
"""
BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "f32": 4}
BYTES |= {"s64": 8, "u64": 8, "f64": 8}
# Instructions that launch nothing.
NOT_A_KERNEL = set(
    """
    add-dependency after-all async-done bitcast constant copy-done get-tuple-element opt-barrier
    parameter partition-id replica-id tuple
    """.split()
)
SLICES = {"slice", "dynamic-slice", "gather"}


class Instruction:
    """One line of an optimized program (HLO): name, type, operation, operands and attributes."""

    def __init__(self, line: str):
        self.is_root = "ROOT " in line[:12]
        self.name, rest = re.match(r"\s*(?:ROOT )?%?([\w.\-]+) = (.*)$", line).groups()
        end = _closing(rest) if rest.startswith("(") else rest.index(" ")
        self.type = rest[:end]
        self.operation = re.match(r"\s*([\w\-]+)\(", rest[end:]).group(1)
        rest = rest[end:].lstrip()[len(self.operation) :]
        end = _closing(rest)
        self.operands = re.findall(r"%([\w.\-]+)", rest[:end])
        self.attributes = rest[end:]

    def called(self, key: str) -> list[str]:
        """The computations in an attribute of the instruction."""
        return re.findall(rf"\b(?:{key})=%?([\w.\-]+)", self.attributes)


def _closing(text: str) -> int:
    """The position after the parenthesis that closes the first one."""
    depth = 0
    for position, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if not depth:
            return position + 1
    raise ValueError(f"no closing parenthesis in {text[:80]!r}")


def size(type_: str) -> int:
    """The bytes of an array or of a tuple of arrays."""
    arrays = re.findall(rf"\b({'|'.join(BYTES)})\[([\d,]*)\]", type_)
    return sum(BYTES[t] * math.prod(int(n) for n in dims.split(",") if n) for t, dims in arrays)


def computations(text: str) -> tuple[dict[str, dict[str, Instruction]], str]:
    """The instructions of each computation, by name; and the name of the main computation."""
    found: dict[str, dict[str, Instruction]] = {}
    main = name = ""
    for line in text.splitlines():
        if head := re.match(r"(ENTRY )?%?([\w.\-]+) \(.*\{$", line):
            name = head.group(2)
            found[name] = {}
            main = name if head.group(1) else main
        elif name and re.match(r"\s+(ROOT )?%?[\w.\-]+ = ", line):
            instruction = Instruction(line)
            found[name][instruction.name] = instruction
    return found, main


def traffic_of_fusion(body: dict[str, Instruction]) -> int:
    """The bytes that a fused kernel reads and writes."""

    def uses(name: str):
        for user in body.values():
            for place, operand in enumerate(user.operands):
                if operand == name and user.operation == "bitcast":
                    yield from uses(user.name)
                elif operand == name:
                    yield user, place

    def written(name: str) -> int:
        result = body[name]
        if result.operation == "bitcast":
            return written(result.operands[0])
        updates = result.operation == "dynamic-update-slice"
        return size(body[result.operands[1]].type if updates else result.type)

    total = 0
    for parameter in body.values():
        if parameter.operation == "parameter":
            read = 0
            for user, place in uses(parameter.name):
                if place == 0 and user.operation in SLICES:
                    read += size(user.type)
                elif not (place == 0 and user.operation == "dynamic-update-slice"):
                    read = math.inf
            total += min(read, size(parameter.type))
    (root,) = (x for x in body.values() if x.is_root)
    return total + sum(map(written, root.operands if root.operation == "tuple" else [root.name]))


def trips(loop: Instruction) -> int:
    """The number of steps of a loop."""
    return int(re.search(r'known_trip_count":\{"n":"(\d+)"', loop.attributes).group(1))


def count(text: str) -> dict[str, int]:
    """Kernels, steps of loops and bytes of one call of an optimized program."""
    bodies, main = computations(text)

    def kernel_bytes(x: Instruction, body: dict[str, Instruction]) -> int:
        if x.operation == "fusion":
            return traffic_of_fusion(bodies[x.called("calls")[0]])
        if x.operation == "dynamic-update-slice":
            return 2 * size(body[x.operands[1]].type)
        if x.operation in SLICES:
            return 2 * size(x.type)
        return size(x.type) + sum(size(body[name].type) for name in x.operands)

    def total(name: str) -> dict[str, int]:
        found = {"kernels": 0, "steps": 0, "bytes": 0}
        for x in bodies[name].values():
            repeat, inner = 1, []
            if x.operation == "while":
                repeat = trips(x)
                inner = x.called("body")
                found["steps"] += repeat
            elif x.operation in ("call", "conditional", "async-start"):
                inner = x.called("to_apply|calls|true_computation|false_computation")
            elif x.operation not in NOT_A_KERNEL:
                found["kernels"] += 1
                found["bytes"] += kernel_bytes(x, bodies[name])
            for other in inner:
                for key, count in total(other).items():
                    found[key] += repeat * count
        return found

    return total(main)


def depth(text: str) -> int:
    """The number of kernels on the longest path of a compiled program; loops count every step."""
    bodies, main = computations(text)

    def longest(name: str) -> int:
        found: dict[str, int] = {}
        for x in bodies[name].values():
            own = x.operation not in NOT_A_KERNEL
            if x.operation == "while":
                own = trips(x) * longest(x.called("body")[0])
            elif x.operation == "call":
                own = longest(x.called("to_apply")[0])
            found[x.name] = own + max((found[y] for y in x.operands if y in found), default=0)
        return max(found.values())

    return longest(main)


def programs() -> dict[str, tuple[Callable, int]]:
    """For each job a function of the model, q and other vectors (nv,), and the number of these."""
    import jax
    import jax.numpy as jnp

    import jaxrbd as rbd

    def gradient(model, q, v, a):
        return jax.grad(lambda a: jnp.sum(rbd.rnea(model, q, v, a) ** 2))(a)

    return {
        "fk": (lambda model, q: rbd.forward_kinematics(model, q).X_WB, 0),
        "rnea": (rbd.rnea, 2),
        "crba": (rbd.crba, 0),
        "fd": (rbd.forward_dynamics, 2),
        "drnea": (rbd.rnea_derivatives, 2),
        "dfd": (rbd.forward_dynamics_derivatives, 2),
        "gradient": (gradient, 2),
    }


def compiled(robot: str, batch: int, job: str, implementation: str) -> str:
    """The optimized program of a job for an H200, in float32."""
    import jax
    import jax.numpy as jnp
    from jax.experimental import topologies

    import jaxrbd as rbd
    from benchmarks import robots

    gpu = topologies.get_topology_desc(platform="cuda", topology="1x1x1", target_config=H200)
    sharding = jax.sharding.SingleDeviceSharding(gpu.devices[0])

    def abstract(*shape):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)

    model = robots.bundled(robot)
    function, vectors = programs()[job]
    operands = [abstract(batch, model.nq), *[abstract(batch, model.nv)] * vectors]
    mapped = jax.jit(jax.vmap(function, (None, *[0] * len(operands))))
    leaves = jax.tree.map(lambda x: abstract(*x.shape), model)
    with rbd.tree.implementation(implementation):
        return mapped.lower(leaves, *operands).compile().as_text()


def main() -> None:
    # JAX looks for the libraries of CUDA when it starts, and the compiler does not need them.
    os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    implementations = "scan", "products", "kernels"
    given = common.options(
        __doc__,
        robot="humanoid",
        batch=65536,
        jobs=tuple(programs()),
        implementations=implementations,
    )
    print(f"{given.robot}, float32, batch {given.batch}, compiled for an H200\n")
    common.head("job", "implementation", "kernels", "steps of loops", "kB per sample")
    for job, implementation in itertools.product(given.jobs, given.implementations):
        found = count(compiled(given.robot, given.batch, job, implementation))
        kilobytes = f"{found['bytes'] / given.batch / 1000:.1f}"
        common.row(job, implementation, found["kernels"], found["steps"], kilobytes)


if __name__ == "__main__":
    main()

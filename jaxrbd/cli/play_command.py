"""`jaxrbd play`: run the policy of a checkpoint, and show its motion."""

from __future__ import annotations

import argparse

import numpy as np

from ..errors import require_package
from ..io._sealed import replace_file
from ..learning import evaluate, load_training, motions
from ..learning.tasks import with_whole_episodes
from ..model import Model
from ..model.arguments import random_key
from ..view import render, save_html, save_video
from ..view.video import checked_type
from . import parsing
from .png import png_bytes

SHOWN = 8  # episodes of the page, and postures of the picture
# The direction to the camera, as in `render`: from the side, as most robots move in the x-z plane.
SIDE = (0.5, -1.0, 0.3)


def add_parser(commands) -> None:
    """Add the command `play` and its options to the commands."""
    command = commands.add_parser(
        "play",
        help="run the policy of a checkpoint without noise",
        epilog="example: jaxrbd play trained/checkpoint.jaxrbd --html motion.html",
    )
    add = command.add_argument
    add("checkpoint", metavar="CHECKPOINT", help="a file of `jaxrbd train`")
    add("--episodes", type=parsing.count, default=64, metavar="N", help="number of episodes")
    add("--html", metavar="FILE", help="write a page that plays eight episodes")
    add("--png", metavar="FILE", help="write eight postures of one episode as a PNG file")
    add("--video", metavar="FILE", help="write one episode as a video, .gif or .mp4")
    add("--seed", type=parsing.seed, default=0, metavar="N", help="seed of the starts")
    parsing.add_no_cache(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the policy of a checkpoint without noise, and print its returns and mean reward terms.

    Write a page with the motions, and a picture and a video of one episode, if the options name
    files for them. Return the exit status.
    """
    if options.html:
        require_package("viser", "view", "--html")
    if options.video:
        checked_type(options.video)
    training = load_training(options.checkpoint)
    env, task = with_whole_episodes(training), training.task
    updates = training.algorithm.updates
    key = random_key(options.seed)
    found = evaluate(env, training.params, training.policy(), key, options.episodes)
    progress = f"update {len(training.records)} of {updates}"
    name, episodes = training.algorithm_name, options.episodes
    print(f"{task}: {name}, {progress}, {episodes} episodes without noise")
    returns = np.asarray(found.returns)
    print(f"  return    mean {returns.mean():.4g}, from {returns.min():.4g} to {returns.max():.4g}")
    seconds = env.time_step * float(np.mean(found.lengths))
    print(f"  duration  mean {seconds:.3g} s; failed: {int(np.sum(found.terminated))}")
    for name, x in found.terms.items():
        print(f"  {name:<18} {float(np.mean(x)):.4g}")
    if not (options.html or options.png or options.video):
        return 0
    model = training.params.model
    q = np.asarray(motions(env, training.params, training.policy(), key, SHOWN))
    if options.html:
        save_html(options.html, model, q, dt=env.time_step)
        print(f"wrote {options.html}")
    moved = np.any(q[0, 1:] != q[0, :-1], axis=1)  # false after the end of the episode
    episode = q[0, : 2 + np.max(np.flatnonzero(moved), initial=-1)]
    if options.png:
        rows = np.linspace(0, len(episode) - 1, SHOWN).round().astype(int)
        replace_file(options.png, png_bytes(_tiles(model, episode[rows])))
        print(f"wrote {options.png}")
    if options.video:
        root = model.body_names[0]
        save_video(options.video, model, episode, dt=env.time_step, follow=root, camera=SIDE)
        print(f"wrote {options.video}")
    return 0


def _tiles(model: Model, q: np.ndarray) -> np.ndarray:
    """A picture of the configurations (SHOWN, nq), one tile each, in two rows from the left."""
    tiles = np.stack([render(model, x, width=320, height=240, camera=SIDE) for x in q])
    rows = tiles.reshape(2, SHOWN // 2, *tiles.shape[1:])
    return rows.swapaxes(1, 2).reshape(2 * tiles.shape[1], -1, 3)

"""The pictures of docs/conventions.md: `python docs/conventions_pictures.py` writes them."""

import pathlib
import sys

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Circle, Polygon

RED, GREEN, BLUE, GREY, BLACK = "#c1272d", "#2e8b3d", "#1f5fbf", "#9a9a9a", "#202020"

# The planar motion of the example in docs/conventions.md: position, angle, velocities.
P, ANGLE = np.array([1.6, 0.9]), np.radians(35)
V, W = np.array([0.6, 0.25]), 0.5
R = np.array([[np.cos(ANGLE), -np.sin(ANGLE)], [np.sin(ANGLE), np.cos(ANGLE)]])


def arrow(axes, start, step, color, label="", place=(0.0, 0.0), width=1.8):
    """An arrow from `start` by `step`, with a label at its tip, moved by `place`."""
    end = np.add(start, step)
    style = {"arrowstyle": "-|>", "color": color, "lw": width, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", end, start, arrowprops=style | {"mutation_scale": 12})
    axes.text(*np.add(end, place), label, color=color, ha="center", va="center", fontsize=10)


def frame(axes, p, rotation, name, length=0.5, faint=False, below=0.16):
    """The axes x (red) and y (green) of a frame with its name."""
    for direction, color in zip(rotation.T, (RED, GREEN)):
        arrow(axes, p, length * direction, GREY if faint else color, width=1.2 if faint else 1.8)
    axes.plot(*p, "o", color=BLACK, ms=4)
    axes.text(p[0] - 0.08, p[1] - below, name, ha="center", va="center", fontsize=11)


def body(axes, p, rotation, size=(0.75, 0.5)):
    """A rectangle around the origin of a frame."""
    corners = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) * np.array(size)
    axes.add_patch(Polygon(p + corners @ rotation.T, facecolor="#e8eef7", edgecolor="#7b8aa3"))


def turn(axes, center, radius, degrees, color=BLACK, width=1.2):
    """A counterclockwise arc between two angles, with an arrow head at its end."""
    angles = np.radians(np.linspace(*degrees, 30))
    points = center + radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    axes.plot(*points.T, color=color, lw=width)
    arrow(axes, points[-2], points[-1] - points[-2], color, width=width)


def bare(axes, title, x, y):
    """Axes without ticks, with equal scales."""
    axes.set_aspect("equal")
    axes.set_xlim(*x)
    axes.set_ylim(*y)
    axes.axis("off")
    axes.set_title(title, fontsize=10.5)


def poses():
    """A point in two frames, and the pose that maps its coordinates."""
    figure, axes = plt.subplots(figsize=(5.2, 3.0), layout="constrained")
    bare(axes, r"$x_A = R_{AB}\, x_B + p_{AB}$", (-0.4, 3.5), (-0.4, 1.7))
    point = P + R @ np.array([0.7, -1.1])
    arrow(axes, (0, 0), P, BLACK)
    axes.text(0.6, 0.55, "$p_{AB}$", color=BLACK, fontsize=11)
    arrow(axes, (0, 0), point, BLUE)
    axes.text(1.7, 0.05, "$x_A$", color=BLUE, fontsize=11)
    arrow(axes, P, point - P, BLUE)
    axes.text(2.3, 0.68, "$x_B$", color=BLUE, fontsize=11)
    axes.plot(*point, "o", color=BLUE, ms=6)
    axes.text(point[0] + 0.1, point[1], "one point", color=BLUE, fontsize=9, va="center")
    frame(axes, np.zeros(2), np.eye(2), "A")
    frame(axes, P, R, "B")
    return figure


def references():
    """The linear part of the velocity of a frame for the three references."""
    figure, panels = plt.subplots(1, 3, figsize=(8.4, 2.9), layout="constrained")
    at_origin = V - W * np.array([-P[1], P[0]])
    cases = {
        '"local"\norigin and axes of F': (P, R, P, V),
        '"local_world_aligned"\norigin of F, axes of W': (P, np.eye(2), P, V),
        '"world"\norigin and axes of W': (np.zeros(2), np.eye(2), np.zeros(2), at_origin),
    }
    for axes, (title, (place, rotation, start, velocity)) in zip(panels, cases.items()):
        bare(axes, title, (-0.6, 2.9), (-0.8, 2.0))
        body(axes, P, R)
        frame(axes, np.zeros(2), np.eye(2), "W", faint=True)
        frame(axes, P, R, "F", faint=True)
        for direction, color in zip(rotation.T, (RED, GREEN)):
            arrow(axes, place, 0.5 * direction, color)
        arrow(axes, start, velocity, BLUE, "$v$", place=(0.12, 0.06), width=2.4)
        axes.plot(*start, "o", color=BLACK, ms=4)
        linear = rotation.T @ velocity
        text = f"v = ({linear[0]:.2f}, {linear[1]:.2f}, 0) m/s"
        axes.text(1.15, -0.72, text, color=BLUE, fontsize=9, ha="center", va="center")
        turn(axes, P, 0.45, (150, 230))
        axes.text(P[0] - 0.56, P[1] - 0.1, r"$\omega$", fontsize=11, ha="center", va="center")
    return figure


def signs():
    """Positive directions: of a joint, of gravity, and of the force of a contact."""
    figure, panels = plt.subplots(1, 3, figsize=(8.4, 2.7), layout="constrained")
    hinge, gravity, contact = panels

    bare(hinge, "joint: right-hand rule", (-0.5, 1.9), (-0.5, 1.5))
    angle = np.radians(40)
    link = np.array([np.cos(angle), np.sin(angle)])
    hinge.plot([0, 1.6], [0, 0], color=GREY, lw=1.2, ls="--")
    hinge.plot([0, 1.6 * link[0]], [0, 1.6 * link[1]], color="#7b8aa3", lw=7, zorder=0)
    turn(hinge, np.zeros(2), 1.0, (0, 38), BLUE, 1.8)
    hinge.text(1.12, 0.4, "q, v, tau > 0", color=BLUE, fontsize=10)
    hinge.add_patch(Circle((0, 0), 0.1, facecolor="white", edgecolor=BLACK))
    hinge.plot(0, 0, "o", color=BLACK, ms=3)
    hinge.text(-0.15, -0.28, "axis, towards you", fontsize=9, ha="left")

    bare(gravity, "gravity: along -z of the world", (-0.6, 2.1), (-0.5, 1.5))
    for direction, name, color in (((1, 0), "x", RED), ((0, 1), "z", BLUE)):
        arrow(
            gravity,
            (0, 0),
            0.6 * np.array(direction),
            color,
            name,
            place=np.array(direction) * 0.13,
        )
    gravity.plot(0, 0, "o", color=BLACK, ms=4)
    gravity.text(-0.1, -0.18, "W", fontsize=11, ha="center", va="center")
    gravity.add_patch(Circle((1.3, 1.1), 0.16, facecolor="#e8eef7", edgecolor="#7b8aa3"))
    arrow(gravity, (1.3, 1.1), (0, -0.9), BLACK)
    gravity.text(1.3, -0.1, "model.gravity\n= (0, 0, -9.81)", fontsize=9, ha="center", va="center")

    bare(contact, "contact: force on the robot", (-1.2, 1.2), (-0.5, 1.5))
    contact.axhspan(-0.5, 0, color="#e4dccf")
    contact.add_patch(Circle((0, 0.4), 0.4, facecolor="#e8eef7", edgecolor="#7b8aa3"))
    arrow(contact, (0, 0), (0, 1.15), BLUE)
    contact.text(0.07, 1.18, "normal force > 0", color=BLUE, fontsize=9)
    arrow(contact, (0, 0), (-0.6, 0), RED, "friction", place=(-0.28, 0.14))
    arrow(contact, (0.0, 0.4), (0.62, 0), BLACK, "slip", place=(0.2, 0.12))
    contact.text(0, -0.3, "ground", fontsize=9, ha="center", va="center")
    return figure


PICTURES = {
    "conventions_poses": poses,
    "conventions_references": references,
    "conventions_signs": signs,
}


def write(folder):
    """Write all pictures to a folder, and return their paths."""
    paths = []
    for name, draw in PICTURES.items():
        paths.append(pathlib.Path(folder) / f"{name}.png")
        figure = draw()
        figure.savefig(paths[-1], dpi=100, metadata={"Software": None})
        plt.close(figure)
    return paths


if __name__ == "__main__":
    write(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)

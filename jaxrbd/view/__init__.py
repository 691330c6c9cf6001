"""Look at robots: in a notebook, in the browser, in an HTML file, as a picture, or as a video.

`show`, `serve` and `save_html` need viser, and mesh files need trimesh:
`pip install viser 'trimesh[easy]'`.
`render` and `save_video` draw without a browser and without a display.
"""

from .drawing import LAYERS, Drawing, Item, drawing
from .live import Viewer, serve
from .markers import Arrows, Axes, Obstacles, Path, Points, frame_path, separations, targets
from .page import Page, save_html, show
from .picture import render
from .video import save_video

__all__ = [
    "LAYERS",
    "Arrows",
    "Axes",
    "Drawing",
    "Item",
    "Obstacles",
    "Page",
    "Path",
    "Points",
    "Viewer",
    "drawing",
    "frame_path",
    "render",
    "save_html",
    "save_video",
    "separations",
    "serve",
    "show",
    "targets",
]

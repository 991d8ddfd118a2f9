"""The robot in 3D: `Scene`, a viser server that only this process reaches, and what is drawn in it.

    W           the world's frame, a grid on the floor
    robot       the links of its model, or frames of its end effectors and bases where it has none
    plan        where the end effectors will be: what is settled, and what a fresh chunk may still change

viser itself asks for no password and lets any page of any browser on the machine connect: it listens on
loopback and answers only clients that know this process's secret, that is the page's own server (`web`).
"""

import io
import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, redirect_stdout, suppress
from http import HTTPStatus
from typing import Any

import numpy as np

from robot_runtime.page.body import Body, Placed, Shape, base_pose

SECRET_HEADER = "X-Page-Secret"
SETTLED, FRESH, MEASURED = (255, 170, 60), (70, 160, 255), (120, 120, 130)
_GRID = (88, 94, 102)
_FOV = np.deg2rad(42.0)
_SHARP = np.deg2rad(35.0)
"""Edges with a sharper angle are drawn as edges."""
_NICE = 10
_HAND_AXES, _BASE_AXES = 0.08, 0.25
"""Lengths of the frames' axes [m]."""


class Scene(AbstractContextManager["Scene"]):
    """Draws the robot and its plan; one thread owns it."""

    def __init__(self, body: Body | None) -> None:
        """body: the robot's model; None: its end effectors and bases are shown as frames."""
        self.body = body
        self.secret = secrets.token_urlsafe(24)
        self._server = _private_server(self.secret)
        self.port: int = self._server.get_port()
        behind_the_rest(self._server._websock_server._server_thread.native_id)
        """The port on loopback at which the page's server finds it."""
        self._links: dict[str, Any] = {}
        self._frames: dict[str, Any] = {}
        self._paths: dict[str, Any] = {}
        self._drawn: dict[str, np.ndarray] = {}
        self._set_up()

    def __exit__(self, *error: object) -> None:
        with redirect_stdout(io.StringIO()):
            self._server.stop()

    def _set_up(self) -> None:
        scene = self._server.scene
        scene.world_axes.visible = False
        scene.configure_environment_map("studio", background=False, environment_intensity=0.3)
        shapes = [] if self.body is None else self.body.shapes
        self._world = scene.add_frame("/world", show_axes=False)
        scene.add_grid(
            "/world/floor",
            width=12.0,
            height=12.0,
            cell_size=0.25,
            section_size=1.0,
            cell_thickness=0.5,
            cell_color=_GRID,
            section_color=_GRID,
            position=(0.0, 0.0, 0.0 if self.body is None else self.body.floor_z),
        )
        self._look_at(shapes)
        for i, shape in enumerate(shapes):
            if shape.link not in self._links:
                self._links[shape.link] = scene.add_frame(f"/world/robot/{shape.link}", show_axes=False)
            _add(scene, f"/world/robot/{shape.link}/{i}", shape)

    def _look_at(self, shapes: Sequence[Shape]) -> None:
        middle, far = np.array([0.3, 0.0, 0.35]), 2.2
        if self.body is not None and any(shape.link != "world" for shape in shapes):
            placed = self.body.placed({})
            moved = [
                shape.vertices @ placed[shape.link].X.rotation.T + placed[shape.link].p
                for shape in shapes
                if shape.link != "world" and len(shape.vertices)
            ]
            points = np.concatenate(moved)
            low, high = points.min(axis=0), points.max(axis=0)
            middle, far = 0.5 * (low + high), 1.15 * float(np.linalg.norm(high - low)) + 0.5
        camera = self._server.initial_camera
        camera.position = middle + far * np.array([0.75, -0.75, 0.45])
        camera.look_at = middle
        camera.fov = _FOV

    def show(self, numbers: Mapping[str, float], hands: Mapping[str, Placed], bases: Sequence[str]) -> None:
        """Show the robot's pose.

        numbers: measured, by column. hands: end-effector pose of each part that has one, in the world.
        bases: the parts that are bases.
        """
        with self._server.atomic():
            self._world.position = -base_pose(numbers).translation  # the view follows a mobile base
            if self.body is not None:
                for link, placed in self.body.placed(numbers).items():
                    if (frame := self._links.get(link)) is not None:
                        _move(frame, placed)
            frames = {f"hand/{part}": (X, _HAND_AXES) for part, X in hands.items()}
            for part in bases:
                X = base_pose(numbers, part)
                yaw = 0.5 * np.arctan2(X.rotation[1, 0], X.rotation[0, 0])
                wxyz = np.array([np.cos(yaw), 0.0, 0.0, np.sin(yaw)])
                frames[f"base/{part}"] = Placed(p=np.array(X.translation), wxyz=wxyz), _BASE_AXES
            for name, (placed, length) in frames.items():
                self._show_frame(name, placed, length)

    def _show_frame(self, name: str, placed: Placed, length: float) -> None:
        if name not in self._frames:
            self._frames[name] = self._server.scene.add_frame(
                f"/world/{name}", axes_length=length, axes_radius=length / 25.0, origin_radius=length / 12.0
            )
        _move(self._frames[name], placed)

    def show_plan(self, paths: Mapping[str, np.ndarray]) -> None:
        """paths: name that ends in /settled, /fresh or /measured -> (N, 3) points [m]."""
        scene = self._server.scene
        for gone in set(self._paths) - set(paths):
            self._paths.pop(gone).remove()
            self._drawn.pop(gone)
        for name, points in paths.items():
            before = self._drawn.get(name)
            if before is not None and before.shape == points.shape and np.allclose(before, points, atol=1e-4):
                continue
            self._drawn[name] = points
            if len(points) < 2:
                if name in self._paths:
                    self._paths.pop(name).remove()
                continue
            colour = {"settled": SETTLED, "fresh": FRESH}.get(name.rpartition("/")[2], MEASURED)
            self._paths[name] = scene.add_line_segments(
                f"/world/plan/{name}",
                points=np.stack([points[:-1], points[1:]], axis=1).astype(np.float32),
                colors=colour,
                line_width=2.0 if colour is MEASURED else 5.0,
            )


def behind_the_rest(thread_id: int) -> None:
    """Lower the thread's priority: drawing waits for everything else, orders and the robot itself."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, thread_id, _NICE)


def _move(frame: Any, placed: Placed) -> None:
    if not np.allclose(frame.position, placed.p, atol=1e-5) or not np.allclose(
        frame.wxyz, placed.wxyz, atol=1e-5
    ):
        frame.position, frame.wxyz = placed.p, placed.wxyz


def _add(scene: Any, name: str, shape: Shape) -> None:
    import trimesh

    if not len(shape.faces):
        return
    mesh = trimesh.Trimesh(shape.vertices, shape.faces, process=True)
    mesh = trimesh.graph.smooth_shade(mesh, angle=_SHARP)
    r, g, b, alpha = shape.rgba
    scene.add_mesh_simple(
        name,
        vertices=np.asarray(mesh.vertices, np.float32),
        faces=np.asarray(mesh.faces, np.uint32),
        color=tuple(round(255 * c) for c in (r, g, b)),
        opacity=None if alpha >= 1.0 else alpha,
    )


def _private_server(secret: str) -> Any:
    """Start a viser server on loopback that refuses clients without the secret."""
    import viser
    import websockets.asyncio.server as theirs
    from viser import _messages

    serve = theirs.serve

    def guarded(handler: Any, host: str, port: int, *, process_request: Any, **options: Any) -> Any:
        def check(connection: Any, request: Any) -> Any:
            if secrets.compare_digest(request.headers.get(SECRET_HEADER, ""), secret):
                return process_request(connection, request)
            return connection.respond(HTTPStatus.FORBIDDEN, "the page's own server is at another port\n")

        return serve(handler, host, port, process_request=check, **options)

    theirs.serve = guarded  # type: ignore[misc, assignment]
    try:
        with redirect_stdout(io.StringIO()):  # it prints an address that no client can open
            server = viser.ViserServer("127.0.0.1", 0, verbose=False)
    finally:
        theirs.serve = serve  # type: ignore[misc]
    for kind in (
        _messages.ShareUrlRequest,
        _messages.ShareUrlDisconnect,
    ):  # a tunnel to a third party's server
        server._websock_server.unregister_handler(kind)
    server.gui.configure_theme(show_logo=False, show_share_button=False)
    return server

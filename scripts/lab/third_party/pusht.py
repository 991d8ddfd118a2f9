"""An expert for gym-pusht (the task of Diffusion Policy, arXiv 2303.04137): a greedy search over pushes.

    record --env gymnasium:gym_pusht/PushT-v0 --env-file scripts/lab/third_party/pusht.toml
           --expert scripts/lab/third_party/pusht.py:expert

Again and again it tries, in a copy of the simulator, straight pushes against every part of the T's outline,
goes round the T to where the best one begins, and does it. None of it looks farther ahead than one push.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

ROUND = 15.0 + 6.0
"""From the outline to the middle of the agent, and a margin [pixels]."""
PUSH_SPEED, WAY_SPEED = 22.0, 45.0
"""Speed of the agent's target [pixels per step]."""
SETTLE = 3
"""Steps that the agent needs to reach its target."""
BACK = 25.0
"""Distance from the T after a push, so that there is a path to the next [pixels]."""
LENGTHS = (3.0, 8.0, 18.0, 35.0, 60.0, 100.0)
ANGLES = (-0.5, -0.25, 0.0, 0.25, 0.5)
ARM = 45.0
"""What a turn by one radian counts [pixels]."""
STEP_S, DT = 0.1, 0.01
NUM_REFINED = 4
LOW, HIGH = 25.0, 487.0
LOOP = [0, 1, 2, 5, 6, 7, 4, 3]
"""The corners of its two boxes that lie on the T's outline, in order."""


@dataclass(frozen=True)
class PushPath:
    """Straight from a free place against the T, and on."""

    start: np.ndarray
    end: np.ndarray

    def targets(self) -> list[np.ndarray]:
        """One a step."""
        n = max(1, round(float(np.linalg.norm(self.end - self.start)) / PUSH_SPEED))
        return [*np.linspace(self.start, self.end, n + 1)[1:], *[self.end] * SETTLE]


class Copy:
    """A copy of the simulator's bodies, to try pushes in."""

    def __init__(self, env) -> None:
        self._env = type(env)()
        self._env.reset(seed=0)
        self.block, self.agent, self.space = self._env.block, self._env.agent, self._env.space
        goal = self._env.get_goal_pose_body(self._env.goal_pose)
        corners = [v for shape in self._env._block_shapes for v in shape.get_vertices()]
        self._corners = np.array([tuple(v) for v in corners])
        self.goal_angle = float(goal.angle)
        self.goal = np.array([tuple(goal.local_to_world(v)) for v in corners])

    def place(self, block: tuple[float, float, float], agent: np.ndarray) -> None:
        x, y, angle = block
        self.block.angle, self.block.position = angle, (x, y)
        self.block.velocity, self.block.angular_velocity = (0.0, 0.0), 0.0
        self.agent.position, self.agent.velocity = tuple(agent), (0.0, 0.0)
        self.space.reindex_shapes_for_body(self.block)
        self.space.reindex_shapes_for_body(self.agent)

    def pushed(self, targets: list[np.ndarray], dt: float) -> float:
        """How far the T is from its goal after that [pixels]."""
        for target in targets:
            goal = type(self.agent.position)(*target)
            for _ in range(round(STEP_S / dt)):
                pull = 100.0 * (goal - self.agent.position) - 20.0 * self.agent.velocity
                self.agent.velocity += pull * dt
                self.space.step(dt)
        return self.far()

    def far(self) -> float:
        """By place and turn: its corners come no nearer by the first part of a half turn."""
        place = np.linalg.norm((self.corners() - self.goal).mean(axis=0))
        turn = (self.block.angle - self.goal_angle + np.pi) % (2.0 * np.pi) - np.pi
        return float(place + ARM * abs(turn))

    def corners(self) -> np.ndarray:
        c, s = np.cos(self.block.angle), np.sin(self.block.angle)
        return self._corners @ np.array([[c, s], [-s, c]]) + np.array(tuple(self.block.position))

    def is_free(self, a: np.ndarray, b: np.ndarray) -> bool:
        """Whether the agent can go straight from one place to the other without the T."""
        from pymunk import ShapeFilter

        hits = self.space.segment_query(tuple(a), tuple(b), ROUND - 4.0, ShapeFilter())
        return all(hit.shape.body is not self.block for hit in hits)


def outline(corners: np.ndarray, phase: float) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Places along the T's outside, 15 pixels apart from `phase` on, and the normals there."""
    loop = corners[LOOP]
    for a, b in zip(loop, np.roll(loop, -1, axis=0), strict=True):
        along = (b - a) / np.linalg.norm(b - a)
        normal = np.array([along[1], -along[0]])
        for s in np.arange(phase, np.linalg.norm(b - a), 15.0):
            yield a + s * along, normal


def best_push(
    copy: Copy, block: tuple[float, float, float], agent: np.ndarray, phase: float
) -> tuple[list[np.ndarray], PushPath] | None:
    """The push that brings the T nearest to its goal, and the way to it; a shorter way counts a little.

    First a few pushes at every place in long steps of time, then all at the places that were best.
    """

    def tried(places: list, angles: tuple[float, ...], lengths: tuple[float, ...], dt: float) -> list:
        out = []
        for place, normal in places:
            start = place + ROUND * normal
            way = 0.004 * float(np.linalg.norm(start - agent))
            for angle in angles:
                c, s = np.cos(angle), np.sin(angle)
                for length in lengths:
                    push = PushPath(start, start - (length + 6.0) * np.array([[c, -s], [s, c]]) @ normal)
                    if is_inside(push.start) and is_inside(push.end):
                        copy.place(block, start)
                        out.append((copy.pushed(push.targets(), dt) + way, push, (place, normal)))
        return sorted(out, key=lambda found: found[0])

    copy.place(block, agent)
    places = list(outline(copy.corners(), phase))
    first = tried(places, ANGLES[::2], LENGTHS[1::2], 2.0 * DT)
    copy.place(block, agent)
    best, ways = [], {}
    for _, push, place in first:
        key = tuple(push.start)
        if key not in ways:
            ways[key] = way_round(copy, agent, push.start)
            if ways[key] is not None:
                best.append(place)
        if len(best) == NUM_REFINED:
            break
    found = tried(best, ANGLES, LENGTHS, DT)
    copy.place(block, agent)
    if not found:
        return None
    push = found[0][1]
    way = ways[tuple(push.start)]
    return None if way is None else (way, push)


def is_inside(place: np.ndarray) -> bool:
    return bool(place.min() >= LOW and place.max() <= HIGH)


def way_round(copy: Copy, a: np.ndarray, b: np.ndarray) -> list[np.ndarray] | None:
    """Corners of a way from a to b round the T, if there is one."""
    if copy.is_free(a, b):
        return [b]
    middle = copy.corners().mean(axis=0)
    ring = [middle + 115.0 * np.array([np.cos(t), np.sin(t)]) for t in np.linspace(0.0, 2.0 * np.pi, 16)[:-1]]
    ring = [np.clip(p, LOW, HIGH) for p in ring]
    ways = [[p, b] for p in ring if copy.is_free(a, p) and copy.is_free(p, b)]
    ways += [
        [p, q, b]
        for p in ring if copy.is_free(a, p)
        for q in ring if copy.is_free(p, q) and copy.is_free(q, b)
    ] if not ways else []  # fmt: skip
    return min(ways, default=None, key=lambda way: sum(np.linalg.norm(np.diff([a, *way], axis=0), axis=1)))


def acts(env) -> Iterator[np.ndarray]:
    """Yield the agent's targets, step by step."""
    copy, rng = Copy(env), np.random.default_rng(0)
    while True:
        agent = np.array(tuple(env.agent.position))
        block = (*env.block.position, env.block.angle)
        found = best_push(copy, block, agent, rng.uniform(3.0, 12.0))
        if found is None:
            yield from [agent + BACK * (agent - copy.corners().mean(axis=0)) / 100.0] * SETTLE
            continue
        way, push = found
        at = agent
        for corner in way:
            n = max(1, round(float(np.linalg.norm(corner - at)) / WAY_SPEED))
            yield from np.linspace(at, corner, n + 1)[1:]
            at = corner
        yield from [at] * SETTLE
        yield from push.targets()
        yield from [
            push.end + BACK * (push.start - push.end) / np.linalg.norm(push.start - push.end)
        ] * SETTLE


def expert(env):
    """Return an expert that uses only the env: it observes the simulator itself."""
    targets = acts(env.unwrapped)
    return lambda step: next(targets)

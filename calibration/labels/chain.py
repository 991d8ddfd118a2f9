"""Least squares over a chain of nodes with a few shared unknowns: `Chain`, solved and inverted exactly.

    x0 ── x1 ── x2 ── ... ── xK      a factor involves one node, or two neighbours,
      \\    \\    |            /       and any of the shared unknowns
              g

[ T   U ] [x]   [b]      T block tridiagonal, G small: cost and memory grow with the number of nodes alone,
[ U^T G ] [g] = [c]      for the covariance of every node too (blocks of the inverse, not all of it)
"""

from dataclasses import dataclass

import numpy as np

from robot_runtime.errors import InvalidValueError


@dataclass(eq=False)
class Chain:
    """Normal equations that factors are added to."""

    num_nodes: int
    size: int
    """Size of a node's state."""
    num_shared: int

    def __post_init__(self) -> None:
        n, b, g = self.num_nodes, self.size, self.num_shared
        self._T, self._L = np.zeros((n, b, b)), np.zeros((max(n - 1, 0), b, b))
        self._U, self._G = np.zeros((n, b, g)), np.zeros((g, g))
        self._b, self._c = np.zeros((n, b)), np.zeros(g)

    def add(
        self,
        k: np.ndarray,
        r: np.ndarray,
        J: np.ndarray,
        J_next: np.ndarray | None = None,
        J_shared: np.ndarray | None = None,
    ) -> None:
        """Add M factors, each already divided by its standard deviations.

        k: (M,) node of each. r: (M, m) residuals. Jacobians: J (M, m, b) by node k, J_next by node k + 1,
        J_shared (M, m, g) by the shared unknowns.
        """
        Jt = J.transpose(0, 2, 1)
        np.add.at(self._T, k, Jt @ J)
        np.add.at(self._b, k, -(Jt @ r[:, :, None])[:, :, 0])
        if J_next is not None:
            Jn = J_next.transpose(0, 2, 1)
            np.add.at(self._T, k + 1, Jn @ J_next)
            np.add.at(self._L, k, Jn @ J)
            np.add.at(self._b, k + 1, -(Jn @ r[:, :, None])[:, :, 0])
        if J_shared is not None:
            Js = J_shared.transpose(0, 2, 1)
            np.add.at(self._U, k, Jt @ J_shared)
            if J_next is not None:
                np.add.at(self._U, k + 1, J_next.transpose(0, 2, 1) @ J_shared)
            self._G += (Js @ J_shared).sum(axis=0)
            self._c -= (Js @ r[:, :, None]).sum(axis=0)[:, 0]

    def add_shared(self, r: np.ndarray, J: np.ndarray) -> None:
        """Add a factor of the shared unknowns alone: r (m,), J (m, g)."""
        self._G += J.T @ J
        self._c -= J.T @ r

    def solve(self) -> tuple[np.ndarray, np.ndarray]:
        """The step of the nodes (K, b) and of the shared unknowns (g,)."""
        columns = np.concatenate([self._b[:, :, None], self._U], axis=2)
        solved = self._through(columns)
        y, W = solved[:, :, 0], solved[:, :, 1:]
        if self.num_shared == 0:
            return y, np.zeros(0)
        S = self._G - np.einsum("kbg,kbh->gh", self._U, W)
        g = np.linalg.solve(S, self._c - np.einsum("kbg,kb->g", self._U, y))
        return y - W @ g, g

    def covariances(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Blocks of the inverse: of each node with itself (K, b, b), with the next (K-1, b, b), and with the
        shared unknowns (K, b, g); that of the shared unknowns is `shared_covariance`."""
        n = self.num_nodes
        forward, backward = self._pivots()
        diagonal = np.linalg.inv(forward + backward - self._T)
        following = np.zeros_like(self._L)
        for k in range(n - 1):  # cov(x_k, x_k+1) = -forward_k^-1 L_k^T diagonal_k+1
            following[k] = -np.linalg.solve(forward[k], self._L[k].T @ diagonal[k + 1])
        if self.num_shared == 0:
            return diagonal, following, np.zeros((n, self.size, 0))
        W = self._through(self._U)
        P = self.shared_covariance(W)
        WP = W @ P
        diagonal = diagonal + WP @ W.transpose(0, 2, 1)
        following = following + WP[:-1] @ W[1:].transpose(0, 2, 1)
        return diagonal, following, -WP

    def shared_covariance(self, W: np.ndarray | None = None) -> np.ndarray:
        """Covariance (g, g) of the shared unknowns."""
        W = self._through(self._U) if W is None else W
        out: np.ndarray = np.linalg.inv(self._G - np.einsum("kbg,kbh->gh", self._U, W))
        return out

    def _pivots(self) -> tuple[np.ndarray, np.ndarray]:
        forward, backward = self._T.copy(), self._T.copy()
        for k in range(1, self.num_nodes):
            forward[k] -= self._L[k - 1] @ np.linalg.solve(forward[k - 1], self._L[k - 1].T)
        for k in range(self.num_nodes - 2, -1, -1):
            backward[k] -= self._L[k].T @ np.linalg.solve(backward[k + 1], self._L[k])
        return forward, backward

    def _through(self, columns: np.ndarray) -> np.ndarray:
        """T^-1 times columns (K, b, m)."""
        n, out = self.num_nodes, columns.copy()
        pivots = self._T.copy()
        for k in range(1, n):
            gain = np.linalg.solve(pivots[k - 1], self._L[k - 1].T).T
            pivots[k] -= gain @ self._L[k - 1].T
            out[k] -= gain @ out[k - 1]
        try:
            out[-1] = np.linalg.solve(pivots[-1], out[-1])
            for k in range(n - 2, -1, -1):
                out[k] = np.linalg.solve(pivots[k], out[k] - self._L[k].T @ out[k + 1])
        except np.linalg.LinAlgError as error:
            raise InvalidValueError("a node of the pose graph is unconstrained") from error
        return out

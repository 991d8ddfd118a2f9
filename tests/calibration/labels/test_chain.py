"""A chain of nodes gives what the whole matrix gives."""

import numpy as np

from calibration.labels.chain import Chain


def test_a_chain_is_solved_and_inverted_as_its_whole_matrix():
    rng = np.random.default_rng(0)
    n, b, g = 6, 3, 2
    chain, whole, right = Chain(n, b, g), np.zeros((n * b + g,) * 2), np.zeros(n * b + g)
    for k in range(n):
        r, J, J_next, J_shared = (
            rng.normal(size=shape) for shape in ((1, 4), (1, 4, b), (1, 4, b), (1, 4, g))
        )
        last = k == n - 1
        chain.add(np.array([k]), r, J, None if last else J_next, J_shared)
        row = np.zeros((4, n * b + g))
        row[:, k * b : (k + 1) * b] = J[0]
        if not last:
            row[:, (k + 1) * b : (k + 2) * b] = J_next[0]
        row[:, n * b :] = J_shared[0]
        whole, right = whole + row.T @ row, right - row.T @ r[0]
    x, shared = chain.solve()
    np.testing.assert_allclose(np.append(x, shared), np.linalg.solve(whole, right), atol=1e-10)
    inverse = np.linalg.inv(whole)
    own, following, with_shared = chain.covariances()
    for k in range(n):
        here = slice(k * b, (k + 1) * b)
        np.testing.assert_allclose(own[k], inverse[here, here], atol=1e-10)
        np.testing.assert_allclose(with_shared[k], inverse[here, n * b :], atol=1e-10)
        if k < n - 1:
            np.testing.assert_allclose(following[k], inverse[here, (k + 1) * b : (k + 2) * b], atol=1e-10)
    np.testing.assert_allclose(chain.shared_covariance(), inverse[n * b :, n * b :], atol=1e-10)

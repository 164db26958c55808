"""SciPy and scikit-learn on these arrays, beside the same on NumPy's.

Each program has a process of its own, as SciPy reads its switch when it is imported.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

HEAD = """
import numpy as np
from tilegrad import array_api as xp

rng = np.random.default_rng(0)
X = rng.standard_normal((20, 4))
Y = (X[:, 0] + X[:, 1] > 0).astype(np.int64)
T = X @ np.array([1.0, 2.0, 3.0, 4.0])

def check(function, *arrays, gives_number=False):
    exact, found = function(*arrays), function(*[xp.asarray(each) for each in arrays])
    pairs = zip(exact, found) if isinstance(exact, tuple) else [(exact, found)]
    for theirs, ours in pairs:
        assert isinstance(ours, float if gives_number else xp.Array), type(ours)
        np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-6, atol=1e-8)
"""
SCIPY = """
from scipy import special
from scipy.cluster import vq
check(lambda x: special.softmax(x, axis=1), X)
check(special.expit, X)
check(vq.whiten, X)
check(vq.vq, X, X[:3].copy())
"""
MORE_SCIPY = """
from scipy import constants, optimize, signal, special, stats
check(lambda x: special.logsumexp(x, axis=0), X)
check(special.xlogy, abs(X), abs(X))
check(special.gammaln, abs(X) + 1)
for function in (stats.zscore, stats.skew, stats.kurtosis, stats.variation):
    check(function, X)
check(stats.entropy, abs(X))
check(lambda x: stats.moment(x, 3), X)
check(lambda x: stats.ttest_1samp(x, 0.0).statistic, X)
check(lambda x, y: stats.pearsonr(x, y).statistic, X[:, 0].copy(), X[:, 1].copy())
check(lambda x: signal.detrend(x, axis=0, type="constant"), X)
check(optimize.rosen, X[0].copy())
check(lambda x: constants.convert_temperature(x, "C", "K"), X)
"""
SKLEARN = """
import sklearn
from sklearn.decomposition import PCA
from sklearn.preprocessing import MinMaxScaler
sklearn.set_config(array_api_dispatch=True)
check(lambda x: MinMaxScaler().fit_transform(x), X)
check(lambda x: abs(PCA(2, svd_solver="full").fit_transform(x)), X)
"""
MORE_SKLEARN = """
import sklearn
from sklearn import metrics, preprocessing
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge
sklearn.set_config(array_api_dispatch=True)
guessed = (X[:, 0] > 0).astype(np.int64)
check(metrics.accuracy_score, Y, guessed, gives_number=True)
check(metrics.f1_score, Y, guessed, gives_number=True)
check(metrics.mean_squared_error, T, T + 1, gives_number=True)
check(metrics.r2_score, T, T * 1.1, gives_number=True)
check(metrics.pairwise.cosine_similarity, X)
check(metrics.pairwise.euclidean_distances, X)
for scaler in ("StandardScaler", "MaxAbsScaler", "Normalizer", "PolynomialFeatures"):
    check(lambda x: getattr(preprocessing, scaler)().fit_transform(x), X)
check(lambda x, y: LinearDiscriminantAnalysis().fit(x, y).predict(x), X, Y)
check(lambda x, y: Ridge(solver="svd").fit(x, y).coef_, X, T)
"""


def run(program: str) -> None:
    environment = {**os.environ, "SCIPY_ARRAY_API": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", HEAD + program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert not done.returncode, done.stderr[-2000:]


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(SCIPY + SKLEARN, id="scipy-sklearn"),
        pytest.param(MORE_SCIPY, id="more-scipy", marks=pytest.mark.nightly),
        pytest.param(MORE_SKLEARN, id="more-sklearn", marks=pytest.mark.nightly),
    ],
)
def test_libraries_run_on_these_arrays_as_on_numpys(program: str) -> None:
    pytest.importorskip("scipy")
    pytest.importorskip("sklearn")
    run(program)

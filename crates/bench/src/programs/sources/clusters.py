"""Finds clusters of points with scikit-learn, and prints a digest of which point is in which: `clusters.py POINTS`."""

import hashlib
import os
import sys

# Sums of one thread are the same every time.
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy
from sklearn.cluster import KMeans

points = numpy.random.default_rng(1).random((int(sys.argv[1]), 16))
found = KMeans(8, n_init=1, max_iter=20, random_state=1, algorithm="lloyd").fit(points)
print("clusters", hashlib.sha256(found.labels_.astype(numpy.int32).tobytes()).hexdigest())

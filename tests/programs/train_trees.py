"""Trains trees on made-up data, and prints a digest of them and of what they say: `train_trees.py ROWS [THREADS]`."""

import hashlib
import sys

import numpy
import xgboost

rows = int(sys.argv[1])
threads = int(sys.argv[2]) if len(sys.argv) > 2 else 2
generator = numpy.random.default_rng(5)
features = generator.random((rows, 32), dtype=numpy.float32)
labels = (features[:, 0] * features[:, 1] + features[:, 2] > 0.8).astype(numpy.float32)
data = xgboost.DMatrix(features, labels, nthread=threads)
settings = {
    "objective": "binary:logistic",
    "tree_method": "hist",
    "max_depth": 6,
    "nthread": threads,
    "seed": 5,
    "verbosity": 0,
}
model = xgboost.train(settings, data, num_boost_round=8)
trees = "\n".join(model.get_dump(with_stats=True))
answers = model.predict(data)
assert ((answers > 0.5) == (labels > 0.5)).mean() > 0.9
print("trees", hashlib.sha256(trees.encode()).hexdigest())
print("answers", hashlib.sha256(answers.tobytes()).hexdigest())

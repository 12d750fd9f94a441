"""The authors' program (Accenture/Labs-Federated-Learning), run by us, and the runs of ours that correspond to it.

It numbers the clients by digit. Its accuracy is measured on the clients' own test parts (80 images each), like our
`client_accuracy`; all clients have the same number of images.
"""

from workspace.analysis.reference import Program

_SHARDS = "MNIST_shard, N=50, lr=0.01, B=50, m=10"
_SORTED = "ids sorted by digit"

PROGRAM = Program(
    digest="94496eeacfa462d57546f01e96abeeaf0e40359440ba03be3e8ba8fa9b4c2329",
    settings={_SHARDS: _SORTED, f"{_SHARDS}; draws reseeded by run": _SORTED},
    methods={
        "MD": ("cs_mnist", "MD"),
        "Algorithm 1": ("cs_mnist", "Algorithm 1, authors' tie order"),
        "Algorithm 2": ("cs_mnist", "Algorithm 2"),
    },
    columns={
        "test_accuracy": "client_accuracy",
        "train_loss": "train_loss",
        "distinct_clients": "distinct_clients",
        "distinct_classes": "distinct_classes",
    },
)

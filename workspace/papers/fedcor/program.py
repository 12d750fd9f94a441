"""The authors' programs of 2022 and 2023 (Yoruko-Tang/FedCor), run by us, and our runs that correspond to them.

`gpr_begin = 0` is the authors' later default for the code of 2022. Pow-d's d is 10, or 20 if 10 clients are selected.
"""

from workspace.analysis.reference import Program

PROGRAM = Program(
    digest="6d03528a1721a6f565ec9d9e771ade76f3e076401d3f71c9c4d8f9d83222db11",
    settings={name: name for name in ("2SPC", "1SPC", "Dir")},
    methods={
        "Random": ("fedcor_fmnist", "Random"),
        "Powd10": ("fedcor_fmnist", "Pow-d"),
        "Powd20": ("fedcor_fmnist", "Pow-d"),
        "FedCorBegin0": ("fedcor_fmnist", "FedCor"),
        "FedCor": ("fedcor_fmnist_variants", "FedCor, gpr_begin = 10"),
        "FedCorHEAD": ("fedcor_fmnist_variants", "FedCor, README of 2023"),
    },
    columns={"test_accuracy": "test_accuracy"},
)

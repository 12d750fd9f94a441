"""The authors' program (CityChan/HiCS-FL), run by us with the paper's training, and our runs that correspond to it."""

from workspace.analysis.reference import Program

PROGRAM = Program(
    digest="e55030235e94c3b9e49fe7d8a37af4bb873ead4918bbfd59c3c6990b1131c22d",
    settings={"FMNIST (2) paper training": "(2)"},
    methods={"random": ("hics_fmnist", "Random"), "hics": ("hics_fmnist_variants", "HiCS-FL, C0")},
    columns={"test_accuracy": "test_accuracy"},
)

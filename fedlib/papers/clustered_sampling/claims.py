"""What Clustered Sampling (Fraboni, Vidal, Kameni, Lorenzi; ICML 2021) claims, and how each claim is decided.

Losses are sum_k p_k F_k over the clients' training parts, accuracies sum_k p_k of the clients' own test
parts, as in the authors' code. L_end, A_end: mean over the last 20 % of the rounds; L_auc, A_auc: mean over
all measured rounds after 0; rough: mean change between measurements in the second half. Compared are runs of
the same seed (same partition and initial model); "median" is over seeds. The paper shows one seed and prints
no losses: tolerances are ours. Figure 1 counts its first 200 rounds (all, where there are fewer), and calls
their second half "late".
"""

from fedlib.papers.clustered_sampling import claims_figure_1, claims_figures
from fedlib.papers.clustered_sampling.book import book

__all__ = ["book", "claims_figure_1", "claims_figures"]

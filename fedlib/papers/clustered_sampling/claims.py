"""The claims of Clustered Sampling (Fraboni, Vidal, Kameni, Lorenzi; ICML 2021), and the rules that decide them.

Losses are sum_k p_k F_k over the clients' training parts; accuracies are sum_k p_k A_k over the clients' own test
parts, as in the authors' code. L_end, A_end: mean over the last 20 % of the rounds. L_auc, A_auc: mean over all
measured rounds after 0. rough: mean change between measurements in the second half. Runs of the same seed are compared
(same partition and initial model); "median" is over seeds. The paper shows one seed and prints no losses, so the
tolerances are ours. Figure 1 uses its first 200 rounds (all, if there are fewer); "late" is their second half.
"""

from fedlib.papers.clustered_sampling import claims_figure_1, claims_figures
from fedlib.papers.clustered_sampling.book import book

__all__ = ["book", "claims_figure_1", "claims_figures"]

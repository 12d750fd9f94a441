"""HiCS-FL's own sentences: claim -> (sentence, place)."""

from __future__ import annotations

SENTENCES = {
    "hics.T1.a": (
        "HiCS-FL significantly reduces the number of communication rounds needed to reach target test "
        "accuracy",
        "section 4.2",
    ),
    "hics.T1.b": (
        "HiCS-FL significantly reduces the number of communication rounds needed to reach target test "
        "accuracy",
        "section 4.2, on Table 1",
    ),
    "hics.F2.a": (
        "HiCS-FL outperforms other methods across different settings, exhibiting the fastest convergence "
        "rates and the least amount of variance",
        "section 4.1",
    ),
    "hics.F2.c": (
        "HiCS-FL outperforms other methods across different settings, exhibiting the fastest convergence "
        "rates and the least amount of variance",
        "section 4.1",
    ),
    "hics.F2.d": (
        "improvement in convergence speed, variance and test accuracy, accomplished with only a minor "
        "computational overhead",
        "section 5",
    ),
    "hics.F3.a": (
        "Figure 3 demonstrates improvement of HiCS-FL over all the other methods",
        "section 4.1",
    ),
    "hics.F3.c": (
        "Figure 3 demonstrates improvement of HiCS-FL over all the other methods",
        "section 4.1",
    ),
    "hics.F4.a": (
        "when all clients have severely imbalanced data, HiCS-FL performs similarly to [Clustered Sampling]",
        "section 4.1; adaptable: abstract",
    ),
    "hics.F5.a": (
        "more significant improvements achieved by HiCS-FL in the latter setting, as shown in Figure 5",
        "section 4.1",
    ),
    "hics.F14.a": (
        "HiCS-FL has the lowest standard deviation in almost all settings",
        "section 6.12",
    ),
    "hics.C.a": (
        "without introducing major computational and communication overhead",
        "section 4.2",
    ),
    "hics.C.c": (
        "HiCS-FL drastically reduces computation cost compared to existing selection schemes",
        "abstract",
    ),
    "hics.F9.a": (
        "to distinguish between clients with balanced from those with imbalanced data",
        "section 1",
    ),
    "hics.F9.c": (
        "the server estimates statistical heterogeneity of a client's data",
        "abstract",
    ),
    "hics.N1.a": (
        "HiCS-FL achieves faster convergence [...] than state-of-the-art FL client selection schemes",
        "conference version, Table 1 (texts)",
    ),
    "hics.N1.b": (
        "HiCS-FL achieves faster convergence [...] than state-of-the-art FL client selection schemes",
        "conference version, Table 1 (texts)",
    ),
    "hics.N4.a": (
        "adaptable to different heterogeneity scenarios",
        "conference version, Table 4 (availability)",
    ),
}

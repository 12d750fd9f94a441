"""HCSFed's own sentences: claim -> (sentence, place)."""

from __future__ import annotations

SENTENCES = {
    "hcsfed.T1.a": (
        "HCSFed consistently achieves the fastest convergence (has the fewest required rounds to reach the "
        "target accuracy) across all settings",
        "section 5, on Table 1",
    ),
    "hcsfed.T1.b": (
        "HCSFed consistently achieves the fastest convergence (has the fewest required rounds to reach the "
        "target accuracy) across all settings",
        "section 5, on Table 1",
    ),
    "hcsfed.T1.d": (
        "HCSFed can greatly accelerate the convergence, especially in the low sampling ratio and data "
        "heterogeneity case",
        "section 5",
    ),
    "hcsfed.F3.b": (
        "HCSFed can greatly accelerate the convergence, especially in the low sampling ratio and data "
        "heterogeneity case",
        "section 5",
    ),
    "hcsfed.T1.k": (
        "HCSFed can greatly accelerate the convergence, especially in the low sampling ratio and data "
        "heterogeneity case",
        "section 5",
    ),
    "hcsfed.F2.a": (
        "Adopting the compressed gradient as a cluster feature [...] allows a better clustering effect",
        "section 1",
    ),
    "hcsfed.F2.c": (
        "Adopting the compressed gradient as a cluster feature [...] allows a better clustering effect",
        "section 1",
    ),
    "hcsfed.F3.a": (
        "HCSFed consistently requires the fewest rounds to reach the target accuracy",
        "section 5, on Figure 3",
    ),
    "hcsfed.C.a": (
        "Adopting the compressed gradient as a cluster feature [...] is communication-efficient",
        "section 1",
    ),
}

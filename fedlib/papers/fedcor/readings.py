"""FedCor's readings."""

from __future__ import annotations

from fedlib.analysis.readings import AS_WRITTEN, Reading

READINGS = [Reading(AS_WRITTEN, "the paper's text")]

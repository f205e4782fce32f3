"""The test of one percentile of one channel between two checks, on histograms that are known."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from stallprobes.latency.histogram import Histogram
from stallprobes.latency.statistics import fisher_exact_at_cut
from stallprobes.latency.window import Window
from stallprobes.matrix.matrix import QUIET, Cell, Repeat, Status
from stallprobes.matrix.quantile_test import (
    BASELINE_RATIO,
    CALLS,
    DIFFERENCE_NS,
    RATIO,
    ChannelRepeats,
    QuantileTest,
    beyond,
    quantile_tests,
)
from stallprobes.model import Channel, Phase, Quantile

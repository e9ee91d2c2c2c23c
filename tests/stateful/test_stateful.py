"""The short form of the stateful model test; MTL_MODEL_EXAMPLES and MTL_MODEL_STEPS set its length."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

from tests.stateful.machine import BrokerAndModel
from tests.stateful.polls import PollsAndModel

EXAMPLES = int(os.environ.get("MTL_MODEL_EXAMPLES", "150"))
STEPS = int(os.environ.get("MTL_MODEL_STEPS", "50"))

LONG = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)

TestBrokerAndModel = BrokerAndModel.TestCase
TestBrokerAndModel.settings = LONG

TestPollsAndModel = PollsAndModel.TestCase
TestPollsAndModel.settings = LONG

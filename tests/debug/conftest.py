"""Fixtures of the tests of what finds faults."""
import pytest


@pytest.fixture(autouse=True)
def known_failure(request):
    "A test that its file names in `KNOWN`, with a reason, is expected to fail."
    reason = getattr(request.module, "KNOWN", {}).get(request.node.name)
    if reason: request.applymarker(pytest.mark.xfail(strict=True, reason=reason))

"""What holds on any Kubernetes API server, the embedded one and a real one: one suite, inherited by the tests of both.

Only plain HTTP is used, so that nothing of ours stands between the test and what the server says.
"""

import pytest

# The assertions stand in modules that pytest does not collect itself.
pytest.register_assert_rewrite(
    *(f"{__name__}.{name}" for name in ("kinds", "lists", "objects", "patches", "pods", "watches"))
)

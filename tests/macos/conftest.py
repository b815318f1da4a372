"""The cross build is made once a session; what it says is looked at by the tests."""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import net as nets  # noqa: E402
import fetch  # noqa: E402


@pytest.fixture(scope="session")
def net():
    if sys.platform != "linux":
        pytest.skip("this machine's own compiler says more")
    try:
        made = nets.Net(nets.TOP / ".build")
    except fetch.Missing as e:
        pytest.skip(str(e))
    made.build()
    return made

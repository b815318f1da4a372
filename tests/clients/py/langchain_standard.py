"""langchain's own integration tests of a chat model (langchain-tests), those that ask for a structure or a call: a pytest file."""
import os

import pytest
from langchain_any import model as make
from langchain_tests.integration_tests import ChatModelIntegrationTests


class TestModel(ChatModelIntegrationTests):
    has_tool_choice = os.environ["ANED_KIND"] != "ollama"  # its dialect has none
    supports_json_mode = True

    @property
    def chat_model_class(self):
        return type(make())

    @property
    def chat_model_params(self):
        return {}

    @pytest.fixture
    def model(self):
        return make()

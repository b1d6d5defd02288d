from __future__ import annotations

import pytest

from bot.contracts.model import Model
from bot.llm.demo import DemoModel
from tests.contracts.model_contract import ModelContract


class TestDemoModel(ModelContract):
    @pytest.fixture
    def model(self) -> Model:
        return DemoModel()

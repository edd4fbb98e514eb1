"""The page about group states and its diagram are generated from the coordinator's table."""

import runpy

from tests.support.kafka_distribution import REPOSITORY

RENDERER = runpy.run_path(str(REPOSITORY / "scripts" / "render_group_states.py"))


def test_the_page_is_generated_from_the_table() -> None:
    assert RENDERER["PAGE"].read_text() == RENDERER["render"](), "run scripts/render_group_states.py"


def test_the_diagram_is_generated_from_the_table() -> None:
    assert RENDERER["DIAGRAM"].read_text() == RENDERER["diagram"](), "run scripts/render_group_states.py"

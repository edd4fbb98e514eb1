"""The page about states is what the table says."""

import runpy

from tests.support.kafka_distribution import REPOSITORY


def test_the_page_is_made_from_the_table() -> None:
    script = runpy.run_path(str(REPOSITORY / "scripts" / "render_group_states.py"))

    assert script["PAGE"].read_text() == script["render"](), "run scripts/render_group_states.py"

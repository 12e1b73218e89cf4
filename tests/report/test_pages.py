"""The frame of pages: what comes from files is text, and no script runs but the page's own."""

from __future__ import annotations

import pytest

from fbeta.report.pages import page


def test_no_script_is_allowed_by_default() -> None:
    assert "script-src 'none'" in page("t", "")
    assert "script-src 'sha256-" in page("t", "", script="1")


@pytest.mark.parametrize("name", ["content", "title", "style", "script", "policy"])
def test_titles_and_content_are_no_templates(name: str) -> None:
    words = f"%{name.upper()}%.csv ${name} ${{{name}}} $$"
    text = page(words, f"<p>{words}</p>")
    assert f"<title>{words}</title>" in text
    assert f"<h1>{words}</h1>" in text
    assert text.count("<p>") == 1


def test_half_characters_are_written_out() -> None:
    assert "a \\ud800" in page("a \ud800", "")

"""Sphinx: `make docs`."""

from importlib import metadata

project = "quorate"
author = "The quorate authors"
copyright = "2026, the quorate authors"  # noqa: A001
release = metadata.version("quorate")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
autodoc_typehints = "none"
myst_heading_anchors = 3
html_theme = "pydata_sphinx_theme"
html_theme_options = {"show_toc_level": 2, "secondary_sidebar_items": ["page-toc"]}
html_title = "quorate"

"""Sphinx: `make docs`."""

from importlib import metadata

import click
from docutils import nodes
from docutils.parsers.rst import Directive
from latex2mathml.converter import convert

from quorate.cli import main

project = "quorate"
author = "The quorate authors"
copyright = "2026, the quorate authors"  # noqa: A001
release = metadata.version("quorate")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
autodoc_typehints = "none"
autodoc_member_order = "bysource"
myst_enable_extensions = ["amsmath", "dollarmath"]
myst_heading_anchors = 3
html_math_renderer = "mathml"
html_theme = "pydata_sphinx_theme"
html_theme_options = {"show_toc_level": 2, "secondary_sidebar_items": ["page-toc"]}
html_title = "quorate"
# These pages have no pages below them.
html_sidebars = {page: [] for page in ("first-answer", "extending", "architecture", "paper-map")}


def inline_math(page, node):
    """Write an inline formula as MathML, which browsers show without scripts."""
    page.body.append(convert(node.astext()))
    raise nodes.SkipNode


def displayed_math(page, node):
    """Write a formula on a line of its own as MathML, with its number if it has one."""
    number = f"<span>({node['number']})</span>" if node["number"] else ""
    formula = f'<div style="margin: auto">{convert(node.astext(), display="block")}</div>'
    style = "display: flex; align-items: center; overflow: auto hidden; padding: 0.5em 0"
    page.body.append(page.starttag(node, "div", style=style) + formula + number + "</div>\n")
    raise nodes.SkipNode


class Commands(Directive):
    """The help of every command of `quorate`, each in a section of its own."""

    def run(self):
        """Ask click for the help texts."""
        parent = click.Context(main, info_name="quorate")
        return [self._section(parent, name) for name in main.list_commands(parent)]

    def _section(self, parent, name):
        context = click.Context(
            main.commands[name], parent=parent, info_name=name, max_content_width=80
        )
        text = main.commands[name].get_help(context)
        section = nodes.section(ids=[f"quorate-{name}"])
        section += nodes.title(text=f"quorate {name}")
        section += nodes.literal_block(text, text, language="none")
        return section


def leave_out_modules(app, what, name, thing, options, lines):
    """Docstrings of modules are for readers of the code. Pages have their own words."""
    if what == "module":
        lines.clear()


def setup(app):
    """Turn formulas into MathML and commands into their help when pages are built."""
    app.add_html_math_renderer("mathml", (inline_math, None), (displayed_math, None))
    app.add_directive("commands", Commands)
    app.connect("autodoc-process-docstring", leave_out_modules)

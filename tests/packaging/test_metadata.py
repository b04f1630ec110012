"""Version, requirements and Pythons are the same wherever they are written."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RECIPE = yaml.safe_load((ROOT / "recipe" / "recipe.yaml").read_text())
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())
WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
CONDA_NAMES = {"matplotlib": "matplotlib-base"}


def test_one_version():
    versions = PROJECT["version"], RECIPE["context"]["version"], CITATION["version"]
    assert len(set(versions)) == 1
    assert f"## {PROJECT['version']}" in (ROOT / "CHANGELOG.md").read_text().replace("[", "")


def test_the_recipe_requires_what_the_package_requires():
    pairs = [re.fullmatch(r"([\w-]+)(\S*)", text).groups() for text in PROJECT["dependencies"]]
    wanted = {f"{CONDA_NAMES.get(name, name)} {versions}" for name, versions in pairs}
    python = f"python >={RECIPE['context']['python_min']}"
    resolved = {
        text.replace("${{ python_min }}", RECIPE["context"]["python_min"])
        for text in RECIPE["requirements"]["run"]
    }
    assert resolved == wanted | {python}
    assert f">={RECIPE['context']['python_min']}" == PROJECT["requires-python"]


def test_every_python_that_is_named_is_tested_before_a_release():
    prefix = "Programming Language :: Python :: 3."
    named = [text.rpartition(" ")[2] for text in PROJECT["classifiers"] if text.startswith(prefix)]
    assert WORKFLOW["jobs"]["test"]["strategy"]["matrix"]["python"] == named


@pytest.mark.parametrize("job", WORKFLOW["jobs"].values(), ids=WORKFLOW["jobs"])
def test_actions_are_pinned_to_commits(job):
    used = [step["uses"] for step in job["steps"] if "uses" in step]
    assert used
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action) for action in used)


def test_only_publishing_may_identify_itself():
    allowed = {name: job.get("permissions", {}) for name, job in WORKFLOW["jobs"].items()}
    assert allowed == {"build": {}, "test": {}, "publish": {"id-token": "write"}}
    assert WORKFLOW["permissions"] == {"contents": "read"}

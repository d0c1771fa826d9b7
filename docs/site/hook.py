"""Settings of MkDocs that need code: names of headings as on code hosts. Contains no page."""
import re


def slug(heading, separator):
    """The name that links to a heading use (cli/tests/suite/prose.rs)."""
    kept = re.sub(r"[^\w\- ]", "", re.sub(r"<[^>]*>", "", heading)).strip().lower()
    return kept.replace(" ", separator)


def on_config(config):
    config.mdx_configs["toc"]["slugify"] = slug
    return config

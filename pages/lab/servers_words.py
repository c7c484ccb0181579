"""A server's own words, drawn as words."""


def plain(text: str) -> str:
    """Text that Markdown must not read as anything else, on one line."""
    return "".join(f"\\{c}" if c in "\\*_[]$`<>:#|~" else c for c in " ".join(text.split()))

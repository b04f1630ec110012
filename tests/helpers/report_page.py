"""A report taken apart, and what every report must be like."""

from html.parser import HTMLParser

VOID = {"meta", "br", "img", "link", "input", "hr"}


class Page(HTMLParser):
    """A page taken apart; tags that do not match are an error."""

    def __init__(self, source):
        super().__init__()
        self.open, self.tags, self.references, self.ids = [], [], [], []
        self.handlers, self.texts = [], []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        for name, value in attrs:
            if name in ("href", "src", "xlink:href", "action", "data", "srcset", "poster"):
                self.references.append(value)
            elif name == "id":
                self.ids.append(value)
            elif name.startswith("on"):
                self.handlers.append(name)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] != "style":
            self.texts.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())


def checked(source):
    """The page, if it asks for nothing and runs nothing."""
    page = Page(source)
    assert not {"script", "iframe", "object", "embed", "link", "img"} & set(page.tags)
    assert all(reference.startswith(("#", "data:image/png")) for reference in page.references)
    assert not page.handlers
    assert len(page.ids) == len(set(page.ids))
    assert "url(http" not in source
    assert "@import" not in source
    assert len(source.encode()) < 3e6
    return page

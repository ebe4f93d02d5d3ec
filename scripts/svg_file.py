"""What the scripts that draw share: an SVG document, text in it, and a file that appears whole."""

import os
import tempfile
from xml.sax.saxutils import escape

# A background of its own, so that dark viewers do not show dark letters on dark; letters and
# background change places where the viewer asks for dark.
STYLE = ("text{font-family:sans-serif;fill:#1a1a1a}.back{fill:#ffffff}"
         "@media(prefers-color-scheme:dark){text{fill:#eaeaea}.back{fill:#161616}}")


def plain(text):
    """Text that XML can hold: no control characters, no halves of surrogates."""
    return escape("".join(c if c.isprintable() else "?" for c in text))


def document(width, height, parts, description):
    """The SVG of these elements."""
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img">',
        f"<title>{plain(description)}</title>", f"<style>{STYLE}</style>",
        f'<rect class="back" width="{width}" height="{height}"/>',
        *parts, "</svg>", ""])


def write_whole(path, text):
    """Writes a file that appears whole or not at all; an OSError says why not."""
    directory = os.path.dirname(path) or "."
    handle, temporary = tempfile.mkstemp(dir=directory, prefix=".drawing")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise

"""What the checks share: which files belong to the project, and C-like text without its comments."""

import os
import re
import subprocess

CPP_SUFFIXES = (".h", ".cpp", ".inc")
GLSL_SUFFIXES = (".comp", ".glsl")


def project_files(root):
    """Sorted paths, relative to `root`, of all files git tracks or would track.

    Without git (an unpacked archive) every file outside hidden and build folders.
    """
    if os.path.exists(os.path.join(root, ".git")):
        command = ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, capture_output=True, check=False)
        if listed.returncode == 0:
            names = {name for name in listed.stdout.decode().split("\0") if name}
            return sorted(n for n in names if os.path.isfile(os.path.join(root, n)))
    return sorted(_walk(root))


def _walk(root):
    for folder, folders, files in os.walk(root):
        folders[:] = [
            f for f in folders
            if (not f.startswith(".") or f == ".ci") and f not in ("build", "__pycache__")
        ]
        for name in files:
            yield os.path.relpath(os.path.join(folder, name), root)


def read_text(root, name):
    """The file's text, or None when it is not UTF-8."""
    with open(os.path.join(root, name), "rb") as file:
        data = file.read()
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


_TOKEN = re.compile(
    r"""
      (?P<line>//(?:[^\\\n]|\\(?:\n|.))*)
    | (?P<block>/\*.*?(?:\*/|\Z))
    | (?P<raw>\b(?:u8|[uUL])?R"(?P<tag>[^()\\\s]{0,16})\(.*?\)(?P=tag)")
    | (?P<number>\b[0-9](?:'?[0-9A-Za-z_.])*)
    | (?P<string>"(?:[^"\\\n]|\\.)*")
    | (?P<char>'(?:[^'\\\n]|\\.)*')
    """,
    re.VERBOSE | re.DOTALL,
)


def _spaces(text):
    return re.sub(r"[^\n]", " ", text)


def without_comments(text):
    """C++ or GLSL text with comments made blank; line numbers stay as they are."""

    def replace(match):
        kind = match.lastgroup if match.lastgroup != "tag" else "raw"
        return _spaces(match.group()) if kind in ("line", "block") else match.group()

    return _TOKEN.sub(replace, text)


def without_comments_and_literals(text):
    """The same, with strings and characters made blank too."""

    def replace(match):
        return match.group() if match.lastgroup == "number" else _spaces(match.group())

    return _TOKEN.sub(replace, text)


def line_of(text, position):
    return text.count("\n", 0, position) + 1

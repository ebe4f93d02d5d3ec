"""A JSON document of a bounded size, for the scripts that draw what a file says."""

import json


def refuse_constant(name):
    raise ValueError(name + " is not JSON")


def read_json(path, most_bytes):
    """The document. A ValueError says in one line what is wrong, with the path."""
    try:
        with open(path, "rb") as file:
            data = file.read(most_bytes + 1)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    if len(data) > most_bytes:
        raise ValueError(f"{path}: is larger than {most_bytes} bytes")
    try:
        return json.loads(data.decode("utf-8"), parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: is no JSON: {error}") from None
